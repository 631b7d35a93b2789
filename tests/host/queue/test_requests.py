"""Requeues for plugins: on request through the handle, and after a plugin's recovery."""

from __future__ import annotations

from berth_host.queue.events import PluginRequest
from support.queue_parts import QueueBench, a_pod


def request(plugin: str = "Fit", *uids: str, skip_backoff: bool = False) -> PluginRequest:
    return PluginRequest(plugin=plugin, uids=frozenset(uids) if uids else None, skip_backoff=skip_backoff)


def test_all_that_the_plugin_rejected_are_tried_again() -> None:
    bench = QueueBench()
    bench.parked("a", "Fit")
    bench.parked("b", "Taint")
    bench.parked("c", "Taint", "Fit")
    assert bench.queue.requeue(request("Fit")) == 2
    assert (bench.backing_off, bench.pool) == (["a", "c"], ["b"])


def test_named_pods_are_tried_again_whoever_rejected_them() -> None:
    bench = QueueBench()
    bench.parked("a", "Fit")
    bench.parked("b", "Taint")
    assert bench.queue.requeue(request("Fit", "uid-b", "uid-unknown")) == 1
    assert (bench.backing_off, bench.pool) == (["b"], ["a"])


def test_backoff_is_skipped_only_on_request() -> None:
    bench = QueueBench()
    bench.parked("a", "Fit")
    bench.queue.requeue(request("Fit"))
    assert bench.queue.requeue(request("Fit")) == 0
    assert bench.backing_off == ["a"]
    assert bench.queue.requeue(request("Fit", skip_backoff=True)) == 1
    assert bench.active == ["a"]


def test_pods_that_the_plugin_did_not_reject_stay_in_their_backoff() -> None:
    bench = QueueBench()
    bench.parked("a", "Taint")
    bench.queue.requeue(request("Taint"))
    bench.add("b")
    bench.fail(bench.pop())
    assert bench.queue.requeue(request("Fit", skip_backoff=True)) == 0
    assert bench.queue.requeue(request("Fit", "uid-b", skip_backoff=True)) == 1
    assert (bench.active, bench.backing_off) == (["b"], ["a"])


def test_queued_and_unknown_pods_are_left_alone() -> None:
    bench = QueueBench()
    bench.add("a")
    assert bench.queue.requeue(request("Fit", "uid-a", "uid-z", skip_backoff=True)) == 0
    assert bench.active == ["a"]


def test_request_during_the_attempt_counts_when_the_pod_comes_back() -> None:
    bench = QueueBench()
    bench.add("a", "b", "c")
    a, b, c = bench.pop(), bench.pop(), bench.pop()
    bench.queue.requeue(request("Fit"))
    bench.queue.requeue(request("Taint", "uid-c", skip_backoff=True))
    bench.reject(a, "Fit")
    bench.reject(b, "Taint")
    bench.reject(c, "Taint")
    assert (bench.backing_off, bench.pool, bench.active) == (["a"], ["b"], ["c"])


def test_recovered_plugin_brings_back_the_pods_that_failed_on_its_account() -> None:
    bench = QueueBench()
    bench.add("a", "b", "c")
    bench.fail(bench.pop(), "Gpu")
    bench.fail(bench.pop(), "Other")
    bench.fail(bench.pop())
    assert bench.queue.plugin_recovered("Gpu") == 1
    assert (bench.active, bench.backing_off) == (["a"], ["b", "c"])
    assert bench.queue.plugin_recovered("Gpu") == 0


def test_pod_that_was_tried_since_or_is_gone_is_not_brought_back() -> None:
    bench = QueueBench()
    bench.add("a", "b")
    bench.fail(bench.pop(), "Gpu")
    bench.fail(bench.pop(), "Gpu")
    bench.queue.delete(a_pod("b"))
    bench.queue.activate([a_pod("a")])
    bench.fail(bench.pop())
    assert bench.queue.plugin_recovered("Gpu") == 0
    assert bench.backing_off == ["a"]
