"""A headless Chromium and its pages, driven over the DevTools protocol.

Chromium is Debian's package `chromium`. The bench measures the page with it. Tests use the page in its
headless shell, the package `chromium-headless-shell`: it draws no window, and takes a third of the processor
time.
Source of the protocol: https://chromedevtools.github.io/devtools-protocol/.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

INSTALL: Final = "no chromium on the PATH: apt-get install chromium"
SHELL: Final = "chromium-headless-shell"
_WHOLE: Final = ("chromium", "chromium-browser")
_START_S: Final = 60.0
_WAIT_S: Final = 30.0
_KEYS: Final = {"Tab": 9, "Enter": 13, "Escape": 27, "Home": 36, "End": 35, "PageDown": 34, "PageUp": 33}
_KEYS_MORE: Final = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
_FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--force-color-profile=srgb",
    "--hide-scrollbars=false",
    "--proxy-server=direct://",
    "--renderer-process-limit=1",  # a test opens one address after the other
)


class ChromiumError(Exception):
    """Chromium is missing, did not start, or a command of the protocol failed."""


def program(*, shell_first: bool = False) -> str | None:
    """Return the path of Chromium, or of its headless shell; None if neither is installed."""
    names = (SHELL, *_WHOLE) if shell_first else (*_WHOLE, SHELL)
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium(*, shell_first: bool = False) -> Iterator[str]:
    """Run a Chromium with an empty profile for the block; yield the address of its DevTools.

    `shell_first`: the headless shell, if it is installed. Raises ChromiumError.
    """
    path = program(shell_first=shell_first)
    if path is None:
        raise ChromiumError(INSTALL)
    with tempfile.TemporaryDirectory(prefix="berth-chromium-", ignore_cleanup_errors=True) as folder:
        # Chromium's sandbox needs rights that containers lack. This one opens pages of loopback only.
        flags = [*_FLAGS, "--no-sandbox", f"--user-data-dir={folder}"]
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [path, *flags, "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "HOME": folder},
                process_group=0,
            )
        try:
            yield _address(process, Path(folder) / "DevToolsActivePort", log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End Chromium with what it started.

    The group gets the signals, not the process: Debian's command of the headless shell is a shell script that
    waits for the program.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_START_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _address(process: subprocess.Popen[bytes], file: Path, log: Path) -> str:
    """Return the address that Chromium writes into `file` when it listens."""
    ends_s = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < ends_s:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.02)
    raise ChromiumError(f"chromium did not start: {log.read_text(errors='replace')[-2000:]}")


@asynccontextmanager
async def opened(address: str, *, width: int = 1280, height: int = 900) -> AsyncIterator[Page]:
    """Yield a page in a browser context of its own, with a window of this size. `address`: of `chromium`."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, max_msg_size=0, heartbeat=None) as socket,
    ):
        connection = Connection(socket)
        reading = asyncio.create_task(connection.read())
        try:
            context = (await connection.ask("Target.createBrowserContext"))["browserContextId"]
            target = (
                await connection.ask(
                    "Target.createTarget",
                    {"url": "about:blank", "browserContextId": context, "width": width, "height": height},
                )
            )["targetId"]
            attached = await connection.ask("Target.attachToTarget", {"targetId": target, "flatten": True})
            page = Page(connection, attached["sessionId"])
            await page.begin(width, height)
            yield page
            await connection.ask("Target.disposeBrowserContext", {"browserContextId": context})
        finally:
            reading.cancel()
            await asyncio.wait({reading})


class Connection:
    """The DevTools connection of one browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.heard: list[Callable[[Mapping[str, Any]], None]] = []

    async def read(self) -> None:
        """Pass on answers and events until the connection ends."""
        async for message in self._socket:
            value = message.json()
            waiting = self._open.pop(value.get("id", 0), None)
            if waiting is None:
                for told in self.heard:
                    told(value)
            elif not waiting.done():
                waiting.set_result(value)
        for waiting in self._open.values():
            waiting.set_exception(ChromiumError("chromium closed the connection"))

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, session: str = ""
    ) -> dict[str, Any]:
        """Return the result of a command. Raises ChromiumError."""
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        more = {"sessionId": session} if session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params or {}, **more})
        value = await answer
        if "error" in value:
            raise ChromiumError(f"{method}: {value['error'].get('message')}")
        result: dict[str, Any] = value["result"]
        return result


class Page:
    """One page. `problems`: exceptions, errors of the console, refusals of the Content-Security-Policy."""

    def __init__(self, connection: Connection, session: str) -> None:
        self._connection = connection
        self._session = session
        self.problems: list[str] = []
        connection.heard.append(self._hear)

    async def begin(self, width: int, height: int) -> None:
        """Set the size of the window, and begin to hear of problems."""
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            await self.ask(f"{domain}.enable")
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a command for this page. Raises ChromiumError."""
        return await self._connection.ask(method, params, self._session)

    async def open(self, url: str) -> None:
        """Go to an address, and wait for its document."""
        found = await self.ask("Page.navigate", {"url": url})
        if found.get("errorText"):
            raise ChromiumError(f"{url}: {found['errorText']}")
        await self.until("document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is awaited. Raises ChromiumError."""
        found = await self.ask(
            "Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True}
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise ChromiumError(f"{script}: {details.get('exception', {}).get('description', details)}")
        return found["result"].get("value")

    async def until(self, condition: str, seconds: float = _WAIT_S) -> Any:
        """Wait until an expression is true, and return its value. Raises ChromiumError after `seconds`."""
        look = (
            "new Promise((done) => { const look = () => { let found = null;"
            f" try {{ found = {condition}; }} catch {{ /* not there yet */ }}"
            " if (found) done(found); else setTimeout(look, 20); }; look(); })"
        )
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await self.value(look)
                    except ChromiumError:  # The document was replaced.
                        await asyncio.sleep(0.02)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            problems = "; ".join(self.problems)
            raise ChromiumError(
                f"not within {seconds:g} s: {condition}; the page: {shown}; {problems}"
            ) from None

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key, by its name in JavaScript; a character is typed."""
        code = (_KEYS | _KEYS_MORE).get(key, ord(key[0]))
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        await self.ask(
            "Input.dispatchKeyEvent", {"type": "keyDown", **pressed, **({"text": text} if text else {})}
        )
        await self.ask("Input.dispatchKeyEvent", {"type": "keyUp", **pressed})

    async def type(self, text: str) -> None:
        """Type a text into the focused element."""
        await self.ask("Input.insertText", {"text": text})

    async def dark(self, *, on: bool = True) -> None:
        """Set whether the user prefers a dark page."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        await self.ask("Emulation.setEmulatedMedia", {"features": features})

    async def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG file."""
        found = await self.ask("Page.captureScreenshot", {"format": "png"})
        # One write of a small file, of a command that does nothing else meanwhile.
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))

    async def tree(self) -> list[tuple[str, str]]:
        """Return role and name of each node that a screen reader finds, in order."""
        nodes = (await self.ask("Accessibility.getFullAXTree"))["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def _hear(self, event: Mapping[str, Any]) -> None:
        if event.get("sessionId") != self._session:
            return
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description", details["text"])))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.problems.append(str(params["args"]))
