"""The host and `berth check-config` refuse a class with a misspelt method in the SDK's own words."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import points_of_class
from berth_sdk.errors import PluginDefinitionError
from berth_sdk.extension_points import Plugin
from berth_sdk.runtime.descriptor import describe


class Misspelt(Plugin):
    def filter(self, state: Any, pod: Any, node: Any) -> None: ...

    def prefilter(self, state: Any, pod: Any, nodes: Any) -> None: ...


def test_class_with_a_misspelt_method_is_not_loaded() -> None:
    with pytest.raises(PluginDefinitionError) as said:
        describe(Misspelt)
    with pytest.raises(PluginLoadError, match="pre_filter") as refused:
        points_of_class("Misspelt", Misspelt)
    assert str(said.value) in str(refused.value)
