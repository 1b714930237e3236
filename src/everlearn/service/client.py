"""A client of `everlearn serve`: the methods of a live learner, with arrays in and out, and retries."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self

from everlearn.service.operations import Operations, ServiceError, ServiceRequest, ToldOverHTTP

try:
    import httpx
except ImportError:
    raise ImportError("the client needs httpx: run `pip install 'everlearn[serve]'`") from None

__all__ = ["AsyncClient", "Client", "ServiceError", "ToldOverHTTP"]


class Client(Operations):
    """A client of a service.

    >>> client = Client("http://127.0.0.1:8000")    # `everlearn serve FOLDER`
    >>> client.url
    'http://127.0.0.1:8000'
    """

    def _make(self, **options: Any) -> httpx.Client:
        return httpx.Client(**options)

    def _send(self, request: ServiceRequest) -> Any:
        tried = 0
        while True:
            answer, error = None, None
            try:
                answer = self._http.request(
                    request.method, request.path, content=request.content, headers=request.headers
                )
            except httpx.TransportError as failure:
                error = failure
            wait = self._wait(tried, answer, error)
            if wait is None:
                return request.parse(_content(answer))
            time.sleep(wait)
            tried += 1

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Operations):
    """A client of a service whose methods are awaited: `await client.observe(x, y)`."""

    def _make(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(**options)

    async def _send(self, request: ServiceRequest) -> Any:
        tried = 0
        while True:
            answer, error = None, None
            try:
                answer = await self._http.request(
                    request.method, request.path, content=request.content, headers=request.headers
                )
            except httpx.TransportError as failure:
                error = failure
            wait = self._wait(tried, answer, error)
            if wait is None:
                return request.parse(_content(answer))
            await asyncio.sleep(wait)
            tried += 1

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _content(answer: Any) -> dict[str, Any]:
    """The JSON of an answer; raises the error that it reports."""
    if answer.is_success:
        return dict(answer.json())
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"{answer.url} answered {answer.status_code} {answer.reason_phrase}"
    if answer.status_code in (401, 403):
        raise PermissionError(detail)
    if answer.status_code in (400, 413, 415, 422):
        raise ValueError(detail)
    raise ServiceError(detail, answer.status_code)
