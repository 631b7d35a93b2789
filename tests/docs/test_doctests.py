"""The examples in docstrings run: the SDK's public modules, the host's and the default plugins'."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import berth_host
import berth_kube
import berth_plugins
import berth_scheduler_plugins
import berth_sdk
import berth_sim
import pytest

_NEVER_IMPORTED = ("__main__",)


def _modules(package: ModuleType) -> list[str]:
    """Return the names of the modules that have the prompt of an example: the others are not imported."""
    (top,) = package.__path__
    root = Path(top)
    names = [
        ".".join((package.__name__, *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(root.rglob("*.py"))
        if ">>>" in path.read_text(encoding="utf-8")
    ]
    return [name for name in names if not name.endswith(_NEVER_IMPORTED) and "_pb2" not in name]


SDK_MODULES = [name for name in _modules(berth_sdk) if "._" not in name]
OTHER_MODULES = [
    *_modules(berth_host),
    *_modules(berth_kube),
    *_modules(berth_sim),
    *_modules(berth_plugins),
    *_modules(berth_scheduler_plugins),
]


def _run(name: str) -> doctest.TestResults:
    module = importlib.import_module(name)
    return doctest.testmod(module, report=True)


@pytest.mark.parametrize("name", SDK_MODULES)
def test_examples_of_the_sdk_run(name: str) -> None:
    assert _run(name).failed == 0


@pytest.mark.parametrize("name", OTHER_MODULES)
def test_examples_of_the_host_and_its_plugins_run(name: str) -> None:
    assert _run(name).failed == 0


def test_authors_find_examples_in_the_sdk() -> None:
    wanted = (
        "berth_sdk.cycle_state",
        "berth_sdk.runtime.descriptor",
        "berth_sdk.quantity",
        "berth_sdk.sort_keys",
        "berth_sdk.status",
        "berth_sdk.testing.builders",
    )
    assert [name for name in wanted if not _run(name).attempted] == []
