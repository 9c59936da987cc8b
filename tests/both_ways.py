"""Run a test twice: against the blocking classes, and against the async ones.

A test is written once, as blocking code. A room's `conftest.py` imports the fixtures that it needs:

    from tests.both_ways import event_loop_thread, store, way

`store` is then a `Store` in one run of a test and, in the other, an `AsyncStore` behind a facade
that has blocking methods. `way` is the package `penstock` in one form: `way.Consumer(store, ...)`
makes a `Consumer` or an `AsyncConsumer`, `way.connect(url)` calls `connect` or `connect_async`.

The facade runs each call on an event loop in a thread of its own, and waits for the result. Results
that are async themselves (transactions, queues, sessions, iterators) get a facade too. A function
that is passed to it, such as a handler, becomes an async function that runs it in another thread,
so handlers may use the facade. To pass a function unchanged, write `way.as_is(function)`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

import penstock
from penstock.store_async import AsyncStore
from tests.conftest import Server

_END = object()


class EventLoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(32))
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="event loop", daemon=True
        )
        self._thread.start()

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function on the loop, await what it returns if need be, and return the result."""
        if threading.current_thread() is self._thread:
            return self._call_here(function, *arguments, **options)

        async def call() -> Any:
            result = function(*arguments, **options)
            return await result if inspect.isawaitable(result) else result

        try:
            return asyncio.run_coroutine_threadsafe(call(), self.loop).result()
        except CancelledError:
            raise asyncio.CancelledError from None

    def _call_here(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise RuntimeError(f"{function} would block the event loop: use a blocking store here")
        return result

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self.call(self.loop.shutdown_default_executor)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class BlockingFacade:
    """An async object with blocking methods."""

    def __init__(self, thread: EventLoopThread, wrapped: Any) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name, _END)
        if found is _END:
            found = getattr(self._wrapped, {"close": "aclose"}.get(name, name))
        return self._out(found)

    def __enter__(self) -> Any:
        return self._out(self._thread.call(self._wrapped.__aenter__))

    def __exit__(self, *error: object) -> Any:
        return self._thread.call(self._wrapped.__aexit__, *error)

    def __iter__(self) -> Iterator[Any]:
        iterator = BlockingFacade(self._thread, aiter(self._wrapped))
        while (value := next(iterator, _END)) is not _END:
            yield value

    def __next__(self) -> Any:
        value = self._thread.call(anext, self._wrapped, _END)
        if value is _END:
            raise StopIteration
        return self._out(value)

    def __repr__(self) -> str:
        return f"<blocking facade of {self._wrapped!r}>"

    def _out(self, value: Any) -> Any:
        return self if value is self._wrapped else to_blocking(self._thread, value)


@dataclass(frozen=True)
class AsIs:
    """A function that is passed on unchanged."""

    function: Callable[..., Any]


as_is = AsIs


def to_blocking(thread: EventLoopThread, value: Any) -> Any:
    """Return what blocking code gets in place of a value that async code returned."""
    if hasattr(value, "penstock_original"):
        return value.penstock_original
    if _is_async(value):
        return BlockingFacade(thread, value)
    if not callable(value) or isinstance(value, type):
        return value

    def call(*arguments: Any, **options: Any) -> Any:
        given = [to_async(thread, one) for one in arguments]
        named = {name: to_async(thread, one) for name, one in options.items()}
        return to_blocking(thread, thread.call(value, *given, **named))

    return call


def to_async(thread: EventLoopThread, value: Any) -> Any:
    """Return what async code gets in place of a value that blocking code passed."""
    if isinstance(value, BlockingFacade):
        return value._wrapped
    if isinstance(value, AsIs):
        return value.function
    if type(value) in (list, tuple):
        return type(value)(to_async(thread, one) for one in value)
    if type(value) is dict:
        return {name: to_async(thread, one) for name, one in value.items()}
    if not callable(value) or isinstance(value, type) or _is_coroutine_function(value):
        return value

    async def run(*arguments: Any) -> Any:
        given = [to_blocking(thread, one) for one in arguments]
        return await asyncio.to_thread(value, *given)

    run.penstock_original = value  # type: ignore[attr-defined]
    return run


def _is_async(value: Any) -> bool:
    kind = type(value)
    ours = kind.__module__.startswith("penstock.") and kind.__module__.endswith("_async")
    return ours or hasattr(kind, "__aenter__") or hasattr(kind, "__anext__")


