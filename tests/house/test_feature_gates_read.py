"""Every feature gate that is accepted is read by something, or its value is said to have no effect."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import berth_host
import berth_plugins
import pytest
from berth_host.config.default_plugins import DEFAULT_PLUGINS
from berth_host.config.gate_tables import FEATURE_GATES, KNOWN_GATES
from berth_host.config.unread_gates import NOT_READ_BY_SCHEDULERS, UNREAD_GATES

_TABLES: Final = ("gate_tables.py", "unread_gates.py", "default_plugins.py")
_OPEN: Final = [name for name, gate in FEATURE_GATES.items() if not gate.is_locked]


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def named_in(folder: Path) -> dict[str, set[Path]]:
    """Return the files of a folder that name a gate, by gate."""
    found: dict[str, set[Path]] = {}
    for path in sorted(folder.rglob("*.py")):
        for text in strings(path) if path.name not in _TABLES else ():
            if text in FEATURE_GATES:
                found.setdefault(text, set()).add(path)
    return found


HOST: Final = named_in(Path(berth_host.__file__).parent)
PLUGINS: Final = named_in(Path(berth_plugins.__file__).parent)
TOLD: Final = {gate for plugin in DEFAULT_PLUGINS for gate in plugin.reads_gates}
OWN: Final = {plugin.feature_gate for plugin in DEFAULT_PLUGINS}


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
    assert UNREAD_GATES.keys() <= KNOWN_GATES.keys()
    assert not UNREAD_GATES.keys() & TOLD
    assert not set(NOT_READ_BY_SCHEDULERS) & UNREAD_GATES.keys()
