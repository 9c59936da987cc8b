"""`penstock consumers`, `seek`, `replay`, `parked` and `retain` look after consumers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

import penstock
from penstock import Consumer, ConsumerSession, FailurePolicy, Message, RecordedMessage, Store
from penstock.errors import SessionFenced
from tests.cli.conftest import Run, run
from tests.groups.school import DeviceSeen, claim_device


@pytest.fixture
def places(store: Store) -> list[int]:
    """Four messages of a category, and where they are."""
    for number in range(4):
        store.write_message("order-1", "Placed", {"number": number})
    return [message.global_position for message in store.read_category("order")]


def handled(store: Store, positions: str = "stream") -> list[int]:
    """The numbers that the consumer `mailer` handles now."""
    numbers: list[int] = []
    consumer = Consumer(store, "order", "mailer", positions=positions)
    consumer.handler("Placed")(lambda message: numbers.append(message.data["number"]))
    consumer.run_once()
    return numbers


def park(store: Store) -> None:
    """Let the consumer `mailer` park the messages 1 and 2."""

    def fail(message: RecordedMessage) -> None:
        if message.data["number"] in (1, 2):
            raise RuntimeError("no\tsuch address")

    policy = FailurePolicy.park(attempts=1)
    Consumer(store, "order", "mailer", handlers={"Placed": fail}, on_failure=policy).run_once()


class TestConsumers:
    def test_are_listed_with_their_backlog(
        self, penstock: Run, store: Store, places: list[int]
    ) -> None:
        store.admin.seek("order", "mailer", places[0], "table")
        store.admin.seek("order", "biller", places[-1], "stream")

        result = penstock("consumers")

        header, biller, mailer = [line.split() for line in result.stdout.splitlines()]
        assert header[:2] == ["category", "consumer"]
        assert biller[:7] == ["order", "biller", "stream", "4", "4", "0", "-"]
        assert mailer[:6] == ["order", "mailer", "table", "1", "4", "3"]

    @pytest.mark.usefixtures("places")
    def test_parked_messages_are_counted_with_the_last_error(
        self, penstock: Run, store: Store
    ) -> None:
        park(store)

        header, mailer = penstock("consumers").stdout.splitlines()

        assert header.split()[8] == "parked"
        assert mailer.split()[7] == "2"
        assert r"RuntimeError: no\tsuch address" in mailer

    @pytest.mark.usefixtures("places")
    def test_more_than_the_limit_are_announced(self, penstock: Run, store: Store) -> None:
        for name in ("a", "b"):
            store.admin.seek("order", name, 0)

        cut, whole = penstock("consumers", "--limit", "1"), penstock("consumers", "--limit", "3")

        assert len(cut.stdout.splitlines()) == 2
        assert cut.stderr == "there may be more: raise --limit\n"
        assert whole.stderr == ""

    @pytest.mark.usefixtures("places")
    def test_a_count_that_was_cut_short_says_so(self, penstock: Run, store: Store) -> None:
        store.admin.seek("order", "mailer", 0)

        result = penstock("consumers", "--count-up-to", "2")

        assert result.stdout.splitlines()[1].split()[5] == "2+"

    @pytest.mark.usefixtures("places")
    def test_as_json(self, penstock: Run, store: Store) -> None:
        store.admin.seek("order", "mailer", 0)

        (line,) = penstock("consumers", "--json").stdout.splitlines()

        found = json.loads(line)
        assert (found["consumer_id"], found["position"], found["behind"]) == ("mailer", 0, 4)
        assert found["seconds_behind"] >= 0
        assert found["updated_at"].endswith("Z")

    def test_one_without_a_position_is_shown(self, penstock: Run, store: Store) -> None:
        store.write_message("order:position-mailer", "Recorded", {"position": "?"})

        result = penstock("consumers")

        assert result.stdout.splitlines()[1].split()[3] == "?"
        assert "penstock seek" in result.stderr


class TestRemove:
    @pytest.mark.parametrize("kept_in", ["stream", "table", "hybrid"])
    def test_removes_a_consumer_after_a_question(
        self, penstock: Run, store: Store, places: list[int], kept_in: str
    ) -> None:
        store.admin.seek("order", "mailer", places[1], kept_in)

        refused = penstock("consumers", "remove", "order", "mailer", stdin="n\n")
        stayed = len(store.admin.consumers())
        result = penstock("consumers", "remove", "order", "mailer", stdin="y\n")

        assert (refused.exit_code, stayed) == (1, 1)
        question = "remove mailer of order, at position 2, with 0 parked messages?"
        assert result.stderr.startswith(question)
        assert result.stderr.endswith("mailer of order removed\n")
        assert store.admin.consumers() == []

    @pytest.mark.usefixtures("places")
    def test_counts_its_parked_messages(self, penstock: Run, store: Store) -> None:
        park(store)

        result = penstock("consumers", "remove", "order", "mailer", stdin="n\n")

        assert "with 2 parked messages?" in result.stderr

    def test_or_without_one(self, penstock: Run, store: Store) -> None:
        store.admin.seek("order", "mailer", 0)

        result = penstock("consumers", "remove", "order", "mailer", "--yes")

        assert result.stderr == "mailer of order removed\n"
        assert store.admin.consumers() == []

    def test_a_queue_s_consumer(self, penstock: Run, store: Store) -> None:
        store.queue("mail").create_consumer("reader")

        result = penstock("consumers", "remove", "queue-mail", "reader", stdin="y\n")

        assert result.stderr.startswith("remove reader of queue mail, at offset 0?")
        assert store.admin.sessions() == []

    @pytest.mark.parametrize("category", ["order", "queue-mail"])
    def test_one_that_nobody_knows_is_refused_without_a_question(
        self, penstock: Run, category: str
    ) -> None:
        result = penstock("consumers", "remove", category, "mialer")

        assert result.exit_code == 2
        assert "mialer" in result.stderr
        assert "remove mialer" not in result.stderr

    def test_a_role_without_the_rights_gets_an_error(self, store: Store, database_url: str) -> None:
        store.admin.seek("order", "mailer", 0)
        options = f"{database_url}&options=-c%20role%3Dmessage_store"

        result = run("consumers", "remove", "order", "mailer", "--yes", url=options)

        assert result.exit_code == 1
        assert "the role that owns" in " ".join(result.stderr.split())


class TestSeek:
    @pytest.mark.parametrize("kept_in", ["stream", "table", "hybrid"])
    def test_moves_a_consumer_where_it_keeps_its_position(
        self, penstock: Run, store: Store, places: list[int], kept_in: str
    ) -> None:
        handled(store, kept_in)

        result = penstock("seek", "order", "mailer", str(places[1]))

        assert result.exit_code == 0
        assert result.stderr.startswith("mailer of order: moved from 4 to 2")
        assert handled(store, kept_in) == [2, 3]

    @pytest.mark.usefixtures("places")
    def test_to_the_end(self, penstock: Run, store: Store) -> None:
        store.admin.seek("order", "mailer", 0)

        penstock("seek", "order", "mailer", "end")

        assert handled(store) == []

    def test_a_consumer_that_nobody_knows_is_refused(self, penstock: Run) -> None:
        result = penstock("seek", "order", "mialer", "0")

        assert result.exit_code == 2
        assert "mialer" in result.stderr

    def test_unless_it_is_to_come(self, penstock: Run, store: Store, places: list[int]) -> None:
        penstock("seek", "order", "mailer", str(places[2]), "--kept-in", "table")

        assert handled(store, "table") == [3]

    @pytest.mark.parametrize("position", ["x", "1.5", "٣"])
    @pytest.mark.usefixtures("places")
    def test_a_position_that_is_none(self, penstock: Run, store: Store, position: str) -> None:
        store.admin.seek("order", "mailer", 0)

        assert penstock("seek", "order", "mailer", position).exit_code == 2

    def test_beyond_the_end_of_the_log_it_would_pass_over_messages_to_come(
        self, penstock: Run, store: Store, places: list[int]
    ) -> None:
        handled(store)

        result = penstock("seek", "order", "mailer", "99999")

        assert result.exit_code == 2
        assert "the end of the log" in " ".join(result.stderr.split())
        store.write_message("order-1", "Placed", {"number": len(places)})
        assert handled(store) == [len(places)]

    def test_on_a_genuine_message_db(self, new_database: Callable[[str], str]) -> None:
        url = new_database("genuine")

        with penstock.connect(url) as store:
            store.write_messages("order-1", [Message("Placed") for _ in range(8)])

        result = run("seek", "order", "mailer", "7", url=url)

        assert result.exit_code == 0
        with penstock.connect(url) as store:
            last = store.get_last_stream_message("order:position-mailer")
        assert last is not None
        assert last.data == {"position": 7}


class TestReplay:
    def test_from_a_position(self, penstock: Run, store: Store, places: list[int]) -> None:
        handled(store)

        penstock("replay", "order", "mailer", "--position", str(places[2]))

        assert handled(store) == [2, 3]

    @pytest.mark.usefixtures("places")
    def test_from_the_beginning(self, penstock: Run, store: Store) -> None:
        handled(store)

        penstock("replay", "order", "mailer", "--beginning")

        assert handled(store) == [0, 1, 2, 3]

    @pytest.mark.usefixtures("places")
    def test_since_a_time(self, penstock: Run, store: Store) -> None:
        handled(store)
        third = store.get_category_messages("order")[2].time

        penstock("replay", "order", "mailer", "--since", third.isoformat())
        since_third = handled(store)
        penstock("replay", "order", "mailer", "--since", "1999-01-01")

        assert since_third == [2, 3]
        assert handled(store) == [0, 1, 2, 3]

    def test_it_never_leaves_anything_out(
        self, penstock: Run, store: Store, places: list[int]
    ) -> None:
        store.admin.seek("order", "mailer", places[0])

        result = penstock("replay", "order", "mailer", "--position", str(places[3]))

        assert result.exit_code == 2
        assert handled(store) == [1, 2, 3]

    @pytest.mark.parametrize(
        "options",
        [[], ["--beginning", "--position", "1"], ["--since", "yesterday"], ["--position", "0"]],
    )
    @pytest.mark.usefixtures("places")
    def test_asked_for_wrongly(self, penstock: Run, store: Store, options: list[str]) -> None:
        handled(store)

        assert penstock("replay", "order", "mailer", *options).exit_code == 2


class TestSessions:
    """A queue's consumers, each with a session: they are found and moved as consumers are."""

    @pytest.fixture
    def session(self, store: Store) -> ConsumerSession:
        queue = store.queue("mail")
        queue.offer_many(["a", "b", "c"])
        session = queue.create_consumer("reader")
        session.poll()
        return session

    @pytest.mark.usefixtures("session", "places")
    def test_are_listed_by_queue_and_consumer(self, penstock: Run, store: Store) -> None:
        store.admin.seek("order", "mailer", 0)

        lines = [line.split() for line in penstock("consumers").stdout.splitlines()]

        assert lines[1][:2] == ["order", "mailer"]
        assert lines[3][:6] == ["queue", "consumer", "next", "offset", "tail", "behind"]
        assert lines[4][:5] == ["mail", "reader", "1", "3", "2"]

    @pytest.mark.usefixtures("session")
    def test_a_count_that_was_cut_short_says_so(self, penstock: Run) -> None:
        result = penstock("consumers", "--count-up-to", "1")

        assert result.stdout.splitlines()[-1].split()[4] == "1+"

    @pytest.mark.usefixtures("session")
    def test_as_json(self, penstock: Run) -> None:
        (line,) = penstock("consumers", "--json").stdout.splitlines()

        found = json.loads(line)
        assert (found["queue"], found["consumer_id"]) == ("mail", "reader")
        assert (found["next_offset"], found["tail"], found["behind"]) == (1, 3, 2)
        assert found["seconds_behind"] >= 0

    @pytest.mark.usefixtures("session")
    def test_status_names_both(self, penstock: Run) -> None:
        figures = json.loads(penstock("status", "--json").stdout)["figures"]

        (lag,) = [one for one in figures if one["name"] == "session.lag"]
        assert lag["detail"] == {"stream_name": "queue-mail", "consumer_id": "reader"}
        assert "session queue-mail reader" in penstock("status").stdout

    @pytest.mark.parametrize(("position", "values"), [("0", "abc"), ("2", "c"), ("end", "")])
    def test_seek_puts_one_at_an_offset(
        self, penstock: Run, store: Store, session: ConsumerSession, position: str, values: str
    ) -> None:
        result = penstock("seek", "queue-mail", "reader", position)

        assert result.stderr.startswith("reader of queue mail: moved from offset 1 to ")
        with pytest.raises(SessionFenced):
            session.poll()
        assert rest(store) == list(values)

    @pytest.mark.usefixtures("session")
    def test_replay_goes_back(self, penstock: Run, store: Store) -> None:
        rest(store)
        second = store.get_stream_messages("queue-mail")[1].time

        penstock("replay", "queue-mail", "reader", "--position", "1")
        from_position = rest(store)
        penstock("replay", "queue-mail", "reader", "--since", second.isoformat())
        since = rest(store)
        penstock("replay", "queue-mail", "reader", "--beginning")

        assert from_position == ["b", "c"]
        assert since[-2:] == ["b", "c"]
        assert rest(store) == ["a", "b", "c"]

    def test_replay_never_leaves_anything_out(
        self, penstock: Run, session: ConsumerSession
    ) -> None:
        result = penstock("replay", "queue-mail", "reader", "--position", "2")

        assert result.exit_code == 2
        assert session.committed_offset() == 1

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["queue-mail", "raeder", "0"], "raeder"),
            (["queue-mial", "reader", "0"], "mial"),
            (["queue-mail", "reader", "x"], "x"),
            (["queue-mail", "reader", "0", "--kept-in", "table"], "not of queues"),
            (["mail", "reader", "0"], "give queue-mail"),
        ],
    )
    def test_asked_for_wrongly(
        self, penstock: Run, session: ConsumerSession, arguments: list[str], said: str
    ) -> None:
        result = penstock("seek", *arguments)

        assert result.exit_code == 2
        assert said in " ".join(result.stderr.replace("│", " ").split())
        assert session.committed_offset() == 1

    def test_beyond_the_tail(self, penstock: Run, session: ConsumerSession) -> None:
        result = penstock("seek", "queue-mail", "reader", "4")

        assert result.exit_code == 1
        assert "does not exist yet" in result.stderr
        assert session.committed_offset() == 1


