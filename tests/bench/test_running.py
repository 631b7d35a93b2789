"""Workloads on the embedded cluster, op by op, and their figures."""

from __future__ import annotations

import csv
import pstats
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench import own, running
from berth_bench.result import Result
from berth_bench.running import NotAttachedError, Settings, WorkloadError, resized
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.workload import CreateNodes, Workload
from berth_host.config.errors import ConfigurationError
from support.places import TESTS

from .conftest import POD, Obj, ReadCase, WriteCase, measured, nodes, pods

Template = Callable[..., str]


async def ran(workload: Workload, tmp_path: Path, **settings: Any) -> tuple[Result, dict[str, list[str]]]:
    """Run a workload; return the result, and per pod (`namespace/name`) its node and the plugins'
    annotations.
    """
    placements = tmp_path / "placements.csv"
    result = await running.run(workload, Settings(placements=str(placements), **settings))
    with placements.open(newline="") as file:
        return result, {row[0]: row[1:] for row in csv.reader(file)}


def per_namespace(placements: dict[str, list[str]]) -> dict[str, int]:
    return dict(Counter(key.partition("/")[0] for key in placements))


@pytest.mark.long
@pytest.mark.slow
async def test_only_measured_pods_are_counted(case: ReadCase, tmp_path: Path) -> None:
    workload = case(nodes(4), pods(5), measured(3), threshold=2)
    result, placements = await ran(workload, tmp_path)
    figures = result.figures
    assert (result.workload, figures.nodes, figures.pods, figures.bound) == ("C/w", 4, 3, 3)
    assert per_namespace(placements) == {"namespace-1": 5, "namespace-2": 3}
    assert all(node for (node,) in placements.values())
    assert figures.nodes_evaluated_per_pod == 4
    assert figures.rate.avg > 0
    assert result.ratio == figures.rate.avg / 2
    by_call = {(item.plugin, item.point): item for item in figures.plugins}
    # Once for each measured pod; the answers to Filter are kept for equal pods.
    assert by_call["DefaultBinder", "Bind"].calls == 3
    assert 1 <= by_call["NodeResourcesFit", "Filter"].calls <= 3
    assert by_call["NodeResourcesFit", "Filter"].bytes_sent == 0
    assert 0 < figures.cycle_p50_ms <= figures.cycle_p99_ms
    assert figures.cpu_ms_per_pod > 0
    assert figures.peak_rss_mb > 10


async def test_bound_pods_are_on_the_nodes_in_turn_and_take_room(case: ReadCase, tmp_path: Path) -> None:
    workload = case(nodes(2), pods(78, bound=True), measured(3))
    result, placements = await ran(workload, tmp_path)
    assert (result.figures.pods, result.figures.bound) == (3, 2)
    bound = [node for key, (node,) in placements.items() if key.startswith("namespace-1/")]
    assert set(Counter(bound).values()) == {39}
    with pytest.raises(WorkloadError, match="need nodes: create some before this op"):
        await ran(case(pods(1, bound=True), measured(1)), tmp_path)


@pytest.mark.long
@pytest.mark.slow
async def test_default_nodes_have_room_for_forty_pods_of_a_tenth(case: ReadCase, tmp_path: Path) -> None:
    result, _ = await ran(case(nodes(1), measured(41)), tmp_path)
    assert (result.figures.pods, result.figures.bound) == (41, 40)
    (note,) = [note for note in result.notes if "stay pending" in note]
    assert note.startswith("1 of 41 pods stay pending; one of them: 0/1 nodes are available")


