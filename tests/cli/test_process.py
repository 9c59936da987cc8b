"""The command as a process among others: in a pipe, interrupted, on a terminal, on its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Message, Store
from tests.cli.conftest import Start, on_terminal

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TestFollow:
    @pytest.mark.parametrize(
        ("target", "name", "exit_code"),
        [
            ("account-1", signal.SIGINT, 130),
            ("account", signal.SIGTERM, 143),
            ("$all", signal.SIGHUP, 129),
        ],
    )
    def test_messages_are_shown_as_they_come_until_an_interrupt(
        self, start: Start, store: Store, target: str, name: signal.Signals, exit_code: int
    ) -> None:
        store.write_message("account-1", "Opened")
        process = start("read", target, "--follow", "--json", url=store.settings.conninfo())
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        store.write_message("account-1", "Closed")
        second = json.loads(process.stdout.readline())

        process.send_signal(name)

        rest, errors = process.communicate(timeout=60)
        assert [first["type"], second["type"]] == ["Opened", "Closed"]
        assert (process.returncode, rest, errors) == (exit_code, "", "")

    def test_it_ends_by_itself_once_it_has_shown_enough(self, start: Start, store: Store) -> None:
        store.write_messages("account-1", [Message("T") for _ in range(3)])
        url = store.settings.conninfo()

        process = start("read", "account", "--follow", "--limit", "2", "--json", url=url)

        output, errors = process.communicate(timeout=60)
        assert (len(output.splitlines()), errors, process.returncode) == (2, "", 0)


class TestPipes:
    @pytest.mark.parametrize("form", [["--json"], []])
    @pytest.mark.parametrize("follow", [["--follow"], []])
    def test_a_reader_that_goes_away_ends_it_quietly(
        self, start: Start, store: Store, form: list[str], follow: list[str]
    ) -> None:
        store.write_messages("account-1", some(500))
        process = start("read", "account", *form, *follow, url=store.settings.conninfo())
        assert process.stdout is not None
        process.stdout.readline()

        process.stdout.close()

        assert process.wait(timeout=60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""

    def test_what_one_reads_another_writes(
        self, start: Start, store: Store, new_database: object
    ) -> None:
        assert callable(new_database)
        other = new_database("penstock")
        store.write_messages("account-1", some(2500))
        reader = start("read", "account-1", "--json", url=store.settings.conninfo())
        assert reader.stdout is not None

        writer = start("write", "account-1", "--from", "-", url=other, stdin=reader.stdout.fileno())

        reader.stdout.close()
        output, errors = writer.communicate(timeout=60)
        assert (output, errors) == ("wrote account-1 #0 to #2499: 2500 messages\n", "")


@pytest.mark.parametrize(
    ("closed", "arguments", "printed"),
    [
        (">&-", ["write", "account-1", "Opened"], ""),
        (">&-", ["read", "account"], ""),
        ("2>&-", ["read", "account"], ""),
        ("<&-", ["write", "account-1", "--from", "-"], "nothing: the input has no messages"),
    ],
)
def test_a_stream_that_is_closed_is_no_reason_to_fail(
    store: Store, closed: str, arguments: list[str], printed: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "penstock", *arguments],
        env={**os.environ, "PENSTOCK_URL": store.settings.conninfo()},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr.replace("no messages in account\n", "")) == (0, "")
    assert printed in done.stdout


def test_an_interrupt_tells_which_lines_were_written(start: Start, store: Store) -> None:
    writer = start(
        "write", "account-1", "--from", "-", url=store.settings.conninfo(), stdin=subprocess.PIPE
    )
    assert writer.stdin is not None
    writer.stdin.write('{"type": "T"}\n' * 2500)
    writer.stdin.flush()
    next(message for message in store.follow_category("account") if message.position == 1000)

    writer.send_signal(signal.SIGINT)

    _, errors = writer.communicate(timeout=60)
    assert writer.returncode == 130
    assert errors in (
        "interrupted: lines 1 to 1000 were written, and possibly those up to line 2000\n",
        "interrupted: lines 1 to 2000 were written\n",
    )


def some(count: int) -> list[Message]:
    return [Message("T", {"text": "x" * 1000}) for _ in range(count)]


class TestTerminal:
    def test_nothing_is_wider_than_the_terminal(self, store: Store) -> None:
        store.write_message("account-0190b2c4-7a2b-7c3d-8e4f-5a6b7c8d9e0f", "Opened")
        store.write_message("transfer-1", "Requested", {"text": "wine " * 40, "long": "x" * 200})

        seen = on_terminal(store.settings.conninfo(), "read", "$all", columns=80)

        lines = ESCAPES.sub("", seen).splitlines()
        assert lines[0] == "1  Opened  account-0190b2c4-7a2b-7c3d-8e4f-5a6b7c8d9e0f #0"
        assert [line for line in lines if len(line) > 80] == []

    def test_an_error_is_red(self) -> None:
        seen = on_terminal("postgresql://127.0.0.1:1/shop", "status", columns=200)

        assert seen.startswith("\x1b[1;31mpenstock: PostgreSQL at 127.0.0.1:1/shop cannot")

    def test_a_bar_shows_how_far_many_messages_have_come(
        self, database_url: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "messages.jsonl"
        file.write_text('{"type": "T"}\n' * 3000)

        seen = on_terminal(database_url, "write", "bulk-1", "--from", str(file))

        assert "writing" in seen
        assert "3000/3000" in seen
        assert seen.endswith("wrote bulk-1 #0 to #2999: 3000 messages\n")


class TestEmbedded:
    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """A working directory outside of pytest's own, which each pytest closes to other users."""
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            yield Path(folder)

    def test_without_an_address_it_keeps_a_database_in_the_working_directory(
        self, start: Start, folder: Path
    ) -> None:
        def penstock(*arguments: str) -> str:
            process = start(*arguments, cwd=folder)
            output, errors = process.communicate(timeout=120)
            assert errors == ""
            assert process.returncode == 0
            return output

        wrote = penstock("write", "account-1", "Opened", "--data", '{"owner": "Ada"}')
        read = penstock("read", "account", "--json")
        status = penstock("status")

        assert wrote.startswith("wrote account-1 #0  ")
        assert json.loads(read)["data"] == {"owner": "Ada"}
        assert "where           the embedded server in .penstock" in status
        assert not (folder / ".penstock" / "data" / "postmaster.pid").exists()

    def test_a_follower_that_is_interrupted_leaves_no_server_behind(
        self, start: Start, folder: Path
    ) -> None:
        assert start("write", "account-1", "Opened", cwd=folder).wait(timeout=120) == 0
        process = start("read", "account", "--follow", "--json", cwd=folder)
        assert process.stdout is not None
        process.stdout.readline()

        process.send_signal(signal.SIGTERM)

        assert process.communicate(timeout=60) == ("", "")
        assert not (folder / ".penstock" / "data" / "postmaster.pid").exists()


def test_the_installed_command_is_the_same() -> None:
    command = Path(sys.executable).parent / "penstock"

    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "Usage: penstock" in done.stdout
