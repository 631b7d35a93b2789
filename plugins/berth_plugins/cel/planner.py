"""A checked tree -> a function that evaluates it, and counts what the evaluation costs.

Each node becomes a closure over a frame: a list with the cost so far, the cost at which to stop next, the
cost that `pieces` knows of, and the values of the variables. Constants are folded. The cost is counted as
upstream counts it. It is compared with the next stop (the end of a piece, or the limit) in each turn of a
fold, at each name for a value, after each call whose cost depends on its arguments, and at the end. What
upstream counts as one step however large it is, `work` bounds.

Source: `cel-go` interpreter/planner.go, interpretable.go, attributes.go and runtimecost.go, v0.29.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from berth_plugins.cel import types
from berth_plugins.cel.cost import LIST_COST, MAP_COST, cost_of
from berth_plugins.cel.declarations import Overload
from berth_plugins.cel.declarations import functions as declared
from berth_plugins.cel.errors import CelError, CostError, EvalError
from berth_plugins.cel.functions import (
    formats,
    lists,
    networks,
    operators,
    quantities,
    regexes,
    texts,
    times,
    urls,
    versions,
)
from berth_plugins.cel.pieces import PIECE, count
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
)
from berth_plugins.cel.types import Type
from berth_plugins.cel.values import (
    NOTHING,
    Duration,
    GrowingList,
    GrowingMap,
    MapValue,
    Optional,
    Timestamp,
    Uint,
    Value,
    are_equal,
    has_type,
    shown,
    type_name,
)
from berth_plugins.cel.work import COST_TEXT

Frame = list[Any]
Run = Callable[[Frame], Value]
COST: Final = 0
STOP: Final = 1
COUNTED: Final = 2
FIRST: Final = 3
"""The first of the variables."""
# Planning one node takes about as long as so much cost of an evaluation.
_NODE: Final = 20
_UNSET: Final = object()

_SINGLETONS: Final[Mapping[str, Callable[..., Any]]] = {
    **operators.SINGLETONS,
    **regexes.SINGLETONS,
    **texts.SINGLETONS,
    **lists.FREE,
}
_OVERLOADS: Final[Mapping[str, Callable[..., Any]]] = {
    **lists.OVERLOADS,
    **texts.OVERLOADS,
    **regexes.OVERLOADS,
    **times.OVERLOADS,
    **quantities.OVERLOADS,
    **versions.OVERLOADS,
    **networks.OVERLOADS,
    **urls.OVERLOADS,
    **formats.OVERLOADS,
}
# How Go calls the types of values that are no keys or ranges.
_GO_TYPES: Final[dict[type, str]] = {
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    type(None): "types.Null",
    list: "*types.baseList",
    GrowingList: "*types.baseList",
    MapValue: "*types.baseMap",
    Timestamp: "types.Timestamp",
    Duration: "types.Duration",
    Optional: "*types.Optional",
    Type: "*types.Type",
}


def go_type(value: Value) -> str:
    """Return how Go calls the type of a value."""
    return _GO_TYPES.get(type(value)) or f"cel.{type_name(value).rpartition('.')[2]}"


class PlanError(CelError):
    """A constant part of an expression fails."""


class _Const:
    """A value that is known before the evaluation. It costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class _Attribute:
    """A variable or another value, and the keys that are looked up in it one after the other.

    `branches`: of a condition, the attributes to choose from. `is_test`: the last key is only tested.
    """

    __slots__ = ("base", "branches", "condition", "is_test", "keys")

    def __init__(
        self, base: Run | None = None, condition: Run | None = None, branches: tuple[_Attribute, ...] = ()
    ) -> None:
        self.base = base
        self.condition = condition
        self.branches = branches
        self.is_test = False
        self.keys: list[_Key] = []

    def add(self, key: _Key) -> None:
        for branch in self.branches:
            branch.add(key)
        self.keys.append(key)


class _Key:
    """A key: a constant, or a function that finds it."""

    __slots__ = ("is_optional", "run", "value")

    def __init__(self, value: Value, run: Run | None, *, is_optional: bool) -> None:
        self.value = value
        self.run = run
        self.is_optional = is_optional


