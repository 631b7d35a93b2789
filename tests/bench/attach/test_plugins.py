"""Plugin classes by number."""

from __future__ import annotations

import pytest
from berth_bench.attach import plugins
from berth_bench.attach.serving import names
from berth_sdk.cli.loading import load_plugins


def test_every_number_is_a_plugin_of_that_name() -> None:
    wanted = names(3, 2)
    assert wanted == ["Any6", "Any7"]
    assert list(load_plugins(f"{plugins.__name__}:{name}" for name in wanted)) == wanted


def test_module_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute Anything"):
        plugins.Anything  # noqa: B018
