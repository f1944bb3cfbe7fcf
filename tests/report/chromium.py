"""A headless Chromium driven over a pipe (Chrome DevTools Protocol), for tests of pages."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_TIMEOUT_S = 300.0


def find_chromium() -> str | None:
    """Path of an installed Chromium or Chrome."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def _lives(group: int) -> bool:
    """Whether a process of the group runs. Dead ones stay where process 1 does not collect them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                return True
    return False


class Page:
    """One page in a browser of its own. `events` are all protocol events so far."""

    def __init__(self, executable: str, width: int = 1240, height: int = 900) -> None:
        self._profile = tempfile.mkdtemp(prefix="groundwire-chromium-")
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        # The browser reads commands at descriptor 3 and answers at 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{commands} 4>&{answers}', executable, *_FLAGS,
             f"--user-data-dir={self._profile}", f"--window-size={width},{height}", "about:blank"],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": self._profile},
            start_new_session=True,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = next(
            t for t in self._wait_for_page() if t["type"] == "page"
        )  # fmt: skip
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exception: object) -> None:
        # All of its processes: one that is left goes on writing into the profile.
        deadline = time.monotonic() + _TIMEOUT_S
        while _lives(self._process.pid) and time.monotonic() < deadline:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            time.sleep(0.01)
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)
        shutil.rmtree(self._profile)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a protocol command. Raises RuntimeError with the browser's message."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return dict(answer["result"])

    def open(self, path: Path) -> None:
        """Load a file and wait until it has loaded."""
        self.open_address(path.resolve().as_uri())

    def open_address(self, url: str) -> None:
        """Load a page and wait until it has loaded."""
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + _TIMEOUT_S
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} did not load")
            self.events.append(self._read())

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression. Raises RuntimeError when it throws."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def emulate(self, media: str = "", scheme: str = "light") -> None:
        """`media` "print" or "" (screen); `scheme` "light" or "dark"."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def screenshot(self, path: Path) -> None:
        """A picture of the whole page, as PNG."""
        result = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(result["data"]))

    def methods(self, name: str) -> list[dict[str, Any]]:
        """Parameters of the events of one kind."""
        return [event["params"] for event in self.events if event.get("method") == name]

    def _wait_for_page(self) -> list[dict[str, Any]]:
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            targets: list[dict[str, Any]] = self.call("Target.getTargets")["targetInfos"]
            if any(t["type"] == "page" for t in targets):
                return targets
            time.sleep(0.05)
        raise TimeoutError("the browser opened no page")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._answers, 1 << 16)
            if not read:
                raise RuntimeError("the browser has gone")
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))
