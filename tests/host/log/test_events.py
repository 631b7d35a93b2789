"""The list of log events equals their use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import berth_host
import pytest
from berth_host.log import EVENTS

LEVELS = {"debug", "info", "warning", "error", "exception"}


def used() -> Iterator[str]:
    for path in Path(str(berth_host.__file__)).parent.rglob("*.py"):
        for item in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(item, ast.Call)
                and isinstance(item.func, ast.Attribute)
                and item.func.attr in LEVELS
                and isinstance(item.func.value, ast.Name)
                and item.func.value.id.lower().strip("_") == "log"
            ):
                name = item.args[0]
                # A choice between two constants is fine, anything computed is not.
                choices = [name.body, name.orelse] if isinstance(name, ast.IfExp) else [name]
                for choice in choices:
                    assert isinstance(choice, ast.Constant), f"{path}:{item.lineno}: name it constantly"
                    yield str(choice.value)


@pytest.mark.slow
def test_every_event_is_listed_and_every_listed_one_is_used() -> None:
    assert set(used()) == EVENTS
