"""Every test gets a real PostgreSQL: one server per test run, one fresh database per test."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import penstock
from penstock.database.embedded import EmbeddedServer, start
from penstock.store import Store
from tests import forked_python, message_db
from tests.database_reuse import FreshState, rename
from tests.scheduling import FromBothEnds
from tests.servers import FAST, own_folder
from tests.spark import class_archive
from tests.store_reuse import AnyStore, KeptConnections

#: Spark is started once, for whatever folder uses it
pytest_plugins = ["tests.spark.sessions"]

# how long an example takes says nothing on a busy machine
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

# Java that lives for a minute does better without its second compiler, on two cores.
for name in class_archive.VARIABLES:
    os.environ.setdefault(name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seconds", type=float, default=3, help="how long a chaos test runs")
    parser.addoption("--chaos-seed", type=int, default=None, help="repeat a chaos test's choices")
    parser.addoption("--chaos-report", action="store_true", help="keep the run in docs/chaos.md")
    parser.addoption("--pictures", action="store_true", help="keep the console's in docs/images/")
    parser.addoption("--server", type=Path, default=None, help="join the server of this folder")
    parser.addoption(
        "--crash-report",
        action="store_true",
        help="kill drivers at every point, however long it takes, and keep what was found",
    )


#: where tests start Spark in processes of their own
SPARK = (
    *("tests/pipeline/graph/test_run.py", "tests/pipeline/steps/"),
    *("tests/spark/connect/", "tests/spark/faults/", "tests/spark/test_session.py"),
    *("tests/demo/test_demo.py", "tests/docs/test_examples.py::test_an_example_on_spark"),
)
#: where tests take long without Spark: they start servers and processes, race for seconds, try
#: hundreds of examples, or fill a log to measure what it costs
SLOW = (
    *("tests/compatibility/", "tests/fuzz/", "tests/mutants/", "tests/promises/"),
    *("tests/bench/test_loss.py", "tests/chaos/test_chaos.py"),
    *("tests/cli/test_lake.py", "tests/cli/test_process.py"),
    *("tests/console/browser/", "tests/console/data/test_costs.py"),
    *(f"tests/consumers/test_{one}.py" for one in (
        "consumer_faults", "consumer_groups", "lost_positions",
    )),
    *(f"tests/database/test_{one}.py" for one in (
        "backup", "clock", "connecting", "embedded", "ending", "failover", "install",
        "install_on_message_db", "reconnect", "security", "upgrade", "versions",
    )),
    *("tests/docs/test_blocks.py", "tests/docs/test_examples.py", "tests/loops/test_outage.py"),
    *(f"tests/lake/test_{one}.py" for one in ("changes", "s3", "upkeep")),
    *(f"tests/groups/test_{one}.py" for one in (
        "archived_groups", "group_costs", "group_model", "group_stress", "lost_claims",
        "worker_ends",
    )),
    *(f"tests/log/test_{one}.py" for one in (
        "applied_rows", "archive", "archive_twins", "archived_guards", "bloated_indexes",
        "coalescing", "coalescing_faults", "coalescing_model", "complete", "guard_model",
        "guard_races", "interleavings", "plans", "replica", "restarts", "retention_cost",
        "truncate", "waiter_faults", "watermark_faults",
    )),
    "tests/log/test_guards.py::test_a_bulk_append_of_100_000_takes_few_locks",
    "tests/log/test_iterators.py::TestMemory",
    "tests/message/test_names_on_server.py",
    *(f"tests/outbox/test_{one}.py" for one in (
        "costs", "lost_claims", "outbox_faults", "outbox_locks",
    )),
    *("tests/queues/test_session_faults.py", "tests/queues/test_session_model.py"),
    *("tests/spark/read/test_archived.py", "tests/spark/read/test_splits.py"),
    *("tests/spark/test_replica.py", "tests/spark/test_round_trip.py"),
    *("tests/telemetry/test_health_cost.py", "tests/test_package.py"),
)  # fmt: skip


#: the expression of `make test-quick`
QUICK = "not spark and not slow"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tests need not import the modules that have none of them."""
    path = collection_path.relative_to(config.rootpath).as_posix()
    is_left_out = config.option.markexpr == QUICK and f"{path}/".startswith(
        tuple(one if one.endswith("/") else f"{one}/" for one in (*SPARK, *SLOW))
    )
    return is_left_out or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live to the end: collections of garbage need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests, and put them in the order in which `scheduling.py` deals them."""
    for item in items:
        if item.nodeid.startswith(SPARK) or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.nodeid.startswith(SLOW) or item.get_closest_marker("chaos"):
            item.add_marker("slow")
    items.sort(key=_order)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before a test's time begins
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not item.get_closest_marker("spark"):
        return (yield)
    class_archive.use()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in forked_python.spark_server().spark_variables().items():
            patch.setenv(name, value)
        return (yield)


def _order(item: pytest.Item) -> tuple[bool, bool]:
    return not item.get_closest_marker("spark"), item.get_closest_marker("slow") is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FromBothEnds:
    return FromBothEnds(config, log)


@pytest.fixture(scope="session")
def chaos_seconds(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--chaos-seconds"))


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_the_foreground() -> None:
    """A shell's background job ignores some signals, and so would the processes of tests."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    for name in [name for name in os.environ if name.startswith(("PENSTOCK_", "PG"))]:
        del os.environ[name]