@pytest.mark.long
async def test_label_values_are_used_in_turn_and_every_node_has_its_hostname(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    pod = POD | {"spec": POD["spec"] | {"nodeSelector": {"zone": "b"}}}
    strategy = {"labelKey": "zone", "labelValues": ["a", "b"]}
    workload = case(
        nodes(4, labelNodePrepareStrategy=strategy),
        measured(8, podTemplatePath=template(pod)),
    )
    _, placements = await ran(workload, tmp_path)
    assert len({node for (node,) in placements.values()}) == 2


@pytest.mark.long
@pytest.mark.slow
async def test_unique_label_strategy_gives_each_node_another_value(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    constraint = {"key": "own", "operator": "Exists"}
    terms = [{"matchExpressions": [constraint]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = POD | {"spec": POD["spec"] | {"affinity": {"nodeAffinity": required}}}
    op = measured(2, podTemplatePath=template(pod))
    result, _ = await ran(case(nodes(2, uniqueNodeLabelStrategy={"labelKey": "own"}), op), tmp_path)
    assert result.figures.bound == 2


@pytest.mark.long
@pytest.mark.slow
async def test_allocatable_strategy_adds_to_the_capacity(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    requests = {"cpu": "1", "example.com/gpu": "1"}
    container = {"name": "app", "resources": {"requests": requests, "limits": {"example.com/gpu": "1"}}}
    pod = POD | {"spec": {"containers": [container]}}
    strategy = {
        "nodeAllocatable": {"example.com/gpu": "2"},
        "csiNodeAllocatable": {"ebs.example.com": {"count": 39}},
        "migratedPlugins": ["kubernetes.io/aws-ebs"],
    }
    workload = case(nodes(1, nodeAllocatableStrategy=strategy), measured(3, podTemplatePath=template(pod)))
    result, _ = await ran(workload, tmp_path)
    assert (result.figures.pods, result.figures.bound) == (3, 2)


@pytest.mark.long
@pytest.mark.slow
async def test_pod_sets_are_created_in_numbered_namespaces(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    labelled = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {"team": "a"}}}
    inner = {"opcode": "createPods", "countParam": "$each"}
    workload = case(
        nodes(2),
        {
            "opcode": "createNamespaces",
            "prefix": "ns",
            "count": 2,
            "namespaceTemplatePath": template(labelled),
        },
        {"opcode": "createPodSets", "countParam": "$sets", "namespacePrefix": "ns", "createPodsOp": inner},
        measured(1, namespace="ns-1"),
        params={"each": 3, "sets": 2},
    )
    result, placements = await ran(workload, tmp_path)
    assert per_namespace(placements) == {"ns-0": 3, "ns-1": 4}
    assert result.figures.pods == 1


@pytest.mark.long
@pytest.mark.slow
async def test_objects_of_any_kind_are_created_and_updated(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    small: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-{{.Index}}"}}
    small["status"] = {"capacity": {"cpu": "100m", "memory": "1Gi", "pods": "{{.Count}}"}}
    large = small | {"status": {"capacity": {"cpu": "1", "memory": "1Gi", "pods": "9"}}}
    large["status"] |= {"allocatable": large["status"]["capacity"]}
    workload = case(
        {"opcode": "createAny", "templatePath": template(small, "small.yaml"), "count": 2},
        pods(2),
        {
            "opcode": "updateAny",
            "templatePath": template(large, "large.yaml"),
            "countParam": "$count",
            "updatePerSecond": 1000,
        },
        measured(4),
        params={"count": 2},
    )
    result, placements = await ran(workload, tmp_path)
    assert result.figures.bound == 4
    assert {node for (node,) in placements.values()} == {"n-0", "n-1"}


@pytest.mark.long
@pytest.mark.slow
async def test_delete_pods_removes_the_pods(case: ReadCase, tmp_path: Path) -> None:
    workload = case(
        nodes(1),
        pods(6, namespace="leaving"),
        {"opcode": "deletePods", "namespace": "leaving", "deletePodsPerSecond": 1000},
        measured(1),
    )
    _, placements = await ran(workload, tmp_path)
    assert per_namespace(placements) == {"namespace-3": 1}


@pytest.mark.long
@pytest.mark.slow
async def test_delete_pods_removes_only_pods_with_the_label(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    pod = POD | {"metadata": {"generateName": "pod-", "labels": {"app": "b"}}}
    workload = case(
        nodes(1),
        pods(2, namespace="one"),
        pods(3, namespace="one", podTemplatePath=template(pod)),
        {"opcode": "deletePods", "namespace": "one", "labelSelector": {"app": "b"}},
        measured(1, namespace="two"),
    )
    _, placements = await ran(workload, tmp_path)
    assert per_namespace(placements) == {"one": 2, "two": 1}


@pytest.mark.slow
async def test_gated_pods_count_as_attempted_and_stay_pending(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    gated = POD | {"spec": POD["spec"] | {"schedulingGates": [{"name": "example.com/wait"}]}}
    workload = case(
        nodes(1),
        pods(2, podTemplatePath=template(gated), skipWaitToCompletion=True),
        {"opcode": "barrier", "stageRequirement": "Attempted"},
        pods(2, namespace="plain", skipWaitToCompletion=True),
        {"opcode": "barrier", "namespaces": ["plain"]},
        measured(1),
    )
    result, placements = await ran(workload, tmp_path)
    assert Counter(bool(node) for (node,) in placements.values()) == {True: 3, False: 2}
    assert not [note for note in result.notes if "pods" in note and "stay pending" in note]


@pytest.mark.long
@pytest.mark.slow
async def test_churn_runs_beside_the_other_ops(case: ReadCase, tmp_path: Path, template: Template) -> None:
    service: Obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "s-"}}
    service["spec"] = {"ports": [{"port": 80}]}
    create = {"opcode": "churn", "mode": "create", "number": 3, "intervalMilliseconds": 1}
    recreate = {"opcode": "churn", "mode": "recreate", "number": 1, "intervalMilliseconds": 1}
    workload = case(
        nodes(1),
        create | {"templatePaths": [template(POD, "churned.yaml"), template(service, "service.yaml")]},
        recreate | {"namespace": "again", "templatePaths": ["churned.yaml"]},
        {"opcode": "sleep", "durationParam": "$pause"},
        measured(2),
        params={"pause": "2s"},
    )
    _, placements = await ran(workload, tmp_path)
    found = per_namespace(placements)
    assert found["namespace-1"] == 3
    assert found.get("again", 0) <= 1
    assert found["namespace-4"] == 2


@pytest.mark.slow
async def test_only_pods_between_start_and_stop_collecting_are_measured(
    case: ReadCase, tmp_path: Path
) -> None:
    workload = case(
        nodes(1),
        pods(2, namespace="a"),
        {"opcode": "startCollectingMetrics", "name": "both", "namespaces": ["a", "b"]},
        pods(3, namespace="a"),
        pods(4, namespace="b"),
        pods(5, namespace="c"),
        {"opcode": "stopCollectingMetrics"},
        pods(6, namespace="a"),
    )
    result, _ = await ran(workload, tmp_path)
    assert (result.figures.pods, result.figures.bound) == (7, 7)


@pytest.mark.slow
async def test_collections_that_overlap_are_an_error(case: ReadCase, tmp_path: Path) -> None:
    start = {"opcode": "startCollectingMetrics", "namespaces": ["a"]}
    with pytest.raises(WorkloadError, match=r"C/w, op 2 \(createPods\): metrics are already collected"):
        await ran(case(nodes(1), start, measured(1)), tmp_path)
    with pytest.raises(WorkloadError, match="no metrics are collected"):
        await ran(case(nodes(1), {"opcode": "stopCollectingMetrics"}), tmp_path)


@pytest.mark.long
@pytest.mark.slow
async def test_steady_state_replaces_bound_pods(case: ReadCase, tmp_path: Path) -> None:
    workload = case(nodes(1), measured(5, steadyState=True, duration="300ms"))
    result, placements = await ran(workload, tmp_path)
    assert result.figures.pods > 5
    assert len(placements) == 5


@pytest.mark.long
@pytest.mark.slow
async def test_pods_with_volumes_get_their_claims(case: ReadCase, tmp_path: Path, template: Template) -> None:
    volume: Obj = {"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"capacity": {"storage": "1Gi"}}}
    volume["spec"] |= {"accessModes": ["ReadOnlyMany"], "csi": {"driver": "d", "volumeHandle": "h"}}
    claim: Obj = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["spec"] = {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}}
    op = measured(
        2,
        persistentVolumeTemplatePath=template(volume, "pv.yaml"),
        persistentVolumeClaimTemplatePath=template(claim, "pvc.yaml"),
    )
    result, _ = await ran(case(nodes(1), op), tmp_path)
    assert result.figures.bound == 2


async def test_template_without_a_name_of_its_own_that_is_made_twice_is_an_error(
    case: ReadCase, tmp_path: Path, template: Template
) -> None:
    pod = POD | {"metadata": {"name": "one"}}
    workload = case(nodes(1), measured(2, podTemplatePath=template(pod)))
    with pytest.raises(WorkloadError, match=r"C/w, op 1 \(createPods\): .*one.* already exists"):
        await ran(workload, tmp_path)


def without_hurry(tmp_path: Path, name: str, where: str) -> str:
    """Return a configuration of this plugin with long deadlines, because these tests count calls on busy
    machines.
    """
    points = {point: {"deadline": "10s"} for point in ("preFilter", "filter", "score")}
    own: Obj = {"apiVersion": "config.berth.io/v1alpha1", "kind": "BerthConfiguration", "cycleBudget": "60s"}
    own["plugins"] = [{"name": name, "inProcess": where, "points": points}]
    path = tmp_path / "without_hurry.yaml"
    path.write_text(yaml.safe_dump(own))
    return str(path)


@pytest.mark.long
@pytest.mark.slow
async def test_served_plugin_of_the_defaults_costs_bytes(case: ReadCase, tmp_path: Path) -> None:
    plugin = "NodeResourcesFit"
    config = without_hurry(tmp_path, plugin, "berth_plugins.node_resources.fit:NodeResourcesFit")
    result, _ = await ran(case(nodes(2), measured(3)), tmp_path, config=config, remote=(plugin,))
    by_call = {(item.plugin, item.point): item for item in result.figures.plugins}
    # Verdicts and scores come with the answer to PreFilter.
    assert by_call[plugin, "PreFilter"].calls == 3
    assert by_call[plugin, "PreFilter"].bytes_sent > 0
    assert by_call[plugin, "PreFilter"].bytes_received > 0
    assert not any(
        figures.bytes_sent
        for (name, point), figures in by_call.items()
        if name == plugin and point != "PreFilter"
    )
    assert by_call["NodeName", "Filter"].bytes_sent == 0


@pytest.mark.slow
async def test_remote_class_is_enabled_at_its_extension_points(
    case: ReadCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = TESTS
    monkeypatch.setenv("PYTHONPATH", str(tests))
    result, _ = await ran(case(nodes(2), measured(3)), tmp_path, remote=("support.gatekeeper:Steady",))
    points = {item.point for item in result.figures.plugins if item.plugin == "Steady" and item.bytes_sent}
    assert "Filter" in points


async def test_served_plugin_that_does_not_start_ends_the_workload(
    case: ReadCase, write_case: WriteCase, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    scheduler: Obj = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    scheduler["profiles"] = [{"plugins": {"filter": {"enabled": [{"name": "Mine"}]}}}]
    own: Obj = {"apiVersion": "config.berth.io/v1alpha1", "kind": "BerthConfiguration"}
    command = [sys.executable, "-c", "raise SystemExit('no licence')"]
    own["plugins"] = [{"name": "Mine", "command": command}]
    config.write_text(yaml.safe_dump_all([scheduler, own]))
    with pytest.raises(NotAttachedError, match=r"C/w: required plugin Mine never answered: .*no licence"):
        await ran(case(nodes(1), measured(1)), tmp_path, config=str(config))


@pytest.mark.slow
async def test_config_of_the_case_is_used(case: ReadCase, tmp_path: Path) -> None:
    config: Obj = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config["profiles"] = [{"plugins": {"multiPoint": {"disabled": [{"name": "NodeName"}]}}}]
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
    workload = case(nodes(1), measured(1), case={"schedulerConfigPath": "own.yaml"})
    result, _ = await ran(workload, tmp_path)
    assert "NodeName" not in {item.plugin for item in result.figures.plugins}


@pytest.mark.long
@pytest.mark.slow
async def test_profile_covers_the_measured_part(case: ReadCase, tmp_path: Path) -> None:
    path = tmp_path / "out.pstats"
    await ran(case(nodes(1), measured(5)), tmp_path, profile=str(path))
    functions = {name for _, _, name in pstats.Stats(str(path)).stats}  # type: ignore[attr-defined]  # typeshed lacks it
    assert "schedule_one" in functions


async def ran_until(op: str, workload: Workload, tmp_path: Path) -> tuple[Result, float]:
    """Return the result of a workload that its limit ended in `op`, and that limit in seconds.

    The limit is the shortest one that leaves time for the ops before on this machine.
    """
    for limit_s in (0.5, 2.0, 8.0, 32.0):
        result, _ = await ran(workload, tmp_path, limit_s=limit_s)
        if any(op in note for note in result.notes):
            break
    return result, limit_s


async def test_limit_ends_a_workload_with_the_figures_until_then(case: ReadCase, tmp_path: Path) -> None:
    workload = case(nodes(1), measured(3), {"opcode": "sleep", "duration": "1h"}, measured(2))
    result, limit_s = await ran_until("op 2 (sleep)", workload, tmp_path)
    assert (result.figures.pods, result.figures.bound) == (3, 3)
    assert result.notes == (
        f"ended after {limit_s:g} s, in op 2 (sleep): the figures cover the time until then",
    )


@pytest.mark.long
async def test_limit_within_a_measured_window_closes_it(case: ReadCase, tmp_path: Path) -> None:
    sleep = {"opcode": "sleep", "duration": "1h"}
    start = {"opcode": "startCollectingMetrics", "namespaces": ["own"]}
    workload = case(nodes(1), start, pods(3, namespace="own"), sleep, {"opcode": "stopCollectingMetrics"})
    result, limit_s = await ran_until("op 3 (sleep)", workload, tmp_path)
    assert result.figures.bound == 3
    assert [note.partition(",")[0] for note in result.notes] == [f"ended after {limit_s:g} s"]


def counts(workload: Workload) -> list[int]:
    return [step.op.count for step in workload.steps if isinstance(step.op, CreateNodes)]


def test_resizing_keeps_proportions_and_fixed_counts(case: ReadCase) -> None:
    by_param = [{"opcode": "createNodes", "countParam": name} for name in ("$few", "$many")]
    workload = case(nodes(1), *by_param, measured(1), params={"few": 10, "many": 30})
    assert counts(resized(workload, 100)) == [1, 25, 75]
    assert counts(resized(workload, 3)) == [1, 0, 3]
    fixed = resized(case(nodes(2), measured(1)), 9)
    assert counts(fixed) == [2]
    assert "--nodes has no effect: its nodes are no parameter" in fixed.notes


@pytest.mark.slow
async def test_an_older_configuration_is_converted_unless_told_otherwise(
    case: ReadCase, tmp_path: Path
) -> None:
    config = tmp_path / "policy.yaml"
    config.write_text("kind: Policy\napiVersion: v1\npredicates: []\npriorities: []\n")
    result, _ = await ran(case(nodes(1), measured(41)), tmp_path, config=str(config))
    assert result.figures.bound == 41  # no pod asks for resources
    assert any("the policy becomes one profile" in note for note in result.notes)
    with pytest.raises(ConfigurationError, match='no kind "Policy" is registered'):
        await ran(case(nodes(1), measured(1)), tmp_path, config=str(config), convert_older=False)


@pytest.mark.long
@pytest.mark.slow
async def test_groups_of_the_own_workload_are_placed_whole(tmp_path: Path) -> None:
    found = {workload.name: workload for workload in read_workloads(own.FILE)}
    workload = resized(found["PodGroups/500Nodes"], 20)
    result, _ = await ran(workload, tmp_path)
    assert result.figures is not None
    assert (result.figures.pods, result.figures.bound) == (500, 500)
    assert not any("stay pending" in note for note in result.notes)


@pytest.mark.long
@pytest.mark.slow
async def test_served_plugin_is_asked_once_about_each_group_of_the_own_workload(tmp_path: Path) -> None:
    found = {workload.name: workload for workload in read_workloads(own.FILE)}
    result, _ = await ran(resized(found["PodGroups/Served500Nodes"], 20), tmp_path)
    figures = result.figures
    assert figures is not None
    assert (figures.pods, figures.bound) == (500, 500)
    by_call = {(item.plugin, item.point): item for item in figures.plugins}
    asked = by_call["EnoughMembers", "PlacementFeasible"]
    assert asked.bytes_sent > 0
    assert asked.calls == 20
