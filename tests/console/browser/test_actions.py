"""Each action: what it would do is shown, it is confirmed, it is done, and it is recorded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect

from penstock import (
    Claim,
    Consumer,
    FailurePolicy,
    OutboxMessageId,
    RecordedMessage,
    Store,
    TypedMessage,
)
from penstock.admin.restarts import last_request
from penstock.console.actions.acting import ACTIONS
from penstock.database.operation import call, only_value
from tests.console.browser.conftest import Shop, Visitor


class Returned(TypedMessage, type="parcel.returned"):
    """A message of a partition for each parcel."""

    parcel: str


def confirm(page: Page, action: str, store: Store, *, says: str = "") -> dict[str, Any]:
    """Confirm an action, and return what was recorded of it."""
    if says:
        expect(page.get_by_role("main")).to_contain_text(says)
    before = _records(store)
    page.get_by_role("button", name=ACTIONS[action].title, exact=True).click()
    expect(page.get_by_role("status").filter(visible=True)).not_to_be_empty()
    record = _records(store)[len(before)]
    assert "127.0.0.1" in json.dumps(record.data)  # who
    assert ACTIONS[action].title in json.dumps(record.data)  # what
    return dict(record.data)


def _records(store: Store) -> list[RecordedMessage]:
    return store.get_category_messages("penstock:console")


def failed(store: Store, topic: str, error: str = "no") -> OutboxMessageId:
    id = store.outbox.enqueue(topic, {"number": 1})
    (claimed,) = store.outbox.claim("test", topics=[topic])
    store.outbox.fail(claimed, error)
    return id


def ends_up(what: Any, store: Store, sql: str, *arguments: object) -> None:
    assert store.run(call("look", sql, arguments, only_value)) == what


class TestTheLog:
    def test_a_writer_that_holds_readers_back_is_ended(
        self, visitor: Visitor, console: str, store: Store, the_shop: Shop
    ) -> None:
        connection = psycopg.connect(the_shop.url, application_name="forgotten import")
        connection.execute(
            "select message_store.write_message(gen_random_uuid()::text, 'import-1', 'Begun', '{}')"
        )
        store.write_message("order-held", "Ordered", {"order_id": "held"})
        page = visitor.open(console)
        trouble = page.get_by_role("listitem").filter(has_text="forgotten import")
        expect(trouble).to_contain_text("holds readers back")
        trouble.get_by_role("link", name="End it").click()

        confirm(page, "end-writer", store, says="forgotten import")

        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
        with contextlib.suppress(psycopg.OperationalError):
            connection.close()


class TestConsumers:
    @pytest.fixture
    def page(self, visitor: Visitor, console: str, store: Store, request: Any) -> Page:
        name = request.node.name[:40]
        last = store.get_category_messages("order", batch_size=1000)[-1].global_position
        store.admin.seek("order", name, last)
        self.name, self.last = name, last
        return visitor.open(f"{console}/consumers/consumer?category=order&consumer_id={name}")

    def position(self, store: Store) -> int | None:
        return next(one for one in store.admin.consumers() if one.consumer_id == self.name).position

    def test_seek(self, page: Page, store: Store) -> None:
        page.get_by_label("Seek to just after position").fill("150")
        page.get_by_role("button", name="Seek").click()

        confirm(page, "seek-consumer", store, says="150")

        assert self.position(store) == 150

    def test_replay(self, page: Page, store: Store) -> None:
        page.get_by_label("Replay from position").fill("120")
        page.get_by_role("button", name="Replay").first.click()

        confirm(page, "replay-consumer", store, says="to 119")

        assert self.position(store) == 119

    def test_a_position_that_is_none_is_refused_before_anything_is_done(
        self, page: Page, store: Store, visitor: Visitor
    ) -> None:
        visitor.expected = ("status of 4",)
        page.get_by_label("Seek to just after position").fill("soon")
        page.get_by_role("button", name="Seek").click()

        expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("soon")
        assert self.position(store) == self.last


def test_each_consumer_of_a_queue_is_sought_from_its_own_row(
    visitor: Visitor, console: str, store: Store
) -> None:
    queue = store.queue("returns")
    queue.offer_many(["a", "b", "c"])
    for name in ("auditor", "clerk"):
        with queue.create_consumer(name) as session:
            session.poll()
            session.commit()
    page = visitor.open(f"{console}/queues")
    before = sought(store)
    page.get_by_role("link", name="Seek clerk of returns").click()
    expect(page.get_by_role("heading", name="Seek clerk of returns")).to_be_visible()
    expect(page.get_by_label("Next offset")).to_have_value(str(before["clerk"]))
    page.get_by_label("Next offset").fill("3")
    page.get_by_role("button", name="Seek").click()

    confirm(page, "seek-queue", store, says="clerk")

    assert sought(store) == {**before, "clerk": 3} != before


def sought(store: Store) -> dict[str, int]:
    """The next offsets of the queue's consumers."""
    return {
        one.consumer_id: one.next_offset for one in store.admin.sessions() if one.queue == "returns"
    }


