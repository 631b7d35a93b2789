"""The tables of the page: for each row the command, and for each kind of command how its lines become rows.

Called by the command. A command may give several rows, as `versus` gives one for each scheduler.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Cells = tuple[str, ...]
Line = Mapping[str, Any]
_CASES_5000: Final = (
    ("misc", "SchedulingBasic/5000Nodes_10000Pods"),
    ("topology_spreading", "TopologySpreading/5000Nodes_5000Pods"),
    ("topology_spreading", "PreferredTopologySpreading/5000Nodes_5000Pods"),
    ("topology_spreading", "SchedulingWithNodeInclusionPolicy/5000Nodes"),
    ("affinity", "SchedulingPodAffinity/5000Nodes_5000Pods"),
    ("affinity", "SchedulingPodAntiAffinity/5000Nodes_2000Pods"),
    ("affinity", "SchedulingPreferredPodAffinity/5000Nodes_5000Pods"),
    ("affinity", "SchedulingPreferredPodAntiAffinity/5000Nodes_5000Pods"),
    ("affinity", "SchedulingNodeAffinity/5000Nodes_10000Pods"),
    ("affinity", "MixedSchedulingBasePod/5000Nodes_5000Pods"),
    ("default_preemption", "PreemptionAsync/5000Nodes"),
    ("misc", "SchedulingWithMixedChurn/5000Nodes_10000Pods"),
)
_DEVICES: Final = (
    ("dra", "SchedulingWithResourceClaimTemplate/5000pods_500nodes"),
    ("dra", "SchedulingWithResourceClaimTemplate/empty_500nodes"),
    ("dra/extendedresource", "ExtendedResource/Explicit_25classes_5000pods_500nodes"),
    ("dra/extendedresource", "ExtendedResource/Explicit_50classes_5000pods_500nodes"),
    ("dra/extendedresource", "ExtendedResource/Implicit_25classes_5000pods_500nodes"),
    ("dra/extendedresource/scoring", "ExtendedResourceScoring/5000pods_500nodes"),
    ("dra/partitionabledevices", "Partitionable/half_500nodes"),
    ("dra/partitionabledevices", "PartitionableBacktracking/half_500nodes"),
    ("dra/consumablecapacity", "ConsumableCapacity/full_500nodes"),
)
_GANGS: Final = ("TopologyGangs/5000Nodes", "TopologyGangs/Served5000Nodes", "HeroGang/4900Nodes")
_GANG_CASES: Final = (
    ("podgroup/gangscheduling", "GangScheduling/5000Nodes_1000Gangs_3000Pods"),
    ("podgroup/gangscheduling", "GangScheduling/5000Nodes_3Gangs_3000Pods_1000PerGroup"),
    ("podgroup/tas", "TopologyAwareScheduling/5000Nodes_750Gangs_3000Pods"),
    ("podgroup/tas", "TopologyAwareScheduling/5000Nodes_3Gangs_3000Pods_1000PerGroup"),
    ("workload_preemption", "GangPreemptionBasic/100Nodes_1PreemptorGang_100Pods_Evicting_1000InitPods"),
    ("workload_preemption", "GangPreemptionAffinity/100Nodes_1PreemptorGang_100Pods_Evicting_1000InitPods"),
)
_GANG_CASES_1_38: Final = (
    ("podgroup/tas", "GangTopologyAwareScheduling/5000Nodes_50Racks_750Groups_3000Pods"),
    ("podgroup/tas", "GangTopologyAwareScheduling/5000Nodes_50Racks_3Groups_3000Pods_1000PerGroup"),
    ("workload_preemption", "GangPreemptionHeroWorkload/4900Nodes_Hero2450Pods_60PctOccupied"),
)
_OF_1_38: Final = ("--release", "1.38.0-beta.0", "--emulated-version", "1.38")
_KINDS: Final = ("Plain", "Spread", "AntiAffinity", "Gangs", "ServedByNode", "Served")
_SIZES: Final = (5000, 15000, 50000)
_BESIDE: Final = (
    *("Plain/1000Nodes", "Plain/5000Nodes", "SixtyKinds/5000Nodes", "OwnLabels/5000Nodes"),
    *("ZoneSpread/5000Nodes", "AntiAffinity/5000Nodes", "NodeAffinity/5000Nodes", "PodGroups/5000Nodes"),
)
_DIVERSE: Final = tuple(
    f"Diverse/{kind}{which}5000Nodes"
    for kind in ("Plain", "Spread", "AntiAffinity")
    for which in ("OneKind", "60Kinds", "OwnLabels")
)
_SERVED: Final = (
    *(
        "RemotePlugin/5000Nodes",
        "DeclaredByNode/5000Nodes",
        "DeclaredByRow/5000Nodes",
        "DeclaredInGo/5000Nodes",
        "RemoteInGo/5000Nodes",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table. `commands`: the words after `berth bench`, each command a tuple. `cells`: the rows of one
    line of `-o json`, without command and date.
    """

    name: str
    header: Cells
    commands: tuple[Cells, ...]
    cells: Callable[[Line], Iterator[Cells]]

    @property
    def columns(self) -> Cells:
        """The titles of all columns."""
        return (*self.header, "command", "date")


