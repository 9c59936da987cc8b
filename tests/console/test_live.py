"""Live pages: one poll for all viewers, what it pushes, and a database that goes away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from penstock.console import live as live_module
from penstock.console.history import APART, SECONDS, History, Rates, Sample
from penstock.console.live import Live
from penstock.errors import DatabaseUnreachable, MessageNotFound


class Database:
    """Counts what is read; can be away."""

    def __init__(self) -> None:
        self.polls = self.renders = 0
        self.away = False
        self.text = "first"

    async def poll(self) -> int:
        self.polls += 1
        if self.away:
            raise DatabaseUnreachable("postgresql://ada:secret@nowhere", "is away")
        return self.polls

    async def render(self) -> str:
        self.renders += 1
        return f"<p>{self.text}</p>\r\n<p>line</p>"


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def live(database: Database, monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setattr(live_module, "INTERVAL", 0.01)
    made = Live(database.poll, lambda root: f"away: {made.away}")
    return made


async def _until(stream: AsyncIterator[bytes], text: str) -> bytes:
    async with asyncio.timeout(30):
        async for event in stream:
            if text.encode() in event:
                return event
    raise AssertionError(f"the stream ended without {text}")


async def test_a_page_is_pushed_when_it_has_changed(live: Live, database: Database) -> None:
    stream = live.watch("/", "", database.render)

    first = await _until(stream, "event: live")
    database.text = "second"
    second = await _until(stream, "event: live")

    assert first.endswith(b"data: <p>first</p>\ndata: <p>line</p>\n\n")
    assert b"second" in second


async def test_viewers_of_one_page_cost_no_more_than_one(live: Live, database: Database) -> None:
    streams = [live.watch("/", "", database.render) for _ in range(50)]
    for stream in streams:
        await _until(stream, "event: live")
    database.polls = database.renders = 0

    for _ in range(3):
        await live.look()

    assert database.renders <= database.polls + 1
    assert len(live.pages) == 1


async def test_many_pages_are_rendered_in_turn(
    live: Live, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "INTERVAL", 1000)
    for number in range(50):
        live.pages[f"/{number}"] = live_module.Page(database.render)

    for _ in range(3):
        before = database.renders
        await live.look()
        assert database.renders - before <= live_module.PAGES

    assert all(page.rendered_at for page in live.pages.values())


async def test_it_ends_with_the_last_viewer_and_begins_with_the_next(
    live: Live, database: Database
) -> None:
    stream = live.watch("/", "", database.render)
    await _until(stream, "event: live")
    await stream.aclose()  # type: ignore[attr-defined]
    task = live._task
    assert task is not None
    await task

    again = live.watch("/", "", database.render)

    assert live.pages == {}
    await _until(again, "event: live")


async def test_a_database_that_is_away_is_told_without_its_password_and_comes_back(
    live: Live, database: Database
) -> None:
    stream = live.watch("/", "", database.render)
    await _until(stream, "event: live")

    database.away = True
    gone = await _until(stream, "event: state")
    database.away = False
    back = await _until(stream, "away: None")
    again = back if b"event: live" in back else await _until(stream, "event: live")

    assert b"is away" in gone
    assert b"secret" not in gone
    assert b"first" in again


async def test_a_page_whose_subject_is_gone_does_not_end_the_others(
    live: Live, database: Database
) -> None:
    async def gone() -> str:
        raise MessageNotFound("1", "removed")

    async def broken() -> str:
        raise KeyError("a bug")

    live.pages["/gone"], live.pages["/bug"] = live_module.Page(gone), live_module.Page(broken)
    stream = live.watch("/", "", database.render)

    await _until(stream, "event: live")

    assert live.away is None


async def test_a_database_that_does_not_answer_is_away(
    live: Live, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "ANSWER_WITHIN", 0.01)
    monkeypatch.setattr(live, "_poll", asyncio.Event().wait)

    await live.look()

    assert live.away == "it has not answered within 0.01 seconds"
    with pytest.raises(TimeoutError):
        await live.fresh()


async def test_closing_ends_every_stream(live: Live, database: Database) -> None:
    stream = live.watch("/", "", database.render)
    await _until(stream, "event: live")

    live.close()

    async with asyncio.timeout(30):
        assert b"event: live" not in b"".join([event async for event in stream])


def test_the_history_is_an_hour_and_has_rates() -> None:
    history = History()
    for number in range(1000):
        history.samples.append(
            Sample(number * APART, number * 100, {"a": (1, number), "b": (0, 1)})
        )
    history.add(100_000, {})

    assert history.samples[0].at >= history.samples[-1].at - SECONDS
    assert all(rate >= 0 for _, rate in history.write_rate().points)


def test_the_write_rate_is_what_was_written_between_two_samples() -> None:
    history = History()
    for at, head in ((0.0, 100), (10.0, 300), (20.0, 300), (30.0, 250)):
        history.samples.append(Sample(at, head, {"one": (2, at), "two": (1, 1)}))

    assert [rate for _, rate in history.write_rate().points] == [20.0, 0.0, 0.0]
    assert [one.name for one in history.lag_seconds()] == ["one", "two"]


def test_the_history_goes_on_when_the_clock_is_set_back() -> None:
    history = History()
    history.samples.append(Sample(time.time() + 3600, 100, {}))

    history.add(300, {})

    assert [one.head for one in history.samples] == [300]


def test_a_counter_that_is_read_the_first_time_has_no_rate() -> None:
    assert Rates().of("a", 5) is None
