"""NodeResourceTopologyMatch: places a pod only where the kubelet can align it with NUMA zones.

Called from PreFilter to Score. Source: kubernetes-sigs/scheduler-plugins `pkg/noderesourcetopology`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_plugins.args.findings import Findings, integer, mapping
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import DependsOn, Plugin, PodSensitivity, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.status import MAX_NODE_SCORE, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_scheduler_plugins.arguments import refuse_unknown, text, weighted_resources
from berth_scheduler_plugins.numa.alignment import misaligned
from berth_scheduler_plugins.numa.asks import NEED, PodAsks, read_asks
from berth_scheduler_plugins.numa.node_zones import Foreign, Mode, NodeZones
from berth_scheduler_plugins.numa.scoring import FEWEST, LEAST, STRATEGIES, fewest_zones_score, zone_scores
from berth_scheduler_plugins.numa.topology import RESOURCE

STALE: Final = "invalid node topology data"
_ARGUMENTS: Final = (
    "scoringStrategy",
    "cacheResyncPeriodSeconds",
    "discardReservedNodes",
    "cache",
    "preemptionMode",
)
_CACHE: Final = ("foreignPodsDetect", "resyncMethod", "informerMode", "resyncScope")
_NO_EFFECT: Final = {
    "resyncMethod": ("Autodetect", "All", "OnlyExclusiveResources"),
    "informerMode": ("Dedicated", "Shared"),
    "resyncScope": ("All", "OnlyResources"),
}
"""Arguments of the original's cache that have no effect here, with their values."""
_ASKS: Final = "asks"
_MOST_KEPT: Final = 64
_NAMED: Final = 5


