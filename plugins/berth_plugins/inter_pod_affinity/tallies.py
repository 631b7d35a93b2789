"""The counts that InterPodAffinity keeps per node: pods that its terms match, and pods with terms of their
own.

Each count is a `Tally` of `PodCounts`: one number per node, updated with the changes of pods, shared by all
pods that need the same count. Used by `inter_pod_affinity`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.selected_pods import SelectedPods, labels_kind
from berth_sdk.tables import Dictionary, PodTable
from berth_sdk.tables.pod_table import SharedReading
from numpy.typing import NDArray

READING: Final = "InterPodAffinity/terms"
"""The name of the column of `PodTable` with each pod's terms."""


def _terms_of(pod: Pod) -> PodAffinity | None:
    return pod.pod_affinity


terms_of: Final = SharedReading(_terms_of, "pod_affinity")
"""Returns the terms of a pod, for the column `READING`. None: the pod has none."""


@dataclass(frozen=True, slots=True)
class InAll:
    """Counts the pods that every one of `parts` selects, one each."""

    parts: tuple[SelectedPods, ...]

    def of(self, pod: Pod) -> int:
        """Return 1 for a pod that every part selects, else 0."""
        return int(all(part.selects(pod) for part in self.parts))

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        """The function that reads what `of` follows from, for `berth_sdk.tables.KindTally`."""
        return labels_kind

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        """Return int64[number of pods]."""
        result = self.parts[0].over(pods)
        for part in self.parts[1:]:
            if not result.any():
                break
            result = result * part.over(pods)
        return result


@dataclass(frozen=True, slots=True)
class _AntiTerms:
    terms: frozenset[PodAffinityTerm]

    def __call__(self, carried: PodAffinity) -> int:
        return sum(term in self.terms for term in carried.required_anti)


@dataclass(frozen=True, slots=True)
class _TermScores:
    terms: frozenset[PodAffinityTerm]
    hard_weight: int

    def __call__(self, carried: PodAffinity) -> int:
        total = self.hard_weight * sum(term in self.terms for term in carried.required)
        total += sum(weight for term, weight in carried.preferred if term in self.terms)
        return total - sum(weight for term, weight in carried.preferred_anti if term in self.terms)


@dataclass(frozen=True, slots=True)
class _ScoredTerms:
    terms: frozenset[PodAffinityTerm]
    with_required: bool

    def __call__(self, carried: PodAffinity) -> int:
        total = sum(term in self.terms for term in carried.required) if self.with_required else 0
        total += sum(term in self.terms for term, _ in carried.preferred)
        return total + sum(term in self.terms for term, _ in carried.preferred_anti)


class Stanzas(Protocol):
    """Finds the stanzas that have a term."""

    def with_any(self, terms: Iterable[PodAffinityTerm], values: Dictionary[PodAffinity]) -> Iterable[int]:
        """Return the codes of the stanzas in `values` that have one of `terms`, and possibly others."""
        ...


@dataclass(frozen=True, slots=True)
class Carriers:
    """Counts pods by the weight of their terms. As `PodsWith`, but reads only the stanzas that have one of
    the terms.
    """

    weigh: _AntiTerms | _TermScores | _ScoredTerms
    stanzas: Stanzas = field(compare=False)

    def of(self, pod: Pod) -> int:
        """Return the count of one pod. Most pods have other terms, or none."""
        carried = terms_of(pod)
        return 0 if carried is None or self.weigh.terms.isdisjoint(carried.terms) else self.weigh(carried)

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        """The function that reads what `of` follows from, for `berth_sdk.tables.KindTally`."""
        return terms_of

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        """Return int64[number of pods]."""
        codes, values = pods.encoded(READING, terms_of)
        weights = np.zeros(len(values), dtype=np.int64)
        for code in self.stanzas.with_any(self.weigh.terms, values):
            carried = values.values[code]
            if carried is not None:
                weights[code] = self.weigh(carried)
        return weights.take(codes)


def anti_terms(terms: frozenset[PodAffinityTerm], stanzas: Stanzas) -> Carriers:
    """Return a tally that counts for each pod how many of `terms` are in its required anti-affinity."""
    return Carriers(_AntiTerms(terms), stanzas)


class Voices(NamedTuple):
    """The effect of pods' terms on a domain.

    `scores`: each pod counts the sum over its terms: the weights of preferred affinity, minus those of
    preferred anti-affinity, plus a weight for each required affinity term. `number`: how many of its terms
    count, with any weight.
    """

    scores: Carriers
    number: Carriers


def voices_of(terms: frozenset[PodAffinityTerm], stanzas: Stanzas, hard_weight: int) -> Voices:
    """Return the tallies for `terms`. `hard_weight`: the weight of a required affinity term; 0: it does not
    count.
    """
    return Voices(
        Carriers(_TermScores(terms, hard_weight), stanzas),
        Carriers(_ScoredTerms(terms, hard_weight > 0), stanzas),
    )


def in_every_namespace(term: PodAffinityTerm, *, exact: bool) -> bool:
    """Return True if a term of the pod to be scheduled selects all namespaces, whatever their labels are.

    An empty selector does. kube-scheduler 1.36 (`exact` False) keeps the selector beside the resolved names,
    and later matches it against no labels. So there every selector without a positive requirement, such as
    NotIn, selects all namespaces.
    """
    return term.namespace_selector.requirements == () if exact else term.namespace_selector.matches({})


def selected(
    term: PodAffinityTerm, namespaces: Mapping[str, Mapping[str, str]], *, exact: bool
) -> SelectedPods:
    """Return the pods that a term of the pod to be scheduled matches, with its namespace selector resolved.

    `namespaces`: the labels of each. `exact`: as for `in_every_namespace`.
    """
    if in_every_namespace(term, exact=exact):
        return SelectedPods(None, term.selector)
    if term.namespace_selector.requirements is None:
        return SelectedPods(term.namespaces, term.selector)
    found = (name for name, labels in namespaces.items() if term.namespace_selector.matches(labels))
    return SelectedPods(term.namespaces.union(found), term.selector)
