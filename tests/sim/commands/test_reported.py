"""Inputs after public reports about kube-scheduler, with the outcome that their reporters needed.

The folders of `reported` hold the inputs. `tests/cluster/test_reported_waits.py` tries reports of waits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import answer, in_process

from .conftest import Run, Write

REPORTED = Path(__file__).parent / "reported"


def reported(*parts: str) -> str:
    return str(REPORTED.joinpath(*parts))


def placed(run: Run, *arguments: str) -> dict[str, str]:
    got = answer(run("simulate", *arguments, "-o", "json"))
    return {item["pod"].removeprefix("default/"): item["node"] for item in got["placements"]}


def test_volumes_wait_for_their_driver_where_the_gate_says_so(run: Run) -> None:
    path = reported("csinode-without-driver", "in.yaml")
    assert len(placed(run, "-f", path, "--feature-gates", "VolumeLimitScaling=false")) == 3
    assert list(placed(run, "-f", path).values()) == ["crane-1"]


@pytest.fixture
def bouncer(write: Write) -> str:
    plugins = {name: f"support.reported_plugins:{name}" for name in ("Counter", "Bouncer")}
    return write(*in_process(**plugins), name="config.yaml")


def test_plugin_that_skips_a_pod_is_not_asked_in_its_preemption(run: Run, bouncer: str) -> None:
    path = reported("prefilter-skip-then-preempt", "in.yaml")
    assert placed(run, "-f", path, "--config", bouncer) == {"vip": "quay-a"}


def test_plugin_that_rejects_in_pre_filter_is_named(run: Run, bouncer: str) -> None:
    path = reported("prefilter-skip-then-preempt", "equal.yaml")
    got = answer(run("why", "vip", "-f", path, "--config", bouncer, "-o", "json"))
    assert [(item["plugin"], item["nodes"]) for item in got["rejections"]] == [("Bouncer", ["quay-a"])]


def test_enormous_amounts_fit_nowhere_and_hide_nothing(run: Run) -> None:
    assert placed(run, "-f", reported("enormous-quantities", "in.yaml")) == {"f-tiny": "small"}


def test_nodes_that_pre_filter_rules_out_have_a_row(run: Run) -> None:
    folder = "matchfields-unknown-node"
    got = answer(run("why", "lost", "-f", reported(folder, "in.yaml"), "-o", "json"))
    rejected = {item["plugin"]: item["nodes"] for item in got["rejections"]}
    assert (rejected, got["attempts"]) == ({"NodeAffinity": ["quay-a", "quay-b"]}, 1)
    got = answer(run("why", "agent-b", "-f", reported(folder, "ds.yaml"), "-o", "json"))
    rejected = {item["plugin"]: item["nodes"] for item in got["rejections"]}
    assert rejected == {"NodeAffinity": ["quay-a", "quay-c"], "NodeResourcesFit": ["quay-b"]}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a-unquoted-bool", ":3 (document 1): metadata.labels.true: must be a string"),
        ("b-unquoted-number", ":4 (document 1): spec.nodeSelector.size: must be a string"),
        ("f-typo-field", ":5 (document 1): spec.nodeSelectors: unknown field"),
        ("g-leading-zero", ":5 (document 1): spec.priority: the integer value of priority (8) must not be"),
        ("h-cpu-unit", ":4 (document 1): spec.containers[0].resources.requests.memory: '512mb'"),
        ("j-helm", ":9 (document 2): metadata.annotations.checksum/config: must be a string"),
    ],
)
def test_manifest_that_kubectl_refuses_is_refused_with_its_line(run: Run, name: str, said: str) -> None:
    folder = "yaml-as-people-write-it"
    path = reported(folder, f"{name}.yaml")
    result = run("simulate", "-f", reported(folder, "node.yaml"), "-f", path)
    assert result.exit_code == 2
    assert f"{path}{said}" in result.stderr


@pytest.mark.parametrize(
    ("name", "said", "pods"),
    [
        ("c-exponent", "", 1),
        ("d-anchors", "", 2),
        ("e-duplicate-key", "line 6: key 'nodeSelector' appears twice: the last one counts", 1),
        ("i-bom-crlf", "", 1),
    ],
)
def test_manifest_that_kubectl_takes_is_taken(run: Run, name: str, said: str, pods: int) -> None:
    folder = "yaml-as-people-write-it"
    paths = (reported(folder, one) for one in ("node.yaml", f"{name}.yaml"))
    result = run("simulate", *(part for path in paths for part in ("-f", path)), "-o", "json")
    assert len(answer(result)["placements"]) == pods
    assert said in result.stderr
    assert bool(said) == bool(result.stderr)
