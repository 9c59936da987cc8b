"""Serving the console by itself, with uvicorn."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from penstock.console.security import Gate


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the viewers' streams first: they would keep the server from ending."""
        app: Any = self.config.app
        if isinstance(app, Gate):
            app.end_streams()
        await super().shutdown(sockets)


async def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until a signal ends the process."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="on"
    )
    await _Server(config).serve([listening])