_Plan = _Const | _Attribute | Run


class Planner:
    """Plans one expression. `size`: the entries that a frame needs."""

    def __init__(self, variables: Sequence[str], limit: int) -> None:
        outer = {name: _slot(i) for i, name in enumerate(variables, start=FIRST)}
        self._scopes: list[dict[str, Run]] = [outer]
        self.size = len(variables) + FIRST
        self._limit = limit
        self._shared: dict[int, Run] = {}

    def run(self, node: Node) -> Run:
        """Return the function that evaluates a node. Raises PlanError."""
        return self._finished(self._plan(node))

    def _plan(self, node: Node) -> _Plan:
        count(_NODE)
        if isinstance(node, Literal):
            return _Const(node.value)
        if isinstance(node, Ident):
            return self._ident(node)
        if isinstance(node, Select):
            return self._select(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, Comprehension):
            return self._fold(node)
        assert isinstance(node, Shared)
        known = self._shared.get(id(node))
        if known is None:
            known = self._shared[id(node)] = self.run(node.node)
        return known

    def _finished(self, plan: _Plan) -> Run:
        if isinstance(plan, _Const):
            value = plan.value
            return lambda _: value
        return _observed(plan) if isinstance(plan, _Attribute) else plan

    # --- attributes ---

    def _ident(self, node: Ident) -> _Plan:
        if node.type.kind == "type" and self._variable(node.name) is None:
            return _Const(node.type.params[0] if node.type.params else types.TYPE)
        found = self._variable(node.name)
        assert found is not None
        return _Attribute(found)

    def _variable(self, name: str) -> Run | None:
        if name.startswith("."):
            return self._scopes[0].get(name[1:])
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _attribute(self, node: Node) -> _Attribute:
        plan = self._plan(node)
        return plan if isinstance(plan, _Attribute) else _Attribute(self._finished(plan))

    def _select(self, node: Select) -> _Plan:
        if node.constant is not None:
            return _Const(node.constant)
        found = self._attribute(node.operand)
        found.add(_Key(node.field, None, is_optional=False))
        found.is_test = node.is_test
        return found

    def _index(self, node: Call, *, is_optional: bool) -> _Attribute:
        found = self._attribute(node.args[0])
        index = self._plan(node.args[1])
        if isinstance(index, _Const):
            try:
                _check_key(index.value)
            except EvalError as err:
                raise PlanError(str(err)) from err
            found.add(_Key(index.value, None, is_optional=is_optional))
        else:
            # A key's own attribute is not counted, only what is looked up in it.
            run = _resolved(index) if isinstance(index, _Attribute) else index
            found.add(_Key(None, run, is_optional=is_optional))
        return found

    # --- calls ---

    def _call(self, node: Call) -> _Plan:
        function = node.function
        if function in ("_&&_", "_||_"):
            return _logic([self.run(one) for one in node.args], absorbing=function == "_||_")
        if function == "_?_:_":
            return self._condition(node)
        if function in ("_[_]", "_[?_]", "_?._"):
            return self._index(node, is_optional=function != "_[_]")
        nodes = [*(() if node.target is None else (node.target,)), *node.args]
        plans = [self._plan(one) for one in nodes]
        runs = [self._finished(one) for one in plans]
        if function in ("or", "orValue") and node.target is not None and len(runs) == 2:
            return _alternative(runs[0], runs[1], unwraps=function == "orValue")
        if function == "@not_strictly_false":
            return _not_false(runs[0])
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if function in ("_==_", "_!=_"):
            return _comparison(runs[0], runs[1], function)
        if overload == "in_list" and isinstance(plans[1], _Const):
            found = _membership(runs[0], plans[1].value)
            if found is not None:
                return found
        self._check_pattern(function, plans)
        effect = _effect(function, overload, [one.type for one in nodes])
        if function in _FOLDED and len(plans) == 1 and isinstance(plans[0], _Const):
            try:
                return _Const(effect(plans[0].value))
            except EvalError as err:
                raise PlanError(str(err)) from err
        return _called(effect, runs, cost_of(function, overload), self._limit)

    def _condition(self, node: Call) -> _Attribute:
        condition = self.run(node.args[0])
        branches: list[_Attribute] = []
        for one in node.args[1:]:
            plan = self._plan(one)
            branches.append(plan if isinstance(plan, _Attribute) else _Attribute(self._finished(plan)))
        return _Attribute(condition=condition, branches=tuple(branches))

    def _check_pattern(self, function: str, plans: Sequence[_Plan]) -> None:
        place = regexes.PATTERN_PLACES.get(function)
        if place is None or place >= len(plans):
            return
        plan = plans[place]
        if isinstance(plan, _Const) and isinstance(plan.value, str):
            try:
                regexes.pattern(plan.value)
            except regexes.PatternError as err:
                raise PlanError(str(err)) from err

    # --- lists, maps, folds ---

    def _list(self, node: ListNode) -> _Plan:
        plans = [self._plan(one) for one in node.elements]
        runs = [self._finished(one) for one in plans]
        if node.optional:
            return _list_of_optional(runs, node.optional)
        if all(isinstance(one, _Const) for one in plans):
            return _Const([one.value for one in plans if isinstance(one, _Const)])
        if len(runs) == 1:
            only = runs[0]

            def single(f: Frame) -> Value:
                value = only(f)
                f[COST] += LIST_COST
                return [value]

            return single

        def made(f: Frame) -> Value:
            values = [run(f) for run in runs]
            f[COST] += LIST_COST
            return values

        return made

    def _map(self, node: MapNode) -> _Plan:
        plans: list[tuple[_Plan, _Plan]] = []
        for entry in node.entries:
            assert isinstance(entry.key, Node)
            plans.append((self._plan(entry.key), self._plan(entry.value)))
        entries = [
            (self._finished(key), self._finished(value), entry.is_optional)
            for (key, value), entry in zip(plans, node.entries, strict=True)
        ]
        made = _made_map(entries)
        is_constant = all(isinstance(one, _Const) for pair in plans for one in pair)
        if is_constant and not any(is_optional for _, _, is_optional in entries):
            return _Const(made([0]))
        return made

    def _fold(self, node: Comprehension) -> Run:
        over = self.run(node.range)
        initial = self.run(node.initial)
        accumulator = self.size
        self.size += 3
        first, second = accumulator + 1, accumulator + 2
        self._scopes.append({node.accumulator: _lazy_slot(accumulator, initial)})
        variables = {node.variable: _slot(first)}
        if node.variable2:
            variables[node.variable2] = _slot(second)
        self._scopes.append(variables)
        condition = self._plan(node.condition)
        step = self.run(node.step)
        self._scopes.pop()
        result = self.run(node.result)
        self._scopes.pop()
        if isinstance(condition, _Const) and condition.value is False:
            return _binding(accumulator, result, self._limit)
        runs_on = None if isinstance(condition, _Const) else self._finished(condition)
        entries = _entries if node.variable2 else _elements
        return _loop(entries(over), runs_on, step, result, accumulator, self._limit)


