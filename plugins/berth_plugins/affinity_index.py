"""The terms that pods on nodes carry, each once, found by the pods that they can mean.

Follows `PodTable`'s column of terms: a term costs something when it appears for the first time, not with each
pod that carries it. Used by `inter_pod_affinity`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.selectors import Operator
from berth_sdk.tables import Dictionary, PodTable

from berth_plugins.affinity_tallies import (
    READING,
    Carriers,
    Voices,
    anti_terms,
    terms_of,
    voices_of,
)

T = TypeVar("T")
_ANY: Final = ""
_MAX_FOUND: Final = 1024
_NUMBERS: Final = count(1)
"""Of terms; none is given out twice, so that a signature never means something else."""


@dataclass(frozen=True, slots=True, eq=False)
class Meaning(Generic[T]):
    """The terms that mean a pod. `ids`: the same for all pods that the same terms mean, ascending; `tallies`:
    what is counted of them, by topology key.
    """

    ids: tuple[int, ...]
    tallies: Mapping[str, T]


class TermIndex(Generic[T]):
    """Terms by the namespace and the label that a pod must have for them to mean it, where there is one.

    A pod looks up its own labels, so that the terms of other applications cost it nothing. What was found is
    kept for the next pod with the same labels, until another term appears.
    """

    def __init__(self, tally: Callable[[frozenset[PodAffinityTerm]], T]) -> None:
        """`tally`: what is counted of the terms found for one topology key."""
        self._tally = tally
        self._terms: dict[tuple[str, str, str], dict[PodAffinityTerm, int]] = {}
        self._found: dict[Hashable, Meaning[T]] = {}
        self._meanings: dict[tuple[int, ...], Meaning[T]] = {}

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
        here = self._terms.setdefault(place, {})
        if term not in here:
            here[term] = next(_NUMBERS)
            self._found.clear()

    def meaning(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Meaning[T]:
        """The terms that mean `pod`. `namespace_labels`: those of its namespace."""
        asked = (pod.namespace, tuple(pod.labels.items()), tuple(namespace_labels.items()))
        known = self._found.get(asked)
        if known is None:
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            known = self._found[asked] = self._meaning(self._look_up(pod, namespace_labels))
        return known

    def _meaning(self, found: dict[int, PodAffinityTerm]) -> Meaning[T]:
        """The same for all pods that the same terms mean, whatever their labels are."""
        ids = tuple(sorted(found))
        known = self._meanings.get(ids)
        if known is None:
            by_key: dict[str, list[PodAffinityTerm]] = {}
            for number in ids:
                by_key.setdefault(found[number].topology_key, []).append(found[number])
            if len(self._meanings) >= _MAX_FOUND:
                self._meanings.clear()
            known = self._meanings[ids] = Meaning(
                ids, {key: self._tally(frozenset(terms)) for key, terms in by_key.items()}
            )
        return known

    def _look_up(self, pod: Pod, namespace_labels: Mapping[str, str]) -> dict[int, PodAffinityTerm]:
        found: dict[int, PodAffinityTerm] = {}
        for label in ((_ANY, _ANY), *pod.labels.items()):
            for namespace in (_ANY, pod.namespace):
                for term, number in self._terms.get((namespace, *label), _NO_TERMS).items():
                    if term.matches(pod.namespace, pod.labels, namespace_labels):
                        found[number] = term
        return found


_NO_TERMS: Final[Mapping[PodAffinityTerm, int]] = {}


class CarriedTerms:
    """Two indexes over the terms of the pods on nodes. Terms whose carriers have all left may linger on;
    nobody is counted for them.

    `anti`: of required anti-affinity. `scored`: those that prefer or avoid nodes for others.
    """

    def __init__(self, *, hard_weight: int) -> None:
        """`hard_weight`: what a required affinity term is worth in scores; 0: it has no say."""
        self._hard_weight = hard_weight
        self._values: Dictionary[PodAffinity] | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._known = 1
        self._stanzas: dict[PodAffinityTerm, set[int]] = {}
        self.anti: TermIndex[Carriers] = TermIndex(lambda terms: anti_terms(terms, self))
        self.scored: TermIndex[Voices] = TermIndex(lambda terms: voices_of(terms, self, self._hard_weight))

    def catch_up(self, pods: PodTable) -> None:
        """Take in the stanzas that have appeared in the table since the last time."""
        self._follow(pods.readings(READING, terms_of))

    def with_any(self, terms: Iterable[PodAffinityTerm], values: Dictionary[PodAffinity]) -> Iterable[int]:
        """The codes of the stanzas that have one of `terms`; all codes of a table that is not followed."""
        if values is not self._values:
            return range(1, len(values))
        self._follow(values)
        return set().union(*(self._stanzas.get(term, ()) for term in terms))

    def _follow(self, values: Dictionary[PodAffinity]) -> None:
        if values is not self._values:
            # Another table, or the column was begun anew because most of its stanzas had left.
            self._values = values
            self._begin_anew()
        while self._known < len(values):
            carried = values.values[self._known]
            if carried is not None:
                self._add(carried, self._known)
            self._known += 1

    def _add(self, carried: PodAffinity, code: int) -> None:
        said = [term for term, _ in (*carried.preferred, *carried.preferred_anti)]
        if self._hard_weight:
            said.extend(carried.required)
        for term in carried.required_anti:
            self.anti.add(term)
        for term in said:
            self.scored.add(term)
        for term in (*carried.required_anti, *said):
            self._stanzas.setdefault(term, set()).add(code)
