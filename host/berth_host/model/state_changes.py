"""The changes between two versions of the snapshot, and the part that an instance wants.

Made by the cache's change log, turned into messages by `rpc.state_codec`. Holds records that never
change, so it may be encoded piece by piece while the snapshot moves on. Made for every remote call, they are
not frozen: that would triple the cost of making them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeUsage, StateVersion

T_co = TypeVar("T_co", covariant=True)
Prefixes = tuple[str, ...] | None
"""Of label or annotation keys to keep; None: all."""


class Lazy(Sequence[T_co], Generic[T_co]):
    """Records that are made from `items`, a sequence or an array, as they are read, and not kept."""

    __slots__ = ("_items", "_make")

    def __init__(self, items: Any, make: Callable[[Any], T_co]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Lazy[T_co]:
        if isinstance(index, slice):
            return Lazy(self._items[index], self._make)
        return self._make(self._items[index])


@dataclass(slots=True, kw_only=True, eq=False)
class NodeChange:
    """One row. `summary`, `object`: that part changed. `usage`: None: it did not change.

    `pods`: pods that changed or are at another place among the node's pods, in their order; with
    `pods_complete`, all of them. `removed_pods`: uids that left.
    """

    index: int
    generation: int
    node: Node
    is_new: bool
    summary: bool
    object: bool
    usage: NodeUsage | None
    pods: Sequence[Pod] = ()
    removed_pods: Sequence[str] = ()
    pods_complete: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class ObjectChange:
    """One object of a declared resource; `object` None: it is gone."""

    resource: str
    generation: int
    ref: ObjectRef
    object: KubeObject | None


@dataclass(slots=True, kw_only=True, eq=False)
class StateChanges:
    """From `base` (None: from nothing, so this is everything) to `target`, with the target's digests.

    `assumed`: uids of its pods that are only reserved. `generation_sum` is modulo 2**53.
    """

    base: StateVersion | None
    target: StateVersion
    nodes: Sequence[NodeChange]
    removed: Sequence[int]
    objects: Sequence[ObjectChange]
    assumed: Collection[str]
    node_count: int
    object_count: int
    generation_sum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSelection:
    """The union of the needs of an instance's plugins. Hashable.

    `node_object`, `pod_object` and the values of `resources`: fields to drop; None: not wanted.
    """

    node_summary: bool = False
    node_labels: Prefixes = ()
    node_annotations: tuple[str, ...] = ()
    images: bool = False
    node_object: tuple[str, ...] | None = None
    pods: bool = False
    pod_labels: Prefixes = ()
    pod_annotations: tuple[str, ...] = ()
    pod_object: tuple[str, ...] | None = None
    resources: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    @staticmethod
    def of(needs: Iterable[Need]) -> StateSelection:
        """Everything that any of `needs` asks for. A field is dropped only if no need asks for it."""
        by_kind: dict[tuple[NeedKind, str], list[Need]] = {}
        for need in needs:
            key = (need.kind, need.resource if need.kind is NeedKind.OBJECT else "")
            by_kind.setdefault(key, []).append(need)
        nodes = by_kind.get((NeedKind.NODE_SUMMARY, ""), [])
        node_objects = by_kind.get((NeedKind.NODE_OBJECT, ""), [])
        pods = by_kind.get((NeedKind.POD_SUMMARY, ""), [])
        pod_objects = by_kind.get((NeedKind.POD_OBJECT, ""), [])
        return StateSelection(
            node_summary=bool(nodes),
            node_labels=_labels(nodes),
            node_annotations=_annotations(nodes),
            images=any(need.images for need in nodes),
            node_object=_dropped(node_objects) if node_objects else None,
            pods=bool(pods or pod_objects),
            # A plugin that asks for whole pods alone must still find labels in their records.
            pod_labels=_labels(pods or pod_objects),
            pod_annotations=_annotations(pods),
            pod_object=_dropped(pod_objects) if pod_objects else None,
            resources=tuple(
                sorted(
                    (resource, _dropped(found))
                    for (kind, resource), found in by_kind.items()
                    if kind is NeedKind.OBJECT
                )
            ),
        )


def _labels(needs: Sequence[Need]) -> Prefixes:
    if any("" in need.label_prefixes for need in needs):
        return None
    return tuple(sorted({prefix for need in needs for prefix in need.label_prefixes}))


def _annotations(needs: Sequence[Need]) -> tuple[str, ...]:
    return tuple(sorted({prefix for need in needs for prefix in need.annotation_prefixes}))


def _dropped(needs: Sequence[Need]) -> tuple[str, ...]:
    paths = {path for need in needs for path in need.drop_fields}
    return tuple(sorted(path for path in paths if all(_drops(need, path) for need in needs)))


def _drops(need: Need, path: str) -> bool:
    return any(path == dropped or path.startswith(f"{dropped}.") for dropped in need.drop_fields)
