"""The volumes of a pod that name storage."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.pod import Pod
from berth_sdk.pod_volume import PodVolume, volumes_of
from berth_sdk.wire import records as wire


def pod_with(*volumes: dict[str, Any], node: str = "") -> Pod:
    return Pod.from_object(
        {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"nodeName": node, "volumes": list(volumes)}}
    )


def test_only_volumes_that_name_storage_count() -> None:
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "x"}}
    pod = pod_with({"name": "t", "projected": {}}, disk, {"name": "c", "configMap": {"name": "c"}})
    assert pod.volumes == (PodVolume("d", "gcePersistentDisk", {"pdName": "x"}),)
    assert not pod.volumes[0].has_claim


def test_claim_names_are_read_and_those_of_ephemeral_volumes_computed() -> None:
    pod = pod_with(
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b", "ephemeral": {}}
    )
    assert [(one.claim, one.has_claim) for one in pod.volumes] == [("data", True), ("web-b", True)]


def test_pod_without_volumes_has_none() -> None:
    assert pod_with().volumes == ()
    assert volumes_of({}, "web") == ()
    assert Pod(name="summary alone").volumes == ()


def test_volumes_are_readable_after_release_and_after_the_wire() -> None:
    pod = pod_with({"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, node="n")
    assert pod.object is not None
    pod.object.release()
    assert pod.on_node("n").volumes == pod.volumes
    assert not pod.object.is_parsed
    received = wire.decode_pod(wire.encode_pod(pod), node_name="n", item=pod.object)
    assert received.volumes == pod.volumes
    assert not pod.object.is_parsed


def test_volume_of_a_wrong_shape_is_refused() -> None:
    with pytest.raises(ObjectError):
        pod_with({"name": "a", "persistentVolumeClaim": "data"})
