"""One store served: due messages out of its outbox, to the handlers, and settled.

One round is: settle what handlers have finished, extend the leases of what is still at work, claim
as much as there is room for, and hand it to the threads. It all happens on one thread, which
waits on one queue; the handlers run on others and put their outcomes there.

More is claimed than there are threads, so that they do not run dry, but only what they get through
in a moment: what is claimed here and waits is kept from another dispatcher that has time for it. If
handlers take longer than they did before, what none of them has begun within a moment goes back.

Only messages of topics that have a handler are claimed. A topic without one is reported, once, when
its first message has been due for a minute: in the log, and as that message's last error.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from penstock.errors import (
    AuthenticationFailed,
    PenstockError,
    PermanentFailure,
    StaleLease,
    UnavailableError,
    first_line,
)
from penstock.loops.outage import Outage
from penstock.loops.retry import retry
from penstock.outbox import operations
from penstock.outbox.claim_cursor import Floor
from penstock.outbox.leases import by_token
from penstock.outbox.messages import ClaimedMessage
from penstock.outbox.payload import UndecodablePayload
from penstock.outbox.routes import Route, RunsTransactions
from penstock.outbox.threads import Crew, Work

logger = logging.getLogger("penstock")

#: for how many seconds of work is claimed beforehand
_AHEAD = 0.2
#: for how many seconds a claimed message may wait for a thread
_LONGEST_WAIT = 1.0
#: for how many seconds a message of a topic without a handler may be due
_OVERDUE = 60.0
_REPORT_EVERY = 60.0
_CLEAN_UP_EVERY = 60.0
_CLEAN_UP_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Terms:
    """How a dispatcher works."""

    owner: str
    concurrency: int
    batch_size: int
    lease: float
    polling_interval: float
    keep_done: timedelta | None
    warn_after: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of handling a message: whether that settled it, or what the handler raised."""

    message: ClaimedMessage
    seconds: float
    settled: bool = False
    error: BaseException | None = None


