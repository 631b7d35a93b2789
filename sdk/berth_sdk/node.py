"""A Node object -> the typed record that the snapshot's rows are made from.

The host makes the record once, when it reads the object. A served plugin makes it from a `NodeSummary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth_sdk.errors import ObjectError
from berth_sdk.kube_object import KubeObject
from berth_sdk.parsing.object_fields import items, mapping, strings
from berth_sdk.pod_requests import quantities
from berth_sdk.undeclared import compared_by_parts


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """An image on a node, with all its names."""

    names: tuple[str, ...]
    size_bytes: int


@compared_by_parts
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as its object describes it. The tables hold the usage by pods.

    `allocatable`: cpu in milli, everything else in base units, "pods" included.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    images: tuple[NodeImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    object: KubeObject | None = None

    @staticmethod
    def from_object(source: KubeObject | Mapping[str, Any]) -> Node:
        """Read a core/v1 Node. Raises ObjectError with the path of a malformed field."""
        kube_object = source if isinstance(source, KubeObject) else KubeObject.of(source)
        raw = kube_object.parsed
        metadata = mapping(raw, "metadata")
        spec = mapping(raw, "spec")
        status = mapping(raw, "status")
        try:
            return Node(
                name=metadata.get("name") or "",
                uid=metadata.get("uid") or "",
                resource_version=metadata.get("resourceVersion") or "",
                labels=strings(metadata, "metadata", "labels"),
                annotations=strings(metadata, "metadata", "annotations"),
                taints=tuple(
                    Taint(item.get("key") or "", item.get("value") or "", item.get("effect") or "")
                    for item in items(spec, "taints")
                ),
                unschedulable=bool(spec.get("unschedulable")),
                allocatable=quantities(status.get("allocatable"), "status.allocatable"),
                images=tuple(
                    NodeImage(tuple(item.get("names") or ()), int(item.get("sizeBytes") or 0))
                    for item in items(status, "images")
                ),
                declared_features=tuple(status.get("declaredFeatures") or ()),
                object=kube_object,
            )
        except (AttributeError, TypeError, KeyError, ValueError) as err:
            if isinstance(err, ObjectError):
                raise
            raise ObjectError("", f"not a Node: {err}") from err
