"""`Undeclared`, `DeclaredKeys` and `trimmed`: records without the parts that the plugin did not declare in
`needs`.

Every use of an undeclared part raises UndeclaredError, which names the part and the need: in process, served,
and in `berth_sdk.testing`. So an undeclared part never looks empty.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, Mapping, Set
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar

from berth_sdk.errors import UndeclaredError
from berth_sdk.kube_object import JsonObject, KubeObject, ObjectRef

V = TypeVar("V")


class Undeclared:
    """The stand-in for one part, as a plugin writes it (`pod.object`), with the need that brings the part
    (`Need.whole_pod()`).

    `cure`: as in UndeclaredError.
    """

    __slots__ = ("cure", "need", "part")

    def __init__(self, part: str, need: str, cure: str = "") -> None:
        self.part = part
        self.need = need
        self.cure = cure

    def refuse(self, part: str = "") -> NoReturn:
        """Raise UndeclaredError. `part`: the part that was read, if it lies within this one."""
        raise UndeclaredError(part or self.part, self.need, cure=self.cure)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols of Python itself, such as copying
        self.refuse()

    def __repr__(self) -> str:
        return f"<undeclared {self.part}>"


def _refuse(self: Undeclared, *_args: object) -> Any:
    self.refuse()


# Comparing and hashing raise too: two undeclared parts are not known to be equal, and as a key one of them
# would stand for all objects.
for _name in (
    *("__eq__", "__ne__", "__hash__"),
    *("__bool__", "__len__", "__iter__", "__contains__", "__getitem__", "__str__", "__format__"),
    *("__int__", "__float__", "__index__", "__lt__", "__le__", "__gt__", "__ge__", "__neg__"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__"),
    *("__floordiv__", "__rfloordiv__", "__truediv__", "__rtruediv__"),
):
    setattr(Undeclared, _name, _refuse)


def compared_by_parts(record: type[V]) -> type[V]:
    """Make two records of a dataclass equal if each part is the same object or equal; return the class.

    A part that is the same stand-in in both records is not compared, so that a record is equal to itself.
    Dataclasses themselves compare so up to Python 3.12; 3.13 compares each part with `==`, which a stand-in
    refuses.
    """
    parts = attrgetter(*(one.name for one in fields(record) if one.compare))  # type: ignore[arg-type]

    def is_equal(self: object, other: object) -> bool:
        return parts(self) == parts(other) if other.__class__ is self.__class__ else NotImplemented

    record.__eq__ = is_equal  # type: ignore[method-assign]
    return record


POD_OBJECT: Final = Undeclared("pod.object", "Need.whole_pod()")
"""The JSON of the pod that a call is about."""


class _Asking(Set[Any]):
    """A view of a limited map. A comparison looks up each element of the other side."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # as of every view of a dict

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Set) and self >= other and len(self) == len(other)

    def __ge__(self, other: Any) -> bool:
        found = [one in self for one in other]
        return all(found)

    def __gt__(self, other: Any) -> bool:
        return self >= other and len(self) > len(other)


class _Keys(_Asking, KeysView[str]):
    """The keys of a limited map. Looking up an undeclared key raises UndeclaredError."""

    __slots__ = ()


class _Items(_Asking, ItemsView[str, Any]):
    """The items of a limited map. Looking up an undeclared key raises UndeclaredError."""

    __slots__ = ()


class _Limited(dict[str, V]):
    """A map with keys that may not be read. Every lookup of such a key raises UndeclaredError.

    Subclasses decide which keys (`_check`). Iteration yields only the keys that may be read.
    """

    __slots__ = ()

    def _check(self, key: object) -> bool:
        """Raise UndeclaredError for a key that may not be read, else return False."""
        raise NotImplementedError

    def __missing__(self, key: str) -> V:
        self._check(key)
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or `default`."""
        if super().__contains__(key):
            return self[key]
        self._check(key)
        return default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._check(key)

    def pop(self, key: str, *default: Any) -> Any:
        """Remove the key and return its value, or `default`."""
        self._check(key)
        return super().pop(key, *default)

    def keys(self) -> Any:
        """Return the keys that may be read."""
        return _Keys(self)

    def items(self) -> Any:
        """Return the keys that may be read, with their values."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping) and not isinstance(other, _Limited):
            for key in other:
                key in self  # noqa: B015  # raises
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as of every dict


