"""Log an outage of the database: the cause when it begins, and the duration when it ends.

Consumers, workers, dispatchers and pipelines retry several times a second. Logging each attempt
would fill the disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import AuthenticationFailed, PenstockError, UnavailableError

REMIND_EVERY = 60.0  # seconds


class Outage:
    """The outages of one consumer, worker, dispatcher or processor, named in the log."""

    def __init__(self, name: str, logger: logging.Logger) -> None:
        self._name = name
        self._logger = logger
        self._since: float | None = None
        self._logged = 0.0

    def goes_on(self, error: Exception) -> None:
        """Log that the database is unavailable: the first time, and then once a minute."""
        now = time.monotonic()
        if self._since is None:
            self._since = self._logged = now
            self._logger.warning("%s waits for the database: %s", self._name, error)
        elif now - self._logged >= REMIND_EVERY:
            self._logged = now
            waited = now - self._since
            self._logger.warning(
                "%s has waited for the database for %.0f s: %s", self._name, waited, error
            )

    def is_over(self) -> None:
        """Log the end and the duration of an outage, if there was one."""
        if self._since is not None:
            lasted, self._since = time.monotonic() - self._since, None
            self._logger.warning(
                "%s resumes: the database was unavailable for %.1f s", self._name, lasted
            )

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Log a temporary error of the block, and continue after it. Other errors are raised."""
        try:
            yield
        except AuthenticationFailed:
            raise
        except UnavailableError as error:
            self.goes_on(error)
        except PenstockError as error:
            if not error.retryable:
                raise
            self._logger.warning("%s continues after an error: %s", self._name, error)
        else:
            self.is_over()
