"""A wire between a driver with its tasks and the server, on which statements are points.

A point is a statement that the server has answered, while the answer has not come through: whatever
the statement did is done, and nothing after it has begun. All statements are points, except those
that leave nothing behind (`READS`): to die after one of these is to die where it began. So there
are no other places to die at, as far as the database can tell. A COPY has two points, one
when the server waits for its rows and one when it has them all.

A point has a name that says who sent the statement, the driver's process or another one (a task's),
and what it was; and a number, since it may be sent again. Tasks run side by side, so the order of
points may differ from run to run. Names and numbers do not.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

import psutil
from psycopg.conninfo import conninfo_to_dict, make_conninfo

#: statements that change nothing but their own session; any other is a point
READS = frozenset(
    {
        *("begin", "set timezone", "set enable_sort", "set local", "set_config", "deallocate all"),
        *("pg_try_advisory_lock", "pg_advisory_unlock_all", "penstock.messages_to_read"),
        # how the database is set up
        *("select unnest", "message_store.message_store_version", "with pg_catalog.pg_namespace"),
        *("select penstock.installations", "select penstock.processors", "to_regclass"),
        *("select version", "select pg_catalog.pg_attribute", "select pg_catalog.pg_type"),
        *("pg_control_system", "select current_schema", "show transaction isolation level"),
        *("show standard_conforming_strings", "pg_table_is_visible", "select pg_catalog.version"),
        # what is in the log (also whether a start from scratch is requested), and in the table of
        # a projection
        *("penstock.category_head", "penstock.watermark", "penstock.missed"),
        *("with message_store.messages", "select message_store.messages"),
        *("with penstock.processors", "penstock.archived_to"),
        *("penstock.archive_mark", "copy penstock.archive_mark", "with penstock.archive_mark"),
        *("message_store.category", "copy message_store.messages", "select states"),
        # in the catalog of Iceberg tables, and who creates it
        *("select iceberg_tables", "select iceberg_namespace_properties", "pg_advisory_lock"),
    }
)
#: writes when it is called first, and only reads then
WRITES_ONCE = "penstock.open_processor"
_CALLED = re.compile(r"\b(penstock\.\w+|message_store\.\w+|pg_\w+|set_config|to_regclass) ?\(")
_TABLE = re.compile(r"\b(?:from|into|copy|update|exists|table(?! if)) ([\w.]+)")
_READY, _COPY_IN, _IDLE = b"Z", b"G", b"I"


class Point(NamedTuple):
    """A statement that was answered, for the nth time."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} #{self.number}"


