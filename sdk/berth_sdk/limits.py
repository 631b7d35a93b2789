"""`NodeLimits`, `PodLimits`: the parts of nodes, and of the pods on them, that a plugin may read by its
needs.

There is one limits object for each set of needs, so plugins with equal needs share the records made with it.
Used by `tables.declared` and `runtime.declared`, and so for in-process plugins, served plugins and
`berth_sdk.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeAlias

from berth_sdk.errors import UndeclaredError
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.selection import Prefixes, StateSelection
from berth_sdk.undeclared import DeclaredKeys, Drops, Undeclared, trimmed

Reading: TypeAlias = Callable[[Pod], Hashable]
"""A function that reads something of a pod's record."""
NODES: Final = "Need.nodes()"
PODS: Final = "Need.pods()"
_NODE_LABELS: Final = "Need.nodes(label_prefixes=({},))"
_NODE_ANNOTATIONS: Final = "Need.nodes(annotation_prefixes=({},))"
_POD_LABELS: Final = "Need.pods(label_prefixes=({},))"
_POD_ANNOTATIONS: Final = "Need.pods(annotation_prefixes=({},))"
_NUMBERS: Final = count()
_MAX_READINGS: Final = 32
"""The number of functions that are kept by `PodLimits.limited_reading`."""
_PATHS: Final[Mapping[str, str]] = {
    "labels": "metadata.labels",
    "annotations": "metadata.annotations",
    "taints": "spec.taints",
    "unschedulable": "spec.unschedulable",
    "allocatable": "status.allocatable",
    "images": "status.images",
    "declared_features": "status.declaredFeatures",
}
"""The fields of a node's record that are also in the Node object, each with its path."""
_DERIVED: Final[Mapping[str, str]] = {
    "pod_affinity": "spec.affinity",
    "volumes": "spec.volumes",
    "generated_claims": "status.resourceClaimStatuses",
}


