"""The example ZonalVolumes with a journal, for tests that kill it or its host in the middle of a group.

Served by `berth-sdk serve support.group_volumes:GroupVolumes`. Beside the zones, its folder has `journal`
(one line for each call about a pod: what, reservation, pod) and `promised.json` (what the plugin holds now).
Both outlive the process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, PatchResult, PermitResult, PreBindResult
from berth_sdk.status import SUCCESS, Status
from support.examples import example

SIZE = "volume.example.com/size"
PATH = "volume.example.com/path"
ZONE = "topology.kubernetes.io/zone"


class GroupVolumes(example("zonal_volumes/zonal_volumes.py").ZonalVolumes):  # type: ignore[misc]  # loaded by its path
    """Makes volumes for members of groups, and takes part in Permit."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._folder = Path(args["root"])
        self._notes = Lock()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        tentative = state.trial is not None and state.trial.tentative
        self._note("tentative" if tentative else "good", state, pod)
        status: Status = super().reserve(state, pod, node_name)
        self._write_promised()
        return status

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        self._note("permit", state, pod)
        return SUCCESS

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        self._note("pre-bind", state, pod)
        answer: PreBindResult | Status = super().pre_bind(state, pod, node_name, patched)
        return answer

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        super().post_bind(state, pod, node_name)
        self._write_promised()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("unreserve", state, pod)
        super().unreserve(state, pod, node_name)
        self._write_promised()

    def reconcile(self, live: Sequence[LiveReservation]) -> Sequence[LiveReservation]:
        lost: Sequence[LiveReservation] = super().reconcile(live)
        self._write_promised()
        return lost

    def _note(self, what: str, state: CycleState, pod: Pod) -> None:
        with self._notes, (self._folder / "journal").open("a") as file:
            file.write(f"{what} {state.cycle_id} {pod.name}\n")

    def _write_promised(self) -> None:
        """Write the uids of the pods by reservation, whole or not at all."""
        part = self._folder / "promised.part"
        with self._notes:
            part.write_text(json.dumps({key: one.pod.uid for key, one in self._promises.items()}))
            part.rename(self._folder / "promised.json")
