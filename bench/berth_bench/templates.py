"""Read a file with one object, and make that object for each index, as scheduler_perf does with Go templates.

Files are read when the workload is read, so a missing or wrong template is reported before anything runs.
Actions are `{{.Index}}`, `{{.Count}}`, a name of `templateParams`, and the arithmetic that scheduler_perf
adds; all other parts of Go's template language (if, range, variables) are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_host.cluster.memory.manifests.documents import DocumentError, documents_of
from berth_host.cluster.memory.validation.schema import spelled

_ACTION: Final = re.compile(r"\{\{(?P<body>.*?)\}\}", re.DOTALL)
_TRIM_LEFT: Final = re.compile(r"\s*\{\{-\s")
_TRIM_RIGHT: Final = re.compile(r"\s-\}\}\s*")
_TOKEN: Final = re.compile(
    r'\s*(?:(?P<number>-?\d+(?:\.\d+)?)|(?P<text>"[^"]*")|(?P<word>\.?\w+)|(?P<bracket>[()]))'
)
Value = int | float | str | bool


class TemplateError(Exception):
    """A template cannot be used. `line`: from 1; 0: unknown."""

    def __init__(self, problem: str, line: int = 0) -> None:
        self.problem = problem
        self.line = line
        super().__init__(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One template file. `path`: its name in messages; `params`: further names for its actions.

    `typed_as`: the kind whose field names may be written in any case, because Go decodes the object into a
    type.
    """

    path: str
    text: str
    params: Mapping[str, Value] = field(default_factory=dict)
    typed_as: str = ""

    @property
    def is_static(self) -> bool:
        """True if every index gives the same object."""
        return "{{" not in self.text

    def object_at(self, index: int, count: int) -> dict[str, Any]:
        """Return the object for one index. Raises TemplateError."""
        text = self.text
        if not self.is_static:
            text = _rendered(text, {**self.params, "Index": index, "Count": count})
        try:
            documents = [document for document, _ in documents_of(text) if document is not None]
        except DocumentError as err:
            raise TemplateError(err.problem, err.line) from err
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise TemplateError("must contain one Kubernetes object")
        if not documents[0].get("kind") or not documents[0].get("apiVersion"):
            raise TemplateError("must have apiVersion and kind")
        return spelled(self.typed_as, documents[0]) if self.typed_as else documents[0]

    def objects(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield `count` objects. A static template yields the same object each time, which the caller must
        not change.
        """
        if self.is_static:
            made = self.object_at(0, count)
            yield from (made for _ in range(count))
        else:
            yield from (self.object_at(index, count) for index in range(count))


def _rendered(text: str, values: Mapping[str, Value]) -> str:
    # `{{-` and `-}}` also remove the white space outside.
    text = _TRIM_RIGHT.sub("}}", _TRIM_LEFT.sub("{{", text))

    def replaced(action: re.Match[str]) -> str:
        line = text.count("\n", 0, action.start()) + 1
        return _shown(_Expression(action["body"], values, line).value())

    return _ACTION.sub(replaced, text)


class _Expression:
    """One action: a value, or a function with its arguments."""

    def __init__(self, body: str, values: Mapping[str, Value], line: int) -> None:
        self._values = values
        self._line = line
        self._body = body.strip()
        self._tokens: list[str] = []
        position = 0
        while position < len(self._body):
            found = _TOKEN.match(self._body, position)
            if found is None:
                raise self._refused("is not understood")
            self._tokens.append(found[0].strip())
            position = found.end()

    def value(self) -> Value:
        """Compute the value of the action."""
        result = self._call()
        if self._tokens:
            raise self._refused("is not understood")
        return result

    def _call(self) -> Value:
        if not self._tokens:
            raise self._refused("is empty")
        if not (self._tokens[0][0].isalpha() and self._tokens[0] not in ("true", "false")):
            return self._operand()
        name = self._tokens.pop(0)
        function = _FUNCTIONS.get(name)
        if function is None:
            raise self._refused(f"{name} is not supported: there are {', '.join(sorted(_FUNCTIONS))}")
        arguments: list[float] = []
        while self._tokens and self._tokens[0] != ")":
            arguments.append(self._number(self._operand()))
        try:
            return function(*arguments)
        except (TypeError, ZeroDivisionError) as err:
            raise self._refused(f"cannot be computed: {err}") from err

    def _operand(self) -> Value:
        token = self._tokens.pop(0)
        if token == "(":
            result = self._call()
            if not self._tokens or self._tokens.pop(0) != ")":
                raise self._refused("lacks a closing bracket")
            return result
        if token.startswith("."):
            if token[1:] not in self._values:
                known = ", ".join(f".{name}" for name in sorted(self._values))
                raise self._refused(f"{token} has no value: there are {known}")
            return self._values[token[1:]]
        if token.startswith('"'):
            return token[1:-1]
        if token in ("true", "false"):
            return token == "true"
        try:
            return float(token) if "." in token else int(token)
        except ValueError:
            raise self._refused("is not understood") from None

    def _number(self, value: Value) -> float:
        try:
            return float(value)
        except ValueError:
            raise self._refused(f"{value!r} is not a number") from None

    def _refused(self, problem: str) -> TemplateError:
        return TemplateError(f"{{{{{self._body}}}}}: {problem}", self._line)


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def _product(*numbers: float) -> float:
    result = 1.0
    for number in numbers:
        result *= number
    return result


_FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "AddFloat": lambda *numbers: float(sum(numbers)),
    "AddInt": lambda *numbers: int(sum(numbers)),
    "SubtractFloat": lambda first, second: float(first - second),
    "SubtractInt": lambda first, second: int(first - second),
    "MultiplyFloat": _product,
    "MultiplyInt": lambda *numbers: int(_product(*numbers)),
    "DivideFloat": lambda first, second: float(first / second),
    "DivideInt": lambda first, second: int(first / second),
    "Mod": lambda first, second: int(first) % int(second),
}
