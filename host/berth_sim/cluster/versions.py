"""Converts objects of older API versions to the version that the embedded cluster stores, and back.

Called by the server for what it is given, by `http` for what a client of an older version reads, and by the
manifest loader. The versions of a kind are in `kinds`. Most of them differ in their name alone; those of
`resource.k8s.io/v1beta1` have another shape:

    v1beta1                                   v1
    request: {name, deviceClassName, ...}     {name, exactly: {deviceClassName, ...}}
    device:  {name, basic: {capacity, ...}}   {name, capacity, ...}

Source: the published API of `resource.k8s.io`, "API changes" of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_sdk.kube_object import JsonObject

from berth_sim.cluster.kinds import Kind

Object = dict[str, Any]
Change = Callable[[Any], Any]
_OLD: Final = "resource.k8s.io/v1beta1"
_LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ResourceClaim": ("spec", "devices", "requests"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "requests"),
    "ResourceSlice": ("spec", "devices"),
}
"""By kind the list whose items differ."""


def as_stored(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return an object of any version of its kind in the version that is stored. Wrong shapes stay, for the
    validation to refuse.
    """
    given = obj.get("apiVersion")
    if given == kind.api_version or given not in kind.older_versions:
        return obj
    made = _changed(kind, obj, _request_of_old, _device_of_old) if given == _OLD else obj
    return {**made, "apiVersion": kind.api_version}


def as_version(kind: Kind, obj: JsonObject, api_version: str) -> JsonObject:
    """Return a stored object in one of the kind's versions."""
    if api_version == kind.api_version:
        return obj
    made = _changed(kind, obj, _request_for_old, _device_for_old) if api_version == _OLD else obj
    return {**made, "apiVersion": api_version}


def _changed(kind: Kind, obj: JsonObject, request: Change, device: Change) -> Object:
    """Return a copy with each request of a claim, and each device of a slice, changed."""
    path = _LISTS.get(kind.kind, ())
    change = device if kind.kind == "ResourceSlice" else request
    return {**obj, path[0]: _at(obj[path[0]], path[1:], change)} if path and path[0] in obj else dict(obj)


def _at(obj: Any, path: tuple[str, ...], change: Change) -> Any:
    """Return a copy of a map with the items of the list at `path` changed."""
    if not path:
        return [change(item) for item in obj] if isinstance(obj, list) else obj
    if not isinstance(obj, Mapping) or path[0] not in obj:
        return obj
    return {**obj, path[0]: _at(obj[path[0]], path[1:], change)}


def _request_of_old(request: Any) -> Any:
    if not isinstance(request, dict) or "firstAvailable" in request:
        return request
    exactly = {name: value for name, value in request.items() if name != "name"}
    return {**_named(request), **({"exactly": exactly} if exactly else {})}


def _request_for_old(request: Any) -> Any:
    rest = {name: value for name, value in request.items() if name != "exactly"}
    return {**rest, **request.get("exactly", {})}


def _device_of_old(device: Any) -> Any:
    if not isinstance(device, dict) or not isinstance(device.get("basic"), dict):
        return device
    rest = {name: value for name, value in device.items() if name != "basic"}
    return {**rest, **device["basic"]}


def _device_for_old(device: Any) -> Any:
    basic = {name: value for name, value in device.items() if name != "name"}
    return {**_named(device), **({"basic": basic} if basic else {})}


def _named(item: Mapping[str, Any]) -> Object:
    return {"name": item["name"]} if "name" in item else {}