def first_stop(limit: int) -> int:
    """Return the cost at which an evaluation stops first."""
    return min(limit, PIECE)


def _stop(f: Frame, limit: int) -> None:
    """Let others have their turn. Raises CostError beyond the limit."""
    cost = f[COST]
    if cost > limit:
        raise CostError(COST_TEXT)
    done, f[COUNTED], f[STOP] = cost - f[COUNTED], cost, min(limit, cost + PIECE)
    count(done)


# --- variables -------------------------------------------------------------------------------------


def _slot(i: int) -> Run:
    return lambda f: f[i]


def _lazy_slot(i: int, initial: Run) -> Run:
    """Return a reader of an accumulator, whose first value is found when it is first needed."""

    def read(f: Frame) -> Value:
        value = f[i]
        if value is _UNSET:
            try:
                value = initial(f)
            except EvalError as err:
                value = err
            if type(value) is list and not value:
                value = GrowingList()
            elif type(value) is MapValue and not value:
                value = GrowingMap()
            f[i] = value
        if type(value) is EvalError:
            raise value
        return value

    return read


# --- attributes ------------------------------------------------------------------------------------


def _observed(one: _Attribute) -> Run:
    """Return the function that evaluates an attribute, and counts it."""
    resolved = _resolved(one)
    if one.is_test or one.branches:
        return resolved

    def run(f: Frame) -> Value:
        f[COST] += 1
        return resolved(f)

    return run


