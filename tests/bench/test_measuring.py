"""Rates and their samples, from the times of bindings."""

from __future__ import annotations

import subprocess
import sys

import pytest
from berth_bench.measuring import Meter, peak_rss_mb, rate_of, samples_of
from berth_host.explain.diagnosis import Diagnosis
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod


def test_each_second_is_a_sample() -> None:
    bound_s = [100.1, 100.2, 100.9, 101.5, 102.0]
    assert samples_of(100.0, bound_s) == [3.0, 2.0]


def test_seconds_without_a_binding_share_the_next_rate() -> None:
    assert samples_of(0.0, [0.5, 3.5, 3.6, 4.0]) == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("last_s", "samples"),
    [
        pytest.param(1.4, [4 / 1.4], id="a short rest belongs to the second before"),
        pytest.param(1.5, [3.0, 1 / 0.5], id="half a second counts"),
    ],
)
def test_rest_behind_the_last_full_second(last_s: float, samples: list[float]) -> None:
    assert samples_of(0.0, [0.1, 0.2, 0.3, last_s]) == pytest.approx(samples)


def test_average_is_over_the_windows_and_percentiles_over_all_seconds() -> None:
    rate = rate_of([(0.0, [0.5, 1.0]), (10.0, [10.5, 11.0, 11.5, 12.0]), (20.0, [])])
    assert rate.avg == 6 / 3.0
    assert (rate.p50, rate.p99) == (2.0, 2.0)


def test_percentiles_take_the_nearest_rank() -> None:
    times = [second + 1 - 1e-9 - i / 1000 for second in range(4) for i in reversed(range(second + 1))]
    rate = rate_of([(0.0, [*times[:-1], 4.0])])
    assert (rate.p50, rate.p99) == (2.0, 4.0)


def test_window_without_bindings_has_a_rate_of_zero() -> None:
    assert (rate_of([]).avg, rate_of([(1.0, [])]).p99) == (0.0, 0.0)


def pod(name: str, namespace: str = "a") -> KubeObject:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return KubeObject.of({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def attempt(name: str, *, cycle_ms: float, evaluated: int) -> Diagnosis:
    return Diagnosis(
        pod=Pod(name=name, uid=f"uid-{name}"),
        profile="p",
        cycle_id="c",
        attempt=1,
        started_at_s=0.0,
        cycle_ms=cycle_ms,
        evaluated_count=evaluated,
    )


def test_only_wanted_pods_of_an_open_window_count() -> None:
    meter = Meter()
    meter.pod_seen(pod("early"))
    meter.open(lambda item: item.ref.namespace == "a")
    for item in (pod("one"), pod("two"), pod("other", "b")):
        meter.pod_seen(item)
    for name in ("one", "other", "early"):
        meter.pod_bound(f"uid-{name}")
        meter.attempt_ended(attempt(name, cycle_ms=2.0, evaluated=7))
    meter.attempt_ended(attempt("two", cycle_ms=4.0, evaluated=3))
    meter.close()
    meter.pod_bound("uid-two")
    figures = meter.figures(9)
    assert (figures.nodes, figures.pods, figures.bound) == (9, 2, 1)
    assert figures.nodes_evaluated_per_pod == 5.0
    assert figures.cycle_p50_ms == 3.0


def test_plugins_figures_are_those_of_the_windows() -> None:
    from berth_host.metrics.plugin_stats import PluginStats

    stats = PluginStats("P")
    stats.of("Filter").times.observe(5.0)
    meter = Meter()
    meter.stats = lambda: {"P": stats}
    meter.open(lambda _: True)
    stats.of("Filter").times.observe(0.002)
    stats.of("Filter").sent(100, 40)
    stats.of("SyncState").sent(900, 0)
    meter.close()
    stats.of("Filter").times.observe(9.0)
    found = [
        (item.point, item.calls, item.bytes_sent, item.bytes_received) for item in meter.figures(1).plugins
    ]
    assert found == [("Filter", 1, 100, 40), ("SyncState", 1, 900, 0)]
    assert meter.figures(1).plugins[0].total_ms == pytest.approx(2.0)


def test_peak_memory_is_that_of_this_process() -> None:
    assert 10 < peak_rss_mb() < 10_000


BURNING = """
import sys, time
sys.stdin.readline()
while time.process_time() < 0.3:
    pass
print("burnt", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_cpu_of_what_the_host_started_is_counted_with_its_own_children() -> None:
    meter = Meter()
    # The shell is the child, and the program that burns is the child of the shell.
    words = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, BURNING]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        meter.open(lambda _: True)
        meter.pod_seen(pod("a"))
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "burnt\n"
        meter.close()
        child.stdin.close()
    assert 150 < meter.figures(1).children_cpu_ms_per_pod < 1000
