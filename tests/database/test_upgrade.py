"""Upgrading the schema from what earlier commits installed; older packages on newer schemas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Edition
from penstock.database.edition import SCHEMA_VERSION
from penstock.database.parts import upgrades
from penstock.errors import IncompatibleVersion
from tests.database import client_process, earlier
from tests.database.catalog import catalog, differences
from tests.database.databases import CATALOG, FIVE_MESSAGES, NewDatabase, ask
from tests.racing import pause, wait_until_blocked

VERSION = "select version, oldest_client from penstock.installations order by id desc limit 1"
PIPELINE_0_1 = """
select penstock.open_processor('shop', 'orders', 'source');
select penstock.open_processor('shop', 'bill', 'stream');
update penstock.processors set cursor = '{"page": 4}' where processor = 'orders';
update penstock.processors
set generation = 2, floors = '{"order": 4}', steps = 5, messages_in = 9, messages_out = 8
where processor = 'bill';
insert into penstock.tailers values ('shop', 'bill', 'order', 7), ('shop', 'bill', 'price', 3);
select penstock.publish('nightly', 6, '{}', '{}')
"""
GROUP = """
select penstock.declare_type('Opened', '{account}');
select penstock.fill_attributes('Opened');
select penstock.register_consumer_group('bills');
select message_store.write_message(
  gen_random_uuid()::varchar, 'account-' || n, 'Opened', jsonb_build_object('account', n))
from generate_series(1, 2) n
"""
CLAIM = """
select claim, global_position from penstock.claim_next('bills', '{account}', '{Opened}', 'till')
"""
REPEATED = """
select p.repeated from (values (6), (7)) as b(batch)
cross join lateral penstock.publish('nightly', b.batch, '{}', '{}') p
"""
#: what a client of 0.1 may meet while and after the schema is upgraded
CLEAR = "IncompatibleVersion: "


@pytest.fixture(scope="session")
def package_0_1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `import penstock` finds the package of 0.1."""
    source = earlier.client_0_1(tmp_path_factory.mktemp("penstock-0.1"))
    return {**os.environ, "PYTHONPATH": str(source)}


