"""`penstock write`: one message from the command line, or many from JSON lines."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

import penstock
from penstock import Message, Settings
from penstock.cli.bulk import opened, write_lines
from penstock.cli.printing import console, counted, printable
from penstock.cli.target import selected_settings
from penstock.log.write import check_stream_name
from penstock.message import as_uuid, new_id


def write(
    stream: Annotated[
        str | None,
        typer.Argument(help="The stream; optional with --from if each line has a stream_name."),
    ] = None,
    type: Annotated[str | None, typer.Argument(help="The message type, such as Opened.")] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The data, a JSON object; - reads it from stdin."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="The metadata, a JSON object.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            metavar="UUID", help="The message id; writing the same id again does nothing."
        ),
    ] = None,
    expected_version: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Write only if the stream is at this version; -1: no stream."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A file of JSON lines with type, data, metadata, id, stream_name; - is stdin.",
        ),
    ] = None,
) -> None:
    """Write a message to a stream, or many from a file.

    Creates the embedded database if there is none and no other is given.
    """
    settings = selected_settings()
    if stream is not None:
        check_stream_name(stream)
    if source is not None:
        if any(one is not None for one in (type, data, metadata, id)):
            raise typer.BadParameter("with --from, type, data, metadata and id are in the file")
        if stream is None and expected_version is not None:
            raise typer.BadParameter("--expected-version requires STREAM")
        wrote = _write_many(settings, stream, source, expected_version)
    elif stream is None or type is None:
        raise typer.BadParameter("give STREAM and TYPE, or a file with --from")
    else:
        message = Message(
            type,
            _json("--data", sys.stdin.buffer.read() if data == "-" else data),
            _json("--metadata", metadata),
            id=new_id() if id is None else as_uuid(id),
        )
        with penstock.connect(settings) as store:
            [position] = store.write_messages(stream, [message], expected_version=expected_version)
        wrote = f"{stream} #{position}  {message.id}"
    console().print(Text(f"wrote {printable(wrote)}"), soft_wrap=True)


def _write_many(
    settings: Settings, stream_name: str | None, source: str, expected_version: int | None
) -> str:
    with opened(source) as file, penstock.connect(settings) as store:
        work = write_lines(store, stream_name, file, expected_version)
    if not work.count:
        return "nothing: the input has no messages"
    where = "" if stream_name is None else f"{stream_name} #{work.first} to #{work.last}: "
    return f"{where}{counted(work.count, 'message')}"


def _json(name: str, text: str | bytes | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except UnicodeError:
        raise typer.BadParameter(f"{name} is not valid UTF-8") from None
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{name} is not valid JSON: {error}") from None
