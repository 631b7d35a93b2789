"""The table of other projects' plugins: one row for each, none of a plugin that berth has, real points."""

from __future__ import annotations

from collections import Counter

from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME, EXTENSION_POINTS
from berth_host.older_config.other_plugins import OTHER_PLUGINS, other_plugin
from berth_host.older_config.table import Change


def test_every_plugin_has_one_row_with_points_and_what_berth_has_instead() -> None:
    assert Counter(plugin.name for plugin in OTHER_PLUGINS).most_common(1)[0][1] == 1
    for plugin in OTHER_PLUGINS:
        assert plugin.points
        assert set(plugin.points) <= set(EXTENSION_POINTS)
        assert plugin.decides
        assert plugin.instead
        assert plugin.change is not Change.EXACT
        assert other_plugin(plugin.name) is plugin


def test_no_default_plugin_is_in_the_table() -> None:
    assert not {plugin.name for plugin in OTHER_PLUGINS} & DEFAULT_PLUGINS_BY_NAME.keys()
    assert other_plugin("NodeResourcesFit") is None
