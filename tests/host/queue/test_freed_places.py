"""Pods are requeued when another pod frees a place that it held without being bound: promised volumes and
reserved devices that are given back, and nominations that are freed. In process and served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import EventInterest
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.status import Status
from support.hosts import World, pod
from support.requeue_objects import (
    DEVICE_CLASSES,
    Json,
    claim,
    claim_of_devices,
    claimed,
    lingering,
    mounting,
    node,
    on,
    slice_of,
    storage,
    volume,
)
from support.requeue_situations import BINDING, DEVICES, FIT, Situations
from support.served import default_plugin_server
from support.waiting import until

DELAYED = storage(
    "StorageClass",
    "slow",
    provisioner="kubernetes.io/no-provisioner",
    volumeBindingMode="WaitForFirstConsumer",
)


class HoldsOnce(Plugin):
    """Holds pods labelled `hold` at Permit, and rejects them when they come again."""

    events: Sequence[EventInterest] | None = ()

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._seen: set[str] = set()

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        if "hold" not in pod.labels:
            return Status.success()
        if pod.uid in self._seen:
            return Status.unschedulable("held once")
        self._seen.add(pod.uid)
        return PermitResult.wait(3600.0)


def with_device(name: str, claim_name: str, **more: Any) -> Json:
    return pod(name, resourceClaims=[{"name": "g", "resourceClaimName": claim_name}], **more)


VOLUMES: Sequence[Json] = (
    node("n1"),
    DELAYED,
    volume("pv-1"),
    claim("c1"),
    claim("c2"),
    mounting(pod("holder", priority=1, labels={"hold": "yes"}), claimed("c1")),
    mounting(pod("other"), claimed("c2")),
)
CLAIMS: Sequence[Json] = (
    node("n1"),
    DEVICE_CLASSES[1],
    slice_of("s1", "d0"),
    claim_of_devices("mine"),
    claim_of_devices("theirs"),
    with_device("holder", "mine", priority=1, labels={"hold": "yes"}),
    with_device("other", "theirs"),
)
ROOM: Sequence[Json] = (
    node("n1"),
    pod("holder", cpu="3", priority=1, labels={"hold": "yes"}),
    pod("other", cpu="3"),
)
SHARED: Sequence[Json] = (*CLAIMS[:4], CLAIMS[5], with_device("other", "mine"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("served")) as endpoint:
        yield endpoint


@pytest.fixture(params=["in_process", "served"])
def endpoint(request: pytest.FixtureRequest) -> str:
    """Where the plugin is; empty: in process."""
    return "" if request.param == "in_process" else str(request.getfixturevalue("server"))


def delete(world: World) -> None:
    world.server.delete("pods", ObjectRef(namespace="default", name="holder"))


def reject(world: World) -> None:
    (waiting,) = world.host.waiting_pods.list()
    world.host.waiting_pods.reject("HoldsOnce", waiting.pod.uid, waiting.cycle_id, "no budget left")


@pytest.mark.parametrize("leave", [delete, reject])
@pytest.mark.parametrize(
    ("situations", "objects"),
    [
        pytest.param(FIT, ROOM, id="room on a node"),
        pytest.param(BINDING, VOLUMES, id="a promised volume"),
        pytest.param(DEVICES, CLAIMS, id="a reserved device"),
        pytest.param(DEVICES, SHARED, id="a claim that both pods name"),
    ],
)
async def test_pod_is_requeued_when_another_gives_its_reservation_back(
    situations: Situations, objects: Sequence[Json], leave: Callable[[World], None], endpoint: str
) -> None:
    text = situations.configuration(endpoint).replace("enabled: [", "enabled: [{name: HoldsOnce}, ", 1)
    world = World(plugins=[HoldsOnce], configuration=text)
    for item in objects:
        world.server.create(item, restore=True)
    async with world:
        await world.until_waiting(1)
        await until(lambda: world.host.diagnoses.find("default/other") is not None)
        assert world.node_of("other") == ""
        leave(world)
        await world.settle()
        assert world.node_of("other") == "n1"


async def test_pod_is_requeued_when_a_nominated_pod_is_deleted() -> None:
    victim = lingering(on("n1", "low", cpu="3"))
    objects = [node("n1"), victim, pod("holder", cpu="4", priority=10), pod("other", cpu="1", priority=1)]
    async with World(objects) as world:
        await world.settle()
        holder = world.pod("holder")
        assert holder is not None
        assert holder.get("status.nominatedNodeName") == "n1"
        assert world.node_of("other") == ""
        delete(world)
        await world.settle()
        assert world.node_of("other") == "n1"


async def test_devices_that_an_earlier_host_reserved_are_free_for_the_next_one(endpoint: str) -> None:
    # Without PreBind the claim is never written: its devices stand in the plugin's memory alone.
    objects = [*CLAIMS[:5], with_device("first", "mine"), with_device("second", "theirs")]
    for placed, missing in (("first", "second"), ("second", "first")):
        world = World(configuration=DEVICES.configuration(endpoint))
        for item in objects:
            if item["metadata"]["name"] != missing:
                world.server.create(item, restore=True)
        async with world:
            await world.settle()
            assert world.node_of(placed) == "n1"
