"""PodDisruptionBudgets -> which potential victims would break one. Called by `victims`.

Source: kube-scheduler `framework/preemption/util.go` (FilterVictimsWithPDBViolation), v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from berth_sdk.errors import SelectorError
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector
from berth_sdk.tables import Dictionary, PodTable
from numpy.typing import NDArray

from berth_host.config.host_rules import RULES_1_37, HostRules


class BudgetStore(Protocol):
    """The existing PodDisruptionBudgets."""

    @property
    def version(self) -> int:
        """A number that changes with every change of a budget."""
        ...

    def list(self, namespace: str | None = None) -> list[KubeObject]:
        """Return all budgets, or those of one namespace."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """One PodDisruptionBudget. `disrupted`: pods whose eviction the budget has counted already. `rules`:
    those of the version.
    """

    namespace: str
    selector: LabelSelector
    allowed: int
    disrupted: frozenset[str]
    rules: HostRules = RULES_1_37

    def selects(self, pods: _Rows) -> NDArray[np.bool_]:
        """Return bool[v]: the pods that the budget covers. Upstream leaves out pods without labels."""
        matching = pods.matching(self.selector) if self.selector.is_long else self.selector.over(pods)
        mask = matching & pods.in_namespace(self.namespace)
        if not self.rules.counts_empty_budgets:
            mask &= pods.have_labels()
        if self.disrupted:
            for at in np.flatnonzero(mask).tolist():
                mask[at] = pods.name(at) not in self.disrupted
        return mask


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of a table of pods, in the form that a selector reads."""

    pods: PodTable
    rows: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.rows)

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        codes, values = self.pods.label(key)
        return codes.take(self.rows), values

    def matching(self, selector: LabelSelector) -> NDArray[np.bool_]:
        """Return `selector.over(self)`, with one test for each distinct set of labels."""
        codes, values = self.pods.encoded("berth/labels", _labels)
        return values.where(lambda labels: selector.matches(dict(labels))).take(codes.take(self.rows))

    def in_namespace(self, namespace: str) -> NDArray[np.bool_]:
        return np.equal(self.pods.namespace.take(self.rows), self.pods.namespaces.find(namespace))

    def have_labels(self) -> NDArray[np.bool_]:
        codes, _ = self.pods.encoded("berth/hasLabels", _has_labels)
        return np.greater(codes.take(self.rows), 0)

    def name(self, at: int) -> str:
        return self.pods.pod(self.rows.item(at)).name


class Budgets:
    """The budgets, read again when a budget has changed. `rules`: those of the version."""

    def __init__(self, store: BudgetStore, rules: HostRules) -> None:
        self._store = store
        self._rules = rules
        self._version: int | None = None
        self._known: tuple[Budget, ...] = ()

    def read(self) -> tuple[Budget, ...]:
        """Return the budgets that can select a pod. An invalid or missing selector selects none, and for
        upstream an empty one neither.
        """
        version = self._store.version
        if version != self._version:
            self._known = tuple(_budgets(self._store.list(), self._rules))
            self._version = version
        return self._known


def violating(
    budgets: Iterable[Budget], pods: PodTable, rows: NDArray[np.intp], starts: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return bool[v]: the victims in `rows` whose eviction, after that of the earlier victims of their node,
    breaks a budget.

    `rows` (intp[v]): node after node, most important victim first. `starts`: as in `PodChanges`.
    """
    broken = np.zeros(len(rows), dtype=np.bool_)
    first = np.repeat(starts[:-1], np.diff(starts))
    victims = _Rows(pods, rows)
    for budget in budgets:
        selected = budget.selects(victims)
        if budget.rules.ends_count_at_broken_budget:
            selected &= ~broken
        if not selected.any():
            continue
        so_far = np.concatenate([[0], np.cumsum(selected)])
        on_node = so_far[1:] - so_far[first]
        broken |= selected & (on_node > budget.allowed)
    return broken


def _has_labels(pod: Pod) -> bool | None:
    return bool(pod.labels) or None


def _labels(pod: Pod) -> frozenset[tuple[str, str]]:
    return frozenset(pod.labels.items())


def _budgets(objects: Iterable[KubeObject], rules: HostRules) -> Iterable[Budget]:
    for item in objects:
        try:
            raw: Mapping[str, Any] | None = item.get("spec.selector")
            selector = LabelSelector.of(raw, "spec.selector")
        except SelectorError:
            continue
        if raw is None or (selector.is_empty and not rules.counts_empty_budgets):
            continue
        yield Budget(
            item.ref.namespace or "default",
            selector,
            item.get("status.disruptionsAllowed") or 0,
            frozenset(item.get("status.disruptedPods") or ()),
            rules,
        )
