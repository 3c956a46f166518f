"""Drive a headless Chromium by its DevTools protocol, over two pipes: needs the browser and no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
PATIENCE = 60.0  # seconds for any one answer


class BrowserError(Exception):
    """The browser did not do what it was asked."""


def find_chromium() -> str | None:
    """Return the path of a Chromium; None when there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """A tab, with what its console said and what it asked the network for."""

    def __init__(self, browser: Chromium, session: str, target: str, downloads: Path) -> None:
        self.browser = browser
        self.target = target
        self.session = session
        self.downloads = downloads
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Send one command of the protocol and return its result."""
        return self.browser.call(method, self.session, **values)

    def hear(self, message: dict[str, Any]) -> None:
        """Note an event."""
        method, values = message["method"], message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(values["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(values["args"])[:2000])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.complaints.append(values["entry"]["text"])

    def open(self, url: str) -> None:
        """Go to a page; `wait` for what is to be there."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise BrowserError(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    def wait(self, script: str, seconds: float = 30) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > deadline:
                raise BrowserError(f"{script} did not come true in {seconds:.0f} s; {self.complaints}")
            time.sleep(0.02)
        return value

    def size(self, width: int, height: int = 900) -> None:
        """Give the page another size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def dark(self, on: bool) -> None:
        """Prefer dark colours, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return what is to be seen as a PNG; with `whole` also what lies below."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def key(self, name: str, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            values = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, **values)


class Chromium:
    """A browser of its own, with a profile of its own in `folder`."""

    def __init__(self, program: str, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        self.buffer = b""
        self.pages: dict[str, Page] = {}
        to_browser, self.send_to = os.pipe()
        self.read_from, from_browser = os.pipe()
        # Chromium reads from 3 and writes to 4; the pipes' own numbers must be none of these.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_browser, from_browser)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            *((os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends, start=3)),
        ]
        words = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self.process = os.posix_spawn(program, words, os.environ, file_actions=actions, setsid=True)
        for end in (to_browser, from_browser, *ends):
            os.close(end)

    def call(self, method: str, session: str | None = None, **values: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are given to their pages."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": values} | ({"sessionId": session} if session else {})
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer and answer.get("sessionId") in self.pages:
                self.pages[answer["sessionId"]].hear(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready = select.select([self.read_from], [], [], max(deadline - time.monotonic(), 0))[0]
            found = os.read(self.read_from, 1 << 20) if ready else b""
            if not found:
                raise BrowserError(f"Chromium {'ended' if ready else 'does not answer'} (in {self.folder})")
            self.buffer += found
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def page(self, width: int = 1400, height: int = 900) -> Page:
        """Open a tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target, self.folder / "downloads")
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(page.downloads))
        page.size(width, height)
        return page

    def close_pages(self) -> None:
        """Close all tabs that were opened here."""
        for page in self.pages.values():
            self.call("Target.closeTarget", targetId=page.target)
        self.pages.clear()

    def close(self) -> None:
        """End the browser and all that it started."""
        for pipe in (self.send_to, self.read_from):
            os.close(pipe)
        deadline = time.monotonic() + 5
        while os.waitpid(self.process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.killpg(self.process, signal.SIGKILL)
                os.waitpid(self.process, 0)
                break
            time.sleep(0.02)
        try:
            os.killpg(self.process, signal.SIGKILL)  # helpers that have not noticed
        except ProcessLookupError:
            pass


@contextmanager
def chromium(program: str, folder: Path) -> Iterator[Chromium]:
    """Start a browser and end it again."""
    browser = Chromium(program, folder)
    try:
        yield browser
    finally:
        browser.close()
