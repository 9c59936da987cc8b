"""Hooks around every operation: change messages on their way, log, trace, measure.

Subclass `Interceptor`, override what you need, and pass instances to `connect(interceptors=[...])`.
They run in the order given on the way in, and in reverse on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

from penstock.message import Message, RecordedMessage


@dataclass(slots=True)
class Call:
    """One operation under way: its name, its arguments of interest and, once done, its result."""

    name: str
    facts: Mapping[str, Any]
    result: Any = field(default=None)


class Interceptor:
    """Does nothing. Override the hooks you want."""

    def on_write(self, stream_name: str, message: Message) -> Message:
        """Return the message to write in place of `message`. Raise to refuse it."""
        return message

    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        """Return the message to hand to the caller in place of `message`."""
        return message

    def around(self, call: Call) -> AbstractContextManager[None]:
        """Return a context that spans the operation; an error of the operation passes through it.

        Written as a generator with `@contextmanager`, it finds `call.result` after its `yield`.
        """
        return nullcontext()


def overrides(interceptor: Interceptor, hook: str) -> bool:
    """Whether this interceptor does anything at that hook, so that idle hooks cost nothing."""
    return getattr(type(interceptor), hook) is not getattr(Interceptor, hook)


class intercepted:  # noqa: N801, as other context managers are named
    """Enter the `around` of every interceptor for one operation; gives the call under way.

    An interceptor may watch an error, or raise another one, but not turn it into a success.
    """

    __slots__ = ("_call", "_interceptors", "_stack")

    def __init__(
        self, interceptors: Sequence[Interceptor], name: str, facts: Mapping[str, Any]
    ) -> None:
        self._interceptors = interceptors
        self._call = Call(name, facts)
        self._stack: ExitStack | None = None

    def __enter__(self) -> Call:
        if self._interceptors:
            with ExitStack() as stack:
                for interceptor in self._interceptors:
                    stack.enter_context(interceptor.around(self._call))
                self._stack = stack.pop_all()
        return self._call

    def __exit__(self, *error: Any) -> None:
        if self._stack is not None:
            self._stack.__exit__(*error)
