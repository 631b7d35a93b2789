"""Examples import only modules for plugin authors; a contract in pyproject.toml checks plugins."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.places import ROOT

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# The example uses the contract's messages directly, which is its purpose.
WITHOUT_THE_SDK = ROOT / "examples" / "no_sdk"


def forbidden() -> set[str]:
    """Return the modules that plugins may not import."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [found] = [one for one in contracts if one["name"].startswith("Plugins know the author's half")]
    return set(found["forbidden_modules"]) - {"berth_sdk.testing"}


def imported(source: str) -> Iterator[str]:
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            yield statement.module
            yield from (f"{statement.module}.{name.name}" for name in statement.names)
        elif isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)


def breaches(source: str) -> set[str]:
    return {
        name for name in imported(source) for module in forbidden() if f"{name}.".startswith(f"{module}.")
    }


@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if WITHOUT_THE_SDK not in path.parents],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_example_imports_only_modules_for_authors(path: Path) -> None:
    assert not breaches(path.read_text())


@pytest.mark.parametrize(
    "line",
    ["from berth_sdk import wire", "import berth_sdk.serve.server", "from berth_sdk.runtime import answers"],
)
def test_import_of_a_host_module_is_found(line: str) -> None:
    assert breaches(line)
