"""Who may call what: bearer tokens, allowed hosts, and the headers of every answer."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everlearn.service.tokens import Tokens

__all__ = ["Guard", "is_loopback", "needs"]

# No inline script or style, nothing from elsewhere, no framing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware: sets the security headers and, for a service without tokens, refuses foreign hosts.

    A page of another site could otherwise reach the service under a name of its own (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, any_host: bool) -> None:
        self._app, self._any_host = app, any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if not self._any_host and not _is_local(scope):
            from starlette.responses import JSONResponse

            answer = JSONResponse(
                {"detail": "this service answers to localhost only; other hosts need a token"}, 421
            )
            await answer(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


def _is_local(scope: Scope) -> bool:
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return is_loopback(name.strip("[]"))


def needs(*scopes: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency: the request needs a token with one of these scopes, if the service has tokens."""

    async def check(request: Request) -> None:
        tokens: Tokens | None = request.app.state.tokens
        if not tokens:
            return
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        token = tokens.find(secret.strip()) if kind.lower() == "bearer" else None
        if token is None:
            raise HTTPException(
                401, "a valid token is needed: `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"}
            )
        if not any(map(token.allows, scopes)):
            raise HTTPException(403, f"the token {token.name} lacks the scope {' or '.join(scopes)}")

    return check
