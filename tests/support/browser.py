"""A page in the system's Chromium without a window, with what its console said and what it asked the network for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic")


def find_chromium() -> str | None:
    """Return the path of a Chromium; None when there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """Start a browser and end it again."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Page:
    """A page of a browser that is new to everything."""

    def __init__(self, browser: Browser, width: int = 1400, height: int = 900) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab = browser.new_page(viewport={"width": width, "height": height})
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("console", lambda said: self._hear(said.type, said.text))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning", "assert"):
            self.complaints.append(text)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        return self.tab.evaluate(script)

    def wait(self, script: str, seconds: float = 30) -> Any:
        """Return the value of an expression once it is true, also of a page that reloads itself meanwhile.

        The library's own way needs what the page forbids.
        """
        deadline = time.monotonic() + seconds
        while not (value := self._try(script)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{script} did not come true in {seconds:.0f} s; {self.complaints}")
            self.tab.wait_for_timeout(20)
        return value

    def _try(self, script: str) -> Any:
        from playwright.sync_api import Error

        try:
            return self.run(script)
        except Error as error:
            if "context was destroyed" not in str(error):
                raise
            return None
