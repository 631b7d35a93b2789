"""`berth check-config --against`: what another version of kube-scheduler does otherwise with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from berth_host.cli.main import berth
from berth_host.config.emulation import DEFAULT_VERSION, DIFFERENCES
from click.testing import CliRunner

FILE = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
GROUPS = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"


def check(tmp_path: Path, *flags: str, text: str = FILE) -> str:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    result = CliRunner().invoke(berth, ["check-config", str(file), *flags])
    assert result.exit_code == 0, result.output
    return result.stdout


def compared(tmp_path: Path, *flags: str, text: str = FILE) -> Any:
    return json.loads(check(tmp_path, "-o", "json", *flags, text=text))["compared"]


def test_lists_the_behaviours_that_one_version_alone_has(tmp_path: Path) -> None:
    found = compared(tmp_path, "--emulated-version=1.38", "--against=1.37")
    assert {row["name"] for row in found["behaviours"]} == {
        row.name for row in DIFFERENCES if row.since == "1.38"
    }
    assert {row["only"] for row in found["behaviours"]} == {"1.38"}
    (row,) = [one for one in found["behaviours"] if one["name"] == "ExactVolumeSizes"]
    assert row["plugins"] == ["VolumeBinding"]
    back = compared(tmp_path, "--emulated-version=1.37", "--against=1.38")
    assert {row["only"] for row in back["behaviours"]} == {"1.38"}


def test_without_an_emulated_version_the_corrections_differ(tmp_path: Path) -> None:
    found = compared(tmp_path, f"--against={DEFAULT_VERSION}")
    assert {row["name"] for row in found["behaviours"]} == {
        row.name for row in DIFFERENCES if row.is_mended(DEFAULT_VERSION) and not row.is_in(DEFAULT_VERSION)
    }
    assert (found["featureGates"], found["settings"], found["points"]) == ({}, {}, [])


def test_lists_gates_settings_and_plugins_that_differ(tmp_path: Path) -> None:
    found = compared(tmp_path, "--emulated-version=1.38", "--against=1.37", GROUPS)
    gates = found["featureGates"]
    assert gates["DynamicResourceAllocation"] == "removed in 1.38: naming it is an error"
    assert gates["DRADeviceBindingConditions"] == "GA, on, locked; 1.37: BETA, on"
    assert gates["SchedulerPreQueueingHints"] == "BETA, on; 1.37: ALPHA, off"
    assert "StorageCapacityScoring" not in gates
    assert found["settings"] == {"percentageOfPlacementsToScore": {"1.38": 0, "1.37": None}}
    assert {one["point"]: (one["1.38"], one["1.37"]) for one in found["points"]} == {
        "reserve": (
            "VolumeBinding, DynamicResources, DefaultPreemption",
            "VolumeBinding, DynamicResources",
        ),
        "permit": ("", "GangScheduling"),
    }


def test_report_has_a_section_for_each_kind(tmp_path: Path) -> None:
    shown = check(tmp_path, "--emulated-version=1.38", "--against=1.37", GROUPS)
    for line in (
        "compared with kube-scheduler 1.37",
        "only 1.38",
        "feature gates that differ in 1.37",
        "settings that differ in 1.37",
        "plugins of profile default-scheduler that differ in 1.37",
    ):
        assert line in shown.splitlines()
    assert "permit            none; 1.37: GangScheduling" in shown


def test_equal_versions_differ_in_nothing(tmp_path: Path) -> None:
    found = compared(tmp_path, "--emulated-version=1.38", "--against=1.38")
    assert found == {"against": "1.38", "behaviours": [], "featureGates": {}, "settings": {}, "points": []}


@pytest.mark.parametrize("output", ["text", "json"])
def test_file_that_the_other_version_refuses_is_said(tmp_path: Path, output: str) -> None:
    flags = ["--emulated-version=1.38", "--against=1.37", GROUPS]
    text = f"{FILE}percentageOfPlacementsToScore: 10\n"
    if output == "json":
        found = compared(tmp_path, *flags, text=text)
        assert found["against"] == "1.37"
        assert found["error"]["kind"] == "decode"
    else:
        shown = check(tmp_path, *flags, text=text)
        assert "kube-scheduler 1.37 cannot use the file:" in shown
        assert 'unknown field "percentageOfPlacementsToScore"' in shown


@pytest.mark.parametrize(
    ("version", "why"),
    [
        pytest.param("", "name a version", id="empty, as of a variable that is not set"),
        pytest.param("1.39", "want kube=1.36, kube=1.37 or kube=1.38", id="not known"),
        pytest.param("1.37.2", "without a patch number", id="a patch"),
        pytest.param("1.37,1.38", "duplicate version flag", id="two"),
    ],
)
def test_version_that_nothing_can_be_compared_with_is_refused(tmp_path: Path, version: str, why: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(FILE)
    result = CliRunner().invoke(berth, ["check-config", str(file), f"--against={version}"])
    assert result.exit_code == 2
    assert why in result.output
