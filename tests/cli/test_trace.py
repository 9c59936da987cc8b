"""`penstock trace` and `penstock search`: what a message led to, and where it is."""

from __future__ import annotations

import json

from penstock import Store, TypedMessage, new_id
from tests.cli.conftest import Run


class ParcelSent(TypedMessage, type="traced.parcel_sent"):
    parcel: str


def write_chain(store: Store) -> tuple[str, str]:
    """Write a message and one that it has caused, and enqueue a mail. Return the ids of both."""
    first, second = str(new_id()), str(new_id())
    store.write_message("order-1", "Placed", id=first)
    links = {"causation_id": first, "correlation_id": first}
    store.write_message("order-1", "Paid\t[red]", id=second, metadata=links)
    store.outbox.enqueue("mail", correlation_id=first)
    return first, second


def test_a_trace_is_a_tree_of_causes_and_consequences(penstock: Run, store: Store) -> None:
    first, second = write_chain(store)

    result = penstock("trace", second)

    lines = result.stdout.splitlines()
    assert lines[0].startswith("message Placed  order-1")
    assert lines[0].rstrip().endswith(first)
    assert "causation: message Paid\\t[red] *  order-1" in lines[1]
    assert "correlation: outbox mail  ready" in lines[2]
    assert "of the outbox, 5,000 messages" in result.stderr


def test_a_link_that_is_no_cause_has_a_question_mark(penstock: Run, store: Store) -> None:
    first, _ = write_chain(store)
    store.write_message("note-1", "Noted", metadata={"correlation_id": first})

    assert "correlation?: message Noted  note-1" in penstock("trace", first).stdout


def test_a_trace_begins_at_a_position_as_well(penstock: Run, store: Store) -> None:
    first, _ = write_chain(store)
    position = store.get_stream_messages("order-1")[1].global_position

    found = json.loads(penstock("trace", str(position), "--json").stdout)

    assert found["root"]["id"] == first
    assert [one["asked_for"] for one in found["root"]["children"]] == [True, False]
    assert found["not_looked_at"]


def test_what_does_not_exist_has_no_trace(penstock: Run) -> None:
    unknown, no_key = penstock("trace", str(new_id())), penstock("trace", "order-1")

    assert unknown.exit_code == 1
    assert "neither a message, nor an outbox message, nor a join" in unknown.stderr
    assert no_key.exit_code == 2


def test_messages_are_found_by_type_attribute_correlation_and_id(
    penstock: Run, store: Store
) -> None:
    first, second = write_chain(store)
    store.append([ParcelSent(parcel=name) for name in ("a", "b", "a")])

    def types(*options: str) -> list[str]:
        found = json.loads(penstock("search", "--json", *options).stdout)
        return [one["type"] for one in found["items"]]

    assert types("--type", "Placed") == ["Placed"]
    assert types("--attribute", "parcel=a") == ["traced.parcel_sent"] * 2
    assert types("--type", "traced.parcel_sent", "--attribute", "parcel=b") == [
        "traced.parcel_sent"
    ]
    assert types("--correlation", first) == ["Placed", "Paid\t[red]"]
    assert types("--id", second) == ["Paid\t[red]"]


def test_a_search_says_what_it_has_looked_at_and_continues(penstock: Run, store: Store) -> None:
    for number in range(3):
        store.write_message(f"order-{number}", "Placed")

    first = penstock("search", "--type", "Placed", "--limit", "2")
    said, go_on = first.stderr.splitlines()
    second = penstock("search", "--type", "Placed", *go_on.removeprefix("to continue: ").split())

    streams = [line.split()[3] for line in first.stdout.splitlines()[1:]]
    assert streams == ["order-2", "order-1"]
    assert said == "looked at the newest 3 messages: type Placed is not indexed"
    assert [line.split()[3] for line in second.stdout.splitlines()[1:]] == ["order-0"]
    assert "to continue" not in second.stderr


def test_a_search_for_nothing_or_for_too_much_is_refused(penstock: Run) -> None:
    wrong = [
        [],
        ["--type", "Placed", "--id", str(new_id())],
        ["--attribute", "parcel"],
        ["--attribute", "undeclared=1"],
        ["--id", "no-id"],
        ["--type", "Placed", "--after", "nowhere"],
        ["--type", "Placed", "--limit", "201"],
    ]

    assert [penstock("search", *options).exit_code for options in wrong] == [2] * len(wrong)
