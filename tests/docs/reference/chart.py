"""Generate deploy/helm/berth/README.md from the chart's values: key, default, and the comment above it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import yaml

from docs.pages import REPOSITORY
from docs.reference.markdown import code, table

VALUES: Final = REPOSITORY / "deploy/helm/berth/values.yaml"
_AS_ONE: Final = frozenset({"config", "resources", "pluginResources", "nodeSelector", "tlsConfig"})
"""Values whose keys belong to another document."""


def values() -> str:
    """Return a table of every value that may be set."""
    text = VALUES.read_text(encoding="utf-8")
    root = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    rows = _rows(root, text.splitlines())
    return table(("Value", "Default", "What it is"), rows)


def _rows(node: yaml.MappingNode, lines: Sequence[str], within: str = "") -> Iterator[tuple[str, str, str]]:
    for key, inner in node.value:
        path = f"{within}{key.value}"
        if isinstance(inner, yaml.MappingNode) and inner.value and key.value not in _AS_ONE:
            yield from _rows(inner, lines, f"{path}.")
        else:
            yield code(path), code(_default(inner)), _comment(lines, key.start_mark.line)


def _default(node: yaml.Node) -> str:
    loader = yaml.SafeLoader("")
    return json.dumps(loader.construct_object(node, deep=True))


def _comment(lines: Sequence[str], at: int) -> str:
    """Return the first paragraph of the comment that ends right above the line."""
    begin = at
    while begin and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    words = []
    for line in lines[begin:at]:
        text = line.strip().removeprefix("#").strip()
        if not text:
            break
        words.append(text)
    return " ".join(words)