def rest(store: Store) -> list[str]:
    """What the queue's consumer `reader` reads now."""
    session = store.queue("mail").create_consumer("reader")
    return [record.value for record in iter(session.poll, None)]


class TestParked:
    @pytest.mark.usefixtures("places")
    def test_are_listed(self, penstock: Run, store: Store) -> None:
        park(store)

        lines = penstock("parked", "list", "order", "mailer").stdout.splitlines()

        assert lines[0].split()[:3] == ["position", "type", "stream"]
        assert lines[1].split()[:4] == ["2", "Placed", "order-1", "1"]
        assert r"RuntimeError: no\tsuch address" in lines[1]
        assert len(lines) == 3

    @pytest.mark.usefixtures("places")
    def test_as_json(self, penstock: Run, store: Store) -> None:
        park(store)

        lines = penstock("parked", "list", "order", "mailer", "--json").stdout.splitlines()

        found = [json.loads(line) for line in lines]
        assert [one["message"]["data"]["number"] for one in found] == [1, 2]

    @pytest.mark.usefixtures("places")
    def test_more_than_the_limit_are_announced(self, penstock: Run, store: Store) -> None:
        park(store)

        cut = penstock("parked", "list", "order", "mailer", "--limit", "1")

        assert cut.stdout.splitlines()[1].split()[0] == "3"
        assert "raise --limit" in cut.stderr

    def test_one_is_retried(self, penstock: Run, store: Store, places: list[int]) -> None:
        park(store)

        result = penstock("parked", "retry", "order", "mailer", str(places[1]))

        requested = [one.retry_requested for one in store.admin.parked("order", "mailer")]
        assert requested == [True, False]
        assert result.stderr == "1 message will be retried\n"

    @pytest.mark.usefixtures("places")
    def test_all_are_dropped(self, penstock: Run, store: Store) -> None:
        park(store)

        result = penstock("parked", "drop", "order", "mailer", "--all")

        assert store.admin.parked("order", "mailer") == []
        assert result.stderr == "2 messages dropped\n"

    @pytest.mark.parametrize("action", ["retry", "drop"])
    def test_one_that_does_not_wait(self, penstock: Run, action: str) -> None:
        result = penstock("parked", action, "order", "mailer", "7")

        assert result.exit_code == 1
        assert "no parked message 7" in result.stderr

    @pytest.mark.parametrize("options", [[], ["7", "--all"]])
    def test_asked_for_wrongly(self, penstock: Run, options: list[str]) -> None:
        assert penstock("parked", "drop", "order", "mailer", *options).exit_code == 2


