"""The one table of plugins of other projects, and of what berth has instead.

`berth migrate` leaves out those that are not installed, and quotes the table. The reference page is made of
it.
Source: kubernetes-sigs/scheduler-plugins `cmd/scheduler/main.go` and the plugins' packages, 0.18 to 0.35.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_host.older_config.table import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPlugin:
    """A plugin of another project. `points`: spelled as in KubeSchedulerConfiguration.

    `group`: the name under which its project presents the plugin. `decides`: what the plugin does.
    `change`: APPROXIMATED if berth has a near equivalent, DROPPED if it has none. `instead`: the near
    equivalent, or what to write or to use.
    """

    name: str
    group: str
    points: tuple[str, ...]
    decides: str
    change: Change
    instead: str


SCHEDULER_PLUGINS: Final = "kubernetes-sigs/scheduler-plugins"
"""The project of every plugin in the table."""

_CAPACITY: Final = "capacity scheduling"
_RESOURCES: Final = "node resources"
_NUMA: Final = "node resource topology"
_TOLERATION: Final = "preemption toleration"
_TRIMARAN: Final = "trimaran"
_NETWORK: Final = "network-aware scheduling"
_SYSCHED: Final = "sysched"
_SAMPLES: Final = "samples"

_INSTALL: Final = "install it (pip install berth-scheduler-plugins), and migrate the file again"
"""The advice for a plugin of the distribution berth-scheduler-plugins."""
_BY_REQUESTS: Final = "berth's own plugins know the requests of pods, not the measured load"


def _near(name: str, group: str, points: tuple[str, ...], decides: str, instead: str) -> OtherPlugin:
    return OtherPlugin(
        name=name, group=group, points=points, decides=decides, change=Change.APPROXIMATED, instead=instead
    )


def _none(name: str, group: str, points: tuple[str, ...], decides: str, instead: str) -> OtherPlugin:
    return OtherPlugin(
        name=name, group=group, points=points, decides=decides, change=Change.DROPPED, instead=instead
    )


OTHER_PLUGINS: Final[tuple[OtherPlugin, ...]] = (
    _none(
        "CapacityScheduling",
        _CAPACITY,
        ("preFilter", "postFilter", "reserve"),
        "gives namespaces an ElasticQuota: a guaranteed part, and a maximum up to which they borrow",
        "a ResourceQuota limits a namespace without borrowing; to borrow and to take back, write a plugin "
        "with PreFilter, Reserve and PostFilter (handle.evaluate_preemption)",
    ),
    _none(
        "NodeResourcesAllocatable",
        _RESOURCES,
        ("score",),
        "prefers nodes with the least or the most allocatable resources, used or not",
        _INSTALL,
    ),
    _near(
        "NodeResourcesFitPlus",
        _RESOURCES,
        ("preScore", "score"),
        "scores each resource by a strategy of its own",
        "NodeResourcesFit has one scoringStrategy for all its resources, with a weight for each",
    ),
    _near(
        "ScarceResourceAvoidance",
        _RESOURCES,
        ("preScore", "score"),
        "keeps pods away from nodes with a scarce resource that they do not request",
        "taint the nodes that have the resource (PreferNoSchedule): TaintToleration scores them lower",
    ),
    _none(
        "NodeResourceTopologyMatch",
        _NUMA,
        ("filter", "reserve", "score", "postBind"),
        "places a pod only where one NUMA zone of the node has room for it",
        _INSTALL,
    ),
    _none(
        "PreemptionToleration",
        _TOLERATION,
        ("postFilter",),
        "protects pods from preemption for a time that their PriorityClass gives",
        "preemptionPolicy: Never in the PriorityClass of the preemptors, or a PodDisruptionBudget of the "
        "victims; for times, write a plugin with PostFilter",
    ),
    _none(
        "TargetLoadPacking",
        _TRIMARAN,
        ("score",),
        "packs nodes up to a measured CPU utilization, and spreads above it",
        _INSTALL,
    ),
    _none(
        "LoadVariationRiskBalancing",
        _TRIMARAN,
        ("score",),
        "prefers nodes whose measured load is low and steady",
        _INSTALL,
    ),
    _none(
        "LowRiskOverCommitment",
        _TRIMARAN,
        ("preScore", "score"),
        "avoids nodes whose limits exceed their capacity, by measured load",
        _INSTALL,
    ),
    _none(
        "Peaks",
        _TRIMARAN,
        ("score",),
        "prefers the node whose power consumption grows least",
        f"write a plugin with Score that has the power model; {_BY_REQUESTS}",
    ),
    _none(
        "NetworkOverhead",
        _NETWORK,
        ("preFilter", "filter", "score"),
        "places the workloads of an AppGroup where the network between them costs least",
        "podAffinity with the topologyKey of a zone or region keeps pods near each other; for costs, write a "
        "plugin with PreFilter, Filter and Score that needs AppGroup and NetworkTopology objects",
    ),
    _none(
        "TopologicalSort",
        _NETWORK,
        ("queueSort",),
        "sorts the pods of an AppGroup by their dependencies",
        "PrioritySort sorts by priority and time; write a plugin with sort_key",
    ),
    _none(
        "SySched",
        _SYSCHED,
        ("score",),
        "puts pods that use the same system calls on the same nodes",
        "write a plugin with Score that reads the seccomp profiles",
    ),
    _none(
        "CrossNodePreemption",
        _SAMPLES,
        ("postFilter",),
        "evicts pods of several nodes for one pod",
        "all victims are on one node, those of DefaultPreemption and those of a plugin with PostFilter",
    ),
    _none(
        "PodState",
        _SAMPLES,
        ("score",),
        "prefers nodes with more terminating pods and fewer nominated ones",
        "write a plugin with Score over the pods of the nodes",
    ),
    _near(
        "QOSSort",
        _SAMPLES,
        ("queueSort",),
        "sorts by priority, then by the pods' quality of service",
        "PrioritySort sorts by priority, then by time; for the quality of service, write a plugin with "
        "sort_key",
    ),
)
"""All plugins of scheduler-plugins but Coscheduling, which berth has, in the order of its README."""

_BY_NAME: Final[Mapping[str, OtherPlugin]] = {plugin.name: plugin for plugin in OTHER_PLUGINS}
UNKNOWN: Final = (
    "write it as a plugin for berth, and give it a place in a BerthConfiguration (--berth-config) or install "
    "its package"
)
"""The advice for a plugin that the table does not have."""


def other_plugin(name: str) -> OtherPlugin | None:
    """Return the row of a plugin; None if the table does not have it."""
    return _BY_NAME.get(name)
