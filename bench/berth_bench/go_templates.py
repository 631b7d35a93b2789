"""Go's template language, as far as scheduler_perf's templates use it: text with actions -> text.

There are values and pipelines, variables, `if`, `with`, `range` over a count, comparisons, and the arithmetic
that scheduler_perf adds. `define`, `template`, `block` and methods are refused. Called by `templates`.
Source: the documentation of Go's package `text/template`, and `getTemplateFuncs` in
`test/integration/scheduler_perf/operations.go`, v1.37.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

_ACTION: Final = re.compile(r"\{\{(?P<left>-\s)?(?P<body>.*?)(?P<right>\s-)?\}\}", re.DOTALL)
_TOKEN: Final = re.compile(
    r'\s*(?P<token>-?\d+(?:\.\d+)?|"[^"]*"|:=|\$\w*(?:\.\w+)*|\.\w+(?:\.\w+)*|\.|\w+|[()|])'
)
_DOT: Final = ""
"""The name under which a scope keeps Go's `.`."""
_ROOT: Final = "$"


class GoTemplateError(Exception):
    """A template cannot be used. `line`: from 1."""

    def __init__(self, problem: str, line: int) -> None:
        self.problem = problem
        self.line = line
        super().__init__(problem)


def rendered(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with its actions replaced. `values`: what `.NAME` stands for. Raises
    GoTemplateError.
    """
    return "".join(_run(_parsed(text), {_DOT: values, _ROOT: values}))


# --- parts of a template ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Action:
    """One action. `tokens`: its words; a reader takes them from the front."""

    body: str
    line: int
    tokens: list[str] = field(default_factory=list)

    def refused(self, problem: str) -> GoTemplateError:
        return GoTemplateError(f"{{{{{self.body}}}}}: {problem}", self.line)


_Scope = dict[str, Any]
_Compute = Callable[[_Scope], Any]


@dataclass(frozen=True, slots=True)
class _Print:
    """An action that puts a value into the text, or into a variable. `name`: of the variable, or ""."""

    action: _Action
    value: _Compute
    name: str = ""


@dataclass(frozen=True, slots=True)
class _If:
    """Two parts, of which one is run. `is_with`: the value is `.` in the first one."""

    value: _Compute
    then: Sequence[_Part]
    otherwise: Sequence[_Part]
    is_with: bool = False


@dataclass(frozen=True, slots=True)
class _Range:
    """A repeated part. `name`: the variable with the number of the turn, or ""."""

    action: _Action
    value: _Compute
    name: str
    body: Sequence[_Part]
    otherwise: Sequence[_Part]


_Part = str | _Print | _If | _Range


def _run(parts: Sequence[_Part], scope: _Scope) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case _Print(action, value, name):
                if name:
                    scope[name] = value(scope)
                else:
                    yield _shown(action, _present(action, value(scope), scope))
            case _If(value, then, otherwise, is_with):
                found = value(scope)
                inner = {**scope, _DOT: found} if found and is_with else {**scope}
                yield from _run(then if found else otherwise, inner)
            case _Range(action, value, name, body, otherwise):
                count = _number(action, value(scope), scope)
                for turn in range(int(count)):
                    inner = {**scope, _DOT: turn}
                    yield from _run(body, {**inner, name: turn} if name else inner)
                if count <= 0:
                    yield from _run(otherwise, {**scope})


def _shown(action: _Action, value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case dict() | list():
            raise action.refused("is a list or a map: write it with JSON")
    return str(value)


# --- reading ---------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[_Part, ...]:
    """Return the parts of a template. A template is read once for all its objects."""
    pieces = _Pieces(list(_split(text)))
    parts, ended = pieces.block()
    if ended is not None:
        raise ended.refused("ends or continues nothing")
    return tuple(parts)


def _split(text: str) -> Iterator[str | _Action]:
    """Yield texts and actions. `{{-` and `-}}` remove the white space outside."""
    start, trims = 0, False
    for found in _ACTION.finditer(text):
        before = text[start : found.start()]
        before = before.lstrip() if trims else before
        yield before.rstrip() if found["left"] else before
        start, trims = found.end(), bool(found["right"])
        if not found["body"].startswith("/*"):
            yield _action(found["body"].strip(), text.count("\n", 0, found.start()) + 1)
    yield text[start:].lstrip() if trims else text[start:]


def _action(body: str, line: int) -> _Action:
    action = _Action(body, line)
    position = 0
    while position < len(body):
        found = _TOKEN.match(body, position)
        if found is None:
            raise action.refused("is not understood")
        action.tokens.append(found["token"])
        position = found.end()
    if not action.tokens:
        raise action.refused("is empty")
    return action


class _Pieces:
    """The texts and actions of a template that are not read yet."""

    def __init__(self, pieces: list[str | _Action]) -> None:
        self._pieces = pieces[::-1]

    def block(self) -> tuple[list[_Part], _Action | None]:
        """Return the parts up to an `end` or `else`, and that action; None at the end of the text."""
        parts: list[_Part] = []
        while self._pieces:
            piece = self._pieces.pop()
            if isinstance(piece, str):
                parts.append(piece)
                continue
            word = piece.tokens[0]
            if word in ("end", "else"):
                return parts, piece
            if word in ("if", "with"):
                parts.append(self._if(piece))
            elif word == "range":
                parts.append(self._range(piece))
            else:
                name = _assigned(piece)
                parts.append(_Print(piece, _pipeline(piece), name))
        return parts, None

    def _if(self, action: _Action) -> _If:
        is_with = action.tokens.pop(0) == "with"
        value = _pipeline(action)
        then, otherwise = self._branches(action)
        return _If(value, then, otherwise, is_with)

    def _range(self, action: _Action) -> _Range:
        del action.tokens[0]
        name = _assigned(action)
        value = _pipeline(action)
        body, otherwise = self._branches(action)
        return _Range(action, value, name, body, otherwise)

    def _branches(self, action: _Action) -> tuple[list[_Part], list[_Part]]:
        first, ended = self.block()
        second: list[_Part] = []
        if ended is not None and ended.tokens[0] == "else":
            if ended.tokens[1:2] in (["if"], ["with"]):
                del ended.tokens[0]
                return first, [self._if(ended)]  # one {{end}} ends both
            second, ended = self.block()
        if ended is None or ended.tokens != ["end"]:
            raise action.refused("lacks its {{end}}")
        return first, second


def _assigned(action: _Action) -> str:
    """Return the variable that an action assigns to, and remove it from the tokens; "" for none."""
    if action.tokens[1:2] != [":="] or not action.tokens[0].startswith("$"):
        return ""
    name = action.tokens[0]
    del action.tokens[:2]
    return name


def _pipeline(action: _Action, *, nested: bool = False) -> _Compute:
    """Return the computation of `a | F | G x`: each value is the last argument of the next function."""
    compute = _command(action, None)
    while action.tokens[:1] == ["|"]:
        del action.tokens[0]
        compute = _command(action, compute)
    if action.tokens and not (nested and action.tokens[0] == ")"):
        raise action.refused("is not understood")
    return compute


def _command(action: _Action, piped: _Compute | None) -> _Compute:
    if not action.tokens:
        raise action.refused("is not understood")
    name = action.tokens[0]
    if name in _CONSTANTS or not name[0].isalpha():
        if piped is not None:
            raise action.refused(f"{name} is no function")
        return _operand(action)
    del action.tokens[0]
    function = _FUNCTIONS.get(name)
    if function is None:
        raise action.refused(f"{name} is not supported: there are {', '.join(sorted(_FUNCTIONS))}")
    arguments: list[_Compute] = []
    while action.tokens and action.tokens[0] not in (")", "|"):
        arguments.append(_operand(action))
    if piped is not None:
        arguments.append(piped)
    numbers = name in _ARITHMETIC

    def compute(scope: _Scope) -> Any:
        values = [argument(scope) for argument in arguments]
        if numbers:
            values = [_number(action, value, scope) for value in values]
        try:
            return function(*values)
        except (TypeError, ZeroDivisionError) as err:
            raise action.refused(f"cannot be computed: {err}") from err

    return compute


def _operand(action: _Action) -> _Compute:
    token = action.tokens.pop(0)
    if token == "(":
        result = _pipeline(action, nested=True)
        if not action.tokens or action.tokens.pop(0) != ")":
            raise action.refused("lacks a closing bracket")
        return result
    if token[0] in ".$":
        return lambda scope: _looked_up(action, token, scope)
    if token in _CONSTANTS:
        constant = _CONSTANTS[token]
    elif token.startswith('"'):
        constant = token[1:-1]
    else:
        try:
            constant = float(token) if "." in token else int(token)
        except ValueError:
            raise action.refused("is not understood") from None
    return lambda scope: constant


def _looked_up(action: _Action, token: str, scope: _Scope) -> Any:
    """Return the value of `.`, `.NAME`, `$`, `$.NAME` or `$variable`; None for a name without a value."""
    variable, _, path = token.partition(".")
    if variable not in scope:
        raise action.refused(f"there is no variable {variable}")
    value = scope[variable]
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping):
            raise action.refused(f"{token} has no value: {value!r} has no fields")
        value = value.get(name)
    return value


def _number(action: _Action, value: Any, scope: _Scope) -> float:
    try:
        return float(_present(action, value, scope))
    except (TypeError, ValueError):
        raise action.refused(f"{value!r} is not a number") from None


def _present(action: _Action, value: Any, scope: _Scope) -> Any:
    """Return a value that is not None. Raises GoTemplateError with the names that have values."""
    if value is None:
        known = ", ".join(f".{name}" for name in sorted(scope[_ROOT]))
        raise action.refused(f"has no value: there are {known}")
    return value


# --- functions -------------------------------------------------------------------------------------


def _product(*numbers: float) -> float:
    result = 1.0
    for number in numbers:
        result *= number
    return result


def _or(*values: Any) -> Any:
    """Return the first value that is not empty, or else the last one."""
    return next(filter(None, values), values[-1]) if values else None


def _and(*values: Any) -> Any:
    """Return the first empty value, or else the last one."""
    return next((value for value in values if not value), values[-1]) if values else None


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_CONSTANTS: Final[Mapping[str, Any]] = {"true": True, "false": False, "nil": None}
_ARITHMETIC: Final[Mapping[str, Callable[..., Any]]] = {
    "AddFloat": lambda *numbers: float(sum(numbers)),
    "AddInt": lambda *numbers: int(sum(numbers)),
    "SubtractFloat": lambda first, second: float(first - second),
    "SubtractInt": lambda first, second: int(first - second),
    "MultiplyFloat": _product,
    "MultiplyInt": lambda *numbers: int(_product(*numbers)),
    "DivideFloat": lambda first, second: float(first / second),
    "DivideInt": lambda first, second: int(first / second),
    "Int": int,
    "Mod": lambda first, second: int(first) % int(second),
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **_ARITHMETIC,
    "JSON": _json,
    "and": _and,
    "eq": lambda first, *others: first in others,
    "ge": lambda first, second: first >= second,
    "gt": lambda first, second: first > second,
    "le": lambda first, second: first <= second,
    "lt": lambda first, second: first < second,
    "ne": lambda first, second: first != second,
    "not": lambda value: not value,
    "or": _or,
}
