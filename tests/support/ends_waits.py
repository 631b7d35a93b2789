"""Two Permit plugins: one holds pods, the other ends its waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status

ASKS = "asks"
"""The label of a pod whose Permit ends waits; its value is `allow`, `reject` or `own`."""


class HoldsPods(Plugin):
    """Holds every pod that does not have the label."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        """Wait, or let the pod through."""
        return PermitResult(Status.success()) if ASKS in pod.labels else PermitResult.wait(600.0)


class EndsWaits(Plugin):
    """Decides on the pods that wait while Permit of a pod with the label runs, and writes down the outcomes.

    `args`: `folder`, where the file `log` is.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["folder"]) / "log"

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Let every pod through."""
        asked = pod.labels.get(ASKS, "")
        for waiting in self.handle.waiting_pods() if asked else ():
            if asked == "reject":
                outcome = self.handle.reject(waiting, "no room for it")
            else:
                outcome = self.handle.allow(waiting, "" if asked == "own" else "HoldsPods")
            with self._path.open("a") as log:
                log.write(f"{asked} {waiting.pod.name}: {outcome.name}\n")
        return Status.success()