def _resolved(one: _Attribute) -> Run:
    if one.branches:
        return _chosen(one)
    base = one.base
    assert base is not None
    if not one.keys:
        return base
    if one.is_test:
        return _tested(base, tuple(one.keys))
    if any(key.is_optional for key in one.keys):
        return _looked_up(base, tuple(one.keys))
    if all(key.run is None for key in one.keys):
        return _constant_path(base, tuple(key.value for key in one.keys), _looked_up(base, tuple(one.keys)))
    return _looked_up(base, tuple(one.keys))


def _chosen(one: _Attribute) -> Run:
    condition = one.condition
    assert condition is not None
    then, otherwise = (_tested_branch(branch, one) for branch in one.branches)

    def run(f: Frame) -> Value:
        found = condition(f)
        if found is True:
            return then(f)
        if found is False:
            return otherwise(f)
        raise operators.no_overload()

    return run


def _tested_branch(branch: _Attribute, whole: _Attribute) -> Run:
    branch.is_test = branch.is_test or whole.is_test
    return _resolved(branch)


def _constant_path(base: Run, keys: tuple[Value, ...], general: Run) -> Run:
    """Return a lookup of keys that are all constant, in maps of maps: the path of most selectors."""
    count = len(keys)

    def run(f: Frame) -> Value:
        value = base(f)
        if type(value) is Optional:
            return general(f)
        for i, key in enumerate(keys):
            if type(value) is MapValue:
                entry, found = value.find(key)
                if not found:
                    f[COST] += i + 1
                    raise EvalError(f"no such key: {shown(key)}")
                value = entry
            else:
                f[COST] += i
                for rest in keys[i:]:
                    f[COST] += 1
                    value = _required(value, rest)
                return value
        f[COST] += count
        return value

    return run


def _looked_up(base: Run, keys: tuple[_Key, ...]) -> Run:
    def run(f: Frame) -> Value:
        value = base(f)
        is_optional = type(value) is Optional
        if is_optional:
            if not value.has_value:
                return value
            value = value.value
        for key in keys:
            wanted = key.value
            if key.run is not None:
                wanted = key.run(f)
                _check_key(wanted)
            is_optional = is_optional or key.is_optional
            if is_optional:
                value, found = _present(value, wanted)
                if not found:
                    return NOTHING
                f[COST] += 1
            else:
                f[COST] += 1
                value = _required(value, wanted)
        return Optional(value) if is_optional else value

    return run


def _tested(base: Run, keys: tuple[_Key, ...]) -> Run:
    """Return a test whether the last key is there."""
    before, last = _looked_up(base, keys[:-1]) if len(keys) > 1 else base, keys[-1].value
    is_optional = any(key.is_optional for key in keys)

    def run(f: Frame) -> Value:
        value = before(f)
        if is_optional and type(value) is Optional:
            if not value.has_value:
                return False
            value = value.value
            found = _present(value, last)[1]
            f[COST] += found
            return found
        f[COST] += 1
        return _present(value, last)[1]

    return run


def _check_key(key: Value) -> None:
    if type(key) not in (str, int, Uint, bool, float):
        raise EvalError(f"invalid qualifier type: {go_type(key)}")


def _required(value: Value, key: Value) -> Value:
    if isinstance(value, MapValue):
        entry, found = value.find(key)
        if found:
            return entry
    elif isinstance(value, list):
        index = _list_index(key)
        if 0 <= index < len(value):
            return value[index]
        raise EvalError(f"index out of bounds: {shown(key)}")
    raise EvalError(f"no such key: {shown(key)}")


