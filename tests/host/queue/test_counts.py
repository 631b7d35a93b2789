"""The numbers of pods and entities by part of the queue."""

from __future__ import annotations

from berth_host.queue.counts import NO_PLUGIN
from berth_host.queue.interfaces import GateQuestion
from berth_sdk.status import Status
from support.queue_parts import Plugins, QueueBench


def test_pods_are_counted_by_part_and_gated_ones_by_themselves() -> None:
    def gate(question: GateQuestion) -> Status:
        return Status.unresolvable("closed") if question.pod.pod.name == "gated" else Status.success()

    bench = QueueBench(Plugins(gates={"Gate": gate}))
    bench.parked("rejected", "Fit")
    bench.add("gated", "active", "failed")
    assert bench.pop_name() == "active"
    bench.fail(bench.pop())
    bench.add("next", "last")
    counts = bench.queue.counts
    assert counts.pods() == {"active": 2, "backoff": 1, "gated": 1, "unschedulable": 1}
    assert counts.entities() == {
        ("active", "pod"): 2,
        ("backoff", "pod"): 1,
        ("gated", "pod"): 1,
        ("unschedulable", "pod"): 1,
    }


def test_pods_are_counted_once_by_the_plugin_that_keeps_them() -> None:
    def gate(question: GateQuestion) -> Status:
        return Status.unresolvable("closed") if question.pod.pod.name == "gated" else Status.success()

    bench = QueueBench(Plugins(gates={"Gate": gate}))
    bench.parked("rejected", "Fit", "Taints").cause = ("Fit", "Insufficient cpu")
    bench.parked("unexplained").cause = ("", "timeout")
    bench.add("gated", "new")
    assert bench.queue.counts.by_plugin() == {
        ("unschedulable", "Fit"): 1,
        ("backoff", NO_PLUGIN): 1,
        ("gated", "Gate"): 1,
        ("active", NO_PLUGIN): 1,
    }


def test_oldest_pod_of_each_part_is_the_one_created_first() -> None:
    bench = QueueBench(Plugins())
    bench.add("unknown")
    assert bench.queue.counts.oldest() == {}
    bench.pop()
    bench.parked("rejected", "Fit", created_at_s=150.0)
    for name, created_at_s in (("late", 200.0), ("early", 100.0), ("middle", 120.0)):
        bench.add(name, created_at_s=created_at_s)
    assert bench.queue.counts.oldest() == {"active": 100.0, "unschedulable": 150.0}
