"""The working folder of one page, in which its blocks run in order, as a reader would run them.

`/tmp/berth` in a block is replaced by this folder, so that pages can run at the same time.
"""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import yaml
from berth_host.cli import configuration
from berth_host.config.errors import ConfigurationError
from berth_host.errors.manifests import ManifestError
from berth_host.errors.plugins import PluginLoadError
from berth_host.model.clock import ManualClock
from berth_host.plugins.registry import load_class
from berth_sim.cluster.server import ApiServer
from berth_sim.manifests.loading import load

from docs.pages import Block, Page

_WRITTEN_AS: Final = "/tmp/berth"
_COMMAND_S: Final = 300.0
_SERVER_STARTS_S: Final = 120.0
_CONFIGURATIONS: Final = ("kubescheduler.config.k8s.io/", "config.berth.io/")
_PARSER: Final = doctest.DocTestParser()
_CHECKER: Final = doctest.OutputChecker()
_FLAGS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_LATE: Final = re.compile(r"^waiting for plugin .*\n", flags=re.MULTILINE)
"""What a command says while a plugin starts, where the machine is busy: only a page about it shows it."""
_ALIVE: Final = re.compile(r"\bserving\b|\bhost\.started\b")


class BlockError(Exception):
    """A block does not do what the page says; the message names page and line."""

    def __init__(self, page: Page, block: Block, problem: str) -> None:
        super().__init__(f"{page.name}:{block.line}: {problem}")