class CountedWire:
    """Carries what both say, notes the points, and stops for good at one of them."""

    def __init__(self, url: str, stop_at: Point | None = None) -> None:
        there = conninfo_to_dict(url)
        self._server = str(Path(str(there["host"])) / f".s.PGSQL.{there['port']}")
        self._door = socket.create_server(("127.0.0.1", 0))
        host, port = self._door.getsockname()
        self.url = make_conninfo(url, host=host, port=port, sslmode="disable", gssencmode="disable")
        #: the process whose statements are the driver's; to be set before it connects
        self.driver = 0
        self.stop_at = stop_at
        self.points: list[Point] = []
        self.stopped, self._cut = Event(), Event()
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def __enter__(self) -> Self:
        Thread(target=self._let_in, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # or whoever waits at it would do so for good
        self._door.close()
        self._cut.set()

    def passes(self) -> bool:
        """Return at once whether it carries on; if it has stopped, when it is cut."""
        if self.stopped.is_set():
            self._cut.wait()
        return not self._cut.is_set()

    def reach(self, name: str) -> bool:
        """Note a point. Return whether its answer may pass, as above."""
        with self._lock:
            if not self.stopped.is_set():
                self._counts[name] += 1
                self.points.append(Point(name, self._counts[name]))
                if self.points[-1] == self.stop_at:
                    self.stopped.set()
        return self.passes()

    def _let_in(self) -> None:
        with suppress(OSError, psutil.NoSuchProcess):  # the door is closed, or the driver killed
            while True:
                client, (_, port) = self._door.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                line = _Line(self, client, server, self._sender(port))
                for carry in (line.to_server, line.to_client):
                    Thread(target=carry, daemon=True).start()

    def _sender(self, port: int) -> str:
        """Return whose connection it is: the driver's own, or that of another process."""
        own = psutil.Process(self.driver).net_connections("tcp4")
        return "driver" if any(one.laddr.port == port for one in own) else "task"


class _Line:
    """One connection."""

    def __init__(
        self, wire: CountedWire, client: socket.socket, server: socket.socket, sender: str
    ) -> None:
        self._wire, self._client, self._server, self._sender = wire, client, server, sender
        self._prepared: dict[str, str] = {}
        self._statement = ""
        #: the first point of the transaction that is open
        self._begun: str | None = None
        self._opened = False

    def to_server(self) -> None:
        with suppress(OSError):
            heard, is_first = b"", True
            while said := self._client.recv(65536):
                heard += said
                if is_first:  # the greeting: it has a length, and no kind
                    is_first, heard = False, heard[int.from_bytes(heard[:4]) :]
                for kind, body in (taken := _Messages(heard)):
                    self._note(kind, body)
                heard = taken.rest
                if not self._wire.passes():
                    break
                self._server.sendall(said)
        self._hang_up()

    def to_client(self) -> None:
        with suppress(OSError):
            heard, is_ready = b"", False
            while said := self._server.recv(65536):
                passes = self._wire.passes()
                for kind, body in (taken := _Messages(heard + said)):
                    if kind in (_READY, _COPY_IN):
                        name = self._point(kind) if is_ready else None
                        passes = self._wire.reach(name) if name else passes
                        is_ready = True
                    if (kind, body) == (_READY, _IDLE):
                        self._begun = None
                heard = taken.rest
                if not passes:
                    break
                self._client.sendall(said)
        self._hang_up()

    def _hang_up(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _note(self, kind: bytes, body: bytes) -> None:
        """Take note of the statement that is sent, also if it was prepared before."""
        if kind == b"Q":
            self._statement = _text(body)
        elif kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[_text(name)] = _text(text)
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            self._statement = self._prepared[_text(name)]

    def _point(self, kind: bytes) -> str | None:
        """Return the name of the point where the statement is answered; None if it is none."""
        name = name_of(self._statement)
        if name in ("commit", "rollback"):
            return f"{self._sender}: {name} of {self._begun}" if self._begun else None
        if name in READS or (name == WRITES_ONCE and self._opened):
            return None
        self._opened = self._opened or name == WRITES_ONCE
        self._begun = self._begun or name
        return f"{self._sender}: {name}{', begun' if kind == _COPY_IN else ''}"


class _Messages:
    """The whole messages that bytes hold, and the rest once they are taken."""

    def __init__(self, heard: bytes) -> None:
        self.rest = heard

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        while len(self.rest) >= 5:
            end = 1 + int.from_bytes(self.rest[1:5])
            if len(self.rest) < end:
                return
            kind, body = self.rest[:1], self.rest[5:end]
            self.rest = self.rest[end:]
            yield kind, body


def name_of(statement: str) -> str:
    """Return what a statement does, in short: its verb, and the table or the function."""
    text = " ".join(statement.lower().replace('"', "").split())
    verb, _, rest = text.partition(" ")
    if verb in ("begin", "commit", "rollback"):
        return verb
    if verb == "set":
        return f"set {rest.split()[0]}"
    if verb == "select" and (called := _CALLED.search(text)):
        return called[1]
    table = _TABLE.search(text)
    if table and text.endswith("for update"):
        verb = "lock"
    return f"{verb} {table[1]}" if table else re.split(r"[(;]", text)[0]


def _text(body: bytes) -> str:
    return body.rstrip(b"\0").decode()