class Server:
    """A PostgreSQL for tests, with a template of each edition to copy databases from."""

    def __init__(self, embedded: EmbeddedServer) -> None:
        self.embedded = embedded
        self._numbers = itertools.count(1)
        self._names: set[str] = set()
        self._templates: dict[str, str] = {}
        self._fresh: dict[str, FreshState] = {}
        self._administrator: psycopg.Connection[Any] | None = None
        self._idle: dict[str, list[str]] = defaultdict(list)
        self._cleaners: dict[str, psycopg.Connection[Any]] = {}  # by database
        self._kept: dict[str, dict[str, KeptConnections[Any]]] = defaultdict(dict)  # by database
        self._editions: dict[str, str] = {}  # by database, of those that are taken
        self._stores: dict[tuple[str, str], Any] = {}  # the first of each kind and edition

    def url(self, database: str) -> str:
        return self.embedded.url_for(database)

    def administer(self, statement: str, *names: str) -> None:
        composed = sql.SQL(statement)
        self._connection().execute(composed.format(*(sql.Identifier(name) for name in names)))

    def _connection(self) -> psycopg.Connection[Any]:
        """Return a connection that is kept, since each test needs one; a new one if it was lost."""
        with suppress(psycopg.OperationalError):
            if self._administrator is not None:
                self._administrator.execute("")
                return self._administrator
        self._administrator = psycopg.connect(self.url("postgres"), autocommit=True)
        return self._administrator

    def create_database(self, template: str = "template1") -> str:
        """Make a database and return its name."""
        name = self._new_name()
        self.administer("create database {} template {} strategy file_copy", name, template)
        return name

    def drop_database(self, name: str) -> None:
        self.administer("drop database if exists {} with (force)", name)

    def take(self, edition: str) -> str:
        """Return the name of a fresh database of that edition, or 'empty', until `give_back`."""
        if self._idle[edition]:
            name = self._idle[edition].pop()
        else:
            template = "template1" if edition == "empty" else self.template(edition)
            name = self.create_database(template)
            if edition not in self._fresh:
                self._fresh[edition] = FreshState.of(self.url(name))
        self._editions[name] = edition
        return name

    def give_back(self, edition: str, name: str, *, hide: bool) -> None:
        """Keep a database for another test, if it can be brought back to its fresh state.

        `hide` gives it another name, if what uses it may not have ended with the test.
        """
        if hide:
            self._disconnect(name)
            old, name = name, self._new_name()
            if not rename(self._connection(), old, name):
                self.drop_database(old)
                return
        if self._is_restored(edition, name):
            self._idle[edition].append(name)
        else:
            self._disconnect(name)
            self.drop_database(name)

    def _is_restored(self, edition: str, name: str) -> bool:
        kept = [pid for one in self._kept[name].values() for pid in one.sessions]
        with suppress(psycopg.OperationalError):  # a test may end its sessions
            if name in self._cleaners:
                return self._fresh[edition].restore(self._cleaners[name], kept)
        self._drop_cleaner(name)
        self._cleaners[name] = psycopg.connect(self.url(name), autocommit=True)
        return self._fresh[edition].restore(self._cleaners[name], kept)

    def _drop_cleaner(self, name: str) -> None:
        if name in self._cleaners:
            self._cleaners.pop(name).close()

    def _disconnect(self, name: str) -> None:
        """Close all connections to a database that are kept."""
        self._drop_cleaner(name)
        for kept in self._kept.pop(name, {}).values():
            kept.close()

    @contextmanager
    def store(self, url: str, connect: Callable[[str], AnyStore]) -> Iterator[AnyStore]:
        """A store on a fresh database, with the connections of earlier stores of its kind."""
        database = str(conninfo_to_dict(url)["dbname"])
        kept, kind = self._kept[database], connect.__name__
        if kind not in kept:
            like = (kind, self._editions[database])
            if like not in self._stores:
                self._stores[like] = connect(url)
            kept[kind] = KeptConnections(self._stores[like], url, self._connection())
        store: AnyStore = kept[kind].new_store()
        try:
            yield store
        finally:
            kept[kind].take_back(store)

    def drop_all(self) -> None:
        """Drop every database that was made here."""
        for name in self._names:
            self.drop_database(name)

    def _new_name(self) -> str:
        name = f"test_{os.getpid()}_{next(self._numbers)}"  # the server may be shared
        self._names.add(name)
        return name

    def template(self, edition: str) -> str:
        """Return the name of a template: 'penstock', 'beside' (both) or 'genuine' (Message DB)."""
        if edition not in self._templates:
            name = self.create_database()
            if edition != "penstock":
                message_db.install(self.url(name))
            if edition != "genuine":
                penstock.install(self.url(name))
            self._templates[edition] = name
        return self._templates[edition]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    shared: Path | None = request.config.getoption("--server")
    if shared is not None:
        with start(shared, settings=FAST) as embedded:
            server = Server(embedded)
            yield server
            server.drop_all()
        return
    with own_folder() as folder, start(folder, settings=FAST) as embedded:
        yield Server(embedded)