class Keys:
    """The labels or annotations that may be read. `prefixes`: of their keys; None: all keys; empty: no
    key.
    """

    __slots__ = ("need", "part", "prefixes")

    def __init__(self, prefixes: Prefixes, part: str, need: str) -> None:
        self.prefixes = None if prefixes is not None and "" in prefixes else prefixes
        self.part = part
        self.need = need

    def limit(self, values: Mapping[str, str]) -> Any:
        """Return the declared labels or annotations. Looking up or listing others raises UndeclaredError."""
        if self.prefixes is None:
            return values
        if not self.prefixes:
            return self.undeclared
        return DeclaredKeys(values, self.prefixes, self.part, self.need)

    def read(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """Return the declared labels or annotations. Raises UndeclaredError when no key is declared."""
        if self.prefixes == ():
            self.undeclared.refuse()
        declared: Mapping[str, str] = self.limit(values)
        return declared

    def check(self, key: str, part: str) -> None:
        """Raise UndeclaredError for a key that may not be read. `part`: how the plugin reads the key."""
        if self.prefixes is not None and not key.startswith(self.prefixes):
            raise UndeclaredError(part, self.need.format(repr(key)))

    @property
    def undeclared(self) -> Undeclared:
        """The stand-in for the whole map when no key is declared."""
        return Undeclared(self.part, self.need.format("'...'"))


class NodeLimits:
    """The readable parts of nodes. `has_state`: a served plugin gets a copy of the snapshot."""

    def __init__(self, selection: StateSelection, has_state: bool) -> None:
        dropped = selection.node_object
        self.has_state = has_state
        self.drops = None if dropped is None else Drops(dropped, "node.object", "Need.node_objects")
        self.has_summary = selection.node_summary
        self.has_images = selection.images
        labels: Prefixes = selection.node_labels
        annotations: Prefixes = selection.node_annotations
        if not self.has_summary:
            # Without the summary, a served plugin makes the record from the node's object.
            labels = None if self.has("labels") else ()
            annotations = None if self.has("annotations") else ()
        self.labels = Keys(labels, "node.labels", _NODE_LABELS if self.has_summary else NODES)
        self.annotations = Keys(annotations, "node.annotations", _NODE_ANNOTATIONS)

    def has(self, field: str) -> bool:
        """Return True when a field of the node's record may be read, through its own need or through the
        object's.
        """
        if self.has_summary:
            return field != "images" or self.has_images
        return self.drops is not None and field in _PATHS and not self.drops.touch(_PATHS[field])

    def undeclared(self, field: str, part: str) -> Undeclared:
        """Return the stand-in for a field that may not be read."""
        return Undeclared(part, "Need.nodes(images=True)" if field == "images" else NODES)

    def object(self, item: KubeObject | None) -> KubeObject | None:
        """Return the node's object without dropped fields. Raises UndeclaredError if the object is not
        declared.
        """
        if self.drops is None:
            Undeclared("node.object", "Need.node_objects()").refuse()
        return None if item is None else trimmed(item, self.drops)

    def limit(self, node: Node) -> Node:
        """Return the record of a node. Reading an undeclared field raises UndeclaredError."""
        fields: dict[str, Any] = {
            field: getattr(node, field) if self.has(field) else self.undeclared(field, f"node.{field}")
            for field in _PATHS
        }
        fields["labels"] = self.labels.limit(node.labels)
        fields["annotations"] = self.annotations.limit(node.annotations)
        if self.drops is None:
            for field in ("object", "uid", "resource_version"):
                fields[field] = Undeclared(f"node.{field}", "Need.node_objects()")
        else:
            item = fields["object"] = self.object(node.object)
            known = node if item is None else item.ref
            fields["uid"], fields["resource_version"] = known.uid, known.resource_version
        return Node(name=node.name, **fields)


class PodLimits:
    """The readable parts of the pods on nodes."""

    def __init__(self, selection: StateSelection) -> None:
        dropped = selection.pod_object
        self.number = next(_NUMBERS)
        """A number that is unique among all limits of this process."""
        self.are_known = selection.pods
        self.labels = Keys(selection.pod_labels, "pod.labels", _POD_LABELS)
        self.annotations = Keys(selection.pod_annotations, "pod.annotations", _POD_ANNOTATIONS)
        self.drops = None if dropped is None else Drops(dropped, "pod.object", "Need.pod_objects")
        self._no_object = Undeclared("pod.object", "Need.pod_objects()")
        self._dropped = frozenset(
            field for field, path in _DERIVED.items() if self.drops is None or self.drops.touch(path)
        )
        self._no_annotations = None if self.annotations.prefixes != () else self.annotations.undeclared
        self._limited_readings: dict[Reading, Reading] = {}

    def limited_reading(self, read: Reading) -> Reading:
        """Return the function that calls `read` with the limited record; the same one for the same `read`."""
        known = self._limited_readings.get(read)
        if known is None:
            if len(self._limited_readings) >= _MAX_READINGS:
                self._limited_readings.clear()
            known = self._limited_readings[read] = lambda pod: read(self.limit(pod))
        return known

    def has(self, field: str) -> bool:
        """Return True when a field that is derived from the object (`volumes`) is declared."""
        return field not in self._dropped

    def limit(self, pod: Pod) -> Pod:
        """Return the record of a pod. Reading an undeclared part raises UndeclaredError."""
        if not self.are_known:
            return pod.bare(lambda field: Undeclared(f"pod.{field}", PODS))
        item: Any = self._no_object
        if self.drops is not None:
            item = None if pod.object is None else trimmed(pod.object, self.drops)
        labels: Any = pod.labels
        if self.labels.prefixes is not None:
            labels = self.labels.limit(labels)
        annotations = self._no_annotations
        return pod.limited(
            labels,
            self.annotations.limit(pod.annotations) if annotations is None else annotations,
            item,
            self._dropped,
        )


class CallPodLimits(PodLimits):
    """The readable parts of pods that a call carries: all of the summary, and the object if declared."""

    def __init__(self, whole: bool) -> None:
        super().__init__(
            StateSelection(
                pods=True, pod_labels=None, pod_annotations=("",), pod_object=() if whole else None
            )
        )
        self.is_whole = whole

    def limit(self, pod: Pod) -> Pod:
        """Return the whole pod if the plugin declared it, else its summary."""
        return pod if self.is_whole else pod.as_summary()


def node_limits(selection: StateSelection, has_state: bool) -> NodeLimits:
    """Return the limits for nodes. Selections with equal node parts share one object."""
    return _node_limits(
        StateSelection(
            node_summary=selection.node_summary,
            node_labels=selection.node_labels,
            node_annotations=selection.node_annotations,
            images=selection.images,
            node_object=selection.node_object,
        ),
        has_state,
    )


@lru_cache(maxsize=256)
def _node_limits(selection: StateSelection, has_state: bool) -> NodeLimits:
    return NodeLimits(selection, has_state)


def pod_limits(selection: StateSelection) -> PodLimits:
    """Return the limits for pods on nodes. Selections with equal pod parts share one object."""
    return _pod_limits(
        StateSelection(
            pods=selection.pods,
            pod_labels=selection.pod_labels,
            pod_annotations=selection.pod_annotations,
            pod_object=selection.pod_object,
        )
    )


@lru_cache(maxsize=256)
def _pod_limits(selection: StateSelection) -> PodLimits:
    return PodLimits(selection)


CALL_PODS: Final[Mapping[bool, CallPodLimits]] = {whole: CallPodLimits(whole) for whole in (False, True)}
"""The limits by whether the plugin declared the whole pod."""
