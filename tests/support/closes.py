"""A plugin that writes down the life of each of its instances, also where it is served."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth_sdk.errors import PluginArgsError
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.status import Status

_NUMBERS = itertools.count(1)


class Closes(Plugin):
    """Writes lines to the file `args["journal"]`. `args["at_close"]`: raise. `args["limit"]` below 1 is
    refused.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        if args.get("limit", 1) < 1:
            raise PluginArgsError("limit must be positive")
        self._number = f"{os.getpid()}.{next(_NUMBERS)}"
        self._note("made")

    def filter(self, state: object, pod: Pod, node: object) -> Status:
        self._note("asked")
        return Status.success()

    def unreserve(self, state: object, pod: Pod, node_name: str) -> None:
        self._note("unreserved")

    def reserve(self, state: object, pod: Pod, node_name: str) -> Status:
        self._note("reserved")
        return Status.success()

    def permit(self, state: object, pod: Pod, node_name: str) -> Status:
        return Status.unschedulable("not yet") if pod.name.startswith("denied") else Status.success()

    def close(self) -> None:
        self._note("closed")
        if self.args.get("at_close") == "raise":
            raise RuntimeError("the shelf is stuck")

    def _note(self, what: str) -> None:
        with Path(self.args["journal"]).open("a") as file:
            file.write(f"{self._number} {what}\n")


class ClosesLater(Closes):
    """Its `close` is a coroutine."""

    async def close(self) -> None:  # type: ignore[override]  # a class has either form
        Closes.close(self)


def lives(journal: Path) -> list[list[str]]:
    """Return what happened to each instance, in the order of their making."""
    found: dict[str, list[str]] = {}
    for line in journal.read_text().splitlines():
        number, what = line.split()
        found.setdefault(number, []).append(what)
    return list(found.values())
