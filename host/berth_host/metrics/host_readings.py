"""The sizes of a host's parts, read at every request for the metrics.

`show_host` registers them. The Protocols name what each part has to offer, as this package is below all
parts.

The `berth_plugin_*` families are made of `PluginStats` at each reading, so counting costs no more for them.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from enum import Enum
from importlib.metadata import version
from typing import Final, Protocol

from berth_host.metrics import families
from berth_host.metrics.family import Family
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import Histogram, Labels, Values

Stats = Callable[[], Mapping[str, PluginStats]]
_PER_CALL: Final[tuple[tuple[Family, Callable[[CallStats], float]], ...]] = (
    (families.PLUGIN_CALLS, lambda stats: stats.calls),
    (families.PLUGIN_SECONDS, lambda stats: stats.times.total),
    (families.PLUGIN_SECONDS_MAX, lambda stats: stats.times.highest),
    (families.PLUGIN_MESSAGES, lambda stats: stats.messages),
    (families.PLUGIN_BYTES_SENT, lambda stats: stats.bytes_sent),
    (families.PLUGIN_BYTES_RECEIVED, lambda stats: stats.bytes_received),
    (families.PLUGIN_REPEATS, lambda stats: stats.repeats),
    (families.PLUGIN_OVERRUNS, lambda stats: stats.overruns),
)


def show_plugins(metrics: SchedulerMetrics, stats: Stats) -> None:
    """Show the figures that `stats` returns, by plugin and by call, with the contract's names.

    Zeros are left out, as there are many plugins.
    """
    for family, value in _PER_CALL:
        metrics.read(family, _PerCall(stats, value))
    metrics.read_histograms(families.PLUGIN_CALL_DURATION, lambda: _call_times(stats))
    metrics.read(families.PLUGIN_FAILURES, lambda: _by_name(stats, lambda one: one.failures))
    metrics.read(families.PLUGIN_POLICIES, lambda: _by_name(stats, lambda one: one.policies))
    metrics.read(
        families.PLUGIN_VIOLATIONS,
        lambda: [((plugin,), one.violations) for plugin, one in stats().items()],
    )
    metrics.read(
        families.PLUGIN_REMARKS,
        lambda: [((plugin,), one.remarks) for plugin, one in stats().items()],
    )


def _call_times(stats: Stats) -> Iterator[tuple[Labels, Histogram]]:
    for plugin, one in stats().items():
        for call, figures in one.items():
            yield (plugin, call), figures.times


class _PerCall:
    def __init__(self, stats: Stats, value: Callable[[CallStats], float]) -> None:
        self._stats = stats
        self._value = value

    def __call__(self) -> Iterator[tuple[Labels, float]]:
        for plugin, stats in self._stats().items():
            for call, figures in stats.items():
                value = self._value(figures)
                if value:
                    yield (plugin, call), value


def _by_name(
    stats: Stats, counted: Callable[[CallStats], Mapping[str, int]]
) -> Iterator[tuple[Labels, float]]:
    for plugin, one in stats().items():
        for call, figures in one.items():
            for name, count in counted(figures).items():
                yield (plugin, call, name), count


_POD_POPPED = "PodPopped"


class _Overfull(Protocol):
    def names(self) -> Sequence[str]: ...


class _Cache(Protocol):
    @property
    def overfull(self) -> _Overfull: ...
    @property
    def assumed_count(self) -> int: ...
    @property
    def node_count(self) -> int: ...
    @property
    def pod_count(self) -> int: ...


class _Counts(Protocol):
    def pods(self) -> Mapping[str, int]: ...
    def entities(self) -> Mapping[tuple[str, str], int]: ...
    def oldest(self) -> Mapping[str, float]: ...
    def by_plugin(self) -> Mapping[tuple[str, str], int]: ...


class _Places(Protocol):
    def blamed(self) -> Mapping[tuple[str, str], int]: ...


class _InFlight(Sized, Protocol):
    def labels(self) -> Mapping[str, int]: ...


class _Queue(Protocol):
    @property
    def places(self) -> _Places: ...
    @property
    def counts(self) -> _Counts: ...
    @property
    def in_flight(self) -> _InFlight: ...
    @property
    def scheduling_cycle(self) -> int: ...


class _BindingCycles(Sized, Protocol):
    @property
    def bound_count(self) -> int: ...
    @property
    def filled_count(self) -> int: ...


class _Handlers(Protocol):
    @property
    def refused(self) -> Mapping[str, int]: ...
    @property
    def bound_by_others_count(self) -> int: ...


class _Cluster(Protocol):
    @property
    def kept_event_count(self) -> int: ...


class _Diagnoses(Protocol):
    @property
    def attempt_count(self) -> int: ...


class _Circuit(Protocol):
    @property
    def plugin(self) -> str: ...
    @property
    def point(self) -> str: ...


class _Condition(Protocol):
    @property
    def state(self) -> Enum: ...
    @property
    def plugins(self) -> Iterable[str]: ...
    @property
    def circuits(self) -> Iterable[_Circuit]: ...


class _Clock(Protocol):
    def now_s(self) -> float: ...


class _Emulation(Protocol):
    @property
    def follows(self) -> str: ...


class _Configuration(Protocol):
    @property
    def emulation(self) -> _Emulation: ...


class MeasuredHost(Protocol):
    """The parts of a host whose sizes are metrics."""

    @property
    def configuration(self) -> _Configuration:
        """The configuration, which names the version that is followed."""
        ...

    @property
    def clock(self) -> _Clock:
        """The host's time."""
        ...

    @property
    def cache(self) -> _Cache:
        """The nodes and pods of the cluster."""
        ...

    @property
    def queue(self) -> _Queue:
        """The scheduling queue."""
        ...

    @property
    def binding(self) -> _BindingCycles:
        """The binding cycles."""
        ...

    @property
    def handlers(self) -> _Handlers:
        """The handlers of watch events."""
        ...

    @property
    def cluster(self) -> _Cluster:
        """The port to the cluster."""
        ...

    @property
    def diagnoses(self) -> _Diagnoses:
        """The records of attempts."""
        ...

    def plugin_stats(self) -> Mapping[str, PluginStats]:
        """Return the cost of each plugin, by name."""
        ...

    def conditions(self) -> Sequence[_Condition]:
        """Return the state of every place of served plugins."""
        ...

    def reservations(self) -> Mapping[str, int]:
        """Return by plugin: the number of live reservations and of pending Unreserves."""
        ...

    def unreserve_ages(self) -> Mapping[str, float]:
        """Return by plugin: the age in seconds of the oldest pending Unreserve."""
        ...

    def post_bind_ages(self) -> Mapping[str, float]:
        """Return by plugin: the age in seconds of the oldest held PostBind, or end of a bound pod's cycle."""
        ...

    def post_binds_dropped(self) -> Mapping[str, int]:
        """Return by plugin: the number of these that were dropped."""
        ...

    def drifts(self) -> Mapping[str, int]:
        """Return by plugin: how often an instance dropped its copy of the state."""
        ...

    def absent_plugins(self) -> Sequence[str]:
        """Return the required plugins that cannot be called."""
        ...


