"""Download one file over https, with limits on its size and on the time to connect.

pooch is not used: it checks the hash of a file, but a dataset is valid by its decoded arrays, whichever mirror or
package it comes from. Those checks, the mirrors, the https-only redirects and the size limit would still be needed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from everlearn.streams.formats import DataError
from everlearn.streams.size_limits import MEGABYTE

__all__ = ["Progress", "download"]

Progress = Callable[[str], None]
"""Receives a line of text now and then."""

TIMEOUT_SECONDS = 10.0


def download(url: str, path: Path, limit: int, progress: Progress) -> None:
    """Write the file at this address to `path`; raise a DataError if it has more than `limit` bytes."""
    with _open(url) as response, path.open("wb") as out:
        length = int(response.headers.get("Content-Length") or 0)
        while part := response.read(MEGABYTE):
            if max(length, out.tell() + len(part)) > limit:
                raise DataError(f"{path.name} is larger than the {limit} bytes that are expected")
            out.write(part)
            total = f" of {length / MEGABYTE:.1f}" if length else ""
            progress(f"{path.name}: {out.tell() / MEGABYTE:.1f}{total} MB")


class _HttpsRedirects(HTTPRedirectHandler):
    """Follows a redirect only to another https address."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        try:
            _check_https(newurl)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise DataError(f"{url[:200]} is not an https address, and data is downloaded over https only")


def _open(url: str) -> Any:
    """Send a request and return the response, or raise a TimeoutError after TIMEOUT_SECONDS in total.

    The timeout of urllib starts again for each address of a host and does not include the name lookup. Behind a
    firewall that drops packets it would wait for minutes, so the request is sent from a thread.
    """
    _check_https(url)
    responses: queue.Queue[Any] = queue.Queue()

    def send() -> None:
        try:
            responses.put(build_opener(_HttpsRedirects).open(url, timeout=TIMEOUT_SECONDS))
        except (OSError, HTTPException, ValueError) as error:  # raised again below, in the caller's thread
            responses.put(error)

    threading.Thread(target=send, daemon=True).start()
    try:
        response = responses.get(timeout=TIMEOUT_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no response in {TIMEOUT_SECONDS:g} seconds") from None
    if isinstance(response, HTTPError):
        response.close()  # an error comes with a page that is not needed
    if isinstance(response, Exception):
        raise response
    return response
