"""The figures of one workload as values; the shape of one line of `-o json`.

Made by `running` in the workload's own process, printed by `rendering.bench`. `measuring` defines each
figure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Pods per second: the average over the whole window, and percentiles over its seconds."""

    avg: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFigures:
    """Figures of one plugin at one call, in the measured window. `point`: for example `Filter`; bytes are 0
    for an in-process plugin.
    """

    plugin: str
    point: str
    calls: int
    total_ms: float
    bytes_sent: int
    bytes_received: int

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`."""
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
    """The measured figures. `pods`: measured pods; `bound`: how many of them got a node; `nodes`: nodes in
    the cluster; `nominated`: how many of the pods were nominated to a node, and how many per second.
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
    children_cpu_ms_per_pod: float
    peak_rss_mb: float
    nodes_evaluated_per_pod: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The sizes of the process and its queue at one moment of the op `runPods`.

    `after_s`: seconds since the op began. `bound_per_s`: since the sample before. `created` and `ended`: pods
    so far. `queued`: pods in the host's queue. `tasks`: of the event loop. `objects`: allocated blocks of
    the interpreter, which all Python objects are made of. `rss_mb`: resident memory, in 1024 * 1024 bytes.
    """

    after_s: float
    bound_per_s: float
    created: int
    ended: int
    queued: int
    tasks: int
    objects: int
    rss_mb: float

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`."""
        return asdict(self) | {
            name: round(getattr(self, name), 1) for name in ("after_s", "bound_per_s", "rss_mb")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one workload. `threshold`: pods/s, None: the workload has none. `notes`: further
    information, a sentence each. `gpu_share`: the share of the nodes' GPUs in use at the end (0..1), None:
    not measured. `config`: the configuration file, if several were given. `lapses`: rules of the
    configuration that did not always run; the notes contain them too. `failed_plugins`: required plugins that
    never answered or were quarantined. `levels`: samples of the op `runPods`; empty without one.
    """

    workload: str
    figures: Figures
    threshold: float | None = None
    notes: tuple[str, ...] = field(default=())
    gpu_share: float | None = None
    config: str = ""
    lapses: tuple[str, ...] = ()
    failed_plugins: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()

    @property
    def title(self) -> str:
        """The name of the workload, with its configuration if several were given."""
        return f"{self.workload} ({self.config})" if self.config else self.workload

    @property
    def ratio(self) -> float | None:
        """The average rate divided by the threshold; None without a threshold."""
        return self.figures.rate.avg / self.threshold if self.threshold else None

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`. `command`: the command that runs this workload alone."""
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
            "children_cpu_ms_per_pod": round(own.children_cpu_ms_per_pod, 3),
            "peak_rss_mb": round(own.peak_rss_mb, 1),
            "nodes_evaluated_per_pod": round(own.nodes_evaluated_per_pod, 1),
            "threshold": self.threshold,
            "ratio": None if ratio is None else round(ratio, 3),
            **({"levels": [level.as_json() for level in self.levels]} if self.levels else {}),
            "command": command,
        }
