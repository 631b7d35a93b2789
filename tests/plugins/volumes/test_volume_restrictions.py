"""VolumeRestrictions: disks that conflict, claims that only one pod may use, and the hints."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.volumes.volume_restrictions import DISK, IN_USE, VolumeRestrictions
from berth_sdk.events import ClusterEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing import make_node, make_table
from support.asking import Ask, Plug
from support.storage import CLAIMS, claim, pod_using

Json = dict[str, Any]
ALONE = ["ReadWriteOncePod"]


def gce(name: str, *, read_only: bool = False) -> Json:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(name: str, *, read_only: bool = False) -> Json:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": read_only}}


def iscsi(iqn: str, *, read_only: bool = False) -> Json:
    return {"iscsi": {"iqn": iqn, "readOnly": read_only}}


def rbd(*monitors: str, pool: str = "p", image: str = "i", read_only: bool = False) -> Json:
    return {"rbd": {"monitors": list(monitors), "pool": pool, "image": image, "readOnly": read_only}}


def plug(*claims: Json) -> Plug:
    return Plug(VolumeRestrictions, objects={CLAIMS: claims})


@pytest.mark.parametrize(
    ("held", "wanted", "conflict"),
    [
        pytest.param(gce("x"), gce("x"), True, id="one disk written twice"),
        pytest.param(gce("x"), gce("y"), False, id="two disks"),
        pytest.param(gce("x", read_only=True), gce("x", read_only=True), False, id="both read"),
        pytest.param(gce("x", read_only=True), gce("x"), True, id="one writes"),
        pytest.param(ebs("x", read_only=True), ebs("x", read_only=True), True, id="ebs, both read"),
        pytest.param(iscsi("q"), iscsi("q", read_only=True), True, id="iscsi, one writes"),
        pytest.param(iscsi("q"), iscsi("r"), False, id="two iscsi targets"),
        pytest.param(rbd("a", "b"), rbd("b", "c"), True, id="rbd with a common monitor"),
        pytest.param(rbd("a"), rbd("b"), False, id="rbd without one"),
        pytest.param(rbd("a"), rbd("a", pool="other"), False, id="rbd in another pool"),
        pytest.param(rbd("a", read_only=True), rbd("a", read_only=True), False, id="rbd, both read"),
        pytest.param(gce("x"), ebs("x"), False, id="another kind of disk"),
    ],
)
async def test_disks_conflict_by_source_and_access(
    ask: Ask, held: Json, wanted: Json, conflict: bool
) -> None:
    nodes = make_table([make_node("a"), make_node("b")], [pod_using("old", held, node="b")])
    got = await ask.filter(plug(), pod_using("web", wanted), nodes)
    assert got == [SUCCESS, DISK if conflict else SUCCESS]


async def test_read_write_once_pod_claim_in_use_rejects_every_node(ask: Ask) -> None:
    nodes = make_table([make_node("a"), make_node("b")], [pod_using("old", "data", node="b")])
    asked = plug(claim("data", accessModes=ALONE), claim("other", accessModes=ALONE))
    assert await ask.filter(asked, pod_using("web", "data"), nodes) == [IN_USE, IN_USE]
    assert (await ask.pre_filter(asked, pod_using("web", "other"), nodes)).status.code is Code.SKIP


async def test_claim_of_the_same_name_in_another_namespace_does_not_count(ask: Ask) -> None:
    held = pod_using("old", "data", node="a", namespace="other")
    asked = plug(claim("data", accessModes=ALONE))
    result = await ask.pre_filter(asked, pod_using("web", "data"), make_table([make_node("a")], [held]))
    assert result.status.code is Code.SKIP


async def test_missing_claim_has_kube_schedulers_text(ask: Ask) -> None:
    nodes = make_table([make_node("a")])
    got = (await ask.pre_filter(plug(), pod_using("web", "data"), nodes)).status
    assert got == Status.unresolvable('persistentvolumeclaim "data" not found')


async def test_pod_without_volumes_skips(ask: Ask) -> None:
    result = await ask.pre_filter(plug(), pod_using("web"), make_table([make_node("a")]))
    assert result.status.code is Code.SKIP


async def test_what_if_frees_disks_and_claims(ask: Ask) -> None:
    disk, shared = pod_using("disk", gce("x"), node="a"), pod_using("shared", "data", node="b")
    nodes = make_table([make_node("a"), make_node("b")], [disk, shared])
    coming = pod_using("coming", gce("x"))
    scenarios = Scenarios(
        nodes,
        [
            Scenario("a"),
            Scenario("a", removed=(disk,)),
            Scenario("b", removed=(shared,)),
            Scenario("b", removed=(shared,), added=(coming,)),
        ],
    )
    asked = plug(claim("data", accessModes=ALONE))
    got = await ask.scenarios(asked, pod_using("web", gce("x"), "data"), scenarios)
    assert got == [DISK, IN_USE, SUCCESS, DISK]


async def test_what_if_counts_claims_by_name_in_any_namespace(ask: Ask) -> None:
    ours = pod_using("ours", "data", node="a")
    theirs = pod_using("theirs", "data", node="a", namespace="other")
    scenarios = Scenarios(
        make_table([make_node("a")], [ours, theirs]), [Scenario("a", removed=(theirs,)), Scenario("a")]
    )
    got = await ask.scenarios(plug(claim("data", accessModes=ALONE)), pod_using("web", "data"), scenarios)
    assert got == [SUCCESS, IN_USE]


@pytest.mark.parametrize(
    ("gone", "want"),
    [
        pytest.param(pod_using("old", gce("x"), node="a"), True, id="had the disk"),
        pytest.param(pod_using("old", gce("y"), node="a"), False, id="had another disk"),
        pytest.param(pod_using("old", "data", node="a"), True, id="used the claim"),
        pytest.param(pod_using("old", "more", node="a"), False, id="used another claim"),
        pytest.param(
            pod_using("old", gce("x"), node="a", namespace="other"), True, id="a disk of another namespace"
        ),
    ],
)
async def test_hint_for_a_deleted_pod(ask: Ask, gone: Pod, want: bool) -> None:
    event = ClusterEvent(resource="Pod", action="delete", old=gone)
    assert await ask.hint(plug(), event, pod_using("web", gce("x"), "data")) is want


@pytest.mark.parametrize(
    ("came", "want"),
    [(claim("data"), True), (claim("other"), False), (claim("data", namespace="other"), False)],
    ids=["named", "not named", "other namespace"],
)
async def test_hint_for_an_added_claim(ask: Ask, came: Json, want: bool) -> None:
    event = ClusterEvent(resource="PersistentVolumeClaim", action="add", new=KubeObject.of(came))
    assert await ask.hint(plug(), event, pod_using("web", "data")) is want
