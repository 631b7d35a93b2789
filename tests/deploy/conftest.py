"""Skip these tests without helm, and say how to get it; in CI they fail instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from berth_bench.versus.real_servers import CURE, program

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder if there is no helm."""
    if os.access(program("helm"), os.X_OK) or os.environ.get("CI"):
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"no helm: {CURE}"))
