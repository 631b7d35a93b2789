"""A parsed value that remembers where it stood. Made by the YAML and JSON readers, read by the decoder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from berth_sdk.yaml.scalars import Scalar

Json: TypeAlias = Scalar | list["Json"] | dict[str, "Json"]

MAX_VALUES: Final = 200_000
"""Values a document may hold after its aliases are followed: a guard against aliases of aliases."""


class SourceError(Exception):
    """The text cannot be read. Attributes: message, line (from 1, or None)."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a mapping: its value, and the line of its key."""

    key_line: int
    node: SourceNode


@dataclass(frozen=True, slots=True)
class RepeatedKey:
    """A key that a mapping already had."""

    key: str
    line: int


@dataclass(frozen=True, slots=True)
class SourceNode:
    """One value: a scalar, a list or a mapping. `line` counts from 1.

    `plain` is the text of an unquoted YAML word, kept for messages. `repeated` are the keys that
    occurred more than once, where the last one counts. `size` counts all values inside, itself included.
    """

    value: Scalar | tuple[SourceNode, ...] | Mapping[str, Member]
    line: int
    plain: str | None = None
    repeated: tuple[RepeatedKey, ...] = ()
    size: int = field(default=1, compare=False)

    @classmethod
    def of_list(cls, items: tuple[SourceNode, ...], line: int) -> SourceNode:
        """Return a list node. Raises SourceError when it holds too much."""
        return cls(items, line, size=_checked(1 + sum(item.size for item in items), line))

    @classmethod
    def of_mapping(
        cls, members: Mapping[str, Member], line: int, repeated: tuple[RepeatedKey, ...]
    ) -> SourceNode:
        """Return a mapping node. Raises SourceError when it holds too much."""
        size = 1 + sum(member.node.size for member in members.values())
        return cls(members, line, repeated=repeated, size=_checked(size, line))

    @property
    def members(self) -> Mapping[str, Member]:
        """The entries of a mapping; none for anything else."""
        return self.value if isinstance(self.value, Mapping) else {}

    @property
    def items(self) -> tuple[SourceNode, ...]:
        """The items of a list; none for anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    def to_json(self) -> Json:
        """Return the bare value."""
        if isinstance(self.value, Mapping):
            return {key: member.node.to_json() for key, member in self.value.items()}
        if isinstance(self.value, tuple):
            return [item.to_json() for item in self.value]
        return self.value

    def repeated_keys(self, path: str = "") -> Iterator[tuple[str, RepeatedKey]]:
        """All repeated keys inside, each with the path of its mapping."""
        for repeated in self.repeated:
            yield path, repeated
        for key, member in self.members.items():
            yield from member.node.repeated_keys(child(path, key))
        for index, item in enumerate(self.items):
            yield from item.repeated_keys(f"{path}[{index}]")

    def line_of(self, path: str) -> int:
        """Return the line of a field path such as `profiles[0].plugins`, or of its nearest ancestor here.

        An item of a list is named by index or, if it has a `name`, by that.
        """
        place = Member(self.line, self)
        for name, item in _STEP.findall(path):
            found = _item(place.node, item) if item else _member(place.node, name)
            if found is None:
                break
            place = found
        return place.key_line


_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")


def _member(node: SourceNode, name: str) -> Member | None:
    # kube-scheduler writes one field path with a capital ("queueSort.Enabled").
    found = node.members.get(name)
    return found or next((m for key, m in node.members.items() if key.lower() == name.lower()), None)


def _item(node: SourceNode, item: str) -> Member | None:
    for index, candidate in enumerate(node.items):
        named = candidate.members.get("name")
        if item == str(index) or (named is not None and named.node.value == item):
            return Member(candidate.line, candidate)
    return None


def child(path: str, name: str) -> str:
    """Return the path of a field inside `path`."""
    return f"{path}.{name}" if path else name


def _checked(size: int, line: int) -> int:
    if size > MAX_VALUES:
        raise too_many_values(line)
    return size


def too_many_values(line: int) -> SourceError:
    """Return the error for a document of more than MAX_VALUES values; `line`: where they are too many."""
    return SourceError(
        f"the document holds more than {MAX_VALUES} values, the limit for a configuration: take out what is"
        " not read; an alias counts as all the values that it stands for",
        line,
    )
