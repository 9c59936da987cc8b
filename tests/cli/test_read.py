"""`penstock read`, for people and for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Store
from tests.cli.conftest import Run, run


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def read(penstock: Run, *arguments: str) -> list[tuple[str, int]]:
    found = objects(penstock("read", *arguments, "--json").stdout)
    return [(one["stream_name"], one["position"]) for one in found]


@pytest.fixture
def log(store: Store) -> Store:
    """Two accounts and a transfer."""
    store.write_message("account-1", "Opened", {"owner": "Ada"})
    store.write_message("account-2", "Opened", {"owner": "Bob"})
    store.write_message("transfer-1", "Requested", {"amount": 5}, {"correlation_id": "7"})
    store.write_message("account-1", "Withdrawn", {"amount": 5}, {"correlation_id": "7"})
    return store


@pytest.mark.usefixtures("log")
class TestWhatIsRead:
    def test_a_stream(self, penstock: Run) -> None:
        assert read(penstock, "account-1") == [("account-1", 0), ("account-1", 1)]

    def test_a_category(self, penstock: Run) -> None:
        assert read(penstock, "account") == [
            ("account-1", 0),
            ("account-2", 0),
            ("account-1", 1),
        ]

    def test_the_whole_log(self, penstock: Run) -> None:
        assert len(read(penstock, "$all")) == 4

    def test_a_stream_from_a_position_on(self, penstock: Run) -> None:
        assert read(penstock, "account-1", "--position", "1") == [("account-1", 1)]

    def test_a_category_from_a_global_position_on(self, penstock: Run) -> None:
        assert read(penstock, "account", "--position", "2") == [("account-2", 0), ("account-1", 1)]

    @pytest.mark.parametrize("target", ["account-1", "account", "$all", "account-9"])
    def test_nothing_that_is_there_from_the_end_on(self, penstock: Run, target: str) -> None:
        assert read(penstock, target, "--position", "end") == []

    def test_at_most_so_many(self, penstock: Run) -> None:
        assert read(penstock, "account", "--limit", "2") == [("account-1", 0), ("account-2", 0)]

    def test_the_messages_of_some_types_and_at_most_so_many_of_those(self, penstock: Run) -> None:
        chosen = ["--type", "Withdrawn", "--type", "Requested"]

        assert read(penstock, "$all", *chosen) == [("transfer-1", 0), ("account-1", 1)]
        assert read(penstock, "$all", *chosen, "--limit", "1") == [("transfer-1", 0)]

    def test_the_messages_that_answer_a_category(self, penstock: Run) -> None:
        assert read(penstock, "account", "--correlation", "transfer") == [("account-1", 1)]

    def test_each_stream_by_one_member_of_a_group(self, penstock: Run) -> None:
        shares = [read(penstock, "account", "--member", str(n), "--size", "2") for n in range(2)]

        assert sorted(shares[0] + shares[1]) == sorted(read(penstock, "account"))


class TestForPrograms:
    def test_each_line_is_a_message_and_nothing_else_is_on_stdout(
        self, penstock: Run, store: Store
    ) -> None:
        store.write_message("account-1", "Opened", {"owner": "Åda\n", "n": 2**53 + 1})

        result = penstock("read", "account-1", "--json")

        (message,) = store.get_stream_messages("account-1")
        assert objects(result.stdout) == [
            {
                "id": str(message.id),
                "stream_name": "account-1",
                "type": "Opened",
                "position": 0,
                "global_position": 1,
                "data": {"n": 2**53 + 1, "owner": "Åda\n"},
                "metadata": None,
                "time": message.time.isoformat().replace("+00:00", "Z"),
            }
        ]

    def test_nothing_found_is_nothing_printed(self, penstock: Run) -> None:
        result = penstock("read", "account-1", "--json")

        assert (result.stdout, result.stderr, result.exit_code) == ("", "", 0)


class TestForPeople:
    def test_a_message_is_a_line_with_its_data_below(self, penstock: Run, log: Store) -> None:
        result = penstock("read", "transfer-1")

        (message,) = log.get_stream_messages("transfer-1")
        time = f"{message.time:%Y-%m-%dT%H:%M:%S}.{message.time.microsecond // 1000:03}Z"
        assert result.stdout == (
            f"3  Requested  transfer-1 #0  {time}\n"
            '    {"amount": 5}\n'
            '    metadata {"correlation_id": "7"}\n'
        )

    def test_long_data_wraps_within_the_terminal(self, penstock: Run, store: Store) -> None:
        store.write_message("a-" + "x" * 60, "T" * 30, {"words": "wine " * 40, "long": "y" * 200})

        result = penstock("read", "a", columns=80)

        first, *others = result.stdout.splitlines()
        assert all(len(line) <= 80 for line in (first, *others))
        assert all(line.startswith("    ") for line in others)

    def test_long_data_is_one_line_in_a_pipe(self, penstock: Run, store: Store) -> None:
        store.write_message("a-1", "T", {"words": "wine " * 400})

        result = penstock("read", "a")

        assert len(result.stdout.splitlines()) == 2

    def test_what_looks_like_markup_is_shown_as_it_is(self, penstock: Run, store: Store) -> None:
        store.write_message("a:smile:-[red]", "[bold]T", {"x": "[link=http://x]y[/link] :cat:"})

        result = penstock("read", "$all")

        assert "[bold]T  a:smile:-[red] #0" in result.stdout
        assert '{"x": "[link=http://x]y[/link] :cat:"}' in result.stdout

    def test_control_characters_do_not_reach_the_terminal(
        self, penstock: Run, store: Store
    ) -> None:
        store.write_message("a-\x1b[2J", "T\r", {"x": "\x1b]0;title\x07", "y": "\x9b2J\x7f"})

        result = penstock("read", "a")

        assert "T\\r  a-\\x1b[2J #0" in result.stdout
        assert not {"\x1b", "\x07", "\r", "\x9b", "\x7f"} & set(result.stdout)

    def test_nothing_found_is_said_on_stderr(self, penstock: Run) -> None:
        result = penstock("read", "account-1")

        assert (result.stdout, result.exit_code) == ("", 0)
        assert result.stderr == "no messages in account-1\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([""], "single quotes around '$all'"),
        (["account", "--position", "-1"], "--position must be an integer"),
        (["account", "--position", "9" * 20], "position must be"),
        (["account", "--limit", "0"], "--limit"),
        (["account", "--limit", "9" * 20], "--limit"),
        (["account", "--member", "0"], "consumer_group_size must be"),
        (["account", "--member", "2", "--size", "2"], "below the group's size"),
        (["account-1", "--member", "0", "--size", "2"], "account-1 is a stream"),
        (["account-1", "--correlation", "transfer"], "account-1 is a stream"),
    ],
)
def test_what_makes_no_sense_is_bad_usage(
    penstock: Run, arguments: list[str], complaint: str
) -> None:
    result = penstock("read", *arguments)

    assert result.exit_code == 2
    assert complaint in result.stderr


def test_what_a_genuine_message_db_cannot_do_says_so(new_database: Any) -> None:
    result = run("read", "$all", url=new_database("genuine"))

    assert result.exit_code == 1
    assert "run `penstock init` to add Penstock beside it" in result.stderr
