"""Convert values to Markdown. Used by every module that makes a part of a reference page."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a `|` in a cell is escaped, a line break becomes a space."""
    lines = [_row(header), _row(["---"] * len(header)), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: object) -> str:
    """Return the text as `code`; nothing for an empty text."""
    return f"`{text}`" if str(text) else ""


def codes(texts: Iterable[object]) -> str:
    """Return the texts as `a`, `b`."""
    return ", ".join(code(text) for text in texts)


def one_line(text: str) -> str:
    """Return the text without line breaks."""
    return " ".join(text.split())


def attribute_docs(cls: type) -> Mapping[str, str]:
    """Return the strings under the attributes of a class body, by attribute."""
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
    """Return the classes that a module itself defines, in the order of its text."""
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    return sorted(own, key=lambda cls: inspect.getsourcelines(cls)[1])


def docstring(value: object) -> str:
    """Return the docstring as paragraphs of one line each; indented lines stay unchanged."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(one_line(paragraph) for paragraph in paragraphs if ">>>" not in paragraph)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"
