"""What viewers may change: each action is confirmed, run, recorded, and its result shown.

1. A link or form leads to the action's page, which says what it would do.
2. That page's form runs it. What the viewer has seen goes along (`expected`), so that the second of
   two people gets an error instead of a second effect.
3. Who did what is written to the category `penstock:console`, and the browser is redirected to that
   record: loading it again repeats nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.console.actions import pipelines, readers, work
from penstock.console.actions.action import Action
from penstock.console.data.audit import record_action
from penstock.console.security import Refused, base, read_form

if TYPE_CHECKING:
    from penstock.console.application import Console

ACTIONS = {one.name: one for one in (*readers.ACTIONS, *work.ACTIONS, *pipelines.ACTIONS)}
#: fields of a form that are not the action's
_OURS = ("csrf", "confirmed", "expected")


class Acting:
    """The addresses of actions."""

    def __init__(
        self, console: Console, *, allowed: bool, user: Callable[[Request], str] | None
    ) -> None:
        self._console, self._allowed, self._user = console, allowed, user

    async def confirm(self, request: Request) -> Response:
        """Show what an action would do, by its fields in the query."""
        return await self._confirm(request, self._action(request), request.query_params)

    async def post(self, request: Request) -> Response:
        """Run an action that is confirmed; show what one would do that is not."""
        action, form = self._action(request), await read_form(request)
        if form.get("confirmed") != "yes":
            return await self._confirm(request, action, form)
        ask = await self._console.ask(form)
        who = self._who(request)
        done = await action.run(ask, who)
        facts = {**_fields(form, without=action.private), "result": done.summary}
        if done.outcomes:
            facts["outcomes"] = done.outcomes
        position = await record_action(ask.store, who, action.title, facts)
        address = f"{base(request.scope)}/activity/action?position={position}"
        return RedirectResponse(address, status_code=303)

    def _action(self, request: Request) -> Action:
        if not self._allowed:
            raise Refused(
                403,
                "This console is read-only. Start it with `penstock console --actions`, or mount "
                "it with `actions=True`, to change something.",
            )
        found = ACTIONS.get(request.path_params["action"])
        if found is None:
            raise HTTPException(404, f"There is no action {request.path_params['action']}.")
        return found

    async def _confirm(self, request: Request, action: Action, fields: Any) -> Response:
        preview = await action.preview(await self._console.ask(fields))
        facts = {
            "action": {"name": action.name, "title": action.title, "danger": action.danger},
            "preview": self._console.plain(preview),
            "fields": [one for one in fields.multi_items() if one[0] not in _OURS],
            "who": self._who(request),
        }
        return self._console.page(request, "confirm.html", facts)

    def _who(self, request: Request) -> str:
        if self._user is not None:
            return str(self._user(request))
        return f"a viewer at {request.client.host}" if request.client else "a viewer"


def _fields(form: ImmutableMultiDict[str, str], without: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields for the record: one value, or a list of them."""
    names = [name for name in dict.fromkeys(form) if name not in (*_OURS, *without)]
    lists = {name: [str(one) for one in form.getlist(name)] for name in names}
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}
