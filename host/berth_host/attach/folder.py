"""`SocketFolder`: the folder in which sidecars create their sockets; one attachment per socket.

The folder is watched, and also listed every `RESCAN_S` seconds, because a notification may be missed. The
handshake of a socket's attachment says which plugins the instance serves. Sockets may also be in subfolders,
one level down. Names that begin with a dot or cannot be printed are skipped. Other users may be able to write
to the folder, so no content of the folder may end the watch. Run by `Attachments`.
Source: kubernetes#64638 and #73371, for why the kubelet's watch of such a folder is not enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from berth_sdk.wire.frames import is_framed

from berth_host.attach.attachment import Attachment
from berth_host.log import get_logger

RESCAN_S: Final = 10.0
MAX_SOCKETS: Final = 512
PAUSE_S: Final = 0.1
"""The shortest time between two scans, in seconds."""
_GATHER_MS: Final = 50
_LOG = get_logger()
Identity: TypeAlias = tuple[str, int, int]
"""Path, device and inode: a new file at the same path is another socket."""


class SocketFolder:
    """The attachments of a folder.

    `problem`: why the folder cannot be read, empty if it can. `attach`: creates and starts the attachment to
    an endpoint.
    """

    def __init__(self, path: Path, attach: Callable[[str], Attachment]) -> None:
        self.path = path
        self.problem = ""
        self._attach = attach
        self._members: dict[Identity, Attachment] = {}
        self._task: asyncio.Task[None] | None = None
        self._noticing: asyncio.Task[None] | None = None
        self._noticed = asyncio.Event()
        self._watched: tuple[int, int] | None = None

    @property
    def members(self) -> list[Attachment]:
        """The attachments: one per existing socket, and per removed socket whose connection still exists."""
        return list(self._members.values())

    async def start(self) -> None:
        """Scan once and keep watching. The watch starts before the scan, so that no change is missed."""
        await self._follow()
        await self.scan()
        self._task = asyncio.get_running_loop().create_task(self._watch(), name=f"watch-{self.path}")

    async def stop(self) -> None:
        """Stop watching. The caller stops the attachments."""
        tasks = [task for task in (self._task, self._noticing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def scan(self) -> None:
        """Attach to new sockets; stop the attachments of removed sockets without a connection."""
        found = await self._sockets()
        for identity in [one for one in found if one not in self._members]:
            self._members[identity] = self._attach(f"unix://{identity[0]}")
        for identity in [one for one in self._members if one not in found]:
            if self._members[identity].standing is None:
                await self._members.pop(identity).stop()

    async def _sockets(self) -> list[Identity]:
        # In a thread, because a folder may have tens of thousands of files.
        found, problem = await asyncio.to_thread(sockets_in, self.path)
        if len(found) > MAX_SOCKETS:
            # Each socket costs a connection. Known sockets keep theirs, however many are added.
            found.sort(key=lambda identity: identity not in self._members)
            count = f"{self.path}: {len(found)} sockets are there, and only {MAX_SOCKETS} are used"
            more = f"{count}: remove those of ended plugins"
            problem = "; ".join(filter(None, (problem, more)))
            found = found[:MAX_SOCKETS]
        if problem != self.problem:
            self.problem = problem
            if problem:
                _LOG.warning("folder.unreadable", folder=str(self.path), error=problem)
            else:
                _LOG.info("folder.readable", folder=str(self.path))
        return found

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESCAN_S):
                    await self._noticed.wait()
            self._noticed.clear()
            await self._follow()
            await self.scan()
            await asyncio.sleep(PAUSE_S)

    async def _follow(self) -> None:
        """Watch the folder that exists at the path now.

        The same watch continues from scan to scan, so that changes between two scans are noticed.
        """
        now = _identity(self.path)
        if self._noticing is not None:
            if not self._noticing.done() and now == self._watched:
                return
            self._noticing.cancel()
            await asyncio.gather(self._noticing, return_exceptions=True)
        self._watched = now
        self._noticing = asyncio.get_running_loop().create_task(self._notice(), name=f"notice-{self.path}")
        await asyncio.sleep(0)  # The watch starts in the first turn of its task.

    async def _notice(self) -> None:
        """Set `_noticed` on changes; return when the folder cannot be watched, and only rescans remain."""
        # Not at the top: only a host with a folder of sockets watches one.
        import watchfiles

        try:
            async for _ in watchfiles.awatch(
                self.path, watch_filter=None, step=_GATHER_MS, ignore_permission_denied=True
            ):
                self._noticed.set()
        except OSError as err:
            _LOG.debug("folder.unwatched", folder=str(self.path), error=str(err))
        except Exception as err:  # noqa: BLE001
            # The watcher raises errors of its own for a name that is not text, at any depth.
            _LOG.debug("folder.unwatched", folder=str(self.path), error=repr(err))


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return a value that identifies the folder at the path; None if there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sockets_in(folder: Path) -> tuple[list[Identity], str]:
    """Return the sockets of the folder in the order of their names, and the problems as one text.

    A subfolder that cannot be read is a problem, and the others are still read.
    """
    problems: dict[str, None] = {}
    found = [
        (str(path), status.st_dev, status.st_ino)
        for path, status in _entries(folder, problems)
        if stat.S_ISSOCK(status.st_mode) and not is_framed(path)
    ]
    return found, "; ".join(problems)


def _entries(folder: Path, problems: dict[str, None]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the entries of the folder and of its subfolders with usable names. Links are not followed."""
    for path, status in _named(folder, problems):
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _named(path, problems)


def _named(folder: Path, problems: dict[str, None]) -> list[tuple[Path, os.stat_result]]:
    """Return the entries of one folder with usable names, without those that were removed meanwhile.

    Adds each problem to `problems` once, even if every entry of the folder has it.
    """
    found = []
    try:
        for path in sorted(path for path in folder.iterdir() if _is_usable(path.name)):
            with contextlib.suppress(FileNotFoundError):
                found.append((path, path.lstat()))
    except OSError as err:
        # With the folder's permissions `r--` the names can be read, but lstat fails.
        problems[f"{folder}: {err.strerror}"] = None
    return found


def _is_usable(name: str) -> bool:
    """Return False for hidden names and for names with characters that cannot be printed."""
    return not name.startswith(".") and name.isprintable()
