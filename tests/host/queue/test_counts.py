"""The numbers of pods and entities by part of the queue."""

from __future__ import annotations

from berth_host.queue.seams import GateQuestion
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
