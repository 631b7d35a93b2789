"""The figures of one workload, as values; the shape of one line of `-o json`.

Made by `running` in the workload's own process, printed by `rendering.bench`. `measuring` says the
meaning of each figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Pods per second: over the whole window, and of its seconds."""

    avg: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFigures:
    """One plugin at one call, in the measured window. `point`: `Filter`; bytes are 0 in process."""

    plugin: str
    point: str
    calls: int
    total_ms: float
    bytes_sent: int
    bytes_received: int

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
        return {
            "plugin": self.plugin,
            "point": self.point,
            "calls": self.calls,
            "ms_total": round(self.total_ms, 3),
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measured figures. `pods`: those measured, `bound`: of these, with a node; `nodes`: in the cluster;
    `nominated`: of the pods, those that preemption promised a node, so many of them per second.
    """

    nodes: int
    pods: int
    bound: int
    nominated: int
    nominated_per_s: float
    rate: Rate
    cycle_p50_ms: float
    cycle_p99_ms: float
    plugins: tuple[PluginFigures, ...]
    cpu_ms_per_pod: float
    peak_rss_mb: float
    nodes_evaluated_per_pod: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload. `threshold`: pods/s, None: the workload has none. `notes`: what else to know, a sentence
    each; `gpu_share`: of the nodes' GPUs, how much is in use at the end (0..1), None where it was not asked.
    `config`: the file that it ran with, where several were given. `later_thresholds`: pods/s by the later
    version of Kubernetes that asks for them. `lapses`: rules that did not run, or not
    always; the notes have them.
    """

    workload: str
    figures: Figures
    threshold: float | None = None
    notes: tuple[str, ...] = field(default=())
    gpu_share: float | None = None
    config: str = ""
    later_thresholds: Mapping[str, float] = field(default_factory=dict)
    lapses: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The workload, told apart from its runs with other configurations."""
        return f"{self.workload} ({self.config})" if self.config else self.workload

    @property
    def ratio(self) -> float | None:
        """The average rate by the threshold."""
        return self.figures.rate.avg / self.threshold if self.threshold else None

    def later_ratio(self, version: str) -> float | None:
        """The same by a later version's threshold."""
        threshold = self.later_thresholds.get(version)
        return self.figures.rate.avg / threshold if threshold else None

    def as_json(self, command: str) -> dict[str, Any]:
        """One line of `-o json`; `command`: what runs this workload alone."""
        own, ratio = self.figures, self.ratio
        return {
            "workload": self.workload,
            "nodes": own.nodes,
            "pods": own.pods,
            "bound": own.bound,
            "pods_per_s": {
                "avg": round(own.rate.avg, 1),
                "p50": round(own.rate.p50, 1),
                "p99": round(own.rate.p99, 1),
            },
            "nominated": own.nominated,
            "nominated_per_s": round(own.nominated_per_s, 1),
            "cycle_ms": {"p50": round(own.cycle_p50_ms, 3), "p99": round(own.cycle_p99_ms, 3)},
            "plugins": [plugin.as_json() for plugin in own.plugins],
            "cpu_ms_per_pod": round(own.cpu_ms_per_pod, 3),
            "peak_rss_mb": round(own.peak_rss_mb, 1),
            "nodes_evaluated_per_pod": round(own.nodes_evaluated_per_pod, 1),
            "threshold": self.threshold,
            "ratio": None if ratio is None else round(ratio, 3),
            "later_thresholds": {
                version: {"threshold": threshold, "ratio": round(own.rate.avg / threshold, 3)}
                for version, threshold in self.later_thresholds.items()
            },
            "command": command,
        }
