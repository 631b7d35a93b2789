"""`berth plugins`: the plugins that this installation has."""

from __future__ import annotations

from importlib.metadata import entry_points

from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from support.commands import answer

from .conftest import Run


def test_every_default_plugin_and_every_entry_point_is_listed(run: Run) -> None:
    rows = {row["name"]: row for row in answer(run("plugins", "-o", "json"))["plugins"]}
    installed = {entry.name for entry in entry_points(group="berth.plugins")}
    assert rows.keys() == installed | DEFAULT_PLUGINS_BY_NAME.keys()
    for name, default in DEFAULT_PLUGINS_BY_NAME.items():
        want = "default" if name in installed else "default, not in this build"
        assert rows[name]["origin"] == want
        assert set(rows[name]["points"]) == default.points


def test_readable_form_is_a_table(run: Run) -> None:
    lines = run("plugins").stdout.splitlines()
    assert lines[0].split() == ["NAME", "ORIGIN", "POINTS"]
    assert ["NodeName", "default", "preFilter,", "filter"] in [line.split() for line in lines]
