"""`PluginStats` -> the `berth_plugin_*` families, made at each reading: counting costs no more for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from berth_host.metrics import families
from berth_host.metrics.families import Family
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.metrics.scheduler_metrics import SchedulerMetrics
from berth_host.metrics.series import Labels

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
    """Show the answer of `stats`, by plugin and by call, with the contract's names; zeros are left out: there
    are many plugins.
    """
    for family, value in _PER_CALL:
        metrics.read(family, _PerCall(stats, value))
    metrics.read(families.PLUGIN_FAILURES, lambda: _by_name(stats, lambda one: one.failures))
    metrics.read(families.PLUGIN_POLICIES, lambda: _by_name(stats, lambda one: one.policies))
    metrics.read(
        families.PLUGIN_VIOLATIONS,
        lambda: [((plugin,), one.violations) for plugin, one in stats().items()],
    )
    metrics.read(families.PREEMPTION_ATTEMPTS, lambda: [((), _preemptions(stats))])


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


def _preemptions(stats: Stats) -> int:
    """How often DefaultPreemption was asked for room."""
    found = stats().get("DefaultPreemption")
    return 0 if found is None else dict(found.items()).get("PostFilter", CallStats()).calls
