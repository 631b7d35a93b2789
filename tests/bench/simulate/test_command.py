"""`berth bench simulate` as a user runs it, with real processes: both ways give equal answers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "berth_host", "bench", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.long
@pytest.mark.slow
def test_every_pod_is_asked_about_on_every_template_both_ways() -> None:
    done = simulate("--pods", "10", "--templates", "4", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["pods"], found["templates"], found["placed_count"]) == (10, 4, 10)
    assert [found[way]["verdicts"] for way in ("together", "one_by_one", "placed")] == [40, 40, 40]
    # A call at Filter for each pod; the what-ifs need none where an earlier plugin rejected the node.
    assert found["together"]["plugin_calls"] == found["placed"]["plugin_calls"] == 10
    assert 10 < found["one_by_one"]["plugin_calls"] <= 40
    assert min(found[way]["cpu_s"] for way in ("together", "one_by_one", "placed")) > 0
    assert 1 <= found["used_count"] <= 10


@pytest.mark.long
@pytest.mark.slow
def test_what_ifs_can_be_limited_and_the_table_has_a_line_for_each_way() -> None:
    done = simulate("--pods", "4", "--templates", "3", "--calls", "5")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[:4]] == [
        "WAY",
        "one Simulate, each pod alone",
        "what-ifs one by one",
        "one Simulate, pods take room",
    ]
    assert lines[2].split()[4] == "5"
    assert lines[-1].startswith("Taking room, 4 of 4 pods were placed on ")
