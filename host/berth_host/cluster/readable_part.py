"""A pod that cannot be read -> what can be read of it, so that it counts on its node.

Called by `handlers`. A single wrong field makes a pod unreadable; it takes room on its node all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk.errors import QuantityError
from berth_sdk.kube_object import KubeObject
from berth_sdk.quantity import nano_value

Json = dict[str, Any]


def readable_part(item: KubeObject) -> KubeObject | None:
    """Return a pod with the readable fields of who it is, where it is and what it requests; None without a
    name.
    """
    raw = item.parsed
    metadata = _texts(raw.get("metadata"), "name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
    if not metadata.get("name"):
        return None
    labels = _map(_map(raw.get("metadata")).get("labels"))
    metadata["labels"] = {key: value for key, value in labels.items() if isinstance(value, str)}
    spec, status = _map(raw.get("spec")), _map(raw.get("status"))
    part: Json = _texts(spec, "nodeName", "schedulerName")
    for field in ("containers", "initContainers"):
        if containers := _maps(spec.get(field)):
            part[field] = [
                {**_texts(one, "name", "restartPolicy"), "resources": _requests(one)} for one in containers
            ]
    if overhead := _quantities(spec.get("overhead")):
        part["overhead"] = overhead
    if (level := _requests(spec))["requests"]:
        part["resources"] = level
    known: Json = _texts(status, "phase")
    conditions = [one for one in _maps(status.get("conditions")) if isinstance(one.get("type"), str)]
    if conditions:
        known["conditions"] = conditions
    parsed = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": part, "status": known}
    return KubeObject("v1", "Pod", parsed=parsed)


def _requests(owner: Mapping[str, Any]) -> Json:
    return {"requests": _quantities(_map(owner.get("resources")).get("requests"))}


def _quantities(value: Any) -> Json:
    return {name: amount for name, amount in _map(value).items() if _is_quantity(amount)}


def _is_quantity(value: Any) -> bool:
    try:
        nano_value(value)
    except QuantityError:
        return False
    return True


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _texts(value: Any, *names: str) -> Json:
    return {name: text for name in names if isinstance(text := _map(value).get(name), str)}
