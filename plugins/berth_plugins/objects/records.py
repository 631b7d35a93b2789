"""`Records`: the objects of one declared resource as typed records, each read once.

Used by plugins that read claims, volumes, classes and the like. An object is immutable. Its record is made at
the first read, and again when another object takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar, cast

from berth_sdk.handle import Handle, ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.slices import Work, at_once

R = TypeVar("R")
Key = tuple[str, str]
"""(namespace, name)."""
SPARE_RECORDS: Final = 64
"""The number of records that are kept beside twice those of objects that exist."""


class Late(Generic[R]):
    """A part of a record that is read at its first use, in slices: a list that may be long."""

    __slots__ = ("_found", "_read")

    def __init__(self, read: Callable[[], Work[R]]) -> None:
        """`read`: returns the work that reads the part."""
        self._read: Callable[[], Work[R]] | None = read
        self._found: R | None = None

    @staticmethod
    def known(value: R) -> Late[R]:
        """Return a part that is read already."""

        def nothing_to_read() -> Work[R]:
            yield from ()
            return value

        return Late(nothing_to_read)

    def read(self) -> Work[R]:
        """Return the part. Yields between the pieces of the first reading."""
        if self._read is not None:
            self._found = yield from self._read()
            self._read = None
        return cast(R, self._found)

    @property
    def value(self) -> R:
        """The part, read at once."""
        return at_once(self.read())


class Records(Generic[R]):
    """Records by name. `read`: an object -> its record; may raise ObjectError for an object that cannot be
    read.
    """

    def __init__(self, handle: Handle, resource: str, read: Callable[[KubeObject], R]) -> None:
        self._handle = handle
        self._resource = resource
        self._read = read
        self._reader: ObjectReader | None = None
        self._known: dict[Key, tuple[KubeObject, R]] = {}
        self._most = SPARE_RECORDS
        """The number of records at which those of objects that are gone are dropped."""

    @property
    def kept_count(self) -> int:
        """The number of records that are kept."""
        return len(self._known)

    @property
    def reader(self) -> ObjectReader:
        """The objects themselves."""
        if self._reader is None:
            self._reader = self._handle.objects(self._resource)
        return self._reader

    def get(self, name: str, namespace: str = "") -> R | None:
        """Return the record of one object, or None."""
        item = self.reader.get(name, namespace)
        key = (namespace, name)
        if item is None:
            self._known.pop(key, None)
            return None
        known = self._known.get(key)
        if known is None or known[0] is not item:
            known = self._known[key] = (item, self._read(item))
            if len(self._known) > self._most:
                self._drop_stale()
        return known[1]

    def _drop_stale(self) -> None:
        """Drop the records of objects that have changed or are gone: nobody may ask about them again."""
        get = self.reader.get
        kept = {key: known for key, known in self._known.items() if get(key[1], key[0]) is known[0]}
        self._known, self._most = kept, 2 * len(kept) + SPARE_RECORDS

    def follow(self) -> Follower:
        """Return a follower of the changed objects."""
        return Follower(self.reader)

    def everything(self) -> Iterator[Key]:
        """Yield the key of every object."""
        for item in self.reader.list():
            ref = item.ref
            yield ref.namespace, ref.name


class Follower:
    """Returns the objects that changed since its last call."""

    def __init__(self, reader: ObjectReader) -> None:
        self.reader = reader
        self._version = -1

    def pending(self) -> Iterator[Key]:
        """Yield the key of each object that may have changed since the last call of `moved`."""
        if self.reader.version == self._version:
            return
        moved = self.reader.moved_since(self._version)
        if moved is not None:
            yield from list(dict.fromkeys(moved))
            return
        for item in list(self.reader.list()):
            yield item.ref.namespace, item.ref.name

    def moved(self) -> list[Key] | None:
        """Return (namespace, name) of changed objects, without repeats. None: any object, as at the first
        call.
        """
        version = self.reader.version
        if version == self._version:
            return []
        moved = self.reader.moved_since(self._version)
        self._version = version
        return None if moved is None else list(dict.fromkeys(moved))
