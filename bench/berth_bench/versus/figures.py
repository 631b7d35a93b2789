"""Turns -> medians and ratios of medians; the shape of one line of `-o json`.

Made by `yard`, printed by `rendering.versus`. CPU and memory are those of the scheduler's process; what a
plugin's or an extender's process uses beside it stands apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of one contender over pods that waited.

    `pods_per_s` and CPU: from the first pod that is bound to the last. `memory_mb`: the most that it had
    until then. `beside_...`: of the plugin's or the extender's process, 0 without one. `servers_...`: of etcd
    and the API server. `startup_s`: from the scheduler's start to the first bind; `load`: of the machine in
    the last minute.
    """

    pods_per_s: float
    cpu_ms_per_pod: float
    memory_mb: float
    beside_cpu_ms_per_pod: float
    beside_memory_mb: float
    servers_cpu_ms_per_pod: float
    startup_s: float
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One run over pods made one by one on the idle cluster: ms from the request that makes one until its
    node is seen.
    """

    p50_ms: float
    p99_ms: float
    worst_ms: float
    cpu_ms_per_pod: float
    load: float


Figures = TypeVar("Figures", Turn, Latency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All turns of one contender in one workload; either kind may be empty."""

    contender: str
    turns: tuple[Turn, ...] = ()
    latencies: tuple[Latency, ...] = ()

    @property
    def median(self) -> Turn | None:
        """The median of each figure on its own; None without a turn."""
        return _median(self.turns)

    @property
    def median_latency(self) -> Latency | None:
        """The same of the latencies."""
        return _median(self.latencies)

    def as_json(self) -> dict[str, Any]:
        """A contender of a line."""
        shown: dict[str, Any] = {"contender": self.contender}
        if (median := self.median) is not None:
            shown |= {"median": _rounded(median), "turns": [_rounded(turn) for turn in self.turns]}
        if (latency := self.median_latency) is not None:
            shown |= {"latency": _rounded(latency), "latencies": [_rounded(one) for one in self.latencies]}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """berth's median pods/s over another's, and its CPU ms per pod over the other's. Above 1 in `pods_per_s`
    and below 1 in `cpu`: berth does better. `cpu` is None where the other's was too little to be seen.
    """

    contender: str
    over: str
    pods_per_s: float
    cpu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One workload, the standings in the order of its contenders: the first is berth."""

    workload: str
    nodes: int
    pods: int
    standings: tuple[Standing, ...]

    @property
    def ratios(self) -> list[Ratio]:
        """Of the first contender over each of the others; empty without turns."""
        first, *others = self.standings
        own = first.median
        found = []
        for other in others:
            median = other.median
            if own is not None and median is not None:
                found.append(
                    Ratio(
                        contender=first.contender,
                        over=other.contender,
                        pods_per_s=own.pods_per_s / median.pods_per_s,
                        cpu=own.cpu_ms_per_pod / median.cpu_ms_per_pod if median.cpu_ms_per_pod else None,
                    )
                )
        return found

    def as_json(self, command: str) -> dict[str, Any]:
        """One line of `-o json`; `command`: what runs this workload alone."""
        return {
            "workload": self.workload,
            "nodes": self.nodes,
            "pods": self.pods,
            "contenders": [standing.as_json() for standing in self.standings],
            "ratios": [_rounded(ratio) for ratio in self.ratios],
            "command": command,
        }


def _median(runs: Sequence[Figures]) -> Figures | None:
    if not runs:
        return None
    names = [field.name for field in fields(runs[0])]
    return type(runs[0])(**{name: statistics.median(getattr(run, name) for run in runs) for name in names})


def _rounded(record: Turn | Latency | Ratio) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(record).items()
    }
