"""The plugin `Probe` of the recordings: at every point it does what an annotation of the pod says.

`probe.example.com/<extensionPoint>`: `unschedulable:TEXT`, `unresolvable:TEXT`, `error:TEXT`, `pending:TEXT`,
`skip`; at `permit` also `wait:DURATION`, `allow-later` and `reject-later:TEXT`, at `score` also `toobig`.
Anything else, or nothing, is success; without an annotation `bind` and the preflight of PreBind answer SKIP.
It registers no events, so that every change may requeue its pods. Enabled by `tests/cluster`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    PatchResult,
    PermitResult,
    PreBindResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, NodeView

DECIDES_AFTER_S: Final = 0.5
_PREFIX: Final = "probe.example.com/"
_TOO_BIG: Final = 101


class Probe(Plugin):
    """Every extension point but QueueSort and PostFilter."""

    depends_on: DependsOn | None = DependsOn.OTHER  # annotations are no wishes: share nothing

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        return told(pod.pod, "preEnqueue")

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return told(pod, "preFilter")

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return told(pod, "filter")

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return told(pod, "preScore")

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int | Status:
        if annotation(pod, "score") == "toobig":
            return _TOO_BIG
        status = told(pod, "score")
        return 0 if status.is_success else status

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return told(pod, "reserve")

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        word, _, text = annotation(pod, "permit").partition(":")
        if word == "wait":
            return PermitResult.wait(float(text.removesuffix("s")))
        if word in ("allow-later", "reject-later"):
            timer = threading.Timer(DECIDES_AFTER_S, self._decide, (pod.uid, word == "allow-later", text))
            timer.daemon = True
            timer.start()
            return PermitResult.wait()
        return told(pod, "permit")

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        return PreFlightResult(Status.success() if annotation(pod, "preBind") else Status.skip())

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        return PreBindResult(told(pod, "preBind"))

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        return BindResult(told(pod, "bind") if annotation(pod, "bind") else Status.skip())

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None

    def _decide(self, uid: str, allow: bool, text: str) -> None:
        for waiting in self.handle.waiting_pods(only_mine=True):
            if waiting.pod.uid == uid and allow:
                self.handle.allow(waiting)
            elif waiting.pod.uid == uid:
                self.handle.reject(waiting, text)


def annotation(pod: Pod, point: str) -> str:
    """Return the pod's word on one point, spelled as in the configuration."""
    return pod.annotations.get(f"{_PREFIX}{point}", "")


def told(pod: Pod, point: str) -> Status:
    """Return the status that the pod asks for at one point."""
    word, _, text = annotation(pod, point).partition(":")
    match word:
        case "unschedulable":
            return Status.unschedulable(text)
        case "unresolvable":
            return Status.unresolvable(text)
        case "error":
            return Status.error(text)
        case "pending":
            return Status.pending(text)
        case "skip":
            return Status.skip()
        case _:
            return Status.success()
