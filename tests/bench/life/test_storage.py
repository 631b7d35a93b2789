"""The storage of a life: claims get volumes, and the laws see pods without theirs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from berth_bench.life import storage
from berth_bench.life.storage import CLAIMS, USED_WITHIN_S, VOLUMES, Storage
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.versus.objects import node, pod
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.server import ApiServer

ZONE = "topology.kubernetes.io/zone"


def on_storage(main: Callable[[ApiServer, Storage], Awaitable[None]]) -> None:
    async def life(clocks: VirtualClocks) -> None:
        server = ApiServer(clocks)
        made = Storage(server, ZONE, ("a", "b"))
        made.begin()
        server.create(node("n1", "4", **{ZONE: "a"}))
        await main(server, made)
        made.end()

    run(life, random.Random(0))


def claim_of(spec: dict[str, Any]) -> ObjectRef:
    name = spec["volumes"][0]["persistentVolumeClaim"]["claimName"]
    return ObjectRef(name=name, namespace="default")


def test_claims_of_all_classes_are_drawn_shared_and_own_and_some_come_late() -> None:
    async def main(server: ApiServer, made: Storage) -> None:
        chance = random.Random(1)
        late = shared = 0
        for number in range(40):
            pods = [f"p{number}-{one}" for one in range(3)]
            names = {claim_of(spec) for spec in made.claims_for(chance, pods).values()}
            assert len(names) in (1, 3)
            shared += len(names) == 1
            late += sum(server.get(CLAIMS, name) is None for name in names)
        made.collect()
        assert 0 < shared < 40
        assert late > 0
        classes = {claim.get("spec.storageClassName") for claim in server.list(CLAIMS)}
        assert classes == {"later", "at-once", "made-before"}
        assert len(server.list(CLAIMS)) == shared + 3 * (40 - shared)

    on_storage(main)


def test_claim_and_its_volume_go_when_the_pods_are_gone() -> None:
    async def main(server: ApiServer, made: Storage) -> None:
        chance = random.Random(1)
        refs = [claim_of(made.claims_for(chance, [f"p{number}"])[f"p{number}"]) for number in range(20)]
        made.collect()
        server.create(pod("p0"))
        await asyncio.sleep(1)
        bound = [volume for volume in server.list(VOLUMES) if volume.get("spec.claimRef")]
        assert bound
        made.collect()
        assert len(server.list(CLAIMS)) == len(refs)
        await asyncio.sleep(USED_WITHIN_S)
        made.collect()
        assert [claim.ref.name for claim in server.list(CLAIMS)] == [refs[0].name]
        kept = {volume.get("spec.claimRef.name") for volume in server.list(VOLUMES)}
        assert kept <= {refs[0].name, None}

    on_storage(main)


def test_each_zone_has_a_volume_for_every_unbound_claim_once_there_is_room() -> None:
    async def main(server: ApiServer, made: Storage) -> None:
        for number in range(12):
            made.claims_for(random.Random(number), [f"p{number}"])
        await asyncio.sleep(1)
        made.make_room()
        unbound = sum(not claim.get("spec.volumeName") for claim in server.list(CLAIMS))
        assert unbound > 1
        for zone in "ab":
            free = [one for one in server.list(VOLUMES) if one.get("metadata.labels.zone") == zone]
            assert sum(not one.get("spec.claimRef") for one in free) == unbound

    on_storage(main)


def test_bound_pod_without_its_volume_is_seen_and_so_is_a_volume_whose_claim_has_another() -> None:
    async def main(server: ApiServer, made: Storage) -> None:
        server.create(pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]))
        found = server.list("pods")[0]
        assert storage.unbound_volumes(server, found) == ["c"]
        server.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "c", "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "storageClassName": "at-once",
                },
            }
        )
        assert storage.unbound_volumes(server, found) == ["c"]
        await asyncio.sleep(1)
        assert storage.unbound_volumes(server, found) == []
        assert storage.half_bound_volumes(server) == []
        other = server.list(VOLUMES)[0]
        claim = server.list(CLAIMS)[0].ref
        assert other.get("spec.claimRef") is None
        made.end()
        reference = {"spec": {"claimRef": {"name": "c", "namespace": "default", "uid": claim.uid}}}
        server.patch(VOLUMES, other.ref, reference)
        assert storage.half_bound_volumes(server) == [other.ref.name]

    on_storage(main)
