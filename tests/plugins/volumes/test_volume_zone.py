"""VolumeZone: zones and regions of volumes and nodes, and claims that have no volume yet."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.volumes import volume_zone
from berth_plugins.volumes.volume_zone import REASON, VolumeZone
from berth_sdk.events import ClusterEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing import make_node, make_table
from support.asking import Ask, Plug
from support.storage import CLAIMS, CLASSES, VOLUMES, claim, pod_using, storage_class, volume

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
POD = pod_using("web", "data")


def plug(*volumes: Json, claims: tuple[Json, ...] = (), classes: tuple[Json, ...] = ()) -> Plug:
    given = claims or (claim("data", bound_to="pv"),)
    return Plug(VolumeZone, objects={CLAIMS: given, VOLUMES: volumes, CLASSES: classes})


@pytest.mark.parametrize(
    ("labels", "node_labels", "fits"),
    [
        pytest.param({ZONE: "a"}, {ZONE: "a"}, True, id="same zone"),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, False, id="another zone"),
        pytest.param({ZONE: "a__b"}, {ZONE: "b"}, True, id="one of several"),
        pytest.param({ZONE: "a__"}, {ZONE: "b"}, True, id="a label that cannot be read says nothing"),
        pytest.param({ZONE: "a"}, {}, True, id="node without zones"),
        pytest.param({ZONE: "a"}, {REGION: "r"}, False, id="node with a region alone"),
        pytest.param({BETA_ZONE: "a"}, {ZONE: "a"}, True, id="older label of the volume"),
        pytest.param({BETA_ZONE: "a"}, {BETA_ZONE: "b", ZONE: "a"}, False, id="older label of both counts"),
        pytest.param({ZONE: "a"}, {BETA_ZONE: "a"}, False, id="older label of the node alone"),
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "q"}, False, id="another region"),
    ],
)
async def test_volume_labels_are_compared_with_node_labels(
    ask: Ask, labels: Json, node_labels: Json, fits: bool
) -> None:
    # The second volume makes sure that Filter is asked.
    asked = plug(
        volume("pv", labels=labels),
        volume("pv2", labels={REGION: "q__r"}),
        claims=(claim("data", bound_to="pv"), claim("more", bound_to="pv2")),
    )
    node_labels = {**node_labels, REGION: "r"} if REGION not in node_labels and node_labels else node_labels
    nodes = make_table([make_node("n", labels=node_labels)])
    got = await ask.filter(asked, pod_using("web", "data", "more"), nodes)
    assert got == [SUCCESS if fits else REASON]


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(plug(claims=(claim("x"),)), 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param(plug(), 'persistentvolume "pv" not found', id="no volume"),
        pytest.param(
            plug(claims=(claim("data", cls=None),)),
            "PersistentVolumeClaim had no pv name and storageClass name",
            id="no class",
        ),
        pytest.param(
            plug(claims=(claim("data"),)), 'storageclass.storage.k8s.io "slow" not found', id="class missing"
        ),
        pytest.param(
            plug(claims=(claim("data"),), classes=(storage_class(mode=None),)),
            'VolumeBindingMode not set for StorageClass "slow"',
            id="class without mode",
        ),
        pytest.param(
            plug(claims=(claim("data"),), classes=(storage_class(mode="Immediate"),)),
            "PersistentVolume had no name",
            id="should be bound",
        ),
    ],
)
async def test_missing_objects_have_kube_schedulers_texts(ask: Ask, asked: Plug, want: str) -> None:
    got = (await ask.pre_filter(asked, POD, make_table([make_node("n")]))).status
    assert got == Status.unresolvable(want)


async def test_claim_without_a_name_is_unresolvable(ask: Ask) -> None:
    pod = pod_using("web", {"persistentVolumeClaim": {"claimName": ""}})
    got = (await ask.pre_filter(plug(), pod, make_table([make_node("n")]))).status
    assert got == volume_zone.NO_CLAIM_NAME


@pytest.mark.parametrize(
    ("asked", "pod"),
    [
        pytest.param(plug(), pod_using("web"), id="no volumes"),
        pytest.param(plug(), pod_using("web", {"ephemeral": {}}), id="ephemeral volume"),
        pytest.param(plug(volume("pv")), POD, id="volume without zones"),
        pytest.param(plug(claims=(claim("data"),), classes=(storage_class(),)), POD, id="claim that waits"),
    ],
)
async def test_pod_without_claims_skips(ask: Ask, asked: Plug, pod: Any) -> None:
    assert (await ask.pre_filter(asked, pod, make_table([make_node("n")]))).status.code is Code.SKIP


@pytest.mark.parametrize(
    ("resource", "old", "new", "want"),
    [
        ("storage.k8s.io/StorageClass", None, storage_class(), True),
        ("storage.k8s.io/StorageClass", None, storage_class(mode="Immediate"), False),
        ("PersistentVolumeClaim", None, claim("data"), True),
        ("PersistentVolumeClaim", claim("x"), claim("x", bound_to="pv"), False),
        ("PersistentVolume", None, volume("pv"), True),
        ("PersistentVolume", volume("pv"), volume("pv", labels={ZONE: "a"}), True),
        (
            "PersistentVolume",
            volume("pv", labels={ZONE: "a"}),
            volume("pv", labels={ZONE: "a", "x": "y"}),
            False,
        ),
    ],
)
async def test_hint_for_changes_of_storage_objects(
    ask: Ask, resource: str, old: Json | None, new: Json, want: bool
) -> None:
    event = ClusterEvent(
        resource=resource,
        action="update" if old else "add",
        old=None if old is None else KubeObject.of(old),
        new=KubeObject.of(new),
    )
    assert await ask.hint(plug(), event, POD) is want
