"""The terms of the pods on nodes, each once, found by the pods that they can match.

Follows `PodTable`'s column of terms: only the first pod with a term causes work, not each pod with it. Used
by `inter_pod_affinity`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.selectors import Operator
from berth_sdk.tables import Dictionary, PodChanges, PodTable

from berth_plugins.inter_pod_affinity.tallies import (
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
_MAX_WEIGHT: Final = 1 << 18
"""The number of terms in all kept results: hundreds of pods may each add hundreds of terms that match the
same pods.
"""
_MANY: Final = 64
"""The number of new terms up to which they are matched one by one instead of through the index."""
_NUMBERS: Final = count(1)
_NUMBER_OF: Final[WeakKeyDictionary[PodAffinityTerm, int]] = WeakKeyDictionary()
"""A number for each term. No number is used twice, so a signature never matches another term."""
_Place: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Meaning(Generic[T]):
    """The terms that match a pod, with their `ids`, ascending. All pods that the same terms match share one
    object.

    `by_key`, `tallies`: the terms and their counts, by topology key.
    """

    ids: tuple[int, ...]
    terms: tuple[PodAffinityTerm, ...]
    by_key: Mapping[str, frozenset[PodAffinityTerm]]
    tallies: Mapping[str, T]


class TermIndex(Generic[T]):
    """Terms by the namespace and the label that a pod must have for them to match, where there is one.

    A pod looks up its own labels, so the terms of other applications cause no work. The result is cached for
    the next pod with the same labels. Only terms that appear later are matched then, and added.
    """

    def __init__(self, tally: Callable[[frozenset[PodAffinityTerm]], T]) -> None:
        """`tally`: makes the count of the terms found for one topology key."""
        self._tally = tally
        self._terms: dict[_Place, dict[PodAffinityTerm, int]] = {}
        self._in_order: list[PodAffinityTerm] = []
        # Each result with the number of terms that existed at that time.
        self._found: dict[Hashable, tuple[Meaning[T], int]] = {}
        self._meanings: dict[tuple[int, ...], Meaning[T]] = {}
        self._weight = 0
        """The number of terms in all of `_meanings`."""

    def __bool__(self) -> bool:
        return bool(self._terms)

    def add(self, term: PodAffinityTerm) -> None:
        """Add a term. A repeated term has no effect."""
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
            here[term] = _number_of(term)
            self._in_order.append(term)

    def meaning(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Meaning[T]:
        """Return the terms that match `pod`. `namespace_labels`: the labels of the pod's namespace."""
        asked = (pod.namespace, tuple(pod.labels.items()), tuple(namespace_labels.items()))
        known, count = self._found.get(asked, (None, 0))
        if count == len(self._in_order) and known is not None:
            return known
        # A look-up matches the known terms again, and so costs as much as they are many.
        if known is None or count + max(_MANY, len(known.terms)) < len(self._in_order):
            known = self._meaning(self._look_up(pod, namespace_labels))
        else:
            more = [
                term
                for term in self._in_order[count:]
                if term.matches(pod.namespace, pod.labels, namespace_labels)
            ]
            if more:
                known = self._meaning(more, known)
        if len(self._found) >= _MAX_FOUND and asked not in self._found:
            del self._found[next(iter(self._found))]
        self._found[asked] = known, len(self._in_order)
        return known

    def _meaning(self, found: Iterable[PodAffinityTerm], before: Meaning[T] | None = None) -> Meaning[T]:
        """Return one object for all pods that the same terms match, even with different labels. `before`: of
        other terms, to which those found are added.
        """
        more = tuple(sorted(found, key=_number_of))
        ids, terms = tuple(map(_number_of, more)), more
        if before is not None:
            follow = not before.ids or before.ids[-1] < ids[0]
            ids, terms = before.ids + ids, before.terms + more
            if not follow:
                # Other pods had some of the terms before; the numbers are those of that time.
                order = sorted(range(len(ids)), key=ids.__getitem__)
                ids, terms = tuple(map(ids.__getitem__, order)), tuple(map(terms.__getitem__, order))
        known = self._meanings.get(ids)
        if known is None:
            added: dict[str, list[PodAffinityTerm]] = {}
            for term in more:
                added.setdefault(term.topology_key, []).append(term)
            by_key = {} if before is None else dict(before.by_key)
            tallies = {} if before is None else dict(before.tallies)
            for key, theirs in added.items():
                by_key[key] = by_key.get(key, frozenset()).union(theirs)
                tallies[key] = self._tally(by_key[key])
            self._weight += len(ids)
            if len(self._meanings) >= _MAX_FOUND or self._weight > _MAX_WEIGHT:
                self._meanings.clear()
                self._found.clear()
                self._weight = len(ids)
            known = self._meanings[ids] = Meaning(ids, terms, by_key, tallies)
        return known

    def _look_up(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Iterator[PodAffinityTerm]:
        for place in self._places(pod):
            for term in self._terms.get(place, _NO_TERMS):
                if term.matches(pod.namespace, pod.labels, namespace_labels):
                    yield term

    def _places(self, pod: Pod) -> Iterator[_Place]:
        """Yield the places of terms that can match the pod, and possibly places without terms."""
        namespaces, labels = (_ANY, pod.namespace), pod.labels
        if len(labels) < len(self._terms):
            for label in ((_ANY, _ANY), *labels.items()):
                for namespace in namespaces:
                    yield (namespace, *label)
            return
        # A pod may have a hundred thousand labels.
        for place in self._terms:
            namespace, key, value = place
            if namespace in namespaces and (key == _ANY or labels.get(key) == value):
                yield place


_NO_TERMS: Final[Set[PodAffinityTerm]] = frozenset()


def _number_of(term: PodAffinityTerm) -> int:
    number = _NUMBER_OF.get(term)
    if number is None:
        number = _NUMBER_OF[term] = next(_NUMBERS)
    return number


class CarriedTerms:
    """Two indexes over the terms of the pods on nodes. Terms whose pods have all been removed may remain;
    they count no pod.

    `anti`: terms of required anti-affinity. `scored`: terms that change scores for other pods.
    """

    def __init__(self, *, hard_weight: int) -> None:
        """`hard_weight`: the weight of a required affinity term in scores; 0: it does not count."""
        self._hard_weight = hard_weight
        self._values: Dictionary[PodAffinity] | None = None
        self._promised: Dictionary[PodAffinity] | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._known = 1
        self._promised_known = 1
        self._stanzas: dict[PodAffinityTerm, set[int]] = {}
        self.anti: TermIndex[Carriers] = TermIndex(lambda terms: anti_terms(terms, self))
        self.scored: TermIndex[Voices] = TermIndex(lambda terms: voices_of(terms, self, self._hard_weight))

    def catch_up(self, pods: PodTable) -> None:
        """Add the stanzas that have appeared in the table since the last call."""
        values = pods.readings(READING, terms_of)
        if values is not self._values or self._known < len(values.values):
            self._follow(values)

    def take_in(self, coming: PodChanges) -> None:
        """Add the terms of pods that a what-if question adds, such as nominated pods. Their terms will match
        the same pods once these pods run.
        """
        if not len(coming):
            return
        values = coming.table.readings(READING, terms_of)
        if values is not self._promised:
            self._promised, self._promised_known = values, 1
        for carried in values.values[self._promised_known :]:
            if carried is not None:
                self._add(carried)
        self._promised_known = len(values)

    def with_any(self, terms: Iterable[PodAffinityTerm], values: Dictionary[PodAffinity]) -> Iterable[int]:
        """Return the codes of the stanzas that have one of `terms`; all codes for a table that is not
        followed.
        """
        if values is not self._values:
            return range(1, len(values))
        self._follow(values)
        return set().union(*(self._stanzas.get(term, ()) for term in terms))

    def _follow(self, values: Dictionary[PodAffinity]) -> None:
        if values is not self._values:
            # Another table, or the column was built again because most of its stanzas had disappeared.
            self._values = values
            self._begin_anew()
        while self._known < len(values):
            carried = values.values[self._known]
            if carried is not None:
                self._add(carried)
                for term in carried.terms:
                    self._stanzas.setdefault(term, set()).add(self._known)
            self._known += 1

    def _add(self, carried: PodAffinity) -> None:
        said = [term for term, _ in (*carried.preferred, *carried.preferred_anti)]
        if self._hard_weight:
            said.extend(carried.required)
        for term in carried.required_anti:
            self.anti.add(term)
        for term in said:
            self.scored.add(term)
