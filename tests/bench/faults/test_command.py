"""`berth bench faults` as a user runs it, small, with real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SMALL = ("--nodes", "20", "--pods", "40", "--turns", "1", "--warm-up", "1")


def faults(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "berth_host", "bench", "faults", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
@pytest.mark.long
def test_each_case_is_measured_against_the_host_without_a_plugin() -> None:
    done = faults(*SMALL, "-o", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines] == ["none", "dead", "hung", "slow"]
    by_case = {line["case"]: line for line in lines}
    for line in lines:
        assert (line["nodes"], line["pods"], line["warm_up_s"]) == (20, 40, 1.0)
        assert line["command"] == f"berth bench faults {' '.join(SMALL)}"
        for phase in (line, line["settled"]):
            assert phase["pods_per_second"] > 0
            assert phase["p99_ms"] > 0
        assert len(line["turns"]) == 1
    assert set(by_case["none"]["ratios"].values()) == {1.0}
    assert by_case["none"]["asked_per_pod"] == 0
    # The faults did befall the plugin: nobody was there to be asked, or was asked in vain.
    assert by_case["dead"]["settled"]["asked_per_pod"] == 0
    for case in ("hung", "slow"):
        assert by_case[case]["asked_per_pod"] > 0
        assert by_case[case]["p99_ms"] >= by_case[case]["deadline_ms"]
        assert by_case[case]["ratios"]["p99_ms"] > 1


@pytest.mark.long
def test_more_pods_than_the_nodes_hold_are_refused() -> None:
    done = faults("--nodes", "1", "--pods", "100")
    assert done.returncode == 2
    assert "1 nodes hold 110 pods, and a turn makes 620" in done.stderr
