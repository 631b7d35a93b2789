"""A plugin that keeps seats as the how-to page has it, and writes down what it is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    LiveReservation,
    ObjectPatch,
    PatchResult,
    PermitResult,
    PreBindResult,
    WaitingPod,
)
from berth_sdk.status import Status

SEAT = "example.com/seat"
CLAIMS = "resource.k8s.io/resourceclaims"


class KeepsSeats(Plugin):
    """A reservation holds a seat until PostBind, the annotation of the pod on its node from then on.

    Arguments: `seats`, the number of seats; `log`, the file that it writes to. Label `after` of a pod: its
    Permit waits for the PostBind of the pod with that name. Label `claim`: PreBind also labels that claim.
    """

    depends_on = DependsOn.OTHER
    needs = (Need.nodes(), Need.pods(annotation_prefixes=(SEAT,)), Need.objects(CLAIMS))

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["log"])
        self._seats = frozenset(range(int(args["seats"])))
        self._lock = Lock()
        self._held: dict[str, int] = {}
        self._post_bound: set[str] = set()
        self._waiting: dict[str, list[WaitingPod]] = {}

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        on_nodes = {
            int(other.annotations[SEAT])
            for node in self.handle.snapshot()
            for other in node.pods
            if SEAT in other.annotations
        }
        with self._lock:
            free = self._seats - on_nodes - set(self._held.values())
            if not free:
                self._note("refuse", pod.name)
                return Status.unschedulable("no seat is free")
            seat = self._held[state.cycle_id] = min(free)
        state.token = str(seat).encode()
        self._note("reserve", pod.name, seat)
        return Status.success()

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        after = pod.labels.get("after", "")
        with self._lock:
            if not after or after in self._post_bound:
                return Status.success()
            self._waiting.setdefault(after, []).append(WaitingPod(pod=pod, cycle_id=state.cycle_id))
        return PermitResult.wait(600)

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        seat = (state.token or b"").decode()
        annotated = {"metadata": {"annotations": {SEAT: seat}}}
        patches = [ObjectPatch(resource="pods", ref=pod.ref, merge_patch=annotated)]
        claim = pod.labels.get("claim", "")
        found = self.handle.objects(CLAIMS).get(claim, pod.namespace) if claim else None
        if found is not None:
            labelled = {"metadata": {"labels": {"seat": seat}}}
            patches.append(ObjectPatch(resource=CLAIMS, ref=found.ref, merge_patch=labelled))
        return PreBindResult(Status.success(), tuple(patches), done_when_applied=True)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("post_bind", pod.name)
        with self._lock:
            self._held.pop(state.cycle_id, None)
            self._post_bound.add(pod.name)
            waiting = self._waiting.pop(pod.name, [])
        for one in waiting:
            self.handle.allow(one)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._note("unreserve", pod.name)
        with self._lock:
            self._held.pop(state.cycle_id, None)

    def reconcile(self, live: Sequence[LiveReservation]) -> None:
        self._note("reconcile", *sorted(one.pod.name for one in live))
        with self._lock:
            self._held = {one.state.cycle_id: int(one.state.token or b"0") for one in live}

    def _note(self, call: str, *what: str | int) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([call, *what]) + "\n")
