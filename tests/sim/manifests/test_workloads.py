"""Pods as the controllers of workloads create them: names, owners, labels, counts, claims."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sim.manifests.workloads import claims_of, pods_of, replica_set_of
from support.manifest_objects import workload_object


def stored(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    workload = workload_object(kind, name, **spec)
    workload["metadata"] |= {"namespace": "shop", "uid": f"uid-{name}"}
    return workload


def names(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_pods_are_named_by_ordinal_from_zero(kind: str) -> None:
    pods = pods_of(stored(kind, "web", replicas=3), "web")
    assert names(pods) == ["web-0", "web-1", "web-2"]
    assert {pod["metadata"]["namespace"] for pod in pods} == {"shop"}


def test_one_replica_is_the_default_and_zero_is_none() -> None:
    assert names(pods_of(stored("ReplicaSet", "web"), "web")) == ["web-0"]
    assert pods_of(stored("ReplicaSet", "web", replicas=0), "web") == []


def test_pods_are_controlled_by_their_workload() -> None:
    (pod,) = pods_of(stored("StatefulSet", "db"), "db")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "db",
        "uid": "uid-db",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_deployment_makes_a_replica_set_whose_hash_is_on_its_pods() -> None:
    made = replica_set_of(stored("Deployment", "web", replicas=2))
    suffix = made["metadata"]["labels"]["pod-template-hash"]
    assert made["metadata"]["name"] == f"web-{suffix}"
    assert made["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": suffix}
    assert made["spec"]["replicas"] == 2
    made["metadata"]["uid"] = "uid-rs"
    pods = pods_of(made, "web")
    assert names(pods) == ["web-0", "web-1"]
    assert pods[0]["metadata"]["labels"] == {"app": "web", "pod-template-hash": suffix}
    assert pods[0]["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"


def test_hash_depends_on_the_template_alone() -> None:
    first = replica_set_of(stored("Deployment", "web", replicas=2))
    more = replica_set_of(stored("Deployment", "web", replicas=5))
    other = replica_set_of(stored("Deployment", "web", template={"priorityClassName": "x"}))
    assert first["metadata"]["name"] == more["metadata"]["name"] != other["metadata"]["name"]


def test_stateful_pods_have_their_labels_and_claims() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    stateful = stored("StatefulSet", "db", replicas=2, volumeClaimTemplates=[template])
    pods = pods_of(stateful, "db")
    labels = pods[1]["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert labels["apps.kubernetes.io/pod-index"] == "1"
    want = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}]
    assert pods[1]["spec"]["volumes"] == want
    claims = claims_of(stateful, names(pods))
    assert names(claims) == ["data-db-0", "data-db-1"]
    assert claims[0]["spec"] == {"accessModes": ["ReadWriteOnce"]}


def test_stateful_ordinals_may_start_later() -> None:
    assert names(pods_of(stored("StatefulSet", "db", replicas=2, ordinals={"start": 5}), "db")) == [
        "db-5",
        "db-6",
    ]


@pytest.mark.parametrize(
    ("spec", "succeeded", "want"),
    [
        pytest.param({}, 0, 1, id="one by default"),
        pytest.param({"parallelism": 3}, 0, 3, id="a work queue"),
        pytest.param({"parallelism": 3, "completions": 10}, 0, 3, id="as many as at once"),
        pytest.param({"parallelism": 30, "completions": 10}, 0, 10, id="not more than are due"),
        pytest.param({"parallelism": 30, "completions": 10}, 8, 2, id="not those that are done"),
        pytest.param({"parallelism": 0, "completions": 10}, 0, 0, id="paused by parallelism"),
        pytest.param({"parallelism": 3, "suspend": True}, 0, 0, id="suspended"),
    ],
)
def test_job_has_as_many_pods_as_run_at_once(spec: dict[str, Any], succeeded: int, want: int) -> None:
    assert len(pods_of(stored("Job", "sum", **spec), "sum", (), succeeded)) == want


def test_job_that_is_over_has_no_pods() -> None:
    job = stored("Job", "sum") | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert pods_of(job, "sum") == []


def test_indexed_job_pods_know_their_index() -> None:
    job = stored("Job", "sum", parallelism=2, completions=2, completionMode="Indexed")
    index = "batch.kubernetes.io/job-completion-index"
    assert [pod["metadata"]["annotations"][index] for pod in pods_of(job, "sum")] == ["0", "1"]
    assert pods_of(job, "sum")[0]["metadata"]["labels"]["job-name"] == "sum"


def test_pods_that_are_there_count_and_keep_their_names() -> None:
    workload = stored("ReplicaSet", "web", replicas=3)
    assert names(pods_of(workload, "web", {"web-1", "web-x8k2p"})) == ["web-0"]
    assert pods_of(workload, "web", {"a", "b", "c", "d"}) == []
