"""`penstock outbox` and `penstock joins`: what is to be done, what failed, and what waits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Dispatcher, JoinId, NewMessage, OutboxMessageId, Store, new_id
from tests.cli.conftest import Run

DUE = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def failed(store: Store) -> OutboxMessageId:
    """A message that failed, among others."""
    id = store.outbox.enqueue("call", {"number": 7}, due=datetime(2020, 1, 1, tzinfo=UTC))
    store.outbox.fail(store.outbox.claim("me"), "the line is\tbusy")
    store.outbox.enqueue_many([NewMessage("mail", n, due=DUE) for n in range(2)])
    return id


@pytest.fixture
def join(store: Store) -> JoinId:
    """A join with one step completed, one failed and one to come."""
    join = store.joins.start("customer-7", 3)
    ids = store.outbox.enqueue_many([NewMessage(f"step {n}") for n in range(2)], joins=[join])
    claimed = {one.id: one for one in store.outbox.claim("me", 2)}
    store.outbox.ack(claimed[ids[0]])
    store.outbox.fail(claimed[ids[1]], "broken")
    return join


def test_the_outbox_is_counted_by_topic_and_state(penstock: Run, failed: OutboxMessageId) -> None:
    result = penstock("outbox")

    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert lines[1] == ["call", "0", "0", "0", "1"]
    assert lines[2] == ["mail", "2", "0", "0", "0", "2026-05-01T12:00:00.000Z"]
    assert lines[4] == [str(failed), "call", "1", "the", "line", "is\\tbusy"]


def test_the_outbox_as_json_is_one_object(penstock: Run, failed: OutboxMessageId) -> None:
    found = json.loads(penstock("outbox", "--json").stdout)

    assert found["topics"][0]["failed"] == {"value": 1, "at_least": False}
    assert found["topics"][1]["oldest_ready"] == "2026-05-01T12:00:00Z"
    assert [one["id"] for one in found["failed"]] == [str(failed)]


def test_a_topic_that_nobody_handles_is_shown_with_its_reason(penstock: Run, store: Store) -> None:
    store.outbox.enqueue("mail", due=DUE - timedelta(days=365))
    Dispatcher(store, owner="here").run_until_idle()

    [topic] = json.loads(penstock("outbox", "--json").stdout)["topics"]

    assert topic["last_error"] == "no handler for topic mail in dispatcher here"
    assert topic["last_error"] in penstock("outbox").stdout


@pytest.mark.parametrize("encoding", ["json", "text"])
def test_a_payload_that_cannot_be_decoded_is_shown_all_the_same(
    penstock: Run, store: Store, encoding: str
) -> None:
    id = store.outbox.enqueue("mail")
    with store.transaction() as tx:
        tx.connection.execute(
            "update penstock.outbox set payload = %s, encoding = %s", (b"\x1b[31m\xff", encoding)
        )
    store.outbox.fail(store.outbox.claim("me"), "it cannot be read")

    shown = penstock("outbox", "show", str(id)).stdout
    as_json = json.loads(penstock("outbox", "show", str(id), "--json").stdout)
    overview = json.loads(penstock("outbox", "--json").stdout)

    assert "\x1b" not in shown
    assert f"which is not {encoding}: " in shown
    assert as_json["payload"]["encoding"] == encoding
    assert [one["id"] for one in overview["failed"]] == [str(id)]


def test_what_is_not_due_yet_is_not_the_oldest_ready(penstock: Run, store: Store) -> None:
    store.outbox.enqueue("later", due=datetime.now(UTC) + timedelta(days=30))

    [topic] = json.loads(penstock("outbox", "--json").stdout)["topics"]

    assert (topic["ready"]["value"], topic["oldest_ready"]) == (1, None)


def test_as_many_failures_are_shown_as_asked_for(penstock: Run, store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("call", n) for n in range(25)])
    store.outbox.fail(store.outbox.claim("me", 25), "busy")

    assert (
        penstock("outbox").stderr == "the first 20 of 25 failed messages: --failures N shows more\n"
    )
    assert penstock("outbox", "--failures", "25").stderr == ""
    assert len(json.loads(penstock("outbox", "--failures", "25", "--json").stdout)["failed"]) == 25


def test_many_messages_are_counted_no_further_than_a_thousand(penstock: Run, store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("call", n) for n in range(2_002)])
    for _ in range(2):
        store.outbox.fail(store.outbox.claim("me", 1_000), "busy")
    store.outbox.ack(store.outbox.claim("me", 1))

    shown = penstock("outbox")
    [topic] = json.loads(penstock("outbox", "--json").stdout)["topics"]

    assert shown.stdout.splitlines()[1].split()[:5] == ["call", "1", "0", "1", "1,000+"]
    assert topic["failed"] == {"value": 1_000, "at_least": True}
    assert topic["done"] == {"value": 1, "at_least": False}
    assert "the first 20 of 1,000+ failed messages" in shown.stderr


def test_an_empty_outbox_has_nothing_to_tell(penstock: Run) -> None:
    result = penstock("outbox")

    assert len(result.stdout.splitlines()) == 1


def test_one_message_is_shown(penstock: Run, failed: OutboxMessageId) -> None:
    shown = penstock("outbox", "show", str(failed))
    as_json = json.loads(penstock("outbox", "show", str(failed), "--json").stdout)

    fields, timeline = shown.stdout.split("\n\n")
    facts = dict(line.split(maxsplit=1) for line in fields.splitlines())
    assert facts["state"].strip() == "failed"
    assert facts["payload"].strip() == '{"number":7}'
    assert facts["last"].strip().split(maxsplit=1) == ["error", "the line is\\tbusy"]
    assert [line.split()[0] for line in timeline.splitlines()[1:]] == [
        "enqueued",
        "claimed",
        "failed",
    ]
    assert (as_json["topic"], as_json["payload"]) == ("call", {"number": 7})
    assert [one["what"] for one in as_json["timeline"]] == ["enqueued", "claimed", "failed"]


def test_a_payload_is_shown_whole_however_large(penstock: Run, store: Store) -> None:
    id = store.outbox.enqueue("mail", payload := {"text": "x" * 200_000, "list": [*range(5_000)]})

    as_json = json.loads(penstock("outbox", "show", str(id), "--json").stdout)

    assert as_json["payload"] == payload


def test_a_message_is_shown_with_its_joins(penstock: Run, store: Store, join: JoinId) -> None:
    id = store.joins.members(join)[0].message_id

    shown = penstock("outbox", "show", str(id))
    as_json = json.loads(penstock("outbox", "show", str(id), "--json").stdout)

    assert shown.stdout.splitlines()[-1].split()[:3] == [str(join), "customer-7", "pending"]
    assert [one["join_id"] for one in as_json["joins"]] == [str(join)]


def test_more_failures_than_a_page_has_are_shown(penstock: Run, store: Store) -> None:
    store.outbox.enqueue_many([NewMessage("call", n) for n in range(250)])
    store.outbox.fail(store.outbox.claim("me", 250), "busy")

    found = json.loads(penstock("outbox", "--failures", "230", "--json").stdout)

    assert len({one["id"] for one in found["failed"]}) == 230


@pytest.mark.parametrize("how", ["id", "topic", "all"])
def test_failed_messages_are_retried(
    penstock: Run, store: Store, failed: OutboxMessageId, how: str
) -> None:
    chosen = {"id": [str(failed)], "topic": ["--topic", "call"], "all": ["--all"]}[how]

    result = penstock("outbox", "retry", *chosen)

    assert (result.exit_code, result.stderr) == (0, "1 message will be retried\n")
    assert store.outbox.get(failed).state == "ready"


@pytest.mark.parametrize("wrong", [[], ["--all", "--topic", "call"], ["no-id"]])
def test_a_retry_of_nobody_in_particular_is_refused(
    penstock: Run, store: Store, failed: OutboxMessageId, wrong: list[str]
) -> None:
    result = penstock("outbox", "retry", *wrong)

    assert result.exit_code == 2
    assert store.outbox.get(failed).state == "failed"


def test_unknown_ids_are_reported(penstock: Run) -> None:
    unknown = str(new_id())

    shown = penstock("outbox", "show", unknown)
    retried = penstock("outbox", "retry", unknown)
    join = penstock("joins", "show", unknown)
    cancelled = penstock("joins", "cancel", unknown)

    assert shown.stderr.startswith(f"penstock: there is no outbox message {unknown}")
    assert join.stderr == cancelled.stderr == f"penstock: there is no join {unknown}\n"
    assert [one.exit_code for one in (shown, retried, join, cancelled)] == [1, 1, 1, 1]


def test_joins_are_listed_with_their_steps(penstock: Run, store: Store, join: JoinId) -> None:
    other = store.joins.start(None, 1)

    every = penstock("joins")
    chosen = penstock("joins", "--grouping-key", "customer-7", "--status", "pending", "--json")

    lines = [line.split() for line in every.stdout.splitlines()]
    assert lines[1] == [str(other), "pending", "0", "0", "1"]
    assert lines[2] == [str(join), "customer-7", "pending", "1", "1", "3"]
    [found] = [json.loads(line) for line in chosen.stdout.splitlines()]
    assert (found["join_id"], found["failed_steps"]) == (str(join), 1)


def test_more_joins_than_the_limit_are_announced(penstock: Run, store: Store) -> None:
    for number in range(3):
        store.joins.start(f"customer-{number}", 1)

    cut, whole = penstock("joins", "--limit", "2"), penstock("joins", "--limit", "3")

    assert (len(cut.stdout.splitlines()), cut.stderr) == (3, "there are more: raise --limit\n")
    assert (len(whole.stdout.splitlines()), whole.stderr) == (4, "")


def test_a_join_is_shown_with_its_members(penstock: Run, store: Store, join: JoinId) -> None:
    first, second = (one.message_id for one in store.joins.members(join))

    shown = penstock("joins", "show", str(join)).stdout
    as_json = json.loads(penstock("joins", "show", str(join), "--json").stdout)

    lines = [line.split() for line in shown.splitlines()]
    assert ["grouping", "key", "customer-7"] in lines
    assert [str(first), "completed", "step", "0"] in lines
    assert [str(second), "failed", "step", "1", "broken"] in lines
    assert "1 step is not attached yet" in shown
    members = {one["message_id"]: (one["status"], one["last_error"]) for one in as_json["members"]}
    assert members == {str(first): ("completed", None), str(second): ("failed", "broken")}
    assert as_json["grouping_key"] == "customer-7"


def test_a_join_is_cancelled_for_good(penstock: Run, store: Store, join: JoinId) -> None:
    result = penstock("joins", "cancel", str(join))

    assert result.stderr == f"join {join} cancelled\n"
    assert store.joins.get(join).status == "cancelled"


def test_a_wrong_status_is_refused(penstock: Run) -> None:
    result = penstock("joins", "--status", "odd")

    assert result.exit_code == 2