def run_0_1(package_0_1: dict[str, str], code: str, *arguments: str) -> str:
    """Run code with the package of 0.1, and return what it prints."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys, penstock\n{code}", *arguments],
        env=package_0_1,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


class TestFromEveryEarlierSchema:
    @pytest.mark.parametrize("beside", [False, True], ids=["penstock", "beside"])
    @pytest.mark.parametrize("commit", earlier.COMMITS)
    def test_it_becomes_what_a_new_installation_is(
        self, new_database: NewDatabase, commit: str, beside: bool
    ) -> None:
        url, fresh = new_database("empty"), new_database("beside" if beside else "penstock")
        earlier.install(url, commit, beside=beside)

        plan = penstock.install(url)

        assert plan.edition is (Edition.ON_MESSAGE_DB if beside else Edition.PENSTOCK)
        assert differences(catalog(url), catalog(fresh)) == []
        assert not penstock.install(url).needed

    @pytest.mark.parametrize("commit", earlier.COMMITS)
    def test_its_messages_stay_and_more_can_be_written(
        self, new_database: NewDatabase, commit: str
    ) -> None:
        url = new_database("empty")
        earlier.install(url, commit)
        ask(url, FIVE_MESSAGES)
        before = ask(url, "select * from messages order by 1")

        penstock.install(url)

        assert ask(url, "select * from messages order by 1") == before
        with penstock.connect(url) as store:
            assert store.write_message("account-0", "T", expected_version=1) == 2
            assert len(store.get_category_messages("account")) == 6

    def test_a_check_names_the_steps_and_changes_nothing(self, new_database: NewDatabase) -> None:
        url = new_database("empty")
        earlier.install(url, earlier.RELEASE_0_1)
        before = ask(url, CATALOG)

        plan = penstock.install(url, check=True)

        first, *others = plan.actions
        assert first == f"upgrade the schema penstock from version 1 to {SCHEMA_VERSION}"
        steps = [name for name, _ in upgrades()]
        assert [one.split(":")[0].removeprefix("run ") for one in others[: len(steps)]] == steps
        assert "clients wait meanwhile" in others[-1]
        assert ask(url, CATALOG) == before
        assert penstock.install(url) == plan

    def test_progress_names_each_file(self, new_database: NewDatabase) -> None:
        url = new_database("empty")
        earlier.install(url, earlier.RELEASE_0_1)
        reported: list[str] = []

        penstock.install(url, progress=reported.append)

        assert reported[0] == "0002_1_columns"
        assert reported[-1] == "penstock/99_privileges.sql"


class TestWithDataOf01:
    def test_all_of_it_goes_on(
        self, new_database: NewDatabase, package_0_1: dict[str, str]
    ) -> None:
        url = new_database("empty")
        run_0_1(package_0_1, "penstock.install(sys.argv[1])", url)
        client = start_client(package_0_1, url)
        before = stop(client)

        penstock.install(url)

        assert before["errors"] == {}
        with penstock.connect(url) as store:
            work = client_process.Work(store)
            written = [str(one.id) for one in store.read_stream("order-1")]
            assert written == before["written"]
            (mailer,) = [one for one in store.admin.consumers() if one.consumer_id == "mailer"]
            assert mailer.position is not None
            assert mailer.behind <= 1
            last_offset = work.session.committed_offset()
            for call in work.calls():
                call()
            assert work.session.committed_offset() == last_offset + 1
            (group,) = store.groups.list()
            assert (group.pending, group.claimed) == (0, 0)

    def test_pipelines_and_deliveries_go_on(self, new_database: NewDatabase) -> None:
        url = new_database("empty")
        earlier.install(url, earlier.RELEASE_0_1)
        ask(url, PIPELINE_0_1)

        penstock.install(url)

        assert ask(
            url, "select pipeline, processor, queue, position from penstock.tailers order by 3"
        ) == [
            ("shop", "bill", "order", 7),
            ("shop", "bill", "price", 3),
        ]
        state = (
            "select generation, start_positions, cursor, tailers"
            " from penstock.open_processor('shop', %s, %s)"
        )
        with psycopg.connect(url) as connection:
            bill = connection.execute(state, ("bill", "stream")).fetchone()
            orders = connection.execute(state, ("orders", "source")).fetchone()
            repeated = connection.execute(REPEATED).fetchall()
        assert bill == (2, {"order": 4}, None, {"order": 7, "price": 3})
        assert orders == (0, {}, {"page": 4}, {})
        assert repeated == [(True,), (False,)]
        assert ask(
            url,
            "select steps, messages_in, messages_out"
            " from penstock.latest_processor_progress('shop', 'bill')",
        ) == [(5, 9, 8)]

    @pytest.mark.parametrize("commit", [earlier.RELEASE_0_1, earlier.VERSION_2])
    def test_a_claim_is_acknowledged_and_the_next_is_made(
        self, new_database: NewDatabase, commit: str
    ) -> None:
        url = new_database("empty")
        earlier.install(url, commit)
        ask(url, GROUP)
        ((claim, position),) = ask(url, CLAIM)

        penstock.install(url)

        ack = f"penstock.ack('bills', {claim['offset_id']}, {position}, '{claim['token']}')"
        ask(url, f"select {ack}")
        ((second, second_position),) = ask(url, CLAIM)
        assert (claim["partition_key"], position) == ("account:1", 1)
        assert (second["partition_key"], second_position) == ("account:2", 2)
        assert ask(url, CLAIM) == []

    @pytest.mark.parametrize("kind", ["empty", "genuine"])
    def test_a_client_that_runs_through_it_is_asked_to_upgrade_or_goes_on(
        self, new_database: NewDatabase, package_0_1: dict[str, str], kind: str
    ) -> None:
        url = new_database(kind)
        run_0_1(package_0_1, "penstock.install(sys.argv[1])", url)
        client = start_client(package_0_1, url)

        penstock.install(url)
        report = stop(client)

        unclear = [one for one in report["errors"] if not one.startswith(CLEAR)]
        assert len(unclear) <= 1  # the call that waited for a lock while its tables changed
        assert all(one.startswith("UndefinedColumn: ") for one in unclear)
        assert report["done"] > 0
        with penstock.connect(url) as store:
            assert [str(one.id) for one in store.read_stream("order-1")] == report["written"]

    def test_it_waits_for_open_transactions_and_lets_them_lock_more(
        self, new_database: NewDatabase
    ) -> None:
        url = new_database("empty")
        earlier.install(url, earlier.RELEASE_0_1)
        reported: list[str] = []
        with psycopg.connect(url, application_name="till") as client:
            client.execute("select from penstock.outbox for update")
            with ThreadPoolExecutor() as threads:
                installing = threads.submit(penstock.install, url, progress=reported.append)
                while not any(one.startswith("waiting for pid") for one in reported):
                    pause()
                wait_until_blocked(url)

                # would be a deadlock, if the upgrade kept the locks that it has while it waits
                client.execute("select from penstock.consumer_positions")
                client.commit()

                assert installing.result().needed
        assert "(till), idle in transaction for" in str(reported)
        assert ask(url, VERSION) == [(SCHEMA_VERSION, SCHEMA_VERSION)]


class TestThePackageOf01:
    REFUSED = "try: {}\nexcept penstock.errors.IncompatibleVersion as error: print(error)"

    @pytest.mark.parametrize("call", ["connect(sys.argv[1])", "install(sys.argv[1])"])
    def test_refuses_the_newer_schema_and_names_both_versions(
        self, database_url: str, package_0_1: dict[str, str], call: str
    ) -> None:
        before = ask(database_url, CATALOG)

        printed = run_0_1(package_0_1, self.REFUSED.format(f"penstock.{call}"), database_url)

        (line,) = printed.splitlines()
        assert f"version {SCHEMA_VERSION}" in line
        assert "1: upgrade the Python package" in line or "(1): upgrade the Python" in line
        assert ask(database_url, CATALOG) == before

    def test_does_not_put_the_schema_of_a_shared_folder_back(
        self, tmp_path: Path, package_0_1: dict[str, str]
    ) -> None:
        folder = tmp_path / "shared"
        run_0_1(package_0_1, "penstock.connect(folder=sys.argv[1]).close()", str(folder))

        with penstock.connect(folder=folder) as store:
            store.write_message("account-1", "Opened")
            printed = run_0_1(
                package_0_1,
                self.REFUSED.format("penstock.connect(folder=sys.argv[1])"),
                str(folder),
            )
            with store.transaction() as transaction:
                version = transaction.connection.execute(VERSION).fetchone()

        assert "upgrade the Python package" in printed
        assert version == (SCHEMA_VERSION, SCHEMA_VERSION)


class TestUpgradeFiles:
    def test_are_named_by_the_version_that_they_lead_to(self) -> None:
        names = [name for name, _ in upgrades()]

        numbers = [re.fullmatch(r"(\d{4})_(\d+)_[a-z_]+", name) for name in names]

        assert all(numbers)
        versions = [int(one[1]) for one in numbers if one]
        assert versions == sorted(versions)
        assert set(versions) == set(range(2, SCHEMA_VERSION + 1))

    def test_say_in_their_first_line_what_they_do(self) -> None:
        assert [name for name, text in upgrades() if not re.match(r"-- \w", text)] == []


class TestOlderNeverReplacesNewer:
    def test_an_upgrade_that_this_package_lacks_is_refused(self, database_url: str) -> None:
        ask(database_url, "update penstock.installations set upgrades = upgrades || '{0003_zz}'")
        before = ask(database_url, CATALOG)

        with pytest.raises(
            IncompatibleVersion, match=r"version 3 with 0003_zz, .* would install 3"
        ):
            penstock.install(database_url)

        assert ask(database_url, CATALOG) == before

    def test_an_upgrade_that_came_later_to_the_same_version_runs(self, database_url: str) -> None:
        ask(database_url, "update penstock.installations set upgrades = '{}', digest = 'other'")
        reported: list[str] = []

        penstock.install(database_url, progress=reported.append)

        assert reported[: len(upgrades())] == [name for name, _ in upgrades()]


class TestAClientWhoseFunctionsChange:
    """As when the schema becomes one of a later version, while this client runs."""

    @pytest.mark.parametrize(
        "change",
        [
            "drop function penstock.groups",
            "drop function penstock.groups;"
            "create function penstock.groups(bigint, text, bigint, text)"
            " returns int language sql as 'select 1'",
            "alter table penstock.consumer_groups rename to renamed_groups",
        ],
    )
    def test_is_reported(self, database_url: str, change: str) -> None:
        with penstock.connect(database_url, pool_min_size=1, pool_max_size=1) as store:
            for _ in range(8):  # by then it is prepared
                store.groups.list()
            ask(database_url, change)

            with pytest.raises(IncompatibleVersion, match="upgrade the Python package"):
                store.groups.list()


def start_client(environment: dict[str, str], url: str) -> subprocess.Popen[str]:
    """Start a client, and return once each of its calls has worked."""
    process = subprocess.Popen(
        [sys.executable, client_process.__file__, url],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def stop(client: subprocess.Popen[str]) -> dict[str, Any]:
    """Let a client end, and return its report."""
    printed, _ = client.communicate("stop\n", timeout=60)
    report: dict[str, Any] = json.loads(printed)
    return report
