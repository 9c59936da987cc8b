"""The figures of consumers and sessions: how far behind they are, and what they have set aside."""

from __future__ import annotations

import pytest

from penstock import Consumer, RecordedMessage, Store
from penstock.consumers.parked import park
from tests.outbox.outboxes import sql
from tests.telemetry.busy import an_hour_passes, park_one
from tests.telemetry.figures import HOUR, details, figure


def nothing(message: RecordedMessage) -> None:
    """Handle a message."""


class TestConsumers:
    @pytest.mark.parametrize("kept_in", ["stream", "table", "hybrid"])
    @pytest.mark.parametrize("category", ["order", "order:command", "$all"])
    def test_lag_by_the_age_of_the_first_message_they_have_not_handled(
        self, store: Store, category: str, kept_in: str
    ) -> None:
        store.write_message(f"{category.replace('$', '')}-1", "Placed")
        store.admin.seek(category, "mailer", 0, kept_in)
        an_hour_passes(store)

        lag = figure(store, "consumer.lag", category=category, consumer_id="mailer")

        assert lag >= HOUR

    @pytest.mark.parametrize("kept_in", ["stream", "table", "hybrid"])
    def test_do_not_lag_once_all_is_handled(self, store: Store, kept_in: str) -> None:
        store.write_message("order-1", "Placed")
        store.admin.seek("order", "mailer", store.category_head("order"), kept_in)
        store.write_message("other-1", "Placed")
        an_hour_passes(store)

        assert figure(store, "consumer.lag", category="order", consumer_id="mailer") == 0

    def test_of_the_whole_log_do_not_lag_behind_their_own_bookkeeping(self, store: Store) -> None:
        store.write_message("order-1", "Placed")
        Consumer(store, "$all", "mailer", handlers={"Placed": nothing}).run_once()
        store.write_message("$all:position-other", "Recorded", {"position": 1})
        store.write_message("$all:parked-other", "Dropped", {"global_position": 1})
        an_hour_passes(store)

        mailer, other = store.admin.consumers()

        assert (mailer.behind, other.behind) == (0, 0)
        assert figure(store, "consumer.lag", category="$all", consumer_id="mailer") == 0

    def test_are_all_found_among_many_streams(self, store: Store) -> None:
        for number in range(30):
            store.write_message(f"order-{number}", "Placed")
            store.write_message(f"order:positions-{number}", "Placed")
            store.write_message(f"order:position-{number}", "Recorded", {"position": 0})

        found = {one["consumer_id"] for one in details(store, "consumer.lag")}

        assert found == {str(number) for number in range(30)}

    def test_whose_position_is_none_have_everything_before_them(self, store: Store) -> None:
        store.write_message("order-1", "Placed")
        store.write_message("order:position-mailer", "Recorded", {"position": "?"})
        an_hour_passes(store)

        assert figure(store, "consumer.lag", category="order", consumer_id="mailer") >= HOUR

    def test_have_parked_what_nobody_handled_or_dropped_since(self, store: Store) -> None:
        for stream_name in ("order-1", "order-2", "order-3"):
            store.write_message(stream_name, "Placed")
        park_one(store)
        first, second, _ = (one.message for one in store.admin.parked("order", "mailer"))

        store.admin.drop_parked("order", "mailer", first.global_position)
        store.admin.retry_parked("order", "mailer", second.global_position)

        assert figure(store, "consumer.parked", category="order", consumer_id="mailer") == 2

    def test_a_message_parked_again_is_parked_once(self, store: Store) -> None:
        store.write_message("order-1", "Placed")
        (message,) = store.get_stream_messages("order-1")

        for _ in range(2):
            store.run(park(store.context, "order:parked-mailer", message, RuntimeError("no"), 1))

        assert figure(store, "consumer.parked", category="order", consumer_id="mailer") == 1

    def test_a_count_that_was_cut_short_says_so(self, store: Store) -> None:
        sql(
            store,
            """
            insert into message_store.messages (stream_name, type, position, data)
            select 'order:parked-mailer', 'Parked', n,
              jsonb_build_object('message', jsonb_build_object('global_position', n))
            from generate_series(0, 1000) n
            """,
        )

        (detail,) = details(store, "consumer.parked")

        assert detail["at_least"] is True
        assert figure(store, "consumer.parked", category="order", consumer_id="mailer") == 1000


def test_a_session_lags_until_it_has_polled_everything(store: Store) -> None:
    queue = store.queue("mail")
    queue.offer_many(["a", "b"])
    session = queue.create_consumer("reader")
    session.poll()
    an_hour_passes(store)
    subject = {"stream_name": "queue-mail", "consumer_id": "reader"}

    behind = figure(store, "session.lag", **subject)
    session.poll()

    assert behind >= HOUR
    assert figure(store, "session.lag", **subject) == 0
