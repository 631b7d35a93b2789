"""The types of an expression: what the API server refuses at the admission of a claim is refused here.

Source: `cel-go` checker/checker.go, v0.29.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from berth_plugins.cel import types
from berth_plugins.cel.declarations import CIDR, IP, Overload, functions
from berth_plugins.cel.errors import Issues
from berth_plugins.cel.pieces import count
from berth_plugins.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Shared,
    StructNode,
)
from berth_plugins.cel.types import BOOL, DYN, ERROR, INT, Substitutions, Type
from berth_plugins.cel.values import type_of_value

# The names of types that expressions can use as values.
TYPE_NAMES: Final = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "int": types.INT,
    "uint": types.UINT,
    "string": types.STRING,
    "null_type": types.NULL,
    "type": types.TYPE,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION,
    "optional_type": types.optional_of(types.DYN),
    IP.name: IP,
    CIDR.name: CIDR,
}
# Checking one node takes about as long as so much cost of an evaluation.
_NODE: Final = 20
_LOGIC: Final = frozenset({"_&&_", "_||_"})


def check(
    root: Node, variables: Mapping[str, Type], fields: Mapping[str, Mapping[str, Type]], issues: Issues
) -> Type:
    """Set the types and overloads of all nodes, and return the type of the expression.

    Args:
        root: The tree, which is changed: names of types become constants, functions get their full names.
        variables: Declared variables.
        fields: The fields of each type with fields, by the type's name.
        issues: Where errors are reported.
    """
    return _Checker(variables, fields, issues).whole(root)


class _Checker:
    def __init__(
        self, variables: Mapping[str, Type], fields: Mapping[str, Mapping[str, Type]], issues: Issues
    ) -> None:
        self._scopes: list[Mapping[str, Type]] = [variables]
        self._fields = fields
        self._issues = issues
        self._meanings = Substitutions()
        self._free = 0
        self._checked: list[Node] = []

    def whole(self, root: Node) -> Type:
        self._check(root)
        for node in self._checked:
            node.type = self._meanings.apply(node.type, free_to_dyn=True)
        return root.type

    def _check(self, node: Node) -> None:
        if isinstance(node, Shared) and node.type is not ERROR:
            return
        self._checked.append(node)
        count(_NODE)
        if isinstance(node, Literal):
            node.type = type_of_value(node.value)
        elif isinstance(node, Ident):
            self._ident(node)
        elif isinstance(node, Select):
            self._select(node)
        elif isinstance(node, Call):
            self._call(node)
        elif isinstance(node, ListNode):
            self._list(node)
        elif isinstance(node, MapNode):
            self._map(node)
        elif isinstance(node, StructNode):
            self._struct(node)
        elif isinstance(node, Comprehension):
            self._comprehension(node)
        elif isinstance(node, Shared):
            self._check(node.node)
            node.type = node.node.type

    # --- names ---

    def _variable(self, name: str) -> Type | None:
        if name.startswith("."):
            return self._scopes[0].get(name[1:])
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _ident(self, node: Ident) -> None:
        found = self._variable(node.name)
        if found is None and node.name.lstrip(".") in TYPE_NAMES:
            found = types.type_of(TYPE_NAMES[node.name.lstrip(".")])
        if found is None:
            self._undeclared(node, node.name)
        else:
            node.type = found

    def _select(self, node: Select) -> None:
        name = None if node.is_test else _qualified(node)
        if name is not None and self._variable(name.split(".")[0]) is None and name in TYPE_NAMES:
            node.constant = TYPE_NAMES[name]
            node.type = types.type_of(node.constant)
            return
        found = self._field(node, node.operand, node.field)
        node.type = BOOL if node.is_test else self._meanings.apply(found)

    def _field(self, node: Node, operand: Node, field: str, *, is_optional: bool = False) -> Type:
        self._check(operand)
        target, was_optional = types.unwrap_optional(self._meanings.apply(operand.type))
        found = DYN
        if target.kind == "map":
            found = target.params[1]
        elif target.kind == "struct":
            known = self._fields.get(target.name)
            if known is None or field not in known:
                self._issues.add(node.offset, f"undefined field '{field}'")
                found = ERROR
            else:
                found = known[field]
        elif target.kind == "param":
            self._meanings.assigns(DYN, target)
        elif not types.is_dyn_or_error(target):
            self._issues.add(node.offset, f"type '{target}' does not support field selection")
        return types.optional_of(found) if is_optional or was_optional else found

    def _undeclared(self, node: Node, name: str) -> None:
        self._issues.add(node.offset, f"undeclared reference to '{name}' (in container '')")
        node.type = ERROR

    def _struct(self, node: StructNode) -> None:
        for entry in node.entries:
            self._check(entry.value)
        if node.name.lstrip(".") in TYPE_NAMES:
            self._issues.add(node.offset, f"'{node.name}' is not a message type")
            node.type = ERROR
        else:
            self._undeclared(node, node.name)

    # --- calls ---

    def _call(self, node: Call) -> None:
        if node.function == "_?._":
            operand, field = node.args
            assert isinstance(field, Literal)
            found = self._field(node, operand, field.value, is_optional=True)
            node.type = self._meanings.apply(found)
            node.overloads = ("select_optional_field",)
            return
        for one in node.args:
            self._check(one)
        target = node.target
        if target is not None:
            qualified = _qualified(target)
            if qualified is not None and f"{qualified}.{node.function}" in functions():
                node.function = f"{qualified}.{node.function}"
                node.target = target = None
            else:
                self._check(target)
        name = node.function.removeprefix(".")
        overloads = functions().get(name)
        if overloads is None:
            self._undeclared(node, node.function)
            return
        node.function = name
        if name in _LOGIC:
            self._logic(node)
        else:
            self._resolve(node, overloads)

    def _logic(self, node: Call) -> None:
        node.type = BOOL
        for one in node.args:
            if not self._meanings.assigns(one.type, BOOL):
                self._mismatch(one, BOOL, one.type)
                node.type = ERROR

    def _resolve(self, node: Call, overloads: Sequence[Overload]) -> None:
        args = [one.type for one in (*(() if node.target is None else (node.target,)), *node.args)]
        found: list[str] = []
        result: Type | None = None
        for overload in overloads:
            if overload.is_member != (node.target is not None) or len(overload.params) != len(args):
                continue
            params, gives = overload.params, overload.result
            if overload.has_type_params:
                params, gives = self._fresh(overload)
            if not self._meanings.assigns_all(args, params):
                continue
            found.append(overload.id)
            gives = self._meanings.apply(gives)
            if result is None:
                result = gives
            elif not types.is_dyn(result) and not types.are_same(gives, result):
                result = DYN
        if result is None:
            shown = [str(self._meanings.apply(one, free_to_dyn=True)) for one in args]
            receiver = f"{shown.pop(0)}." if node.target is not None else ""
            self._issues.add(
                node.offset,
                f"found no matching overload for '{node.function}' applied to "
                f"'{receiver}({', '.join(shown)})'",
            )
            result = ERROR
        node.type = result
        node.overloads = tuple(found)

    def _fresh(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """Return the parameters and the result with type parameters that nothing else uses."""
        fresh: dict[str, Type] = {}

        def renamed(one: Type) -> Type:
            if one.kind == "param":
                if one.name not in fresh:
                    fresh[one.name] = self._new_param()
                return fresh[one.name]
            if not one.params:
                return one
            return Type(one.kind, one.name, [renamed(part) for part in one.params])

        return tuple(map(renamed, overload.params)), renamed(overload.result)

    def _new_param(self) -> Type:
        self._free += 1
        return types.param(f"_var{self._free - 1}")

    # --- lists, maps, folds ---

    def _list(self, node: ListNode) -> None:
        element: Type | None = None
        for i, one in enumerate(node.elements):
            self._check(one)
            found = self._unwrapped(one) if i in node.optional else one.type
            element = self._joined(element, found)
        node.type = types.list_of(element or self._new_param())

    def _map(self, node: MapNode) -> None:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            assert isinstance(entry.key, Node)
            self._check(entry.key)
            key = self._joined(key, entry.key.type)
            self._check(entry.value)
            found = self._unwrapped(entry.value) if entry.is_optional else entry.value.type
            value = self._joined(value, found)
        node.type = types.map_of(key or self._new_param(), value or self._new_param())

    def _unwrapped(self, node: Node) -> Type:
        found, is_optional = types.unwrap_optional(node.type)
        if not is_optional and not types.is_dyn(found):
            self._mismatch(node, types.optional_of(found), found)
        return found

    def _joined(self, before: Type | None, found: Type) -> Type:
        if before is None:
            return found
        if self._meanings.assigns(before, found):
            return types.most_general(before, found)
        return DYN

    def _comprehension(self, node: Comprehension) -> None:
        self._check(node.range)
        self._check(node.initial)
        over = self._meanings.apply(node.range.type)
        accumulated = node.initial.type
        first = second = DYN
        if over.kind == "list":
            first = second = over.params[0]
            if node.variable2:
                first = INT
        elif over.kind == "map":
            first, second = over.params
        elif over.kind in ("dyn", "error", "param"):
            self._meanings.assigns(DYN, over)
        else:
            self._issues.add(
                node.range.offset,
                f"expression of type '{over}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
            )
            first = second = ERROR
        self._scopes.append({node.accumulator: accumulated})
        variables = {node.variable: first}
        if node.variable2:
            variables[node.variable2] = second
        self._scopes.append(variables)
        self._check(node.condition)
        self._assert(node.condition, BOOL)
        self._check(node.step)
        self._assert(node.step, accumulated)
        self._scopes.pop()
        self._check(node.result)
        self._scopes.pop()
        node.type = self._meanings.apply(node.result.type)

    def _assert(self, node: Node, wanted: Type) -> None:
        if not self._meanings.assigns(wanted, node.type):
            self._mismatch(node, wanted, node.type)

    def _mismatch(self, node: Node, wanted: Type, found: Type) -> None:
        self._issues.add(node.offset, f"expected type '{wanted}' but found '{found}'")


def _qualified(node: Node) -> str | None:
    """Return `a.b.c` for such a chain of names; None for anything else."""
    names: list[str] = []
    while isinstance(node, Select) and not node.is_test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(names)))
