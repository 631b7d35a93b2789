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
    Answer,
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
from berth_sdk.selected_pods import SelectedPods, weights_over
from berth_sdk.slices import Work, at_once, in_slices
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings, integer
from berth_plugins.args.gates import (
    ANY_ANTI_TERM_HINTS,
    EXACT_HINTS,
    EXACT_NAMESPACES,
    HINTS_BY_NAMESPACE,
    is_on,
)
from berth_plugins.inter_pod_affinity.hints import Hints, node_helped, pod_helped
from berth_plugins.inter_pod_affinity.index import CarriedTerms
from berth_plugins.inter_pod_affinity.neighbours import ByKey, Neighbours, Numbers, has_label
from berth_plugins.inter_pod_affinity.wishes import RESOURCE, Namespaces, Wishes

_NEIGHBOURS: Final = "neighbours"
_SCORES: Final = "scores"
_MANY: Final = 64
"""The number of terms of one pod up to which their counts are kept for the next pod."""
_DROPPED: Final = ("metadata", "spec.containers", "spec.initContainers", "spec.volumes", "status")
"""Fields of pods on nodes that are not read: their summaries have the names and labels."""


class InterPodAffinity(Plugin):
    """Rejects nodes whose domains lack the pods that the pod requires nearby, or have pods that exclude it,
    by its own terms or theirs. Prefers nodes by the weights of preferred terms, the pod's own and those of
    running pods.
    """

    needs: Sequence[Need] = (
        Need.whole_pod(("affinity",)),
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
        self._hint_namespaces = self._namespaces if is_on(args, HINTS_BY_NAMESPACE, default=True) else None

    # --- Filter --------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Count the pods. Returns SKIP for a pod without required terms that no other pod's required
        anti-affinity matches, and unresolvable for a pod whose terms cannot be read.
        """
        self._carried.catch_up(nodes.pods)
        if pod.pod_affinity is None and not self._carried.anti:
            return Status.skip()
        return in_slices(self._pre_filter(state, pod, nodes))

    def _pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Status]:
        wishes = yield from self._namespaces.wishes_of(pod)
        if wishes.errors:
            return Status.unresolvable(f"parsing pod: {joined(wishes.errors)}")
        neighbours = yield from self._neighbours(pod, wishes, nodes)
        if not (wishes.required or wishes.anti or neighbours.existing):
            return Status.skip()
        state.write(_NEIGHBOURS, neighbours)
        return Status.success()

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the pod's terms with resolved namespaces, and the terms of other pods that match the pod.

        A pod with very many terms shares no answers: it has a signature of its own in each cycle.
        """
        self._carried.catch_up(nodes.pods)
        stanza = pod.pod_affinity
        if stanza is None and not self._carried.anti and not self._carried.scored:
            return NoConcern.CYCLE
        if stanza is not None and len(stanza.terms) > _MANY:
            return object()
        labels = self._namespaces.labels_of(pod.namespace)
        wishes = at_once(self._namespaces.wishes_of(pod))
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

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts]:
        """Check required affinity first, which no preemption can help; then the pod's required anti-affinity,
        then that of running pods.
        """
        return in_slices(self._filter_nodes(state, pod, nodes))

    def _filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Verdicts]:
        neighbours = yield from self._known_neighbours(state, pod, nodes)
        return neighbours.judge(nodes)

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Answer[Verdicts]:
        """Return the verdicts of Filter, with the counts of each node's domains changed by the removed and
        added pods.
        """
        self._carried.take_in(scenarios.added)
        return in_slices(self._filter_scenarios(state, pod, scenarios))

    def _filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Work[Verdicts]:
        neighbours = yield from self._known_neighbours(state, pod, scenarios.nodes)
        return neighbours.judge(scenarios.nodes, (yield from neighbours.changes(scenarios)))

    def sensitive_to(self, pod: Pod, other: Pod) -> bool:
        """Return True if the other pod matches all required terms of affinity, or a required term of
        anti-affinity, or excludes the pod by a term of its own. Also for a pod with very many terms.
        """
        stanza = pod.pod_affinity
        if stanza is not None:
            if len(stanza.terms) > _MANY:
                return True
            wishes = at_once(self._namespaces.wishes_of(pod))
            if wishes.required and wishes.together.of(other):
                return True
            if any(wish.pods.selects(other) for wish in wishes.anti):
                return True
        carried = other.pod_affinity
        if carried is None or not carried.required_anti:
            return False
        labels = self._namespaces.labels_of(pod.namespace)
        return any(term.matches(pod.namespace, pod.labels, labels) for term in carried.required_anti)

    # --- Score ---------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Add up the score of every domain. Returns SKIP if no term counts, of this pod or of others."""
        self._carried.catch_up(nodes.pods)
        if pod.pod_affinity is None and (self._ignore_preferred or not self._carried.scored):
            return Status.skip()
        return in_slices(self._pre_score(state, pod, nodes))

    def _pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Status]:
        wishes = yield from self._namespaces.wishes_of(pod)
        if self._ignore_preferred and not wishes.has_preferred:
            return Status.skip()
        if wishes.errors:
            return Status.error(f"failed to parse pod: {joined(wishes.errors)}")
        scores = yield from self._scores(pod, wishes, nodes)
        if scores is None:
            return Status.skip()
        state.write(_SCORES, scores)
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[NDArray[np.int64]]:
        """Return int64[n]: the sum over topology keys of the node's domain score; may be negative."""
        return in_slices(self._score_nodes(state, pod, nodes))

    def _score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[NDArray[np.int64]]:
        scores: ByKey | None = state.get(_SCORES)
        if scores is None:
            wishes = yield from self._namespaces.wishes_of(pod)
            made = (yield from self._scores(pod, wishes, nodes)) or {}
            scores = state.get_or_make(_SCORES, lambda: made)
        total = np.zeros(len(nodes), dtype=np.int64)
        for key, sums in scores.items():
            codes, _ = nodes.label(key)
            total += sums.take(codes)
            yield
        return total

    # --- the queue -----------------------------------------------------------------------------

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if the event changes a pod, a node or a namespace that matters to the terms, the pod's
        own or those of running pods.
        """
        if self._hints is not None:
            return self._hints.may_help(event, pod)
        if event.resource == "Pod":
            return pod_helped(event, pod, by_any_term=self._by_any_term, namespaces=self._hint_namespaces)
        return node_helped(event, pod)

    # --- counting ------------------------------------------------------------------------------

    def _known_neighbours(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Neighbours]:
        known: Neighbours | None = state.get(_NEIGHBOURS)
        if known is None:
            wishes = yield from self._namespaces.wishes_of(pod)
            made = yield from self._neighbours(pod, wishes, nodes)
            known = state.get_or_make(_NEIGHBOURS, lambda: made)
        return known

    def _neighbours(self, pod: Pod, wishes: Wishes, nodes: NodeTable) -> Work[Neighbours]:
        labels = self._namespaces.labels_of(pod.namespace)
        counts = nodes.pod_counts
        self._carried.catch_up(nodes.pods)
        existing: dict[str, Numbers] = {}
        tallies = self._carried.anti.meaning(pod, labels).tallies
        # Other pods may have tens of thousands of terms with keys that no node has.
        for key in nodes.label_keys(tallies):
            if has_label(nodes, key):
                sums = counts.by_domain(tallies[key], key)
                if np.count_nonzero(sums):
                    existing[key] = sums
            yield
        affinity = (yield from _company(wishes, nodes)) if wishes.required else {}
        anti: dict[str, Numbers] = {}
        for key in nodes.label_keys(wishes.anti_by_key):
            if has_label(nodes, key):
                parts = [(tally, 1) for tally in wishes.anti_by_key[key]]
                anti[key] = yield from _sums(nodes, key, parts)
            yield
        return Neighbours(pod, wishes, labels, affinity, anti, existing)

    def _scores(self, pod: Pod, wishes: Wishes, nodes: NodeTable) -> Work[ByKey | None]:
        """Return the score of each domain. None: no term in the cluster counts, which differs from terms that
        add up to 0.
        """
        counts = nodes.pod_counts
        self._carried.catch_up(nodes.pods)
        labels = self._namespaces.labels_of(pod.namespace)
        voices = self._carried.scored.meaning(pod, labels).tallies
        carried = {key: voices[key] for key in nodes.label_keys(voices) if has_label(nodes, key)}
        parts: dict[str, list[tuple[SelectedPods, int]]] = {}
        for wish in wishes.preferred:
            if has_label(nodes, wish.topology_key):
                parts.setdefault(wish.topology_key, []).append((wish.pods, wish.weight))
            yield
        scores: dict[str, Numbers] = {}
        for key in dict.fromkeys((*parts, *carried)):
            total = (yield from _sums(nodes, key, parts[key])) if key in parts else None
            if key in carried:
                of_pods = counts.by_domain(carried[key].scores, key)
                total = of_pods if total is None else total + of_pods
            if total is not None and np.count_nonzero(total):
                scores[key] = total
            yield
        if scores:
            return scores
        for key, theirs in carried.items():
            if counts.by_domain(theirs.number, key).any():
                return scores
            yield
        for key, wanted in parts.items():
            if (yield from _sums(nodes, key, [(pods, 1) for pods, _ in wanted])).any():
                return scores
        return None


def _company(wishes: Wishes, nodes: NodeTable) -> Work[ByKey]:
    """Return by topology key the pods that all required terms match. A key that no node has stands for all
    keys: no node meets its term.
    """
    for key in wishes.required_keys:
        if not has_label(nodes, key):
            return {key: np.zeros(1, dtype=np.int64)}
        yield
    counts = nodes.pod_counts
    if len(wishes.required) <= _MANY:
        return {key: counts.by_domain(wishes.together, key) for key in wishes.required_keys}
    parts = dict.fromkeys(wish.pods for wish in wishes.required)
    matched = yield from weights_over(nodes.pods, ((part, 1) for part in parts))
    by_slot = _by_slot(nodes, (matched == len(parts)).astype(np.int64))
    return {key: counts.sums(by_slot, key) for key in wishes.required_keys}


def _sums(nodes: NodeTable, key: str, parts: Sequence[tuple[SelectedPods, int]]) -> Work[Numbers]:
    """Return the weighted counts of the parts in each domain of a topology key."""
    counts = nodes.pod_counts
    if len(parts) <= _MANY:
        return reduce(np.add, [_weighted(counts.by_domain(tally, key), weight) for tally, weight in parts])
    return counts.sums(_by_slot(nodes, (yield from weights_over(nodes.pods, parts))), key)


def _by_slot(nodes: NodeTable, each: Numbers) -> Numbers:
    """Return int64[slots]: the sum of `each` (by pod) on every node."""
    sums = np.bincount(nodes.pods.node_index, weights=each, minlength=nodes.slot_count)
    return sums.astype(np.int64)


def _weighted(sums: Numbers, weight: int) -> Numbers:
    return sums if weight == 1 else sums * np.int64(weight)
