"""The terms that pods on nodes carry, each once, found by the pods that they can mean.

Follows `PodTable`'s column of terms: a term costs something when it appears for the first time, not with each
pod that carries it. Used by `inter_pod_affinity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.selectors import Operator
from berth_sdk.tables import Dictionary, PodTable

from berth_plugins.affinity_tallies import READING, terms_of

_ANY: Final = ""


class TermIndex:
    """Terms by the namespace and the label that a pod must have for them to mean it, where there is one.

    A pod looks up its own labels, so that the terms of other applications cost it nothing.
    """

    def __init__(self) -> None:
        self._terms: dict[tuple[str, str, str], dict[PodAffinityTerm, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._terms)

    def add(self, term: PodAffinityTerm) -> None:
        """Take a term in; again: nothing."""
        requirements = term.selector.requirements
        if requirements is None:
            return
        namespace = _ANY
        if term.namespace_selector.requirements is None and len(term.namespaces) == 1:
            (namespace,) = term.namespaces
        place = (namespace, _ANY, _ANY)
        for one in requirements:
            if one.operator is Operator.IN and len(one.values) == 1:
                (value,) = one.values
                place = (namespace, one.key, value)
                break
        self._terms.setdefault(place, {})[term] = None

    def meaning(self, pod: Pod, namespace_labels: Mapping[str, str]) -> dict[str, frozenset[PodAffinityTerm]]:
        """The terms that mean `pod`, by topology key. `namespace_labels`: those of its namespace."""
        found: dict[str, list[PodAffinityTerm]] = {}
        for label in ((_ANY, _ANY), *pod.labels.items()):
            for namespace in (_ANY, pod.namespace):
                for term in self._terms.get((namespace, *label), ()):
                    if term.matches(pod.namespace, pod.labels, namespace_labels):
                        found.setdefault(term.topology_key, []).append(term)
        return {key: frozenset(terms) for key, terms in found.items()}


class CarriedTerms:
    """Two indexes over the terms of the pods on nodes. Terms whose carriers have all left may linger on;
    nobody is counted for them.

    `anti`: of required anti-affinity. `scored`: those that prefer or avoid nodes for others.
    """

    def __init__(self, *, with_required: bool) -> None:
        """`with_required`: required affinity has a say in scores."""
        self._with_required = with_required
        self._values: Dictionary[PodAffinity] | None = None
        self._known = 0
        self.anti = TermIndex()
        self.scored = TermIndex()

    def catch_up(self, pods: PodTable) -> None:
        """Take in the stanzas that have appeared in the table since the last time."""
        _, values = pods.encoded(READING, terms_of)
        if values is not self._values:
            # Another table, or the column was begun anew because most of its stanzas had left.
            self._values, self._known = values, 1
            self.anti, self.scored = TermIndex(), TermIndex()
        if self._known < len(values):
            self._add(one for one in values.values[self._known :] if one is not None)
            self._known = len(values)

    def _add(self, stanzas: Iterable[PodAffinity]) -> None:
        for carried in stanzas:
            for term in carried.required_anti:
                self.anti.add(term)
            if self._with_required:
                for term in carried.required:
                    self.scored.add(term)
            for term, _ in (*carried.preferred, *carried.preferred_anti):
                self.scored.add(term)
