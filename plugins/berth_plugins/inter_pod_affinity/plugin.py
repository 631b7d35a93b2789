"""InterPodAffinity: the pods in each topology domain -> verdict and score.

Called at PreFilter, Filter, PreScore and Score. `PodCounts` counts pods by node and follows their changes. A
cycle adds the counts up by the values of the topology labels, once per distinct term that matters to the pod.

Source: `pkg/scheduler/framework/plugins/interpodaffinity/{plugin,filtering,scoring}.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import (
    DependsOn,
    NoConcern,
    Plugin,
    ScoreNormalization,
)
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.node_selectors import joined
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, PodCounts, Tally
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings, integer
from berth_plugins.args.gates import ANY_ANTI_TERM_HINTS, EXACT_HINTS, EXACT_NAMESPACES, is_on
from berth_plugins.inter_pod_affinity.hints import Hints, node_helped, pod_helped
from berth_plugins.inter_pod_affinity.index import CarriedTerms
from berth_plugins.inter_pod_affinity.neighbours import ByKey, Neighbours, Numbers
from berth_plugins.inter_pod_affinity.wishes import RESOURCE, Namespaces

_NEIGHBOURS: Final = "neighbours"
_SCORES: Final = "scores"
_DROPPED: Final = ("metadata", "spec.containers", "spec.initContainers", "spec.volumes", "status")
"""Fields of pods on nodes that are not read: their summaries have the names and labels."""


class InterPodAffinity(Plugin):
    """Rejects nodes whose domains lack the pods that the pod requires nearby, or have pods that exclude it,
    by its own terms or theirs. Prefers nodes by the weights of preferred terms, the pod's own and those of
    running pods.
    """

    needs: Sequence[Need] = (
        Need.whole_pod(),
        Need.nodes(),
        Need.pods(),
        Need.pod_objects(*_DROPPED),
        Need.objects(RESOURCE),
    )
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MIN_MAX
    depends_on: DependsOn | None = DependsOn.TABLE
    events: Sequence[EventInterest] | None = (
        EventInterest(ASSIGNED_POD, ("add", "update.labels", "delete"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update.labels",), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add", "update.labels", "delete"), Hint.ASK_PLUGIN),
        EventInterest("Namespace", ("add", "update", "delete"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: InterPodAffinityArgs. Raises PluginArgsError for a weight outside 0..100."""
        super().__init__(args, handle)
        self._hard_weight = 1
        if args.get("hardPodAffinityWeight") is not None:
            self._hard_weight = integer(args, "hardPodAffinityWeight", "hardPodAffinityWeight")
        if not 0 <= self._hard_weight <= 100:
            findings = Findings()
            findings.invalid("hardPodAffinityWeight", self._hard_weight, "not in valid range [0, 100]")
            findings.check()
        self._ignore_preferred = bool(args.get("ignorePreferredTermsOfExistingPods"))
        self._namespaces = Namespaces(handle, exact=is_on(args, EXACT_NAMESPACES, default=True))
        self._carried = CarriedTerms(hard_weight=self._hard_weight)
        self._hints = (
            Hints(self._namespaces, self._carried) if is_on(args, EXACT_HINTS, default=True) else None
        )
        self._by_any_term = is_on(args, ANY_ANTI_TERM_HINTS, default=True)

    # --- Filter --------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Count the pods. Returns SKIP for a pod without required terms that no other pod's required
        anti-affinity matches, and unresolvable for a pod whose terms cannot be read.
        """
        self._carried.catch_up(nodes.pods)
        if pod.pod_affinity is None and not self._carried.anti:
            return Status.skip()
        errors = self._namespaces.wishes_of(pod).errors
        if errors:
            return Status.unresolvable(f"parsing pod: {joined(errors)}")
        neighbours = self._neighbours(pod, nodes)
        wishes = neighbours.wishes
        if not (wishes.required or wishes.anti or neighbours.existing):
            return Status.skip()
        state.write(_NEIGHBOURS, neighbours)
        return Status.success()

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the pod's terms with resolved namespaces, and the terms of other pods that match the pod."""
        self._carried.catch_up(nodes.pods)
        stanza = pod.pod_affinity
        if stanza is None and not self._carried.anti and not self._carried.scored:
            return NoConcern.CYCLE
        labels = self._namespaces.labels_of(pod.namespace)
        wishes = self._namespaces.wishes_of(pod)
        existing = self._carried.anti.meaning(pod, labels).ids if self._carried.anti else ()
        voices = self._carried.scored.meaning(pod, labels).ids if self._carried.scored else ()
        filters = bool(wishes.errors or wishes.required or wishes.anti or existing)
        scores = bool(wishes.errors or wishes.preferred or voices)
        if self._ignore_preferred and not wishes.has_preferred:
            scores = False
        if not (filters or scores):
            return NoConcern.CYCLE
        welcome = bool(wishes.required) and wishes.welcome(pod)
        # Includes the stanza, which so stays alive with the kept answer: the next pod with an equal stanza
        # gets the same object.
        signed = (stanza, wishes, welcome, existing, voices)
        if not filters:
            return NoConcern.FILTER, signed
        return signed if scores else (NoConcern.SCORE, signed)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Check required affinity first, which no preemption can help; then the pod's required anti-affinity,
        then that of running pods.
        """
        neighbours = state.get_or_make(_NEIGHBOURS, lambda: self._neighbours(pod, nodes))
        return neighbours.judge(nodes)

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        """Return the verdicts of Filter, with the counts of each node's domains changed by the removed and
        added pods.
        """
        nodes = scenarios.nodes
        self._carried.take_in(scenarios.added)
        neighbours = state.get_or_make(_NEIGHBOURS, lambda: self._neighbours(pod, nodes))
        return neighbours.judge(nodes, neighbours.changes(scenarios))

    # --- Score ---------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        """Add up the score of every domain. Returns SKIP if no term counts, of this pod or of others."""
        self._carried.catch_up(nodes.pods)
        if pod.pod_affinity is None and (self._ignore_preferred or not self._carried.scored):
            return Status.skip()
        wishes = self._namespaces.wishes_of(pod)
        if self._ignore_preferred and not wishes.has_preferred:
            return Status.skip()
        if wishes.errors:
            return Status.error(f"failed to parse pod: {joined(wishes.errors)}")
        scores = self._scores(pod, nodes)
        if scores is None:
            return Status.skip()
        state.write(_SCORES, scores)
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: the sum over topology keys of the node's domain score; may be negative."""
        total = np.zeros(len(nodes), dtype=np.int64)
        for key, sums in state.get_or_make(_SCORES, lambda: self._scores(pod, nodes) or {}).items():
            codes, _ = nodes.label(key)
            total += sums.take(codes)
        return total

    # --- the queue -----------------------------------------------------------------------------

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if the event changes a pod, a node or a namespace that matters to the terms, the pod's
        own or those of running pods.
        """
        if self._hints is not None:
            return self._hints.may_help(event, pod)
        if event.resource == "Pod":
            return pod_helped(event, pod, by_any_term=self._by_any_term)
        return node_helped(event, pod)

    # --- counting ------------------------------------------------------------------------------

    def _neighbours(self, pod: Pod, nodes: NodeTable) -> Neighbours:
        wishes = self._namespaces.wishes_of(pod)
        labels = self._namespaces.labels_of(pod.namespace)
        counts = nodes.pod_counts
        self._carried.catch_up(nodes.pods)
        existing: dict[str, Numbers] = {}
        for key, tally in self._carried.anti.meaning(pod, labels).tallies.items():
            sums = counts.by_domain(tally, key)
            if np.count_nonzero(sums):
                existing[key] = sums
        affinity: ByKey = {}
        if wishes.required:
            affinity = {key: counts.by_domain(wishes.together, key) for key in wishes.required_keys}
        anti = {key: [(tally, 1) for tally in tallies] for key, tallies in wishes.anti_by_key.items()}
        return Neighbours(pod, wishes, labels, affinity, _sums(counts, anti), existing)

    def _scores(self, pod: Pod, nodes: NodeTable) -> ByKey | None:
        """Return the score of each domain. None: no term in the cluster counts, which differs from terms that
        add up to 0.
        """
        wishes = self._namespaces.wishes_of(pod)
        counts = nodes.pod_counts
        self._carried.catch_up(nodes.pods)
        labels = self._namespaces.labels_of(pod.namespace)
        carried = self._carried.scored.meaning(pod, labels).tallies
        parts: dict[str, list[tuple[Tally, int]]] = {}
        voices: list[tuple[Tally, str]] = []
        for wish in wishes.preferred:
            parts.setdefault(wish.topology_key, []).append((wish.pods, wish.weight))
            voices.append((wish.pods, wish.topology_key))
        for key, theirs in carried.items():
            parts.setdefault(key, []).append((theirs.scores, 1))
            voices.append((theirs.number, key))
        scores = {key: sums for key, sums in _sums(counts, parts).items() if np.count_nonzero(sums)}
        if not scores and not any(counts.by_domain(tally, key).any() for tally, key in voices):
            return None
        return scores


def _sums(counts: PodCounts, parts: Mapping[str, Sequence[tuple[Tally, int]]]) -> dict[str, Numbers]:
    """Return by topology key the weighted counts of its tallies in each domain."""
    result: dict[str, Numbers] = {}
    for key, weighted in parts.items():
        found = [_weighted(counts.by_domain(tally, key), weight) for tally, weight in weighted]
        result[key] = reduce(np.add, found)
    return result


def _weighted(sums: Numbers, weight: int) -> Numbers:
    return sums if weight == 1 else sums * np.int64(weight)
