"""The cluster of `make e2e`, without its programs: kwok's stages, and when its nodes can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from berth_bench.versus.real_servers import ServerError
from support import e2e_cluster
from support.e2e_cluster import ZONES, fake_node, is_usable, missing_e2e_programs, stages_of

STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")


def module(folder: Path, *stages: str) -> Path:
    """Make the part of kwok's module that is read: each folder has its stages, and a file that is not a
    stage.
    """
    for stage in stages:
        area = folder / "kustomize/stage" / stage
        area.mkdir(parents=True)
        (area / "one.yaml").write_text(
            f"kind: Stage\nmetadata: {{name: {stage}}}\nspec: {{next: {{phase: Running}}}}\n"
        )
        (area / "kustomization.yaml").write_text("kind: Kustomization\nresources: [one.yaml]\n")
    return folder


def test_stages_are_read_out_of_the_module(tmp_path: Path) -> None:
    found = stages_of(module(tmp_path, *STAGES, "pod/chaos"))
    assert [stage["metadata"]["name"] for stage in found] == list(STAGES)
    assert not [stage for stage in found if "delay" in stage["spec"]]


def test_deleted_pod_is_left_for_a_moment(tmp_path: Path) -> None:
    stage = module(tmp_path, *STAGES) / "kustomize/stage/pod/fast/two.yaml"
    stage.write_text("kind: Stage\nmetadata: {name: gone}\nspec: {next: {delete: true}}\n")
    delays = {one["metadata"]["name"]: one["spec"].get("delay") for one in stages_of(tmp_path)}
    assert delays.pop("gone")["durationMilliseconds"] > 0
    assert set(delays.values()) == {None}


def test_module_without_a_stage_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="has no stage node/heartbeat-with-lease"):
        stages_of(module(tmp_path, "node/fast", "pod/fast"))


@pytest.mark.parametrize(
    ("status", "taints", "usable"),
    [
        ("True", None, True),
        ("False", None, False),
        ("True", [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}], False),
    ],
)
def test_node_is_usable_when_it_is_ready_and_has_no_taint(
    status: str, taints: list[dict[str, str]] | None, usable: bool
) -> None:
    spec: dict[str, Any] = {} if taints is None else {"taints": taints}
    assert (
        is_usable({"spec": spec, "status": {"conditions": [{"type": "Ready", "status": status}]}}) is usable
    )
    assert not is_usable({"spec": {}, "status": {}})


def test_nodes_are_in_every_zone_and_differ_in_name_and_address() -> None:
    nodes = [fake_node(number) for number in range(e2e_cluster.NODES)]
    assert len({node["metadata"]["name"] for node in nodes}) == len(nodes)
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == len(nodes)
    assert len({node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes}) == ZONES


def test_missing_programs_are_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "kwok").touch(0o755)
    assert missing_e2e_programs() == f"no e2e.test in {tmp_path}: {e2e_cluster.CURE}"
