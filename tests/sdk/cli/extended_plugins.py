"""Plugins that the extenders of these tests load by `module:Class`."""

from __future__ import annotations

import time
from typing import Any

from berth_sdk import Plugin, PluginArgsError, Status


class Zone(Plugin):
    """Passes nodes whose names end with the argument `end`."""

    def __init__(self, args: Any, handle: Any) -> None:
        self.end = args.get("end", "")
        if not isinstance(self.end, str):
            raise PluginArgsError("end: must be a string")

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        return Status.success() if node.name.endswith(self.end) else Status.unschedulable(f"not {self.end}")


class Stuck(Plugin):
    """Never answers, and cannot be interrupted."""

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        print("asked", flush=True)
        time.sleep(3600)


class Queue(Plugin):
    """Has no point that an extender has."""

    def pre_enqueue(self, pod: Any) -> None: ...
