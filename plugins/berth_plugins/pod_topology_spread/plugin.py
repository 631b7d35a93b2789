"""PodTopologySpread: how evenly a pod's peers are spread over domains -> verdict and score.

Called at PreFilter, Filter, PreScore, Score and NormalizeScore, and for what-if questions.
`NodeTable.pod_counts` counts the pods, and `domains` caches the domains. A cycle adds up the counts per
domain.

Source: `pkg/scheduler/framework/plugins/podtopologyspread` (plugin.go, filtering.go, scoring.go), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import SelectorError
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import (
    Answer,
    Concerned,
    DependsOn,
    NoConcern,
    Plugin,
    ScoreNormalization,
)
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.node_selectors import RequiredNodeAffinity, many_conditions, required_stanza
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.signature import wishes
from berth_sdk.slices import Work, at_once, in_slices
from berth_sdk.status import MAX_NODE_SCORE, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.gates import EXACT_HINTS, is_on
from berth_plugins.objects.of_events import as_node, as_pod, holds_place, spec_of
from berth_plugins.pod_topology_spread import default_selector
from berth_plugins.pod_topology_spread.constraints import HARD, SOFT, Constraint
from berth_plugins.pod_topology_spread.filter import Spread
from berth_plugins.pod_topology_spread.plans import Plan, Plans
from berth_plugins.pod_topology_spread.score import Preferences

_SPREAD: Final = "spread"
_PREFERENCES: Final = "preferences"
_NO_POD: Final = Pod(name="")
_MANY_CONDITIONS: Final = 100
_Key: TypeAlias = tuple[str, Plan, frozenset[str] | None]
"""A key of `hint_keys`."""


class PodTopologySpread(Plugin):
    """Rejects nodes in whose domain the pod would make the skew of a hard constraint too large. Prefers
    domains with few pods for soft constraints.
    """

    needs: Sequence[Need] = (
        Need.whole_pod(("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")),
        Need.nodes(),
        Need.pods(),
        *default_selector.NEEDS,
    )
    normalization: ScoreNormalization | None = ScoreNormalization.RPC
    depends_on: DependsOn | None = DependsOn.TABLE
    events: Sequence[EventInterest] | None = (
        EventInterest(ASSIGNED_POD, ("add", "update", "delete"), Hint.ASK_PLUGIN),
        EventInterest(TARGET_POD, ("update",), Hint.ASK_PLUGIN),
        EventInterest("Node", ("add", "delete", "update.labels", "update.taints"), Hint.ASK_PLUGIN),
        *default_selector.EVENTS,
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: PodTopologySpreadArgs. Raises PluginArgsError with every error in the arguments."""
        super().__init__(args, handle)
        self._plans = Plans(args, handle)
        self._exact_hints = is_on(args, EXACT_HINTS, default=True)
        self._counted: dict[Plan, Spread] = {}
        self._counted_in: NodeTable | None = None

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return SKIP without hard constraints, ERROR for an unreadable constraint."""
        return in_slices(self._pre_filter(state, pod, nodes))

    def _pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Status]:
        try:
            plan = yield from self._plan(state, pod, HARD)
        except SelectorError as err:
            return Status.error(f"obtaining pod's hard topology spread constraints: {err}")
        if not plan.constraints:
            return Status.skip()
        state.write(_SPREAD, (yield from self._count(plan, nodes.whole)))
        return Status.success()

    def sign(self, pod: Pod, nodes: NodeTable) -> Hashable:
        """Return the plans of the pod: equal for all pods with the same constraints, namespace and own
        matches.
        """
        try:
            plans = self._plans.alike(pod)
        except SelectorError:
            return wishes(pod)
        if plans is None:
            return wishes(pod)
        hard, soft = plans
        if hard.constraints:
            return plans if soft.constraints else (NoConcern.SCORE, plans)
        return (NoConcern.FILTER, plans) if soft.constraints else NoConcern.CYCLE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts]:
        """Return the first constraint that a node fails. Unresolvable where the node lacks the topology
        label.
        """
        return in_slices(self._filter_nodes(state, pod, nodes))

    def _filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Verdicts]:
        spread = yield from self._spread(state, pod, nodes)
        return (yield from spread.verdicts(nodes))

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Answer[Verdicts]:
        """Return the verdicts with the pods of one node changed: the domain's count, and the smallest count,
        change too.
        """
        return in_slices(self._filter_scenarios(state, pod, scenarios))

    def _filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Work[Verdicts]:
        spread = yield from self._spread(state, pod, scenarios.nodes)
        return (yield from spread.what_if(scenarios))

    def sensitive_to(self, pod: Pod, other: Pod) -> bool:
        """Return True if a hard constraint selects the other pod, and for a pod with very many constraints.
        Raises SelectorError for an unreadable constraint.
        """
        plans = self._plans.both(pod)
        return plans is None or any(pods.selects(other) for pods in plans[0].changing)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return SKIP without soft constraints, ERROR for an unreadable constraint."""
        return in_slices(self._pre_score(state, pod, nodes))

    def _pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Status]:
        try:
            plan = yield from self._plan(state, pod, SOFT)
        except SelectorError as err:
            return Status.error(
                f"calculating preScoreState: obtaining pod's soft topology spread constraints: {err}"
            )
        if not plan.constraints:
            return Status.skip()
        state.write(_PREFERENCES, (yield from Preferences.of(plan, nodes)))
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[NDArray[np.int64]]:
        """Return int64[n]: the weighted counts of the node's domains; fewer is better. 0 for an ignored
        node.
        """
        return in_slices(self._score_nodes(state, pod, nodes))

    def _score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[NDArray[np.int64]]:
        preferences = yield from self._preferences(state, pod, nodes)
        return (yield from preferences.scores(nodes))

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        """Return int64[n], 0..100: the highest for the domains with the fewest pods, 0 for an ignored
        node.
        """
        preferences = at_once(self._preferences(state, pod, nodes))
        return preferences.normalized(scores, nodes, MAX_NODE_SCORE)

    def hint_keys(self, pod: Pod) -> Sequence[Hashable] | None:
        """Return (namespace, plan, the labels by which the pod selects nodes whose domains count, or None for
        unknown ones). None for default constraints, which follow from other objects, too. Raises
        SelectorError for unreadable constraints.
        """
        spec = spec_of(pod)
        if not spec.get("topologySpreadConstraints"):
            return None
        plan = at_once(self._plans.plan(pod, HARD))
        honors = any(one.honors_affinity for one in plan.constraints)
        return ((pod.namespace, plan, _selecting_labels(spec) if honors else frozenset[str]()),)

    def pre_queueing_hint(self, event: ClusterEvent) -> Concerned:
        """Return the plans with a count or a domain that the event may change."""
        if event.resource == "Node":
            return _helped_by_node(event)
        if event.resource != "Pod":
            return None
        pods = [as_pod(one) for one in (event.old, event.new) if one is not None]
        if not all(map(holds_place, pods)):
            return ()
        namespace = pods[0].namespace
        labels = {item for one in pods for item in one.labels.items()}

        def is_helped(key: _Key) -> bool:
            if key[0] != namespace:
                return False
            # Ten thousand plans are looked at for an event, and few select its pod.
            for wanted in key[1].selected_labels:
                if wanted <= labels:
                    return _pod_may_help(event, _NO_POD, key[1])
            return False

        return is_helped

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True if the event may change a count, a domain or the default selector.

        Such events: a pod that counts was added, deleted, changed or began to terminate; a node with the
        topology labels was added, deleted or changed; the pod's default selector changed. Raises
        SelectorError when the pod's constraints cannot be read.
        """
        if event.resource in default_selector.RESOURCES:
            return self._plans.has_defaults(pod, HARD) and default_selector.may_change(event, pod)
        if event.resource == "Node":
            plan = at_once(self._plans.plan(pod, HARD))
            return _node_may_help(event, plan) or (
                self._exact_hints and _selection_changed(event, pod, plan.constraints)
            )
        if self._exact_hints and _has_other_peers(event, pod):
            return True
        for value in (event.old, event.new):
            if value is not None and not _is_involved(as_pod(value), pod):
                return False
        return _pod_may_help(event, pod, at_once(self._plans.plan(pod, HARD)))

    def _plan(self, state: CycleState, pod: Pod, action: str) -> Work[Plan]:
        """Return the plan of the pod's signature, if there is one. Raises SelectorError."""
        signed = state.signature
        if not isinstance(signed, tuple):
            return (yield from self._plans.plan(pod, action))
        hard, soft = signed[1] if isinstance(signed[0], NoConcern) else signed
        plan: Plan = hard if action == HARD else soft
        return plan

    def _spread(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Spread]:
        spread: Spread | None = state.get(_SPREAD)
        if spread is None:
            plan = yield from self._plan(state, pod, HARD)
            counted = yield from self._count(plan, nodes.whole)
            spread = state.get_or_make(_SPREAD, lambda: counted)
        return spread

    def _count(self, plan: Plan, whole: NodeTable) -> Work[Spread]:
        """Return the counts. They hold for equal pods until anything changes: then there is another table."""
        if self._counted_in is not whole:
            self._counted_in = whole
            self._counted.clear()
        spread = self._counted.get(plan)
        if spread is None:
            spread = yield from Spread.of(plan, whole)
            if self._counted_in is whole:
                self._counted[plan] = spread
        return spread

    def _preferences(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Preferences]:
        preferences: Preferences | None = state.get(_PREFERENCES)
        if preferences is None:
            plan = yield from self._plan(state, pod, SOFT)
            made = yield from Preferences.of(plan, nodes)
            preferences = state.get_or_make(_PREFERENCES, lambda: made)
        return preferences