def _present(value: Value, key: Value) -> tuple[Value, bool]:
    if isinstance(value, MapValue):
        return value.find(key)
    if isinstance(value, list):
        index = _list_index(key)
        if 0 <= index < len(value):
            return value[index], True
    return None, False


def _list_index(key: Value) -> int:
    if type(key) is int:
        return key
    if isinstance(key, Uint) or (isinstance(key, float) and key.is_integer() and abs(key) < 2**63):
        return int(key)
    if isinstance(key, float):
        raise EvalError(f"unsupported index value {shown(key)} in list")
    raise EvalError(f"unsupported index type '{type_name(key)}' in list")


# --- calls -----------------------------------------------------------------------------------------


def _logic(terms: Sequence[Run], *, absorbing: bool) -> Run:
    """Return `||` (absorbing True) or `&&` (absorbing False) of the terms."""

    def run(f: Frame) -> Value:
        error: EvalError | None = None
        for term in terms:
            try:
                value = term(f)
            except EvalError as err:
                error = error or err
                continue
            if value is absorbing:
                return absorbing
            if type(value) is not bool:
                error = error or operators.no_overload()
        if error is not None:
            raise error
        return not absorbing

    return run


def _not_false(value: Run) -> Run:
    def run(f: Frame) -> Value:
        f[COST] += 1
        try:
            return value(f) is not False
        except EvalError:
            return True

    return run


def _alternative(value: Run, other: Run, *, unwraps: bool) -> Run:
    def run(f: Frame) -> Value:
        found = value(f)
        if type(found) is not Optional:
            raise operators.no_overload()
        if not found.has_value:
            return other(f)
        return found.value if unwraps else found

    return run


def _comparison(left: Run, right: Run, function: str) -> Run:
    cost = cost_of(function, "")
    assert cost is not None
    is_equality = function == "_==_"

    def run(f: Frame) -> Value:
        try:
            one, other = left(f), right(f)
        except EvalError:
            f[COST] += 1
            raise
        f[COST] += cost((one, other), None)
        if is_equality:
            return are_equal(one, other)
        try:
            return not are_equal(one, other)
        except EvalError:
            return True

    return run


def _membership(value: Run, values: Value) -> _Plan | None:
    """Return a test for a constant list of simple values; None for another list."""
    if not values:
        return _Const(False)
    if any(type(one) not in (str, int, Uint, bool, float) for one in values):
        return None
    known = MapValue((one, None) for one in values)

    def run(f: Frame) -> Value:
        return value(f) in known

    return run


def _effect(function: str, overload: str, args: Sequence[Type]) -> Callable[..., Any]:
    """Return what a call does with its arguments."""
    found = _SINGLETONS.get(function)
    if found is not None:
        return found
    overloads = declared()[function]
    if overload:
        chosen = next(one for one in overloads if one.id == overload)
        effect = _effect_of(function, chosen)
        if all(types.are_same(one, wanted) for one, wanted in zip(args, chosen.params, strict=True)):
            return effect
        overloads = (chosen,)
    return _dispatch(function, [(one.params, _effect_of(function, one)) for one in overloads])


def _effect_of(function: str, overload: Overload) -> Callable[..., Any]:
    found = _OVERLOADS.get(overload.id)
    if found is None and function in operators.CONVERSIONS:
        return operators.converting(operators.CONVERSIONS[function])
    return found or _unreachable


def _unreachable(*_: Value) -> Value:
    """Stand for functions of values that no expression can have."""
    raise operators.no_overload()


def _dispatch(
    function: str, choices: Sequence[tuple[tuple[Type, ...], Callable[..., Any]]]
) -> Callable[..., Any]:
    def chosen(*args: Value) -> Value:
        for params, effect in choices:
            if len(params) == len(args) and all(map(has_type, params, args)):
                return effect(*args)
        raise EvalError(f"no such overload: {function}({', '.join(map(type_name, args))})")

    return chosen


