"""No code of berth reads YAML with PyYAML's loader, which resolves words differently from Kubernetes."""

from __future__ import annotations

import ast
from typing import Final

from support.places import ROOT

LOADERS: Final = frozenset({"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load"})


def calls_of_loaders(source: str) -> list[int]:
    if "yaml" not in source:
        return []  # to parse every file takes seconds
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in LOADERS
        and isinstance(node.value, ast.Name)
        and node.value.id == "yaml"
    ]


def test_yaml_is_read_by_the_one_reader() -> None:
    files = [
        path
        for folder in (
            "host/berth_host",
            "sdk/berth_sdk",
            "plugins/berth_plugins",
            "plugins/scheduler_plugins",
            "examples",
        )
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert len(files) > 300
    assert [path for path in files if calls_of_loaders(path.read_text())] == []
    assert calls_of_loaders("import yaml\nyaml.safe_load('a')") == [2]
