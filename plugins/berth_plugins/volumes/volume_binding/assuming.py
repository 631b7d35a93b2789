"""`Assumed`: objects as they will be, assumed for pods whose PreBind has not written the change yet.

An assumed object lasts until the API server has a newer one, the pod gives it back, or the object is deleted.

Source: `pkg/scheduler/util/assumecache/assume_cache.go`, v1.36. Differs: several pods may assume one object
(they share a claim), which then lasts until the last of them gives it back.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from berth_sdk.errors import BerthError
from berth_sdk.kube_object import ObjectRef

from berth_plugins.objects.records import Key, Records


class HasRef(Protocol):
    """A record with a reference to its object."""

    @property
    def ref(self) -> ObjectRef:
        """Name and version of the object."""
        ...


R = TypeVar("R", bound=HasRef)


class AssumeError(BerthError):
    """The object does not exist, or is no longer the version that was decided on."""


@dataclass(slots=True)
class _Promise(Generic[R]):
    record: R
    holders: set[str] = field(default_factory=set)


class Assumed(Generic[R]):
    """The assumed objects of one kind. A lock protects all methods, because scheduling and binding calls run
    in different threads. `kind`: for error texts.
    """

    def __init__(self, records: Records[R], kind: str) -> None:
        self.written = records
        self._kind = kind
        self._promises: dict[Key, _Promise[R]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._promises)

    def latest(self, name: str, namespace: str = "") -> R | None:
        """Return the object as assumed, else as written. None: the object does not exist."""
        with self._lock:
            return self._latest((namespace, name))

    def promised(self) -> list[R]:
        """Return every assumed object that differs from the written one."""
        with self._lock:
            found = []
            for key in list(self._promises):
                record = self._latest(key)
                if key in self._promises and record is not None:
                    found.append(record)
            return found

    def assume(self, holder: str, record: R) -> None:
        """Assume `record` for a pod. Raises AssumeError."""
        ref = record.ref
        key = (ref.namespace, ref.name)
        with self._lock:
            latest = self._latest(key)
            if latest is None:
                raise AssumeError(self.missing(ref.name, ref.namespace))
            if _is_newer(latest.ref, ref):
                raise AssumeError(
                    f'{self._kind} "{ref.key}" is out of sync'
                    f" (stored: {latest.ref.resource_version}, assume: {ref.resource_version})"
                )
            promise = self._promises.setdefault(key, _Promise(record))
            promise.record = record
            promise.holders.add(holder)

    def give_back(self, holder: str, name: str, namespace: str = "") -> None:
        """End the pod's hold on the object. No effect if the pod holds nothing."""
        key = (namespace, name)
        with self._lock:
            promise = self._promises.get(key)
            if promise is not None:
                promise.holders.discard(holder)
                if not promise.holders:
                    del self._promises[key]

    def keep_only(self, holders: Collection[str]) -> None:
        """Keep only what these pods hold: other pods no longer exist."""
        with self._lock:
            for key, promise in list(self._promises.items()):
                promise.holders.intersection_update(holders)
                if not promise.holders:
                    del self._promises[key]

    def missing(self, name: str, namespace: str = "") -> str:
        """Return the text for a missing object."""
        return f'could not find {self._kind} "{namespace + "/" if namespace else ""}{name}"'

    def _latest(self, key: Key) -> R | None:
        written = self.written.get(key[1], key[0])
        promise = self._promises.get(key)
        if promise is None:
            return written
        if written is None or _is_newer(written.ref, promise.record.ref):
            del self._promises[key]
            return written
        return promise.record


def _is_newer(first: ObjectRef, second: ObjectRef) -> bool:
    """Return True if the first was written after the second, or is another object of the same name."""
    if first.uid != second.uid:
        return True
    one, other = first.resource_version, second.resource_version
    if one.isdecimal() and other.isdecimal():
        return int(one) > int(other)
    return one != other
