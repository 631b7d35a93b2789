"""VolumeBinding: unusable claims, migrated volumes, assumed objects, scores, hints."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.volumes.volume_binding import VolumeBinding
from berth_plugins.volumes.volume_binding.finding import BIND_CONFLICT, NO_SPACE, NO_VOLUME, NODE_CONFLICT
from berth_sdk.errors import PluginArgsError
from berth_sdk.events import ClusterEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.results import LiveReservation
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import PluginHost, make_node, make_table
from support.asking import NO_HANDLE, Ask, Plug
from support.emulated_version import args_of
from support.storage import (
    CLAIMS,
    CLASSES,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
    capacity,
    claim,
    csi_driver,
    csi_node,
    pod_using,
    storage_class,
    volume,
)

Json = dict[str, Any]
ZONES = [make_node(name, labels={"zone": zone}) for name, zone in (("a", "x"), ("b", "y"))]
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")
GATE = "StorageCapacityScoring"


def table() -> NodeTable:
    return make_table(ZONES)


def plug(*claims: Json, args: Json | None = None, **others: Any) -> Plug:
    names = {
        "volumes": VOLUMES,
        "classes": CLASSES,
        "drivers": CSI_DRIVERS,
        "capacities": CSI_CAPACITIES,
        "csi_nodes": CSI_NODES,
    }
    objects = {names[key]: value for key, value in others.items()}
    return Plug(VolumeBinding, args, {CLASSES: [storage_class(), LOCAL], CLAIMS: claims, **objects})


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(None, 'persistentvolumeclaim "data" not found', id="missing"),
        pytest.param(
            claim("data", bound_to="pv", phase="Lost"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
            id="lost",
        ),
        pytest.param(
            claim("data", deleted=True), 'persistentvolumeclaim "data" is being deleted', id="going"
        ),
        pytest.param(
            claim("data", cls="nope"), "pod has unbound immediate PersistentVolumeClaims", id="no such class"
        ),
        pytest.param(
            claim("data", cls=None), "pod has unbound immediate PersistentVolumeClaims", id="no class"
        ),
        pytest.param(
            claim("data", volumeName="pv"),
            "pod has unbound immediate PersistentVolumeClaims",
            id="names its volume, not bound yet",
        ),
    ],
)
async def test_rejections_have_kube_schedulers_texts(ask: Ask, given: Json | None, want: str) -> None:
    asked = plug(*([given] if given else []))
    got = (await ask.pre_filter(asked, pod_using("web", "data"), table())).status
    assert got == Status.unresolvable(want)


async def test_pod_waits_for_its_ephemeral_claim_which_must_be_its_own(ask: Ask) -> None:
    pod = pod_using("web", {"ephemeral": {}})
    got = (await ask.pre_filter(plug(), pod, table())).status
    text = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "web-v0"'
    assert got == Status.unresolvable(text)
    got = (await ask.pre_filter(plug(claim("web-v0", owner="x")), pod, table())).status
    text = "PVC default/web-v0 was not created for pod default/web (pod is not owner)"
    assert got == Status.unresolvable(text)
    mine = plug(claim("web-v0", owner="uid-web"))
    assert await ask.filter(mine, pod, table()) == [SUCCESS, SUCCESS]


async def test_class_without_a_binding_mode_is_an_error(ask: Ask) -> None:
    asked = plug(claim("data"), classes=[storage_class(mode=None)])
    got = (await ask.pre_filter(asked, pod_using("web", "data"), table())).status
    assert got == Status.error('VolumeBindingMode not set for StorageClass "slow"')


async def test_all_reasons_of_a_node_come_in_kube_schedulers_order(ask: Ask) -> None:
    asked = plug(
        claim("one", bound_to="pv"),
        claim("two", cls="local"),
        claim("three", bound_to="gone"),
        volumes=[volume("pv", zones=["x"])],
    )
    got = await ask.filter(asked, pod_using("web", "one", "three", "two"), table())
    assert got == [
        Status.unresolvable(BIND_CONFLICT, NO_VOLUME),
        Status.unresolvable(NODE_CONFLICT, BIND_CONFLICT),
    ]


async def test_capacity_counts_where_the_driver_publishes_it(ask: Ask) -> None:
    pools = [capacity("p", "5Gi", zone="x"), capacity("q", "5Gi", zone="y", maximumVolumeSize="1Mi")]
    asked = plug(claim("data"), drivers=[csi_driver(storageCapacity=True)], capacities=pools)
    got = await ask.filter(asked, pod_using("web", "data"), table())
    assert got == [SUCCESS, Status.unresolvable(NO_SPACE)]
    asked = plug(claim("data"), drivers=[csi_driver(storageCapacity=False)], capacities=pools)
    assert await ask.filter(asked, pod_using("web", "data"), table()) == [SUCCESS, SUCCESS]


async def test_in_tree_volume_is_judged_as_csi_where_its_plugin_was_migrated(ask: Ask) -> None:
    labels = {"topology.kubernetes.io/zone": "x"}
    disk = volume("pv", gcePersistentDisk={"pdName": "d"}, labels=labels)
    nodes = make_table(
        [
            make_node("plain"),
            make_node("migrated"),
            make_node("fits", labels={"topology.gke.io/zone": "x"}),
        ]
    )
    csi_nodes = [csi_node(name, {}, migrated="kubernetes.io/gce-pd") for name in ("migrated", "fits")]
    asked = plug(claim("data", bound_to="pv"), volumes=[disk], csi_nodes=csi_nodes)
    got = await ask.filter(asked, pod_using("web", "data"), nodes)
    assert got == [SUCCESS, Status.unresolvable(NODE_CONFLICT), SUCCESS]


async def test_pod_without_claims_skips(ask: Ask) -> None:
    for pod in (pod_using("web"), pod_using("web", {"gcePersistentDisk": {"pdName": "x"}})):
        assert (await ask.pre_filter(plug(), pod, table())).status.code is Code.SKIP


# --- promises --------------------------------------------------------------------------------------


def host(*claims: Json, volumes: tuple[Json, ...] = ()) -> PluginHost:
    objects = {CLAIMS: claims, VOLUMES: volumes, CLASSES: [storage_class(), LOCAL]}
    return PluginHost(VolumeBinding, nodes=ZONES, objects=objects)


def test_assumed_volume_is_matched_with_no_other_claim_until_it_is_given_back() -> None:
    world = host(claim("one", cls="local"), claim("two", cls="local"), volumes=(volume("pv", cls="local"),))
    first = world.attempt(pod_using("p1", "one"))
    assert all(status.is_success for status in first.filter().values())
    assert first.reserve("a").is_success
    second = world.attempt(pod_using("p2", "two"))
    assert second.filter()["a"] == Status.unresolvable(BIND_CONFLICT)
    first.unreserve("a")
    assert all(one.is_success for one in world.attempt(pod_using("p2", "two")).filter().values())


def test_assumed_claim_fits_only_on_its_selected_node() -> None:
    world = host(claim("shared"))
    first, second = (world.attempt(pod_using(name, "shared")) for name in ("p1", "p2"))
    assert first.filter()["a"].is_success
    assert first.reserve("a").is_success
    assert second.filter() == {"a": SUCCESS, "b": Status.unresolvable(BIND_CONFLICT)}
    assert second.reserve("a").is_success
    # The second pod gives its part back; the first one's promise stands.
    second.unreserve("a")
    third = world.attempt(pod_using("p3", "shared"))
    assert not third.filter()["b"].is_success
    first.unreserve("a")
    assert world.attempt(pod_using("p4", "shared")).filter()["b"].is_success


def test_newer_object_replaces_an_assumed_one() -> None:
    world = host(claim("one", cls="local"), claim("two", cls="local"), volumes=(volume("pv", cls="local"),))
    first = world.attempt(pod_using("p1", "one"))
    first.filter()
    first.reserve("a")
    newer = volume("pv", cls="local")
    newer["metadata"]["resourceVersion"] = "2"
    world.put_object(VOLUMES, newer)
    assert world.attempt(pod_using("p2", "two")).filter()["a"].is_success


def test_volume_that_changed_since_filter_is_not_assumed() -> None:
    world = host(claim("one", cls="local"), volumes=(volume("pv", cls="local"),))
    attempt = world.attempt(pod_using("p1", "one"))
    attempt.filter()
    newer = volume("pv", cls="local", bound_to="somebody")
    newer["metadata"]["resourceVersion"] = "2"
    world.put_object(VOLUMES, newer)
    got = attempt.reserve("a")
    text = 'v1.PersistentVolume "pv" is out of sync (stored: 2, assume: 1)'
    assert got == Status.error(text)


def test_another_process_restores_the_reservation_from_the_token() -> None:
    objects = (claim("one", cls="local"), claim("two", cls="local"))
    first = host(*objects, volumes=(volume("pv", cls="local"),))
    attempt = first.attempt(pod_using("p1", "one"))
    attempt.filter()
    attempt.reserve("a")
    second = host(*objects, volumes=(volume("pv", cls="local"),))
    live = LiveReservation(state=attempt.state, pod=attempt.pod, node_name="a")
    attempt.state.delete("reserved")
    assert second.run(second.runtime.reconcile([live])) == frozenset()
    assert second.attempt(pod_using("p2", "two")).filter()["a"] == Status.unresolvable(BIND_CONFLICT)
    # With the cycle gone, so is the promise.
    assert second.run(second.runtime.reconcile([])) == frozenset()
    assert second.attempt(pod_using("p2", "two")).filter()["a"].is_success


# --- arguments and scores --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"bindTimeoutSeconds": -1}, "bindTimeoutSeconds"),
        ({"featureGates": {GATE: False}, "shape": [{"utilization": 0, "score": 1}]}, GATE),
        ({"shape": [{"utilization": 0, "score": 11}]}, "shape\\[0\\].score"),
    ],
)
def test_invalid_arguments_are_named(args: Json, path: str) -> None:
    with pytest.raises(PluginArgsError, match=path):
        VolumeBinding(args, NO_HANDLE)


@pytest.mark.parametrize(
    ("shape", "want"),
    [
        pytest.param(None, {"a": 50, "b": 75}, id="emptier is better, by default"),
        pytest.param([(0, 0), (100, 10)], {"a": 50, "b": 25}, id="fuller is better"),
    ],
)
def test_scores_follow_the_shape(shape: list[tuple[int, int]] | None, want: dict[str, int]) -> None:
    args: Json = {}
    if shape:
        args["shape"] = [{"utilization": used, "score": score} for used, score in shape]
    volumes = [volume("small", size="2Gi", zones=["x"]), volume("large", size="4Gi", zones=["y"])]
    objects = {CLAIMS: [claim("data")], VOLUMES: volumes, CLASSES: [storage_class()]}
    world = PluginHost(VolumeBinding, args, nodes=ZONES, objects=objects)
    attempt = world.attempt(pod_using("web", "data"))
    attempt.filter()
    assert attempt.score() == want


def test_scores_of_volumes_to_provision_follow_the_free_space() -> None:
    pools = [capacity("p", "2Gi", zone="x"), capacity("q", "10Gi", zone="y")]
    objects = {
        CLAIMS: [claim("data"), claim("more")],
        CLASSES: [storage_class()],
        CSI_DRIVERS: [csi_driver(storageCapacity=True)],
        CSI_CAPACITIES: pools,
    }
    world = PluginHost(VolumeBinding, {}, nodes=ZONES, objects=objects)
    attempt = world.attempt(pod_using("web", "data", "more"))
    attempt.filter()
    assert attempt.score() == {"a": 0, "b": 80}


# --- hints -----------------------------------------------------------------------------------------


def changed(resource: str, old: Json | None, new: Json) -> ClusterEvent:
    before = None if old is None else KubeObject.of(old)
    action = "add" if old is None else "update"
    return ClusterEvent(resource=resource, action=action, old=before, new=KubeObject.of(new))


STORAGE = "storage.k8s.io/"


@pytest.mark.parametrize(
    ("event", "want"),
    [
        (changed("PersistentVolumeClaim", None, claim("data")), True),
        (changed("PersistentVolumeClaim", None, claim("web-v1")), True),
        (changed("PersistentVolumeClaim", None, claim("x")), False),
        (changed(f"{STORAGE}StorageClass", None, storage_class()), True),
        (changed(f"{STORAGE}StorageClass", storage_class(), storage_class(zones=["x"])), True),
        (changed(f"{STORAGE}StorageClass", storage_class(), storage_class(provisioner="x")), False),
        (changed(f"{STORAGE}CSINode", None, csi_node("a", {})), True),
        (changed(f"{STORAGE}CSINode", csi_node("a", {}), csi_node("a", {}, migrated="x")), True),
        (changed(f"{STORAGE}CSINode", csi_node("a", {}), csi_node("a", {"d": 1})), False),
        (changed(f"{STORAGE}CSIStorageCapacity", None, capacity("p", "1Gi")), True),
        (changed(f"{STORAGE}CSIStorageCapacity", capacity("p", "1Gi"), capacity("p", "2Gi")), True),
        (changed(f"{STORAGE}CSIStorageCapacity", capacity("p", "2Gi"), capacity("p", "1Gi")), False),
        (changed(f"{STORAGE}CSIStorageCapacity", capacity("p", None), capacity("p", "1Gi")), True),
        (
            changed(f"{STORAGE}CSIDriver", csi_driver("inline", storageCapacity=True), csi_driver("inline")),
            True,
        ),
        (changed(f"{STORAGE}CSIDriver", csi_driver(storageCapacity=True), csi_driver()), True),
    ],
)
async def test_hint_for_changes_of_storage_objects(ask: Ask, event: ClusterEvent, want: bool) -> None:
    pod = pod_using("web", "data", {"ephemeral": {}}, {"csi": {"driver": "inline"}})
    assert await ask.hint(plug(), event, pod) is want


@pytest.mark.parametrize(
    ("size", "free", "fits", "fitted_before"),
    [
        pytest.param("9223372036854775807", "9223372036854775807", True, True, id="the largest int64"),
        pytest.param("9223372036854775808", "9223372036854775808", True, True, id="the next one"),
        pytest.param("9223372036854775808", "9223372036854775807", False, True, id="one byte too many"),
        pytest.param("10E", "9E", False, True, id="a suffix"),
        pytest.param("9E", "10E", True, False, id="room that wrapped to nothing"),
        pytest.param("8Ei", "16Ei", True, True, id="binary suffixes end at the largest int64"),
    ],
)
@pytest.mark.parametrize("version", ["", "1.38", "1.37"])
async def test_sizes_of_2_to_the_63_and_more_compare_exactly_since_1_38(
    ask: Ask, version: str, size: str, free: str, fits: bool, fitted_before: bool
) -> None:
    pools = [capacity("p", free, zone="x"), capacity("q", free, zone="y")]
    args = args_of("VolumeBinding", version)
    drivers = [csi_driver(storageCapacity=True)]
    asked = plug(claim("data", size=size), args=args, drivers=drivers, capacities=pools)
    found = await ask.filter(asked, pod_using("web", "data"), table())
    expected = fitted_before if version == "1.37" else fits
    assert found == [SUCCESS if expected else Status.unresolvable(NO_SPACE)] * 2


@pytest.mark.parametrize("version", ["", "1.38", "1.37"])
@pytest.mark.parametrize("size", ["8Ei", "9223372036854775808", "10E", "100E", "1e30"])
def test_volumes_of_any_size_have_a_score(size: str, version: str) -> None:
    pools = [capacity("p", size, zone="x"), capacity("q", size, zone="y")]
    objects = {
        CLAIMS: [claim("data", size=size, cls="local"), claim("more", size=size)],
        VOLUMES: [volume("pv", cls="local", size=size, zones=["x"])],
        CLASSES: [storage_class(), LOCAL],
        CSI_DRIVERS: [csi_driver(storageCapacity=True)],
        CSI_CAPACITIES: pools,
    }
    world = PluginHost(VolumeBinding, args_of("VolumeBinding", version), nodes=ZONES, objects=objects)
    for name in ("data", "more"):
        attempt = world.attempt(pod_using("web", name))
        attempt.filter()
        assert all(0 <= score <= 100 for score in attempt.score().values())