class Workspace:
    """Runs the blocks of one page. `folder` must be empty and have a short path, because it contains
    sockets.
    """

    def __init__(self, page: Page, folder: Path, binaries: Path | None = None) -> None:
        """`binaries`: the folder of the commands; None: that of the Python that runs this."""
        self._page = page
        self._folder = folder
        self._binaries = binaries or Path(sys.executable).parent
        self._names: dict[str, Any] = {"__name__": "__page__"}
        self._servers: list[_Server] = []
        self._run: Mapping[str, Callable[[Block], None]] = {
            "python": self._python,
            "sh": self._sh,
            "console": self._console,
            "yaml": self._yaml,
            "json": self._json,
            "toml": self._nothing,
            "go": self._nothing,
            "typescript": self._nothing,
            "text": self._nothing,
        }

    def run(self, after: Callable[[Block], None] = lambda _: None) -> None:
        """Run all blocks in order; call `after` after each. Raises BlockError."""
        for block in self._page.blocks:
            if block.runs_elsewhere:
                continue
            if "file" in block.directives:
                path = self._folder / block.directives["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._placed(block.text), encoding="utf-8")
                importlib.invalidate_caches()
            self._run[block.language](block)
            after(block)

    def close(self) -> None:
        """End the servers that the page started."""
        for server in reversed(self._servers):
            server.stop()

    # --- one kind each ---------------------------------------------------------------------------

    def _nothing(self, block: Block) -> None:
        """Ignore a picture, a file for another tool, or a program in another language."""

    def _python(self, block: Block) -> None:
        if ">>>" in block.text:
            self._doctest(block)
            return
        # A file is imported by its users; compiling checks that it is Python.
        code = compile(self._placed(block.text), f"{self._page.name}:{block.line}", "exec")
        if "file" in block.directives:
            return
        try:
            exec(code, self._names)
        except Exception as err:
            raise BlockError(self._page, block, f"{type(err).__name__}: {err}") from err

    def _doctest(self, block: Block) -> None:
        text = self._placed(block.text)
        test = _PARSER.get_doctest(text, self._names, self._page.name, self._page.name, block.line)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=_FLAGS, verbose=False)
        runner.run(test, out=said.append, clear_globs=False)
        self._names.update(test.globs)
        if runner.failures:
            raise BlockError(self._page, block, "".join(said))

    def _sh(self, block: Block) -> None:
        script = self._placed(block.text)
        if block.directives.get("run") == "background":
            self._servers.append(_Server(script, self._folder, self._environment))
            return
        self._check_exit(block, *self._shell(script))

    def _console(self, block: Block) -> None:
        for command, expected in _transcript(block.text):
            code, output = self._shell(self._placed(command))
            last = command == list(_transcript(block.text))[-1][0]
            self._check_exit(block, code if last else 0, output)
            got = re.sub(r"[ \t]+$", "", output, flags=re.MULTILINE)
            if not _LATE.search(expected):
                got = _LATE.sub("", got)
            if not _CHECKER.check_output(self._placed(expected), got, _FLAGS):
                raise BlockError(
                    self._page, block, f"$ {command}\nshould print\n{expected}\nbut printed\n{got}"
                )

    def _yaml(self, block: Block) -> None:
        text = self._placed(block.text)
        versions = [str(document.get("apiVersion", "")) for document in yaml.safe_load_all(text)]
        path = self._folder / block.directives.get("file", f"block-{block.line}.yaml")
        path.write_text(text, encoding="utf-8")
        problem = ""
        try:
            if versions[0].startswith(_CONFIGURATIONS):
                configuration.load(str(path), _given(block.directives.get("plugin")))
            else:
                load([str(path)], ApiServer(ManualClock()), str)
        except (ConfigurationError, ManifestError, PluginLoadError) as err:
            problem = str(err)
        if bool(problem) != (block.directives.get("run") == "refused"):
            raise BlockError(self._page, block, problem or "is good, and should be refused")

    def _json(self, block: Block) -> None:
        try:
            json.loads(block.text)
        except ValueError as err:
            raise BlockError(self._page, block, f"not JSON: {err}") from err

    # --- plumbing --------------------------------------------------------------------------------

    @property
    def _environment(self) -> dict[str, str]:
        path = f"{self._binaries}{os.pathsep}{os.environ.get('PATH', '')}"
        # A user's terminal has no CI variable, so commands are not strict by default.
        mine = {name: value for name, value in os.environ.items() if name != "CI"}
        # Some versions of `activate` read OSTYPE, which bash sets and this shell, with -u, misses.
        mine = {"OSTYPE": "linux-gnu"} | mine
        return mine | {"PATH": path, "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}

    def _placed(self, text: str) -> str:
        return text.replace(_WRITTEN_AS, str(self._folder))

    def _shell(self, script: str) -> tuple[int, str]:
        done = subprocess.run(
            ["/bin/sh", "-euc", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        return done.returncode, done.stdout

    def _check_exit(self, block: Block, code: int, output: str) -> None:
        wanted = int(block.directives.get("exit", "0"))
        if code != wanted:
            raise BlockError(self._page, block, f"exit code {code}, not {wanted}:\n{output}")


class _Server:
    """A command that keeps running; `__init__` returns when the command reports that it serves."""

    def __init__(self, script: str, folder: Path, environment: Mapping[str, str]) -> None:
        # `exec` makes the process the server itself, without a shell around it.
        self._process = subprocess.Popen(
            ["/bin/sh", "-euc", f"exec {script}"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._said: list[str] = []
        self._serves = threading.Event()
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        ends_s = time.monotonic() + _SERVER_STARTS_S
        while not self._serves.wait(0.02):
            if self._process.poll() is not None or time.monotonic() > ends_s:
                self.stop()
                raise RuntimeError(f"{script.strip()} does not serve:\n{''.join(self._said)}")

    def stop(self) -> None:
        """End the command, and wait for its end."""
        self._process.terminate()
        self._process.wait(_SERVER_STARTS_S)
        self._reader.join(_SERVER_STARTS_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._said.append(line)
            if _ALIVE.search(line):
                self._serves.set()


def _given(where: str | None) -> Mapping[str, type]:
    """Return the class at `module:Class`, by its name."""
    if where is None:
        return {}
    name = where.rpartition(":")[2]
    return {name: load_class(name, where)}


def _transcript(text: str) -> Iterator[tuple[str, str]]:
    """Yield (command, its output) for each line that begins with `$ `."""
    command: str | None = None
    printed: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            if command is not None:
                yield command, "".join(printed)
            command, printed = line[2:].rstrip("\n"), []
        elif command is not None and not printed and command.endswith("\\"):
            command = f"{command}\n{line.rstrip()}"
        elif command is None:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
        else:
            printed.append(line)
    if command is not None:
        yield command, "".join(printed)
