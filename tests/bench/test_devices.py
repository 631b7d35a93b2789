"""The ops about devices: the slices of a driver, and claims that are allocated without a pod."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from berth_bench.actions import Actions, OpError
from berth_bench.devices import CLAIMS, slices_of
from berth_bench.measuring import Meter
from berth_bench.workload import AllocateClaims, CreateResourceDriver, StartCollecting
from berth_host.app import Host, HostOptions
from berth_host.cli import configuration
from berth_host.model.clock import RealClock
from berth_sim.cluster.claim_controller import ClaimController
from berth_sim.cluster.server import ApiServer
from berth_sim.commands import simulation
from support.device_objects import claim, device_class
from support.hosts import node

DRIVER = "gpu.example.com"
SLICES = "resource.k8s.io/resourceslices"


def driver(count: int, fits: str = "gpu-*") -> CreateResourceDriver:
    return CreateResourceDriver(driver=DRIVER, nodes=fits, devices_per_node=count)


class Bench:
    """A host on the embedded cluster with three nodes, two of them with devices."""

    def __init__(self) -> None:
        clock = RealClock()
        self.server = ApiServer(clock)
        config = configuration.for_simulation(None, {})
        self.host: Host = simulation.embedded_host(config, self.server, HostOptions(clock=clock))
        self.meter = Meter()
        self.actions = Actions(self.host, self.server, self.meter)
        self.controller = ClaimController(self.server)
        for name in ("plain", "gpu-a", "gpu-b"):
            self.server.create(node(name))

    def claims(self) -> list[Any]:
        return [(found.ref.name, found.get("status.allocation")) for found in self.server.list(CLAIMS)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    made.controller.start()
    await made.host.start()
    yield made
    made.actions.pods.close()
    made.controller.stop()
    await made.host.stop()


def test_driver_has_a_slice_for_each_node_that_fits() -> None:
    server = ApiServer(RealClock())
    for name in ("plain", "gpu-a", "gpu-b"):
        server.create(node(name))
    slices = slices_of(driver(2), server)
    assert [(item["metadata"]["name"], item["spec"]["nodeName"]) for item in slices] == [
        ("gpu-a", "gpu-a"),
        ("gpu-b", "gpu-b"),
    ]
    first, second = slices[0]["spec"]["devices"]
    assert (first["name"], second["name"]) == ("instance-0", "instance-1")
    numa = "dra.example.com/numa"
    assert (first["attributes"][numa], second["attributes"][numa]) == ({"int": 0}, {"int": 1})
    assert first["capacity"] == {"memory": {"value": "1Gi"}}
    assert slices[0]["spec"]["pool"] == {"name": "gpu-a", "generation": 0, "resourceSliceCount": 1}


async def test_time_to_publish_is_reported_if_it_is_measured(bench: Bench) -> None:
    await bench.actions.run(driver(1, "gpu-a"))
    assert bench.actions.notes == []
    await bench.actions.run(StartCollecting(namespaces=("default",)))
    await bench.actions.run(driver(1, "gpu-b"))
    (note,) = bench.actions.notes
    assert note.startswith("1 ResourceSlices were known to the scheduler after ")


async def test_claims_are_allocated_without_a_pod(bench: Bench) -> None:
    await bench.actions.run(driver(2))
    bench.server.create(device_class())
    for name in ("a", "b", "c"):
        bench.server.create(claim(name))
    await bench.actions.run(AllocateClaims(namespace="default"))
    assert bench.server.list("pods") == []
    devices = {
        (result["pool"], result["device"])
        for _, allocation in bench.claims()
        for result in allocation["devices"]["results"]
    }
    assert len(devices) == 3
    assert all(not found.get("status.reservedFor") for found in bench.server.list(CLAIMS))
    bench.server.create(claim("d"))
    before = bench.claims()[:3]
    await bench.actions.run(AllocateClaims())
    assert bench.claims()[:3] == before
    assert bench.claims()[3][1] is not None


async def test_claims_without_devices_are_an_error_that_says_why(bench: Bench) -> None:
    await bench.actions.run(driver(1))
    bench.server.create(device_class())
    for name in ("a", "b", "c"):
        bench.server.create(claim(name))
    with pytest.raises(OpError, match="1 of 3 claims cannot be allocated; one of them: 0/3 nodes"):
        await bench.actions.run(AllocateClaims())
