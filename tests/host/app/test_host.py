"""The whole host on the embedded cluster, with plugins in process."""

from __future__ import annotations

import pytest
from berth_sdk.kube_object import ObjectRef
from support.hosts import World, node, pod


async def test_pods_are_bound_to_nodes_with_room_and_the_others_have_a_reason() -> None:
    objects = [node("n0", cpu="1"), node("n1", cpu="1"), *(pod(f"p{i}", cpu="500m") for i in range(5))]
    async with World(objects) as world:
        await world.settle()
        assert sorted(world.node_of(f"p{i}") for i in range(5)) == ["", "n0", "n0", "n1", "n1"]
        left = next(f"p{i}" for i in range(5) if not world.node_of(f"p{i}"))
        assert world.message_of(left) == (
            "0/2 nodes are available: 2 Insufficient cpu."
            " preemption: 0/2 nodes are available:"
            " 2 No preemption victims found for incoming pod."
        )
        assert world.everything_is_accounted_for()


async def test_pod_that_did_not_fit_is_placed_when_another_one_leaves() -> None:
    async with World(
        [node("n0", cpu="1"), pod("first", cpu="1", priority=5), pod("second", cpu="1")]
    ) as world:
        await world.settle()
        assert (world.node_of("first"), world.node_of("second")) == ("n0", "")
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="first"))
        await world.settle()
        assert world.node_of("second") == "n0"


async def test_pod_of_another_scheduler_is_left_alone() -> None:
    async with World([node("n0"), pod("other", schedulerName="other")]) as world:
        await world.settle()
        assert world.node_of("other") == ""
        assert world.host.queue.places.find("default/other") is None


async def test_higher_priority_goes_first_and_ties_go_to_the_smallest_name() -> None:
    objects = [node("b", cpu="1"), node("a", cpu="1"), pod("low", cpu="1"), pod("high", cpu="1", priority=9)]
    async with World(objects) as world:
        await world.settle()
        assert (world.node_of("high"), world.node_of("low")) == ("a", "b")


async def test_gated_pod_enters_when_its_last_gate_goes() -> None:
    gated = pod("web", schedulingGates=[{"name": "example.com/hold"}])
    async with World([node("n0"), gated]) as world:
        await world.settle()
        assert world.node_of("web") == ""
        found = world.pod("web")
        assert found is not None
        await world.cluster.patch("pods", found.ref, {"spec": {"schedulingGates": []}})
        await world.settle()
        assert world.node_of("web") == "n0"


@pytest.mark.slow
async def test_sampling_still_places_every_pod() -> None:
    configuration = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 10
"""
    objects = [*(node(f"n{i:03}", pods="1") for i in range(150)), *(pod(f"p{i}") for i in range(150))]
    async with World(objects, configuration=configuration) as world:
        await world.settle()
        assert len({world.node_of(f"p{i}") for i in range(150)}) == 150