class TestGroups:
    @pytest.fixture
    def group(self, store: Store, request: pytest.FixtureRequest) -> Iterator[str]:
        """A group with a partition that is parked and one that is claimed."""
        name = request.node.name
        store.declare(Returned)
        store.groups.register(name)
        store.append([Returned(parcel=f"{name} {n}") for n in range(3)])
        parked = self.claim(store, name)
        store.groups.release(parked, park=True, error="it is empty")
        self.claimed = self.claim(store, name)
        yield name
        store.groups.remove(name)

    def claim(self, store: Store, name: str) -> Claim:
        claim = store.groups.claim_next(
            name, partition_by="parcel", handled_types=[Returned], worker_id="clerk", lease=3600
        )
        assert claim is not None
        return claim

    @pytest.fixture
    def page(self, visitor: Visitor, console: str, group: str) -> Page:
        return visitor.open(f"{console}/groups/group?group_id={group}")

    def status(self, store: Store, group: str) -> Any:
        return next(one for one in store.groups.list() if one.group_id == group)

    def test_resume_a_partition(self, page: Page, group: str, store: Store) -> None:
        page.get_by_role("link", name="Resume …").click()

        confirm(page, "resume-partition", store, says="it is empty")

        assert self.status(store, group).parked == 0

    def test_resume_all(self, page: Page, group: str, store: Store) -> None:
        page.get_by_role("link", name="Resume all parked").click()

        confirm(page, "resume-partitions", store)

        assert self.status(store, group).parked == 0

    def test_release(self, page: Page, group: str, store: Store) -> None:
        page.get_by_role("link", name="Release …").click()

        confirm(page, "release-partition", store, says="clerk")

        assert self.status(store, group).claimed == 0
        with pytest.raises(Exception, match="claim"):
            store.groups.ack(self.claimed)

    def test_stop_and_start(self, page: Page, group: str, store: Store) -> None:
        page.get_by_role("link", name="Stop …").click()
        confirm(page, "stop-group", store)
        assert not store.groups.is_active(group)

        page.goto(f"{page.url.partition('/activity')[0]}/groups/group?group_id={group}")
        page.get_by_role("link", name="Start …").click()
        confirm(page, "start-group", store)
        assert store.groups.is_active(group)

    def test_reset(self, page: Page, group: str, store: Store) -> None:
        store.groups.ack(self.claimed)
        page.get_by_role("link", name="Reset …").click()

        confirm(page, "reset-group", store)

        assert [self.claim(store, group).replaying for _ in range(3)] == [False, True, False]

    def test_the_second_of_two_people_is_told(
        self, visitor: Visitor, page: Page, group: str, store: Store
    ) -> None:
        """Both have the same claim before them; when the second confirms, another has it."""
        visitor.expected = ("status of 4",)
        other = visitor.open(page.url)
        for one in (page, other):
            one.get_by_role("link", name="Release …").click()
        page.get_by_role("button", name="Release a partition").click()
        expect(page.get_by_role("status").filter(visible=True)).to_contain_text("clerk")
        self.claim(store, group)

        other.get_by_role("button", name="Release a partition").click()

        expect(other.get_by_role("alert").filter(visible=True)).not_to_be_empty()
        assert self.status(store, group).claimed == 1


