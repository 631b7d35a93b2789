"""Each example plugin can be installed by itself: its entry point names a class that is there."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest
from berth_sdk.extension_points import name_of, points_of
from support.examples import EXAMPLES, example

PROJECTS = sorted(EXAMPLES.glob("*/pyproject.toml"))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_entry_points_name_plugin_classes(project: Path) -> None:
    parsed = tomllib.loads(project.read_text())
    plugins = parsed["project"]["entry-points"]["berth.plugins"]
    assert plugins
    for name, where in plugins.items():
        module, _, attribute = where.partition(":")
        wheel = parsed["tool"]["hatch"]["build"]["targets"]["wheel"]
        if "packages" in wheel:
            assert module in wheel["packages"]
            cls = getattr(importlib.import_module(module), attribute)
        else:
            assert f"{module}.py" in wheel["include"]
            cls = getattr(example(f"{project.parent.name}/{module}.py"), attribute)
        assert name_of(cls) == name
        assert points_of(cls)


def test_there_are_examples_to_install() -> None:
    assert {project.parent.name for project in PROJECTS} >= {"blinking_lights", "gpu_share", "zonal_volumes"}


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_examples_depend_only_on_the_sdk(project: Path) -> None:
    (dependency,) = tomllib.loads(project.read_text())["project"]["dependencies"]
    assert dependency.startswith("berth-sdk")
