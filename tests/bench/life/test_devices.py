"""The devices of a life: slices and claims, and the laws about them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from berth_bench.life import devices
from berth_bench.life.devices import CLAIMS, SLICES, Devices
from berth_bench.life.storage import USED_WITHIN_S
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.versus.objects import pod
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.server import ApiServer


def on_devices(main: Callable[[ApiServer, Devices], Awaitable[None]]) -> None:
    async def life(clocks: VirtualClocks) -> None:
        server = ApiServer(clocks)
        made = Devices(server)
        made.begin()
        await main(server, made)
        made.end()

    run(life, random.Random(0))


def allocated(server: ApiServer, claim: KubeObject, node: str, device: str, *users: KubeObject) -> None:
    results = [{"request": "r", "driver": "life.berth.io", "pool": node, "device": device}]
    reserved = [{"resource": "pods", "name": one.ref.name, "uid": one.ref.uid} for one in users]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    server.patch(CLAIMS, claim.ref, {"status": status}, subresource="status")


def found(server: ApiServer, name: str) -> KubeObject:
    one = server.get("pods", ObjectRef(name=name, namespace="default"))
    assert one is not None
    return one


def test_node_publishes_its_devices_anew_with_a_newer_generation() -> None:
    async def main(server: ApiServer, made: Devices) -> None:
        made.node_has("n1", 2)
        made.node_has("n1", 3)
        [one] = server.list(SLICES)
        assert [device["name"] for device in one.get("spec.devices")] == ["d0", "d1", "d2"]
        assert one.get("spec.pool") == {"name": "n1", "generation": 2, "resourceSliceCount": 1}
        made.node_has("n1", 0)
        assert server.list(SLICES) == []

    on_devices(main)


def test_pods_have_claims_of_their_own_or_share_one_until_they_are_gone() -> None:
    async def main(server: ApiServer, made: Devices) -> None:
        drawn = [made.claims_for(random.Random(number), [f"a{number}", f"b{number}"]) for number in range(20)]
        entries = [specs[f"a{number}"]["resourceClaims"][0] for number, specs in enumerate(drawn)]
        shared = [one["resourceClaimName"] for one in entries if "resourceClaimName" in one]
        assert 0 < len(shared) < 20
        assert [claim.ref.name for claim in server.list(CLAIMS)] == shared
        user = shared[0].removesuffix("-shared")
        server.create(pod(user))
        await asyncio.sleep(USED_WITHIN_S + 1)
        made.collect()
        assert [claim.ref.name for claim in server.list(CLAIMS)] == shared[:1]

    on_devices(main)


def test_bound_pod_needs_its_device_on_its_node_and_reserved_for_it() -> None:
    async def main(server: ApiServer, made: Devices) -> None:
        entry = {"name": "device", "resourceClaimTemplateName": "one-device"}
        for name in ("p", "q"):
            server.create(pod(name, resourceClaims=[entry]))
        await asyncio.sleep(1)
        for name in ("p", "q"):
            server.bind(ObjectRef(name=name, namespace="default"), "n1")
        p, q = found(server, "p"), found(server, "q")
        of_p, of_q = server.list(CLAIMS)
        assert devices.lacking_claims(server, p) == [f"{of_p.ref.name} is allocated on no node"]
        allocated(server, of_p, "n2", "d0", p)
        assert devices.lacking_claims(server, p) == [f"{of_p.ref.name} is allocated on n2"]
        allocated(server, of_p, "n1", "d0", q)
        assert devices.lacking_claims(server, p) == [f"{of_p.ref.name} is not reserved for the pod"]
        allocated(server, of_p, "n1", "d0", p)
        assert devices.lacking_claims(server, p) == []
        assert devices.devices_taken_twice(server) == []
        assert devices.idle_claims(server) == []
        allocated(server, of_q, "n1", "d0", q)
        assert devices.devices_taken_twice(server) == [f"n1/d0 ({of_p.ref.name} and {of_q.ref.name})"]
        allocated(server, of_q, "n1", "d1")
        assert devices.idle_claims(server) == [f"{of_q.ref.name} is allocated for nobody"]

    on_devices(main)
