"""The pages about the ways over to berth name what is there: members of the SDK, plugins, points."""

from __future__ import annotations

import re
from collections.abc import Iterator

import berth_sdk
import pytest
from berth_host.config.default_plugins import EXTENSION_POINTS
from berth_host.older_config.other_plugins import OTHER_PLUGINS
from berth_sdk.extension_points import METHODS, Plugin

from docs.pages import DOCS, Page

PAGE = Page(DOCS / "how-to" / "from-a-scheduler-plugin.md")
BEYOND_POINTS = {
    *("add_pod", "remove_pod", "filter_scenarios", "reconcile", "pre_bind_pre_flight"),
    *("queueing_hint", "sign", "sign_spec"),
}
"""Methods of a plugin that belong to no extension point of their own."""
CONFIGURED = {"args", "inProcess", "command", "endpoint", "berth_host.run", "pluginConfig[].args"}
"""Words of the configuration, and of the host."""
CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its header."""
    lines = PAGE.text.partition(f"\n## {heading}\n")[2].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| "))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("| "):
            break
        found.append([cell.strip() for cell in line.strip("| ").split(" | ")])
    return found


def exists(word: str) -> bool:
    """Return True if the SDK has the name: of a method of a plugin, a class, or a member of a class."""
    methods = {method for several in METHODS.values() for method in several} | BEYOND_POINTS
    if word in methods or word in CONFIGURED or hasattr(Plugin, word):
        return True
    owner, _, member = word.partition(".")
    found = getattr(berth_sdk, owner, None)
    if found is None:
        return hasattr(berth_sdk.ScoreNormalization, word)
    return not member or hasattr(found, member) or member in getattr(found, "__annotations__", {})


def words(heading: str, column: int) -> Iterator[str]:
    for row in rows(heading):
        if column < len(row):
            yield from CODE.findall(row[column])


@pytest.mark.parametrize(
    ("heading", "column"),
    [
        ("Extension points", 1),
        ("State, data and the handle", 1),
        ("The plugins of scheduler-plugins", 3),
    ],
)
def test_every_name_of_berth_in_a_table_exists(heading: str, column: int) -> None:
    named = list(words(heading, column))
    outside = {
        "permitWaitingTimeSeconds",
        "waitSeconds",
        "cacheResyncPeriodSeconds",
        "discardReservedNodes",
        "cache",
    }
    assert len(named) > 20
    assert [word for word in named if word not in outside and not exists(word)] == []


@pytest.mark.parametrize("word", ["filter_node", "Handle.snapshots", "Need.node", "HOST_MEAN", "Nothing"])
def test_name_that_berth_lacks_is_found(word: str) -> None:
    assert not exists(word)


def test_every_extension_point_is_mapped() -> None:
    mapped = set(words("Extension points", 1))
    for methods in METHODS.values():
        assert mapped & set(methods), methods


def test_table_of_other_plugins_agrees_with_that_of_migrate() -> None:
    here = {
        CODE.findall(row[0])[0]: tuple(CODE.findall(row[1]))
        for row in rows("The plugins of scheduler-plugins")
    }
    assert here == {plugin.name: plugin.points for plugin in OTHER_PLUGINS}
    assert {point for points in here.values() for point in points} <= set(EXTENSION_POINTS)
