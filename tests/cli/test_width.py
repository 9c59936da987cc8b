"""All that is printed fits into 80 columns."""

from __future__ import annotations

from penstock import Store
from tests.cli.conftest import Run

COMMANDS = [
    ["status"], ["read", "$all"], ["streams"], ["categories"], ["version"], ["doctor"], ["init"],
    ["--help"], ["init", "--help"], ["status", "--help"], ["write", "--help"], ["read", "--help"],
    ["streams", "--help"], ["categories", "--help"], ["version", "--help"], ["doctor", "--help"],
    ["consumers"], ["parked", "list", "account", "mailer"], ["consumers", "--help"],
    ["seek", "--help"], ["replay", "--help"], ["retain", "--help"], ["parked", "--help"],
    ["parked", "list", "--help"], ["parked", "retry", "--help"], ["parked", "drop", "--help"],
    ["outbox"], ["outbox", "--help"], ["outbox", "show", "--help"], ["outbox", "retry", "--help"],
    ["joins"], ["joins", "--help"], ["joins", "show", "--help"], ["joins", "cancel", "--help"],
]  # fmt: skip


def test_no_line_is_wider_than_80_columns(penstock: Run, store: Store) -> None:
    store.write_message("account-0190b2c4-7a2b-7c3d-8e4f-5a6b7c8d9e0f" + "x" * 80, "Opened")
    store.write_message("transfer-1", "Requested", {"text": "wine " * 40, "long": "x" * 200})
    store.admin.seek("account", "mailer-with-a-long-name-0190b2c4-7a2b-7c3d", 0)
    with store.transaction() as open_writer:
        open_writer.connection.execute("set local application_name = 'a service with a long name'")
        open_writer.write_message("account-1", "Opened")
        store.write_message("account-2", "Opened")

        printed = {" ".join(command): penstock(*command, columns=80) for command in COMMANDS}

    for command, result in printed.items():
        assert result.exit_code == 0, command
        assert max(len(line) for line in result.output.splitlines()) <= 80, command
