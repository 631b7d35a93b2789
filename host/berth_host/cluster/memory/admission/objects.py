"""The defaults, of kinds other than pods, that scheduling reads.

Called by `Admission.admit`. Source: `pkg/apis/core/v1/defaults.go`, `pkg/apis/storage/v1/defaults.go`,
`pkg/registry/core/namespace/strategy.go`, `plugin/pkg/admission/storage/storageclass`, v1.36.
"""

from __future__ import annotations

from typing import Any, Final

from berth_sdk.kube_object import KubeObject

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""The annotation for a claim's class; overrides the field, also with an empty value."""
DEFAULT_CLASS_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
Object = dict[str, Any]


def default_node(node: Object) -> Object:
    """Return the node; a missing `allocatable` becomes the capacity."""
    status = node.get("status") or {}
    if status.get("capacity") and status.get("allocatable") is None:
        return node | {"status": status | {"allocatable": status["capacity"]}}
    return node


def default_claim(claim: Object, default_class: str | None) -> Object:
    """Return the claim with its defaults, among them the StorageClass if `storageClassName` is missing.

    A claim with the class "" keeps it: it asks for a volume without a class.
    """
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
    """Return an object of another kind with its defaults."""
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
    """Return a claim or volume with the phase Pending, unless its status has a phase."""
    return obj | {"status": {"phase": "Pending"} | (obj.get("status") or {})}


class DefaultStorageClass:
    """The default StorageClass: of several the newest one, then the first by name."""

    def __init__(self) -> None:
        self._created: dict[str, str] = {}

    @property
    def name(self) -> str | None:
        """The class's name; None if no class is the default."""
        newest = max(self._created.values(), default="")
        return min((name for name, created in self._created.items() if created == newest), default=None)

    def keep(self, obj: KubeObject) -> None:
        """Store a new or changed class."""
        annotations = obj.get("metadata.annotations") or {}
        if any(annotations.get(key) == "true" for key in DEFAULT_CLASS_ANNOTATIONS):
            self._created[obj.ref.name] = str(obj.get("metadata.creationTimestamp") or "")
        else:
            self.drop(obj.ref.name)

    def drop(self, name: str) -> None:
        """Remove a deleted class."""
        self._created.pop(name, None)
