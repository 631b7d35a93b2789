"""`Child`: one plugin process that the host started, from its start to its end.

Started without any code between fork and exec, in a process group of its own, with a private folder for its
socket and a pipe as standard input that only the host holds. It says one line on standard output, then
serves. It is stopped through the handle that the start gave, never by a number that was written down.

    launched -line in time-> serving -exits by itself-> ended
        |  no line, or a wrong one       |  stop(): terminate, then kill
        +-----------> ended <------------+
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from berth_sdk.wire.addresses import host_of, is_loopback
from berth_sdk.wire.credential import CREDENTIAL
from berth_sdk.wire.grpc_core import without_setting

from berth_host.attach.children.output import OutputLog, throw_away
from berth_host.errors import HostError

PROTOCOL: Final = "berth/1"
HANDSHAKE_S: Final = 30.0
TERMINATE_S: Final = 5.0
_MAX_HANDSHAKE_BYTES: Final = 16 * 1024
_LAST_WORDS_S: Final = 0.5
_KEYS: Final = ("protocol", "address", "instance_id", "cookie")


class ChildError(HostError):
    """The child could not be started, ended early, or did not say its line."""


class Child:
    """Attributes: address, instance_id (as it said them), credential (what it was told to expect), output
    (its log).
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        folder: Path,
        secret: tuple[str, str],
        title: str,
        plugins: str,
    ) -> None:
        """`secret`: the cookie that its line has to give back, and the credential; `plugins`: their names."""
        self.address = ""
        self.instance_id = ""
        cookie, self.credential = secret
        self.output = OutputLog(plugins)
        self._process = process
        self._folder = folder
        self._cookie = cookie
        self._title = title
        self._readers: list[asyncio.Task[None]] = []
        self._pipes: list[asyncio.BaseTransport] = []
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        # asyncio's own subprocesses count as running until their pipes are closed, and a process that the
        # child left behind may hold those for ever.
        threading.Thread(target=self._wait, args=(loop,), name=f"berth-child-{title}", daemon=True).start()

    @staticmethod
    async def launch(
        command: Sequence[str], title: str, handshake_s: float = HANDSHAKE_S, *, plugins: str = ""
    ) -> Child:
        """Start it and wait for its line. Raises ChildError; nothing is left behind then.

        `title` names it in errors, `plugins` (their names) what it writes; empty: `title`.
        """
        folder = Path(tempfile.mkdtemp(prefix="berth-"))  # 0700
        cookie, credential = secrets.token_hex(16), secrets.token_hex(32)
        environment = without_setting(os.environ) | {
            "BERTH_PLUGIN_ENDPOINT": f"unix://{folder}/plugin.sock",
            "BERTH_PLUGIN_COOKIE": cookie,
            CREDENTIAL: credential,
            "BERTH_HOST_PID": str(os.getpid()),
        }
        try:
            # On the loop's own thread: the child asks to be ended with the thread that started it.
            process = subprocess.Popen(  # noqa: ASYNC220
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,
            )
        except OSError as err:
            shutil.rmtree(folder, ignore_errors=True)
            raise ChildError(f"{title} cannot be started: {err.strerror or err}") from err
        child = Child(process, folder, (cookie, credential), title, plugins or title)
        try:
            await child._greet(handshake_s)
        except BaseException:
            await child.stop(terminate_s=0.5)
            raise
        return child

    @property
    def pid(self) -> int:
        """The process, for people; the child is stopped through `stop` alone."""
        return self._process.pid

    async def ended(self) -> str:
        """Wait for the end of the process; how it ended, with the last line of its log."""
        await self._ended.wait()
        await self._last_words()
        code = self._process.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"{how}: {self.output.last}" if self.output.last else how

    async def stop(self, terminate_s: float = TERMINATE_S) -> None:
        """Close its input, ask it to end, and end it. Harmless when it is gone."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for end in (process.terminate, process.kill):
            if self._ended.is_set():
                break
            end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(terminate_s):
                    await self._ended.wait()
        await self._ended.wait()
        await self._last_words()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for pipe in self._pipes:
            pipe.close()
        await asyncio.sleep(0)  # a transport closes its pipe in the loop's next turn
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _last_words(self) -> None:
        """Read what it wrote before its end. Processes that it left behind may hold the pipe for ever."""
        if self._readers:
            await asyncio.wait(self._readers[:1], timeout=_LAST_WORDS_S)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: no question can come any more
            loop.call_soon_threadsafe(self._ended.set)

    async def _reader(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._pipes.append(transport)
        return reader

    async def _greet(self, handshake_s: float) -> None:
        stderr = await self._reader(self._process.stderr)
        stdout = await self._reader(self._process.stdout)
        loop = asyncio.get_running_loop()
        self._readers.append(loop.create_task(self.output.follow(stderr)))
        line = b""
        try:
            async with asyncio.timeout(handshake_s):
                line = await _first_line(stdout)
                if not line:
                    raise ChildError(f"{self._title} {await self.ended()}")
        except TimeoutError as err:
            raise ChildError(
                f"{self._title} said nothing within {handshake_s:g} s: its first line on standard output"
                " must be the handshake"
            ) from err
        self._readers.append(loop.create_task(throw_away(stdout)))
        self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        shown = line[:200].decode(errors="replace").rstrip()
        try:
            said = json.loads(line)
            if isinstance(said, dict) and (missing := [key for key in _KEYS if key not in said]):
                raise ChildError(f"{self._title} began with {shown!r}, which lacks {', '.join(missing)}")
            protocol, cookie = said["protocol"], said["cookie"]
            self.address, self.instance_id = said["address"], said["instance_id"]
        except (ValueError, TypeError, KeyError) as err:
            raise ChildError(
                f"{self._title} did not begin with the handshake but with {shown!r}:"
                " nothing else may be written to standard output before"
            ) from err
        if protocol != PROTOCOL:
            raise ChildError(
                f"{self._title} speaks {protocol!r} on standard output, the host {PROTOCOL!r}:"
                " install an SDK of the host's release"
            )
        if not isinstance(cookie, str) or not hmac.compare_digest(cookie.encode(), self._cookie.encode()):
            raise ChildError(f"{self._title} did not give its cookie back: the line is not the child's own")
        if not self._is_local(self.address):
            raise ChildError(f"{self._title} listens at {self.address!r}, which is not on this machine")

    def _is_local(self, address: object) -> bool:
        if not isinstance(address, str):
            return False
        return address.startswith("unix:/") or is_loopback(host_of(address))


async def _first_line(stream: asyncio.StreamReader) -> bytes:
    """Up to the first newline; empty if the stream ends first, cut where it is too long to be meant."""
    line = b""
    while b"\n" not in line and len(line) < _MAX_HANDSHAKE_BYTES:
        chunk = await stream.read(1024)
        if not chunk:
            return b""
        line += chunk
    return line.partition(b"\n")[0] or b"\n"
