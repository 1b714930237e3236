"""Connections on which no request arrives are closed; uvicorn itself does so only after the first answer."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["closing_idle"]

SLOWEST_HEAD = 20.0  # seconds in which the head of a request must arrive


def closing_idle(protocol: Any) -> type[asyncio.Protocol]:
    """A protocol of uvicorn (httptools or h11) that closes a connection if the head of a request is late.

    The time starts with the connection and with each answer, however many bytes of the head have arrived since.
    """

    class ClosingIdle(protocol):  # type: ignore[misc]
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.wait_for_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.wait_for_head()

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            self.stop_waiting()

        def wait_for_head(self) -> None:
            self.stop_waiting()
            if not self.transport.is_closing():
                self.timer = self.loop.call_later(SLOWEST_HEAD, self.close_without_head, self.cycle)

        def stop_waiting(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def close_without_head(self, last: Any) -> None:
            """Close the connection if no request follows the last one, which is answered, or None."""
            if self.cycle is last and (last is None or last.response_complete):
                self.transport.close()

    return ClosingIdle