class TestRetain:
    @pytest.mark.usefixtures("places")
    def test_by_count(self, penstock: Run, store: Store) -> None:
        result = penstock("retain", "order", "--keep-count", "1")

        assert (result.stdout, result.stderr) == ("removed 3 messages\n", "")
        assert len(store.get_category_messages("order")) == 1

    def test_by_position(self, penstock: Run, places: list[int]) -> None:
        result = penstock("retain", "order", "--keep-from", str(places[1]))

        assert result.stdout == "removed 1 message\n"

    @pytest.mark.parametrize(("age", "removed"), [("0s", 3), ("90d", 0), ("999999999d", 0)])
    @pytest.mark.usefixtures("places")
    def test_by_age(self, penstock: Run, age: str, removed: int) -> None:
        result = penstock("retain", "order", "--keep-for", age)

        assert result.stdout.startswith(f"removed {removed} message")

    def test_a_consumer_s_backlog_stays(
        self, penstock: Run, store: Store, places: list[int]
    ) -> None:
        store.admin.seek("order", "mailer", places[0])

        held = penstock("retain", "order", "--keep-count", "1")
        ignored = penstock("retain", "order", "--keep-count", "1", "--ignore-consumers")

        assert held.stdout == "removed 1 message\n"
        assert held.stderr.startswith(
            "held back by consumer mailer of order: it has not read position 2, written "
        )
        assert (
            "0 s ago; if it is gone for good: penstock consumers remove order mailer;"
            in held.stderr
        )
        assert held.stderr.count("\n") == 1
        assert (ignored.stdout, ignored.stderr) == ("removed 2 messages\n", "")

    @pytest.mark.parametrize(
        ("state", "said"),
        [
            ("active", "group readers (active): it has not read position 1"),
            ("stopped", "to let it go on: penstock groups start readers;"),
            ("parked", "to let it go on: penstock groups retry readers;"),
        ],
    )
    def test_a_group_that_holds_it_back_is_named_with_what_mends_it(
        self, penstock: Run, store: Store, state: str, said: str
    ) -> None:
        store.groups.register("readers")
        store.append([DeviceSeen(device_id="a"), DeviceSeen(device_id="b")])
        claim = claim_device(store, types=[DeviceSeen], group_id="readers")
        assert claim is not None
        if state == "parked":
            store.groups.release(claim, park=True)
        elif state == "stopped":
            store.groups.stop("readers")

        result = penstock("retain", "device.seen", "--keep-count", "0")

        assert said in result.stderr
        assert "if it is gone for good: penstock groups remove readers;" in result.stderr

    def test_a_consumer_of_the_whole_log_is_named_as_a_shell_takes_it(
        self, penstock: Run, store: Store, places: list[int]
    ) -> None:
        store.admin.seek("$all", "mailer", places[0])

        result = penstock("retain", "order", "--keep-count", "1")

        assert "penstock consumers remove '$all' mailer;" in result.stderr

    @pytest.mark.parametrize(
        "options",
        [
            [],
            ["--keep-count", "1", "--keep-from", "1"],
            ["--keep-count", "-1"],
            ["--keep-for", "a while"],
            ["--keep-for", "90"],
        ],
    )
    def test_asked_for_wrongly(self, penstock: Run, options: list[str]) -> None:
        assert penstock("retain", "order", *options).exit_code == 2

    @pytest.mark.usefixtures("places")
    def test_a_role_without_the_rights_gets_an_error(
        self, penstock: Run, database_url: str
    ) -> None:
        options = f"{database_url}&options=-c%20role%3Dmessage_store"

        result = run("retain", "order", "--keep-count", "1", url=options)

        assert result.exit_code == 1
        assert "permission denied" in result.stderr


def test_ages_are_shown_as_people_say_them(store: Store, penstock: Run) -> None:
    store.write_message("order-1", "Placed")
    store.admin.seek("order", "mailer", 0)
    with store.transaction() as transaction:
        transaction.connection.execute(
            "update message_store.messages set time = time - %s where stream_name = 'order-1'",
            (timedelta(days=2, hours=3, minutes=1),),
        )

    shown = penstock("consumers").stdout.splitlines()[1]

    assert "2 d 3 h" in shown
