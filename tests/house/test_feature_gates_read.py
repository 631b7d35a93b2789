"""Every feature gate that is accepted is read by something, or its value is said to have no effect."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import berth_host
import berth_plugins
import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS
from berth_host.config.emulation import EMULATIONS
from berth_host.config.gate_tables import SCHEDULING_GATES
from berth_host.config.unread_gates import NOT_READ_BY_SCHEDULERS, UNREAD_GATES

_TABLES: Final = ("gate_tables.py", "unread_gates.py", "default_plugins.py")
_OPEN: Final = [
    pytest.param(name, id=f"{version} {name}")
    for version, emulation in EMULATIONS.items()
    for name, gate in emulation.gates.items()
    if not gate.is_locked and name in SCHEDULING_GATES
]


_ANY: Final = re.compile("|".join(SCHEDULING_GATES))


def strings(path: Path) -> Iterator[str]:
    text = path.read_text()
    if not _ANY.search(text):  # to parse all files takes seconds
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named_in(folder: Path) -> dict[str, set[Path]]:
    """Return the files of a folder that name a gate, by gate."""
    found: dict[str, set[Path]] = {}
    for path in sorted(folder.rglob("*.py")):
        for text in strings(path) if path.name not in _TABLES else ():
            if text in SCHEDULING_GATES:
                found.setdefault(text, set()).add(path)
    return found


HOST: Final = named_in(Path(berth_host.__file__).parent)
PLUGINS: Final = named_in(Path(berth_plugins.__file__).parent)
TOLD: Final = {gate for plugin in DEFAULT_PLUGINS for gate in plugin.reads_gates}
OWN: Final = {
    gate
    for emulation in EMULATIONS.values()
    for plugin in emulation.plugins
    for gate in (plugin.feature_gate, *(gated for _, gated in plugin.gated_points))
}


@pytest.mark.parametrize("gate", _OPEN)
def test_gate_is_read_or_said_to_have_no_effect(gate: str) -> None:
    is_read = gate in HOST or gate in OWN or (gate in TOLD and gate in PLUGINS)
    assert is_read or gate in UNREAD_GATES or gate in NOT_READ_BY_SCHEDULERS


@pytest.mark.parametrize("gate", sorted(PLUGINS))
def test_gate_that_a_plugin_reads_is_told_to_it(gate: str) -> None:
    assert gate in TOLD, f"{[str(path) for path in PLUGINS[gate]]} ask for a gate that no plugin is given"


@pytest.mark.parametrize("gate", sorted(TOLD))
def test_gate_that_is_told_to_a_plugin_is_read_there(gate: str) -> None:
    assert gate in PLUGINS


def test_gates_without_effect_are_known() -> None:
    assert UNREAD_GATES.keys() <= SCHEDULING_GATES | {"ComponentFlagz", "ComponentStatusz"} | {
        "CoordinatedLeaderElection"
    }
    for name in SCHEDULING_GATES | UNREAD_GATES.keys():
        assert any(name in emulation.gates for emulation in EMULATIONS.values()), name
    assert not UNREAD_GATES.keys() & TOLD
    assert not set(NOT_READ_BY_SCHEDULERS) & UNREAD_GATES.keys()
