"""Objects of older API versions on the embedded API server."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.errors.cluster import InvalidError
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.kinds import BY_KIND
from berth_sim.cluster.server import ApiServer
from berth_sim.cluster.versions import as_stored, as_version

GROUP = "resource.k8s.io"
SELECTORS = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
CLASS: dict[str, Any] = {
    "kind": "DeviceClass",
    "metadata": {"name": "gpus"},
    "spec": {"selectors": SELECTORS, "extendedResourceName": "example.com/gpu"},
}
REQUESTS: list[dict[str, Any]] = [
    {"name": "one", "exactly": {"deviceClassName": "gpus", "allocationMode": "All"}},
    {"name": "some", "firstAvailable": [{"name": "a", "deviceClassName": "gpus", "count": 2}]},
]
OLD_REQUESTS: list[dict[str, Any]] = [
    {"name": "one", "deviceClassName": "gpus", "allocationMode": "All"},
    REQUESTS[1],
]
DEVICES: list[dict[str, Any]] = [
    {"name": "gpu-0", "attributes": {"model": {"string": "A"}}, "capacity": {"memory": {"value": "1Gi"}}},
    {"name": "gpu-1"},
]
OLD_DEVICES: list[dict[str, Any]] = [
    {
        "name": "gpu-0",
        "basic": {"attributes": {"model": {"string": "A"}}, "capacity": {"memory": {"value": "1Gi"}}},
    },
    {"name": "gpu-1"},
]


def claim(requests: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {"devices": {"requests": requests}}
    return {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "default"}, "spec": spec}


def template(requests: list[dict[str, Any]]) -> dict[str, Any]:
    own = claim(requests)
    return own | {"kind": "ResourceClaimTemplate", "spec": {"spec": own["spec"]}}


def resource_slice(devices: list[dict[str, Any]]) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": devices}
    return {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


SHAPES = [
    pytest.param(CLASS, CLASS, id="class"),
    pytest.param(claim(REQUESTS), claim(OLD_REQUESTS), id="claim"),
    pytest.param(template(REQUESTS), template(OLD_REQUESTS), id="template"),
    pytest.param(resource_slice(DEVICES), resource_slice(OLD_DEVICES), id="slice"),
]


def of(obj: dict[str, Any], version: str) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", **obj}


@pytest.mark.parametrize(("newest", "oldest"), SHAPES)
def test_object_of_every_version_is_stored_alike(newest: dict[str, Any], oldest: dict[str, Any]) -> None:
    stored = []
    for given in (of(newest, "v1"), of(newest, "v1beta2"), of(oldest, "v1beta1")):
        server = ApiServer(ManualClock())
        stored.append(server.create(given).parsed)
    assert stored[0] == stored[1] == stored[2]
    assert stored[0]["apiVersion"] == f"{GROUP}/v1"


@pytest.mark.parametrize(("newest", "oldest"), SHAPES)
def test_stored_object_is_read_in_every_version(newest: dict[str, Any], oldest: dict[str, Any]) -> None:
    kind = BY_KIND[newest["kind"]]
    for version, shape in (("v1", newest), ("v1beta2", newest), ("v1beta1", oldest)):
        shown = as_version(kind, of(newest, "v1"), f"{GROUP}/{version}")
        assert shown == of(shape, version)
        assert as_stored(kind, shown) == of(newest, "v1")


def test_object_of_an_older_version_is_replaced_and_patched() -> None:
    server = ApiServer(ManualClock())
    server.create(of(claim([]), "v1"))
    assert server.update(of(claim(OLD_REQUESTS), "v1beta1")).get("spec.devices.requests") == REQUESTS
    ref = ObjectRef(name="c", namespace="default")
    patch = {"spec": {"devices": {"requests": OLD_REQUESTS[:1]}}}
    patched = server.patch(f"{GROUP}/resourceclaims", ref, patch, api_version=f"{GROUP}/v1beta1")
    assert patched.get("spec.devices.requests") == REQUESTS[:1]
    assert patched.get("apiVersion") == f"{GROUP}/v1"


@pytest.mark.parametrize(
    "broken",
    [
        {**CLASS, "spec": []},
        {**CLASS, "spec": {"selector": SELECTORS}},
        resource_slice([{"name": "gpu-0", "basic": []}]),
        resource_slice([{"name": "gpu-0", "basic": {"attribute": {}}}]),
        resource_slice(["gpu-0"]),  # type: ignore[list-item]
    ],
)
def test_wrong_shapes_of_an_older_version_are_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        ApiServer(ManualClock()).create(of(broken, "v1beta1"))


def test_amount_of_a_device_may_be_a_number() -> None:
    policy = {"default": 1, "validRange": {"min": 1, "max": "8", "step": 2}}
    memory: dict[str, Any] = {"value": 8, "requestPolicy": policy}
    device = {"name": "gpu-0", "capacity": {"memory": memory}}
    stored = ApiServer(ManualClock()).create(of(resource_slice([device]), "v1"))
    assert stored.get("spec.devices")[0]["capacity"]["memory"]["value"] == 8
    memory["value"] = "eight"
    with pytest.raises(InvalidError, match="eight"):
        ApiServer(ManualClock()).create(of(resource_slice([device]), "v1"))
