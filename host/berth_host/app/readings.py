"""Sizes of the host's parts, read when the metrics are asked for. Called by `Host`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from berth_host.attach.attachments import Condition
from berth_host.cache.cache import Cache
from berth_host.cluster.handlers import EventHandlers
from berth_host.cluster.port import ClusterPort
from berth_host.explain.diagnosis import Diagnoses
from berth_host.metrics import families
from berth_host.metrics.plugin_families import show_plugins
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import Labels, Values
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.scheduler.binding_cycle import BindingCycle

_POD_POPPED = "PodPopped"


class MeasuredHost(Protocol):
    """The parts of the host whose sizes are shown."""

    cache: Cache
    queue: SchedulingQueue
    binding: BindingCycle
    handlers: EventHandlers
    cluster: ClusterPort
    diagnoses: Diagnoses

    def plugin_stats(self) -> Mapping[str, PluginStats]:
        """The cost of each plugin, by name."""
        ...

    def conditions(self) -> Sequence[Condition]:
        """Every place of plugins elsewhere."""
        ...

    def reservations(self) -> Mapping[str, int]:
        """Reservations of plugins elsewhere that are alive or not given back yet, by plugin."""
        ...

    def unreserve_ages(self) -> Mapping[str, float]:
        """For how many seconds the oldest reservation of each has not been given back, by plugin."""
        ...

    def drifts(self) -> Mapping[str, int]:
        """How often instances dropped their copies of the state, by plugin."""
        ...

    def absent_plugins(self) -> Sequence[str]:
        """Required plugins that cannot be asked."""
        ...


def show_host(metrics: SchedulerMetrics, host: MeasuredHost) -> None:
    """From now on `metrics` show this host's sizes, in place of an earlier one's."""
    cache = host.cache
    metrics.read(
        families.CACHE_SIZE,
        lambda: [
            (("assumed_pods",), cache.assumed_count),
            (("nodes",), cache.node_count),
            (("pods",), cache.pod_count),
        ],
    )
    metrics.read(families.CACHE_ASSUMED, lambda: [((), cache.assumed_count)])
    metrics.read(families.CACHE_NODES, lambda: [((), cache.node_count)])
    metrics.read(families.CACHE_PODS, lambda: [((), cache.pod_count)])
    metrics.read(families.PENDING_PODS, lambda: _pending(host))
    metrics.read(families.UNSCHEDULABLE_PODS, _ThoseSeen(lambda: host.queue.places.blamed().items()))
    metrics.read(families.IN_FLIGHT_EVENTS, _ThoseSeen(lambda: _in_flight(host)))
    metrics.read(families.GOROUTINES, _ThoseSeen(lambda: _binding(host)))
    metrics.read(
        families.OBJECTS_REFUSED, lambda: [((kind,), count) for kind, count in host.handlers.refused.items()]
    )
    metrics.read(
        families.RESERVATIONS, lambda: [((plugin,), count) for plugin, count in host.reservations().items()]
    )
    metrics.read(
        families.UNRESERVE_AGE, lambda: [((plugin,), age) for plugin, age in host.unreserve_ages().items()]
    )
    metrics.read(families.PLUGIN_INSTANCES, _ThoseSeen(lambda: _instances(host.conditions())))
    metrics.read(
        families.PLUGIN_ABSENT, _ThoseSeen(lambda: [((name,), 1.0) for name in host.absent_plugins()])
    )
    metrics.read(families.PLUGIN_CIRCUITS, _ThoseSeen(lambda: _circuits(host.conditions())))
    metrics.read(
        families.PLUGIN_DRIFTS, lambda: [((plugin,), count) for plugin, count in host.drifts().items()]
    )
    metrics.read(families.TASKS, _tasks)
    metrics.read(
        families.KEPT_ENTRIES,
        lambda: [
            (("attempts",), host.diagnoses.attempt_count),
            (("events",), host.cluster.kept_event_count),
        ],
    )
    show_plugins(metrics, host.plugin_stats)


def _tasks() -> Iterator[tuple[Labels, float]]:
    # A coroutine of C, such as one of gRPC's, need not have a name of its own.
    coroutines = (task.get_coro() for task in asyncio.all_tasks())
    counts = Counter(getattr(one, "__qualname__", type(one).__qualname__) for one in coroutines)
    for name, count in counts.items():
        yield (name,), count


def _instances(conditions: Sequence[Condition]) -> Iterator[tuple[Labels, float]]:
    counts = Counter((name, condition.state.value) for condition in conditions for name in condition.plugins)
    yield from counts.items()


def _circuits(conditions: Sequence[Condition]) -> Iterator[tuple[Labels, float]]:
    # Two instances of one plugin may have the same circuit open: one series.
    open_at = {(one.plugin, one.point) for condition in conditions for one in condition.circuits}
    for labels in sorted(open_at):
        yield labels, 1


def _pending(host: MeasuredHost) -> Iterator[tuple[Labels, float]]:
    places = host.queue.places
    gated = places.pool.gated_count
    yield ("active",), len(places.active)
    yield ("backoff",), len(places.backoff)
    yield ("gated",), gated
    yield ("unschedulable",), len(places.pool) - gated


def _in_flight(host: MeasuredHost) -> Iterator[tuple[Labels, float]]:
    in_flight = host.queue.in_flight
    for label, count in in_flight.labels().items():
        yield (label,), count
    if host.queue.scheduling_cycle:
        yield (_POD_POPPED,), len(in_flight)


def _binding(host: MeasuredHost) -> Iterator[tuple[Labels, float]]:
    if host.binding.bound_count or len(host.binding):
        yield ("binding",), len(host.binding)


class _ThoseSeen:
    """The series of a gauge do not vanish: a series that was there once is shown as 0."""

    def __init__(self, read: Callable[[], Values]) -> None:
        self._read = read
        self._seen: dict[Labels, float] = {}

    def __call__(self) -> Values:
        now = dict(self._read())
        self._seen.update(dict.fromkeys(now, 0.0))
        return (self._seen | now).items()
