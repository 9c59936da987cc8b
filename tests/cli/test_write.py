"""`penstock write`: one message, or a file of them."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from penstock import Store
from penstock.cli.bulk import BYTES_PER_BATCH, LINES_PER_BATCH
from tests.cli.conftest import Run

ID = "018f6d1c-7a2b-7c3d-8e4f-5a6b7c8d9e0f"


def lines(count: int, *, first: int = 0) -> str:
    return "".join(f'{{"type": "T", "data": {{"n": {first + n}}}}}\n' for n in range(count))


class TestOneMessage:
    def test_it_is_written_with_all_that_was_given(self, penstock: Run, store: Store) -> None:
        result = penstock(
            "write", "account-1", "Opened",
            "--data", '{"owner": "Ada"}', "--metadata", '{"correlation_id": "7"}', "--id", ID,
        )  # fmt: skip

        message = store.get_last_stream_message("account-1")
        assert result.stdout == f"wrote account-1 #0  {ID}\n"
        assert message is not None
        assert (message.type, message.data, message.metadata, message.id) == (
            "Opened",
            {"owner": "Ada"},
            {"correlation_id": "7"},
            UUID(ID),
        )

    def test_its_data_may_come_from_stdin(self, penstock: Run, store: Store) -> None:
        penstock("write", "account-1", "Opened", "--data", "-", stdin='{\n  "owner": "Ada"\n}\n')

        (message,) = store.get_stream_messages("account-1")
        assert message.data == {"owner": "Ada"}

    def test_data_from_stdin_that_is_no_text_is_bad_usage(self, penstock: Run) -> None:
        result = penstock("write", "account-1", "Opened", "--data", "-", stdin=b'{"a": "\xff"}')

        assert result.exit_code == 2
        assert "--data is not valid UTF-8" in result.stderr

    def test_a_repeated_write_with_its_id_does_nothing(self, penstock: Run, store: Store) -> None:
        first = penstock("write", "account-1", "Opened", "--id", ID, "--expected-version", "-1")

        again = penstock("write", "account-1", "Opened", "--id", ID, "--expected-version", "-1")

        assert again.stdout == first.stdout
        assert store.stream_version("account-1") == 0

    def test_a_stream_that_has_moved_on_is_left_alone(self, penstock: Run, store: Store) -> None:
        store.write_message("account-1", "Opened")

        result = penstock("write", "account-1", "Closed", "--expected-version", "-1")

        assert result.exit_code == 1
        assert result.stderr == "penstock: stream account-1 is at version 0, not -1\n"
        assert store.stream_version("account-1") == 0

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (["account-1"], "give STREAM and TYPE"),
            (["account-1", "T", "--data", "{"], "--data is not valid JSON"),
            (["account-1", "T", "--data", "[1]"], "data must be a JSON object"),
            (["account-1", "T", "--data", '{"a": "\udcff"}'], "--data is not valid UTF-8"),
            (["account-1", "T", "--metadata", "7"], "metadata must be a JSON object"),
            (["account-1", "T", "--id", "7"], "id must be a UUID"),
            (["account-1", "T", "--expected-version", "-2"], "expected_version must be"),
            (["account-1", "T", "--from", "-"], "are in the file"),
            (["", "T"], "stream_name must be a non-empty string"),
            (["$all", "T"], "'$all' is the whole log"),
        ],
    )
    def test_what_makes_no_sense_is_bad_usage_and_writes_nothing(
        self, penstock: Run, store: Store, arguments: list[str], complaint: str
    ) -> None:
        result = penstock("write", *arguments)

        assert result.exit_code == 2
        assert complaint in result.stderr
        assert store.categories() == []


class TestManyMessages:
    def test_a_file_is_written_line_by_line(
        self, penstock: Run, store: Store, tmp_path: Path
    ) -> None:
        file = tmp_path / "messages.jsonl"
        file.write_text(
            f'{{"type": "Opened", "data": {{"owner": "Åda"}}, "id": "{ID}"}}\n'
            "\n"
            '{"type": "Closed", "metadata": {"trace_id": "7"}}'
        )

        result = penstock("write", "account-1", "--from", str(file))

        opened, closed = store.get_stream_messages("account-1")
        assert result.stdout == "wrote account-1 #0 to #1: 2 messages\n"
        assert (opened.type, opened.data, opened.id) == ("Opened", {"owner": "Åda"}, UUID(ID))
        assert (closed.type, closed.data, closed.metadata) == ("Closed", {}, {"trace_id": "7"})

    def test_more_than_a_batch_comes_in_order_and_no_version_is_skipped(
        self, penstock: Run, store: Store
    ) -> None:
        count = 2 * LINES_PER_BATCH + 1

        result = penstock(
            "write", "account-1", "--from", "-", "--expected-version", "-1", stdin=lines(count)
        )

        found = [message.data["n"] for message in store.read_stream("account-1")]
        assert result.stdout == f"wrote account-1 #0 to #{count - 1}: {count} messages\n"
        assert found == list(range(count))

    def test_large_lines_make_small_batches(
        self, penstock: Run, store: Store, tmp_path: Path
    ) -> None:
        large = json.dumps({"type": "T", "data": {"text": "x" * (BYTES_PER_BATCH // 2)}})

        penstock("write", "account-1", "--from", "-", stdin=f"{large}\n{large}\n{large}\nno JSON\n")

        assert store.stream_version("account-1") == 1

    def test_a_bad_line_in_a_file_is_named_and_nothing_is_written(
        self, penstock: Run, store: Store, tmp_path: Path
    ) -> None:
        file = tmp_path / "messages.jsonl"
        file.write_text(lines(LINES_PER_BATCH + 1) + '{"tpye": "T"}\n')

        result = penstock("write", "account-1", "--from", str(file))

        assert result.exit_code == 1
        assert result.stderr == (
            f"penstock: line {LINES_PER_BATCH + 2}: Object contains unknown field `tpye`; "
            "nothing was written\n"
        )
        assert store.stream_version("account-1") is None

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("nonsense", "JSON is malformed"),
            ("[]", "Expected `object`, got `array`"),
            ("{}", "missing required field `type`"),
            ('{"type": ""}', "type must be a non-empty string"),
            ('{"type": "T", "data": [1]}', "Expected `object | null`, got `array` - at `$.data`"),
            ('{"type": "T", "data": {"x": "\\u0000"}}', "text without NUL characters"),
            ('{"type": "T", "id": "7"}', "id must be a UUID"),
            ('{"type": "T\udcff"}', "not valid UTF-8"),
        ],
    )
    def test_what_is_no_message_is_refused(
        self, penstock: Run, store: Store, tmp_path: Path, line: str, complaint: str
    ) -> None:
        file = tmp_path / "messages.jsonl"
        file.write_text(f"{lines(1)}{line}\n", errors="surrogateescape")

        result = penstock("write", "account-1", "--from", str(file))

        assert result.exit_code == 1
        assert result.stderr.startswith("penstock: line 2: ")
        assert complaint in result.stderr
        assert store.stream_version("account-1") is None

    @pytest.mark.parametrize("bad", ["nonsense", '{"type": "T", "data": {"x": "\\u0000"}}'])
    def test_a_bad_line_in_a_pipe_is_named_and_so_are_the_lines_already_written(
        self, penstock: Run, store: Store, bad: str
    ) -> None:
        text = f"{lines(LINES_PER_BATCH + 5)}{bad}\n"

        result = penstock("write", "account-1", "--from", "-", stdin=text)

        assert result.exit_code == 1
        assert f"line {LINES_PER_BATCH + 6}: " in result.stderr
        assert f"; lines 1 to {LINES_PER_BATCH} were written" in result.stderr
        assert store.stream_version("account-1") == LINES_PER_BATCH - 1

    def test_lines_with_ids_may_be_given_again(self, penstock: Run, store: Store) -> None:
        text = "".join(
            f'{{"type": "T", "id": "018f6d1c-7a2b-7c3d-8e4f-{n:012}"}}\n'
            for n in range(LINES_PER_BATCH + 1)
        )
        first = penstock("write", "account-1", "--from", "-", stdin=text)

        again = penstock("write", "account-1", "--from", "-", stdin=text)

        assert again.stdout == first.stdout
        assert store.stream_version("account-1") == LINES_PER_BATCH

    def test_what_read_prints_as_json_can_be_written_to_another_database(
        self, penstock: Run, store: Store, new_database: object
    ) -> None:
        assert callable(new_database)
        other = new_database("penstock")
        store.write_message("account-1", "Opened", {"owner": "Ada"}, {"trace_id": "7"})
        printed = penstock("read", "account-1", "--json").stdout

        penstock("write", "account-1", "--from", "-", stdin=printed, url=other)

        assert (
            penstock("read", "account-1", "--json", url=other).stdout.split('"time"')[0]
            == (printed.split('"time"')[0])
        )

    def test_the_whole_log_can_be_written_to_another_database(
        self, penstock: Run, store: Store, new_database: object
    ) -> None:
        assert callable(new_database)
        other = new_database("penstock")
        for number in range(9):
            store.write_message(f"account-{number % 4}", "Opened", {"n": number})
        printed = penstock("read", "$all", "--json").stdout

        result = penstock("write", "--from", "-", stdin=printed, url=other)

        copied = penstock("read", "$all", "--json", url=other).stdout
        assert result.stdout == "wrote 9 messages\n"
        assert [line.split('"time"')[0] for line in copied.splitlines()] == [
            line.split('"time"')[0] for line in printed.splitlines()
        ]

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ('{"type": "T"}', "stream_name must be in the line, or STREAM in the command"),
            ('{"type": "T", "stream_name": 7}', "stream_name must be a non-empty string"),
            ('{"type": "T", "stream_name": "$all"}', "is the whole log"),
        ],
    )
    def test_a_line_without_a_stream_is_refused(
        self, penstock: Run, store: Store, tmp_path: Path, line: str, complaint: str
    ) -> None:
        file = tmp_path / "messages.jsonl"
        file.write_text(f'{{"type": "T", "stream_name": "a-1"}}\n{line}\n')

        result = penstock("write", "--from", str(file))

        assert result.exit_code == 1
        assert result.stderr.startswith("penstock: line 2: ")
        assert complaint in result.stderr
        assert store.stream_version("a-1") is None

    def test_a_version_needs_its_stream(self, penstock: Run) -> None:
        result = penstock("write", "--from", "-", "--expected-version", "3", stdin="")

        assert result.exit_code == 2
        assert "--expected-version requires STREAM" in result.stderr

    def test_an_empty_input_writes_nothing_and_says_so(self, penstock: Run) -> None:
        result = penstock("write", "account-1", "--from", "-", stdin="\n")

        assert result.exit_code == 0
        assert result.stdout == "wrote nothing: the input has no messages\n"

    def test_a_file_that_is_not_there_is_named(self, penstock: Run) -> None:
        result = penstock("write", "account-1", "--from", "missing.jsonl")

        assert result.exit_code == 1
        assert result.stderr == "penstock: missing.jsonl: No such file or directory\n"
