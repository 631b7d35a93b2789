"""`SelectedPods`: the pods of some namespaces that a label selector matches, for `PodCounts`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector, Operator
from berth_sdk.slices import Work, at_once
from berth_sdk.tables import PodTable


@dataclass(frozen=True, slots=True)
class SelectedPods:
    """Counts the pods of some namespaces that a selector matches, one each. `namespaces` None: every
    namespace.

    Implements `berth_sdk.tables.Tally`. A null selector selects no pod, an empty one every pod.
    """

    namespaces: frozenset[str] | None
    selector: LabelSelector
    exclude_terminating: bool = False
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)
    _first: tuple[str, str] | None = field(init=False, repr=False, compare=False)
    """A label and the only value that a selected pod may have. None: no requirement gives one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_first", _first_of(self.selector))

    def __hash__(self) -> int:
        known = self._hash
        if known is None:
            # Computed once: every cycle looks a column up by this hash.
            known = hash((self.namespaces, self.selector, self.exclude_terminating))
            object.__setattr__(self, "_hash", known)
        return known

    def selects(self, pod: Pod) -> bool:
        """Return True if the pod is selected."""
        if self._first is not None and pod.labels.get(self._first[0]) != self._first[1]:
            return False  # most pods have another value
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        if self.exclude_terminating and pod.terminating:
            return False
        return self.selector.matches(pod.labels)

    def of(self, pod: Pod) -> int:
        """Return 1 for a selected pod, 0 for any other."""
        return int(self.selects(pod))

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        """The function that reads what `of` follows from, for `berth_sdk.tables.KindTally`."""
        return labels_kind

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        """Return int64[number of pods]: 1 if selected, else 0. Tests each distinct label value once."""
        return at_once(weights_over(pods, ((self, 1),)))


def weights_over(pods: PodTable, parts: Iterable[tuple[SelectedPods, int]]) -> Work[NDArray[np.int64]]:
    """Return int64[number of pods]: the sum of the weights of the parts that select each pod.

    Yields after each requirement. For lists of thousands of parts, which as tallies of `PodCounts` would take
    the place of everybody's columns.
    """
    total = np.zeros(len(pods), dtype=np.int64)
    everyone: dict[tuple[frozenset[str] | None, bool], int] = {}
    allowed: dict[tuple[frozenset[str] | None, bool], NDArray[np.bool_] | None] = {}
    for part, weight in parts:
        found = yield from part.selector.judged(pods)
        yield
        if found is False:
            continue
        key = (part.namespaces, part.exclude_terminating)
        if found is True:
            everyone[key] = everyone.get(key, 0) + weight
            continue
        if key not in allowed:
            allowed[key] = _allowed(pods, *key)
        mask = allowed[key]
        rows = np.flatnonzero(found if mask is None else found & mask)
        total[rows] += weight
    for key, weight in everyone.items():
        mask = allowed[key] if key in allowed else _allowed(pods, *key)
        if mask is None:
            total += weight
        else:
            total[mask] += weight
    return total


def _allowed(
    pods: PodTable, namespaces: frozenset[str] | None, exclude_terminating: bool
) -> NDArray[np.bool_] | None:
    """Return bool[number of pods]: the pods that parts may select, whatever their labels. None: all."""
    mask: NDArray[np.bool_] | None = None
    if namespaces is not None:
        mask = pods.namespaces.members(namespaces).take(pods.namespace)
    if exclude_terminating:
        mask = ~pods.terminating if mask is None else mask & ~pods.terminating
    return mask


def labels_kind(pod: Pod) -> Hashable:
    """Return the parts of a pod that `SelectedPods` reads."""
    return pod.namespace, pod.terminating, tuple(pod.labels.items())


def _first_of(selector: LabelSelector) -> tuple[str, str] | None:
    for one in selector.requirements or ():
        if one.operator is Operator.IN and len(one.values) == 1:
            return one.key, next(iter(one.values))
    return None
