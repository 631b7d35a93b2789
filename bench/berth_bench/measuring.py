"""The figures of `berth bench` and their definitions.

*Measured pods* are those of createPods ops with `collectMetrics`, or those of the namespaces and labels of
startCollectingMetrics. A *window* lasts from the first creation (or from startCollectingMetrics) to the last
binding of a measured pod. If a workload has several windows, their times and counts are added.

pods_per_s.avg             measured pods bound in the windows / seconds of the windows
pods_per_s.p50, p99        percentiles over seconds, as scheduler_perf samples them: seconds without a binding
                           share the rate of the next second that has one; less than half a second after the
                           last full second belongs to that second
nominated                  measured pods that were nominated to a node, and how many of them per second,
                           from the start of the window to the last first nomination in it
cycle_ms                   the scheduling cycles of measured pods, from the pop to the start of the binding
cpu_ms_per_pod             CPU time of the host's process in the windows / measured pods; the embedded cluster
                           is included, children (served plugins) are not
children_cpu_ms_per_pod    CPU time of the processes that the host started (served plugins, with their own
                           children) in the windows / measured pods
nodes_evaluated_per_pod    nodes that Filter was called about in the cycles of measured pods / measured pods
plugins                    all calls in the windows, about any pod
peak_rss_mb                the highest resident memory of the workload's process, from its start on

Source: `test/integration/scheduler_perf/util.go` (throughputCollector), v1.36.
"""

from __future__ import annotations

import math
import os
import resource
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from berth_host.explain.diagnosis import Diagnosis
from berth_host.metrics.plugin_stats import PluginStats
from berth_sdk.kube_object import KubeObject

from berth_bench.result import Figures, PluginFigures, Rate
from berth_bench.versus import processes

SAMPLE_S: Final = 1.0
_SHORTEST_SAMPLE_S: Final = 0.5
_STATUS: Final = Path("/proc/self/status")
Counters = dict[tuple[str, str], tuple[int, float, int, int]]
Stats = Callable[[], Mapping[str, PluginStats]]


@dataclass(slots=True, eq=False)
class _Window:
    """One period of measuring. Times are perf_counter and process_time, in seconds.

    `uids`: of the measured pods, without those that have gone; `gone_count`: how many of them have gone.
    """

    started_s: float
    cpu_started_s: float
    counters: Counters
    wants: Callable[[KubeObject], bool]
    uids: set[str] = field(default_factory=set)
    gone_count: int = 0
    bound_s: array[float] = field(default_factory=lambda: array("d"))
    nominated_s: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    children_cpu_started_s: float = 0.0
    children_cpu_s: float = 0.0

    @property
    def duration_s(self) -> float:
        return self.bound_s[-1] - self.started_s if self.bound_s else 0.0


