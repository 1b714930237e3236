"""Connections without a request are closed, so that they do not use up those that a service may have."""

import asyncio
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from everlearn.service import connections, run

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
ANSWER = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
PATIENCE = 30  # seconds; a connection that stays open fails the test


async def app(scope, receive, send):
    """Answers ok; /slow takes longer than the head of a request may."""
    await asyncio.sleep(0.5 if scope["path"] == "/slow" else 0)
    await send(ANSWER)
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def listening(protocol):
    """The port of a server with this protocol."""
    config = uvicorn.Config(
        app, port=0, http=protocol, lifespan="off", log_level="error", timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("protocol", [HttpToolsProtocol, H11Protocol])
def test_a_connection_is_closed_unless_the_head_of_a_request_arrives(protocol, monkeypatch):
    monkeypatch.setattr(connections, "SLOWEST_HEAD", 0.2)
    with listening(connections.closing_idle(protocol)) as port:
        for sent in (b"", REQUEST[:20], REQUEST, REQUEST + REQUEST[:20]):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
                connection.sendall(sent)
                received = b"".join(iter(lambda: connection.recv(1000), b""))  # until it is closed
            assert received.endswith(b"ok") == sent.startswith(REQUEST)


@pytest.mark.parametrize("protocol", [HttpToolsProtocol, H11Protocol])
def test_a_slow_answer_is_waited_for(protocol, monkeypatch):
    monkeypatch.setattr(connections, "SLOWEST_HEAD", 0.1)
    with (
        listening(connections.closing_idle(protocol)) as port,
        socket.create_connection(("127.0.0.1", port), PATIENCE) as connection,
    ):
        connection.sendall(REQUEST.replace(b"/", b"/slow", 1))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_the_service_uses_it(monkeypatch):
    seen = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, _: seen.append(self.config.http))
    run._answer(app, [])
    assert [kind.__name__ for kind in seen] == ["ClosingIdle"]
