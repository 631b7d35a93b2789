"""Gang under the whole host: all pods of a gang get a node, or none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_host.cli.main import berth
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError
from berth_sdk.results import LiveReservation
from berth_sdk.status import Code
from berth_sdk.testing import PluginHost, make_pod
from click.testing import CliRunner
from support.commands import answer, in_process
from support.examples import example
from support.manifest_objects import node_object, pod_object

gang: Any = example("gang/gang.py")


def member(name: str, size: int, gang_name: str = "g", **spec: Any) -> dict[str, Any]:
    labels = {gang.NAME: gang_name, gang.SIZE: str(size)}
    return pod_object(name, metadata={"labels": labels}, **spec)


def simulated(tmp_path: Path, *objects: dict[str, Any], **args: Any) -> dict[str, Any]:
    scheduler, own = in_process(Gang="example_gang:Gang")
    scheduler["profiles"][0]["pluginConfig"] = [{"name": "Gang", "args": args}]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump_all([scheduler, own]))
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    arguments = ["-f", str(tmp_path / "cluster.yaml"), "--config", str(tmp_path / "config.yaml")]
    return answer(CliRunner().invoke(berth, ["simulate", *arguments, "-o", "json"], catch_exceptions=False))


def test_complete_gang_is_placed(tmp_path: Path) -> None:
    got = simulated(tmp_path, node_object("a"), *(member(f"m{i}", 3) for i in range(3)))
    assert got["pending"] == []
    assert {item["node"] for item in got["placements"]} == {"a"}


def test_incomplete_gang_is_not_placed_and_frees_its_nodes(tmp_path: Path) -> None:
    members = [member(f"m{i}", 3, cpu="2") for i in range(2)]
    late = pod_object("late", cpu="3", priority=-1)
    got = simulated(tmp_path, node_object("a", cpu="4"), *members, late)
    assert [item["pod"] for item in got["placements"]] == ["default/late"]
    messages = {item["pod"]: item["message"] for item in got["pending"]}
    assert messages.keys() == {"default/m0", "default/m1"}


def test_partly_fitting_gang_is_not_placed(tmp_path: Path) -> None:
    members = [member(f"m{i}", 4, cpu="2") for i in range(4)]
    got = simulated(tmp_path, node_object("a", cpu="4"), *members, waitSeconds=5)
    assert got["placements"] == []
    assert len(got["pending"]) == 4
    assert any("Gang" in item["message"] or "gang" in item["message"] for item in got["pending"])


def test_gangs_do_not_count_each_others_members(tmp_path: Path) -> None:
    one = [member(f"a{i}", 2, "one") for i in range(2)]
    other = [member("b0", 2, "two")]
    got = simulated(tmp_path, node_object("a"), *one, *other)
    assert [item["pod"] for item in got["placements"]] == ["default/a0", "default/a1"]


def test_members_beyond_the_gang_size_are_allowed_at_once(tmp_path: Path) -> None:
    got = simulated(tmp_path, node_object("a"), *(member(f"m{i}", 2) for i in range(5)))
    assert got["pending"] == []


def test_pods_without_a_gang_do_not_wait() -> None:
    attempt = PluginHost(gang.Gang).attempt(make_pod("web"))
    assert attempt.permit("a").status.code is Code.SUCCESS


def test_pod_with_a_malformed_gang_size_is_rejected() -> None:
    pod = make_pod("web", labels={gang.NAME: "g", gang.SIZE: "three"})
    status = PluginHost(gang.Gang).attempt(pod).permit("a").status
    assert (status.code, status.message) == (
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        "label gang.example.com/size must be a number, but is 'three'",
    )


@pytest.mark.parametrize("wait", [0, -1, "soon", True])
def test_malformed_wait_argument_is_refused(wait: object) -> None:
    with pytest.raises(PluginArgsError, match="waitSeconds"):
        PluginHost(gang.Gang, {"waitSeconds": wait})


def test_waiting_members_survive_a_restart_of_the_plugin() -> None:
    host = PluginHost(gang.Gang)
    state = CycleState("c1")
    live = [LiveReservation(state=state, pod=make_pod("m0"), node_name="a", waiting_on_permit=True)]
    assert host.run(host.runtime.reconcile(live)) == frozenset()