@pytest.fixture
def new_database(server: Server, request: pytest.FixtureRequest) -> Iterator[Callable[[str], str]]:
    """Make fresh databases of an edition ('penstock', 'beside', 'genuine' or 'empty') by URL."""
    made: list[tuple[str, str]] = []

    def create(edition: str) -> str:
        made.append((edition, server.take(edition)))
        return server.url(made[-1][1])

    yield create
    has_processes = any(request.node.get_closest_marker(one) for one in ("spark", "slow"))
    for edition, name in made:
        server.give_back(edition, name, hide=has_processes)


@pytest.fixture
def database_url(new_database: Callable[[str], str]) -> str:
    """A fresh database with Penstock installed."""
    return new_database("penstock")


@pytest.fixture
def store(server: Server, database_url: str) -> Iterator[Store]:
    """A store on a fresh database."""
    with server.store(database_url, penstock.connect) as store:
        yield store


@pytest.fixture(params=["penstock", "beside", "genuine"])
def any_store(
    request: pytest.FixtureRequest, server: Server, new_database: Callable[[str], str]
) -> Iterator[Store]:
    """A store on each edition: ours, a genuine Message DB with ours beside it, and it alone."""
    with server.store(new_database(request.param), penstock.connect) as store:
        yield store


@pytest.fixture
async def async_store(server: Server, database_url: str) -> AsyncIterator[penstock.AsyncStore]:
    """An async store on a fresh database."""

    def connect_async(url: str) -> penstock.AsyncStore:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, penstock.connect_async(url)).result()

    with server.store(database_url, connect_async) as store:
        yield store
