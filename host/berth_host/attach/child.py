"""`Child`: one plugin process that the host launches, from its start to its end; `OutputLog`: its output.

The process starts without Python code between fork and exec. It has its own process group, a private folder
for its socket, and a pipe as standard input that only the host holds. It writes one line to standard output,
then serves. It is stopped through its `Popen` object, never by a stored process id.

    launched -handshake line in time-> serving -exits by itself-> ended
        |  no line, or a wrong one       |  stop(): terminate, then kill
        +-----------> ended <------------+

Standard error is the child's log. Its last lines are kept, to explain an early end. At most LINES_PER_S lines
a second go to the host's log; the number of dropped lines is logged at the end of that second, or of the
child. Records of berth-sdk's log become lines. Standard output is read for one line, then discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from berth_sdk.clocks import monotonic_s
from berth_sdk.json.bounded import read_bounded_json
from berth_sdk.wire.addresses import endpoint_problem, is_local
from berth_sdk.wire.credential import CREDENTIAL
from berth_sdk.wire.grpc_core import without_setting

from berth_host.errors import HostError
from berth_host.log import get_logger
from berth_host.log.hidden import forget, hide
from berth_host.rpc.served.statuses import plain

KEPT_LINES: Final = 200
MAX_LINE_BYTES: Final = 64 * 1024
"""The longest line, in bytes. A record of berth-sdk's log is one line and may contain a traceback."""
LINES_PER_S: Final = 50
WINDOW_S: Final = 1.0
_CHUNK_BYTES: Final = 64 * 1024
_MAX_SHOWN: Final = 4096
_OF_BERTH_SDK: Final = frozenset({"timestamp", "level", "logger", "event"})
_QUIET: Final = frozenset({"debug", "info"})
_LOG = get_logger()
Later: TypeAlias = Callable[[float, Callable[[], None]], object]


def _on_the_loop(delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, call)


class OutputLog:
    """The standard error of one child.

    `lines`: its last lines. `dropped`: the number of lines that were not logged.
    """

    def __init__(
        self, plugins: str, clock: Callable[[], float] = monotonic_s, later: Later = _on_the_loop
    ) -> None:
        """Create the log. `clock`: returns monotonic seconds. `later`: calls back after some seconds."""
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.dropped = 0
        self._plugins = plugins
        self._clock = clock
        self._later = later
        self._window_s = 0.0
        self._in_window = 0
        self._dropped_in_window = 0

    async def follow(self, stream: asyncio.StreamReader) -> None:
        """Add every line of the stream until it ends; then log how many lines were dropped."""
        try:
            await read_lines(stream, self.add)
        finally:
            self.report_dropped()

    def add(self, line: bytes) -> None:
        """Add one line, cut to 64 KiB; a record of berth-sdk's log may become several lines."""
        text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
        if not text:
            return
        now_s = self._clock()
        if now_s - self._window_s >= WINDOW_S:
            self.report_dropped()
            self._window_s, self._in_window = now_s, 0
        shown, fields = _shown(text)
        if fields.get("plugin_level") not in _QUIET:
            self.lines.append(_reason(shown))
        # A traceback is logged whole or not at all.
        if self._in_window and self._in_window + len(shown) > LINES_PER_S:
            if not self._dropped_in_window:
                self._later(self._window_s + WINDOW_S - now_s, self.report_dropped)
            self.dropped += len(shown)
            self._dropped_in_window += len(shown)
            return
        self._in_window += len(shown)
        for one in shown:
            _LOG.info("plugin.logged", plugin=self._plugins, line=one, **fields)

    def report_dropped(self) -> None:
        """Log how many lines were dropped since the last such report, if any."""
        if self._dropped_in_window:
            _LOG.warning("plugin.log_dropped", plugin=self._plugins, lines=self._dropped_in_window)
            self._dropped_in_window = 0

    @property
    def last(self) -> str:
        """The last line that may explain an end, without berth-sdk's info and debug lines; empty for none."""
        return self.lines[-1] if self.lines else ""


