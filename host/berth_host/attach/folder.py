"""`SocketFolder`: the folder in which sidecars put their sockets, one attachment for each socket found.

Watched, and looked through every `RESCAN_S` seconds, as a notification may be missed. A socket proves
nothing: its attachment shakes hands, and the instance says which plugins it serves. Names that begin with a
dot, or cannot be printed, are passed over; sockets may also lie in folders of their own, one level down. What
lies there is anybody's who may write to it: nothing of it ends the watch. Run by `Attachments`.
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
"""Between two looks, however much changes."""
_GATHER_MS: Final = 50
_LOG = get_logger()
Identity: TypeAlias = tuple[str, int, int]
"""Path, device and inode: another process that takes over the path is another socket."""


class SocketFolder:
    """`problem`: why the folder cannot be read; empty: it can. `attach`: makes and starts the attachment to
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
        """One for each socket that is there, or that is gone while its connection lives."""
        return list(self._members.values())

    async def start(self) -> None:
        """Look once, and keep watching. The watch begins before the look, so that nothing falls between."""
        await self._follow()
        await self.scan()
        self._task = asyncio.get_running_loop().create_task(self._watch(), name=f"watch-{self.path}")

    async def stop(self) -> None:
        """Watch no more; the attachments are the caller's to stop."""
        tasks = [task for task in (self._task, self._noticing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def scan(self) -> None:
        """Attach to new sockets, and let go of those that are gone and whose connection is gone as well."""
        found = await self._sockets()
        for identity in [one for one in found if one not in self._members]:
            self._members[identity] = self._attach(f"unix://{identity[0]}")
        for identity in [one for one in self._members if one not in found]:
            if self._members[identity].standing is None:
                await self._members.pop(identity).stop()

    async def _sockets(self) -> list[Identity]:
        # In a thread: a folder with tens of thousands of files must not hold the loop.
        found, problem = await asyncio.to_thread(sockets_in, self.path)
        if len(found) > MAX_SOCKETS:
            # Each costs a connection. Those that are known stay, whatever is put beside them.
            found.sort(key=lambda identity: identity not in self._members)
            count = f"{self.path}: {len(found)} sockets lie there, and {MAX_SOCKETS} are looked at"
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
        """See to it that the folder which is there now is watched. One watch goes on from look to look: what
        comes between two looks is noticed as well.
        """
        now = _identity(self.path)
        if self._noticing is not None:
            if not self._noticing.done() and now == self._watched:
                return
            self._noticing.cancel()
            await asyncio.gather(self._noticing, return_exceptions=True)
        self._watched = now
        self._noticing = asyncio.get_running_loop().create_task(self._notice(), name=f"notice-{self.path}")
        await asyncio.sleep(0)  # the watch begins with the first turn of its task

    async def _notice(self) -> None:
        """Until the folder cannot be watched: then rescans alone find what changes."""
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
            # The watcher fails in its own ways over a name that is no text, at any depth.
            _LOG.debug("folder.unwatched", folder=str(self.path), error=repr(err))


def _identity(folder: Path) -> tuple[int, int] | None:
    """Differs between a folder and its successor at the same path; None: it is not there."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sockets_in(folder: Path) -> tuple[list[Identity], str]:
    """The sockets at which instances may be, in the order of their names, and what could not be looked at
    (empty: nothing). A folder in it that cannot be read keeps nobody from finding the others.
    """
    problems: dict[str, None] = {}
    found = [
        (str(path), status.st_dev, status.st_ino)
        for path, status in _entries(folder, problems)
        if stat.S_ISSOCK(status.st_mode) and not is_framed(path)
    ]
    return found, "; ".join(problems)


def _entries(folder: Path, problems: dict[str, None]) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything in the folder and one level down that has a usable name. Links are not followed."""
    for path, status in _named(folder, problems):
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _named(path, problems)


def _named(folder: Path, problems: dict[str, None]) -> list[tuple[Path, os.stat_result]]:
    """What went away meanwhile is left out. `problems`: each once, though every name in a folder has it."""
    found = []
    try:
        for path in sorted(path for path in folder.iterdir() if _is_usable(path.name)):
            with contextlib.suppress(FileNotFoundError):
                found.append((path, path.lstat()))
    except OSError as err:
        # Also where names may be read and nothing behind them (r--): what is wrong is the folder.
        problems[f"{folder}: {err.strerror}"] = None
    return found


def _is_usable(name: str) -> bool:
    """Names that are no text, or that would play tricks with a terminal, are nobody's socket."""
    return not name.startswith(".") and name.isprintable()
