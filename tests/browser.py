"""A real browser, driven over the pipe of its DevTools: nothing to install beside Chromium itself."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120.0


def find() -> str | None:
    """The browser on this machine, if there is one."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, binary: str, home: Path) -> None:
        to_read, self.write = os.pipe()
        self.read, to_write = os.pipe()
        flags = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ]
        flags += ["--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={home}"]
        # The browser reads commands from file 3 and writes answers to file 4.
        line = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, "chromium", binary, *flags],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.pending = b""
        self.number = 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank", session=None)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True, session=None)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        try:
            self.call("Browser.close", session=None)
        finally:
            self.process.terminate()
            self.process.wait(PATIENCE)
            os.close(self.write)
            os.close(self.read)

    def call(self, method: str, session: str | None = "page", **parameters: Any) -> dict[str, Any]:
        """One command and its answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.pending:
            if not select.select([self.read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.read, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.pending += more
        message, self.pending = self.pending.split(b"\0", 1)
        return dict(json.loads(message))

    def open(self, page: Path | str, width: int = 1280, dark: bool = False) -> None:
        """Show a page, a file or an address, in a window of this width, light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """A real click of the mouse in the middle of an element."""
        spot = self.ask(
            "(() => { const e = document.querySelector(" + json.dumps(selector) + ");"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": spot[0], "y": spot[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot of the whole page, or of what the window shows."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
