"""`View`: the objects of one resource as they were last handed over; finds the changes to hand over.

Owned by `informer`. It keeps uid and resource version of every object. A version that was handed over is
skipped. If an object was replaced by another one of the same name, a delete is handed over first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_sdk.kube_object import LAST_APPLIED, KubeObject

from berth_host.cluster.kube.resources import ApiResource
from berth_host.cluster.port import WatchEvent, WatchHandler


class NoObjectError(Exception):
    """The received value is not a Kubernetes object."""


class View:
    """The view of one resource. `handler` is called for each change, in the order of the calls."""

    def __init__(self, resource: ApiResource, handler: WatchHandler) -> None:
        self._resource = resource
        self._handler = handler
        self._known: dict[str, tuple[str, str]] = {}
        # Other kinds may be written back whole (PUT), so no annotation of theirs may be left out.
        self._drops_last_applied = resource.name in ("pods", "nodes")

    def __len__(self) -> int:
        return len(self._known)

    @property
    def versions(self) -> Mapping[str, tuple[str, str]]:
        """Uid and resource version by key."""
        return self._known

    def show(self, item: Any, seen: set[str] | None = None) -> None:
        """Hand over an object if it is new or changed; add its key to `seen`. Raises NoObjectError."""
        metadata = _metadata(item)
        key = _key(metadata)
        if seen is not None:
            seen.add(key)
        now = (metadata.get("uid") or "", metadata.get("resourceVersion") or "")
        known = self._known.get(key)
        if known == now:
            return
        old: KubeObject | None = None
        if known is not None:
            old = self._remembered(key, known)
            if known[0] != now[0]:
                del self._known[key]
                self._handler(WatchEvent(self._resource.watch_kind, old, None))
                old = None
        self._known[key] = now
        self._handler(WatchEvent(self._resource.watch_kind, old, self._object(item, metadata)))

    def remove(self, item: Any) -> None:
        """Hand over the deletion of an object. Raises NoObjectError."""
        metadata = _metadata(item)
        key = _key(metadata)
        known = self._known.get(key)
        if known is None or known[0] != (metadata.get("uid") or ""):
            return
        del self._known[key]
        self._handler(WatchEvent(self._resource.watch_kind, self._object(item, metadata), None))

    def keep_only(self, keys: set[str]) -> None:
        """Hand over the deletion of every object whose key a complete list does not contain."""
        for key in [key for key in self._known if key not in keys]:
            known = self._known.pop(key)
            self._handler(WatchEvent(self._resource.watch_kind, self._remembered(key, known), None))

    def _object(self, item: Mapping[str, Any], metadata: dict[str, Any]) -> KubeObject:
        metadata.pop("managedFields", None)
        if self._drops_last_applied:
            annotations = metadata.get("annotations")
            if annotations and LAST_APPLIED in annotations:
                del annotations[LAST_APPLIED]
        resource = self._resource
        # The items of a list do not contain their kind.
        parsed = item
        if "kind" not in item:
            parsed = {"kind": resource.kind, "apiVersion": resource.api_version, **item}
        return KubeObject(resource.api_version, resource.kind, parsed=parsed)

    def _remembered(self, key: str, known: tuple[str, str]) -> KubeObject:
        """Return an object of which only the identity was kept."""
        namespace, _, name = key.rpartition("/")
        metadata = {"name": name, "uid": known[0], "resourceVersion": known[1]}
        if namespace:
            metadata["namespace"] = namespace
        resource = self._resource
        parsed = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return KubeObject(resource.api_version, resource.kind, parsed=parsed)


def _metadata(item: Any) -> dict[str, Any]:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise NoObjectError("an object without a name")
    return metadata


def _key(metadata: Mapping[str, Any]) -> str:
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
