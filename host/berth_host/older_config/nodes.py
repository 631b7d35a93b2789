"""Builds source nodes that keep the line of their original."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from berth_host.config.source.node import Json, Member, SourceNode


def node_of(value: Json, line: int) -> SourceNode:
    """Return a plain value as a node; all its parts have the same line."""
    if isinstance(value, dict):
        return object_of({key: node_of(item, line) for key, item in value.items()}, line)
    if isinstance(value, list):
        return list_of((node_of(item, line) for item in value), line)
    return SourceNode(value, line)


def object_of(fields: Mapping[str, SourceNode], line: int) -> SourceNode:
    """Return an object of new fields; each key has the line of its value."""
    members = {key: Member(node.line, node) for key, node in fields.items()}
    return SourceNode.of_mapping(members, line, ())


def list_of(items: Iterable[SourceNode], line: int) -> SourceNode:
    """Return a list of nodes."""
    return SourceNode.of_list(tuple(items), line)


def with_members(node: SourceNode, members: Mapping[str, Member]) -> SourceNode:
    """Return the same object with other members."""
    return SourceNode.of_mapping(members, node.line, node.repeated)


def with_fields(node: SourceNode, **fields: SourceNode) -> SourceNode:
    """Return the same object with fields added or replaced."""
    added = {key: Member(value.line, value) for key, value in fields.items()}
    return with_members(node, {**node.members, **added})


def field_of(node: SourceNode, name: str) -> SourceNode | None:
    """Return the value of a field; None if the field is absent or null, which have the same meaning."""
    member = node.members.get(name)
    return None if member is None or member.node.value is None else member.node


def text_of(node: SourceNode, name: str) -> str:
    """Return the string in a field; empty if there is none."""
    found = field_of(node, name)
    return found.value if found is not None and isinstance(found.value, str) else ""


def number_of(node: SourceNode, name: str) -> int | None:
    """Return the integer in a field; None if there is none."""
    found = field_of(node, name)
    return found.value if found is not None and type(found.value) is int else None
