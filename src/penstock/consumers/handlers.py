"""Which handler a message goes to, and the middleware around it.

Handlers are registered by message type: with a decorator, in a mapping, or as methods of an object
that are marked with `@handles`. One handler may take all other types. Middleware is called in place
of the handler, with the message and the function to call next.
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
_WITHOUT_YIELD = "a function without yield: calling a generator function runs none of its code"


def handles(*types: str) -> Callable[[Function], Function]:
    """Mark a method as the handler of these message types, or of all others if none is named."""
    check_types(types, "handles")

    def mark(function: Function) -> Function:
        setattr(function, _MARK, types)
        return function

    return mark


def check_types(types: Sequence[object], decorator: str) -> None:
    """Check message types. A function is there if a decorator was written without parentheses."""
    for type in types:
        if callable(type):
            raise ValidationError("type", type, f"text; for all types write @{decorator}()")
        check_text("type", type)


class Routes:
    """One consumer's handlers, by message type."""

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
        """Register the handler of these types, or of all others if none is named."""
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
        """Return the handler of a message; None if there is none and unknown types are ignored."""
        handler = self._by_type.get(message.type, self._catch_all)
        if handler is None and self._refuses_unknown:
            raise UnhandledMessageType(message.type, message.stream_name, message.global_position)
        return handler

    def check(self, check_handler: Callable[[Handler, str], None]) -> None:
        """Refuse to run without handlers, or with handlers that this consumer cannot call."""
        handlers = [*self._by_type.values(), *([self._catch_all] if self._catch_all else [])]
        if not handlers and not self._refuses_unknown:
            # every message would be ignored, without an error
            raise ValidationError("handlers", {}, "at least one")
        for handler in handlers:
            check_handler(handler, "Consumer")

    def _add_marked(self, handlers: object) -> None:
        if isinstance(handlers, type):
            raise ValidationError("handlers", handlers, "an instance, not a class")
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
    """Refuse the result of a generator function: none of its code has run."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise ValidationError("handler", result, _WITHOUT_YIELD)


def is_generator(function: Any) -> bool:
    """Whether a call returns a generator and runs none of the code."""
    return any(
        inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004 - not a test
    )


def checked_middleware(middleware: object, is_async: bool) -> tuple[Middleware, ...]:
    """Check middleware: async functions in an async consumer, plain ones in a blocking one."""
    if not isinstance(middleware, Sequence):
        raise ValidationError("middleware", middleware, "a list of functions")
    for one in middleware:
        if not callable(one) or is_coroutine_function(one) != is_async or is_generator(one):
            kind = "an async function" if is_async else "a plain function"
            raise ValidationError("middleware", one, kind)
    return tuple(middleware)
