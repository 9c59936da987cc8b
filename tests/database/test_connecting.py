"""Connecting: what the database holds is looked at first, and what does not fit is said at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import Edition, PenstockError
from penstock.errors import IncompatibleVersion, NotInstalled


async def refusal(url: str) -> PenstockError:
    """Return the error that both ways of connecting raise."""
    with pytest.raises(PenstockError) as caught:
        penstock.connect(url)
    with pytest.raises(PenstockError) as caught_async:
        await penstock.connect_async(url)
    assert type(caught.value) is type(caught_async.value)
    assert str(caught.value) == str(caught_async.value)
    return caught.value


@pytest.mark.parametrize("edition", list(Edition))
def test_the_edition_is_found(new_database: Callable[[str], str], edition: Edition) -> None:
    names = {
        Edition.PENSTOCK: "penstock",
        Edition.ON_MESSAGE_DB: "beside",
        Edition.GENUINE: "genuine",
    }

    with penstock.connect(new_database(names[edition])) as store:
        assert store.context.edition is edition
        assert store.message_store_version() == "1.3.0"


async def test_a_database_without_a_message_store_is_refused(
    new_database: Callable[[str], str],
) -> None:
    error = await refusal(new_database("empty"))

    assert isinstance(error, NotInstalled)
    assert "penstock init" in str(error)


async def test_a_message_db_of_another_version_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "create or replace function message_store.message_store_version() returns varchar"
            " language sql as $$ select '1.2.6'::varchar $$"
        )

    error = await refusal(database_url)

    assert isinstance(error, IncompatibleVersion)
    assert "1.2.6" in str(error)


class TestWithoutAnAddress:
    def test_a_server_is_started_and_keeps_its_data(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with penstock.connect() as store:
            store.write_message("account-1", "Opened")

        with penstock.connect() as store:
            assert store.stream_version("account-1") == 0
            assert store.context.edition is Edition.PENSTOCK
        assert (tmp_path / ".penstock").is_dir()

    async def test_two_stores_share_one_server(self, tmp_path: Path) -> None:
        with penstock.connect(folder=tmp_path / "log") as store:
            async with await penstock.connect_async(folder=tmp_path / "log") as other:
                await other.write_message("account-1", "Opened")

            assert store.stream_version("account-1") == 0

    def test_the_environment_may_have_one(
        self, database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PENSTOCK_URL", database_url)

        with penstock.connect() as store:
            store.write_message("account-1", "Opened")

        assert not (tmp_path / ".penstock").exists()
