"""A plugin with an argument that it may refuse."""

from __future__ import annotations

from typing import Any

from berth_sdk.errors import PluginArgsError
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status

REFUSED = "limit must be positive"


class Limits(Plugin):
    """Takes the first `limit` pods that it is asked about, by name. A limit below 1 is refused, and one above
    1000 breaks the constructor.
    """

    def __init__(self, args: Any, handle: Handle) -> None:
        self.limit = int(args.get("limit", 1))
        self.taken: set[str] = set()
        if self.limit < 1:
            raise PluginArgsError(REFUSED)
        if self.limit > 1000:
            raise ConnectionError("no such shelf")

    def filter(self, state: object, pod: Pod, node: Node) -> Status:
        if pod.name not in self.taken and len(self.taken) >= self.limit:
            return Status.unschedulable(f"{self.limit} taken")
        self.taken.add(pod.name)
        return Status.success()
