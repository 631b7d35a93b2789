"""`berth bench ui` in a real Chromium, with few nodes and pods."""

from __future__ import annotations

import json
import os

import pytest
from berth_bench.ui.chromium import INSTALL, program
from berth_bench.ui.command import ui
from berth_bench.ui.frames import Frames
from click.testing import CliRunner


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(program() is None and not os.environ.get("CI"), reason=INSTALL)
def test_every_part_has_its_frames() -> None:
    arguments = ["--nodes", "150", "--pods", "300", "--seconds", "0.5", "-o", "json"]
    done = CliRunner().invoke(ui, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    value = json.loads(done.stdout)
    assert (value["nodes"], value["pods"], len(value["parts"])) == (150, 300, 6)
    for part in value["parts"]:
        assert part["frames"] > 0
        assert 0 < part["median_ms"] <= part["p95_ms"] <= part["p99_ms"] <= part["max_ms"]


def test_share_counts_the_frames_below_50_ms() -> None:
    found = Frames.of("part", [16.0, 17.0, 18.0, 50.0])
    assert (found.frames, found.median_ms, found.max_ms, found.below_50_ms) == (4, 17.5, 50.0, 0.75)
