"""Values -> Markdown. Used by every module that makes a part of a reference page."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a `|` in a cell is escaped, a line break becomes a space."""
    lines = [_row(header), _row(["---"] * len(header)), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: object) -> str:
    """`text`, or nothing for an empty one."""
    return f"`{text}`" if str(text) else ""


def codes(texts: Iterable[object]) -> str:
    """`a`, `b`."""
    return ", ".join(code(text) for text in texts)


def one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def attribute_docs(cls: type) -> Mapping[str, str]:
    """The strings under the attributes of a class body, by attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    docs: dict[str, str] = {}
    names: list[str] = []
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names = [statement.target.id]
        elif isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif (
            names
            and isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ):
            docs |= dict.fromkeys(names, one_line(statement.value.value))
            names = []
        else:
            names = []
    return docs


def classes_of(module: ModuleType) -> list[type]:
    """The classes that a module defines itself, in the order of its text."""
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    return sorted(own, key=lambda cls: inspect.getsourcelines(cls)[1])


def docstring(value: object) -> str:
    """The docstring as paragraphs of one line each; indented lines stay as they are."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(one_line(paragraph) for paragraph in paragraphs if ">>>" not in paragraph)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"
