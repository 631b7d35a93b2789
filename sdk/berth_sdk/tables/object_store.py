"""`ObjectStore`: the objects of one resource beside the tables, ordered by when they last changed.

The host keeps one per kind from the watch and one per declared resource in the snapshot; a served plugin
keeps one per declared resource in its copy. Plugins read it through `handle.objects(resource)`.
"""

from __future__ import annotations

import builtins
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.tables.generation_log import GenerationLog
from berth_sdk.tables.slot_log import RecentLog

_VERSIONS_PER_STORE: Final = 1 << 40
_births: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, which one it is, and the generation of its last change.

    `object` is None for an object in an encoding unknown here: it counts, but cannot be read.
    """

    ref: ObjectRef
    object: KubeObject | None
    generation: int


class ObjectStore:
    """Implements `handle.ObjectReader`. `version` moves with any change.

    No two stores of a process have a version in common: a reader of a copy made anew sees that it is another
    store.
    """

    __slots__ = ("_first", "_items", "_listed", "_moved", "generation_sum", "removed", "version")

    def __init__(self) -> None:
        # Oldest change first, so that "changed since" reads the tail alone.
        self._items: OrderedDict[tuple[str, str], StoredObject] = OrderedDict()
        self._listed: dict[str | None, list[KubeObject]] = {}
        self._moved: RecentLog[tuple[str, str]] = RecentLog()
        self._first = next(_births) * _VERSIONS_PER_STORE
        self.generation_sum = 0
        self.version = self._first
        self.removed: GenerationLog[ObjectRef] = GenerationLog()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """One object, or None."""
        item = self._items.get((namespace, name))
        return None if item is None else item.object

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """All objects, or one namespace's, by namespace and name. The list is the caller's own."""
        listed = self._listed.get(namespace)
        if listed is None:
            keys = sorted(key for key in self._items if namespace is None or key[0] == namespace)
            found = (self._items[key].object for key in keys)
            listed = self._listed[namespace] = [item for item in found if item is not None]
        return listed.copy()

    def find(self, namespace: str, name: str) -> StoredObject | None:
        """One object with its generation, or None."""
        return self._items.get((namespace, name))

    def changed_since(self, generation: int) -> builtins.list[StoredObject]:
        """The changes after `generation` (0: ever), oldest change first."""
        if not generation:
            return [*self._items.values()]
        changed: builtins.list[StoredObject] = []
        for item in reversed(self._items.values()):
            if item.generation <= generation:
                break
            changed.append(item)
        changed.reverse()
        return changed

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """(namespace, name) of objects changed after `version`; None: too long ago to be known."""
        if not self._first <= version <= self.version:
            return None
        return self._moved.since(version - self._first)

    def put(self, ref: ObjectRef, item: KubeObject | None, generation: int) -> None:
        """Store an object in place of the one with its name; generations must not go back."""
        key = (ref.namespace, ref.name)
        old = self._items.get(key)
        if old is not None:
            self.generation_sum -= old.generation
        self._items[key] = StoredObject(ref, item, generation)
        self._items.move_to_end(key)
        self.generation_sum += generation
        self._changed(key)

    def remove(self, namespace: str, name: str, generation: int) -> StoredObject | None:
        """Drop an object; None if there was none. `generation` is that of the removal."""
        old = self._items.pop((namespace, name), None)
        if old is not None:
            self.generation_sum -= old.generation
            self.removed.add(generation, old.ref)
            self._changed((namespace, name))
        return old

    def _changed(self, key: tuple[str, str]) -> None:
        self._listed.clear()
        self._moved.add(key)
        self.version += 1