def _shown(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the lines to log and their extra fields.

    A record of berth-sdk's log becomes its event and the lines of its traceback, with its level as a field.
    Any other line stays as it is.
    """
    record = _record(text)
    if record is None:
        return [plain(text)[:_MAX_SHOWN]], {}
    said = f"{record['event']}\n{record.get('exception') or ''}"
    lines = [plain(line)[:_MAX_SHOWN] for line in said.splitlines() if line.strip()]
    return lines or [plain(text)[:_MAX_SHOWN]], {"plugin_level": str(record["level"])}


def _record(text: str) -> dict[str, Any] | None:
    """Return the parsed record of berth-sdk's log; None for any other line, such as other JSON."""
    if not text.startswith("{"):
        return None
    try:
        parsed = read_bounded_json(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) and parsed.keys() >= _OF_BERTH_SDK else None


def _reason(lines: list[str]) -> str:
    """Return the event, followed by the last line of its traceback unless the event contains that."""
    first, last = lines[0], lines[-1]
    return first if last in first else f"{first}: {last}"


async def read_lines(stream: asyncio.StreamReader, add: Callable[[bytes], None]) -> None:
    """Call `add` for every line of the stream until it ends; longer lines come in pieces."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            add(line)
        while len(rest) > MAX_LINE_BYTES:
            add(rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        # A child that floods the pipe must not keep the loop from its other tasks.
        await asyncio.sleep(0)
    add(rest)


async def throw_away(stream: asyncio.StreamReader) -> None:
    """Read and discard the stream to its end, so that the writer never blocks."""
    await read_lines(stream, _ignore)


def _ignore(_line: bytes) -> None:
    return None


PROTOCOL: Final = "berth/1"
HANDSHAKE_S: Final = 30.0
TERMINATE_S: Final = 8.0
"""Longer than what `berth-sdk serve` takes at most: its grace of 5 s, 1 s for `close`, and 1 s for coroutines
that do not end.
"""
_MAX_HANDSHAKE_BYTES: Final = 16 * 1024
_LAST_WORDS_S: Final = 0.5
_KEYS: Final = ("protocol", "address", "instance_id", "cookie")


class ChildError(HostError):
    """The child could not be started, ended early, or did not write its handshake line."""


def _place(title: str) -> tuple[Path, str]:
    """Make the private folder of a child's socket; return it with the endpoint. Raises ChildError."""
    folder = Path(tempfile.mkdtemp(prefix="berth-")).absolute()  # 0700
    endpoint = f"unix://{folder}/plugin.sock"
    if problem := endpoint_problem(endpoint):
        folder.rmdir()
        raise ChildError(
            f"{title} cannot be started: its endpoint would be {endpoint}: {problem}: set TMPDIR to another"
            " folder"
        )
    return folder, endpoint


class Child:
    """A launched plugin process.

    Attributes: address and instance_id (from its handshake line), credential (that the process expects),
    output (its log).
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        folder: Path,
        secret: tuple[str, str],
        title: str,
        plugins: str,
    ) -> None:
        """Watch a process that was started.

        `secret`: the cookie that its handshake line must contain, and the credential. `plugins`: the names of
        its plugins.
        """
        self.address = ""
        self.instance_id = ""
        cookie, self.credential = secret
        hide(secret)
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
        # child started may hold these pipes forever.
        threading.Thread(target=self._wait, args=(loop,), name=f"berth-child-{title}", daemon=True).start()

    @staticmethod
    async def launch(
        command: Sequence[str], title: str, handshake_s: float = HANDSHAKE_S, *, plugins: str = ""
    ) -> Child:
        """Start the process and wait for its handshake line. Raises ChildError, after cleaning up.

        `title`: its name in errors. `plugins`: the plugins' names, for its log lines; empty for `title`.
        """
        folder, endpoint = _place(title)
        cookie, credential = secrets.token_hex(16), secrets.token_hex(32)
        environment = without_setting(os.environ) | {
            "BERTH_PLUGIN_ENDPOINT": endpoint,
            "BERTH_PLUGIN_COOKIE": cookie,
            CREDENTIAL: credential,
            "BERTH_HOST_PID": str(os.getpid()),
        }
        try:
            # On the loop's own thread: the child asks the kernel to end it with the thread that started it.
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
        """The process id, for logs; only `stop` stops the child."""
        return self._process.pid

    async def ended(self) -> str:
        """Wait for the end of the process; return how it ended, with the last line of its log."""
        await self._ended.wait()
        await self._last_words()
        code = self._process.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        return f"{how}: {self.output.last}" if self.output.last else how

    async def stop(self, terminate_s: float = TERMINATE_S) -> None:
        """Close its standard input, terminate it, then kill it. Has no effect on a process that has ended.

        `terminate_s`: seconds to wait after each signal.
        """
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
        await asyncio.sleep(0)  # A transport closes its pipe in the loop's next turn.
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        forget((self._cookie, self.credential))

    async def _last_words(self) -> None:
        """Read the rest of its output, for a bounded time: its own children may hold the pipe forever."""
        if self._readers:
            await asyncio.wait(self._readers[:1], timeout=_LAST_WORDS_S)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed, so no task waits for the end.
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
                f"{self._title} wrote nothing within {handshake_s:g} s: its first line on standard output"
                " must be the handshake"
            ) from err
        self._readers.append(loop.create_task(throw_away(stdout)))
        self._read_line(line)

    def _read_line(self, line: bytes) -> None:
        shown = plain(line.decode(errors="replace").rstrip())[:200]
        try:
            said = read_bounded_json(line)
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
                f"{self._title} uses {plain(repr(protocol))} on standard output, the host {PROTOCOL!r}:"
                " install an SDK of the host's release"
            )
        if not isinstance(cookie, str) or not hmac.compare_digest(cookie.encode(), self._cookie.encode()):
            raise ChildError(f"{self._title} did not return its cookie: another process wrote the line")
        self._check_address(self.address)

    def _check_address(self, address: object) -> None:
        problem = endpoint_problem(address) if isinstance(address, str) else "write it as a text"
        shown = plain(repr(address))
        if problem:
            raise ChildError(f"{self._title} says that it listens at {shown}: {problem}")
        if not is_local(self.address):
            raise ChildError(f"{self._title} listens at {shown}, which is not on this machine")


async def _first_line(stream: asyncio.StreamReader) -> bytes:
    """Read up to the first newline; return nothing if the stream ends first. A too long line is cut."""
    line = b""
    while b"\n" not in line and len(line) < _MAX_HANDSHAKE_BYTES:
        chunk = await stream.read(1024)
        if not chunk:
            return b""
        line += chunk
    return line.partition(b"\n")[0] or b"\n"
