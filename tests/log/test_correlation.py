"""Correlation: reading only what answers the messages of some category."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import penstock
from penstock import Edition, Store
from penstock.errors import UnsupportedEdition


def read(store: Store, correlation: str, category: str = "account") -> list[str]:
    messages = store.get_category_messages(category, correlation=correlation)
    return [message.stream_name for message in messages]


def test_a_message_answers_the_category_of_its_correlation_stream(any_store: Store) -> None:
    any_store.write_message("account-1", "Opened", None, {"correlationStreamName": "transfer-5"})
    any_store.write_message("account-2", "Opened", None, {"correlationStreamName": "payment-5"})
    any_store.write_message("account-3", "Opened", None, {})
    any_store.write_message("account-4", "Opened")

    assert read(any_store, "transfer") == ["account-1"]


def test_a_category_matches_as_a_whole(any_store: Store) -> None:
    for number, name in enumerate(["transfer", "transfer-1", "transfers-1", "transfer:command-1"]):
        any_store.write_message(
            f"account-{number}", "Opened", None, {"correlationStreamName": name}
        )

    assert read(any_store, "transfer") == ["account-0", "account-1"]
    assert read(any_store, "transfer:command") == ["account-3"]


@pytest.fixture(params=["penstock", "beside"])
def store(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Store]:
    """A store that knows correlation ids: a genuine Message DB alone does not."""
    with penstock.connect(new_database(request.param)) as store:
        yield store


def test_a_message_answers_the_category_that_carries_its_correlation_id(store: Store) -> None:
    store.write_message("withdrawal:command-1", "Withdraw", None, {"correlation_id": "xyz"})
    store.write_message("account-123", "Withdrawn", None, {"correlation_id": "xyz"})
    store.write_message("account-456", "Withdrawn", None, {"correlation_id": "abc"})

    assert read(store, "withdrawal:command") == ["account-123"]
    assert read(store, "withdrawal") == []


def test_a_hyphenated_correlation_is_a_prefix_of_stream_names(store: Store) -> None:
    store.write_message("withdrawal-cmd-abc", "Withdraw", None, {"correlation_id": "xyz"})
    store.write_message("withdrawal-other-abc", "Withdraw", None, {"correlation_id": "uvw"})
    store.write_message("withdrawal-cmdline", "Withdraw", None, {"correlation_id": "rst"})
    for number, id in enumerate(["xyz", "uvw", "rst"]):
        store.write_message(f"account-{number}", "Withdrawn", None, {"correlation_id": id})

    assert read(store, "withdrawal-cmd") == ["account-0"]
    assert read(store, "withdrawal") == ["account-0", "account-1", "account-2"]


def test_a_hyphenated_correlation_may_be_a_whole_stream_name(store: Store) -> None:
    for name in ("withdrawal-cmd", "withdrawal-cmd-1", "withdrawal-command"):
        store.write_message(f"account-{name}", "Opened", None, {"correlationStreamName": name})

    assert read(store, "withdrawal-cmd") == ["account-withdrawal-cmd", "account-withdrawal-cmd-1"]


def test_the_question_may_come_after_the_answer(store: Store) -> None:
    store.write_message("account-1", "Withdrawn", None, {"correlation_id": "xyz"})

    before = read(store, "withdrawal")
    store.write_message("withdrawal-1", "Withdraw", None, {"correlation_id": "xyz"})

    assert (before, read(store, "withdrawal")) == ([], ["account-1"])


def test_messages_without_a_correlation_id_do_not_match_each_other(store: Store) -> None:
    for metadata in (None, {}, {"correlation_id": None}):
        store.write_message("withdrawal-1", "Withdraw", None, metadata)
        store.write_message("account-1", "Withdrawn", None, metadata)

    assert read(store, "withdrawal") == []


def test_a_reply_made_with_follow_answers_the_command(store: Store) -> None:
    store.write_message("withdrawal:command-1", "Withdraw", None, {"correlation_id": "xyz"})
    (command,) = store.get_stream_messages("withdrawal:command-1")

    reply = command.follow("Withdrawn")
    store.write_messages("account-1", [reply])

    assert read(store, "withdrawal:command") == ["account-1"]


def test_works_on_the_whole_log_and_within_a_group(store: Store) -> None:
    store.write_message("withdrawal-1", "Withdraw", None, {"correlation_id": "xyz"})
    for number in range(8):
        store.write_message(f"account-{number}", "Withdrawn", None, {"correlation_id": "xyz"})
        store.write_message(f"order-{number}", "Placed")

    of_log = read(store, "withdrawal", "$all")
    shares = [
        store.get_category_messages(
            "account", correlation="withdrawal", consumer_group_member=m, consumer_group_size=2
        )
        for m in (0, 1)
    ]

    assert of_log == ["withdrawal-1", *(f"account-{number}" for number in range(8))]
    assert sorted(m.stream_name for share in shares for m in share) == of_log[1:]


def test_a_genuine_message_db_knows_no_prefix(new_database: Callable[[str], str]) -> None:
    with penstock.connect(new_database("genuine")) as store:
        with pytest.raises(UnsupportedEdition, match="prefix"):
            read(store, "withdrawal-cmd")

        assert store.context.edition is Edition.GENUINE
        assert read(store, "withdrawal") == []
