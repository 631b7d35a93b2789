"""The changes between two versions of the snapshot.

Made by the cache's change log, turned into messages by `rpc.state_codec`. Holds records that never
change, so it may be encoded piece by piece while the snapshot moves on. The classes are not frozen: they are
made for every call to a served plugin, and a frozen class costs three times as much to make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeUsage, StateVersion

T_co = TypeVar("T_co", covariant=True)


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
