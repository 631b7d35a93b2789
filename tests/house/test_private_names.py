"""A private attribute is read in the package that has it, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from support.places import ROOT

DISTRIBUTIONS = (
    "host/berth_host",
    "host/berth_kube",
    "host/berth_sim",
    "sdk/berth_sdk",
    "plugins/berth_plugins",
    "plugins/scheduler_plugins/berth_scheduler_plugins",
    "bench/berth_bench",
)
OTHERS = {"_replace", "_asdict", "_make", "_fields", "_exit", "_current_frames", "_value_"}
"""Public names of the standard library, for all their underscores."""
OF_LIBRARIES = {
    # The name that asyncio documents for who extends it ("Extending": a task's life).
    "bench/berth_bench/life/virtual_loop.py": {"_unregister_task"},
    "bench/berth_bench/hostile/loop_holds.py": {"_run"},  # asyncio's handles, which have no public way
    "host/berth_host/endpoints/heap.py": {"_NamedFuncPointer"},  # a type of ctypes, for a signature
    "sdk/berth_sdk/cli/completion.py": {
        "_actions",
        "_option_string_actions",
        "_SubParsersAction",
    },  # argparse
}


OF_ANOTHER = re.compile(r"(?<!\bself)(?<!\bcls)\s*\.\s*(_\w+)")
"""Finds at least each private attribute of another object in the text of a module."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OTHERS


def package_of(path: Path, base: Path) -> str:
    """Return the room of a file: the first folder below its package, or the package itself."""
    parts = path.relative_to(base).parts
    return f"{base.name}.{parts[0]}" if len(parts) > 1 else base.name


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that the module's classes and functions define."""
    for item in ast.walk(tree):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield item.name
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            if isinstance(item.value, ast.Name) and item.value.id in ("self", "cls", "made"):
                yield item.attr
        elif isinstance(item, ast.AnnAssign | ast.Assign):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value  # __slots__, and `object.__setattr__(self, "_x", ...)`


def read(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of the private attributes of other objects that the module reads or sets."""
    for item in ast.walk(tree):
        if (
            isinstance(item, ast.Attribute)
            and is_private(item.attr)
            and not (isinstance(item.value, ast.Name) and item.value.id in ("self", "cls"))
            and not (isinstance(item.value, ast.Call) and ast.unparse(item.value.func) == "super")
        ):
            yield item.lineno, item.attr


def faults(root: Path, distributions: Iterable[str] = DISTRIBUTIONS) -> Iterator[str]:
    """Yield a line for each. Only files whose text has such a name are parsed: to parse all takes seconds."""
    for distribution in distributions:
        base = root / distribution
        texts = {
            path: path.read_text(encoding="utf-8")
            for path in sorted(base.rglob("*.py"))
            if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
        }
        trees: dict[Path, ast.Module] = {}
        for path, text in texts.items():
            name = path.relative_to(root).as_posix()
            if not any(map(is_private, OF_ANOTHER.findall(text))):
                continue
            found = list(read(tree_of(path, text, trees)))
            known = OF_LIBRARIES.get(name, set()) | defined_in(
                {attribute for _, attribute in found},
                {
                    other: content
                    for other, content in texts.items()
                    if package_of(other, base) == package_of(path, base)
                },
                trees,
            )
            yield from (
                f"{name}:{line}: {attribute} belongs to another package: give it a public name"
                for line, attribute in found
                if attribute not in known
            )


def defined_in(names: Iterable[str], texts: Mapping[Path, str], trees: dict[Path, ast.Module]) -> set[str]:
    """Return those of the names that one of these modules defines."""
    left, known = set(names), set[str]()
    for path, text in texts.items():
        if any(name in text for name in left):
            here = left & set(defined(tree_of(path, text, trees)))
            known |= here
            left -= here
    return known


def tree_of(path: Path, text: str, trees: dict[Path, ast.Module]) -> ast.Module:
    if path not in trees:
        trees[path] = ast.parse(text)
    return trees[path]


@pytest.mark.slow
def test_no_private_attribute_is_read_in_another_package() -> None:
    assert list(faults(ROOT)) == []


def test_an_attribute_of_another_package_is_found(tmp_path: Path) -> None:
    for name, text in (
        ("a", "class A:\n    def __init__(self):\n        self._x = 1\n"),
        ("b", "def f(a):\n    return a._x\n"),
    ):
        folder = tmp_path / "host" / name
        folder.mkdir(parents=True)
        (folder / "module.py").write_text(text)
    found = list(faults(tmp_path, ["host"]))
    assert found == ["host/b/module.py:2: _x belongs to another package: give it a public name"]
