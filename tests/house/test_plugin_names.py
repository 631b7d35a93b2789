"""The host knows default plugins by what they declare: outside of the configuration few files name one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import berth_host
import berth_kube
import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS
from berth_sdk.gang_policy import COSCHEDULING_PLUGIN

_NAMES: Final = frozenset({COSCHEDULING_PLUGIN, *(plugin.name for plugin in DEFAULT_PLUGINS)})
_ANY: Final = re.compile(rf"(?<![\w/])({'|'.join(sorted(_NAMES))})(?!\w)")
_CONSTANTS: Final = {"FIT": "NodeResourcesFit", "GANG_SCHEDULING": "GangScheduling"}
_CONSTANTS_OF_SDK: Final = {"COSCHEDULING_PLUGIN": COSCHEDULING_PLUGIN}
_CONFIGURATION: Final = ("config", "older_config")
"""Names that KubeSchedulerConfiguration has: plugins, types of arguments, gates, versions."""
_ALLOWED: Final[dict[str, tuple[str, str]]] = {
    "berth_host/framework/framework.py": (
        "DefaultPreemption",
        "the rule of 1.38 about ranked nodes asks for this plugin at two points",
    ),
    "berth_host/groups/group_repair.py": (
        "GangScheduling",
        "the repair follows from this plugin's arguments, and pods are told whose wish it was",
    ),
    "berth_host/cli/check_config.py": ("NodeResourcesFit", "says what the configuration means"),
    "berth_host/explain/make_group_answer.py": ("Coscheduling", "a cure: which plugin to enable"),
    "berth_host/questions/group_trials.py": ("Coscheduling", "a cure: which plugin to enable"),
    "berth_kube/informer.py": ("Coscheduling", "a cure: which plugin to leave out"),
}
"""By file: the plugin that it names, and why."""


def named_in(text: str) -> Iterator[str]:
    """Yield the default plugins that a module names in its code; docstrings may name any."""
    module = ast.parse(text)
    documentation = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = _CONSTANTS | _CONSTANTS_OF_SDK
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from _ANY.findall(node.value)
        elif isinstance(node, ast.ImportFrom):
            yield from (constants[one.name] for one in node.names if one.name in constants)


def files() -> Iterator[tuple[str, Path]]:
    for package in (berth_host, berth_kube):
        folder = Path(package.__path__[0])
        for path in folder.rglob("*.py"):
            inside = path.relative_to(folder)
            if inside.parts[0] not in _CONFIGURATION:
                yield f"{folder.name}/{inside}", path


def test_default_plugins_are_named_in_the_configuration_and_in_listed_places() -> None:
    found = {}
    for name, path in files():
        text = path.read_text()
        if _ANY.search(text) or any(one in text for one in _CONSTANTS | _CONSTANTS_OF_SDK):
            named = set(named_in(text))
            if named:
                found[name] = named
    assert found == {name: {plugin} for name, (plugin, _) in _ALLOWED.items()}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('if client.name == "NodeResourcesFit":\n    pass\n', ["NodeResourcesFit"]),
        ('text = f"enable {x} or VolumeBinding."\n', ["VolumeBinding"]),
        ("from berth_sdk.gang_policy import GANG_SCHEDULING\n", ["GangScheduling"]),
        ('"""VolumeBinding does this."""\nx = "VolumeBindings"\n', []),
    ],
)
def test_names_are_found_in_strings_and_constants_and_not_in_docstrings(text: str, names: list[str]) -> None:
    assert list(named_in(text)) == names
