"""NodeAffinity: node selectors and node affinity -> node subset, verdict, score.

Called at PreFilter, Filter, PreScore and Score. Each cycle tests each distinct value of a label once, for any
number of nodes.

Source: `pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go`, v1.36.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError, SelectorError
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Answer, Concerned, DependsOn, NodeColumn, Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.node_selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    PreferredTerms,
    RequiredNodeAffinity,
    preferred_stanza,
    required_stanza,
)
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.results import PreFilterResult
from berth_sdk.slices import Work, in_slices
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_plugins.args.findings import joined, mapping
from berth_plugins.args.gates import EXACT_HINTS, is_on
from berth_plugins.objects.of_events import as_node, spec_of

REASON_POD: Final = Status.unresolvable("node(s) didn't match Pod's node affinity/selector")
REASON_ENFORCED: Final = Status.unresolvable("node(s) didn't match scheduler-enforced node affinity")
REASON_CONFLICT: Final = Status.unresolvable("pod affinity terms conflict")
_REQUIRED: Final = "required"
_PREFERRED: Final = "preferred"
_MAX_ASKED: Final = 8
"""The number of pods whose conditions are kept for the next hint."""


class NodeAffinity(Plugin):
    """Rejects nodes that do not match the pod's node selector, its required affinity, or the configuration's
    `addedAffinity`. Prefers nodes that match preferred terms, by weight.
    """

    needs: Sequence[Need] = (Need.whole_pod(("affinity", "nodeSelector")), Need.nodes())
    normalization: ScoreNormalization | None = ScoreNormalization.HOST_MAX
    depends_on: DependsOn | None = DependsOn.NODE
    reads: Sequence[NodeColumn] | None = (NodeColumn.NAME, NodeColumn.LABELS)
    sign_fields: Sequence[PodField] | None = (PodField.NODE_SELECTOR, PodField.AFFINITY)
    events: Sequence[EventInterest] | None = (
        EventInterest("Node", ("add", "update.labels"), Hint.ASK_PLUGIN),
    )

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        """`args`: NodeAffinityArgs. Raises PluginArgsError for an `addedAffinity` that cannot be read."""
        super().__init__(args, handle)
        self._exact_hints = is_on(args, EXACT_HINTS, default=True)
        self._asked: deque[tuple[Mapping[str, Any], RequiredNodeAffinity]] = deque(maxlen=_MAX_ASKED)
        self._enforced: NodeSelector | None = None
        self._added: PreferredTerms | None = None
        added = mapping(args, "addedAffinity", "addedAffinity")
        if added is not None:
            self._read_added(added)

    def sign_spec(self, pod: Pod) -> Hashable:
        """Return node selector and node affinity as they are written. The configured part is the same for all
        pods.
        """
        spec = spec_of(pod)
        selector, stanza = spec.get("nodeSelector"), spec.get("affinity")
        affinity = stanza.get("nodeAffinity") if isinstance(stanza, Mapping) else stanza
        return None if selector is None and affinity is None else repr((selector, affinity))

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[PreFilterResult | Status]:
        """Return SKIP for a pod without conditions, and a subset of nodes if every term names its nodes."""
        return in_slices(self._pre_filter(state, pod))

    def _pre_filter(self, state: CycleState, pod: Pod) -> Work[PreFilterResult | Status]:
        spec = spec_of(pod)
        stanza = required_stanza(spec)
        # An empty map is a selector that every node matches; a missing one is no selector.
        if stanza is None and self._enforced is None and spec.get("nodeSelector") is None:
            return Status.skip()
        state.write(_REQUIRED, (yield from RequiredNodeAffinity.read(spec)))
        names = _named_nodes(stanza)
        if names is None:
            return Status.success()
        return PreFilterResult(eligible=names) if names else REASON_CONFLICT

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Verdicts]:
        """Return unresolvable where the enforced affinity, or else the pod's own, does not match.

        Unreadable terms match no node.
        """
        return in_slices(self._filter_nodes(state, pod, nodes))

    def _filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[Verdicts]:
        required: RequiredNodeAffinity | None = state.get(_REQUIRED)
        if required is None:
            read = yield from RequiredNodeAffinity.read(spec_of(pod))
            required = state.get_or_make(_REQUIRED, lambda: read)
        verdicts = Verdicts.feasible(len(nodes))
        if self._enforced is not None:
            verdicts = verdicts.otherwise(~self._enforced.over(nodes), REASON_ENFORCED)
        return verdicts.otherwise(~(yield from required.over_in_steps(nodes)), REASON_POD)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[Status]:
        """Return SKIP without preferred terms, ERROR for an unreadable preferred term."""
        return in_slices(self._pre_score(state, pod))

    def _pre_score(self, state: CycleState, pod: Pod) -> Work[Status]:
        try:
            preferred = yield from _preferred_terms(pod)
        except SelectorError as err:
            return Status.error(str(err))
        if preferred is None and self._added is None:
            return Status.skip()
        state.write(_PREFERRED, preferred)
        return Status.success()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Answer[NDArray[np.int64]]:
        """Return int64[n]: the sum of the weights of the preferred terms that match, added ones included."""
        return in_slices(self._score_nodes(state, pod, nodes))

    def _score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Work[NDArray[np.int64]]:
        total = np.zeros(len(nodes), dtype=np.int64)
        preferred = state.get(_PREFERRED) or (yield from _preferred_terms(pod))
        for terms in (self._added, preferred):
            if terms is not None:
                total += yield from terms.over_in_steps(nodes)
        return total

    def sign_queue(self, pod: Pod) -> Hashable:
        """Return node selector and node affinity."""
        return self.sign_spec(pod)

    def hint_keys(self, pod: Pod) -> Collection[Hashable] | None:
        """Return labels of which a matching node has at least one. None: there are no such labels, or a term
        cannot be read.
        """
        spec = spec_of(pod)
        selector = spec.get("nodeSelector")
        if selector:
            return [min(selector.items())]
        affinity = RequiredNodeAffinity.of_spec(spec).affinity
        if affinity is None or affinity.errors:
            return None
        keys: set[Hashable] = set()
        for term in (required_stanza(spec) or {}).get("nodeSelectorTerms") or ():
            wanted = [one for one in term.get("matchExpressions") or () if one["operator"] == "In"]
            if not wanted:
                return None
            keys.update((wanted[0]["key"], value) for value in wanted[0]["values"])
        return keys

    def pre_queueing_hint(self, event: ClusterEvent) -> Concerned:
        """Return the labels of the node, and one more: pods without keys are judged for every node."""
        return (*as_node(event.new).labels.items(), None)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> Answer[bool]:
        """Return True if a matching node was added, or a node matches now and did not before. Raises
        SelectorError when the pod's terms cannot be read and no other term decides.
        """
        return in_slices(self._may_help(event, pod))

    def _may_help(self, event: ClusterEvent, pod: Pod) -> Work[bool]:
        node = as_node(event.new)
        if self._enforced is not None and not self._enforced.matches(node.labels, node.name):
            return False
        if not _has_pairs(node, spec_of(pod).get("nodeSelector")):
            return False  # decided without reading the terms
        required = yield from self._required(spec_of(pod))
        if not (yield from required.matches_in_steps(node.labels, node.name)):
            return False
        if event.old is None:
            return True
        before = as_node(event.old)
        if self._exact_hints and not (
            self._enforced is None or self._enforced.matches(before.labels, before.name)
        ):
            return True
        return not (yield from required.matches_in_steps(before.labels, before.name))

    def _required(self, spec: Mapping[str, Any]) -> Work[RequiredNodeAffinity]:
        """Return the conditions of a spec, which a series of events asks about again and again."""
        for known, required in self._asked:
            if known is spec:
                return required
        required = yield from RequiredNodeAffinity.read(spec)
        self._asked.appendleft((spec, required))
        return required

    def _read_added(self, added: Mapping[str, Any]) -> None:
        errors: list[str] = []
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        required = mapping(added, key, f"addedAffinity.{key}")
        if required is not None:
            self._enforced = NodeSelector.of(required, f"addedAffinity.{key}")
            errors.extend(self._enforced.errors)
        key = "preferredDuringSchedulingIgnoredDuringExecution"
        if added.get(key):
            try:
                self._added = PreferredTerms.of(added[key], f"addedAffinity.{key}")
            except SelectorError as err:
                errors.append(str(err))
        if errors:
            raise PluginArgsError(joined(errors))


def _preferred_terms(pod: Pod) -> Work[PreferredTerms | None]:
    stanza = preferred_stanza(spec_of(pod))
    return None if stanza is None else (yield from PreferredTerms.read(stanza))


def _has_pairs(node: Node, pairs: Any) -> bool:
    return not isinstance(pairs, Mapping) or all(node.labels.get(key) == pairs[key] for key in pairs)


def _named_nodes(stanza: Mapping[str, Any] | None) -> frozenset[str] | None:
    """Return the only nodes that can match, if every term names some. None: any node may match.

    Read from the terms as they are written: names in an unreadable term count as well.
    """
    terms = (stanza or {}).get("nodeSelectorTerms") or ()
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        named: frozenset[str] | None = None
        for item in term.get("matchFields") or ():
            if item.get("key") == NODE_NAME_FIELD and item.get("operator") == "In":
                values = frozenset(item.get("values") or ())
                named = values if named is None else named & values
        if named is None:
            return None
        names |= named
    return frozenset(names)
