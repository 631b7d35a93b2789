"""The macros: calls that stand for folds.

Source: `cel-go` parser/macro.go, ext/comprehensions.go, ext/bindings.go, ext/lists.go and cel/library.go,
v0.29.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from berth_plugins.cel.errors import CelError
from berth_plugins.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Shared,
)

_OLD_ACCUMULATOR: Final = "__result__"
_UNUSED: Final = "#unused"
_SORTED: Final = "@__sortBy_input__"


class MacroError(CelError):
    """The arguments of a macro are not as it needs them."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def expanded(offset: int, function: str, args: Sequence[Node], target: Node | None) -> Node | None:
    """Return what a call stands for; None for a call that is no macro. Raises MacroError."""
    if target is None:
        return _has(offset, args[0]) if function == "has" and len(args) == 1 else None
    macro = _MACROS.get((function, len(args)))
    return None if macro is None else macro(offset, target, args)


def _has(offset: int, argument: Node) -> Node:
    if not isinstance(argument, Select):
        raise MacroError(argument.offset, "invalid argument to has() macro")
    return Select(offset, argument.operand, argument.field, is_test=True)


# --- folds over one or two variables ---------------------------------------------------------------

_Macro = Callable[[int, Node, Sequence[Node]], Node | None]


class _Fold:
    """The parts of a fold: its variables, and a maker of nodes at the place of the macro."""

    def __init__(self, offset: int, target: Node, variables: tuple[str, str]) -> None:
        self._offset = offset
        self._target = target
        self._variables = variables

    @property
    def accumulator(self) -> Node:
        return Ident(self._offset, ACCUMULATOR)

    def literal(self, value: object) -> Node:
        return Literal(self._offset, value)

    def call(self, function: str, *args: Node) -> Node:
        return Call(self._offset, function, args)

    def over(self, initial: Node, condition: Node, step: Node, result: Node | None = None) -> Node:
        return Comprehension(
            self._offset,
            self._target,
            self._variables,
            ACCUMULATOR,
            initial,
            condition,
            step,
            result or self.accumulator,
        )

    def every(self, predicate: Node) -> Node:
        return self.over(
            self.literal(True),
            self.call("@not_strictly_false", self.accumulator),
            self.call("_&&_", self.accumulator, predicate),
        )

    def some(self, predicate: Node) -> Node:
        return self.over(
            self.literal(False),
            self.call("@not_strictly_false", self.call("!_", self.accumulator)),
            self.call("_||_", self.accumulator, predicate),
        )

    def one(self, predicate: Node) -> Node:
        count = self.call("_+_", self.accumulator, self.literal(1))
        return self.over(
            self.literal(0),
            self.literal(True),
            self.call("_?_:_", predicate, count, self.accumulator),
            self.call("_==_", self.accumulator, self.literal(1)),
        )

    def growing(self, initial: Node, grown: Node, predicate: Node | None) -> Node:
        step = grown if predicate is None else self.call("_?_:_", predicate, grown, self.accumulator)
        return self.over(initial, self.literal(True), step)

    def listed(self, transform: Node, predicate: Node | None) -> Node:
        added = ListNode(self._offset, (transform,))
        return self.growing(ListNode(self._offset, ()), self.call("_+_", self.accumulator, added), predicate)

    def mapped(self, args: Sequence[Node], predicate: Node | None) -> Node:
        grown = self.call("cel.@mapInsert", self.accumulator, *args)
        return self.growing(MapNode(self._offset, ()), grown, predicate)


def _name(argument: Node, message: str) -> str:
    if not isinstance(argument, Ident):
        raise MacroError(argument.offset, message)
    return argument.name


def _free(argument: Node, name: str) -> str:
    if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        raise MacroError(argument.offset, "iteration variable overwrites accumulator variable")
    return name


def _one_variable(make: Callable[[_Fold, Sequence[Node]], Node], message: str) -> _Macro:
    def expand(offset: int, target: Node, args: Sequence[Node]) -> Node:
        name = _free(args[0], _name(args[0], message))
        return make(_Fold(offset, target, (name, "")), args)

    return expand


def _two_variables(make: Callable[[_Fold, Sequence[Node]], Node]) -> _Macro:
    def expand(offset: int, target: Node, args: Sequence[Node]) -> Node:
        first, second = (_name(one, "argument must be a simple name") for one in args[:2])
        if first == second:
            raise MacroError(args[1].offset, f"duplicate variable name: {first}")
        return make(_Fold(offset, target, (_free(args[0], first), _free(args[1], second))), args)

    return expand


