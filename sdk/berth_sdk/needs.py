"""The data that a plugin reads beside the pod's summary: the contract's DeclaredNeed.

A plugin declares its needs in `Plugin.needs`. Undeclared data does not travel to a served plugin. Reading
undeclared data raises UndeclaredError, in process, served and in `berth_sdk.testing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class NeedKind(Enum):
    """The kinds of needs. The numbers are the contract's."""

    NODE_SUMMARY = 1
    NODE_OBJECT = 2
    POD_SUMMARY = 3
    POD_OBJECT = 4
    OBJECT = 5
    WHOLE_POD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The whole pod, or one kind of cluster state. `resource` (with OBJECT): "persistentvolumeclaims",
    "storage.k8s.io/csinodes".

    `drop_fields`: dotted paths that are removed from objects. `label_prefixes`, `annotation_prefixes`:
    summaries keep the keys that begin with one of these; empty keeps no key, "" keeps all keys. `images`:
    node summaries list images. `spec_fields`: as for `whole_pod`, and known in the plugin's process alone.
    Reading a removed key or field raises UndeclaredError.
    """

    kind: NeedKind
    resource: str = ""
    drop_fields: tuple[str, ...] = ()
    label_prefixes: tuple[str, ...] = ("",)
    annotation_prefixes: tuple[str, ...] = ()
    images: bool = False
    spec_fields: tuple[str, ...] | None = None

    @staticmethod
    def whole_pod(spec_fields: Sequence[str] | None = None) -> Need:
        """Return the need for the JSON of the pod that a call is about (`Pod.object`).

        `spec_fields`: all fields of `Pod.spec` that the plugin reads, as dotted paths
        (`containers.restartPolicyRules`); a list on the way stands for each of its elements. None: any field.
        The host of an in-process plugin treats pods that differ in other fields alone as equal, if all
        plugins of its profiles name their fields.
        """
        return Need(kind=NeedKind.WHOLE_POD, spec_fields=None if spec_fields is None else tuple(spec_fields))

    @property
    def is_state(self) -> bool:
        """True for cluster state, which the plugin's copy has to follow."""
        return self.kind is not NeedKind.WHOLE_POD

    @staticmethod
    def nodes(
        *,
        images: bool = False,
        label_prefixes: tuple[str, ...] = ("",),
        annotation_prefixes: tuple[str, ...] = (),
    ) -> Need:
        """Return the need for labels, taints, allocatable and usage of every node."""
        return Need(
            kind=NeedKind.NODE_SUMMARY,
            images=images,
            label_prefixes=label_prefixes,
            annotation_prefixes=annotation_prefixes,
        )

    @staticmethod
    def node_objects(*drop_fields: str) -> Need:
        """Return the need for every node's JSON."""
        return Need(kind=NeedKind.NODE_OBJECT, drop_fields=drop_fields)

    @staticmethod
    def pods(*, label_prefixes: tuple[str, ...] = ("",), annotation_prefixes: tuple[str, ...] = ()) -> Need:
        """Return the need for a summary of every pod on a node."""
        return Need(
            kind=NeedKind.POD_SUMMARY,
            label_prefixes=label_prefixes,
            annotation_prefixes=annotation_prefixes,
        )

    @staticmethod
    def pod_objects(*drop_fields: str) -> Need:
        """Return the need for the JSON of every pod on a node."""
        return Need(kind=NeedKind.POD_OBJECT, drop_fields=drop_fields)

    @staticmethod
    def objects(resource: str, *drop_fields: str) -> Need:
        """Return the need for every object of another kind, such as `persistentvolumeclaims`."""
        return Need(kind=NeedKind.OBJECT, resource=resource, drop_fields=drop_fields)
