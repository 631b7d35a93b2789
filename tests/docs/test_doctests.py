"""The examples in docstrings run: the SDK's public modules, the host's and the default plugins'."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import berth_host
import berth_kube
import berth_plugins
import berth_sdk
import pytest

_NEVER_IMPORTED = ("__main__",)


def _modules(package: ModuleType) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    names = [package.__name__, *(module.name for module in found)]
    return [name for name in names if not name.endswith(_NEVER_IMPORTED) and "_pb2" not in name]


SDK_MODULES = [name for name in _modules(berth_sdk) if "._" not in name]
OTHER_MODULES = [*_modules(berth_host), *_modules(berth_kube), *_modules(berth_plugins)]


def _run(name: str) -> doctest.TestResults:
    module = importlib.import_module(name)
    return doctest.testmod(module, report=True)


@pytest.mark.parametrize("name", SDK_MODULES)
def test_examples_of_the_sdk_run(name: str) -> None:
    assert _run(name).failed == 0


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", OTHER_MODULES)
def test_examples_of_the_host_and_its_plugins_run(name: str) -> None:
    assert _run(name).failed == 0


def test_authors_find_examples_in_the_sdk() -> None:
    with_examples = {name for name in SDK_MODULES if _run(name).attempted}
    assert with_examples >= {
        "berth_sdk.cycle_state",
        "berth_sdk.runtime.descriptor",
        "berth_sdk.quantity",
        "berth_sdk.sort_keys",
        "berth_sdk.status",
        "berth_sdk.testing.builders",
    }