class DeclaredKeys(_Limited[V]):
    """The labels or annotations whose keys begin with a declared prefix. Looking up any other key raises
    UndeclaredError.
    """

    __slots__ = ("_need", "_part", "_prefixes")

    def __init__(self, values: Mapping[str, V], prefixes: tuple[str, ...], part: str, need: str) -> None:
        """`part`: as a plugin writes it (`node.labels`). `need`: has {} in place of the key."""
        super().__init__({key: value for key, value in values.items() if key.startswith(prefixes)})
        self._prefixes = prefixes
        self._part = part
        self._need = need

    def copy(self) -> DeclaredKeys[V]:
        """Return a copy with the same limits."""
        return DeclaredKeys(self, self._prefixes, self._part, self._need)

    def _check(self, key: object) -> bool:
        if isinstance(key, str) and not key.startswith(self._prefixes):
            raise UndeclaredError(f"{self._part}[{key!r}]", self._need.format(repr(key)))
        return False


class Drops:
    """The fields that a plugin drops from one kind of objects.

    `paths`: dotted. `part`: the object as a plugin writes it (`node.object`). `need`: the need that drops the
    fields (`Need.node_objects`).
    """

    __slots__ = ("need", "part", "paths", "tree")

    def __init__(self, paths: Iterable[str], part: str, need: str) -> None:
        self.paths = tuple(paths)
        self.part = part
        self.need = need
        self.tree: dict[str, Any] = {}
        """The dropped fields as a tree. Each branch ends in a str, the dropped path."""
        for path in sorted(self.paths, key=len, reverse=True):
            branch = self.tree
            *way, last = path.split(".")
            for key in way:
                branch = branch.setdefault(key, {})
            branch[last] = path

    def touch(self, path: str) -> str:
        """Return a dropped path that contains, or lies within, the field at `path`. "": there is none."""
        for dropped in self.paths:
            if f"{path}.".startswith(f"{dropped}.") or dropped.startswith(f"{path}."):
                return dropped
        return ""

    def undeclared(self, part: str, dropped: str) -> Undeclared:
        """Return the stand-in for a part that the dropped path removes."""
        return Undeclared(part, self.need, f"do not drop {dropped!r} in {self.need} of `needs`")

    def refuse(self, dropped: str) -> NoReturn:
        """Raise UndeclaredError for a read of a dropped path."""
        self.undeclared(f"{dropped!r} of {self.part}", dropped).refuse()


class TrimmedObject(KubeObject):
    """An object without the fields that the plugin drops. Looking these fields up raises UndeclaredError.

    The trimmed form is made at the first read.
    """

    __slots__ = ("drops", "origin")

    def __init__(self, origin: KubeObject, drops: Drops) -> None:
        super().__init__(origin.api_version, origin.kind, raw=b"")
        self.origin = origin
        self.drops = drops
        self._raw = None

    @property
    def ref(self) -> ObjectRef:
        """Namespace, name, uid and resource version, which cannot be dropped."""
        return self.origin.ref

    @property
    def raw(self) -> bytes:
        """The trimmed object as JSON bytes."""
        if self._parsed is None:
            self._parsed = self._trim()
        return super().raw

    def parse(self, decode: Any) -> JsonObject:
        """Return the trimmed object."""
        if self._parsed is None:
            self._parsed = self._trim()
        return self._parsed

    def release(self, encode: Any = None) -> None:
        """Drop the trimmed form. The next read makes it again."""
        self._parsed = self._raw = None

    def _trim(self) -> JsonObject:
        origin = self.origin
        was_parsed = origin.is_parsed
        parsed: JsonObject = _trimmed(origin.parsed, self.drops.tree, self.drops)
        if not was_parsed:
            origin.release()
        return parsed


def trimmed(item: KubeObject, drops: Drops) -> KubeObject:
    """Return the object without the dropped fields."""
    return TrimmedObject(item, drops) if drops.paths else item


class _TrimmedFields(_Limited[Any]):
    """A JSON object without some of its fields."""

    __slots__ = ("_drops", "_tree")

    def __init__(self, fields: Mapping[str, Any], tree: dict[str, Any], drops: Drops) -> None:
        super().__init__(fields)
        self._tree = tree
        self._drops = drops

    def copy(self) -> _TrimmedFields:
        """Return a copy with the same limits."""
        return _TrimmedFields(self, self._tree, self._drops)

    def _check(self, key: object) -> bool:
        dropped = self._tree.get(key) if isinstance(key, str) else None
        if isinstance(dropped, str):
            self._drops.refuse(dropped)
        return False


def _trimmed(value: Any, tree: dict[str, Any], drops: Drops) -> Any:
    """Return a copy without the dropped paths. A list on the way stands for each of its elements."""
    if isinstance(value, list):
        return [_trimmed(element, tree, drops) for element in value]
    if not isinstance(value, Mapping):
        return value
    fields = _TrimmedFields(value, tree, drops)
    for key, branch in tree.items():
        if isinstance(branch, str):
            dict.pop(fields, key, None)
        elif dict.__contains__(fields, key):
            fields[key] = _trimmed(fields[key], branch, drops)
    return fields
