"""Counts of the pods in each domain that matter to the pod to be scheduled, and Filter's verdicts.

Made once per cycle by `inter_pod_affinity`. What-if questions add their changes to the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.selected_pods import weights_over
from berth_sdk.slices import Work
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, PodChanges, changed_by
from numpy.typing import NDArray

from berth_plugins.inter_pod_affinity.tallies import READING, terms_of
from berth_plugins.inter_pod_affinity.wishes import Wishes

REASON_AFFINITY: Final = Status.unresolvable("node(s) didn't match pod affinity rules")
REASON_ANTI_AFFINITY: Final = Status.unschedulable("node(s) didn't match pod anti-affinity rules")
REASON_EXISTING: Final = Status.unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

Numbers = NDArray[np.int64]
ByKey = Mapping[str, Numbers]
"""By topology key: int64[codes of the label], or, for what-if questions, int64[number of scenarios]."""


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """The changes of m scenarios on their nodes: int64[m] each."""

    affinity: Numbers
    anti: ByKey
    existing: ByKey


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Counts by domain.

    - `affinity`: pods that all required terms match, by each term's key.
    - `anti`: pods that a required anti-affinity term matches.
    - `existing`: terms of other pods' required anti-affinity that match `pod`; only keys with any.
    - `namespace_labels`: the labels of the pod's namespace.
    """

    pod: Pod
    wishes: Wishes
    namespace_labels: Mapping[str, str]
    affinity: ByKey
    anti: ByKey
    existing: ByKey

    def judge(self, nodes: NodeTable, changes: Changes | None = None) -> Verdicts:
        """Return one verdict per row. `changes`: of as many scenarios as there are rows."""
        verdicts = Verdicts.feasible(len(nodes))
        if self.wishes.required:
            wanted = self._wanted(nodes) if changes is None else self._still_wanted(nodes, changes)
            verdicts = verdicts.otherwise(~wanted, REASON_AFFINITY)
        if self.anti:
            crowded = _present(nodes, self.anti, None if changes is None else changes.anti)
            verdicts = verdicts.otherwise(crowded, REASON_ANTI_AFFINITY)
        if self.existing or (changes is not None and changes.existing):
            unwelcome = _present(nodes, self.existing, None if changes is None else changes.existing)
            verdicts = verdicts.otherwise(unwelcome, REASON_EXISTING)
        return verdicts

    def changes(self, scenarios: Scenarios) -> Work[Changes]:
        """Return the effect of removed and added pods on the counts of each scenario's node."""
        nobody = np.zeros(len(scenarios), dtype=np.int64)
        removed, added = scenarios.removed, scenarios.added
        affinity = changed_by(self.wishes.together, removed, added) if self.wishes.required else nobody
        anti: dict[str, Numbers] = {}
        for key, tallies in self.wishes.anti_by_key.items():
            if not has_label(scenarios.nodes, key):
                continue  # no node is in a domain
            anti[key] = nobody.copy()
            for sign, changes in ((-1, removed), (1, added)):
                if len(changes):
                    each = yield from weights_over(changes.table, ((tally, sign) for tally in tallies))
                    anti[key] += changes.total(each)
        existing: dict[str, Numbers] = {}
        for sign, changes in ((-1, removed), (1, added)):
            for key, numbers in self._unwelcoming(changes).items():
                existing[key] = existing.get(key, nobody) + sign * numbers
        return Changes(affinity, anti, existing)

    def _unwelcoming(self, changes: PodChanges) -> dict[str, Numbers]:
        """Return by topology key, int64[m]: the terms of these pods that exclude `pod`."""
        if not len(changes):
            return {}
        codes, stanzas = changes.table.encoded(READING, terms_of)
        weights: dict[str, Numbers] = {}
        for code in np.unique(codes.take(changes.rows)).tolist():
            carried = stanzas.values[code]
            for term in () if carried is None else carried.required_anti:
                if term.matches(self.pod.namespace, self.pod.labels, self.namespace_labels):
                    key = term.topology_key
                    weights.setdefault(key, np.zeros(len(stanzas), dtype=np.int64))[code] += 1
        return {key: changes.total(weight.take(codes)) for key, weight in weights.items()}

    def _wanted(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: where required affinity is met.

        It is met where the node has all keys and each of its domains has a matching pod. It is also met on a
        node with all keys if no domain has a matching pod and the pod matches its own terms.
        """
        first = not any(map(np.count_nonzero, self.affinity.values())) and self.wishes.welcome(self.pod)
        masks = []
        for key, sums in self.affinity.items():
            codes, _ = nodes.label(key)
            masks.append(codes != 0 if first else (sums > 0).take(codes))
        return _all_of(masks, len(nodes))

    def _still_wanted(self, nodes: NodeTable, changes: Changes) -> NDArray[np.bool_]:
        """Return `_wanted` with changes."""
        labelled = np.ones(len(nodes), dtype=np.bool_)
        company = np.ones(len(nodes), dtype=np.bool_)
        first = np.full(len(nodes), self.wishes.welcome(self.pod))
        for key, sums in self.affinity.items():
            codes, _ = nodes.label(key)
            has_key = codes != 0
            labelled &= has_key
            company &= sums.take(codes) + changes.affinity > 0
            first &= sums.sum() + changes.affinity * has_key == 0
        met: NDArray[np.bool_] = labelled & (company | first)
        return met


def has_label(nodes: NodeTable, key: str) -> bool:
    """Return False if no node of the snapshot has the label: then it has no domains."""
    return len(nodes.label(key)[1]) > 1


def _present(nodes: NodeTable, sums: ByKey, changes: ByKey | None) -> NDArray[np.bool_]:
    """Return bool[n]: rows with any of a key's pods in their domain."""
    masks = []
    for key in sums if changes is None else {**sums, **changes}:
        codes, _ = nodes.label(key)
        if changes is None:
            # Rows without the label have none: the sum of code 0 is 0.
            masks.append((sums[key] > 0).take(codes))
            continue
        here = sums[key].take(codes) if key in sums else np.zeros(len(nodes), dtype=np.int64)
        if key in changes:
            here = here + changes[key]
        masks.append((here > 0) & (codes != 0))
    return reduce(np.logical_or, masks)


def _all_of(masks: list[NDArray[np.bool_]], count: int) -> NDArray[np.bool_]:
    """Return bool[count]: the rows that are true in every mask. No mask: all rows."""
    if not masks:
        return np.ones(count, dtype=np.bool_)
    result = masks[0]
    for mask in masks[1:]:
        result = result & mask
    return result
