"""GpuMemory: the extender's decisions as a berth plugin, in process or served.

The snapshot has the nodes and the pods on them, reserved ones included. So the plugin needs no watch, no copy
of the cluster, no HTTP and no Binding of its own: what is left is the decisions of `gpu_memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import gpu_memory
import numpy as np
from berth_sdk import (
    MAX_NODE_SCORE,
    CycleState,
    DependsOn,
    EventInterest,
    Handle,
    LiveReservation,
    Need,
    NodeTable,
    NodeView,
    ObjectPatch,
    PatchResult,
    Plugin,
    PluginArgsError,
    Pod,
    PodSensitivity,
    PreBindResult,
    PreFlightResult,
    ReserveResult,
    Scenarios,
    ScoreNormalization,
    Status,
    Verdicts,
)
from berth_sdk.tables import Moved, SlotFollower
from gpu_memory import GPU, GPUS, MEMORY, PREFIX
from numpy.typing import NDArray

_SCALE: Final = MAX_NODE_SCORE // gpu_memory.BEST
Gpus = tuple[list[int], list[int]]
"""GiB, and GiB left, of each GPU of a node."""
NO_GPUS: Final[Gpus] = ([], [])


class GpuMemory(Plugin):
    """Gives each pod memory of one GPU. Takes no arguments."""

    version = "1.0.0"
    needs = (Need.nodes(label_prefixes=(PREFIX,)), Need.pods(annotation_prefixes=(PREFIX,)))
    # The GPUs of pods that are not bound yet are in the plugin's memory alone.
    depends_on = DependsOn.OTHER
    pod_sensitivity = PodSensitivity.NODE
    # A node's score does not depend on other nodes, so it travels with the verdicts.
    normalization = ScoreNormalization.NONE
    # Filter has read the GPUs by then, so the scores cost little, and a round trip is saved.
    answers_early = True
    events = (
        EventInterest("Pod", ("delete",)),
        EventInterest("Node", ("add", "update.allocatable", "update.labels")),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        if args:
            raise PluginArgsError(f"{next(iter(args))}: GpuMemory takes no arguments")
        self._reserved: dict[str, str] = {}
        """By uid: the GPU of a pod that the snapshot does not show with its annotation yet."""
        self._known: dict[int, Gpus] = {}
        """By slot: the GPUs of a node, until the node or its pods change."""
        self._moved = SlotFollower(Moved.ROW)

    # --- the scheduling cycle ----------------------------------------------------------------------

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject the nodes on which no GPU has enough memory left."""
        statuses = [_verdict(gpus, pod) for gpus in self._gpus(nodes)]
        return _verdicts(nodes, pod, statuses)

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        """Return the verdicts of Filter with pods removed and added, for preemption."""
        views = (scenarios.view(row) for row in range(len(scenarios)))
        return _verdicts(scenarios.nodes, pod, [_verdict(self._read(view), pod) for view in views])

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Score by the rule of the extender, times 10."""
        wanted = pod.requests.get(MEMORY, 0)
        return np.array([_SCALE * gpu_memory.points(*gpus, wanted) for gpus in self._gpus(nodes)], np.int64)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult | Status:
        """Choose the GPU. The host writes the annotation before it binds the pod."""
        wanted = pod.requests.get(MEMORY, 0)
        if not wanted:
            return ReserveResult(Status.success(), pre_flight=PreFlightResult(Status.skip()))
        node = self.handle.snapshot().node_named(node_name)
        if node is None:
            return Status.unschedulable(f"node {node_name} no longer exists")
        gpu = gpu_memory.best_gpu(self._read(node)[1], wanted)
        if gpu is None:
            return Status.unschedulable(gpu_memory.FULL)
        self._reserved[pod.uid] = str(gpu)
        state.token = str(gpu).encode()
        return ReserveResult(Status.success(), pre_bind=_annotation(pod, str(gpu)))

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give the memory back."""
        self._reserved.pop(pod.uid, None)

    def reconcile(self, live: Sequence[LiveReservation]) -> None:
        """Restore the reservations of a process that ended, from their tokens."""
        self._known.clear()
        self._reserved = {item.pod.uid: item.state.token.decode() for item in live if item.state.token}

    # --- the binding cycle -------------------------------------------------------------------------

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        """Let the host write the annotation. Called where the host did not use Reserve's answer."""
        if state.token is None:
            return Status.success()  # a pod without GPU memory
        if patched:
            return Status.error(f"annotation {GPU}: {patched[-1].message}")
        return _annotation(pod, state.token.decode())

    # --- plumbing ----------------------------------------------------------------------------------

    def _gpus(self, nodes: NodeTable) -> Iterable[Gpus]:
        """Yield the GPUs of each row. Rows that did not change since the last call are not read again."""
        moved = self._moved.moved(nodes)
        for slot in list(self._known) if moved is None else moved:
            self._known.pop(slot, None)
        offered = nodes.allocatable(MEMORY).tolist()
        for row, slot in enumerate(nodes.slots.tolist()):
            if not offered[row]:
                yield NO_GPUS
                continue
            known = self._known.get(slot)
            if known is None:
                known = self._known[slot] = self._read(nodes.node(row))
            yield known

    def _read(self, node: NodeView) -> Gpus:
        sizes = gpu_memory.sizes(node.allocatable.get(MEMORY, 0), node.labels.get(GPUS, ""))
        pods = [(gib, self._gpu_of(pod)) for pod in node.pods if (gib := pod.requests.get(MEMORY, 0))]
        return sizes, gpu_memory.left(sizes, pods)

    def _gpu_of(self, pod: Pod) -> str:
        reserved = self._reserved.get(pod.uid)
        if reserved is None:
            return pod.annotations.get(GPU, "")
        if pod.annotations.get(GPU) == reserved and not self.handle.snapshot().pods.is_assumed(pod.uid):
            del self._reserved[pod.uid]
        return reserved


def _verdict(gpus: Gpus, pod: Pod) -> tuple[str, bool] | None:
    return gpu_memory.refusal(*gpus, pod.requests.get(MEMORY, 0))


def _verdicts(nodes: NodeTable, pod: Pod, refusals: Sequence[tuple[str, bool] | None]) -> Verdicts:
    verdicts = Verdicts.feasible(len(nodes))
    for reason, may_change in {refused for refused in refusals if refused is not None}:
        rows = np.array([refused is not None and refused[0] == reason for refused in refusals], np.bool_)
        make = Status.unschedulable if may_change else Status.unresolvable
        verdicts = verdicts.otherwise(rows, make(reason))
    return verdicts


def _annotation(pod: Pod, gpu: str) -> PreBindResult:
    change = {"metadata": {"annotations": {GPU: gpu}}}
    patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=change)
    return PreBindResult(Status.success(), (patch,), done_when_applied=True)