class Meter:
    """Receives pods and attempts all the time; counts them while a window is open."""

    def __init__(self) -> None:
        self.stats: Stats = dict
        """Reads the plugins' figures; set by the host that reports to the meter."""
        self._window: _Window | None = None
        self._closed: list[_Window] = []
        self._counters: Counters = {}
        self._cycles_ms = array("d")
        self._evaluated_count = 0

    @property
    def is_open(self) -> bool:
        """True while a window is open."""
        return self._window is not None

    def open(self, wants: Callable[[KubeObject], bool]) -> None:
        """Open a window for the pods that `wants` accepts, from their creation or, if they are pending, from
        now.
        """
        self._window = _Window(
            started_s=time.perf_counter(),
            cpu_started_s=time.process_time(),
            counters=self._read(),
            wants=wants,
            children_cpu_started_s=_cpu_of_children_s(os.getpid()),
        )

    def close(self) -> None:
        """Close the window; its CPU time ends now."""
        window, self._window = self._window, None
        if window is None:
            return
        window.cpu_s = time.process_time() - window.cpu_started_s
        window.children_cpu_s = _cpu_of_children_s(os.getpid()) - window.children_cpu_started_s
        for key, after in self._read().items():
            before = window.counters.get(key, (0, 0.0, 0, 0))
            total = self._counters.get(key, (0, 0.0, 0, 0))
            self._counters[key] = (
                total[0] + after[0] - before[0],
                total[1] + after[1] - before[1],
                total[2] + after[2] - before[2],
                total[3] + after[3] - before[3],
            )
        self._closed.append(window)

    # --- what happens ----------------------------------------------------------------------------

    def pod_seen(self, pod: KubeObject) -> None:
        """Record a pod without a node: a new one, or one that existed when the window opened."""
        window = self._window
        if window is not None and window.wants(pod):
            window.uids.add(pod.ref.uid)

    def pod_bound(self, uid: str) -> None:
        """Record that a pod got its node."""
        window = self._window
        if window is not None and uid in window.uids:
            window.bound_s.append(time.perf_counter())

    def pod_gone(self, uid: str) -> None:
        """Forget a bound pod that has ended. Without this, memory would grow with the number of pods."""
        window = self._window
        if window is not None and uid in window.uids:
            window.uids.remove(uid)
            window.gone_count += 1

    def pod_nominated(self, uid: str) -> None:
        """Record that a pod was nominated to a node; only the first time counts."""
        window = self._window
        if window is not None and uid in window.uids:
            window.nominated_s.setdefault(uid, time.perf_counter())

    @property
    def nominated_count(self) -> int:
        """The number of pods nominated in the open window."""
        return 0 if self._window is None else len(self._window.nominated_s)

    def attempt_ended(self, diagnosis: Diagnosis) -> None:
        """Record the end of an attempt to schedule a pod."""
        window = self._window
        if window is not None and diagnosis.pod.uid in window.uids:
            self._cycles_ms.append(diagnosis.cycle_ms)
            self._evaluated_count += diagnosis.evaluated_count

    # --- the figures -----------------------------------------------------------------------------

    def figures(self, node_count: int) -> Figures:
        """Return all figures. The windows must be closed."""
        pods = sum(len(window.uids) + window.gone_count for window in self._closed)
        cycles_ms = np.array(self._cycles_ms or [0.0])
        return Figures(
            nodes=node_count,
            pods=pods,
            bound=sum(len(window.bound_s) for window in self._closed),
            nominated=sum(len(window.nominated_s) for window in self._closed),
            nominated_per_s=rate_of(
                [(window.started_s, list(window.nominated_s.values())) for window in self._closed]
            ).avg,
            rate=rate_of([(window.started_s, window.bound_s) for window in self._closed]),
            cycle_p50_ms=float(np.percentile(cycles_ms, 50)),
            cycle_p99_ms=float(np.percentile(cycles_ms, 99)),
            plugins=tuple(self._plugins()),
            cpu_ms_per_pod=1000 * sum(window.cpu_s for window in self._closed) / pods if pods else 0.0,
            children_cpu_ms_per_pod=(
                1000 * sum(window.children_cpu_s for window in self._closed) / pods if pods else 0.0
            ),
            peak_rss_mb=peak_rss_mb(),
            nodes_evaluated_per_pod=self._evaluated_count / pods if pods else 0.0,
        )

    def _plugins(self) -> Iterable[PluginFigures]:
        for (plugin, point), (calls, total_s, sent, received) in sorted(self._counters.items()):
            if calls or sent:
                yield PluginFigures(
                    plugin=plugin,
                    point=point,
                    calls=calls,
                    total_ms=1000 * total_s,
                    bytes_sent=sent,
                    bytes_received=received,
                )

    def _read(self) -> Counters:
        return {
            # Messages that the host sends by itself (SyncState, EndCycles) are not calls of the relay.
            (plugin, call): (
                figures.calls or figures.messages,
                figures.times.total,
                figures.bytes_sent,
                figures.bytes_received,
            )
            for plugin, stats in self.stats().items()
            for call, figures in stats.items()
        }


def rate_of(windows: Sequence[tuple[float, Sequence[float]]]) -> Rate:
    """Return the rate of windows, each given as (start, times of the bindings) in seconds."""
    used = [(start_s, bound_s) for start_s, bound_s in windows if bound_s]
    duration_s = sum(bound_s[-1] - start_s for start_s, bound_s in used)
    if duration_s <= 0:
        return Rate(avg=0.0, p50=0.0, p99=0.0)
    samples = sorted(sample for start_s, bound_s in used for sample in samples_of(start_s, bound_s))
    return Rate(
        avg=sum(len(bound_s) for _, bound_s in used) / duration_s,
        p50=_percentile(samples, 50),
        p99=_percentile(samples, 99),
    )


def samples_of(start_s: float, bound_s: Sequence[float]) -> list[float]:
    """Return the pods per second of each second of a window, counting only seconds with a binding."""
    total_s = bound_s[-1] - start_s
    whole = max(1, math.floor(total_s / SAMPLE_S))
    ends_s = [SAMPLE_S * i for i in range(1, whole + 1)]
    if total_s - ends_s[-1] >= _SHORTEST_SAMPLE_S:
        ends_s.append(total_s)
    ends_s[-1] = total_s
    counts = np.searchsorted(np.array(bound_s) - start_s, np.array(ends_s), side="right")
    samples: list[float] = []
    seen, begun_s, waiting = 0, 0.0, 0
    for end_s, count in zip(ends_s, counts.tolist(), strict=True):
        waiting += 1
        if count > seen:
            samples += [(count - seen) / (end_s - begun_s)] * waiting
            seen, begun_s, waiting = count, end_s, 0
    return samples


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the percentile by nearest rank, as scheduler_perf does."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def _cpu_of_children_s(pid: int) -> float:
    """Return the CPU time so far of all running processes below a process; 0 where there is no /proc."""
    total_s = 0.0
    try:
        for child in processes.children(pid):
            total_s += processes.cpu_s(child) + _cpu_of_children_s(child)
    except OSError:
        pass  # a process that ended meanwhile takes its time with it
    return total_s


def peak_rss_mb() -> float:
    """Return the peak memory of this process since its start, in units of 1024 * 1024 bytes."""
    # VmHWM covers this program alone; ru_maxrss includes the process that it was forked from.
    return _status_mb("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rss_mb() -> float:
    """Return the memory of this process now, in units of 1024 * 1024 bytes; the peak where there is no
    /proc.
    """
    return _status_mb("VmRSS") or peak_rss_mb()


def _status_mb(name: str) -> float:
    """Return a line of /proc/self/status in MB; 0 on a system without /proc."""
    try:
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0
