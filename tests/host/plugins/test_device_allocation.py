"""Devices from claim to binding: what pods get, what is written down, and what is given back."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.errors.cluster import ForbiddenError
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable
from support.device_objects import DRIVER, claim, device, device_class, exactly, pod_with, resource_slice
from support.hosts import World, node
from support.waiting import until

CLAIMS = "resource.k8s.io/resourceclaims"
FINALIZER = "resource.kubernetes.io/delete-protection"
Json = dict[str, Any]


def cluster(count: int, *others: Json, **of_class: Any) -> list[Json]:
    """Return a node with this number of devices."""
    devices = [device(f"d{i}") for i in range(count)]
    return [node("n1"), resource_slice("n1", devices), device_class(**of_class), *others]


def found(world: World, name: str) -> KubeObject:
    item = world.server.get(CLAIMS, ObjectRef(namespace="default", name=name))
    assert item is not None
    return item


def devices_of(item: KubeObject) -> list[str]:
    results = item.get("status.allocation.devices.results") or []
    return [result["device"] for result in results]


def users_of(item: KubeObject) -> list[str]:
    return [one["name"] for one in item.get("status.reservedFor") or []]


async def test_claims_are_allocated_reserved_and_kept() -> None:
    pods = [pod_with("a", name="one"), pod_with("a", "b", name="two")]
    async with World(cluster(2, claim("a"), claim("b"), *pods)) as world:
        await world.settle()
        assert {world.node_of(name) for name in ("one", "two")} == {"n1"}
        a, b = found(world, "a"), found(world, "b")
        assert sorted([*devices_of(a), *devices_of(b)]) == ["d0", "d1"]
        assert (sorted(users_of(a)), users_of(b)) == (["one", "two"], ["two"])
        assert a.get("metadata.finalizers") == b.get("metadata.finalizers") == [FINALIZER]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        assert a.get("status.allocation.nodeSelector") == {"nodeSelectorTerms": [term]}
        assert a.get("status.allocation.allocationTimestamp")


async def test_pod_waits_for_a_device_until_a_claim_loses_it() -> None:
    pods = [pod_with("a", name="one"), pod_with("b", name="two")]
    async with World(cluster(1, claim("a"), claim("b"), *pods)) as world:
        await world.settle()
        first, second = ("one", "two") if world.node_of("one") else ("two", "one")
        assert [world.node_of(name) for name in (first, second)] == ["n1", ""]
        assert "1 cannot allocate all claims." in str(world.message_of(second))
        held = found(world, "a" if first == "one" else "b")
        world.server.patch(CLAIMS, held.ref, {"status": {"allocation": None}}, subresource="status")
        await world.settle()
        assert world.node_of(second) == "n1"


async def test_pod_waits_outside_the_queue_until_its_claim_is_there() -> None:
    async with World(cluster(1, pod_with("a"))) as world:
        await world.settle()
        assert world.node_of("web") == ""
        world.server.create(claim("a"))
        await world.settle()
        assert world.node_of("web") == "n1"


async def test_claim_that_prevents_the_placement_is_deallocated() -> None:
    stranded = claim("a", allocated=["n2/d0"])
    async with World(cluster(1)) as world:
        world.server.create(stranded, restore=True)
        world.server.create(pod_with("a"))
        await world.settle()
        assert world.node_of("web") == "n1"
        assert devices_of(found(world, "a")) == ["d0"]


class RejectsOnce:
    """Says no at Permit to the first pod."""

    asked: list[str] = []  # noqa: RUF012  # of the class: the host makes the instance

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.asked.append(pod.name)
        return Status.unschedulable("not now") if len(self.asked) == 1 else Status.success()


async def test_reservation_of_an_attempt_is_given_back() -> None:
    RejectsOnce.asked.clear()
    pods = [pod_with("a", name="one"), pod_with("b", name="two")]
    async with World(cluster(1, claim("a"), claim("b"), *pods), [RejectsOnce]) as world:
        await world.settle()
        rejected, bound = RejectsOnce.asked[:2]
        assert rejected != bound
        assert world.node_of(bound) == "n1"


async def test_resource_of_a_class_gets_a_claim_of_its_own() -> None:
    pod = pod_with(requests={"example.com/gpu": "2"})
    async with World(cluster(2, pod, extendedResourceName="example.com/gpu")) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
        bound = world.pod("web")
        assert bound is not None
        status = bound.get("status.extendedResourceClaimStatus")
        made = found(world, status["resourceClaimName"])
        assert made.ref.name.startswith("web-extended-resources-")
        assert (sorted(devices_of(made)), users_of(made)) == (["d0", "d1"], ["web"])
        assert made.get("metadata.ownerReferences")[0]["uid"] == bound.ref.uid
        request = "container-0-request-0"
        assert made.get("spec.devices.requests") == [exactly(request, allocationMode="ExactCount", count=2)]
        assert status["requestMappings"] == [
            {"containerName": "c", "resourceName": "example.com/gpu", "requestName": request}
        ]


async def test_a_claim_left_over_from_another_attempt_is_deleted_first() -> None:
    pod = pod_with(requests={"example.com/gpu": "1"})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-web", "controller": True}
    metadata = {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "finalizers": [FINALIZER],
        "ownerReferences": [owner],
    }
    stale = claim("left-over", metadata=metadata, allocated=["n1/d0"])
    async with World(cluster(1, extendedResourceName="example.com/gpu")) as world:
        world.server.create(stale, restore=True)
        world.server.create(pod, restore=True)
        await world.settle()
        assert world.server.get(CLAIMS, ObjectRef(namespace="default", name="left-over")) is None
        message = str(world.message_of("web"))
        assert world.node_of("web") == "n1" or "deletion of ResourceClaim completed" in message


async def test_claim_of_extended_resources_goes_with_the_binding_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod = pod_with(requests={"example.com/gpu": "1"})
    messages: list[str] = []
    made: list[list[str]] = []
    async with World(
        cluster(1, extendedResourceName="example.com/gpu"),
        on_attempt=lambda attempt: messages.append(attempt.message),
    ) as world:
        bind = world.server.bind
        refused = [ForbiddenError("pods", "default/web", "no")]

        def bind_later(*args: Any, **more: Any) -> KubeObject:
            made.append([item.ref.name for item in world.server.list(CLAIMS)])
            if refused:
                raise refused.pop()
            return bind(*args, **more)

        monkeypatch.setattr(world.server, "bind", bind_later)
        world.server.create(pod)
        await world.settle()
        assert world.node_of("web") == "n1"
        # Each binding had a claim of its own, and the second attempt found no claim of the first.
        (first,), (second,) = made
        assert first != second
        assert [one.ref.name for one in world.server.list(CLAIMS)] == [second]
        assert len(messages) == 2
        assert "no" in messages[0]


async def test_outcomes_of_claims_that_are_made_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = pod_with(requests={"example.com/gpu": "1"})
    async with World(cluster(1, extendedResourceName="example.com/gpu")) as world:
        make = world.server.create_named
        refused = [ForbiddenError(CLAIMS, "", "no")]

        def create_named(resource: str, *more: Any) -> KubeObject:
            if resource == CLAIMS and refused:
                raise refused.pop()
            return make(resource, *more)

        monkeypatch.setattr(world.server, "create_named", create_named)
        world.server.create(pod)
        await world.settle()
        assert world.node_of("web") == "n1"
        creates = world.host.metrics.plugin_work.claim_creates
        counts = [creates.value(("false", "", "Pod", result)) for result in ("success", "failure")]
        assert counts == [1, 1]


OLD = "2020-01-01T00:00:00Z"


@pytest.mark.prompt_cluster
@pytest.mark.parametrize("result", ["success", "failure", "timeout"])
async def test_waits_for_binding_conditions_are_counted(result: str) -> None:
    conditions: Json = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    slices = resource_slice("n1", [device("d0", **conditions)])
    async with World([node("n1"), slices, device_class(), claim("a"), pod_with("a")]) as world:
        await until(lambda: bool(devices_of(found(world, "a"))))
        if result == "timeout":
            status: Json = {"allocation": {"allocationTimestamp": OLD}}
        else:
            kind = "Ready" if result == "success" else "Broken"
            told = {"type": kind, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": OLD}
            status = {"devices": [{"driver": DRIVER, "pool": "n1", "device": "d0", "conditions": [told]}]}
        world.server.patch(CLAIMS, found(world, "a").ref, {"status": status}, subresource="status")
        work = world.host.metrics.plugin_work
        labels = DRIVER, "default-scheduler", result
        world.clock.advance(5.0)  # the plugin looks every five seconds
        await until(lambda: work.device_allocations.value(labels) == 1)
        waited = work.device_waits.of(*labels)
        assert (waited.count, waited.total) == (1, 5.0)
        assert [found for found, _ in work.device_waits.items()] == [labels]
        if result == "success":
            await world.settle()
            assert world.node_of("web") == "n1"


async def test_devices_without_binding_conditions_are_not_counted() -> None:
    async with World(cluster(1, claim("a"), pod_with("a"))) as world:
        await world.settle()
        assert world.node_of("web") == "n1"
        assert not list(world.host.metrics.plugin_work.device_waits.items())


async def test_pods_do_not_wait_for_devices_when_the_gate_of_binding_conditions_is_off() -> None:
    conditions: Json = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    devices = [device("d0", **conditions), device("d1")]
    objects = [
        node("n1"),
        resource_slice("n1", devices),
        device_class(),
        claim("b"),
        pod_with("b", name="two"),
    ]
    held = claim("a", allocated=["n1/d0"])
    held["status"]["allocation"]["devices"]["results"][0] |= conditions
    async with World(objects, gates={"DRADeviceBindingConditions": False}) as world:
        world.server.create(held, restore=True)
        world.server.create(pod_with("a", name="one"))
        await world.settle()
        assert [world.node_of(name) for name in ("one", "two")] == ["n1", "n1"]
        assert devices_of(found(world, "b")) == ["d1"]
        for name in ("a", "b"):
            assert found(world, name).get("status.allocation.allocationTimestamp") is None
            assert "allocationTimestamp" not in found(world, name).get("status.allocation")


class FailsOnce:
    """Fails the first binding of a pod called `late`; notes the users of claim `a` before each attempt."""

    users: list[list[str]] = []  # noqa: RUF012  # of the class: the host makes the instance
    worlds: list[World] = []  # noqa: RUF012

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        if pod.name == "late":
            self.users.append(users_of(found(self.worlds[-1], "a")))
        return Status.success()

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if pod.name == "late" and len(self.users) == 1:
            assert "late" in users_of(found(self.worlds[-1], "a"))
            return Status.error("not now")
        return Status.skip()


BINDS_ELSEWHERE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    preFilter: {enabled: [{name: FailsOnce}]}
    bind: {enabled: [{name: FailsOnce}, {name: DefaultBinder}], disabled: [{name: "*"}]}
"""


async def test_pod_of_an_undone_binding_leaves_its_claim_and_other_users_stay() -> None:
    FailsOnce.users.clear()
    objects = cluster(1, claim("a"), pod_with("a", name="early"))
    async with World(objects, [FailsOnce], configuration=BINDS_ELSEWHERE) as world:
        FailsOnce.worlds.append(world)
        await world.settle()
        world.server.create(pod_with("a", name="late"))
        await world.settle()
        assert FailsOnce.users == [["early"], ["early"]]
        assert world.node_of("late") == "n1"
        assert sorted(users_of(found(world, "a"))) == ["early", "late"]
