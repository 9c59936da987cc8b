"""Viewers of the console: each loads a page and follows its stream of events.

    python bench/console/viewers.py ADDRESS COUNT PATH...

Prints `watching` when all of them have had a first event; at the end of standard input, what they
were sent since.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from html import unescape
from urllib.parse import urlsplit


class Viewer:
    """One viewer, and the bytes and events that it was sent."""

    def __init__(self, host: str, path: str) -> None:
        self._host, self._path = host, path
        self.watching = asyncio.Event()
        self.bytes = self.events = 0

    async def view(self) -> None:
        """Load the page, then follow its stream until the connection ends."""
        reader, writer = await self._get(self._path)
        page = (await reader.read()).decode()
        writer.close()
        found = re.search(r'sse-connect="([^"]+)"', page)
        if found is None:
            raise SystemExit(f"{self._path} has no stream of events: {page[:300]}")
        reader, writer = await self._get(unescape(found[1]))
        while line := await reader.readline():
            self.bytes += len(line)
            if line.startswith(b"event:"):
                self.events += 1
                self.watching.set()

    async def _get(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name, _, port = self._host.rpartition(":")
        reader, writer = await asyncio.open_connection(name, int(port), limit=2**24)
        request = f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        if b" 200 " not in (status := await reader.readline()):
            raise SystemExit(f"{path}: {status.decode()}")
        return reader, writer


async def main(address: str, count: str, *paths: str) -> None:
    host = urlsplit(address).netloc
    viewers = [Viewer(host, paths[number % len(paths)]) for number in range(int(count))]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.view()) for one in viewers]
        for one in viewers:
            await one.watching.wait()
        before = [(one.bytes, one.events) for one in viewers]
        print("watching", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        sent = sum(one.bytes for one in viewers) - sum(bytes for bytes, _ in before)
        events = sum(one.events for one in viewers) - sum(events for _, events in before)
        print(json.dumps({"bytes": sent, "events": events}), flush=True)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
