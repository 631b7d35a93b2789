"""A plugin that holds something for some pods only, and writes down every call from Reserve to PostBind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import PatchResult, PermitResult, PreFlightResult
from berth_sdk.status import Status


class HoldsSome(Plugin):
    """Label `holds` of a pod: `yes`, or Reserve answers SKIP. Label `permit`: `wait`, `reject`, `raise`.

    `log` in the arguments is the file that it writes to.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["log"])

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        tentative = state.trial is not None and state.trial.tentative
        self._note("reserve in a trial" if tentative else "reserve", pod)
        return Status.success() if pod.labels.get("holds") == "yes" else Status.skip()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("unreserve", pod)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        self._note("permit", pod)
        what = pod.labels.get("permit", "")
        if what == "raise":
            raise RuntimeError("no answer")
        if what == "wait":
            return PermitResult.wait(60.0)
        return Status.unschedulable("not today") if what == "reject" else Status.success()

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        self._note("pre_bind_pre_flight", pod)
        return PreFlightResult(Status.success())

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]) -> Status:
        self._note("pre_bind", pod)
        return Status.success()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("post_bind", pod)

    def _note(self, call: str, pod: Pod) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([pod.name, call]) + "\n")
