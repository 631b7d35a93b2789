"""`ShadowObserver`: notes the decision of each attempt in the record of a shadow."""

from __future__ import annotations

from collections.abc import Callable

from berth_sdk.extension_points import ExtensionPoint

from berth_host.cache.snapshot import Snapshot
from berth_host.cycle.attempt import Attempt, ScheduleResult
from berth_host.cycle.observer import Unobserved
from berth_host.explain.diagnosis import Outcome, Rejection, pack_rows
from berth_host.explain.slot_names import SlotNames
from berth_host.shadow.decision import Decision
from berth_host.shadow.record import ShadowRecord


class ShadowObserver(Unobserved):
    """Notes scores and decisions. `decided`: called with the uid of the pod after each attempt."""

    def __init__(self, record: ShadowRecord, snapshot: Snapshot, decided: Callable[[str], None]) -> None:
        self._record = record
        self._snapshot = snapshot
        self._decided = decided
        self._names = SlotNames()

    def chosen(self, attempt: Attempt, result: ScheduleResult) -> None:
        """Keep the scores until the outcome."""
        self._record.scored(attempt.pod.uid, result.scores)

    def settled(self, attempt: Attempt) -> None:
        """Note the decision, unless the pod was deleted or the host stops."""
        if not (attempt.aborted or attempt.pod_deleted):
            self._record.decided(self._decision(attempt))
        self._decided(attempt.pod.uid)

    def _decision(self, attempt: Attempt) -> Decision:
        diagnosis = attempt.diagnosis
        has_node = diagnosis.outcome is Outcome.DECIDED
        framework = attempt.framework
        decision = Decision(
            pod=attempt.pod,
            queued=attempt.queued,
            filters=frozenset(one.name for one in framework.plugins_at(ExtensionPoint.FILTER)),
            node_name=attempt.node_name if has_node else "",
            nominated_node="" if has_node else diagnosis.nominated_node,
            victims=self._record.victims.pop(attempt.pod.uid, ()),
            narrowed=attempt.pre_filter.narrowed,
            decided_s=diagnosis.duration_ms / 1000,
            seen_at_s=diagnosis.first_tried_at_s,
            is_assumed=has_node,
        )
        if has_node:
            statuses, table = attempt.statuses, attempt.nodes
            decision.names = self._names.of(self._snapshot.nodes)
            if statuses is not None:
                decision.rejections = [
                    Rejection(status, count, pack_rows(table, statuses.groups == statuses.group_of(status)))
                    for status, count in statuses.group_counts()
                ]
        else:
            decision.names, decision.rejections = diagnosis.slot_names, diagnosis.rejections
            worst = max(diagnosis.rejections, key=lambda one: one.node_count, default=None)
            plugin = min(diagnosis.unschedulable_plugins, default="")
            decision.cause = (
                (plugin, diagnosis.message)
                if worst is None
                else (worst.status.plugin, ", ".join(worst.status.reasons) or diagnosis.message)
            )
        return decision
