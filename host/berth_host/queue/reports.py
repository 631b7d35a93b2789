"""The queue's reports: as metrics (`QueueMetrics`), and as log lines and Events (`SortReports`).

Sources: kube-scheduler `metrics/metrics.go` and `schedule_one.go`, v1.37.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from berth_sdk.events import ActionType
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.status import Code

from berth_host.config.default_plugins import DEFAULT_PLUGINS
from berth_host.config.host_rules import RULES_1_37, HostRules
from berth_host.log import get_logger
from berth_host.metrics.group_metrics import POD
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import SeriesBy
from berth_host.queue.events import QueueEvent, label_of
from berth_host.queue.interfaces import HintVerdict, QueueObserver
from berth_host.queue.queued_pod import QueuedPodInfo

log = get_logger()
REASON: Final = "SortKeyMissing"
PRE_QUEUEING_HINTS: Final = "SchedulerPreQueueingHints"
"""The gate that decides whether narrowed events are counted. The queue narrows them in any case."""
_NARROWED_UPSTREAM: Final[Mapping[str, Collection[str]]] = {
    plugin.name: plugin.narrows for plugin in DEFAULT_PLUGINS
}
"""By default plugin: the resources whose events kube-scheduler narrows, too."""
Event = Callable[[Pod, str, str, str, str], None]


class SortReports:
    """The reports about pods without a sort key: a Kubernetes Event for each pod, and one log line for all
    pods of one turn of the event loop.

    `event`: writes a Kubernetes Event (pod, type, reason, action, note) in the background.
    """

    def __init__(self, event: Event) -> None:
        self._event = event
        self._unlogged: dict[str, list[str]] = {}

    def sorted_by_fallback(self, plugin: str, info: QueuedPodInfo) -> None:
        """Report one pod that is queued without a key."""
        note = f'plugin "{plugin}" gave no sort key: the pod is queued by priority and time'
        self._event(info.pod, "Warning", REASON, "Queueing", note)
        if not self._unlogged:
            asyncio.get_running_loop().call_soon(self._log)
        self._unlogged.setdefault(plugin, []).append(info.key)

    def _log(self) -> None:
        unlogged, self._unlogged = self._unlogged, {}
        for plugin, keys in unlogged.items():
            log.warning("queue.sorted_by_fallback", plugin=plugin, pods=len(keys), first=keys[0])


class QueueMetrics(QueueObserver):
    """The observer that counts the queue's reports as metrics and passes them on to `told` and `sorts`.

    `labels`: the labels of the events reported since the list was last cleared.
    """

    def __init__(
        self,
        metrics: SchedulerMetrics,
        told: QueueObserver,
        sorts: SortReports,
        rules: HostRules = RULES_1_37,
        *,
        counts_narrowing: bool = False,
    ) -> None:
        """`counts_narrowing`: count what plugins say of an event before their hints."""
        self._counts_narrowing = counts_narrowing
        self._metrics = metrics
        self._rules = rules
        self._sorts = sorts
        # An observer that ignores everything is not called.
        self._told = None if type(told) is QueueObserver else told
        self.labels: list[str] = []
        # By event, verdict and plugin.
        self._hints: SeriesBy[tuple[str, HintVerdict, str]] = metrics.hint_durations.by(
            lambda key: (key[0], key[1].value, key[2])
        )

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        """See QueueObserver."""
        # The metric of the handling does not tell the pod itself from other pending pods.
        resource = self._rules.unscheduled_pod
        self.labels.append(label_of(resource, ActionType(event.action)) if own_update else event.label)
        if self._told is not None:
            self._told.event_received(event, own_update=own_update)

    def hint_given(
        self, plugin: str, label: str, pods: Collection[QueuedPodInfo], verdict: HintVerdict
    ) -> None:
        """See QueueObserver."""
        if self._told is not None:
            self._told.hint_given(plugin, label, pods, verdict)

    def hint_took(self, plugin: str, label: str, verdict: HintVerdict, seconds: float) -> None:
        """See QueueObserver."""
        self._hints[label, verdict, plugin].observe(seconds)

    def hint_narrowed(self, plugin: str, event: QueueEvent, *, to_all: bool) -> None:
        """See QueueObserver."""
        known = _NARROWED_UPSTREAM.get(plugin)
        if self._counts_narrowing and (known is None or event.resource in known):
            self._metrics.pre_hints.add((plugin, "all_pods" if to_all else "narrowed"))
        if self._told is not None:
            self._told.hint_narrowed(plugin, event, to_all=to_all)

    def gates_ran(self, profile: str, code: Code, seconds: float, count: int = 1) -> None:
        """See QueueObserver."""
        self._metrics.points(profile).at[ExtensionPoint.PRE_ENQUEUE][code].observe(seconds, count)

    def pod_entered(self, queue: str, label: str, count: int = 1) -> None:
        """See QueueObserver."""
        self._metrics.incoming_pods.add((label, queue), count)
        if self._told is not None:
            self._told.pod_entered(queue, label, count)

    def entity_entered(self, queue: str, label: str, type: str, count: int = 1) -> None:
        """See QueueObserver."""
        self._metrics.incoming_entities.add((label, queue, type), count)
        if type == POD and label == self._rules.pod_add:
            self.labels.append(label)
        if self._told is not None:
            self._told.entity_entered(queue, label, type, count)

    def pod_rejected(self, plugin: str, profile: str, count: int = 1) -> None:
        """See QueueObserver."""
        if self._told is not None:
            self._told.pod_rejected(plugin, profile, count)

    def sorted_by_fallback(self, plugin: str, info: QueuedPodInfo) -> None:
        """See QueueObserver."""
        self._sorts.sorted_by_fallback(plugin, info)
        if self._told is not None:
            self._told.sorted_by_fallback(plugin, info)

    def plugin_raised(self, plugin: str, call: str, error: Exception) -> None:
        """See QueueObserver."""
        if self._told is not None:
            self._told.plugin_raised(plugin, call, error)
