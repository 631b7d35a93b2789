"""Claims that wait for a node, under the whole host: promised at Reserve, written at PreBind, waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.volume_controller import VolumeController
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process
from support.storage import CLAIMS, VOLUMES, claim, storage_class, volume
from support.waiting import until

Json = dict[str, Any]
SELECTED = "volume.kubernetes.io/selected-node"
HOSTNAME = "kubernetes.io/hostname"
CYCLE_POINTS = ("preFilter", "filter", "preScore", "reserve")


def configuration(endpoint: str, timeout_s: int) -> str:
    """VolumeBinding at an endpoint, or, without one, in process."""
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- pluginConfig:\n"
        f"  - {{name: VolumeBinding, args: {{bindTimeoutSeconds: {timeout_s}}}}}\n"
    )
    if endpoint:
        points = ", ".join(f"{point}: {{deadline: 10s}}" for point in CYCLE_POINTS)
        text += (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            "plugins:\n"
            f"- {{name: VolumeBinding, endpoint: '{endpoint}', required: true,\n"
            f"   points: {{{points}}}}}\n"
        )
    return text


@pytest.fixture(params=["in_process", "socket"])
async def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Where VolumeBinding is served; empty: nowhere."""
    if request.param == "in_process":
        yield ""
        return
    async with plugin_process(
        tmp_path / "v.sock", "berth_plugins.volumes.volume_binding:VolumeBinding"
    ) as process:
        yield process.endpoint


def zoned(name: str, zone: str) -> Json:
    return node(name, labels={"zone": zone, "topology.kubernetes.io/zone": zone, HOSTNAME: name})


NODES = [zoned("n1", "a"), zoned("n2", "b")]


def without_status(item: Json) -> Json:
    return {key: value for key, value in item.items() if key != "status"}


def using(name: str, claim_name: str, **more: Any) -> Json:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}]
    return pod(name, volumes=volumes, **more)


def disk(name: str, on: str) -> Json:
    """Return a free local volume."""
    where = {"key": HOSTNAME, "operator": "In", "values": [on]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
    return volume(name, cls="local", local={"path": "/mnt"}, nodeAffinity=affinity)


LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


class Storage:
    """A world with claims, and the controller that a test lets act when it wants."""

    def __init__(self, endpoint: str, *objects: Json, timeout_s: int = 600) -> None:
        self.world = World(NODES, configuration=configuration(endpoint, timeout_s))
        self.server = self.world.server
        for item in objects:
            # Volumes and claims come with the status and the times that they have.
            self.server.create(item, restore=item["kind"].startswith("Persistent"))
        self.controller = VolumeController(self.server)

    async def __aenter__(self) -> Storage:
        await self.world.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.controller.stop()
        await self.world.__aexit__(*exc)

    def claim(self, name: str) -> KubeObject:
        found = self.server.get(CLAIMS, ObjectRef(name=name, namespace="default"))
        assert found is not None
        return found

    def volume(self, name: str) -> KubeObject:
        found = self.server.get(VOLUMES, ObjectRef(name=name))
        assert found is not None
        return found

    def selected(self, name: str) -> str:
        return str(self.claim(name).get("metadata.annotations", {}).get(SELECTED, ""))

    async def until_selected(self, name: str) -> str:
        """Until the claim has its node, which lasts: no other client acts."""
        await until(lambda: bool(self.selected(name)))
        return self.selected(name)


async def test_claim_gets_its_node_and_the_pod_waits_for_the_volume(endpoint: str) -> None:
    async with Storage(endpoint, storage_class(zones=["b"]), claim("data"), using("web", "data")) as storage:
        assert await storage.until_selected("data") == "n2"
        assert storage.world.node_of("web") == ""
        storage.controller.start()
        await storage.world.settle()
        assert storage.world.node_of("web") == "n2"
        bound = storage.volume(storage.claim("data").get("spec.volumeName"))
        assert bound.get("spec.claimRef.uid") == storage.claim("data").ref.uid
        assert storage.world.everything_is_accounted_for()


@pytest.mark.slow
async def test_pods_get_different_volumes_and_these_name_their_claims(endpoint: str) -> None:
    claims = [claim(name, cls="local") for name in ("one", "two", "three")]
    pods = [using(f"p-{name}", name) for name in ("one", "two", "three")]
    async with Storage(endpoint, LOCAL, *claims, disk("d1", "n1"), disk("d2", "n2"), *pods) as storage:
        await until(lambda: storage.volume("d2").get("spec.claimRef.uid") is not None)
        await until(lambda: storage.volume("d1").get("spec.claimRef.uid") is not None)
        given = {storage.volume(name).get("spec.claimRef.name") for name in ("d1", "d2")}
        assert len(given) == 2
        annotations = storage.volume("d1").get("metadata.annotations")
        assert annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}
        storage.controller.start()
        await storage.world.settle()
        placed = {name: storage.world.node_of(f"p-{name}") for name in ("one", "two", "three")}
        assert sorted(placed.values()) == ["", "n1", "n2"]
        (left,) = (name for name, where in placed.items() if not where)
        assert storage.world.message_of(f"p-{left}").startswith(
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
        )


