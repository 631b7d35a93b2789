"""A plugin whose Reserve may answer PreBind at once, and which writes down what it is asked of all that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import (
    ObjectPatch,
    PatchOutcome,
    PatchResult,
    PreBindResult,
    PreFlightResult,
    ReserveResult,
)
from berth_sdk.status import Status

NEVER = "1000000"
"""A resource version that no object has."""


class Early(Plugin):
    """`says` on a pod names the answer to the first round of PreBind, `early` has Reserve give it.

    `log` in the arguments is the file that it writes to.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["log"])
        self._asked: set[str] = set()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult | Status:
        if "early" not in pod.labels:
            return Status.success()
        flight = PreFlightResult(Status.skip()) if says(pod) == "skips" else None
        return ReserveResult(Status.success(), first_answer(pod), flight)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("unreserve", pod)

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        first = state.cycle_id not in self._asked and "early" not in pod.labels
        self._asked.add(state.cycle_id)
        self._note("pre_bind", pod, *(item.outcome.name for item in patched))
        if first:
            return first_answer(pod)
        if says(pod) == "gives up":
            return Status.unschedulable("gave up")
        failed = [item for item in patched if item.outcome is not PatchOutcome.APPLIED]
        if failed and says(pod) == "tries again":
            return PreBindResult(Status.success(), (marked(pod),), done_when_applied=True)
        return Status.success()

    def _note(self, *what: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([part.name if isinstance(part, Pod) else part for part in what]) + "\n")


def marked(pod: Pod, *, resource: str = "pods", version: str = "") -> ObjectPatch:
    """Return an annotation on the pod."""
    change = {"metadata": {"annotations": {"early/mark": "yes"}}}
    return ObjectPatch(resource=resource, ref=pod.ref, merge_patch=change, expected_resource_version=version)


def first_answer(pod: Pod) -> PreBindResult:
    """Return the wish of the pod's label."""
    success = Status.success()
    answers = {
        "is done": PreBindResult(success, (marked(pod),), done_when_applied=True),
        "asks again": PreBindResult(success, (marked(pod),)),
        "waits": PreBindResult(success, ask_again_after_s=1.5),
        "has nothing to do": PreBindResult(success),
        "gives up": PreBindResult(success, (marked(pod, version=NEVER),), done_when_applied=True),
        "tries again": PreBindResult(success, (marked(pod, version=NEVER),), done_when_applied=True),
        "rejects": PreBindResult(Status.unschedulable("no disk")),
        "breaks": PreBindResult(Status.error("the disk is on fire")),
        "oversteps": PreBindResult(success, (marked(pod, resource="persistentvolumes"),)),
        "too many": PreBindResult(success, (marked(pod),) * 65),
        "skips": PreBindResult(success, (marked(pod),), done_when_applied=True),
    }
    return answers[says(pod)]


def says(pod: Pod) -> str:
    """Return the label, in words."""
    return pod.labels["says"].replace("-", " ")
