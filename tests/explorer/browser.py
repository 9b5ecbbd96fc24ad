"""A browser that tests can drive: Debian's Chromium over WebDriver, which is JSON over HTTP and needs no library."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from patience import PATIENCE, until

MISSING = next((name for name in ("chromium", "chromedriver") if shutil.which(name) is None), None)
"""The missing packages that a browser needs: on Debian, ``apt-get install chromium chromium-driver``."""

STARTED = re.compile(r"started successfully on port (\d+)")
"""The line that chromedriver prints when it listens."""

KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "Home": "\ue011",
    "End": "\ue010",
    "Tab": "\ue004",
    "Control": "\ue009",
}


class Browser:
    """One headless browser with one page."""

    def __init__(self, profile: Path) -> None:
        self._session = f"http://127.0.0.1:{self._start(profile)}/session"
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]
        wanted = {
            "capabilities": {
                "alwaysMatch": {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
            }
        }
        self._session += "/" + self._ask("POST", "", wanted)["sessionId"]

    def _start(self, profile: Path) -> str:
        """Start chromedriver. It takes a free port of IPv6, and ends if IPv4 has that in use. Then it is started again.
        Return the port.
        """
        home = {**os.environ, "HOME": str(profile)}
        log = profile / "chromedriver.log"
        for _ in range(5):
            with open(log, "wb") as output:
                self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=output, stderr=output, env=home)
            until(lambda: STARTED.search(log.read_text()) or self._driver.poll() is not None, "chromedriver")
            started = STARTED.search(log.read_text())
            if started is not None:
                return started[1]
            if "Address already in use" not in log.read_text():
                break
        raise AssertionError(log.read_text())

    def close(self) -> None:
        """End the browser."""
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(PATIENCE)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self._session + path, data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, address: str) -> None:
        """Go to a page and wait until it is ready."""
        self._ask("POST", "/url", {"url": "about:blank"})
        self._ask("POST", "/url", {"url": address})
        self.until("document.body && Number(document.body.dataset.ready) > 0")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script. Returns its result."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        until(lambda: self.run(f"return Boolean({condition})"), condition)

    def _settled(self, work: Any) -> None:
        """Do something that makes the page show another view, and wait for the view."""
        before = self.run("return document.body.dataset.ready")
        work()
        self.until(f"document.body.dataset.ready !== {json.dumps(before)}")

    def click(self, selector: str, settles: bool = True) -> None:
        """Click the first element that matches, as a person does: it must be there to be clicked."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        work = partial(self._ask, "POST", f"/element/{next(iter(found.values()))}/click")
        self._settled(work) if settles else work()

    def press(self, *keys: str, settles: bool = True) -> None:
        """Press keys one after the other; ``Control+Enter`` holds one down."""
        for key in keys:
            names = [KEYS.get(name, name) for name in key.split("+")] if len(key) > 1 else [key]
            actions = [{"type": "keyDown", "value": n} for n in names] + [
                {"type": "keyUp", "value": n} for n in names[::-1]
            ]
            body = {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}
            work = partial(self._ask, "POST", "/actions", body)
            self._settled(work) if settles else work()

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        for character in text:
            self.press(character, settles=False)

    def choose_file(self, selector: str, file: Path) -> None:
        """Choose a file for a field that opens one."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._settled(lambda: self._ask("POST", f"/element/{next(iter(found.values()))}/value", {"text": str(file)}))

    def choose_file_that_fails(self, selector: str, file: Path) -> None:
        """Choose a file that cannot be opened, and wait until the page reports that."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"/element/{next(iter(found.values()))}/value", {"text": str(file)})
        self.until("document.querySelector('#message.wrong')")

    def text(self, selector: str) -> str:
        """The text of the first element that matches."""
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def texts(self, selector: str) -> list[str]:
        """The text of each element that matches."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )
        return found

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """The size of the page, and whether it is dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def complaints(self) -> list[str]:
        """The messages of the browser console since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]
