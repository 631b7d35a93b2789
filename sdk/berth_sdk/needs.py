"""The data that a plugin wants at hand beside the pod's summary: the contract's
DeclaredNeed.

Declared in `Plugin.needs`. Undeclared data does not travel to a served plugin. Reading undeclared data raises
UndeclaredError, in process, served and in `berth_sdk.testing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NeedKind(Enum):
    """Numbers are the contract's."""

    NODE_SUMMARY = 1
    NODE_OBJECT = 2
    POD_SUMMARY = 3
    POD_OBJECT = 4
    OBJECT = 5
    WHOLE_POD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The whole pod, or one kind of state. `resource` (with OBJECT): "persistentvolumeclaims",
    "storage.k8s.io/csinodes".

    `drop_fields`: dotted paths stripped from objects. `label_prefixes`, `annotation_prefixes`:
    of summaries, keys that begin with one of them are kept, so that none keeps nothing and "" keeps all.
    `images`: node summaries list images. Reading a key or a field that is left out raises UndeclaredError.
    """

    kind: NeedKind
    resource: str = ""
    drop_fields: tuple[str, ...] = ()
    label_prefixes: tuple[str, ...] = ("",)
    annotation_prefixes: tuple[str, ...] = ()
    images: bool = False

    @staticmethod
    def whole_pod() -> Need:
        """The JSON of the pod that a call is about (`Pod.object`), with the call."""
        return Need(kind=NeedKind.WHOLE_POD)

    @property
    def is_state(self) -> bool:
        """Whether it is part of the cluster state, which the copy has to follow."""
        return self.kind is not NeedKind.WHOLE_POD

    @staticmethod
    def nodes(
        *,
        images: bool = False,
        label_prefixes: tuple[str, ...] = ("",),
        annotation_prefixes: tuple[str, ...] = (),
    ) -> Need:
        """Labels, taints, allocatable and usage of every node."""
        return Need(
            kind=NeedKind.NODE_SUMMARY,
            images=images,
            label_prefixes=label_prefixes,
            annotation_prefixes=annotation_prefixes,
        )

    @staticmethod
    def node_objects(*drop_fields: str) -> Need:
        """Every node's JSON."""
        return Need(kind=NeedKind.NODE_OBJECT, drop_fields=drop_fields)

    @staticmethod
    def pods(*, label_prefixes: tuple[str, ...] = ("",), annotation_prefixes: tuple[str, ...] = ()) -> Need:
        """A summary of every pod on a node."""
        return Need(
            kind=NeedKind.POD_SUMMARY,
            label_prefixes=label_prefixes,
            annotation_prefixes=annotation_prefixes,
        )

    @staticmethod
    def pod_objects(*drop_fields: str) -> Need:
        """The JSON of every pod on a node."""
        return Need(kind=NeedKind.POD_OBJECT, drop_fields=drop_fields)

    @staticmethod
    def objects(resource: str, *drop_fields: str) -> Need:
        """Every object of another kind, such as `persistentvolumeclaims`."""
        return Need(kind=NeedKind.OBJECT, resource=resource, drop_fields=drop_fields)
