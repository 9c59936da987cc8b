"""`penstock status` and `penstock version`: the state of the log, and the installed versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import psycopg
import typer
from rich.text import Text

import penstock
from penstock.admin import HealthFigure, OpenWriter, Status
from penstock.cli.printing import (
    console,
    note,
    print_facts,
    print_json,
    print_table,
    print_wrapped,
)
from penstock.cli.target import (
    Yes,
    bare_connection,
    confirm,
    has_database,
    open_existing,
    place,
    selected_settings,
)
from penstock.database import edition as editions
from penstock.database.edition import SCHEMA_VERSION, Edition
from penstock.database.execute import execute
from penstock.errors import PenstockError, WriterNotFound, first_line
from penstock.log.overview import shortened
from penstock.settings import Settings, redact

_EDITIONS = {
    Edition.PENSTOCK: "penstock: all functions are Penstock's",
    Edition.ON_MESSAGE_DB: "message-db: Message DB's functions, with Penstock beside them",
    Edition.GENUINE: "genuine: Message DB only; `penstock init` adds Penstock beside it",
}


def status(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the state of the log, open writers, and the lag of each reader.

    `lag` is how long the next message of a consumer, session, group or the outbox has waited.
    """
    settings = selected_settings()
    with open_existing() as store:
        status = store.status()
        figures = store.admin.health() if store.edition.has_watermark else []
    if json:
        print_json(_as_json(status, settings) | {"figures": figures}, indented=True)
        return
    _print_status(status, settings)
    if status.open_writers:
        _print_writers(status.open_writers)
    if figures:
        _print_figures(figures)


def release_writer(
    pid: Annotated[int, typer.Argument(help="The server process, as `status` shows it.", min=1)],
    yes: Yes = False,
) -> None:
    """End an open writer that holds readers back: its transaction is rolled back."""
    with open_existing() as store:
        found = next((one for one in store.status().open_writers if one.pid == pid), None)
        if found is None:
            raise WriterNotFound(pid)
        note(str(found))
        confirm(f"end it, and roll back what it has written from position {found.bound} on?", yes)
        store.admin.release_writer(pid)
    note(f"{pid} ended")


def version() -> None:
    """Show the versions of this package, its schema, and the server."""
    print_facts(
        {
            "penstock": penstock.__version__,
            "schema version": SCHEMA_VERSION,
            "server": _server(selected_settings()),
        }
    )


def _print_status(status: Status, settings: Settings) -> None:
    version = "none" if status.schema_version is None else status.schema_version
    standby = ", a standby" if status.standby else ""
    print_facts(
        {
            "where": place(settings),
            "edition": _EDITIONS[status.edition],
            "schema version": f"{version}; this client's is {SCHEMA_VERSION}",
            "Message DB": f"{status.message_store_version}, the interface",
            "server": f"PostgreSQL {status.server_version}{standby}",
            "head": f"{status.head}, the last message's global position",
            "watermark": _watermark(status),
            **_archive(status),
            "pool": f"{settings.pool_min_size} to {settings.pool_max_size} connections, "
            f"{settings.pool_timeout_ms / 1000:g} s to wait for one",
        }
    )


def _watermark(status: Status) -> str | Text:
    if status.watermark is None and status.standby:
        return "unknown on a standby: use the primary"
    if status.watermark is None:
        return "none: genuine Message DB has no watermark"
    if not status.behind:
        return f"{status.watermark}, not behind: readers see all committed messages"
    text = f"{status.watermark}, {status.behind} behind: open writers hold readers back"
    return Text(text, style="bold yellow")


def _archive(status: Status) -> dict[str, str]:
    if status.archived_to is None:
        return {}
    where = f"{status.archived_messages} messages, up to {status.archived_to}, are in files"
    return {"archive": where}


def _print_writers(writers: tuple[OpenWriter, ...]) -> None:
    out = console()
    out.print()
    out.print(Text("Open writers, oldest first", style="bold"))
    print_table(
        ">pid >age state application role >holds_back_from last_statement",
        (
            (
                "-" if one.pid is None else one.pid,
                "?" if one.age is None else one.age,
                "prepared" if one.pid is None else one.state or "?",
                one.application_name,
                one.role,
                one.bound,
                shortened(" ".join((one.last_statement or "?").split()), 60),
            )
            for one in writers
        ),
    )
    remedy = (
        "The first is a prepared transaction: commit it or roll it back (see pg_prepared_xacts)."
        if writers[0].pid is None
        else "To terminate the first one and roll back its writes: "
        f"penstock release-writer {writers[0].pid}"
    )
    print_wrapped(out, Text(remedy, style="dim"))


def _as_json(status: Status, settings: Settings) -> dict[str, Any]:
    facts = asdict(status)
    for writer in facts["open_writers"]:
        age = writer.pop("age")
        writer["age_seconds"] = None if age is None else age.total_seconds()
    return {
        "where": place(settings),
        **facts,
        "client_schema_version": SCHEMA_VERSION,
        "behind": status.behind,
        "pool": {
            "min_size": settings.pool_min_size,
            "max_size": settings.pool_max_size,
            "timeout_ms": settings.pool_timeout_ms,
        },
    }


def _print_figures(figures: Sequence[HealthFigure]) -> None:
    """Print the figures of consumers, sessions, groups and topics, one row for each."""
    rows: dict[str, dict[str, object]] = {}
    for one in figures:
        kind, _, measure = one.name.partition(".")
        if kind == "watermark":  # shown with the state of the log
            continue
        row = rows.setdefault(" ".join([kind, *one.subject.values()]), {})
        if measure in ("lag", "claim_age"):
            row[measure] = timedelta(seconds=one.value)
        else:
            row[measure] = f"{one.value:g}{'+' if one.detail.get('at_least') else ''}"
        if measure == "claim_age":
            row["claimed"] = f"{one.detail['partition_key']} by {one.detail['claimed_by']}"
    measures = ("lag", "parked", "failed", "claim_age")
    console().print()
    print_table(
        "reader >lag >parked >failed >oldest_claim claimed",
        (
            (reader, *(row.get(name, "-") for name in measures), row.get("claimed"))
            for reader, row in rows.items()
        ),
    )


def _server(settings: Settings) -> str:
    if not has_database(settings):
        return f"none: no database in {settings.folder}"
    try:
        return f"{_found(settings)}, at {place(settings)}"
    except (PenstockError, psycopg.Error) as error:
        return redact(first_line(error))


def _found(settings: Settings) -> str:
    with bare_connection(settings) as connection:
        server = f"PostgreSQL {connection.info.parameter_status('server_version')}"
        found = execute(connection, editions.find())
        if not found.has_message_store:
            return f"{server}, no message store"
        message_db = execute(connection, editions.message_store_version())
        last = execute(connection, editions.last_installation()) if found.has_penstock else None
        schema = f"Penstock's schema version {last.version}" if last else "no Penstock"
        return f"{server}, Message DB {message_db}, {schema}"
