"""NodeVolumeLimits: volumes counted by driver, once each, and what makes room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from berth_plugins.volumes.node_volume_limits import REASON, NodeVolumeLimits
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventObject
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import FilterResult
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing import make_node, make_table
from support.asking import Ask, Plug
from support.storage import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
    attachment,
    claim,
    csi,
    csi_driver,
    csi_node,
    pod_using,
    storage_class,
    volume,
)

Json = dict[str, Any]
DRIVER = "csi.example.com"
GCE = "pd.csi.storage.gke.io"
EBS = "ebs.csi.aws.com"
DATA = tuple(f"d{i}" for i in range(4))
BOUND = {
    CLAIMS: tuple(claim(name, bound_to=f"pv-{name}") for name in DATA),
    VOLUMES: tuple(volume(f"pv-{name}", csi=csi(f"h-{name}")) for name in DATA),
}


def plug(
    *nodes: Json, gate: bool | None = None, objects: Mapping[str, tuple[Json, ...]] | None = None
) -> Plug:
    args = None if gate is None else {"featureGates": {"VolumeLimitScaling": gate}}
    return Plug(NodeVolumeLimits, args, {**BOUND, CSI_NODES: nodes, **(objects or {})})


def on(node: str, *names: str) -> list[Pod]:
    return [pod_using(f"{node}-{i}", name, node=node) for i, name in enumerate(names)]


NODES = [make_node("a"), make_node("b")]


@pytest.mark.parametrize(
    ("limit", "held", "wanted", "fits"),
    [
        pytest.param(1, (), ("d0",), True, id="room for one"),
        pytest.param(0, (), ("d0",), False, id="room for none"),
        pytest.param(1, ("d1",), ("d0",), False, id="full"),
        pytest.param(2, ("d1",), ("d0", "d2"), False, id="one too many"),
        pytest.param(1, ("d0",), ("d0",), True, id="it is there already"),
        pytest.param(1, ("d0", "d1"), ("d0",), True, id="overfull, and nothing new"),
        pytest.param(2, ("d1", "d1"), ("d0",), True, id="shared by two pods, counted once"),
        pytest.param(2, ("d1",), ("d0", "d0"), True, id="named twice, counted once"),
        pytest.param(None, ("d1",), ("d0",), True, id="driver without a limit"),
    ],
)
async def test_volumes_in_use_count_against_the_limit(
    ask: Ask, limit: int | None, held: tuple[str, ...], wanted: tuple[str, ...], fits: bool
) -> None:
    asked = plug(csi_node("a", {DRIVER: limit}))
    nodes = make_table(NODES, on("a", *held))
    got = await ask.filter(asked, pod_using("web", *wanted), nodes)
    # Node b has no CSINode, and so no limits.
    assert got == [SUCCESS if fits else REASON, SUCCESS]


@pytest.mark.parametrize(
    ("objects", "fits"),
    [
        pytest.param({ATTACHMENTS: (attachment("x", "a", "pv-d1"),)}, False, id="attached, unused"),
        pytest.param({ATTACHMENTS: (attachment("x", "a", "pv-d3"),)}, True, id="attached and used"),
        pytest.param({ATTACHMENTS: (attachment("x", "b", "pv-d1"),)}, True, id="attached elsewhere"),
        pytest.param({ATTACHMENTS: (attachment("x", "a", "gone"),)}, True, id="attached, volume gone"),
    ],
)
async def test_attachments_count_against_the_limit(ask: Ask, objects: dict[str, Any], fits: bool) -> None:
    asked = plug(csi_node("a", {DRIVER: 2}), objects=objects)
    got = await ask.filter(asked, pod_using("web", "d0"), make_table(NODES[:1], on("a", "d3")))
    assert got == [SUCCESS if fits else REASON]


@pytest.mark.parametrize("once", [True, False])
async def test_volume_that_is_still_attached_counts_once_unless_a_version_is_emulated(
    ask: Ask, once: bool
) -> None:
    objects = {
        **BOUND,
        CSI_NODES: (csi_node("a", {DRIVER: 1}),),
        ATTACHMENTS: (attachment("x", "a", "pv-d0"),),
    }
    asked = Plug(NodeVolumeLimits, {"featureGates": {"AttachedVolumesCountOnce": once}}, objects)
    nodes = make_table(NODES[:1])
    got = await ask.filter(asked, pod_using("web", "d0"), nodes)
    assert got == [SUCCESS if once else REASON]
    assert await ask.filter(asked, pod_using("web", "d1"), nodes) == [REASON]


@pytest.mark.parametrize(
    ("driver", "claims", "others", "fits"),
    [
        pytest.param(DRIVER, (claim("d0"),), {CLASSES: (storage_class(),)}, False, id="of its class"),
        pytest.param(DRIVER, (claim("d0"),), {}, True, id="class missing"),
        pytest.param(DRIVER, (claim("d0", cls=None),), {}, True, id="no class"),
        pytest.param(
            EBS,
            (claim("d0"),),
            {CLASSES: (storage_class(provisioner="kubernetes.io/aws-ebs"),)},
            False,
            id="class of a plugin that has been migrated",
        ),
        pytest.param(
            DRIVER,
            (claim("d0", bound_to="gone"),),
            {CLASSES: (storage_class(),)},
            False,
            id="volume missing: as its class says",
        ),
    ],
)
async def test_claims_without_a_volume_count_by_their_class(
    ask: Ask, driver: str, claims: tuple[Json, ...], others: dict[str, Any], fits: bool
) -> None:
    asked = plug(csi_node("a", {driver: 0}), objects={CLAIMS: claims, **others})
    got = await ask.filter(asked, pod_using("web", "d0"), make_table(NODES[:1]))
    assert got == [SUCCESS if fits else REASON]


@pytest.mark.parametrize(
    ("source", "driver"),
    [
        ({"gcePersistentDisk": {"pdName": "x"}}, GCE),
        ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}, EBS),
        ({"azureDisk": {"diskURI": "x", "diskName": "x"}}, "disk.csi.azure.com"),
        ({"cinder": {"volumeID": "x"}}, "cinder.csi.openstack.org"),
        ({"portworxVolume": {"volumeID": "x"}}, "pxd.portworx.com"),
    ],
)
async def test_in_tree_volumes_count_against_their_csi_driver(ask: Ask, source: Json, driver: str) -> None:
    asked = plug(
        csi_node("a", {driver: 1}),
        objects={CLAIMS: (claim("c", bound_to="pv"),), VOLUMES: (volume("pv", **source),)},
    )
    nodes = make_table(NODES[:1], [pod_using("old", source, node="a")])
    other = {key: {name: f"{text}2" for name, text in details.items()} for key, details in source.items()}
    assert await ask.filter(asked, pod_using("web", other), nodes) == [REASON]
    assert await ask.filter(asked, pod_using("web", source), nodes) == [SUCCESS]
    # A claim's volume of the same source is the same volume.
    assert await ask.filter(asked, pod_using("web", "c"), nodes) == [SUCCESS]


async def test_ebs_id_of_a_wrong_form_is_an_error(ask: Ask) -> None:
    pod = pod_using("web", {"awsElasticBlockStore": {"volumeID": "aws://zone/disk"}})
    (got,) = await ask.filter(plug(csi_node("a", {EBS: 1})), pod, make_table(NODES[:1]))
    assert got.code is Code.ERROR
    assert got.message.startswith("converting volume(v0) from inline to csi: ")


async def test_missing_claim_has_kube_schedulers_text(ask: Ask) -> None:
    (got,) = await ask.filter(plug(), pod_using("web", "nope"), make_table(NODES[:1]))
    assert got == Status.unresolvable('looking up PVC default/nope: persistentvolumeclaim "nope" not found')


async def test_ephemeral_volume_must_be_the_pods_own(ask: Ask) -> None:
    pod = pod_using("web", {"ephemeral": {}})
    mine = plug(objects={CLAIMS: (claim("web-v0", owner="uid-web"),)})
    assert await ask.filter(mine, pod, make_table(NODES[:1])) == [SUCCESS]
    (got,) = await ask.filter(
        plug(objects={CLAIMS: (claim("web-v0", owner="x"),)}), pod, make_table(NODES[:1])
    )
    assert got == Status.error("PVC default/web-v0 was not created for pod default/web (pod is not owner)")


def test_pods_of_one_name_with_ephemeral_volumes_have_different_signatures() -> None:
    pod = pod_using("web", {"ephemeral": {}})
    runtime = plug(
        csi_node("a", {DRIVER: 1}), objects={CLAIMS: (claim("web-v0", bound_to="pv-d0", owner=pod.uid),)}
    ).runtime()
    nodes = make_table(NODES)
    for name, passes in ((pod.uid, True), ("uid-of-another", False), (pod.uid, True)):
        answer = runtime.filter(CycleState(name), replace(pod, uid=name), nodes)
        assert isinstance(answer, FilterResult)
        assert answer.verdicts.all_passed is passes


async def test_uncountable_pod_is_an_error_on_its_node_only(ask: Ask) -> None:
    asked = plug(
        csi_node("a", {DRIVER: 5}),
        csi_node("b", {DRIVER: 5}),
        objects={CLAIMS: (*BOUND[CLAIMS], claim("old-v0", owner="x"))},
    )
    nodes = make_table(NODES, [pod_using("old", {"ephemeral": {}}, node="b")])
    first, second = await ask.filter(asked, pod_using("web", "d0"), nodes)
    assert (first.code, second.code) == (Code.SUCCESS, Code.ERROR)
    # A claim that is not there is no matter for a pod that runs already.
    gone = make_table(NODES, [pod_using("old", "gone", node="b")])
    assert await ask.filter(asked, pod_using("web", "d0"), gone) == [SUCCESS, SUCCESS]


async def test_pods_without_such_volumes_skip(ask: Ask) -> None:
    for pod in (pod_using("web"), pod_using("web", {"iscsi": {"iqn": "x"}})):
        assert (await ask.pre_filter(plug(), pod, make_table(NODES[:1]))).status.code is Code.SKIP


async def test_what_if_counts_again_where_pods_with_storage_change(ask: Ask) -> None:
    first, second = on("a", "d0", "d1")
    nodes = make_table(NODES, [first, second])
    scenarios = Scenarios(
        nodes,
        [
            Scenario("a"),
            Scenario("a", removed=(first,)),
            Scenario("b"),
            Scenario("b", added=(pod_using("x", "d3"), pod_using("y", "d0"))),
            Scenario("b", added=(pod_using("z", "d2"),)),
        ],
    )
    asked = plug(csi_node("a", {DRIVER: 2}), csi_node("b", {DRIVER: 2}))
    got = await ask.scenarios(asked, pod_using("web", "d2"), scenarios)
    assert got == [REASON, SUCCESS, SUCCESS, REASON, SUCCESS]


async def test_gate_rejects_nodes_without_a_driver_that_must_be_installed(ask: Ask) -> None:
    objects = {CSI_DRIVERS: (csi_driver(preventPodSchedulingIfMissing=True),)}
    nodes = make_table(NODES)
    csi_nodes = (csi_node("a", {DRIVER: None}), csi_node("b", {EBS: None}))
    want = Status.unschedulable(f"{DRIVER} CSI driver is not installed on the node")
    pod = pod_using("web", "d0")
    assert await ask.filter(plug(*csi_nodes, objects=objects), pod, nodes) == [SUCCESS, want]
    without = plug(*csi_nodes, gate=False, objects=objects)
    assert await ask.filter(without, pod, nodes) == [SUCCESS, SUCCESS]


def changed(kind: str, old: Json | None, new: Json | None) -> ClusterEvent:
    def shown(item: Json | None) -> EventObject | None:
        return None if item is None else KubeObject.of(item)

    action = "add" if old is None else "delete" if new is None else "update"
    return ClusterEvent(resource=kind, action=action, old=shown(old), new=shown(new))


CSI_NODE = "storage.k8s.io/CSINode"
ATTACHMENT = "storage.k8s.io/VolumeAttachment"


@pytest.mark.parametrize(
    ("event", "want"),
    [
        (changed(CSI_NODE, csi_node("a", {DRIVER: 1}), csi_node("a", {DRIVER: 2})), True),
        (changed(CSI_NODE, csi_node("a", {DRIVER: 2}), csi_node("a", {DRIVER: 1})), False),
        (changed(CSI_NODE, csi_node("a", {}), csi_node("a", {DRIVER: 1})), True),
        (changed("PersistentVolumeClaim", None, claim("d0")), True),
        (changed("PersistentVolumeClaim", None, claim("d9")), False),
        (changed(ATTACHMENT, attachment("x", "a", "pv"), None), True),
        (changed(ATTACHMENT, None, attachment("x", "a", "pv")), True),
        (
            changed(
                "storage.k8s.io/VolumeAttachment", attachment("x", "a", "pv"), attachment("x", "b", "pv")
            ),
            True,
        ),
        (
            changed(
                "storage.k8s.io/VolumeAttachment", attachment("x", "a", "pv"), attachment("x", "a", "pv")
            ),
            False,
        ),
        (ClusterEvent(resource="Pod", action="delete", old=pod_using("x", "d9", node="a")), True),
        (ClusterEvent(resource="Pod", action="delete", old=pod_using("x", "d9")), False),
        (ClusterEvent(resource="Pod", action="delete", old=pod_using("x", node="a")), False),
    ],
)
async def test_hint_for_changes_of_storage_objects(ask: Ask, event: ClusterEvent, want: bool) -> None:
    assert await ask.hint(plug(), event, pod_using("web", "d0")) is want


@pytest.mark.parametrize(("attacher", "want"), [(GCE, True), (EBS, False)])
async def test_hint_for_an_attachment_and_a_pod_with_an_inline_disk(
    ask: Ask, attacher: str, want: bool
) -> None:
    pod = pod_using("web", {"gcePersistentDisk": {"pdName": "x"}})
    event = changed(ATTACHMENT, attachment("x", "a", "pv", attacher), None)
    assert await ask.hint(plug(), event, pod) is want
