"""`SelectedPods`: the pods of some namespaces that a label selector matches, for `PodCounts`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector, Operator
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
    _hash: int = field(init=False, repr=False, compare=False)
    _first: tuple[str, str] | None = field(init=False, repr=False, compare=False)
    """A label and the only value that a selected pod may have. None: no requirement gives one."""

    def __post_init__(self) -> None:
        # Computed once: every cycle looks a column up by this hash.
        object.__setattr__(self, "_first", _first_of(self.selector))
        object.__setattr__(self, "_hash", hash((self.namespaces, self.selector, self.exclude_terminating)))

    def __hash__(self) -> int:
        return self._hash

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
        mask = self.selector.over(pods)
        if self.namespaces is not None:
            mask = mask & pods.namespaces.members(self.namespaces).take(pods.namespace)
        if self.exclude_terminating:
            mask = mask & ~pods.terminating
        return mask.astype(np.int64)


def labels_kind(pod: Pod) -> Hashable:
    """Return the parts of a pod that `SelectedPods` reads."""
    return pod.namespace, pod.terminating, tuple(pod.labels.items())


def _first_of(selector: LabelSelector) -> tuple[str, str] | None:
    for one in selector.requirements or ():
        if one.operator is Operator.IN and len(one.values) == 1:
            return one.key, next(iter(one.values))
    return None
