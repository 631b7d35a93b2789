"""Checks of literals in a checked tree.

Source: `cel-go` cel/validator.go and ext/formatting.go, v0.29.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from berth_plugins.cel import types
from berth_plugins.cel.errors import CelError, EvalError, Issues
from berth_plugins.cel.functions import formatting, regexes
from berth_plugins.cel.syntax import Call, ListNode, Literal, MapNode, Node, children, walk
from berth_plugins.cel.types import DURATION, TIMESTAMP, Type, are_equivalent, unwrap_optional
from berth_plugins.cel.values import Value, to_type

# The kinds of types that a clause of `format` writes.
_CLAUSE_KINDS: Final = {
    "s": frozenset(
        {
            "list",
            "map",
            "int",
            "uint",
            "double",
            "bool",
            "string",
            "timestamp",
            "bytes",
            "duration",
            "type",
            "null",
        }
    ),
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),
    "e": frozenset({"double", "string"}),
    "b": frozenset({"int", "uint", "bool"}),
    "x": frozenset({"int", "uint", "string", "bytes"}),
    "X": frozenset({"int", "uint", "string", "bytes"}),
    "o": frozenset({"int", "uint"}),
}


def validate(root: Node, issues: Issues) -> None:
    """Report literals that no evaluation could use."""
    exempt: set[int] = set()
    for node in walk(root):
        if (isinstance(node, Call) and (node.function == "format" or id(node) in exempt)) or id(
            node
        ) in exempt:
            exempt.update(map(id, children(node)))
        if isinstance(node, Call):
            _call(node, issues)
        elif isinstance(node, ListNode) and id(node) not in exempt:
            _same_elements(node, issues)
        elif isinstance(node, MapNode) and id(node) not in exempt:
            _same_entries(node, issues)


def _call(node: Call, issues: Issues) -> None:
    check = _ARGUMENTS.get(node.function)
    if check is not None and node.args and isinstance(node.args[0], Literal):
        try:
            check(node.args[0].value)
        except CelError:
            issues.add(node.args[0].offset, f"invalid {node.function} argument")
    if (
        node.function == "format"
        and isinstance(node.target, Literal)
        and len(node.args) == 1
        and isinstance(node.args[0], ListNode)
    ):
        _format(node, node.target.value, node.args[0].elements, issues)


def _pattern(value: Value) -> None:
    regexes.pattern(value)


_ARGUMENTS: Final[dict[str, Callable[[Value], object]]] = {
    "duration": lambda value: to_type(value, DURATION),
    "timestamp": lambda value: to_type(value, TIMESTAMP),
    "matches": _pattern,
}


def _same_elements(node: ListNode, issues: Issues) -> None:
    first: Type | None = None
    for i, one in enumerate(node.elements):
        found = unwrap_optional(one.type)[0] if i in node.optional else one.type
        if first is None:
            first = found
        elif not are_equivalent(first, found):
            _mismatch(one, first, found, issues)
            return


def _same_entries(node: MapNode, issues: Issues) -> None:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        assert isinstance(entry.key, Node)
        value = unwrap_optional(entry.value.type)[0] if entry.is_optional else entry.value.type
        if first is None:
            first = entry.key.type, value
            continue
        if not are_equivalent(first[0], entry.key.type):
            _mismatch(entry.key, first[0], entry.key.type, issues)
        if not are_equivalent(first[1], value):
            _mismatch(entry.value, first[1], value, issues)


def _mismatch(node: Node, wanted: Type, found: Type, issues: Issues) -> None:
    issues.add(node.offset, f"expected type '{wanted}' but found '{found}'")


def _format(node: Call, text: Value, args: list[Node], issues: Issues) -> None:
    used = 0
    try:
        for part in formatting.parts_of(text, len(args)):
            if isinstance(part, str):
                continue
            wrong = _unwritable(args[used], part.kind)
            if wrong is not None:
                issues.add(wrong.offset, str(formatting.refused(part.kind, wrong.type.name)))
                return
            used += 1
    except EvalError as err:
        issues.add(node.offset, str(err))
        return
    if len(args) > used:
        issues.add(
            node.offset,
            f"too many arguments supplied to string.format (expected {used}, got {len(args)})",
        )


def _unwritable(node: Node, kind: str) -> Node | None:
    """Return the part of an argument that a clause does not write; None if it writes all."""
    if not types.is_dyn(node.type) and node.type.kind not in _CLAUSE_KINDS[kind]:
        return node
    if kind != "s" or not isinstance(node, ListNode | MapNode):
        return None
    return next((wrong for one in children(node) if (wrong := _unwritable(one, kind)) is not None), None)
