"""Limits of connections to the explorer: their number, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
from typing import Any

from ig2.errors import import_extra

HEADER_SECONDS = 10.0  # for the headers of a request, since the connection or the last answer
BODY_SECONDS = 60.0  # for its body: 16 MiB at 2.2 Mbit/s
MOST_CONNECTIONS = 200  # a browser opens six


def make_protocol() -> type[asyncio.Protocol]:
    """Return the HTTP protocol of uvicorn, with limits to the time of a request and to connections.

    Above `MOST_CONNECTIONS`, the one that has waited longest for headers is closed: a client that
    means to ask something sends them at once, and is answered however many others send a byte now
    and then.
    """
    http = import_extra("uvicorn.protocols.http.h11_impl", "serve", "ig2 serve")

    class LimitedProtocol(http.H11Protocol):  # type: ignore[name-defined, misc]
        # the cycle of the last request, and the limit of what is to come
        awaited: tuple[Any, float | None] = (None, None)
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._follow()
            others = [other for other in self.connections if not other.transport.is_closing()]
            if len(others) > MOST_CONNECTIONS:
                waiting = [other for other in others if other.awaited[1] == HEADER_SECONDS]
                min(waiting, key=lambda other: other.timer.when()).transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._follow()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._follow()

        def connection_lost(self, exc: Exception | None) -> None:
            self._restart(None)
            super().connection_lost(exc)

        def _follow(self) -> None:
            """Start the clock anew where other things are awaited than before."""
            cycle = self.cycle
            awaits_headers = cycle is None or cycle.response_complete
            limit = HEADER_SECONDS if awaits_headers else BODY_SECONDS if cycle.more_body else None
            if (cycle, limit) != self.awaited:
                self.awaited = (cycle, limit)
                self._restart(limit)

        def _restart(self, limit: float | None) -> None:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = None if limit is None else self.loop.call_later(limit, self.transport.abort)

    return LimitedProtocol
