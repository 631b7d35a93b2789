"""The list of log events equals the events in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import berth_host
import berth_kube
import berth_sim
import pytest
from berth_host.log import EVENTS

LEVELS = {"debug", "info", "warning", "error", "exception"}
LOGS = re.compile(r"\b_*log_*\s*\.", re.IGNORECASE)
"""Is found in the text of each module that `is_level` finds something in."""


def is_level(item: ast.AST) -> bool:
    """`log.info`, `_LOG.warning` and the like."""
    return (
        isinstance(item, ast.Attribute)
        and item.attr in LEVELS
        and isinstance(item.value, ast.Name)
        and item.value.id.lower().strip("_") == "log"
    )


def events_in(tree: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """Line and first argument of every call that logs, also by a name that a level was given."""
    levels = {
        target.id
        for item in ast.walk(tree)
        if isinstance(item, ast.Assign) and any(map(is_level, ast.walk(item.value)))
        for target in item.targets
        if isinstance(target, ast.Name) and not isinstance(item.value, ast.Call)
    }
    for item in ast.walk(tree):
        if isinstance(item, ast.Call) and (
            is_level(item.func) or (isinstance(item.func, ast.Name) and item.func.id in levels)
        ):
            yield item.lineno, item.args[0]


def used() -> Iterator[str]:
    packages = [Path(str(package.__file__)).parent for package in (berth_host, berth_kube, berth_sim)]
    for path in [path for package in packages for path in package.rglob("*.py")]:
        text = path.read_text()
        if not LOGS.search(text):
            continue  # to parse every file takes seconds
        for line, name in events_in(ast.parse(text)):
            # A choice between two constants is fine, anything computed is not.
            choices = [name.body, name.orelse] if isinstance(name, ast.IfExp) else [name]
            for choice in choices:
                assert isinstance(choice, ast.Constant), f"{path}:{line}: name it constantly"
                yield str(choice.value)


@pytest.mark.slow
def test_every_event_is_listed_and_every_listed_one_is_used() -> None:
    assert set(used()) == EVENTS


def test_a_call_by_the_name_of_a_level_is_seen() -> None:
    tree = ast.parse("level = _LOG.info if told else _LOG.debug\nlevel('a.changed')\nlog.error('b.failed')")
    assert [ast.unparse(name) for _, name in events_in(tree)] == ["'a.changed'", "'b.failed'"]
