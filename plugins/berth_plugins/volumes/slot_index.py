"""`SlotIndex`: the entries of pods with storage, by key and then by node.

Used by VolumeRestrictions. Updated with the pods that are added and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from berth_sdk.pod import Pod
from berth_sdk.tables import Moved, NodeTable, SlotFollower

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SlotIndex(Generic[K, V]):
    """Entries by key and slot. `read`: the entries of one pod, each with its key."""

    def __init__(self, read: Callable[[Pod], Iterable[tuple[K, V]]]) -> None:
        self._read = read
        self._follower = SlotFollower(Moved.VOLUMES)
        self._by_key: dict[K, dict[int, list[V]]] = {}
        self._keys_on: dict[int, set[K]] = {}

    def catch_up(self, nodes: NodeTable) -> None:
        """Read the nodes again whose pods with storage changed."""
        moved = self._follower.moved(nodes)
        if moved is None:
            self._by_key.clear()
            self._keys_on.clear()
            moved = list(nodes.pod_volumes.slots())
        for slot in moved:
            self._drop(slot)
            for pod in nodes.pod_volumes.on_slot(slot):
                for key, entry in self._read(pod):
                    self._by_key.setdefault(key, {}).setdefault(slot, []).append(entry)
                    self._keys_on.setdefault(slot, set()).add(key)

    def get(self, key: K) -> Mapping[int, list[V]]:
        """Return the entries under a key, by slot."""
        return self._by_key.get(key, {})

    def _drop(self, slot: int) -> None:
        for key in self._keys_on.pop(slot, ()):
            slots = self._by_key[key]
            del slots[slot]
            if not slots:
                del self._by_key[key]