def _called(effect: Callable[..., Any], runs: Sequence[Run], cost: Any, limit: int) -> Run:
    if cost is not None:

        def counted(f: Frame) -> Value:
            args = [run(f) for run in runs]
            result = effect(*args)
            f[COST] += cost(args, result)
            if f[COST] > f[STOP]:
                _stop(f, limit)
            return result

        return counted
    if len(runs) == 1:
        only = runs[0]

        def unary(f: Frame) -> Value:
            f[COST] += 1
            return effect(only(f))

        return unary
    if len(runs) == 2:
        left, right = runs

        def binary(f: Frame) -> Value:
            f[COST] += 1
            return effect(left(f), right(f))

        return binary

    def called(f: Frame) -> Value:
        f[COST] += 1
        return effect(*[run(f) for run in runs])

    return called


_FOLDED: Final = frozenset({*operators.CONVERSIONS, "dyn", "type"})


# --- lists, maps, folds ------------------------------------------------------------------------------


def _list_of_optional(runs: Sequence[Run], optional: frozenset[int]) -> Run:
    def made(f: Frame) -> Value:
        values: list[Value] = []
        for i, run in enumerate(runs):
            value = run(f)
            if i in optional:
                if type(value) is not Optional:
                    raise EvalError(
                        f"cannot initialize optional list element from non-optional value {shown(value)}"
                    )
                if not value.has_value:
                    continue
                value = value.value
            values.append(value)
        f[COST] += LIST_COST
        return values

    return made


def _made_map(entries: Sequence[tuple[Run, Run, bool]]) -> Run:
    def made(f: Frame) -> Value:
        found: list[tuple[Value, Value]] = []
        for key_of, value_of, is_optional in entries:
            key, value = key_of(f), value_of(f)
            if is_optional:
                if type(value) is not Optional:
                    raise EvalError(
                        f"cannot initialize optional entry '{shown(key)}' from non-optional value "
                        f"{shown(value)}"
                    )
                if not value.has_value:
                    continue
                value = value.value
            found.append((key, value))
        f[COST] += MAP_COST
        return MapValue(found)

    return made


def _binding(accumulator: int, result: Run, limit: int) -> Run:
    """Return a fold over nothing: a name for a value."""

    def run(f: Frame) -> Value:
        if f[COST] > f[STOP]:
            _stop(f, limit)
        f[accumulator] = _UNSET
        return _fixed(result(f))

    return run


def _elements(over: Run) -> Callable[[Frame], Any]:
    def found(f: Frame) -> Any:
        value = over(f)
        if isinstance(value, list):
            return zip(value, value, strict=True)
        if isinstance(value, MapValue):
            return ((key, None) for key, _ in value.items())
        raise EvalError(f"got '{go_type(value)}', expected iterable type")

    return found


def _entries(over: Run) -> Callable[[Frame], Any]:
    def found(f: Frame) -> Any:
        value = over(f)
        if isinstance(value, list):
            return enumerate(value)
        if isinstance(value, MapValue):
            return value.items()
        raise EvalError(f"unsupported comprehension range type: {go_type(value)}")

    return found


def _loop(
    entries: Callable[[Frame], Any],
    runs_on: Run | None,
    step: Run,
    result: Run,
    accumulator: int,
    limit: int,
) -> Run:
    first, second = accumulator + 1, accumulator + 2

    def run(f: Frame) -> Value:
        found = entries(f)
        f[accumulator] = _UNSET
        for f[first], f[second] in found:
            if runs_on is not None:
                try:
                    if runs_on(f) is False:
                        break
                except EvalError:
                    pass
            try:
                f[accumulator] = step(f)
            except EvalError as err:
                f[accumulator] = err
            if f[COST] > f[STOP]:
                _stop(f, limit)
        return _fixed(result(f))

    return run


def _fixed(value: Value) -> Value:
    """Return a value that grows no more."""
    if type(value) is GrowingList:
        return list(value)
    return MapValue(value.items()) if type(value) is GrowingMap else value
