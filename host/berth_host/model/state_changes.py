"""The changes between two versions of the snapshot, as records.

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
    """A sequence of records that are made from `items` (a sequence or an array) on each access."""

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
    """The changes of one row.

    `summary`, `object`: True if that part changed. `usage`: None if it did not change. `pods`: the pods that
    changed or moved within the node's list, in its order; all pods if `pods_complete`. `removed_pods`: uids
    of removed pods.
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
    """The change of one object of a declared resource. `object`: None if it was deleted."""

    resource: str
    generation: int
    ref: ObjectRef
    object: KubeObject | None


@dataclass(slots=True, kw_only=True, eq=False)
class StateChanges:
    """The changes from `base` to `target`, with the target's digests. `base` None: the whole state.

    `assumed`: uids of the assumed pods among them. `generation_sum`: modulo 2**53.
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
