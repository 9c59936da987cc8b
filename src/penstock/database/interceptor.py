"""Hooks around every operation: change messages, log, trace, measure.

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
    """A running operation: its name, facts about its arguments and, at its end, its result."""

    name: str
    facts: Mapping[str, Any]
    result: Any = field(default=None)


class Interceptor:
    """The base class of interceptors. Its hooks do nothing; override those you need."""

    def on_write(self, stream_name: str, message: Message) -> Message:
        """Return the message to write in place of `message`. Raise to refuse it."""
        return message

    def on_read(self, message: RecordedMessage) -> RecordedMessage:
        """Return the message that the caller gets in place of `message`."""
        return message

    def around(self, call: Call) -> AbstractContextManager[None]:
        """Return a context manager for the operation. An error of the operation is raised in it.

        In a generator with `@contextmanager`, `call.result` is set after the `yield`.
        """
        return nullcontext()


def overrides(interceptor: Interceptor, hook: str) -> bool:
    """Whether the interceptor overrides the hook. Other hooks need not be called."""
    return getattr(type(interceptor), hook) is not getattr(Interceptor, hook)


class intercepted:  # noqa: N801, as other context managers are named
    """Enter the `around` of every interceptor for one operation, and return its `Call`.

    An interceptor may observe an error or raise another one. It cannot suppress the error.
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
