"""Which handler a message goes to, and what is wrapped around it.

Handlers are named by message type: with a decorator, in a mapping, or as methods of an object that
are marked with `@handles`. One handler may take every type that no other takes. Middleware wraps
the call of any handler: it gets the message and the next thing to call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.errors import UnhandledMessageType, ValidationError
from penstock.loops.concurrency import is_coroutine_function
from penstock.message import RecordedMessage, check_text

Handler = Callable[..., Any]
#: called with the message and with what to call next
Middleware = Callable[[RecordedMessage, Callable[[RecordedMessage], Any]], Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_MARK = "__penstock_handles__"
_WITHOUT_YIELD = "a function without yield, of which a call would run nothing"


def handles(*types: str) -> Callable[[Function], Function]:
    """Mark a method as the handler of these message types; of all others, if none is named."""
    check_types(types, "handles")

    def mark(function: Function) -> Function:
        setattr(function, _MARK, types)
        return function

    return mark


def check_types(types: Sequence[object], decorator: str) -> None:
    """Refuse what is no type, such as the function below a decorator without parentheses."""
    for type in types:
        if callable(type):
            raise ValidationError("type", type, f"a text; for all types write @{decorator}()")
        check_text("type", type)


class Routes:
    """The handlers of one consumer."""

    def __init__(self, handlers: object, unknown: str) -> None:
        if unknown not in ("ignore", "refuse"):
            raise ValidationError("unknown", unknown, "'ignore' or 'refuse'")
        self._refuses_unknown = unknown == "refuse"
        self._by_type: dict[str, Handler] = {}
        self._catch_all: Handler | None = None
        if isinstance(handlers, Mapping):
            for type, handler in handlers.items():
                self.add(handler, type)
        elif handlers is not None:
            self._add_marked(handlers)

    def add(self, handler: Handler, *types: str) -> None:
        """Send messages of these types to the handler; all others, if none is named."""
        if not callable(handler):
            raise ValidationError("handler", handler, "a function")
        if is_generator(handler):
            raise ValidationError("handler", handler, _WITHOUT_YIELD)
        if not types:
            if self._catch_all is not None:
                raise ValidationError("handler", handler, "the only one for all other types")
            self._catch_all = handler
        for type in types:
            check_text("type", type)
            if type in self._by_type:
                raise ValidationError("type", type, "handled by one handler only")
            self._by_type[type] = handler

    def handler_of(self, message: RecordedMessage) -> Handler | None:
        """Return the handler of a message, None if it is to be passed over."""
        handler = self._by_type.get(message.type, self._catch_all)
        if handler is None and self._refuses_unknown:
            raise UnhandledMessageType(message.type, message.stream_name, message.global_position)
        return handler

    def check(self, awaits: bool) -> None:
        """Refuse to begin with no handler at all, or with async ones where nothing awaits them."""
        if not self._by_type and self._catch_all is None and not self._refuses_unknown:
            # it would pass over every message, and nobody would notice
            raise ValidationError("handlers", {}, "at least one")
        if not awaits:
            self._refuse_async()

    def _refuse_async(self) -> None:
        for handler in (*self._by_type.values(), self._catch_all):
            if is_coroutine_function(handler):
                raise ValidationError(
                    "handler", handler, "a plain function; AsyncConsumer takes async ones"
                )

    def _add_marked(self, handlers: object) -> None:
        if isinstance(handlers, type):
            raise ValidationError("handlers", handlers, "an object of this class, not the class")
        marked = [
            (getattr(method, _MARK), method)
            for _, method in inspect.getmembers(handlers, callable)
            if hasattr(method, _MARK)
        ]
        if not marked:
            raise ValidationError(
                "handlers", handlers, "a mapping, or an object with methods marked @handles(...)"
            )
        for types, method in marked:
            self.add(method, *types)


def refuse_generator(result: object) -> None:
    """Refuse the result of a function that yields: nothing of it has run."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise ValidationError("handler", result, _WITHOUT_YIELD)


def is_generator(function: Any) -> bool:
    """Whether calling it runs nothing, but gives something to iterate over."""
    return any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004 - what it is
    )


def wrapped(
    middleware: Sequence[Middleware], call: Callable[[RecordedMessage], Any]
) -> Callable[[RecordedMessage], Any]:
    """Return `call` with the middleware around it, the first outermost."""
    for one in reversed(middleware):
        call = _around(one, call)
    return call


def _around(
    middleware: Middleware, call: Callable[[RecordedMessage], Any]
) -> Callable[[RecordedMessage], Any]:
    return lambda message: middleware(message, call)
