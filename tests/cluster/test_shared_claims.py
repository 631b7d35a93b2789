"""A gang whose members share a ResourceClaim, on a real API server: berth beside kube-scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.real_servers import SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.device_objects import claim, device_class, exactly, resource_slice
from support.device_objects import device as a_device
from support.groups import pod_group
from support.hosts import node as a_node
from support.waiting import until

pytestmark = pytest.mark.long

Json = dict[str, Any]
MEMBERS = 5
DEVICES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{DEVICES}/namespaces/default/resourceclaims"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GATES = "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"
USE = {"name": "gpu", "resourceClaimName": "shared"}


@pytest.fixture(params=["berth", "kube-scheduler"])
async def scheduler(
    request: pytest.FixtureRequest, empty_pod_group_servers: RealServers, tmp_path: Path
) -> AsyncIterator[str]:
    """The name of a scheduler that runs on the servers."""
    name: str = request.param
    setup = SchedulerSetup(
        program=name if name == "berth" else str(program(name)),
        kubeconfig=empty_pod_group_servers.kubeconfig(SCHEDULER),
        folder=tmp_path,
        flags=(GATES,),
    )
    process = SchedulerProcess(setup)
    await process.start()
    await process.ready()
    yield name
    await process.kill()


def a_cluster(servers: RealServers) -> None:
    """Make two nodes, one with a device, and the claim."""
    for name in ("n1", "n2"):
        status = a_node(name, pods="20")["status"]
        made = servers.create(NODES, {"metadata": {"name": name}})
        servers.request(
            "PUT",
            f"{NODES}/{name}/status",
            {**made, "status": {**status, "capacity": status["allocatable"]}},
        )
    servers.create(f"{DEVICES}/deviceclasses", device_class())
    servers.create(f"{DEVICES}/resourceslices", resource_slice("n1", [a_device("d0")]))
    made = claim("shared", exactly(allocationMode="ExactCount", count=1))
    servers.create(CLAIMS, {**made, "metadata": {"name": "shared"}})


def a_member(name: str) -> Json:
    container = {"name": "c", "image": "app", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [USE], "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.slow
@pytest.mark.parametrize("is_groups", [False, True], ids=["of pods", "of the group"])
async def test_members_start_with_the_devices_of_one_claim(
    scheduler: str, empty_pod_group_servers: RealServers, is_groups: bool
) -> None:
    servers = empty_pod_group_servers
    a_cluster(servers)
    group = pod_group("g", least=MEMBERS)
    if is_groups:
        group["spec"]["resourceClaims"] = [USE]
    servers.create(GROUPS, group)
    names = [f"g-{i}" for i in range(MEMBERS)]
    for name in names:
        servers.create(PODS, a_member(name))

    def placed() -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["nodeName"]
            for one in servers.request("GET", PODS)["items"]
            if one["spec"].get("nodeName")
        }

    await until(lambda: len(placed()) == MEMBERS)
    assert placed() == dict.fromkeys(names, "n1")
    users = servers.request("GET", f"{CLAIMS}/shared")["status"]["reservedFor"]
    wanted = [("podgroups", "g")] if is_groups else [("pods", name) for name in names]
    assert sorted((one["resource"], one["name"]) for one in users) == wanted
    if scheduler == "berth":
        # In kube-scheduler the binding of every member but one fails once.
        reasons = {one["reason"] for one in servers.request("GET", EVENTS)["items"]}
        assert "FailedScheduling" not in reasons
