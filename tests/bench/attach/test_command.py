"""`berth bench attach` as a user runs it, with real processes: 100 plugins that are all called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def attach(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "berth_host", "bench", "attach", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.long
def test_hundred_plugins_attach_and_are_called_about_every_pod() -> None:
    done = attach("--turns", "1", "--starts", "1", "-o", "json")
    assert done.returncode == 0, done.stderr
    start, attached = (json.loads(line) for line in done.stdout.splitlines())
    assert (start["measured"], start["starts"]) == ("start", 1)
    assert min(start["child_ms"], start["bare_ms"], *start["ratios"].values()) > 0
    assert (attached["measured"], attached["processes"], attached["plugins_per_process"]) == (
        "attach",
        10,
        10,
    )
    assert (attached["plugins_asked"], attached["pods_bound"]) == (100, 20)
    assert min(*attached["one_at_a_time"].values(), *attached["together"].values()) > 0
    assert set(attached["ratios"]) == {"together_wall", "together_cpu", "later_wall", "later_cpu"}
    for line in (start, attached):
        assert line["command"] == "berth bench attach --processes 10 --plugins 10 --turns 1 --starts 1"


@pytest.mark.long
def test_more_plugins_than_a_configuration_has_are_refused() -> None:
    done = attach("--processes", "26", "--plugins", "10")
    assert done.returncode == 2
    assert "260 plugins are more than the 256 that a configuration may have" in done.stderr
