"""A scheduler as a child process against a real API server: berth or kube-scheduler.

Used by `berth bench versus`, and by the tests and tools of `tests/cluster`. A process is ended by its own id.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from berth_bench.versus import processes
from berth_bench.versus.free_ports import free_port

PATIENCE_S: Final = 180.0
_DEFAULT: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
"""


class SchedulerError(Exception):
    """The process ended, or did not become ready. The text ends with its last output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSetup:
    """The start of a scheduler. `program`: `berth`, or the path of a kube-scheduler.

    `configuration`: a KubeSchedulerConfiguration without clientConnection; `more_documents`: further
    documents of the file, for berth. `python`: that runs berth; "": this process's. `module`: its arguments
    that start berth's command. `bytecode`: the folder that has the compiled modules of a started berth; None:
    where this process's environment says.
    """

    program: str
    kubeconfig: Path
    folder: Path
    configuration: str = _DEFAULT
    client_connection: Mapping[str, str] = field(default_factory=dict)
    more_documents: str = ""
    flags: Sequence[str] = ()
    python: str = ""
    module: Sequence[str] = ("-m", "berth_host")
    bytecode: Path | None = None

    @property
    def is_berth(self) -> bool:
        """True if the program is berth."""
        return self.program == "berth"


class SchedulerProcess:
    """One process. Call `start`, `ready`, then `stop` or `kill`; its output is in `log`."""

    def __init__(self, setup: SchedulerSetup, name: str = "scheduler") -> None:
        self.setup = setup
        self.log = setup.folder / f"{name}.log"
        self.port = free_port()
        self._config = setup.folder / f"{name}.yaml"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; do not wait."""
        self._config.write_text(_configuration(self.setup))
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=processes.environment(of_another=bool(self.setup.python), bytecode=self.setup.bytecode),
            )

    async def ready(self) -> None:
        """Wait until the scheduler reports that it is ready. Raises SchedulerError."""
        url = f"https://127.0.0.1:{self.port}/readyz"
        connector = aiohttp.TCPConnector(ssl=False)
        try:
            async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession(connector=connector) as session:
                while not await _answers_ok(session, url):
                    if self.ended_with is not None:
                        raise SchedulerError(
                            f"the scheduler ended with {self.ended_with}:\n{self.last_lines()}"
                        )
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise SchedulerError(f"not ready within {PATIENCE_S:.0f} s:\n{self.last_lines()}") from None

    async def ask(self, path: str, token: str) -> dict[str, Any]:
        """Return the JSON answer of the secure port to the user of the token. Raises SchedulerError."""
        url = f"https://127.0.0.1:{self.port}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        connector = aiohttp.TCPConnector(ssl=False)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, headers=headers) as session,
                session.get(url) as answer,
            ):
                if answer.status != 200:
                    raise SchedulerError(f"GET {url}: {answer.status} {await answer.text()}")
                found: dict[str, Any] = await answer.json()
                return found
        except aiohttp.ClientError as err:
            raise SchedulerError(f"GET {url}: {err}:\n{self.last_lines()}") from err

    @property
    def pid(self) -> int:
        """The process id; 0 before the start."""
        return 0 if self._process is None else self._process.pid

    @property
    def ended_with(self) -> int | None:
        """The exit code, None while the process runs."""
        return None if self._process is None else self._process.returncode

    def last_lines(self, count: int = 15) -> str:
        """Return the last lines of the output."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-count:])

    async def stop(self) -> int | None:
        """Send SIGTERM and return the exit code; kill the process if it does not end in time."""
        process = self._process
        if process is None:
            return None
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
        return await process.wait()

    async def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    def cpu_s(self) -> float:
        """Return the CPU time so far, in seconds."""
        return processes.cpu_s(self.pid)

    def loop_cpu_s(self) -> float:
        """Return the CPU time of berth's event loop so far, in seconds; 0 for kube-scheduler."""
        return processes.first_thread_cpu_s(self.pid) if self.setup.is_berth else 0.0

    def memory_mb(self, what: str = processes.MOST) -> float:
        """Return the memory in MB: the maximum so far, or with `VmRSS` the current one."""
        return processes.memory_mb(self.pid, what)

    def _command(self) -> list[str]:
        program = [self.setup.python or sys.executable, *self.setup.module, "scheduler"]
        if not self.setup.is_berth:
            program = [self.setup.program]
        port = [f"--secure-port={self.port}", "--bind-address=127.0.0.1"]
        return [*program, f"--config={self._config}", *port, *self.setup.flags]


def _configuration(setup: SchedulerSetup) -> str:
    connection = {"kubeconfig": str(setup.kubeconfig), **setup.client_connection}
    lines = "".join(f"  {key}: {value}\n" for key, value in connection.items())
    text = f"{setup.configuration.rstrip()}\nclientConnection:\n{lines}"
    return f"{text}---\n{setup.more_documents}" if setup.is_berth and setup.more_documents else text


async def _answers_ok(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