class NodeResourceTopologyMatch(Plugin):
    """Filters and scores nodes by their NodeResourceTopology objects.

    Arguments: `scoringStrategy` (LeastAllocated; cpu 1, memory 1), `discardReservedNodes` (false),
    `cacheResyncPeriodSeconds` (0) and `cache.foreignPodsDetect` (All).
    """

    needs: Sequence[Need] = (
        Need.nodes(),
        NEED,
        Need.pod_objects("status", "metadata.annotations"),
        Need.objects(RESOURCE),
    )
    # The answers follow from when a topology was first seen, too.
    depends_on: DependsOn | None = DependsOn.OTHER
    pod_sensitivity: PodSensitivity | None = PodSensitivity.NODE
    normalization: ScoreNormalization | None = ScoreNormalization.NONE
    events: Sequence[EventInterest] | None = (
        EventInterest("noderesourcetopologies.v1alpha2.topology.node.k8s.io", ("add", "update")),
        EventInterest("Pod", ("delete",)),
        EventInterest("Node", ("add", "update.allocatable")),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: NodeResourceTopologyMatchArgs. Raises PluginArgsError."""
        super().__init__(args, handle)
        refuse_unknown(args, _ARGUMENTS)
        findings = Findings()
        strategy = mapping(args, "scoringStrategy", "scoringStrategy") or {}
        self._strategy = text(strategy, "type", "scoringStrategy.type") or LEAST
        if self._strategy not in STRATEGIES:
            known = f"invalid ScoringStrategyType: use one of {', '.join(STRATEGIES)}"
            findings.invalid("scoringStrategy.type", self._strategy, known)
        resources = weighted_resources(strategy, "resources", "scoringStrategy.resources")
        self._weights = {name: weight if weight > 0 else 1 for name, weight in resources}
        if args.get("preemptionMode") not in (None, "Disabled", "Enabled"):
            findings.invalid(
                "preemptionMode",
                args.get("preemptionMode"),
                "invalid PreemptionMode: use Disabled or Enabled",
            )
        discard = args.get("discardReservedNodes") or False
        if not isinstance(discard, bool):
            findings.invalid("discardReservedNodes", discard, "must be true or false")
        period_s = integer(args, "cacheResyncPeriodSeconds", "cacheResyncPeriodSeconds")
        if period_s < 0:
            findings.invalid("cacheResyncPeriodSeconds", period_s, "must be at least 0")
        cache = mapping(args, "cache", "cache") or {}
        refuse_unknown(cache, _CACHE)
        foreign = _one_of(findings, cache, "foreignPodsDetect", tuple(one.value for one in Foreign))
        for name, values in _NO_EFFECT.items():
            _one_of(findings, cache, name, values)
        findings.check()
        mode = Mode.DISCARD if discard else Mode.EVERYWHERE if period_s else Mode.ALIGNED
        self._zones = NodeZones(mode, Foreign(foreign))
        self._fewest: dict[str, NDArray[np.int64]] = {}
        """Scores by LeastNUMANodes by slot, -1 where none is known, by what pods need."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Return SKIP for a pod that needs nothing of zones."""
        asks = self._read(state, pod)
        return Status.success() if asks.asks_of_zones else Status.skip()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Reject the nodes with single-numa-node on which a container, or the pod, fits into no zone."""
        self._follow(nodes, pod)
        zones = self._zones.columns.of(nodes)
        groups = np.zeros(len(nodes), dtype=np.int32)
        statuses = [Status.success()]
        rejected = {STALE: zones.refused, **misaligned(self._read(state, pod), zones, nodes)}
        for reason, rows in rejected.items():
            mine = rows & (groups == 0)
            if mine.any():
                groups[mine] = len(statuses)
                statuses.append(Status(Code.UNSCHEDULABLE, (reason,)))
        return Verdicts(groups, tuple(statuses))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Name the nodes whose topology has a policy that is not known."""
        unknown = self._zones.unknown if self._read(state, pod).guaranteed else {}
        if not unknown:
            return Status.success()
        named = [f"{name} ({what})" for name, what in sorted(unknown.items())[:_NAMED]]
        return Status(
            Code.SUCCESS, (f"nodes with an unknown policy, which counts as none: {', '.join(named)}",)
        )

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n], 0..100: 100 for a pod that the kubelet does not align, 0 without a topology."""
        asks = self._read(state, pod)
        if not asks.guaranteed:
            return np.full(len(nodes), MAX_NODE_SCORE, dtype=np.int64)
        self._follow(nodes, pod)
        zones = self._zones.columns.of(nodes)
        if self._strategy == FEWEST:
            scores = self._fewest_zones(asks, nodes)
        else:
            scores = zone_scores(self._strategy, self._weights, asks, zones)
        return np.where(zones.known & ~zones.refused, scores, 0)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Return SKIP: the snapshot has the pod. Profiles enable the original at Reserve and PostBind."""
        return Status.skip()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Do nothing: nothing is held."""

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Do nothing: nothing is held."""

    def _read(self, state: CycleState, pod: Pod) -> PodAsks:
        found: PodAsks = state.get_or_make(_ASKS, lambda: read_asks(pod.spec))
        return found

    def _follow(self, nodes: NodeTable, pod: Pod) -> None:
        self._zones.follow(nodes, self.handle.objects(RESOURCE), pod.scheduler_name)
        for slot in self._zones.changed:
            for scores in self._fewest.values():
                if slot < len(scores):
                    scores[slot] = -1

    def _fewest_zones(self, asks: PodAsks, nodes: NodeTable) -> NDArray[np.int64]:
        key = repr(asks)
        scores = self._fewest.get(key)
        if scores is None or len(scores) < nodes.slot_count:
            if len(self._fewest) >= _MOST_KEPT:
                self._fewest.clear()
            scores = self._fewest[key] = np.full(nodes.slot_count, -1, dtype=np.int64)
        topologies, free = self._zones.topologies, self._zones.free
        for slot in nodes.slots[scores[nodes.slots] < 0].tolist():
            known = topologies.get(slot)
            scores[slot] = 0 if known is None else fewest_zones_score(asks, known, free[slot])
        return scores[nodes.slots]


def _one_of(findings: Findings, args: Mapping[str, Any], key: str, values: Sequence[str]) -> str:
    """Return the value of an argument of the cache; the first of `values` where it is missing."""
    value = args.get(key) or values[0]
    if value not in values:
        findings.unsupported(f"cache.{key}", value, values)
        return values[0]
    return str(value)
