"""Pods with volumes and resource claims in questions: the answers, and the notes on what they leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from berth_host.app import Drain, Fit, NodeTemplate, Simulate
from support.coscheduling import COSCHEDULING_PROFILE
from support.hosts import World, node, pod

ZONE = "topology.kubernetes.io/zone"
Json = dict[str, Any]


def storage_class(**more: Any) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        **more,
    }


def driver(**spec: Any) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "csi.example.com"},
        "spec": spec,
    }


def volume_claim(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def mounting(name: str, claim: str) -> Json:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def device_claim(name: str) -> Json:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


ONE_DEVICE = (
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d0"}],
        },
    },
)


def claiming(name: str, **reference: str) -> Json:
    made = pod(name, resourceClaims=[{"name": "g", **reference}])
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    return made


def template(zone: str = "z1") -> NodeTemplate:
    labels = {"kubernetes.io/hostname": "x", ZONE: zone}
    return NodeTemplate(name=zone, node=node("x", labels=labels), count=2)


async def asked(
    objects: Sequence[Json], pods: Sequence[Json], *templates: NodeTemplate, **options: Any
) -> tuple[list[str], list[str]]:
    """Return the place of each pod, or its message, and the notes."""
    async with World(objects) as world:
        await world.settle()
        question = Simulate(pods=pods, templates=templates, **options)
        simulation = await world.host.ask(question)
        found = [one async for part in simulation.run() for one in part]
        found.sort(key=lambda one: one.index)
        notes = list(simulation.summary().notes)
    return [one.node_name or one.template or one.message for one in found], notes


async def test_unbound_claim_follows_the_topology_of_its_class_onto_templates() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]
    objects = [node("full", cpu="0"), storage_class(allowedTopologies=terms), volume_claim("c")]
    places, notes = await asked(objects, [mounting("a", "c")], template("z1"), template("z2"))
    assert places == ["z2"]
    (note,) = notes
    assert note.startswith("default/a: nodes of templates have no CSINode, so limits of volumes do not count")


async def test_limit_of_volumes_counts_on_nodes_that_exist_and_not_on_templates() -> None:
    limit = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n0"},
        "spec": {
            "drivers": [
                {"name": "csi.example.com", "nodeID": "n0", "topologyKeys": [], "allocatable": {"count": 1}}
            ]
        },
    }
    claims = [volume_claim(f"c{i}") for i in range(3)]
    objects = [node("n0"), limit, driver(), storage_class(), *claims]
    pods = [mounting(f"p{i}", f"c{i}") for i in range(3)]
    places, notes = await asked(objects, pods)
    assert places[0] == "n0"
    assert all("exceed max volume count" in place for place in places[1:])
    assert [note.split(":")[0] for note in notes] == ["default/p0 and 2 more"]
    places, notes = await asked(objects, pods, template(), only_templates=True)
    assert places == ["z1"] * 3
    assert "limits of volumes do not count there" in notes[-1]


async def test_capacity_of_storage_is_not_found_on_templates_and_a_note_says_so() -> None:
    objects = [node("n0"), driver(storageCapacity=True), storage_class(), volume_claim("c")]
    places, notes = await asked(objects, [mounting("a", "c")], template())
    assert "3 node(s) did not have enough free storage" in places[0]
    assert "storage capacity that is published by node is not found" in notes[0]


async def test_device_counts_once_for_each_pod_and_a_note_says_so() -> None:
    objects = [node("n0"), *ONE_DEVICE, device_claim("k0"), device_claim("k1")]
    pods = [claiming("a", resourceClaimName="k0"), claiming("b", resourceClaimName="k1")]
    places, notes = await asked(objects, pods)
    assert places == ["n0", "n0"]
    assert notes == [
        "default/a and 1 more: a device that one of them takes counts as free for the next one; ask about"
        " pods with resource claims one at a time"
    ]
    assert (await asked(objects, pods, each_alone=True))[1] == []
    places, notes = await asked(objects, pods[:1], template(), only_templates=True)
    assert places[0].startswith("0/3 nodes are available")
    (note,) = notes
    assert note.startswith("default/a: nodes of templates have no ResourceSlices, so no device")


async def test_claims_that_another_pod_owns_are_told_in_a_note() -> None:
    made = claiming("a", resourceClaimTemplateName="kt")
    places, (note,) = await asked([node("n0"), *ONE_DEVICE], [made])
    assert "ResourceClaim not created yet" in places[0]
    assert note.startswith(
        "default/a: claims from a ResourceClaimTemplate and ephemeral volumes belong to a pod"
    )
    async with World([node("n0"), *ONE_DEVICE]) as world:
        await world.settle()
        assert (await world.host.ask(Fit(made))).notes == [note]
        assert (await world.host.ask(Fit(pod("b")))).notes == []


async def test_drain_says_that_a_device_of_the_node_is_kept() -> None:
    objects = [node("n0"), node("n1"), *ONE_DEVICE, device_claim("k0")]
    async with World([*objects, claiming("a", resourceClaimName="k0"), pod("b", nodeName="n0")]) as world:
        await world.settle()
        assert world.node_of("a") == "n0"
        drained = await world.host.ask(Drain("n0"))
    assert {move.pod: move.node for move in drained.moves} == {"default/a": "", "default/b": "n1"}
    (note,) = drained.notes
    assert note.startswith("default/a: resource claims count as they are allocated now")


async def test_member_of_a_group_is_told_that_the_group_is_placed_as_a_whole() -> None:
    member = pod("train-0", cpu="2", schedulingGroup={"podGroupName": "train"})
    labelled = pod("train-0", labels={"scheduling.x-k8s.io/pod-group": "train"})
    with_groups: dict[str, Any] = {"gates": {"GenericWorkload": True}}
    coscheduling: dict[str, Any] = {"configuration": COSCHEDULING_PROFILE}
    for asked_about, host, is_told in (
        (member, with_groups, True),
        (member, {}, False),
        (labelled, coscheduling, True),
        (labelled, with_groups, False),
    ):
        async with World([node("n0")], **host) as world:
            await world.settle()
            fit = await world.host.ask(Fit(asked_about))
            question = Simulate(pods=[asked_about, pod("web")])
            simulation = await world.host.ask(question)
            _ = [one async for one in simulation.run()]
            notes = [*fit.notes, *simulation.summary().notes]
        assert [note.split(":")[0] for note in notes] == ["default/train-0"] * 2 * is_told
        assert all("ask about the group with berth why podgroup or" in note for note in notes)