def shown(command: Sequence[str]) -> str:
    """Return a command as the page shows it."""
    return f"`{shlex.join(['berth', 'bench', *command])}`"


def _embedded(line: Line) -> Iterator[Cells]:
    ratio = line["ratio"]
    yield (
        line["workload"],
        _whole(line["pods_per_s"]["avg"]),
        "-" if ratio is None else f"{ratio:.1f}",
        f"{line['cpu_ms_per_pod']:.2f}",
        _optional(line["children_cpu_ms_per_pod"]),
        _whole(line["peak_rss_mb"]),
    )


def _beside(line: Line) -> Iterator[Cells]:
    ratios = {one["over"]: one["pods_per_s"] for one in line["ratios"]}
    for standing in line["contenders"]:
        own = standing["median"]
        name = standing["contender"]
        yield (
            line["workload"],
            name,
            _whole(own["pods_per_s"]),
            f"{own['cpu_ms_per_pod']:.2f}",
            _whole(own["memory_mb"]),
            _optional(own["beside_cpu_ms_per_pod"]),
            f"{own['servers_cpu_ms_per_pod']:.2f}",
            f"{ratios[name]:.2f}" if name in ratios else "",
        )


def _latency(line: Line) -> Iterator[Cells]:
    pauses = "-" if line["contender"] == "kube-scheduler" else str(line["pauses_over_100_ms"])
    yield (
        line["contender"],
        _whole(line["pods_per_s"]),
        *(f"{line['ms'][name]:.1f}" for name in ("p50", "p99", "p99.9", "longest")),
        pauses,
    )


def _restart(line: Line) -> Iterator[Cells]:
    ratios = {one["over"]: one for one in line["ratios"]}
    for one in line["contenders"]:
        own, ratio = one["median"], ratios.get(one["contender"])
        yield (
            str(line["running"]),
            one["contender"],
            f"{own['cpu_s']:.1f}",
            f"{own['took_s']:.1f}",
            _whole(own["memory_mb"]),
            "" if ratio is None else f"{ratio['cpu_s']:.2f}",
            "" if ratio is None else f"{ratio['took_s']:.2f}",
        )


def _whole(number: float) -> str:
    return f"{number:.0f}"


def _optional(number: float) -> str:
    return f"{number:.2f}" if number >= 0.005 else "-"


_EMBEDDED: Final = (
    "workload",
    "pods/s",
    "times the threshold",
    "CPU ms per pod",
    "plugin's CPU ms",
    "peak MB",
)
_VERSUS: Final = (
    *("workload", "scheduler", "pods/s", "CPU ms per pod", "memory MB", "plugin's CPU ms"),
    *("API server's and etcd's", "ratio of pods/s"),
)
_LATENCY: Final = ("scheduler", "pods/s", "p50 ms", "p99 ms", "p99.9 ms", "longest ms", "pauses over 100 ms")

_RESTART: Final = (
    *("running pods", "scheduler", "CPU s", "s", "memory MB"),
    *("berth's CPU over this", "berth's s over these"),
)


def _perf(cases: Sequence[tuple[str, str]]) -> tuple[Cells, ...]:
    return tuple(("scheduler-perf", area, "--workload", name) for area, name in cases)


SECTIONS: Final = (
    Section(
        name="versus",
        header=_VERSUS,
        commands=tuple(("versus", name) for name in _BESIDE),
        cells=_beside,
    ),
    Section(name="latency", header=_LATENCY, commands=(("latency", "--minutes", "60"),), cells=_latency),
    Section(
        name="restart",
        header=_RESTART,
        commands=tuple(("restart", "--running", str(count)) for count in (25_000, 100_000)),
        cells=_restart,
    ),
    Section(
        name="served",
        header=_VERSUS,
        commands=tuple(("versus", name) for name in _SERVED),
        cells=_beside,
    ),
    Section(
        name="large",
        header=_EMBEDDED,
        commands=tuple(("own", f"Large/{kind}{size}Nodes") for kind in _KINDS for size in _SIZES),
        cells=_embedded,
    ),
    Section(
        name="gangs",
        header=_EMBEDDED,
        commands=(
            *(("own", name) for name in _GANGS),
            *_perf(_GANG_CASES),
            *((*words, *_OF_1_38) for words in _perf(_GANG_CASES_1_38)),
        ),
        cells=_embedded,
    ),
    Section(
        name="diverse",
        header=_EMBEDDED,
        commands=tuple(("own", name) for name in _DIVERSE),
        cells=_embedded,
    ),
    Section(name="scheduler-perf", header=_EMBEDDED, commands=_perf(_CASES_5000), cells=_embedded),
    Section(name="devices", header=_EMBEDDED, commands=_perf(_DEVICES), cells=_embedded),
)
