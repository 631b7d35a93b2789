"""`berth simulate`: its one JSON object, its exit codes, and which list each pod is in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from support.commands import answer, in_process
from support.gpu_memory import MEMORY, NO_ROOM
from support.manifest_objects import node_object, pod_object, workload_object

from .conftest import Run, Write

TOO_LARGE = (
    "0/1 nodes are available: 1 Insufficient cpu."
    " preemption: 0/1 nodes are available:"
    " 1 Preemption is not helpful for scheduling."
)


def pending(result: Result) -> dict[str, str]:
    return {item["pod"]: item["message"] for item in answer(result)["pending"]}


def placed(result: Result) -> dict[str, str]:
    return {item["pod"]: item["node"] for item in answer(result)["placements"]}


def test_json_is_one_object_with_placements_pending_and_summary(run: Run, write: Write) -> None:
    web = pod_object("web", metadata={"annotations": {"team": "a"}})
    path = write(node_object("a"), web, pod_object("huge", cpu="64"))
    result = run("simulate", "-f", path, "-o", "json", "--seed", "7")
    got = answer(result)
    summary = got.pop("summary")
    assert got == {
        "placements": [{"pod": "default/web", "node": "a", "annotations": {"team": "a"}}],
        "pending": [{"pod": "default/huge", "message": TOO_LARGE}],
    }
    assert {**summary, "seconds": 0, "pods_per_s": 0} == {
        "nodes": 1,
        "pods": 2,
        "placed": 1,
        "pending": 1,
        "finished": 0,
        "seconds": 0,
        "pods_per_s": 0,
        "seed": 7,
        "gaps": [],
        "lapses": [],
    }
    assert summary["seconds"] > 0
    assert summary["pods_per_s"] > 0


def test_yaml_is_the_same_object(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("web"))
    as_json = answer(run("simulate", "-f", path, "-o", "json"))
    as_yaml = yaml.safe_load(run("simulate", "-f", path, "-o", "yaml").stdout)
    assert as_yaml["placements"] == as_json["placements"]
    assert as_yaml["summary"].keys() == as_json["summary"].keys()


def test_standard_input_in_utf_16_is_read(run: Run) -> None:
    text = yaml.safe_dump_all([node_object("a"), pod_object("web")])
    result = run("simulate", "-f", "-", "-o", "json", stdin=text.encode("utf-16"))
    assert list(placed(result)) == ["default/web"]


def test_standard_input_that_is_no_text_is_bad_input(run: Run) -> None:
    result = run("simulate", "-f", "-", stdin=b"kind: \xff")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "standard input: is not UTF-8 text (byte 6): save it as UTF-8\n"


def test_table_names_every_pod_and_every_message(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("web"), pod_object("huge", cpu="64"))
    result = run("simulate", "-f", path)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["POD", "NODE", "OWNER"]
    assert lines[1].split() == ["default/web", "a", "-"]
    assert "  default/huge" in lines
    assert f"    {TOO_LARGE}" in lines
    assert lines[-1].startswith("1 of 2 pods placed on 1 node, 1 pending; ")


def test_table_says_a_reason_once_for_all_pods_that_have_it(run: Run, write: Write) -> None:
    request = {"resources": {"requests": {"cpu": "64"}}, "name": "main"}
    workload = workload_object("Deployment", "web", replicas=3, template={"containers": [request]})
    result = run("simulate", "-f", write(node_object("a"), workload, pod_object("huge", cpu="64")))
    assert result.stdout.split("\n\n")[0].splitlines() == [
        "PENDING",
        "  default/web-0 and 2 more like it   (Deployment/default/web)",
        "  default/huge",
        f"    {TOO_LARGE}",
    ]


def test_expanded_pods_carry_their_owner_in_both_lists(run: Run, write: Write) -> None:
    request = {"resources": {"requests": {"cpu": "3"}}, "name": "main"}
    workload = workload_object("Deployment", "web", replicas=2, template={"containers": [request]})
    got = answer(run("simulate", "-f", write(node_object("a"), workload), "-o", "json"))
    assert [(item["pod"], item["owner"]) for item in got["placements"] + got["pending"]] == [
        ("default/web-0", "Deployment/default/web"),
        ("default/web-1", "Deployment/default/web"),
    ]
    assert len(got["pending"]) == 1


def test_every_pod_of_the_input_is_in_exactly_one_list(run: Run, write: Write) -> None:
    done = pod_object("done") | {"status": {"phase": "Succeeded"}}
    objects = [
        node_object("a"),
        pod_object("bound", nodeName="a"),
        pod_object("gated", schedulingGates=[{"name": "example.com/wait"}]),
        pod_object("foreign", schedulerName="other"),
        pod_object("going", metadata={"finalizers": ["x/y"], "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod_object("free"),
        done,
    ]
    result = run("simulate", "-f", write(*objects), "-o", "json")
    assert placed(result) == {"default/bound": "a", "default/free": "a"}
    messages = pending(result)
    assert messages["default/gated"] == "gated: waiting for scheduling gates: example.com/wait"
    assert messages["default/foreign"].startswith("waits for another scheduler: its schedulerName is 'other'")
    assert messages["default/going"] == "is being deleted"
    assert len(messages) == 3
    summary = answer(result)["summary"]
    assert (summary["pods"], summary["finished"], summary["placed"]) == (5, 1, 2)


def test_pods_go_by_priority_and_bound_pods_count(run: Run, write: Write) -> None:
    objects = [
        node_object("a", cpu="4"),
        pod_object("there", cpu="2", nodeName="a", priority=3),
        pod_object("low", cpu="2", priority=1),
        pod_object("high", cpu="2", priority=2),
    ]
    result = run("simulate", "-f", write(*objects), "-o", "json")
    assert placed(result) == {"default/there": "a", "default/high": "a"}
    assert pending(result) == {
        "default/low": "0/1 nodes are available: 1 Insufficient cpu."
        " preemption: 0/1 nodes are available:"
        " 1 No preemption victims found for incoming pod."
    }


@pytest.mark.slow
def test_same_seed_gives_the_same_placements(run: Run, write: Write) -> None:
    nodes = [node_object(f"n{i}") for i in range(8)]
    path = write(*nodes, *(pod_object(f"p{i}") for i in range(20)))
    first = placed(run("simulate", "-f", path, "-o", "json", "--seed", "1"))
    again = placed(run("simulate", "-f", path, "-o", "json", "--seed", "1"))
    others = [placed(run("simulate", "-f", path, "-o", "json", "--seed", str(seed))) for seed in (2, 3, 4)]
    assert first == again
    assert any(first != other for other in others)


def test_report_names_a_cluster_without_nodes(run: Run, write: Write) -> None:
    result = run("simulate", "-f", write(pod_object("web")), "-o", "json")
    assert pending(result) == {"default/web": "no nodes available to schedule pods"}


@pytest.mark.slow
def test_standard_input_and_several_paths_are_read(run: Run, write: Write) -> None:
    path = write(node_object("a"))
    result = run("simulate", "-f", path, "-f", "-", "-o", "json", stdin=json.dumps(pod_object("web")))
    assert placed(result) == {"default/web": "a"}


def test_further_paths_may_follow_without_their_option(run: Run, write: Write) -> None:
    paths = [write(node_object("a"), name="a.yaml"), write(pod_object("web"), name="b.yaml")]
    assert placed(run("simulate", "-f", *paths, "-o", "json")) == {"default/web": "a"}


def test_paths_need_no_option(run: Run, write: Write) -> None:
    paths = [write(node_object("a"), name="a.yaml"), write(pod_object("web"), name="b.yaml")]
    assert placed(run("simulate", *paths, "-o", "json")) == {"default/web": "a"}
    assert placed(run("simulate", paths[0], "-o", "json", "-f", paths[1])) == {"default/web": "a"}
    assert answer(run("why", "web", *paths, "-o", "json"))["node"] == "a"


def test_no_path_at_all_is_a_usage_error_that_says_what_to_type(run: Run) -> None:
    for command in (["simulate"], ["why", "web"]):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "PATH or -f PATH" in result.stderr


def test_configuration_may_come_from_standard_input(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("huge", cpu="64"))
    policy = '{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostName"}], "priorities": []}'
    result = run("simulate", "-f", path, "--config", "-", "-o", "json", stdin=policy)
    assert placed(result) == {"default/huge": "a"}  # nothing but HostName is asked
    refused = run("simulate", "-f", path, "--config", "-", stdin="kind: None")
    assert (refused.exit_code, refused.stderr.startswith("standard input")) == (2, True)


@pytest.mark.parametrize("manifests", [["-f", "-"], ["-"]])
def test_standard_input_is_for_manifests_or_for_the_configuration(run: Run, manifests: list[str]) -> None:
    result = run("simulate", *manifests, "--config", "-", stdin="kind: Pod")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "standard input: both the manifests and --config read it: name a file for one of them\n"
    )


def test_standard_input_is_read_once(run: Run) -> None:
    result = run("simulate", "-f", "-", "-", stdin="kind: Pod")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "standard input: - is given twice, but standard input can be read once\n"


@pytest.mark.parametrize("words", [[""], ["-f", ""], ["x.yaml", "--config", ""]])
def test_empty_path_is_refused(run: Run, words: list[str]) -> None:
    """It would else be the working folder, and the configuration none."""
    result = run("simulate", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the path is empty: name a file or a folder" in result.stderr


def test_second_configuration_is_refused(run: Run, write: Write) -> None:
    result = run("simulate", write(node_object("a")), "--config", "a.yaml", "--config", "b.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'--config': it is given 2 times" in result.stderr


@pytest.mark.parametrize(("cpu", "code"), [("1", 0), ("64", 3)])
def test_fail_on_pending_exits_with_3(run: Run, write: Write, cpu: str, code: int) -> None:
    path = write(node_object("a"), pod_object("web", cpu=cpu))
    result = run("simulate", "-f", path, "-o", "json", "--fail-on-pending")
    assert result.exit_code == code
    assert json.loads(result.stdout)["summary"]["pods"] == 1


def test_bad_manifests_exit_with_2_and_schedule_nothing(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("web"), pod_object("bad", cpu="lots"), {"kind": "Pod"})
    result = run("simulate", "-f", path, "-o", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{path}:")
    assert "(document 3): spec.containers[0].resources.requests.cpu: 'lots' is not a quantity" in first
    assert "(document 4): apiVersion: is required" in second


def test_ignored_kinds_are_named_once_on_standard_error(run: Run, write: Write) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    result = run("simulate", "-f", write(node_object("a"), pod_object("web"), config_map), "-o", "json")
    answer(result)
    assert result.stderr == "warning: left out ConfigMap m: scheduling does not read this kind\n"


@pytest.mark.slow
def test_plugins_of_pod_groups_let_plain_pods_pass(run: Run, write: Write) -> None:
    scheduler, _ = in_process()
    scheduler["profiles"][0]["plugins"] = {"permit": {"enabled": [{"name": "GangScheduling"}]}}
    path = write(node_object("a"), pod_object("web"), pod_object("db"))
    result = run("simulate", "-f", path, "--config", write(scheduler, name="config.yaml"), "-o", "json")
    assert placed(result) == {"default/web": "a", "default/db": "a"}
    assert result.stderr == ""


def test_member_of_an_unknown_group_waits_for_its_object(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("web", schedulingGroup={"podGroupName": "gone"}))
    result = run("simulate", "-f", path, "--feature-gates", "GenericWorkload=true", "-o", "json")
    (pending,) = answer(result)["pending"]
    assert pending["message"] == "waits for podgroup/default/gone: there is no such object in the input"


def test_an_extender_that_is_not_there_fails_the_attempt_and_is_a_lapse(run: Run, write: Write) -> None:
    scheduler, _ = in_process()
    scheduler["extenders"] = [{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter"}]
    files = ("-f", write(node_object("a"), pod_object("p")), "--config", write(scheduler, name="config.yaml"))
    result = run("simulate", *files, "--strict")
    assert result.exit_code == 4
    assert 'Post "http://127.0.0.1:1/filter": dial tcp 127.0.0.1:1: connect: connection refused' in (
        " ".join(result.stdout.split())
    )
    assert "extender 127.0.0.1:1 failed in" in result.stderr


def test_bad_configuration_exits_with_2_and_names_file_and_line(run: Run, write: Write) -> None:
    scheduler, _ = in_process()
    scheduler["percentageOfNodesToScores"] = 5
    config = write(scheduler, name="config.yaml")
    result = run("simulate", "-f", write(node_object("a")), "--config", config)
    assert result.exit_code == 2
    assert config in result.stderr
    assert "percentageOfNodesToScore" in result.stderr


def test_errors_of_both_documents_are_reported_together(run: Run, write: Write, tmp_path: Path) -> None:
    config = tmp_path / "both.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugns: {}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "plugins: [{name: P, comand: [x]}]\n"
    )
    result = run("simulate", "-f", write(node_object("a")), "--config", str(config))
    assert result.exit_code == 2
    assert 'both.yaml:3: unknown field "profiles[0].plugns"' in result.stderr
    assert 'both.yaml:7: unknown field "plugins[0].comand"' in result.stderr


def test_classes_that_cannot_be_loaded_are_all_told_beside_other_errors(
    run: Run, write: Write, tmp_path: Path
) -> None:
    config = tmp_path / "both.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 0\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "plugins: [{name: P, inProcess: 'no.such:P'}, {name: Q, inProcess: 'no.other:Q'}]\n"
    )
    result = run("simulate", write(node_object("a")), "--config", str(config))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{config}:3: parallelism: Invalid value: 0: should be an integer value greater than zero",
        f"{config}: plugins[0].inProcess: plugin P (no.such:P) cannot be loaded: No module named 'no'",
        f"{config}: plugins[1].inProcess: plugin Q (no.other:Q) cannot be loaded: No module named 'no'",
    ]


def test_an_older_configuration_is_converted_unless_told_otherwise(run: Run, write: Write) -> None:
    policy = {"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostName"}], "priorities": []}
    config = write(policy, name="policy.yaml")
    arguments = ("simulate", "-f", write(node_object("a"), pod_object("huge", cpu="64")), "--config", config)
    result = run(*arguments, "-o", "json")
    assert placed(result) == {"default/huge": "a"}  # nothing but HostName is asked
    assert "predicate HostName becomes NodeName" in result.stderr
    refused = run(*arguments, "--no-convert")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert 'no kind "Policy" is registered' in refused.stderr


def test_output_of_a_plugin_is_not_in_the_result(run: Run, write: Write) -> None:
    path = write(node_object("a"), node_object("b"), pod_object("web"))
    scheduler, own = in_process(Talkative="support.cli_plugins:Talkative")
    own["plugins"][0]["points"] = {"score": {"policy": "Neutral"}}
    config = write(scheduler, own, name="config.yaml")
    result = run("simulate", "-f", path, "--config", config, "-o", "json", "--no-strict")
    assert placed(result).keys() == {"default/web"}
    assert "debugging" in result.stderr


def test_calls_that_failed_are_named_although_the_pods_are_placed(run: Run, write: Write) -> None:
    path = write(node_object("a"), node_object("b"), pod_object("web"))
    scheduler, own = in_process(Talkative="support.cli_plugins:Talkative")
    own["plugins"][0]["points"] = {"score": {"policy": "Neutral"}}
    config = write(scheduler, own, name="config.yaml")
    result = run("simulate", "-f", path, "--config", config, "-o", "json")
    assert "warning: plugin Talkative failed in 1 of 1 calls of Score" in result.stderr


def test_plugin_that_cannot_be_made_is_bad_input(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("web"))
    config = write(*in_process(Unmakeable="support.cli_plugins:Unmakeable"), name="config.yaml")
    result = run("simulate", "-f", path, "--config", config)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "plugin Unmakeable (support.cli_plugins:Unmakeable)" in result.stderr
    assert "RuntimeError: no licence" in result.stderr


@pytest.mark.parametrize("where", ["gone:Class", "support.cli_plugins:Gone", "json:dumps"])
def test_plugin_that_cannot_be_loaded_exits_with_2(run: Run, write: Write, where: str) -> None:
    config = write(*in_process(Mine=where), name="config.yaml")
    result = run("simulate", "-f", write(node_object("a")), "--config", config)
    assert result.exit_code == 2
    assert "plugin Mine" in result.stderr


def test_missing_configuration_file_exits_with_2(run: Run, write: Write, tmp_path: Path) -> None:
    result = run("simulate", "-f", write(node_object("a")), "--config", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert "none.yaml: cannot be read: No such file or directory" in result.stderr


def test_pod_that_always_ends_in_error_is_pending_with_that_error(run: Run, write: Write) -> None:
    config = write(*in_process(Broken="support.cli_plugins:Broken"), name="config.yaml")
    objects = [node_object("a"), pod_object("web"), pod_object("bad", metadata={"labels": {"break": "yes"}})]
    result = run("simulate", "-f", write(*objects), "--config", config, "-o", "json")
    assert placed(result) == {"default/web": "a"}
    message = pending(result)["default/bad"]
    assert "Broken" in message
    assert "out of order" in message


def test_pod_that_a_plugin_keeps_out_of_the_queue_is_gated_and_says_why(run: Run, write: Write) -> None:
    config = write(*in_process(Gate="support.cli_plugins:Gate"), name="config.yaml")
    manifests = write(node_object("a"), pod_object("web", metadata={"labels": {"hold": "yes"}}))
    message = "gated: kept out of the queue by plugin Gate: held"
    result = run("simulate", "-f", manifests, "--config", config, "-o", "json")
    assert pending(result) == {"default/web": message}
    assert answer(run("why", "web", "-f", manifests, "--config", config, "-o", "json"))["message"] == message


def test_pod_whose_claim_is_missing_says_which(run: Run, write: Write) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    result = run(
        "simulate", "-f", write(node_object("a"), pod_object("web", resourceClaims=claims)), "-o", "json"
    )
    why = 'could not find ResourceClaim "default/mine"'
    assert pending(result) == {
        "default/web": f"gated: kept out of the queue by plugin DynamicResources: {why}"
    }


def test_preempted_pod_names_the_pod_that_took_its_place(run: Run, write: Write) -> None:
    config = write(*in_process(Evictor="support.cli_plugins:Evictor"), name="config.yaml")
    objects: list[Any] = [
        node_object("a", cpu="4"),
        pod_object("old", cpu="3", priority=1, nodeName="a"),
        pod_object("new", cpu="3", priority=9),
    ]
    result = run("simulate", "-f", write(*objects), "--config", config, "-o", "json")
    assert placed(result) == {"default/new": "a"}
    assert pending(result) == {"default/old": "preempted by default/new"}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "table"])
def test_ctrl_c_prints_the_pods_decided_so_far(write: Write, tmp_path: Path, form: str) -> None:
    """The plugin sends SIGINT when it is asked about p3: the pods before that one are decided by then."""
    (tmp_path / "ends.py").write_text(
        "import os, signal\nfrom berth_sdk import Plugin\n\n\nclass Ends(Plugin):\n"
        "    is_told = False\n\n"
        "    def filter(self, state, pod, node):\n"
        "        if pod.name == 'p3' and not self.is_told:\n            self.is_told = True\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
    )
    config = write(*in_process(Ends="ends:Ends"), name="config.yaml")
    pods = [pod_object(name, cpu="1m", priority=1) for name in ("p0", "p1", "p2")]
    late = [pod_object("p3", cpu="1m"), *(pod_object(f"q{i}", cpu="1m", priority=-1) for i in range(3000))]
    nodes = [node_object(f"n{i}") for i in range(40)]
    path = write(*nodes, pod_object("huge", cpu="64", priority=2), *pods, *late)
    # A shell that runs tests in the background has them ignore SIGINT, and children inherit that.
    heeds = "import signal, runpy; signal.signal(signal.SIGINT, signal.default_int_handler);"
    code = f"{heeds} runpy.run_module('berth_host', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, "simulate", "-f", path, "--config", config, "-o", form],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == "interrupted: the report covers the pods decided so far"
    if form == "table":
        assert "  default/huge" in done.stdout.splitlines()
        assert "not decided (interrupted); " in done.stdout.splitlines()[-1]
        return
    got = json.loads(done.stdout)
    names = {item["pod"] for item in got["placements"]}
    assert {"default/p0", "default/p1", "default/p2"} <= names
    assert [item["pod"] for item in got["pending"]] == ["default/huge"]
    assert "default/q2999" in got["undecided"]
    assert len(names) + 1 + len(got["undecided"]) == got["summary"]["pods"] == 3005
    assert (got["summary"]["interrupted"], got["summary"]["undecided"]) == (True, len(got["undecided"]))


def test_costs_name_every_call_of_every_plugin(run: Run, write: Write) -> None:
    result = run("simulate", "-f", write(node_object("a"), pod_object("web")), "-o", "json", "--costs")
    answer(result)
    rows = [line.split() for line in result.stderr.splitlines()]
    assert ["NodeResourcesFit", "in", "process", "Filter", "1"] in [row[:5] for row in rows]


def test_costs_name_calls_that_depends_on_would_save(run: Run, write: Write) -> None:
    config = write(*in_process(Broken="support.cli_plugins:Broken"), name="config.yaml")
    objects = write(node_object("a"), *(pod_object(name) for name in ("web-0", "web-1", "web-2")))
    result = run("simulate", "-f", objects, "--config", config, "-o", "json", "--costs")
    answer(result)
    advice = [line for line in result.stderr.splitlines() if "depends_on" in line]
    assert advice == ["plugin Broken: declare depends_on to keep answers: 2 of 3 calls were for equal pods"]


def test_simulate_without_any_input_is_a_usage_error(run: Run) -> None:
    assert run("simulate").exit_code == 2


def test_pods_that_admission_refuses_are_pending_with_the_words_of_the_api_server(
    run: Run, write: Write
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "150m", "services": "1"}},
    }
    path = write(node_object("a"), quota, workload_object("Deployment", "web", replicas=2))
    result = run("simulate", "-f", path, "-o", "json")
    assert list(placed(result)) == ["default/web-0"]
    assert pending(result) == {
        "default/web-1": 'pods "web-1" is forbidden: exceeded quota: q, requested: requests.cpu=100m, '
        "used: requests.cpu=100m, limited: requests.cpu=150m"
    }
    assert "ResourceQuota default/q: services is not counted" in result.stderr
    refused = run("why", "web-1", "-f", path)
    assert refused.exit_code == 2
    assert "pod default/web-1 is not created" in refused.stderr


def test_pod_of_an_unknown_class_is_refused_and_the_others_go_on(run: Run, write: Write) -> None:
    path = write(node_object("a"), pod_object("web", priorityClassName="gone"), pod_object("other"))
    result = run("simulate", "-f", path, "-o", "json")
    assert list(placed(result)) == ["default/other"]
    text = 'pods "web" is forbidden: no PriorityClass with name gone was found'
    assert pending(result) == {"default/web": text}


def test_priority_without_a_class_is_refused_in_a_new_pod_and_kept_with_a_warning_in_others(
    run: Run, write: Write
) -> None:
    kept = run("simulate", "-f", write(node_object("a"), pod_object("web", priority=8)), "-o", "json")
    assert list(placed(kept)) == ["default/web"]
    assert "warning: kept the priority of pod default/web: an API server refuses a new pod" in kept.stderr
    unknown = pod_object("web", priority=8, priorityClassName="gone")
    kept = run("simulate", "-f", write(node_object("a"), unknown), "-o", "json")
    assert "warning: kept the priority of pod default/web: an API server refuses a new pod" in kept.stderr
    named = pod_object("web", priority=2_000_000_000, priorityClassName="system-cluster-critical")
    assert run("simulate", "-f", write(node_object("a"), named)).stderr == ""
    pod = pod_object("web", priority=8)
    del pod["metadata"]["namespace"]  # no object of a cluster is without one
    refused = run("simulate", "-f", write(node_object("a"), pod), "-o", "json")
    assert refused.exit_code == 2
    assert "spec.priority: the integer value of priority (8) must not be provided" in refused.stderr


def test_feature_gates_reach_the_plugins(run: Run, write: Write) -> None:
    node = node_object("a")
    node["spec"] = {"taints": [{"key": "load", "value": "5", "effect": "NoSchedule"}]}
    toleration = {"key": "load", "operator": "Gt", "value": "3", "effect": "NoSchedule"}
    path = write(node, pod_object("web", tolerations=[toleration]))
    assert not placed(run("simulate", "-f", path, "-o", "json"))
    gate = "TaintTolerationComparisonOperators=true"
    result = run("simulate", "-f", path, "-o", "json", "--feature-gates", gate)
    assert list(placed(result)) == ["default/web"]


def test_emulated_version_keeps_an_error_of_1_36(run: Run, write: Write) -> None:
    """kubernetes 139161: of two terms one applied to the pod that left."""

    def noisy(**labels: str) -> dict[str, Any]:
        return {"topologyKey": "deck", "labelSelector": {"matchLabels": labels}}

    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [noisy(app="noisy"), noisy(app="smelly")]}
    node = node_object("a")
    node["metadata"]["labels"] = {"deck": "one"}
    port = [{"containerPort": 80, "hostPort": 80}]
    blocker, vip = pod_object("blocker", nodeName="a"), pod_object("vip", priority=10)
    blocker["metadata"]["labels"] = {"app": "noisy"}
    for one in (blocker, vip):
        one["spec"]["containers"][0]["ports"] = port
    shy = pod_object("shy", priority=20, preemptionPolicy="Never", affinity={"podAntiAffinity": terms})
    path = write(node, blocker, vip, shy)
    assert set(placed(run("simulate", "-f", path, "-o", "json"))) == {"default/vip", "default/shy"}
    for version in ("kube=1.36", "1.36"):
        emulating = run("simulate", "-f", path, "-o", "json", "--emulated-version", version)
        assert set(placed(emulating)) == {"default/vip"}


@pytest.mark.parametrize("command", [["simulate"], ["why", "web"], ["check-config"]])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("1.35", "cannot emulate kube-scheduler 1.35: want kube=1.36"),
        ("apiserver=1.36", "component not registered: apiserver: want kube=MAJOR.MINOR"),
        ("kube=1.36.2", "invalid version 1.36.2: want kube=MAJOR.MINOR, without a patch number"),
        ("1.36,kube=1.36", "duplicate version flag, kube=1.36 and kube=1.36"),
    ],
)
def test_unknown_emulated_version_is_refused(
    run: Run, write: Write, command: list[str], value: str, problem: str
) -> None:
    result = run(*command, write(node_object("a")), "--emulated-version", value)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


@pytest.mark.parametrize("left", [True, False])
def test_plugin_counts_the_resource_that_the_configuration_leaves_to_it(
    run: Run, write: Write, tmp_path: Path, left: bool
) -> None:
    scheduler, own = in_process(GpuMemory="support.gpu_memory:GpuMemory")
    own["plugins"][0]["managedResources"] = [{"name": MEMORY, "ignoredByScheduler": left}]
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump_all([scheduler, own]))
    wanting = [{"name": "c", "image": "app", "resources": {"limits": {MEMORY: "6"}}}]
    path = write(
        node_object("a", labels={"gpus": "2", "gpu-memory": "10"}),
        pod_object("plain"),
        *(pod_object(f"gpu-{i}", containers=wanting) for i in range(3)),
    )
    result = run("simulate", "-f", path, "-o", "json", "--config", str(config))
    if not left:
        assert list(placed(result)) == ["default/plain"]
        assert all(f"1 Insufficient {MEMORY}" in message for message in pending(result).values())
        return
    assert set(placed(result)) == {"default/plain", "default/gpu-0", "default/gpu-1"}
    assert f"1 {NO_ROOM}" in pending(result)["default/gpu-2"]


# --- pod groups ------------------------------------------------------------------------------------


def gang(*, size: int, minimum: int, cpu: str) -> list[dict[str, Any]]:
    policy = {"gang": {"minCount": minimum}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": policy},
    }
    members = [
        pod_object(f"train-{i}", cpu=cpu, schedulingGroup={"podGroupName": "train"}) for i in range(size)
    ]
    return [group, *members]


GATE = ("--feature-gates", "GenericWorkload=true")


def test_gang_is_placed_as_a_whole_or_not_at_all(run: Run, write: Write) -> None:
    nodes = [node_object(name, cpu="4") for name in ("a", "b")]
    fits = run("simulate", *GATE, "-f", write(*nodes, *gang(size=4, minimum=4, cpu="2")), "-o", "json")
    assert len(placed(fits)) == 4
    result = run("simulate", *GATE, "-f", write(*nodes, *gang(size=3, minimum=3, cpu="3")), "-o", "json")
    assert placed(result) == {}
    assert "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining" in pending(result)["default/train-0"]


def test_gang_without_the_gate_is_placed_pod_by_pod_and_the_cure_is_said(run: Run, write: Write) -> None:
    path = write(node_object("a", cpu="4"), *gang(size=2, minimum=2, cpu="3"))
    result = run("simulate", "-f", path, "-o", "json")
    assert len(placed(result)) == 1
    assert "PodGroup default/train: without effect" in result.stderr
    assert "--feature-gates GenericWorkload=true" in result.stderr