def _map(fold: _Fold, args: Sequence[Node]) -> Node:
    return fold.listed(args[-1], args[1] if len(args) == 3 else None)


def _filter(fold: _Fold, args: Sequence[Node]) -> Node:
    return fold.listed(args[0], args[1])


def _transform_list(fold: _Fold, args: Sequence[Node]) -> Node:
    return fold.listed(args[-1], args[2] if len(args) == 4 else None)


def _transform_map(fold: _Fold, args: Sequence[Node]) -> Node:
    key = args[0]
    assert isinstance(key, Ident)
    return fold.mapped((Ident(key.offset, key.name), args[-1]), args[2] if len(args) == 4 else None)


def _transform_entry(fold: _Fold, args: Sequence[Node]) -> Node:
    return fold.mapped((args[-1],), args[2] if len(args) == 4 else None)


# --- names for values --------------------------------------------------------------------------------


def _bound(offset: int, name: str, value: Node, result: Node) -> Node:
    """Return an expression in which a name stands for a value."""
    return Comprehension(
        offset,
        ListNode(offset, ()),
        (_UNUSED, ""),
        name,
        value,
        Literal(offset, False),
        Ident(offset, name),
        result,
    )


def _bind(offset: int, target: Node, args: Sequence[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _name(args[0], "cel.bind() variable names must be simple identifiers")
    return _bound(offset, name, args[1], args[2])


def _optional(macro: str, *, is_flat: bool) -> _Macro:
    def expand(offset: int, target: Node, args: Sequence[Node]) -> Node:
        name = _name(args[0], f"{macro}() variable name must be a simple identifier")
        shared = Shared(target)
        inner = _bound(offset, name, Call(offset, "value", (), shared), args[1])
        return Call(
            offset,
            "_?_:_",
            (
                Call(offset, "hasValue", (), shared),
                inner if is_flat else Call(offset, "optional.of", (inner,)),
                Call(offset, "optional.none", ()),
            ),
        )

    return expand


def _sort_by(offset: int, target: Node, args: Sequence[Node]) -> Node:
    if not isinstance(target, ListNode | Select | Ident | Comprehension | Call):
        raise MacroError(
            target.offset,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        )
    name = _free(args[0], _name(args[0], "argument is not an identifier"))
    keys = _map(_Fold(offset, Ident(offset, _SORTED), (name, "")), args)
    ordered = Call(offset, "@sortByAssociatedKeys", (keys,), Ident(offset, _SORTED))
    return _bound(offset, _SORTED, target, ordered)


_SIMPLE: Final = "argument must be a simple name"
_IDENTIFIER: Final = "argument is not an identifier"
_MACROS: Final[dict[tuple[str, int], _Macro]] = {
    ("all", 2): _one_variable(lambda fold, args: fold.every(args[1]), _SIMPLE),
    ("exists", 2): _one_variable(lambda fold, args: fold.some(args[1]), _SIMPLE),
    ("exists_one", 2): _one_variable(lambda fold, args: fold.one(args[1]), _SIMPLE),
    ("map", 2): _one_variable(_map, _IDENTIFIER),
    ("map", 3): _one_variable(_map, _IDENTIFIER),
    ("filter", 2): _one_variable(_filter, _IDENTIFIER),
    ("all", 3): _two_variables(lambda fold, args: fold.every(args[2])),
    ("exists", 3): _two_variables(lambda fold, args: fold.some(args[2])),
    ("existsOne", 3): _two_variables(lambda fold, args: fold.one(args[2])),
    ("exists_one", 3): _two_variables(lambda fold, args: fold.one(args[2])),
    ("transformList", 3): _two_variables(_transform_list),
    ("transformList", 4): _two_variables(_transform_list),
    ("transformMap", 3): _two_variables(_transform_map),
    ("transformMap", 4): _two_variables(_transform_map),
    ("transformMapEntry", 3): _two_variables(_transform_entry),
    ("transformMapEntry", 4): _two_variables(_transform_entry),
    ("bind", 3): _bind,
    ("optMap", 2): _optional("optMap", is_flat=False),
    ("optFlatMap", 2): _optional("optFlatMap", is_flat=True),
    ("sortBy", 2): _sort_by,
}
