"""How an outage of the database is logged: once when it begins, and how long it lasted.

What runs for long (consumers, workers, dispatchers, pipelines) tries again several times a second.
Its log should name the cause, and not fill the disk with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import AuthenticationFailed, PenstockError, UnavailableError

REMIND_EVERY = 60.0  # seconds


class Outage:
    """The outages that one consumer, worker, dispatcher or processor meets."""

    def __init__(self, who: str, logger: logging.Logger) -> None:
        self._who = who
        self._logger = logger
        self._since: float | None = None
        self._logged = 0.0

    def goes_on(self, error: Exception) -> None:
        """Log that the database cannot be used: the first time, and once a minute after that."""
        now = time.monotonic()
        if self._since is None:
            self._since = self._logged = now
            self._logger.warning("%s waits for the database: %s", self._who, error)
        elif now - self._logged >= REMIND_EVERY:
            self._logged = now
            waited = now - self._since
            self._logger.warning(
                "%s has waited for the database for %.0f s: %s", self._who, waited, error
            )

    def is_over(self) -> None:
        """Log how long it lasted, if there was one."""
        if self._since is not None:
            lasted, self._since = time.monotonic() - self._since, None
            self._logger.warning("%s goes on: the database was away for %.1f s", self._who, lasted)

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Log an error of the block that passes, and go on after the block. Others are raised."""
        try:
            yield
        except AuthenticationFailed:
            raise
        except UnavailableError as error:
            self.goes_on(error)
        except PenstockError as error:
            if not error.retryable:
                raise
            self._logger.warning("%s goes on after: %s", self._who, error)
        else:
            self.is_over()
