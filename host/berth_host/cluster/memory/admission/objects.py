"""Defaults of the kinds other than pods, as far as scheduling reads them.

Called by `Admission.admit`. Source: `pkg/apis/core/v1/defaults.go`, `pkg/apis/storage/v1/defaults.go`,
`pkg/registry/core/namespace/strategy.go`, `plugin/pkg/admission/storage/storageclass`, v1.36.
"""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.kube_object import KubeObject

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""Names a claim's class before the field does, and also where it is empty."""
DEFAULT_CLASS_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
Object = dict[str, Any]


def default_node(node: Object) -> Object:
    """Allocatable is the capacity where a node does not say it."""
    status = node.get("status") or {}
    if status.get("capacity") and status.get("allocatable") is None:
        return node | {"status": status | {"allocatable": status["capacity"]}}
    return node


def default_claim(claim: Object, default_class: str | None) -> Object:
    """The default StorageClass, for a claim that says none ("" says none on purpose)."""
    spec = claim.get("spec") or {}
    changes: Object = {}
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    names_none = spec.get("storageClassName") is None and CLASS_ANNOTATION not in annotations
    if names_none and default_class is not None:
        changes["storageClassName"] = default_class
    if not spec.get("volumeMode"):
        changes["volumeMode"] = "Filesystem"
    return _pending(claim | {"spec": spec | changes} if changes else claim)


def default_object(kind: str, obj: Object) -> Object:
    """The few defaults of the other kinds."""
    if kind == "Namespace":
        metadata = obj.get("metadata") or {}
        labels = (metadata.get("labels") or {}) | {NAMESPACE_LABEL: metadata.get("name")}
        return obj | {"metadata": metadata | {"labels": labels}}
    if kind == "StorageClass":
        return {"volumeBindingMode": "Immediate", "reclaimPolicy": "Delete"} | obj
    if kind == "PersistentVolume":
        return _pending(obj | {"spec": {"volumeMode": "Filesystem"} | (obj.get("spec") or {})})
    return obj


def _pending(obj: Object) -> Object:
    """A claim or a volume that no controller has looked at yet."""
    return obj | {"status": {"phase": "Pending"} | (obj.get("status") or {})}


class DefaultStorageClass:
    """The StorageClass for claims that name none: of several defaults the newest, then the first by name."""

    def __init__(self) -> None:
        self._created: dict[str, str] = {}

    @property
    def name(self) -> str | None:
        """Its name; None if no class is the default."""
        newest = max(self._created.values(), default="")
        return min((name for name, created in self._created.items() if created == newest), default=None)

    def keep(self, obj: KubeObject) -> None:
        """A class was added or changed."""
        annotations = obj.get("metadata.annotations") or {}
        if any(annotations.get(key) == "true" for key in DEFAULT_CLASS_ANNOTATIONS):
            self._created[obj.ref.name] = str(obj.get("metadata.creationTimestamp") or "")
        else:
            self.drop(obj.ref.name)

    def drop(self, name: str) -> None:
        """A class was deleted."""
        self._created.pop(name, None)
