"""A wire between clients and the server: cut, or held for a moment, where a client says a word."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Wire:
    """Carries what both say. Something happens when a client says the word for the first time."""

    def __init__(self, url: str, word: str, at_word: Callable[[], None] | None = None) -> None:
        """Do `at_word` before the word is passed on, or without that, cut the connection."""
        there = conninfo_to_dict(url)
        self._server = str(Path(str(there["host"])) / f".s.PGSQL.{there['port']}")
        self._word = word.encode()
        self._at_word = at_word
        self._lock = Lock()
        self.was_said = False
        self._door = socket.create_server(("127.0.0.1", 0))
        host, port = self._door.getsockname()
        self.url = make_conninfo(url, host=host, port=port)

    def __enter__(self) -> Self:
        Thread(target=self._let_in, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.close()

    def _let_in(self) -> None:
        with suppress(OSError):  # the door is closed
            while True:
                client, _ = self._door.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                for ends in ((client, server, True), (server, client, False)):
                    Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket, listen: bool) -> None:
        with suppress(OSError):  # it was cut
            while said := one.recv(65536):
                if listen and self._word in said and self._is_first():
                    if self._at_word is None:
                        break
                    self._at_word()
                other.sendall(said)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _is_first(self) -> bool:
        with self._lock:
            first, self.was_said = not self.was_said, True
            return first
