"""`SchedulerMetrics`: all metrics of the scheduler. One per process, shared by its hosts.

Each part writes its own series: `points(profile)` of a Framework, `preemption` of evictions, `groups` of the
cycle of pod groups, `rest_client` of the adapter of a real cluster. Sizes of queue and cache are read when
the metrics are read (`read`). `expose` says which families are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from berth_host.metrics import families
from berth_host.metrics.connection_metrics import ConnectionMetrics
from berth_host.metrics.family import Family, Kind
from berth_host.metrics.group_metrics import GROUP, POD, GroupMetrics, PreemptionMetrics
from berth_host.metrics.plugin_work import PluginWork
from berth_host.metrics.points import PointTimes
from berth_host.metrics.rest_client import RestClientMetrics
from berth_host.metrics.series import (
    Counters,
    Histogram,
    HistogramReadings,
    Histograms,
    Labels,
    Readings,
    Values,
)
from berth_host.metrics.shadow_metrics import ShadowMetrics

# The first scrape imports it, and not the start.
if TYPE_CHECKING:
    from prometheus_client.core import Metric

Source = Histograms | Counters | Readings | HistogramReadings
_LAST_ATTEMPTS = 15
_ENTITY: Final = "entity"
_OLD_ENTITY: Final = "type"


class Shown:
    """The series of one family, under the description of the version of kube-scheduler that is followed."""

    def __init__(self, source: Source, family: Family) -> None:
        self._source = source
        self.family = family

    def collect(self) -> Metric | None:
        """Return the family for prometheus-client; None without a series."""
        metric = self._source.collect()
        shown, kept = self.family, self._source.family
        if shown.labels != kept.labels:
            if metric is None and not shown.labels:
                # A family without labels has its series from the start.
                metric = (Histograms if shown.kind is Kind.HISTOGRAM else Counters)(shown).collect()
            elif metric is not None:
                _narrow(metric, shown, kept)
        if metric is not None:
            metric.documentation = shown.text
        return metric


def _narrow(metric: Metric, shown: Family, kept: Family) -> None:
    """Give the samples of `kept` the labels of `shown`: labels that `shown` lacks are summed up."""
    dropped = {label for label in kept.labels if label not in shown.labels}
    sums: dict[tuple[str, Labels], float] = {}
    labelled: dict[tuple[str, Labels], tuple[Any, dict[str, str]]] = {}
    for sample in metric.samples:
        labels = {name: value for name, value in sample.labels.items() if name not in dropped}
        if _OLD_ENTITY in shown.labels:
            # Before 1.38 a composite group counts as a pod group.
            entity = sample.labels[_ENTITY]
            labels[_OLD_ENTITY] = entity if entity == POD else GROUP
        key = sample.name, tuple(labels.values())
        sums[key] = sums.get(key, 0) + sample.value
        labelled.setdefault(key, (sample, labels))
    metric.samples = [
        sample._replace(labels=labels, value=sums[key]) for key, (sample, labels) in labelled.items()
    ]


class SchedulerMetrics:
    """The series by topic; `sources` lists all of them."""

    def __init__(self) -> None:
        self.attempt_durations = Histograms(families.ATTEMPT_DURATION)
        self.algorithm_durations = Histograms(families.ALGORITHM_DURATION)
        self.pod_attempts = Histograms(families.POD_ATTEMPTS)
        self._pod_attempts = self.pod_attempts.of()
        self.pod_sli = Histograms(families.POD_SLI)
        self.after_flush = Counters(families.AFTER_FLUSH)
        self.point_durations = Histograms(families.EXTENSION_POINT)
        self.plugin_durations = Histograms(families.PLUGIN_EXECUTION)
        self.permit_waits = Histograms(families.PERMIT_WAIT)
        self.incoming_pods = Counters(families.INCOMING_PODS)
        self.incoming_entities = Counters(families.INCOMING_ENTITIES)
        self.hint_durations = Histograms(families.HINT_DURATION)
        self.pre_hints = Counters(families.PRE_HINTS)
        self.event_durations = Histograms(families.EVENT_HANDLING)
        self.preemption = PreemptionMetrics()
        self.groups = GroupMetrics()
        self.plugin_work = PluginWork()
        self.shadow = ShadowMetrics()
        self.rest_client = RestClientMetrics()
        self.connections = ConnectionMetrics()
        self._points: dict[str, PointTimes] = {}
        self._readings: dict[str, Readings | HistogramReadings] = {}
        self.has_exemplars = False
        """True if traced calls are noted as exemplars."""
        self._sli_by_attempts = self.pod_sli.by(_attempts_label)
        self.read(families.ATTEMPTS, self._attempts)
        self.read(families.PLUGIN_EVALUATIONS, self._taking_part)
        self.read(families.BATCH_ATTEMPTS, self._without_batch)
        self.read(families.CLAIM_CREATES_1_36, self.plugin_work.claim_creates_of_1_36)
        self._is_on: Callable[[str], bool] = lambda gate: False
        self._changes: Mapping[str, Family | None] = {families.CLAIM_CREATES_1_36.name: None}

    # --- writing -------------------------------------------------------------------------------

    def points(self, profile: str) -> PointTimes:
        """Return the measurements of the plugins of `profile`; the same object every time."""
        found = self._points.get(profile)
        if found is None:
            found = self._points[profile] = PointTimes(self.point_durations, self.plugin_durations, profile)
        return found

    def scheduled(self, attempts: int, since_first_s: float | None) -> None:
        """Count a bound pod.

        `attempts`: of this pod, at least 1. `since_first_s`: seconds since the pod first came into activeQ;
        None if unknown.
        """
        self._pod_attempts.observe(attempts)
        if since_first_s is not None:
            self._sli_by_attempts[min(attempts, _LAST_ATTEMPTS)].observe(since_first_s)

    def read(self, family: Family, values: Callable[[], Values]) -> None:
        """Call `values` whenever the metrics are read. Replaces an earlier function for the family."""
        self._readings[family.name] = Readings(family, values)

    def read_histograms(
        self, family: Family, histograms: Callable[[], Iterable[tuple[Labels, Histogram]]]
    ) -> None:
        """Call `histograms` whenever the metrics are read. Replaces an earlier function for the family."""
        self._readings[family.name] = HistogramReadings(family, histograms)

    def note_call(self, plugin: str, call: str, seconds: float, trace_id: int, span_id: int) -> None:
        """Keep a traced call as an exemplar of its duration."""
        readings = self._readings.get(families.PLUGIN_CALL_DURATION.name)
        if isinstance(readings, HistogramReadings):
            readings.note((plugin, call), seconds, trace_id, span_id)

    # --- showing -------------------------------------------------------------------------------

    def expose(self, is_on: Callable[[str], bool], changes: Mapping[str, Family | None]) -> None:
        """Set which families are shown, and as what. Before the first call no family with a gate is shown.

        `is_on`: returns True for a feature gate that is on. `changes`: by name, the family of another version
        of kube-scheduler in place of the one in `families`, None to hide it.
        """
        self._is_on = is_on
        self._changes = changes

    @property
    def sources(self) -> Iterator[Shown]:
        """The series of the families that are shown, in any order, one item per family."""
        for source in self._all:
            family = self._changes.get(source.family.name, source.family)
            if family is not None and (not family.gate or self._is_on(family.gate)):
                yield Shown(source, family)

    @property
    def _all(self) -> Iterable[Source]:
        work = self.plugin_work
        return (
            self.attempt_durations,
            self.algorithm_durations,
            self.pod_attempts,
            self.pod_sli,
            self.after_flush,
            self.point_durations,
            self.plugin_durations,
            self.permit_waits,
            self.incoming_pods,
            self.incoming_entities,
            self.hint_durations,
            self.pre_hints,
            self.event_durations,
            *self.preemption.sources,
            *self.groups.sources,
            work.claim_creates,
            work.device_allocations,
            work.device_waits,
            work.volume_errors,
            *self.shadow.sources,
            *self.rest_client.sources,
            *self.connections.sources,
            *self._readings.values(),
        )

    def clear(self) -> None:
        """Reset all series, for `DELETE /metrics`. Counters that other objects keep count from now on."""
        for source in self._all:
            if isinstance(source, Readings) and source.family is families.PLUGIN_EVALUATIONS:
                continue
            source.clear()
        for points in self._points.values():
            for part in points.taking_part:
                part.clear()

    # --- derived values --------------------------------------------------------------------------

    def _attempts(self) -> Iterator[tuple[Labels, float]]:
        """Return the number of attempts, which is the number of their observed durations."""
        return ((labels, series.count) for labels, series in self.attempt_durations.items())

    def _taking_part(self) -> Iterator[tuple[Labels, float]]:
        for points in self._points.values():
            for part in points.taking_part:
                yield from part.values()

    def _without_batch(self) -> Iterator[tuple[Labels, float]]:
        by_profile: dict[str, int] = {}
        for (profile, _), series in self.attempt_durations.items():
            by_profile[profile] = by_profile.get(profile, 0) + series.count
        return (((profile, "no_hint"), count) for profile, count in by_profile.items())


def _attempts_label(attempts: int) -> Labels:
    return (f"{_LAST_ATTEMPTS}+" if attempts == _LAST_ATTEMPTS else str(attempts),)