def _helped_by_node(event: ClusterEvent) -> Callable[[_Key], bool]:
    """Return the function that is True for the keys of pods that a node event may help."""
    moved: frozenset[str] | None = None
    if event.old is not None and event.new is not None:
        before, after = as_node(event.old).labels, as_node(event.new).labels
        keys = before.keys() | after.keys()
        moved = frozenset(key for key in keys if before.get(key) != after.get(key))
    # Plans with the same topology keys are judged once: there are few of these, and may be many plans.
    judged: dict[frozenset[str], bool] = {}

    def is_helped(key: _Key) -> bool:
        _, plan, selecting = key
        if moved is not None and (selecting is None or not moved.isdisjoint(selecting)):
            return True
        known = judged.get(plan.topology_keys)
        if known is None:
            known = judged[plan.topology_keys] = _node_may_help(event, plan)
        return known

    return is_helped


def _selecting_labels(spec: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the labels that decide which nodes a pod selects. None: its terms are too many, or cannot be
    read.
    """
    if many_conditions(spec, _MANY_CONDITIONS):
        return None
    affinity = RequiredNodeAffinity.of_spec(spec).affinity
    if affinity is not None and affinity.errors:
        return None
    found = set(spec.get("nodeSelector") or ())
    for term in (required_stanza(spec) or {}).get("nodeSelectorTerms") or ():
        found.update(one["key"] for one in term.get("matchExpressions") or ())
    return frozenset(found)


def _selection_changed(event: ClusterEvent, pod: Pod, constraints: Sequence[Constraint]) -> bool:
    """Return True if the pod's node affinity selects the node now and did not before, or the reverse: the
    node's domain may have started or stopped to count.
    """
    if event.old is None or event.new is None or not any(one.honors_affinity for one in constraints):
        return False
    affinity = RequiredNodeAffinity.of_spec(spec_of(pod))

    def selected(node: Node) -> bool:
        return affinity.matches(node.labels, node.name)

    return selected(as_node(event.old)) != selected(as_node(event.new))


def _has_other_peers(event: ClusterEvent, pod: Pod) -> bool:
    """Return True when the waiting pod has other labels or another owner. Its constraints may use the labels,
    or select the pod now, and its default selector follows from both.
    """
    if event.old is None or event.new is None:
        return False
    before, after = as_pod(event.old), as_pod(event.new)
    return after.uid == pod.uid and (after.labels != before.labels or after.owner != before.owner)


def _is_involved(other: Pod, pod: Pod) -> bool:
    return other.uid == pod.uid or (holds_place(other) and other.namespace == pod.namespace)


def _pod_may_help(event: ClusterEvent, pod: Pod, plan: Plan) -> bool:
    if event.old is None or event.new is None:
        labels = as_pod(event.old or event.new).labels
        return any(selector.matches(labels) for selector in plan.selectors)
    before, after = as_pod(event.old), as_pod(event.new)
    tolerates_more = after.uid == pod.uid and after.tolerations != before.tolerations
    if tolerates_more and any(one.honors_taints for one in plan.constraints):
        return True
    if after.labels == before.labels:
        # A terminating pod no longer counts.
        ends = after.terminating and not before.terminating
        return ends and any(selector.matches(after.labels) for selector in plan.selectors)
    return any(
        selector.matches(before.labels) != selector.matches(after.labels) for selector in plan.selectors
    )


def _node_may_help(event: ClusterEvent, plan: Plan) -> bool:
    keys = plan.topology_keys
    if event.old is None or event.new is None:
        labels = as_node(event.old or event.new).labels
        return keys <= labels.keys()
    before, after = as_node(event.old), as_node(event.new)
    counted, counts = keys <= before.labels.keys(), keys <= after.labels.keys()
    if counted != counts:
        return True
    moved = any(before.labels.get(key) != after.labels.get(key) for key in keys)
    return counts and (moved or before.taints != after.taints)
