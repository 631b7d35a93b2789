"""Pods of `berth bench own` and `versus` are as an API server keeps them, and are scheduled as small ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from berth_bench import own, running
from berth_bench.pods_as_kept import as_created, as_kept
from berth_bench.running import Settings
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.versus.workloads import WORKLOADS, running_manifests
from berth_bench.workload import Churn, CreatePods, RunPods, Workload
from berth_sdk.pod import Pod
from berth_sdk.spec_reads import is_token_volume
from berth_sim.cluster.server import ApiServer

from .conftest import ReadCase, Run, measured, nodes, pods

_LEAST_BYTES, _MOST_BYTES = 2000, 3072


def templates() -> Iterator[dict[str, Any]]:
    """Yield the pods of all templates of the own workloads, the first of each."""
    found = {
        template.path: template.object_at(0, 1)
        for workload in read_workloads(own.FILE)
        for step in workload.steps
        for template in (
            step.op.templates
            if isinstance(step.op, Churn)
            else (step.op.template,)
            if isinstance(step.op, CreatePods | RunPods)
            else ()
        )
    }
    assert len(found) > 8
    yield from found.values()


def size(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def test_pods_of_every_own_template_have_what_an_api_server_keeps() -> None:
    for pod in templates():
        kept = as_kept(pod)
        metadata, (container, *_) = kept["metadata"], kept["spec"]["containers"]
        assert _LEAST_BYTES <= size(metadata["managedFields"]) <= _MOST_BYTES
        assert metadata["ownerReferences"][0]["controller"] is True
        sources = {key for one in container["env"] for key in one.get("valueFrom", ())}
        assert sources == {"fieldRef", "configMapKeyRef", "secretKeyRef", "resourceFieldRef"}
        assert {"startupProbe", "livenessProbe", "readinessProbe", "envFrom"} <= container.keys()
        tolerated = {one["key"] for one in kept["spec"]["tolerations"]}
        assert {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} <= tolerated


def test_scheduling_reads_the_same_of_a_completed_pod_but_owner_and_tolerations() -> None:
    def read(pod: dict[str, Any]) -> Pod:
        return Pod.from_object({**pod, "metadata": {"name": "p", "namespace": "n", **pod["metadata"]}})

    for pod in templates():
        small, kept = read(pod), read(as_kept(pod))
        for name in ("requests", "labels", "node_selector", "images", "host_ports", "scheduling_gates"):
            assert getattr(kept, name) == getattr(small, name)
        assert kept.pod_affinity == small.pod_affinity
        assert kept.tolerations[: len(small.tolerations)] == small.tolerations
        assert kept.owner is not None


def test_fields_of_a_pod_are_kept_and_the_argument_is_not_changed() -> None:
    pod = {
        "metadata": {"name": "p", "ownerReferences": []},
        "spec": {
            "dnsPolicy": "Default",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            "containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}],
        },
    }
    before = json.dumps(pod)
    kept = as_kept(pod)
    assert json.dumps(pod) == before
    assert kept["metadata"]["ownerReferences"] == []
    assert kept["spec"]["dnsPolicy"] == "Default"
    assert kept["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert [one["key"] for one in kept["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_every_workload_of_versus_creates_pods_as_a_controller_does_unless_they_are_to_be_small() -> None:
    for workload in WORKLOADS:
        (pod,) = workload.manifests("p", 1)
        assert pod == as_created(pod)
        assert "env" in pod["spec"]["containers"][0]
        (small,) = replace(workload, small=True).manifests("p", 1)
        assert pod == as_created(small) != small
    for is_small in (False, True):
        (pod,) = running_manifests(1, 1, small=is_small)
        assert ("ownerReferences" in pod["metadata"]) is not is_small


@pytest.mark.parametrize("small", [False, True])
def test_own_runs_with_small_pods_where_they_are_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    seen: list[Workload] = []

    def instead(workload: Workload, settings: Settings) -> Any:
        seen.append(workload)
        raise running.WorkloadError("not run")

    monkeypatch.setattr("berth_bench.command.run_in_child", instead)
    run("bench", "own", "Plain/100Nodes", *(["--small"] if small else []))
    assert [workload.as_kept for workload in seen] == [not small]


@pytest.mark.slow
async def test_completed_pods_get_the_nodes_that_small_ones_get(
    case: ReadCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[ApiServer] = []

    def remembered(*args: Any, **named: Any) -> ApiServer:
        servers.append(ApiServer(*args, **named))
        return servers[-1]

    monkeypatch.setattr("berth_bench.running.ApiServer", remembered)
    workload = case(nodes(6), pods(7), measured(11))
    placed = []
    for kept in (False, True):
        path = tmp_path / f"{kept}.csv"
        await running.run(replace(workload, as_kept=kept), Settings(placements=str(path), seed=3))
        placed.append(path.read_text())
    assert placed[0] == placed[1] != ""
    names = [
        [one["name"] for pod in server.list("pods") for one in pod.get("spec.volumes") or ()]
        for server in servers
    ]
    assert names[0] == []
    assert len(set(names[1])) == 18
    assert all(is_token_volume(one) for pod in servers[1].list("pods") for one in pod.get("spec.volumes"))