class TestTheOutbox:
    def test_retry(self, visitor: Visitor, console: str, store: Store) -> None:
        id = failed(store, "to retry", "line busy")
        page = visitor.open(f"{console}/outbox/message?id={id}")
        page.get_by_role("link", name="Retry …").click()

        confirm(page, "retry-outbox", store, says="line busy")

        assert store.outbox.get(id).state == "ready"

    def test_a_second_retry_is_told_that_it_is_ready(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        id = failed(store, "to retry twice")
        pages = [visitor.open(f"{console}/actions/retry-outbox?id={id}") for _ in range(2)]
        visitor.expected = ("status of 4",)

        for page in pages:
            page.get_by_role("button", name="Retry a message").click()

        expect(pages[0].get_by_role("status").filter(visible=True)).to_contain_text("ready again")
        expect(pages[1].get_by_role("alert").filter(visible=True)).to_contain_text("not failed")

    def test_cancel(self, visitor: Visitor, console: str, store: Store) -> None:
        id = store.outbox.enqueue("to cancel", "payload")
        page = visitor.open(f"{console}/outbox/message?id={id}")
        page.get_by_role("link", name="Cancel …").click()

        confirm(page, "cancel-outbox", store)

        assert store.outbox.get(id).state == "failed"

    def test_retry_everything_that_matches(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        ids = [failed(store, "to match", error) for error in ("busy", "busy", "no such number")]
        page = visitor.open(f"{console}/outbox/messages?topic=to+match")
        page.get_by_label("Error contains").fill("busy")
        page.get_by_role("button", name="Retry …").click()

        confirm(page, "retry-matching", store, says="busy")

        assert [store.outbox.get(id).state for id in ids] == ["ready", "ready", "failed"]

    def test_cancel_a_join(self, visitor: Visitor, console: str, store: Store) -> None:
        join = store.joins.start("to cancel", 2)
        page = visitor.open(f"{console}/joins/join?id={join}")
        page.get_by_role("link", name="Cancel …").click()

        confirm(page, "cancel-join", store)

        assert store.joins.get(join).status == "cancelled"


class TestDeadLetters:
    def test_several_are_retried_together(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        ids = [failed(store, f"letter {number}") for number in range(2)]
        parked = self.park(store, "bulk")
        page = visitor.open(f"{console}/dead-letters")
        for what in (*map(str, ids), str(parked)):
            page.get_by_role("checkbox", name=f"Select {what}").check()
        expect(page.get_by_role("status").filter(visible=True)).to_contain_text("3")
        page.get_by_role("button", name="Retry …").click()

        record = confirm(page, "retry-letters", store, says="3")

        assert "3 retried" in json.dumps(record)
        assert {store.outbox.get(id).state for id in ids} == {"ready"}
        (message,) = store.admin.parked("bulk", "clerk")
        assert message.retry_requested

    def test_all_of_a_consumer_are_retried_from_the_overview(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        self.park(store, "to retry all")
        page = visitor.open(console)
        trouble = page.get_by_role("listitem").filter(has_text="to retry all")
        expect(trouble).to_contain_text("it cannot be read")
        trouble.get_by_role("link", name="Retry them …").click()

        confirm(page, "retry-parked", store, says="it cannot be read")

        (message,) = store.admin.parked("to retry all", "clerk")
        assert message.retry_requested

    def test_one_is_dropped(self, visitor: Visitor, console: str, store: Store) -> None:
        self.park(store, "dropped")
        page = visitor.open(f"{console}/dead-letters?kind=parked")
        row = page.get_by_role("row").filter(has_text="dropped")
        row.get_by_role("link").first.click()
        page.get_by_role("link", name="Drop …").click()

        confirm(page, "drop-letters", store)

        assert store.admin.parked("dropped", "clerk") == []

    def test_an_edited_copy_is_retried(self, visitor: Visitor, console: str, store: Store) -> None:
        failed(store, "to edit", "1 is no number")
        page = visitor.open(f"{console}/dead-letters?kind=outbox")
        page.get_by_role("row").filter(has_text="to edit").get_by_role("link").first.click()
        page.get_by_label("Data, as JSON").fill('{"number": 2}')
        page.get_by_role("button", name="Retry the copy …").click()

        record = confirm(page, "edit-letter", store)

        (copy,) = store.outbox.list(topic="to edit", state="ready")
        assert copy.payload == {"number": 2}
        assert '"number"' not in json.dumps(record)  # data stays where it is

    def test_an_edit_that_is_no_json_is_refused(
        self, visitor: Visitor, console: str, store: Store
    ) -> None:
        visitor.expected = ("status of 4",)
        id = failed(store, "to edit wrongly")
        page = visitor.open(f"{console}/dead-letters/letter?key=outbox/{id}")
        page.get_by_label("Data, as JSON").fill('{"number": ')
        page.get_by_role("button", name="Retry the copy …").click()

        expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("JSON")
        assert store.outbox.get(id).state == "failed"

    def park(self, store: Store, category: str) -> int:
        position = store.write_message(f"{category}-1", "Sent", returning="global_position")

        def fail(message: RecordedMessage) -> None:
            raise ValueError("it cannot be read")

        park = FailurePolicy.park(attempts=1)
        handlers = {"Sent": fail}
        Consumer(store, category, "clerk", handlers=handlers, on_failure=park).run_until_idle()
        return position


def test_retire_a_processor(visitor: Visitor, console: str, store: Store, the_shop: Shop) -> None:
    with psycopg.connect(the_shop.url, autocommit=True) as connection:
        connection.execute("select penstock.open_processor('old shop', 'gone', 'sink')")
    page = visitor.open(f"{console}/pipelines/processor?pipeline=old+shop&processor=gone")
    page.get_by_role("link", name="Retire …").click()

    confirm(page, "retire-processor", store)

    sql = "select retired_at is not null from penstock.processors where processor = 'gone'"
    ends_up(True, store, sql)


def test_run_a_pipeline_from_scratch_and_withdraw_it(
    visitor: Visitor, console: str, store: Store, the_shop: Shop
) -> None:
    with psycopg.connect(the_shop.url, autocommit=True) as connection:
        connection.execute("select penstock.open_processor('mill', 'grind', 'stream')")
    pipeline = f"{console}/pipelines/pipeline?pipeline=mill"
    page = visitor.open(pipeline)
    page.get_by_role("link", name="Run from scratch …").click()
    expect(page.get_by_role("main")).to_contain_text("Publish everything anew: grind.")

    confirm(page, "restart-pipeline", store)
    requested = store.run(last_request("mill"))
    page.goto(pipeline)
    expect(page.get_by_role("region", name="open From scratch")).to_contain_text("has requested it")
    page.get_by_role("link", name="Withdraw …").click()
    confirm(page, "withdraw-restart", store)

    withdrawn = store.run(last_request("mill"))
    assert requested is not None
    assert withdrawn is not None
    assert (requested.state, withdrawn.state) == ("open", "withdrawn")
    assert "127.0.0.1" in requested.requested_by


def test_leaving_it_does_nothing(visitor: Visitor, console: str, store: Store) -> None:
    id = failed(store, "to leave")
    page = visitor.open(f"{console}/outbox/message?id={id}")
    page.get_by_role("link", name="Retry …").click()
    page.wait_for_url("**/actions/**")  # with its script, which goes back

    page.get_by_role("link", name="Leave it").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("to leave")
    assert store.outbox.get(id).state == "failed"


def test_what_was_done_is_listed(visitor: Visitor, console: str, store: Store) -> None:
    id = failed(store, "to list")
    page = visitor.open(f"{console}/actions/retry-outbox?id={id}")
    confirm(page, "retry-outbox", store)

    page.get_by_role("link", name="Activity").first.click()

    expect(page.get_by_role("table")).to_contain_text("Retry a message")
    expect(page.get_by_role("table")).to_contain_text("127.0.0.1")


def test_loading_the_result_again_repeats_nothing(
    visitor: Visitor, console: str, store: Store
) -> None:
    id = failed(store, "to reload")
    page = visitor.open(f"{console}/actions/retry-outbox?id={id}")
    confirm(page, "retry-outbox", store)
    before = len(_records(store))

    page.reload()

    expect(page.get_by_role("status").filter(visible=True)).to_contain_text("ready again")
    assert len(_records(store)) == before


def test_every_action_is_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")

    assert [name for name in ACTIONS if f'confirm(page, "{name}"' not in source] == []
