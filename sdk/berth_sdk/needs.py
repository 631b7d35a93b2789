"""What cluster state a plugin wants to have at hand: the contract's StateNeed.

Declared in `Plugin.state_needs`. Undeclared state does not travel to a served plugin; in process the
same declaration decides what `handle.objects` may read.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNeed:
    """One kind of state. `resource` (with OBJECT): "persistentvolumeclaims", "storage.k8s.io/csinodes".

    `drop_fields`: dotted paths stripped from objects. `label_prefixes`, `annotation_prefixes`:
    of summaries, what begins with one of them is kept, so that none keeps nothing and "" keeps all.
    `images`: node summaries list images.
    """

    kind: NeedKind
    resource: str = ""
    drop_fields: tuple[str, ...] = ()
    label_prefixes: tuple[str, ...] = ("",)
    annotation_prefixes: tuple[str, ...] = ()
    images: bool = False

    @staticmethod
    def nodes(*, images: bool = False, annotation_prefixes: tuple[str, ...] = ()) -> StateNeed:
        """Labels, taints, allocatable and usage of every node."""
        return StateNeed(kind=NeedKind.NODE_SUMMARY, images=images, annotation_prefixes=annotation_prefixes)

    @staticmethod
    def node_objects(*drop_fields: str) -> StateNeed:
        """Every node's JSON."""
        return StateNeed(kind=NeedKind.NODE_OBJECT, drop_fields=drop_fields)

    @staticmethod
    def pods(*, annotation_prefixes: tuple[str, ...] = ()) -> StateNeed:
        """A summary of every pod on a node."""
        return StateNeed(kind=NeedKind.POD_SUMMARY, annotation_prefixes=annotation_prefixes)

    @staticmethod
    def pod_objects(*drop_fields: str) -> StateNeed:
        """The JSON of every pod on a node."""
        return StateNeed(kind=NeedKind.POD_OBJECT, drop_fields=drop_fields)

    @staticmethod
    def objects(resource: str, *drop_fields: str) -> StateNeed:
        """Every object of another kind, such as `persistentvolumeclaims`."""
        return StateNeed(kind=NeedKind.OBJECT, resource=resource, drop_fields=drop_fields)
