"""The metric families that kube-scheduler registers only with the feature gates of pod groups.

`group_metrics` writes them. The labels are 1.38's; `config.emulation` has those of other versions.
Source: kube-scheduler `metrics/metrics.go`, v1.38.
"""

from __future__ import annotations

from typing import Final

from berth_host.metrics.family import Family, counter, exponential, histogram

_GROUPS: Final = "GenericWorkload"
_PLACEMENTS: Final = "TopologyAwareWorkloadScheduling"
_GROUP_S: Final = exponential(0.001, 2, 15)
_PREEMPTION_S: Final = exponential(0.001, 2, 16)
_VICTIMS: Final = exponential(1.0, 2, 11)

GROUP_ATTEMPTS: Final = counter(
    "scheduler_podgroup_schedule_attempts_total",
    "ALPHA",
    "profile result entity",
    "Attempts to schedule a pod group, by how they ended.",
    _GROUPS,
)
GROUP_ALGORITHM: Final = histogram(
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
    "ALPHA",
    "profile entity",
    _GROUP_S,
    "Seconds that the search for nodes for a pod group took.",
    _GROUPS,
)
GROUP_DURATION: Final = histogram(
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "ALPHA",
    "profile result entity",
    _GROUP_S,
    "Seconds that one attempt for a pod group took.",
    _GROUPS,
)
PREEMPTION_EVALUATION: Final = histogram(
    "scheduler_preemption_evaluation_duration_seconds",
    "ALPHA",
    "preemptor result",
    _PREEMPTION_S,
    "Seconds in which the victims of one preemption were chosen.",
    _GROUPS,
)
PREEMPTION_EXECUTION: Final = histogram(
    "scheduler_preemption_execution_duration_seconds",
    "ALPHA",
    "preemptor result",
    _PREEMPTION_S,
    "Seconds in which the victims of one preemption were evicted.",
    _GROUPS,
)
PREEMPTION_BUDGETS: Final = counter(
    "scheduler_preemption_pdb_violations_total",
    "ALPHA",
    "preemptor",
    "Victims whose eviction violates a PodDisruptionBudget.",
    _GROUPS,
)
PREEMPTION_DISRUPTIONS: Final = histogram(
    "scheduler_preemption_workload_disruptions",
    "ALPHA",
    "preemptor victim",
    _VICTIMS,
    "Units that one preemption evicts: all pods of a pod group, or a single pod.",
    _GROUPS,
)
WORKLOAD_PREEMPTIONS: Final = counter(
    "scheduler_workload_preemption_attempts_total",
    "ALPHA",
    "preemptor result",
    "PodGroupPostFilter calls that searched for victims, by how they ended.",
    _GROUPS,
)
WORKLOAD_VICTIMS: Final = histogram(
    "scheduler_workload_preemption_victims",
    "ALPHA",
    "preemptor",
    _VICTIMS,
    "Victims of a pod group's preemption.",
    _GROUPS,
)
PLACEMENTS: Final = counter(
    "scheduler_generated_placements_total",
    "ALPHA",
    "profile entity",
    "Placements that PlacementGenerate proposed for pod groups.",
    _PLACEMENTS,
)
PLACEMENT_EVALUATIONS: Final = counter(
    "scheduler_placement_evaluations_total",
    "ALPHA",
    "profile result entity",
    "Placements that were tried, by whether the pod group fits.",
    _PLACEMENTS,
)
PLACEMENT_DURATION: Final = histogram(
    "scheduler_placement_evaluation_duration_seconds",
    "ALPHA",
    "profile result entity",
    _GROUP_S,
    "Seconds that the try of one placement took, by whether the pod group fits.",
    _PLACEMENTS,
)

GROUP_FAMILIES: Final[tuple[Family, ...]] = tuple(
    family for family in list(globals().values()) if isinstance(family, Family)
)
"""All families of pod groups."""
