"""GpuShare: a pod gets shares of GPUs, or several GPUs, and the plugin chooses them.

    gpu-share.berth.io/gpu-milli: "460"        of each GPU, 1 to 1000
    gpu-share.berth.io/gpu-count: "2"          how many GPUs
    gpu-share.berth.io/gpu-model: "A10|T4"     any of these

The extended resource `gpu-share.berth.io/gpu` of a node is the number of its GPUs, and its label
`gpu-share.berth.io/model` is their model. Before the pod is bound, the chosen GPUs are written to its
annotation `gpu-share.berth.io/gpu-index` ("0,3"). From Reserve until then the cycle's token has them, so that
a killed process loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
    ObjectPatch,
    PatchResult,
    Plugin,
    PluginArgsError,
    Pod,
    PodSensitivity,
    PreBindResult,
    PreFlightResult,
    Reservations,
    ReserveResult,
    Scenarios,
    ScoreNormalization,
    Status,
    Verdicts,
)
from numpy.typing import NDArray

from berth_gpu_share.ledger import Ledger, Placement, left_over_of
from berth_gpu_share.requests import (
    GPU_INDEX,
    MODEL,
    PREFIX,
    WHOLE,
    GpuRequest,
    RequestError,
    request_of,
    write_indices,
)


class GpuShare(Plugin):
    """Chooses GPUs for pods. Takes no arguments."""

    version = "1.0.0"
    needs = (Need.nodes(), Need.pods(annotation_prefixes=(PREFIX,)))
    # The GPUs given to pods that are not bound yet are in the plugin's memory alone.
    depends_on = DependsOn.OTHER
    pod_sensitivity = PodSensitivity.NODE
    # A node's score does not depend on other nodes, so it travels with the verdicts, in one round trip.
    normalization = ScoreNormalization.NONE
    events = (
        EventInterest("Pod", ("delete",)),
        EventInterest("Node", ("add", "update.allocatable", "update.labels")),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        if args:
            raise PluginArgsError(f"{next(iter(args))}: GpuShare takes no arguments")
        # No `read`: the ledger reads the pods of the nodes that changed, and of no others.
        self._held = Reservations[Placement](handle, dump=_write_token, load=_read_token)
        self._ledger = Ledger(self._held)

    # --- the scheduling cycle ----------------------------------------------------------------------

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts | Status:
        """Return rejections where too few GPUs of the right model have enough left."""
        try:
            request = request_of(pod)
        except RequestError as err:
            return Status.unresolvable(str(err))
        if request is None:
            return Status.success()
        self._ledger.update(nodes)
        return self._verdicts(request, nodes, self._ledger.left_over(request).take(nodes.slots))

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts | Status:
        """Return the verdicts of Filter with pods removed and added: no column of the table tells which GPUs
        that frees.
        """
        try:
            request = request_of(pod)
        except RequestError as err:
            return Status.unresolvable(str(err))
        if request is None:
            return Status.success()
        nodes = scenarios.nodes
        self._ledger.update(nodes)
        free = np.stack(
            [
                self._ledger.free_if(int(slot), item.removed, item.added)
                for slot, item in zip(nodes.slots, scenarios.items, strict=True)
            ],
            axis=1,
        )
        return self._verdicts(request, nodes, left_over_of(free, request))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Score by best fit: the less is left of the chosen GPUs, the better. For a pod without GPUs, nodes
        without GPUs are best.
        """
        self._ledger.update(nodes)
        request = request_of(pod)
        if request is None:
            return np.where(self._ledger.gpu_count[nodes.slots] == 0, MAX_NODE_SCORE, 0)
        left_over = self._ledger.left_over(request).take(nodes.slots)
        left_over[left_over < 0] = WHOLE * request.count
        return MAX_NODE_SCORE - MAX_NODE_SCORE * left_over // (WHOLE * request.count)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult | Status:
        """Choose the GPUs. The result has the answer to PreBind, so the host need not call it."""
        request = request_of(pod)
        if request is None:
            return ReserveResult(Status.success(), pre_flight=PreFlightResult(Status.skip()))
        nodes = self.handle.snapshot()
        self._ledger.update(nodes)
        position = nodes.position(node_name)
        if position is None:
            return Status.unschedulable(f"node {node_name} no longer exists")
        indices = self._ledger.choose(self._ledger.free[:, nodes.slots[position]], request)
        chosen = None if indices is None else Placement(indices, request.milli)
        placement = self._held.take(state, pod, node_name, lambda _: chosen)
        if placement is None:
            return Status.unschedulable(_too_little(request))
        return ReserveResult(Status.success(), pre_bind=_annotation(pod, placement))

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give the GPUs back."""
        self._held.give_back(state)

    def reconcile(self, live: Sequence[LiveReservation]) -> list[LiveReservation]:
        """Restore every reservation that the host holds for this plugin, from its token."""
        return self._held.take_over(live)

    # --- the binding cycle -------------------------------------------------------------------------

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult | Status:
        """Let the host write the numbers of the pod's GPUs. Called by a host that does not use Reserve's
        answer, and where the write failed.
        """
        if state.token is None:
            return Status.success()  # a pod without GPUs
        if patched:
            failed = patched[-1]
            return Status.error(f"annotation {GPU_INDEX}: {failed.outcome.name.lower()}: {failed.message}")
        return _annotation(pod, self._held[state.cycle_id].value)

    # --- plumbing ----------------------------------------------------------------------------------

    def _verdicts(self, request: GpuRequest, nodes: NodeTable, left_over: NDArray[np.int64]) -> Verdicts:
        """Return the verdicts. `left_over` is int64[n]: see `Ledger`. Verdicts that removing pods cannot
        change come first.
        """
        plural = "" if request.count == 1 else "s"
        few = self._ledger.gpu_count.take(nodes.slots) < request.count
        verdicts = Verdicts.feasible(len(nodes)).otherwise(
            few, Status.unresolvable(f"node has fewer than {request.count} GPU{plural}")
        )
        if request.models:
            codes, models = nodes.label(MODEL)
            other = ~models.members(request.models)[codes]
            wanted = "|".join(sorted(request.models))
            verdicts = verdicts.otherwise(other, Status.unresolvable(f"GPUs are not of model {wanted}"))
        return verdicts.otherwise(left_over < 0, Status.unschedulable(_too_little(request)))


def _too_little(request: GpuRequest) -> str:
    who = "no GPU has" if request.count == 1 else f"fewer than {request.count} GPUs have"
    return f"{who} {request.milli} of {WHOLE} free"


def _annotation(pod: Pod, placement: Placement) -> PreBindResult:
    change = {"metadata": {"annotations": {GPU_INDEX: write_indices(placement.indices)}}}
    patch = ObjectPatch(resource="pods", ref=pod.ref, merge_patch=change)
    return PreBindResult(Status.success(), (patch,), done_when_applied=True)


def _write_token(placement: Placement) -> bytes:
    return json.dumps({"gpus": placement.indices, "milli": placement.milli}).encode()


def _read_token(token: bytes) -> Placement:
    """Return what `_write_token` wrote. Raises ValueError for the token of another version of the plugin."""
    match json.loads(token):
        case {"gpus": [*indices], "milli": int(milli)} if all(isinstance(index, int) for index in indices):
            return Placement(tuple(indices), milli)
        case _:
            raise ValueError("no GPUs in the token")
