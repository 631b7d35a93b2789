"""`ObjectStore`: the objects of one resource beside the tables, ordered by their last change.

The host has one store per kind from the watch, and one per declared resource in the snapshot. A served plugin
has one per declared resource in its copy. Plugins read a store through `handle.objects(resource)`.
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
    """One object with its reference and the generation of its last change.

    `object` None: the object has an encoding that this process cannot decode. It counts, but cannot be read.
    """

    ref: ObjectRef
    object: KubeObject | None
    generation: int


class ObjectStore:
    """The objects of one resource. Implements `handle.ObjectReader`. `version` grows with any change.

    Two stores of a process never have a version in common, so a reader notices when a copy was made again.
    """

    __slots__ = ("_first", "_items", "_listed", "_moved", "generation_sum", "removed", "version")

    def __init__(self) -> None:
        # Oldest change first, so that `changed_since` reads only the end.
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
        """Return one object, or None."""
        item = self._items.get((namespace, name))
        return None if item is None else item.object

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """Return all objects, or one namespace's, by namespace and name. The caller may change the list."""
        listed = self._listed.get(namespace)
        if listed is None:
            keys = sorted(key for key in self._items if namespace is None or key[0] == namespace)
            found = (self._items[key].object for key in keys)
            listed = self._listed[namespace] = [item for item in found if item is not None]
        return listed.copy()

    def find(self, namespace: str, name: str) -> StoredObject | None:
        """Return one object with its generation, or None."""
        return self._items.get((namespace, name))

    def changed_since(self, generation: int) -> builtins.list[StoredObject]:
        """Return the changes after `generation` (0: all), oldest change first."""
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
        """Return (namespace, name) of objects changed after `version`. None: the log no longer has all of
        them.
        """
        if not self._first <= version <= self.version:
            return None
        return self._moved.since(version - self._first)

    def put(self, ref: ObjectRef, item: KubeObject | None, generation: int) -> None:
        """Store an object in place of the one with its name. Generations must not decrease."""
        key = (ref.namespace, ref.name)
        old = self._items.get(key)
        if old is not None:
            self.generation_sum -= old.generation
        self._items[key] = StoredObject(ref, item, generation)
        self._items.move_to_end(key)
        self.generation_sum += generation
        self._changed(key)

    def remove(self, namespace: str, name: str, generation: int) -> StoredObject | None:
        """Remove an object and return it; None if there was none. `generation`: of the removal."""
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