def _is_coroutine_function(value: Any) -> bool:
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(
        getattr(value, "__call__", None)  # noqa: B004 - what it is, not whether it is
    )


class Blocking:
    """The package `penstock`, as it is."""

    is_async = False
    #: what breaks a call off that is under way
    interruption: type[BaseException] = KeyboardInterrupt

    def as_is(self, function: Callable[..., Any]) -> Any:
        """Pass a function on unchanged."""
        return function

    def open_connection(self, url: str, **options: Any) -> Any:
        """Open a psycopg connection, for `store.using(connection)`."""
        return psycopg.connect(url, **options)

    @contextmanager
    def store(self, server: Server, url: str) -> Iterator[Any]:
        """Return a store on a fresh database."""
        with server.store(url, penstock.connect) as store:
            yield store

    def __getattr__(self, name: str) -> Any:
        return getattr(penstock, name)


class Async:
    """The package `penstock` with facades of the async classes under the blocking names."""

    is_async = True
    #: what breaks a call off that is under way
    interruption: type[BaseException] = asyncio.CancelledError

    def __init__(self, thread: EventLoopThread) -> None:
        self._thread = thread

    def as_is(self, function: Callable[..., Any]) -> Any:
        """Pass a function on unchanged: it runs on the event loop."""
        return AsIs(function)

    def open_connection(self, url: str, **options: Any) -> Any:
        """Open a psycopg connection, for `store.using(connection)`."""
        return to_blocking(self._thread, psycopg.AsyncConnection.connect)(url, **options)

    @contextmanager
    def store(self, server: Server, url: str) -> Iterator[Any]:
        """Return a store on a fresh database."""

        def connect_async(url: str) -> AsyncStore:
            store: AsyncStore = self._thread.call(penstock.connect_async, url)
            return store

        with server.store(url, connect_async) as store:
            yield BlockingFacade(self._thread, store)

    def __getattr__(self, name: str) -> Any:
        for async_name in (f"Async{name}", f"{name}_async"):
            if hasattr(penstock, async_name):
                return self._calling(getattr(penstock, async_name))
        return getattr(penstock, name)

    def _calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return to_blocking(self._thread, lambda *given, **named: function(*given, **named))  # type: ignore[no-any-return]


Way = Blocking | Async


def way_of(store: Any) -> Way:
    """Return the form of the package that a store belongs to."""
    return Async(store._thread) if isinstance(store, BlockingFacade) else Blocking()


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[EventLoopThread]:
    """One event loop for all tests that run async code through facades."""
    thread = EventLoopThread()
    yield thread
    thread.close()


@pytest.fixture(params=["blocking", "async"])
def way(request: pytest.FixtureRequest, event_loop_thread: EventLoopThread) -> Way:
    """The package `penstock` in one form: blocking, then async."""
    return Async(event_loop_thread) if request.param == "async" else Blocking()


@pytest.fixture
def store(way: Way, server: Server, database_url: str) -> Iterator[Any]:
    """A store on a fresh database."""
    with way.store(server, database_url) as store:
        yield store


@pytest.fixture(params=["penstock", "beside", "genuine"])
def any_store(
    way: Way, request: pytest.FixtureRequest, server: Server, new_database: Callable[[str], str]
) -> Iterator[Any]:
    """A store on each edition: ours, a genuine Message DB with ours beside it, and it alone."""
    with way.store(server, new_database(request.param)) as store:
        yield store


@pytest.fixture(scope="package")
def shared_url(server: Server) -> Iterator[str]:
    """A database that all tests of a room share: each uses categories of its own."""
    name = server.create_database(server.template("penstock"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture(scope="package")
def shared_stores(shared_url: str, event_loop_thread: EventLoopThread) -> Iterator[dict[bool, Any]]:
    """A store in each form on the shared database; by `way.is_async`."""
    with (
        Blocking().connect(shared_url) as blocking,
        Async(event_loop_thread).connect(shared_url) as not_blocking,
    ):
        yield {False: blocking, True: not_blocking}


@pytest.fixture
def shared_store(way: Way, shared_stores: dict[bool, Any]) -> Any:
    """A store on the shared database."""
    return shared_stores[way.is_async]
