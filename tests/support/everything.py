"""One plugin class at every extension point, which writes down what it was asked and what it answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    NodeRejections,
    ObjectPatch,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.sort_keys import string
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class Everything(Plugin):
    """Does what the pod's labels say; `log` in its arguments is the file that it writes to."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())
    normalization = ScoreNormalization.RPC
    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add", "update.labels"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._path = Path(args["log"])

    def note(self, point: str, pod: Pod, detail: object = "") -> None:
        """One line of the log."""
        with self._path.open("a") as file:
            file.write(json.dumps([point, pod.name, detail]) + "\n")

    def wish(self, pod: Pod, point: str) -> str:
        """Return the wish of the pod at a point."""
        return pod.labels.get(f"everything/{point}", "")

    def verdict(self, point: str, pod: Pod, *, on_success: Status | None = None) -> Status:
        """Return the status that the pod wants."""
        wish = self.wish(pod, point)
        made = {
            "": on_success or Status.success(),
            "unschedulable": Status.unschedulable(f"{point} says no"),
            "unresolvable": Status.unresolvable(f"{point} says never"),
            "error": Status.error(f"{point} is broken"),
            "skip": Status.skip(),
        }
        return made[wish]

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        self.note("pre_enqueue", pod.pod, pod.attempts)
        return self.verdict("pre_enqueue", pod.pod)

    def sort_key(self, pod: QueuedPod) -> bytes:
        self.note("sort_key", pod.pod)
        return string(pod.pod.name)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        self.note("queueing_hint", pod, [event.resource, event.action])
        return self.wish(pod, "hint") != "skip"

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult | Status:
        self.note("pre_filter", pod, sorted(nodes.names))
        state.write("seen", len(nodes))
        status = self.verdict("pre_filter", pod)
        if status.is_success and "everything/only" in pod.labels:
            return PreFilterResult(eligible=frozenset({pod.labels["everything/only"]}))
        return status

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        detail = [[node.name, node.pod_count, sorted(other.name for other in node.pods)] for node in nodes]
        self.note("filter", pod, [state.read("seen"), sorted(detail)])
        bad = nodes.has_label("bad", "yes")
        if self.wish(pod, "filter"):
            return self.verdict("filter", pod)
        return Verdicts.reject_where(bad, Status.unschedulable("bad node"))

    def post_filter(
        self, state: CycleState, pod: Pod, rejections: NodeRejections
    ) -> PostFilterResult | Status:
        names = sorted(self.handle.snapshot().names)
        self.note("post_filter", pod, [[name, str(rejections.status(name))] for name in names])
        return Status.unschedulable("nothing helps")

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        self.note("pre_score", pod, sorted(nodes.names))
        return self.verdict("pre_score", pod)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        self.note("score", pod, sorted(nodes.names))
        return np.asarray([len(node.pods) * 7 for node in nodes], dtype=np.int64)

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        self.note("normalize", pod, sorted(zip(nodes.names, scores.tolist(), strict=True)))
        return 100 - scores

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.note("reserve", pod, node_name)
        state.token = f"token-{pod.name}".encode()
        return self.verdict("reserve", pod)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note("unreserve", pod, node_name)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        self.note("permit", pod, node_name)
        if self.wish(pod, "permit") == "wait":
            return PermitResult.wait(20.0)
        if self.wish(pod, "permit") == "release":
            for waiting in self.handle.waiting_pods(only_mine=True):
                self.note("release", waiting.pod, self.handle.allow(waiting).name)
            return Status.success()
        return self.verdict("permit", pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        self.note("pre_bind_pre_flight", pod, node_name)
        return PreFlightResult(self.verdict("pre_flight", pod))

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        self.note("pre_bind", pod, [node_name, [item.outcome.name for item in patched]])
        if self.wish(pod, "patch") and not patched:
            patch = {"metadata": {"annotations": {"patched": "yes"}}}
            own = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=patch)
            return PreBindResult(Status.success(), patches=(own,))
        return PreBindResult(self.verdict("pre_bind", pod))

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        self.note("bind", pod, [node_name, (state.token or b"").decode()])
        status = self.verdict("bind", pod)
        return BindResult(status, host_binds=status.is_success)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note("post_bind", pod, node_name)
