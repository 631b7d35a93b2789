"""The syntax tree. `offset`: where a node is reported, in code points. The checker fills in `type` and
`overloads`.

Source: `cel-go` common/ast/expr.go, v0.29.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from berth_plugins.cel.types import ERROR, Type
from berth_plugins.cel.values import Value

# The accumulator of the macros. No identifier in a source text can have this name.
ACCUMULATOR: Final = "@result"


class Node:
    """One expression."""

    __slots__ = ("depth", "offset", "overloads", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.depth = 0
        self.type: Type = ERROR
        self.overloads: tuple[str, ...] = ()


class Literal(Node):
    """A constant."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Value) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A variable, a type's name or an enum constant."""

    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Select(Node):
    """`operand.field`. `is_test`: the macro `has` asks for it. `constant`: a qualified name's type."""

    __slots__ = ("constant", "field", "is_test", "operand")

    def __init__(self, offset: int, operand: Node, field: str, *, is_test: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.is_test = is_test
        self.constant: Type | None = None


class Call(Node):
    """A call of a function or an operator. `target`: None for a call without a receiver."""

    __slots__ = ("args", "function", "target")

    def __init__(self, offset: int, function: str, args: Sequence[Node], target: Node | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = list(args)
        self.target = target


class ListNode(Node):
    """A list. `optional`: the places of elements that are left out if they have no value."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: Sequence[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = list(elements)
        self.optional = optional


class Entry:
    """One entry of a map, or one field of a message. `key` is the field's name then."""

    __slots__ = ("is_optional", "key", "offset", "value")

    def __init__(self, offset: int, key: Node | str, value: Node, *, is_optional: bool) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.is_optional = is_optional


class MapNode(Node):
    """A map."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: Sequence[Entry]) -> None:
        super().__init__(offset)
        self.entries = list(entries)


class StructNode(Node):
    """A message with fields."""

    __slots__ = ("entries", "name")

    def __init__(self, offset: int, name: str, entries: Sequence[Entry]) -> None:
        super().__init__(offset)
        self.name = name
        self.entries = list(entries)


class Comprehension(Node):
    """A fold over a list or a map. `variable2`: the empty text for a fold with one variable."""

    __slots__ = ("accumulator", "condition", "initial", "range", "result", "step", "variable", "variable2")

    def __init__(
        self,
        offset: int,
        range_: Node,
        variables: tuple[str, str],
        accumulator: str,
        initial: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(offset)
        self.range = range_
        self.variable, self.variable2 = variables
        self.accumulator = accumulator
        self.initial = initial
        self.condition = condition
        self.step = step
        self.result = result


class Shared(Node):
    """An expression that stands at two places of the tree, and is checked and planned once."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        super().__init__(node.offset)
        self.node = node


class Broken(Node):
    """Stands where an error was reported."""

    __slots__ = ()


def children(node: Node) -> list[Node]:
    """Return the parts of a node, in order."""
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Shared):
        return [node.node]
    if isinstance(node, Call):
        return [*([] if node.target is None else [node.target]), *node.args]
    if isinstance(node, ListNode):
        return node.elements
    if isinstance(node, MapNode | StructNode):
        found: list[Node] = []
        for entry in node.entries:
            if isinstance(entry.key, Node):
                found.append(entry.key)
            found.append(entry.value)
        return found
    if isinstance(node, Comprehension):
        return [node.range, node.initial, node.condition, node.step, node.result]
    return []


def walk(root: Node) -> list[Node]:
    """Return a node and all its parts, each of them once, parents first."""
    found: list[Node] = []
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        found.append(node)
        waiting.extend(reversed(children(node)))
    return found
