"""The calls to the cluster about a victim."""

from __future__ import annotations

import pytest
from berth_host.model.clock import ManualClock
from berth_host.preemption.preemptor import Preemptor
from berth_host.preemption.victim_calls import Mark, VictimCalls, is_marked_for
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sim.cluster.cluster import MemoryCluster
from support.hosts import START_S, pod

VICTIM = ObjectRef(namespace="default", name="victim")


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(ManualClock(START_S))


def of(cluster: MemoryCluster, ref: ObjectRef) -> Pod:
    found = cluster.server.get("pods", ref)
    assert found is not None
    return Pod.from_object(found)


async def test_mark_is_one_condition_and_leaves_those_that_others_wrote_meanwhile(
    cluster: MemoryCluster,
) -> None:
    calls = VictimCalls(cluster, ManualClock(START_S))
    victim = Pod.from_object(cluster.server.create(pod("victim")))
    strong = Pod.from_object(cluster.server.create(pod("strong")))
    preemptor = Preemptor.of_pod(strong, "n1")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.patch("pods", VICTIM, {"status": ready}, subresource="status")
    await calls.mark(victim, Mark.of_preemption(preemptor))
    after = of(cluster, VICTIM)
    assert after.object is not None
    marks = {item["type"]: item for item in after.object.get("status.conditions")}
    assert set(marks) == {"Ready", "DisruptionTarget"}
    assert marks["DisruptionTarget"] == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert is_marked_for(after, preemptor)


async def test_a_victim_that_is_marked_is_not_marked_again(cluster: MemoryCluster) -> None:
    calls = VictimCalls(cluster, ManualClock(START_S))
    victim = Pod.from_object(cluster.server.create(pod("victim")))
    await calls.mark(victim, Mark.of_preemption(Preemptor.of_pod(victim, "n1")))
    once = of(cluster, VICTIM)
    await calls.mark(once, Mark.of_preemption(Preemptor.of_pod(victim, "n1")))
    assert of(cluster, VICTIM).resource_version == once.resource_version


async def test_a_victim_that_is_gone_is_as_good_as_evicted(cluster: MemoryCluster) -> None:
    calls = VictimCalls(cluster, ManualClock(START_S))
    victim = Pod.from_object(cluster.server.create(pod("victim")))
    await calls.delete(victim)
    await calls.mark(victim, Mark.of_preemption(Preemptor.of_pod(victim, "n1")))
    await calls.delete(victim)
    assert cluster.server.list("pods") == []
