"""The names that an author imports from `berth_sdk`: complete, listed, and fast to import."""

from __future__ import annotations

import inspect
import subprocess
import sys

import berth_sdk
import pytest
from berth_sdk import author, extension_points, results


def test_all_lists_every_public_name() -> None:
    public = {
        name
        for name, value in vars(author).items()
        if not name.startswith("_") and (not inspect.ismodule(value) or name == "sort_keys")
    }
    assert sorted(public - {"annotations"}) == sorted(berth_sdk.__all__)


def test_package_has_the_names_that_it_lists_and_no_others() -> None:
    assert all(getattr(berth_sdk, name) is getattr(author, name) for name in berth_sdk.__all__)
    assert set(berth_sdk.__all__) <= set(dir(berth_sdk))
    with pytest.raises(AttributeError, match="module 'berth_sdk' has no attribute 'Nope'"):
        berth_sdk.Nope  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "module",
    [pytest.param(results, id="results"), pytest.param(extension_points, id="extension points")],
)
def test_every_result_class_is_exported(module: object) -> None:
    own = {
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__  # type: ignore[attr-defined]  # a module
        # The points' protocols are documentation; no class derives from them.
        if not name.startswith("_")
        if not name.endswith(("Plugin", "PreFilterExtensions")) or name == "Plugin"
    }
    assert own <= set(berth_sdk.__all__)


def test_importing_what_authors_use_loads_neither_grpc_nor_protobuf() -> None:
    code = (
        "import sys; from berth_sdk import *;"
        "print([name for name in ('grpc', 'google.protobuf', 'asyncio') if name in sys.modules])"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == "[]"
