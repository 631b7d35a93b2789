"""The periodic jobs, on the queue's clock."""

from __future__ import annotations

import pytest
from berth_host.queue.interfaces import QueueConfig
from support.queue_parts import QueueBench


@pytest.fixture
def bench() -> QueueBench:
    bench = QueueBench()
    bench.queue.start()
    return bench


def test_backoff_ends_at_the_whole_second_after_its_own(bench: QueueBench) -> None:
    bench.clock.advance(0.4)
    bench.add("a")
    bench.fail(bench.pop())
    bench.clock.advance_to(1.999)
    assert bench.backing_off == ["a"]
    bench.clock.advance_to(2.0)
    assert bench.active == ["a"]


def test_seconds_are_those_of_the_wall_clock(bench: QueueBench) -> None:
    late = QueueBench()
    late.clock.advance(0.25)
    late.queue.start()
    late.add("a")
    late.fail(late.pop())
    assert late.queue.next_backoff_flush_s == 1.0


def test_idle_queue_sets_no_timer(bench: QueueBench) -> None:
    assert bench.clock.next_timer_s() is None
    bench.add("a")
    assert bench.clock.next_timer_s() is None
    assert bench.queue.next_backoff_flush_s is None


def test_timer_is_set_again_as_long_as_pods_back_off(bench: QueueBench) -> None:
    bench.parked("a", "Fit")
    for _ in range(3):
        bench.queue.activate([bench.pods.by_key["default/a"]])
        bench.reject(bench.pop(), "Fit")
    bench.queue.activate([bench.pods.by_key["default/a"]])
    bench.fail(bench.pop())
    assert bench.queue.next_backoff_flush_s == 1.0
    bench.clock.advance_to(1.0)
    assert bench.queue.next_backoff_flush_s == 2.0
    bench.clock.advance_to(3.0)
    assert bench.queue.next_backoff_flush_s is None


def test_leftovers_are_looked_at_every_thirty_seconds_from_the_start() -> None:
    bench = QueueBench(config=QueueConfig(pod_max_in_unschedulable_pods_s=40))
    bench.clock.advance(7)
    bench.queue.start()
    bench.parked("a", "Fit")
    bench.clock.advance_to(66.999)
    assert bench.pool == ["a"]
    bench.clock.advance_to(67.0)
    assert (bench.pool, bench.active) == ([], ["a"])


def test_pod_that_waited_exactly_as_long_as_allowed_waits_on() -> None:
    bench = QueueBench(config=QueueConfig(pod_max_in_unschedulable_pods_s=30))
    bench.queue.start()
    bench.add("a")
    info = bench.pop()
    bench.clock.advance_to(30.0)
    bench.reject(info, "Fit")
    bench.clock.advance_to(60.0)
    assert bench.pool == ["a"]
    bench.clock.advance_to(90.0)
    assert bench.active == ["a"]
    assert info.was_flushed_from_unschedulable


def test_at_the_same_instant_backoff_comes_first() -> None:
    bench = QueueBench(config=QueueConfig(pod_max_in_unschedulable_pods_s=20))
    bench.queue.start()
    bench.parked("leftover", "Fit")
    bench.clock.advance_to(28.1)
    bench.add("failed")
    bench.fail(bench.pop())
    bench.clock.advance_to(30.999)
    assert bench.notes.entered[-1] == ("active", "UnschedulableTimeout")
    bench.clock.advance_to(31.0)
    assert bench.active == ["leftover", "failed"]


def test_stopped_queue_moves_nothing_by_itself(bench: QueueBench) -> None:
    bench.add("a")
    bench.fail(bench.pop())
    bench.queue.stop()
    bench.clock.advance(60)
    assert bench.backing_off == ["a"]
    assert bench.queue.flush_backoff() == 1
