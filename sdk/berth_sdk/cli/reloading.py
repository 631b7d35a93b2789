"""`berth-sdk serve --reload`: start the server anew when a file of the plugins changes.

The server runs in a child process, so a change takes effect in every module, and an error in the new text
ends the child alone: the next change starts another one. The host sees an instance that ends and one that
begins.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from berth_sdk.cli.loading import GROUP

FLAG: Final = "--reload"
_LOOK_S: Final = 0.3
_GRACE_S: Final = 10.0


def serve_reloading(words: Sequence[str], names: Iterable[str]) -> int:
    """Serve until a signal ends this process. `words`: the command line, with FLAG. Returns the exit code."""
    command = [sys.executable, "-m", "berth_sdk", *without_flag(words)]
    names = tuple(names)
    folders = watched(names)
    if not folders:
        print(f"berth-sdk serve: {FLAG} finds no file to watch: {not_found(names)}", file=sys.stderr)
        return 2
    stops: SimpleQueue[int] = SimpleQueue()  # a handler may put to it at any moment
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The child has a session of its own: it would outlive a terminal that closes. `nohup` ignores SIGHUP.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: stops.put(number))
    while True:
        seen = stamps(folders)
        child = subprocess.Popen(command, start_new_session=True)
        ended = False
        while True:
            try:
                stops.get(timeout=_LOOK_S)
                return _end(child)
            except Empty:
                pass
            if not ended and child.poll() is not None:
                ended = True
                print(
                    f"berth-sdk serve: ended with {child.returncode}; waiting for a change", file=sys.stderr
                )
            now = stamps(folders)
            if now != seen:
                changed = sorted(path for path in {*now, *seen} if now.get(path) != seen.get(path))
                print(f"berth-sdk serve: {changed[0]} has changed: starting again", file=sys.stderr)
                _end(child)
                break


def without_flag(words: Iterable[str]) -> list[str]:
    """Return the command line of the child: without FLAG, also where it is shortened, as argparse allows."""
    return [word for word in words if not (len(word) > len("--") and FLAG.startswith(word))]


def watched(names: Iterable[str]) -> set[Path]:
    """Return the files and folders that hold the modules of these plugins; none of them is imported."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    installed = {entry.name: entry.module for entry in entry_points(group=GROUP)}
    found: set[Path] = set()
    for name in names:
        module = name.partition(":")[0] if ":" in name else installed.get(name, "")
        try:
            spec = importlib.util.find_spec(module.partition(".")[0]) if module else None
        except (ImportError, ValueError):
            spec = None
        if spec is not None and spec.submodule_search_locations:
            found.update(map(Path, spec.submodule_search_locations))
        elif spec is not None and spec.origin and Path(spec.origin).is_file():
            found.add(Path(spec.origin).absolute())
    return found


def not_found(names: Iterable[str]) -> str:
    """Return which module of each of these plugins is not found, and what to do."""
    known = {entry.name: entry.module for entry in entry_points(group=GROUP)}
    problems = []
    for name in names:
        module = name.partition(":")[0] if ":" in name else known.get(name, "")
        if module:
            top = module.partition(".")[0]
            problems.append(
                f"there is no module {top} in {Path.cwd()}, on PYTHONPATH or installed: start the command in"
                f" the folder of {top}, or put that folder on PYTHONPATH"
            )
        else:
            problems.append(f"no installed plugin is named {name}: to name a class, write module:Class")
    return "; ".join(problems)


def stamps(folders: Iterable[Path]) -> Mapping[str, tuple[int, int]]:
    """Return time and size of each .py file."""
    found: dict[str, tuple[int, int]] = {}
    for top in folders:
        for path in [top] if top.is_file() else top.rglob("*.py"):
            try:
                stat = path.stat()
            except OSError:
                continue  # removed since it was listed
            found[os.fspath(path)] = (stat.st_mtime_ns, stat.st_size)
    return found


def _end(child: subprocess.Popen[bytes]) -> int:
    """End the child as a host would, and return its exit code."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()
