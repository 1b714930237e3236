"""The sockets of a service: taken before any folder is touched, so that a port in use changes nothing."""

from __future__ import annotations

import errno
import socket

__all__ = ["check_port", "listen"]

LARGEST_PORT = 65535
WAITING = 2048  # connections that may wait to be accepted


def check_port(port: int, least: int = 0) -> None:
    """Raise a ValueError for a number that is not a port."""
    if not least <= port <= LARGEST_PORT:
        raise ValueError(f"the port must be between {least} and {LARGEST_PORT}, not {port}")


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host; port 0 is any free port, the same for all of them."""
    check_port(port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ValueError(f"there is no host {host!r}: give an address of this machine with --host") from None
    opened: list[socket.socket] = []
    failed: OSError | None = None
    for family, *_, address in dict.fromkeys(found):
        taken = opened[0].getsockname()[1] if opened else port
        try:
            opened.append(_listen(family, (address[0], taken, *address[2:])))
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):  # localhost without IPv6
                failed = error
                continue
            _close(opened)
            raise ValueError(_sentence(host, taken, error)) from None
    if not opened:
        assert failed is not None
        raise ValueError(_sentence(host, port, failed))
    return opened


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after a restart, at once
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(WAITING)  # another process could bind it, too, until then
    except BaseException:
        opened.close()
        raise
    return opened


def _sentence(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use by another program: choose another one with --port, 0 for any"
        )
    return f"the service can't listen on port {port} of {host}: {error.strerror or error}"


def _close(opened: list[socket.socket]) -> None:
    for each in opened:
        each.close()
