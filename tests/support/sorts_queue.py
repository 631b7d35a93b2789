"""A QueueSort plugin whose keys change while pods wait."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Status

TURNS = "turns"
"""The label of a pod whose Reserve turns the order round."""


class SortsQueue(Plugin):
    """Orders pods by the label `rank`, up or down; a pod with `rank: broken` makes it raise.

    `args`: `folder`, where Reserve writes down the names in the order of the attempts.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["folder"]) / "log"
        self._down = False

    def sort_key(self, pod: QueuedPod) -> bytes:
        """The rank, in four digits."""
        rank = int(pod.pod.labels["rank"])
        return f"{9999 - rank if self._down else rank:04}".encode()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Note the pod, and turn the order round where its label says so."""
        with self._path.open("a") as log:
            log.write(f"{pod.name}\n")
        if TURNS in pod.labels:
            self._down = not self._down
            self.handle.invalidate_sort_keys()
        return Status.success()
