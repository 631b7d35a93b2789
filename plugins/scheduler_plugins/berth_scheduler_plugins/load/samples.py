"""`Sample`: the load of nodes as one read of a source gave it, and its columns over a table of nodes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

CPU, MEMORY, GPU = "CPU", "Memory", "GPU"
"""The types of metrics, spelled as load-watcher does."""
AVERAGE, DEVIATION, LATEST, UNNAMED = "AVG", "STD", "Latest", ""
"""The operators of metrics, spelled as load-watcher does."""


class Metric(NamedTuple):
    """One value of a node. `kind` and `operator`: see above. `value`: percent of what the node has.

    `is_amount` True: `value` is an amount, cpu in milli and memory in bytes.
    """

    kind: str
    operator: str
    value: float
    is_amount: bool = False


class Prefer(Enum):
    """The value that counts as the load of a node."""

    LAST_NAMED = 1
    """The last average or latest value in the list."""
    AVERAGE = 2
    """The average; without one, the last value that is latest or has no operator."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The metrics of nodes. `end_s`: Unix seconds at which the measured time ends; None: not known.

    `nodes`: the metrics of each node by its name, in the source's order. `ends_s`: for nodes whose time
    differs from `end_s`.
    """

    end_s: float | None
    nodes: Mapping[str, Sequence[Metric]]
    ends_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class LoadColumns:
    """One kind of load of n nodes, as fractions of what a node has. nan: there is no such value."""

    average: NDArray[np.float64]
    deviation: NDArray[np.float64]


class SampleColumns:
    """The columns of the latest sample, by slot of the snapshot. Another sample makes them anew.

    `kinds`: resource of the nodes by kind of metric, which turns amounts into fractions.
    """

    def __init__(self, kinds: Mapping[str, str], prefer: Prefer) -> None:
        self._kinds = kinds
        self._prefer = prefer
        self._sample: Sample | None = None
        self._identity: Hashable = None
        self._columns: dict[str, LoadColumns] = {}
        self._is_there: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def has_metrics(self, sample: Sample, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes that the sample has any metric of."""
        self._follow(sample, nodes)
        return self._is_there[nodes.slots]

    def of(self, kind: str, sample: Sample, nodes: NodeTable) -> LoadColumns:
        """Return the load of the n nodes of one kind."""
        self._follow(sample, nodes)
        columns = self._columns[kind]
        return LoadColumns(columns.average[nodes.slots], columns.deviation[nodes.slots])

    def _follow(self, sample: Sample, nodes: NodeTable) -> None:
        # Amounts become fractions of what the node offers.
        identity = nodes.node_version
        if sample is self._sample and identity == self._identity:
            return
        self._sample, self._identity = sample, identity
        whole, count = nodes.whole, nodes.slot_count
        self._is_there = np.zeros(count, dtype=np.bool_)
        names = list(sample.nodes)
        slots = np.array(nodes.slots_of(names), dtype=np.intp)
        known = [
            (slot, sample.nodes[name]) for slot, name in zip(slots.tolist(), names, strict=True) if slot >= 0
        ]
        for slot, metrics in known:
            self._is_there[slot] = bool(metrics)
        for kind, resource in self._kinds.items():
            offered = np.zeros(count, dtype=np.float64)
            offered[whole.slots] = whole.allocatable(resource)
            average, deviation = np.full(count, np.nan), np.full(count, np.nan)
            for slot, metrics in known:
                average[slot], deviation[slot] = self._values(kind, metrics, offered.item(slot))
            self._columns[kind] = LoadColumns(average, deviation)

    def _values(self, kind: str, metrics: Sequence[Metric], offered: float) -> tuple[float, float]:
        named, unnamed, deviation = np.nan, np.nan, np.nan
        for metric in metrics:
            if metric.kind != kind:
                continue
            value = metric.value / 100
            if metric.is_amount:
                value = metric.value / offered if offered > 0 else np.nan
            if metric.operator == DEVIATION:
                deviation = value
            elif metric.operator == AVERAGE or (
                metric.operator == LATEST and self._prefer is Prefer.LAST_NAMED
            ):
                named = value
            elif metric.operator in (LATEST, UNNAMED) and self._prefer is Prefer.AVERAGE:
                unnamed = value
        return (unnamed if np.isnan(named) else named), deviation