def show_host(metrics: SchedulerMetrics, host: MeasuredHost) -> None:
    """Register the sizes of this host's parts in `metrics`, in place of an earlier host's."""
    cache = host.cache
    versions = _versions(host.configuration.emulation.follows)
    metrics.read(families.BUILD_INFO, lambda: [(versions, 1.0)])
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
    metrics.read(families.OVERFULL_NODES, lambda: [((), len(cache.overfull.names()))])
    metrics.read(families.NODES_FILLED, lambda: [((), host.binding.filled_count)])
    metrics.read(families.BOUND_BY_OTHERS, lambda: [((), host.handlers.bound_by_others_count)])
    metrics.read(families.PENDING_PODS, _ThoseSeen(lambda: _pending(host)))
    metrics.read(families.PENDING_BY_PLUGIN, _ThoseSeen(lambda: host.queue.counts.by_plugin().items()))
    metrics.read(families.OLDEST_PENDING, _ThoseSeen(lambda: _oldest(host)))
    metrics.read(families.QUEUED_ENTITIES, _ThoseSeen(lambda: host.queue.counts.entities().items()))
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
    metrics.read(
        families.POST_BIND_AGE,
        _ThoseSeen(lambda: [((plugin,), age) for plugin, age in host.post_bind_ages().items()]),
    )
    metrics.read(
        families.POST_BINDS_DROPPED,
        lambda: [((plugin,), count) for plugin, count in host.post_binds_dropped().items()],
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


def _versions(kube: str) -> Labels:
    return version("berth-host"), kube, platform.python_version()


def _tasks() -> Iterator[tuple[Labels, float]]:
    # A coroutine written in C, such as gRPC's, may have no name of its own.
    coroutines = (task.get_coro() for task in asyncio.all_tasks())
    counts = Counter(getattr(one, "__qualname__", type(one).__qualname__) for one in coroutines)
    for name, count in counts.items():
        yield (name,), count


def _instances(conditions: Sequence[_Condition]) -> Iterator[tuple[Labels, float]]:
    counts = Counter((name, condition.state.value) for condition in conditions for name in condition.plugins)
    yield from counts.items()


def _circuits(conditions: Sequence[_Condition]) -> Iterator[tuple[Labels, float]]:
    # One series, even if two instances of the plugin have the same circuit open.
    open_at = {(one.plugin, one.point) for condition in conditions for one in condition.circuits}
    for labels in sorted(open_at):
        yield labels, 1


# The queues of members of groups, which kube-scheduler reports when they are empty too.
_ASIDE: Final = ("incomplete", "pending")


def _pending(host: MeasuredHost) -> Iterator[tuple[Labels, float]]:
    counts = {**dict.fromkeys(_ASIDE, 0), **host.queue.counts.pods()}
    for part, count in counts.items():
        yield (part,), count


def _oldest(host: MeasuredHost) -> Iterator[tuple[Labels, float]]:
    now_s = host.clock.now_s()
    for part, created_at_s in host.queue.counts.oldest().items():
        yield (part,), max(now_s - created_at_s, 0.0)


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
    """The values of a gauge. A series that `read` returned before, but does not return now, has value 0."""

    def __init__(self, read: Callable[[], Values]) -> None:
        self._read = read
        self._seen: dict[Labels, float] = {}

    def __call__(self) -> Values:
        now = dict(self._read())
        self._seen.update(dict.fromkeys(now, 0.0))
        return (self._seen | now).items()
