"""`Assumed`: objects as they will be, promised to pods whose PreBind has not written it yet.

A promise holds until the API server shows a newer object, the pod gives it back, or the object is gone.
Source: `pkg/scheduler/util/assumecache/assume_cache.go`, v1.36. Differs: several pods may hold one promise
(they share a claim), which holds until the last of them gives it back.
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
    """A record that knows its object."""

    @property
    def ref(self) -> ObjectRef:
        """Name and version."""
        ...


R = TypeVar("R", bound=HasRef)


class AssumeError(BerthError):
    """The object is gone, or no longer the version that was decided on."""


@dataclass(slots=True)
class _Promise(Generic[R]):
    record: R
    holders: set[str] = field(default_factory=set)


class Assumed(Generic[R]):
    """Scheduling and binding calls run in different threads, so everything is done under a lock.

    `kind`: for error texts.
    """

    def __init__(self, records: Records[R], kind: str) -> None:
        self.written = records
        self._kind = kind
        self._promises: dict[Key, _Promise[R]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._promises)

    def latest(self, name: str, namespace: str = "") -> R | None:
        """As promised, else as written; None: the object does not exist."""
        with self._lock:
            return self._latest((namespace, name))

    def promised(self) -> list[R]:
        """Every object of which more is promised than is written."""
        with self._lock:
            found = []
            for key in list(self._promises):
                record = self._latest(key)
                if key in self._promises and record is not None:
                    found.append(record)
            return found

    def assume(self, holder: str, record: R) -> None:
        """Promise `record` to a pod. Raises AssumeError."""
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
        """The pod needs it no longer; harmless when it holds nothing."""
        key = (namespace, name)
        with self._lock:
            promise = self._promises.get(key)
            if promise is not None:
                promise.holders.discard(holder)
                if not promise.holders:
                    del self._promises[key]

    def keep_only(self, holders: Collection[str]) -> None:
        """Keep these pods' promises alone: other pods do not exist any more."""
        with self._lock:
            for key, promise in list(self._promises.items()):
                promise.holders.intersection_update(holders)
                if not promise.holders:
                    del self._promises[key]

    def missing(self, name: str, namespace: str = "") -> str:
        """Why there is no record."""
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
    """Whether the first was written after the second, or is another object of its name."""
    if first.uid != second.uid:
        return True
    one, other = first.resource_version, second.resource_version
    if one.isdecimal() and other.isdecimal():
        return int(one) > int(other)
    return one != other