@pytest.mark.slow
async def test_pod_is_requeued_when_the_provisioner_gives_up(endpoint: str) -> None:
    async with Storage(endpoint, storage_class(), claim("data"), using("web", "data")) as storage:
        await storage.until_selected("data")
        storage.server.patch(
            CLAIMS, storage.claim("data").ref, {"metadata": {"annotations": {SELECTED: None, "x": "y"}}}
        )
        storage.controller.start()
        await storage.world.settle()
        # The first wait ended with an error; the next attempt was provisioned.
        assert storage.world.node_of("web") != ""
        reasons = [event.note for event in storage.server.events.recent if event.reason == "FailedScheduling"]
        assert reasons == [
            'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'
        ]
        errors = storage.world.host.metrics.plugin_work.volume_errors
        assert [errors.value((stage,)) for stage in ("predicate", "assume", "bind")] == [0, 0, 1]


@pytest.mark.slow
async def test_volume_stays_with_its_claim_after_the_bind_timeout(endpoint: str) -> None:
    claims = [claim("data", cls="local"), claim("other", cls="local")]
    objects = [LOCAL, *claims, disk("d1", "n1"), using("web", "data")]
    async with Storage(endpoint, *objects, timeout_s=3) as storage:
        await storage.world.settle()
        assert storage.world.message_of("web") == (
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        )
        # What was written stays, as in kube-scheduler: the volume is the claim's.
        assert storage.volume("d1").get("spec.claimRef.name") == "data"
        storage.server.create(using("late", "other"))
        storage.controller.start()
        await storage.world.settle()
        assert storage.world.node_of("late") == ""
        assert storage.world.everything_is_accounted_for()


@pytest.mark.slow
async def test_volume_that_was_changed_by_another_client_is_not_overwritten(endpoint: str) -> None:
    objects = [LOCAL, claim("data", cls="local"), disk("d1", "n1"), disk("d2", "n2")]
    async with Storage(endpoint, *objects) as storage:
        world = storage.world
        seen: list[str] = []

        def take(ref: ObjectRef) -> None:
            mine = {"namespace": "default", "name": "somebody", "uid": "uid-somebody"}
            if not seen:
                seen.append(ref.name)
                storage.server.patch(VOLUMES, ref, {"spec": {"claimRef": mine}})

        update = world.cluster.update

        async def raced(resource: str, content: Mapping[str, Any], **more: Any) -> KubeObject:
            # Between the decision and the write another claim takes the volume.
            if resource == VOLUMES:
                take(ObjectRef(name=content["metadata"]["name"]))
            return await update(resource, content, **more)

        world.cluster.update = raced  # type: ignore[method-assign]  # the race, at the one place where it can be
        storage.controller.start()
        storage.server.create(using("web", "data"))
        await world.settle()
        (taken,) = seen
        assert storage.volume(taken).get("spec.claimRef.name") == "somebody"
        assert world.node_of("web") == {"d1": "n2", "d2": "n1"}[taken]


@pytest.mark.slow
async def test_new_host_takes_up_the_writes_of_the_first_one(endpoint: str) -> None:
    async with Storage(endpoint, storage_class(), claim("data"), using("web", "data")) as storage:
        chosen = await storage.until_selected("data")
        # The first host is gone from one moment to the next: it undoes nothing and sees nothing any more.
        for task in list(storage.world.host.binding.tasks):
            task.cancel()
        await storage.world.cluster.stop()
        second = World((), configuration=configuration(endpoint, 600))
        second.cluster.server = second.server = storage.server
        async with second:
            storage.controller.start()
            await second.settle()
            assert second.node_of("web") == chosen
            assert storage.claim("data").get("spec.volumeName")
            assert second.everything_is_accounted_for()


async def test_bound_claims_are_no_reason_to_wait(endpoint: str) -> None:
    objects = [claim("data", bound_to="pv"), volume("pv", zones=["b"], bound_to="data", phase="Bound")]
    async with Storage(endpoint, *objects, using("web", "data"), using("too", "data")) as storage:
        await storage.world.settle()
        assert [storage.world.node_of(name) for name in ("web", "too")] == ["n2", "n2"]


async def test_volume_binding_reports_a_pod_that_is_deleted_during_its_wait(endpoint: str) -> None:
    async with Storage(endpoint, storage_class(), claim("data"), using("web", "data")) as storage:
        await storage.until_selected("data")
        world = storage.world
        await until(lambda: not world.host.binding.active_count)
        await world.cluster.delete("pods", ObjectRef(name="web", namespace="default"))
        await world.settle()
        notes = [event.note for event in storage.server.events.recent if event.reason == "FailedScheduling"]
        assert notes == [
            'running PreBind plugin "VolumeBinding": binding volumes: pod does not exist any more: '
            'pod "web" not found'
        ]
        assert world.clock.monotonic_s() < 2.0
        assert world.host.cache.pod_count == 0
        assert world.everything_is_accounted_for()


@pytest.mark.slow
async def test_pod_that_is_deleted_while_it_waits_frees_the_volume(endpoint: str) -> None:
    claims = [claim("data", cls="local"), claim("other", cls="local")]
    async with Storage(endpoint, LOCAL, *claims, disk("d1", "n1"), using("web", "data")) as storage:
        await until(lambda: storage.volume("d1").get("spec.claimRef") is not None)
        await storage.world.cluster.delete("pods", ObjectRef(name="web", namespace="default"))
        storage.server.patch(VOLUMES, ObjectRef(name="d1"), {"spec": {"claimRef": None}})
        storage.controller.start()
        storage.server.create(using("late", "other"))
        await storage.world.settle()
        assert storage.world.node_of("late") == "n1"
        assert storage.volume("d1").get("spec.claimRef.name") == "other"
