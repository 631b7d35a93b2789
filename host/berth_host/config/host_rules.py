"""The host's own differences from version to version of kube-scheduler: names of events, rules of
the queue, retries. `emulation` has a row for each version; `app` hands it to the parts.

Source: kube-scheduler v1.38.0-beta.0, v1.37.2 and v1.36.2, `framework/events.go`,
`backend/queue/scheduling_queue.go`, `framework/preemption/executor.go`, `util/utils.go`; component
kube-scheduler `framework/types.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRules:
    """The rules of one version. The defaults are 1.37's.

    `unscheduled_pod`: the resource of events about a pending pod. `target_pod`: that of an update of the very
    pod that waits. `sees_scale_up`: a pod whose requests grow has an event of its own kind.
    `nominates_gated_pods`: the nomination of a new pod counts although the pod is gated.
    `remembers_flushes`: the flush calls the gates of gated pods too, and flushes a pod again only after
    another whole period.
    `activates_after_undone_victim`: a preemptor whose last victim lost only its reservation is tried at once.
    `relates_victims`: the Event about a victim has its preemptor as `related`; in recordings on a real API
    server, no Event of 1.36 has one.
    `retries_bind`: a Binding is sent again after an internal error, an unavailable service or a refused
    connection. `has_pod_groups`: the gate GenericWorkload brings pod groups as 1.37 has them.

    These rules are rows of the table in `emulation`, which sets them by version:
    `judges_group_trees`: pod groups as 1.38 has them. The trees of composite groups are checked and have
    conditions, a failed group names its parent and not the cause to its members, the gates of a group are
    called up to the first closed one, placements are tried in part, and the preemption of a group ranks nodes
    by their victims.
    `counts_totals_of_resizes`: a resized pod counts with the most of its totals, not of its containers.
    `ends_count_at_broken_budget`: a victim that breaks a budget does not count in the budgets after it.
    `counts_empty_budgets`: a PodDisruptionBudget with an empty selector covers every pod of its namespace,
    and other budgets cover pods without labels.
    `scores_pod_level`: the pod's own requests count in the score of NodeResourcesFit, as in its filter.
    `orders_victims_by_uid`: of equally important victims, the one with the smaller UID is more important.
    `offers_nodes_without_victims`: preempting extenders are asked about nodes where in-process and served
    filters need no victim, too; without such extenders, such a node is no error.
    `looks_before_binding`: a pod whose node somebody else filled after the choice goes back to the queue.
    `ends_preemption_with_deletion`: a preemption does not wait until the watch shows that its victims leave.
    """

    unscheduled_pod: str = "UnscheduledPod"
    target_pod: str = "TargetPod"
    sees_scale_up: bool = True
    nominates_gated_pods: bool = True
    remembers_flushes: bool = True
    activates_after_undone_victim: bool = True
    relates_victims: bool = True
    retries_bind: bool = True
    has_pod_groups: bool = True
    counts_totals_of_resizes: bool = True
    ends_count_at_broken_budget: bool = True
    counts_empty_budgets: bool = True
    scores_pod_level: bool = False
    orders_victims_by_uid: bool = False
    offers_nodes_without_victims: bool = False
    looks_before_binding: bool = True
    judges_group_trees: bool = False
    ends_preemption_with_deletion: bool = False

    @property
    def pod_add(self) -> str:
        """The label of a pod that comes into the queue."""
        return self.unscheduled_pod + "Add"

    @property
    def late_pod_add(self) -> str:
        """The label of a pod that comes into the queue with an update, as the queue did not have it."""
        return self.pod_add if self.target_pod != self.unscheduled_pod else self.unscheduled_pod + "Update"


RULES_1_37: Final = HostRules()
RULES_1_38: Final = HostRules(judges_group_trees=True)
RULES_1_36: Final = HostRules(
    unscheduled_pod="UnschedulablePod",
    target_pod="UnschedulablePod",
    sees_scale_up=False,
    nominates_gated_pods=False,
    remembers_flushes=False,
    activates_after_undone_victim=False,
    relates_victims=False,
    retries_bind=False,
    has_pod_groups=False,
)
