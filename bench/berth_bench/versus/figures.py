"""Compute medians of turns and ratios of medians; the shape of one line of `-o json`.

Made by `yard`, printed by `rendering.versus`. CPU and memory are those of the scheduler's process; those of
the plugin's, the extender's or the shadow's process are separate figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of one contender over the pods of a workload.

    `pods_per_s` and CPU: from the first bound pod to the last. `memory_mb`: the maximum until then.
    `loop_...`: of the thread of berth's event loop, which alone decides and binds; 0 for others.
    `beside_...`: of the plugin's, the extender's or the shadow's process, 0 without one. `servers_...`: of
    etcd and the API server. `startup_s`: from the scheduler's start to the first binding, 0 for pods that
    arrive later. `load`: load average of the machine over the last minute.

    With a shadow beside, `beside_cpu_ms_per_pod` is from before the first pod until the shadow has compared
    the last one; `compared`: the share of the pods that the shadow tried before it saw their node; `agreed`:
    the share of its decisions that agree. Both are 0 without a shadow.
    """

    pods_per_s: float
    cpu_ms_per_pod: float
    loop_cpu_ms_per_pod: float
    memory_mb: float
    beside_cpu_ms_per_pod: float
    beside_memory_mb: float
    servers_cpu_ms_per_pod: float
    startup_s: float
    load: float
    compared: float = 0.0
    agreed: float = 0.0

    @property
    def loop_pods_per_s(self) -> float:
        """The pods per second with which the event loop's thread would be busy all the time; 0 for others."""
        return 1000 / self.loop_cpu_ms_per_pod if self.loop_cpu_ms_per_pod else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One run over pods created one by one on the idle cluster: ms from the request that creates a pod until
    its node is seen.
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
        """The median of each figure separately; None without a turn."""
        return _median(self.turns)

    @property
    def median_latency(self) -> Latency | None:
        """The median of each latency figure; None without a run."""
        return _median(self.latencies)

    def as_json(self) -> dict[str, Any]:
        """Return the contender's part of a line of `-o json`."""
        shown: dict[str, Any] = {"contender": self.contender}
        if (median := self.median) is not None:
            shown |= {"median": _rounded(median), "turns": [_rounded(turn) for turn in self.turns]}
        if (latency := self.median_latency) is not None:
            shown |= {"latency": _rounded(latency), "latencies": [_rounded(one) for one in self.latencies]}
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """berth's median pods/s divided by another contender's, and the same for CPU ms per pod: of the process,
    of the event loop's thread, and of the servers. berth is better if `pods_per_s` is above 1, and the others
    below 1. These are None if the other's are too small to measure; `loop_cpu` beside kube-scheduler.
    """

    contender: str
    over: str
    pods_per_s: float
    cpu: float | None
    loop_cpu: float | None
    servers_cpu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One workload with the results of its contenders, in order: the first is berth."""

    workload: str
    nodes: int
    pods: int
    standings: tuple[Standing, ...]

    @property
    def ratios(self) -> list[Ratio]:
        """The ratios of the first contender to each of the others; empty without turns."""
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
                        cpu=_over(own.cpu_ms_per_pod, median.cpu_ms_per_pod),
                        loop_cpu=_over(own.loop_cpu_ms_per_pod, median.loop_cpu_ms_per_pod),
                        servers_cpu=_over(own.servers_cpu_ms_per_pod, median.servers_cpu_ms_per_pod),
                    )
                )
        return found

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`. `command`: the command that runs this workload alone."""
        return {
            "workload": self.workload,
            "nodes": self.nodes,
            "pods": self.pods,
            "contenders": [standing.as_json() for standing in self.standings],
            "ratios": [_rounded(ratio) for ratio in self.ratios],
            "command": command,
        }


def _over(own: float, other: float) -> float | None:
    return own / other if other else None


def _median(runs: Sequence[Figures]) -> Figures | None:
    if not runs:
        return None
    names = [field.name for field in fields(runs[0])]
    return type(runs[0])(**{name: statistics.median(getattr(run, name) for run in runs) for name in names})


def _rounded(record: Turn | Latency | Ratio) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(record).items()
    }
