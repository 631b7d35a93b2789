"""`ObjectStore`: the objects of the embedded cluster, and the subscribers to their changes.

Owned by `server.ApiServer`, which checks objects before they are stored. Stored objects are never changed in
place: a change is a new object that shares the unchanged parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from berth_host.cluster.port import WatchEvent, WatchHandler
from berth_sdk.kube_object import KubeObject

from berth_sim.cluster.kinds import BY_RESOURCE, Kind


class ObjectStore:
    """The objects by resource and key. One counter gives all resource versions, in the order of changes."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, KubeObject]] = {resource: {} for resource in BY_RESOURCE}
        self._versions = itertools.count(1)
        self._subscribers: list[WatchHandler] = []

    def next_version(self) -> int:
        """Return the resource version of the next change."""
        return next(self._versions)

    def get(self, kind: Kind, key: str) -> KubeObject | None:
        """Return the object, or None."""
        return self._objects[kind.resource].get(key)

    def of(self, kind: Kind) -> list[KubeObject]:
        """Return all objects of a kind, in the order of their creation."""
        return list(self._objects[kind.resource].values())

    def everything(self) -> Iterator[KubeObject]:
        """Iterate over all objects: by kind, in the order of the table of kinds, then by creation."""
        return itertools.chain.from_iterable(objects.values() for objects in self._objects.values())

    def put(self, kind: Kind, key: str, obj: dict[str, Any]) -> KubeObject:
        """Store a new object or a new version. The caller must not use `obj` any more."""
        obj["apiVersion"] = kind.api_version
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.next_version())}
        stored = KubeObject(kind.api_version, kind.kind, parsed=obj)
        objects = self._objects[kind.resource]
        old = objects.get(key)
        objects[key] = stored
        self._tell(WatchEvent(kind.watch_kind, old, stored))
        return stored

    def remove(self, kind: Kind, key: str) -> None:
        """Remove an object."""
        old = self._objects[kind.resource].pop(key)
        self._tell(WatchEvent(kind.watch_kind, old, None))

    def subscribe(self, handler: WatchHandler) -> Callable[[], None]:
        """Call `handler` inside every later change; return the function that ends this."""
        self._subscribers.append(handler)
        return lambda: self._subscribers.remove(handler)

    def _tell(self, event: WatchEvent) -> None:
        for handler in self._subscribers:
            handler(event)