class Serving:
    """Serves one store until it is stopped, or until nothing is due."""

    def __init__(self, store: RunsTransactions, routes: Mapping[str, Route], terms: Terms) -> None:
        self._store = store
        self._routes = routes
        self._terms = terms
        self._floor = Floor()
        self._topics: list[str] = []
        self._unhandled: set[str] = set()
        self._at_work: dict[UUID, Work] = {}
        self._finished: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self._stopping = False
        self._outage = Outage(f"dispatcher {terms.owner}", logger)
        self._seconds_each = _AHEAD
        self._next_extension = 0.0
        self._next_clean_up = 0.0
        self._next_report = 0.0

    def run(self) -> None:
        """Serve until `stop()`; then give back what was not begun, and end what was."""
        with Crew(self._terms.concurrency, self._work) as crew:
            try:
                while not self._stopping:
                    if not self._try(lambda: self._round(crew)):
                        self._wait()
            finally:
                self._drain(crew)

    def run_until_idle(self) -> int:
        """Serve until nothing is due and nothing at work, and return how many were claimed."""
        handled, idle = 0, False
        with Crew(self._terms.concurrency, self._work) as crew:
            try:
                while not self._stopping:
                    claimed = self._round(crew, whole=idle)
                    handled += claimed
                    if self._at_work:
                        idle = False
                        if not claimed:
                            self._wait()
                    elif idle:
                        break
                    else:
                        idle = True  # unless a whole look finds something
            finally:
                self._drain(crew)
        return handled

    def stop(self) -> None:
        """End `run()`. A signal handler may call it."""
        self._stopping = True
        self._finished.put(None)

    def _round(self, crew: Crew, *, whole: bool = False) -> int:
        """Settle, extend, clean up and claim. Return how many messages were claimed."""
        self._settle()
        self._give_back_waiting(crew)
        self._extend()
        self._warn()
        self._clean_up()
        self._report_unhandled()
        claimed = self._claim(whole)
        now = time.monotonic()
        for message in claimed:
            work = Work(message, now, warn_after=self._terms.warn_after)
            self._at_work[message.id] = work
            crew.give(work)
        return len(claimed)

    def _claim(self, whole: bool) -> list[ClaimedMessage]:
        room = self._room()
        if not room:
            return []
        terms = self._terms
        if not self._at_work:
            self._next_extension = time.monotonic() + terms.lease / 3
        topics = sorted(self._routes)
        if topics != self._topics:  # the floor is not that of a topic that came later
            self._topics, self._floor = topics, Floor()
        claimed = self._store.run(
            operations.claim(
                self._store.context,
                terms.owner,
                room,
                terms.lease,
                topics,
                self._floor.take(whole=whole),
            )
        )
        self._floor.note(claimed)
        return claimed

    def _room(self) -> int:
        """Return how many messages to claim now: none, if there is hardly any room.

        A thread whose handler runs for long gets through nothing else meanwhile.
        """
        slow = sum(seconds > _AHEAD for _, seconds in self._begun())
        threads = self._terms.concurrency - slow
        in_time = int(threads * _AHEAD / max(self._seconds_each, 1e-6))
        ahead = max(threads, min(self._terms.batch_size, in_time))
        room = min(ahead - (len(self._at_work) - slow), self._terms.batch_size)
        return room if room >= max(1, ahead // 4) else 0

    def _begun(self) -> list[tuple[Work, float]]:
        """Return what handlers are at work on, and for how many seconds."""
        now = time.monotonic()
        return [(one, now - one.begun) for one in self._at_work.values() if one.begun is not None]

    def _work(self, work: Work) -> None:
        """Handle one message, on a thread, and report the outcome to the serving thread."""
        began, message = time.monotonic(), work.message
        settled, error = False, None
        try:
            settled = self._handle(message)
        except BaseException as raised:
            error = raised
        self._finished.put(Outcome(message, time.monotonic() - began, settled, error))

    def _handle(self, message: ClaimedMessage) -> bool:
        if isinstance(message.payload, UndecodablePayload):
            raise PermanentFailure(f"the payload is {message.payload}")
        return self._routes[message.topic].handle(message, self._store)

    def _wait(self) -> None:
        """Wait for a handler to finish, or until it is time to look again."""
        with suppress(queue.Empty):
            timeout = min(self._terms.polling_interval, self._terms.lease / 3)
            if self._at_work:
                timeout = min(timeout, _LONGEST_WAIT)
            self._finished.put(self._finished.get(timeout=timeout))

    def _settle(self) -> None:
        """Acknowledge, give back or fail what handlers are done with."""
        done: list[ClaimedMessage] = []
        for outcome in self._outcomes():
            self._at_work.pop(outcome.message.id, None)
            self._seconds_each += (outcome.seconds - self._seconds_each) / 5
            if outcome.error is not None:
                self._surely(lambda one=outcome: self._failed(one.message, one.error))  # type: ignore[misc]
            elif not outcome.settled:
                done.append(outcome.message)
        for token, ids in by_token(done):
            self._surely(lambda i=ids, t=token: self._ack(i, t))  # type: ignore[misc]

    def _outcomes(self) -> Iterable[Outcome]:
        with suppress(queue.Empty):
            while True:
                outcome = self._finished.get_nowait()
                if outcome is not None:
                    yield outcome

    def _ack(self, ids: list[UUID], token: UUID) -> None:
        stale = self._store.run(operations.finish(ids, token, "done"))
        if stale:
            logger.warning("dispatcher %s: leases had ended of %s", self._terms.owner, stale)

    def _failed(self, message: ClaimedMessage, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {first_line(error)}"
        held = [message.id], message.token
        if isinstance(error, StaleLease) and str(message.id) in error.message_ids:
            logger.warning("dispatcher %s: %s", self._terms.owner, error)
        elif isinstance(error, PermanentFailure):
            self._store.run(operations.finish(*held, "failed", reason))
        else:
            self._failed_once(message, reason)

    def _failed_once(self, message: ClaimedMessage, reason: str) -> None:
        """Try again later or, after the last attempt, fail for good."""
        policy, held = self._routes[message.topic].policy, ([message.id], message.token)
        logger.warning(
            "dispatcher %s: attempt %d of %d on %s %s failed: %s",
            self._terms.owner,
            message.attempts,
            policy.attempts,
            message.topic,
            message.id,
            reason,
        )
        if message.attempts >= policy.attempts:
            self._store.run(operations.finish(*held, "failed", reason))
        else:
            pause = policy.pause(message.attempts)
            self._store.run(operations.abandon(*held, pause, reason))

    def _extend(self) -> None:
        """Keep the leases of messages whose handlers are at work, or that wait for a moment."""
        if not self._at_work or time.monotonic() < self._next_extension:
            return
        self._next_extension = time.monotonic() + self._terms.lease / 3
        for token, ids in by_token(one.message for one in self._at_work.values()):
            self._store.run(operations.extend(ids, token, self._terms.lease))

    def _warn(self) -> None:
        """Name the handlers that run for too long; again when that has doubled."""
        for one, seconds in self._begun():
            if seconds >= one.warn_after:
                one.warn_after = 2 * max(seconds, self._terms.warn_after)
                logger.warning(
                    "dispatcher %s: the handler of %s has been running for %.1f seconds"
                    " on message %s",
                    self._terms.owner,
                    one.message.topic,
                    seconds,
                    one.message.id,
                )

    def _report_unhandled(self) -> None:
        """Now and then, report topics whose messages wait for a handler that is not here."""
        now, terms = time.monotonic(), self._terms
        if now < self._next_report:
            return
        handled = {*self._routes, *self._unhandled}
        found = self._store.run(
            operations.report_unhandled(self._store.context, terms.owner, handled, _OVERDUE)
        )
        # rare where it takes long, as among many dead index entries
        self._next_report = time.monotonic() + max(_REPORT_EVERY, 20 * (time.monotonic() - now))
        for one in found:
            self._unhandled.add(one.topic)
            logger.warning(
                "dispatcher %s: no handler for topic %s here, and its first message is due since"
                " %s: it is left to other dispatchers",
                terms.owner,
                one.topic,
                one.due,
            )

    def _clean_up(self) -> None:
        """Now and then, remove messages that were done long ago."""
        keep, now = self._terms.keep_done, time.monotonic()
        if keep is None or now < self._next_clean_up:
            return
        operation = operations.clean_up(self._store.context, keep, _CLEAN_UP_BATCH, failed=False)
        removed = self._store.run(operation)
        if max(removed.messages, removed.joins) < _CLEAN_UP_BATCH:
            self._next_clean_up = now + _CLEAN_UP_EVERY

    def _drain(self, crew: Crew) -> None:
        """Give back what no handler has begun, and wait for those that have."""
        self._give_back(crew.take_back())
        while self._at_work:
            self._wait()
            self._settle()
            self._surely(self._extend)
            self._warn()

    def _give_back_waiting(self, crew: Crew) -> None:
        """Give back what waits for a thread, if the first has waited for longer than a moment."""
        waiting = [one.claimed for one in self._at_work.values() if one.begun is None]
        if waiting and time.monotonic() - min(waiting) > _LONGEST_WAIT:
            self._give_back(crew.take_back())

    def _give_back(self, unbegun: list[Work]) -> None:
        for one in unbegun:
            del self._at_work[one.message.id]
        for token, ids in by_token(one.message for one in unbegun):
            operation = operations.give_back(ids, token)
            self._surely(lambda one=operation: self._store.run(one))  # type: ignore[misc]

    def _surely(self, settle: Callable[[], object]) -> None:
        """Do it, again if need be. If it cannot be done, leases end and messages come again."""
        self._try(retry(settle))

    def _try(self, attempt: Callable[[], Any]) -> Any:
        """Do it, and return what it returned. An error that passes is logged, and returns None."""
        try:
            result = attempt()
        except AuthenticationFailed:
            raise
        except UnavailableError as error:
            self._outage.goes_on(error)
            return None
        except PenstockError as error:
            if not error.retryable:
                raise
            logger.warning("dispatcher %s goes on after: %s", self._terms.owner, error)
            return None
        self._outage.is_over()
        return result
