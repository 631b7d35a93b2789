"""`GroupMetrics` and `PreemptionMetrics`: the series of pod groups and of preemptions.

The cycle of pod groups, the group's preemption and `evictions` write them. kube-scheduler registers the
families of pod groups only with their feature gates; `SchedulerMetrics.expose` decides that.
Source: kube-scheduler `schedule_one_podgroup.go`, `framework/preemption/executor.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from berth_sdk.status import Code

from berth_host.metrics import families, group_families
from berth_host.metrics.series import Counters, Histograms, instant_s

POD: Final = "pod"
GROUP: Final = "podgroup"
"""The types of an entity in labels; `compositepodgroup` is a third one."""
_NOBODY: Final[Mapping[str, int]] = MappingProxyType({})


class GroupMetrics:
    """The metrics of the scheduling of pod groups. Durations are in seconds."""

    def __init__(self) -> None:
        self.attempts = Counters(group_families.GROUP_ATTEMPTS)
        self.attempt_durations = Histograms(group_families.GROUP_DURATION)
        self.algorithm_durations = Histograms(group_families.GROUP_ALGORITHM)
        self.preemptions = Counters(group_families.WORKLOAD_PREEMPTIONS)
        self.placements = Counters(group_families.PLACEMENTS)
        self.placement_evaluations = Counters(group_families.PLACEMENT_EVALUATIONS)
        self.placement_durations = Histograms(group_families.PLACEMENT_DURATION)
        self.holds = Counters(families.GANG_HOLDS)
        self.backfilled = Counters(families.GANG_BACKFILLED)
        self.sources: Final = (
            self.attempts,
            self.attempt_durations,
            self.algorithm_durations,
            self.preemptions,
            self.placements,
            self.placement_evaluations,
            self.placement_durations,
            self.holds,
            self.backfilled,
        )

    def attempted(self, profile: str, result: str, seconds: float, *, entity: str = GROUP) -> None:
        """Count an attempt that ended. `result`: `scheduled`, `unschedulable`, `waiting_on_preemption` or
        `error`, of the root group. `entity`, here and below: the type of the group.
        """
        self.attempts.add((profile, result, entity))
        self.attempt_durations.of(profile, result, entity).observe(seconds)

    def placed(self, profile: str, seconds: float, *, entity: str = GROUP) -> None:
        """Count a run of the root algorithm."""
        self.algorithm_durations.of(profile, entity).observe(seconds)

    def preempted(self, code: Code, *, entity: str = GROUP) -> None:
        """Count a PodGroupPostFilter call that searched for victims, by the code of its status."""
        self.preemptions.add((entity, code.kube_name))

    def placements_generated(self, profile: str, count: int, *, entity: str = GROUP) -> None:
        """Count the placements that PlacementGenerate returned for one group."""
        self.placements.add((profile, entity), count)

    def placement_tried(self, profile: str, *, feasible: bool, seconds: float, entity: str = GROUP) -> None:
        """Count a try of one placement. `feasible`: the group fits into it."""
        labels = profile, "feasible" if feasible else "infeasible", entity
        self.placement_evaluations.add(labels)
        self.placement_durations.of(*labels).observe(seconds)

    def hold_ended(self, outcome: str, backfilled: int) -> None:
        """Count a hold of room that ended, and the pods that were let in meanwhile."""
        self.holds.add((outcome,))
        self.backfilled.add((), backfilled)


class PreemptionMetrics:
    """The metrics of preemptions. `preemptor`: the type of entity, such as POD or GROUP."""

    def __init__(self) -> None:
        self.attempts = Counters(families.PREEMPTION_ATTEMPTS)
        self.victims = Histograms(families.PREEMPTION_VICTIMS)
        self.victims_of_groups = Histograms(group_families.WORKLOAD_VICTIMS)
        self.disruptions = Histograms(group_families.PREEMPTION_DISRUPTIONS)
        self.budgets = Counters(group_families.PREEMPTION_BUDGETS)
        self.evaluations = Histograms(group_families.PREEMPTION_EVALUATION)
        self.executions = Histograms(group_families.PREEMPTION_EXECUTION)
        self.durations = Histograms(families.PREEMPTION_TASK_DURATION)
        self.tasks = Counters(families.PREEMPTION_TASKS)
        self.sources: Final = (
            self.attempts,
            self.victims,
            self.victims_of_groups,
            self.disruptions,
            self.budgets,
            self.evaluations,
            self.executions,
            self.durations,
            self.tasks,
        )

    def attempted(self) -> None:
        """Count a PostFilter call that searches for victims for a pod."""
        self.attempts.add(())

    def evaluated(self, code: Code, seconds: float, *, preemptor: str = POD) -> None:
        """Count a search for victims that took `seconds`, by the code of its status."""
        self.evaluations.of(preemptor, code.kube_name).observe(seconds)

    def begun(
        self,
        victims: int,
        *,
        preemptor: str = POD,
        disruptions: Mapping[str, int] = _NOBODY,
        budget_violations: int = 0,
    ) -> float:
        """Count the victims that were chosen; return the reading of the clock for `ended`.

        `disruptions`: the number of units that are evicted, by type of entity. `budget_violations`: the
        number of victims whose eviction violates a PodDisruptionBudget. 0 is not counted.
        """
        if preemptor == POD:
            self.victims.of().observe(victims)
        else:
            self.victims_of_groups.of(preemptor).observe(victims)
        for entity, count in disruptions.items():
            if count:
                self.disruptions.of(preemptor, entity).observe(count)
        if budget_violations:
            self.budgets.add((preemptor,), budget_violations)
        return instant_s()

    def ended(self, started_s: float, *, failed: bool, preemptor: str = POD) -> None:
        """Count an eviction of victims that ended, or failed."""
        result = "error" if failed else "success"
        self.durations.of(result).since(started_s)
        self.executions.of(preemptor, result).since(started_s)
        self.tasks.add((result,))
