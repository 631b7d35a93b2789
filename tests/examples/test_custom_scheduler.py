"""A program with a scheduler of its own: `berth_host.run` with a plugin that is installed nowhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import berth_host
import pytest
import yaml
from support.examples import EXAMPLES
from support.manifest_objects import node_object, pod_object

SCRIPT = EXAMPLES / "custom_scheduler" / "custom_scheduler.py"


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_registered_plugin_decides_beside_the_default_plugins(tmp_path: Path) -> None:
    label = {"node.kubernetes.io/instance-type": "general.8"}
    objects = [
        node_object("shop", labels=label),
        node_object("other"),
        pod_object("web", namespace="shop"),
        pod_object("report", namespace="batch"),
        pod_object("huge", namespace="batch", cpu="64"),
    ]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    config = str(SCRIPT.parent / "scheduler.yaml")
    done = program("simulate", "-f", str(tmp_path / "cluster.yaml"), "--config", config, "-o", "json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert {item["pod"]: item["node"] for item in got["placements"]} == {
        "shop/web": "shop",
        "batch/report": "other",
    }
    (pending,) = got["pending"]
    assert "Insufficient cpu" in pending["message"]


@pytest.mark.long
@pytest.mark.slow
def test_registered_plugin_is_listed_and_accepted_in_a_configuration() -> None:
    rows = json.loads(program("plugins", "-o", "json").stdout)["plugins"]
    assert [row["points"] for row in rows if row["name"] == "QuietHours"] == [["filter", "score"]]


def test_registered_plugin_is_unknown_to_the_plain_command(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(node_object("a")))
    with pytest.raises(SystemExit) as ended:
        berth_host.run(
            arguments=[
                *("simulate", "-f", str(tmp_path / "cluster.yaml")),
                *("--config", str(SCRIPT.parent / "scheduler.yaml")),
            ]
        )
    assert ended.value.code == 2


def test_command_ends_the_program_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        berth_host.run(arguments=["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("berth ")


@pytest.mark.parametrize("name", ["NodeResourcesFit", "DefaultPreemption"])
def test_taken_plugin_name_is_refused_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        berth_host.run(plugins={name: object}, arguments=["plugins"])
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"a plugin named {name} already exists")
    assert shown.count("\n") == 1
