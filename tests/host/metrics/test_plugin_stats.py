"""The cost of calls, counted in buckets that double in size."""

from __future__ import annotations

from berth_host.metrics.plugin_stats import CallStats, PluginStats


def test_mean_maximum_and_quantiles_follow_the_observations() -> None:
    stats = CallStats()
    for _ in range(90):
        stats.times.observe(0.000_100)
    for _ in range(10):
        stats.times.observe(0.010)
    assert stats.calls == 100
    assert stats.times.highest == 0.010
    assert abs(stats.times.mean - 0.001_09) < 1e-9
    assert 0.000_100 <= stats.times.quantile(0.5) <= 0.000_200
    assert stats.times.quantile(0.99) == 0.010


def test_histogram_without_observations_has_mean_and_quantiles_zero() -> None:
    assert (CallStats().times.mean, CallStats().times.quantile(0.5)) == (0.0, 0.0)


def test_a_call_longer_than_every_bucket_is_counted_in_the_last() -> None:
    stats = CallStats()
    stats.times.observe(10_000.0)
    assert stats.times.counts[-1] == 1


def test_plugin_stats_have_figures_per_call() -> None:
    stats = PluginStats("Demo")
    stats.of("Filter").times.observe(0.1)
    stats.of("Filter").times.observe(0.1)
    stats.of("Score").times.observe(0.1)
    assert [(rpc, figures.calls) for rpc, figures in stats.items()] == [("Filter", 2), ("Score", 1)]


def test_bytes_of_requests_and_replies_are_summed() -> None:
    stats = CallStats()
    stats.sent(100, 20)
    stats.sent(50, 0)
    assert (stats.messages, stats.bytes_sent, stats.bytes_received) == (2, 150, 20)
