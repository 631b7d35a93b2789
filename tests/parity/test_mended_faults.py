"""Faults of kube-scheduler 1.36 and 1.37 that this build corrects, unless it emulates a version.

Each is decided by a whole host, with the default plugins in process and served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.decision_host import decide
from support.served import default_plugin_server

Json = dict[str, Any]
VERSIONS = [pytest.param("", True, id="own"), ("1.37", False), ("1.36", False)]


@pytest.fixture(scope="module")
def plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as endpoint:
        yield endpoint


@pytest.fixture(params=["in_process", "served"])
def endpoint(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "in_process" else str(request.getfixturevalue("plugin_server"))


def node(name: str) -> Json:
    capacity = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": name, "kubernetes.io/hostname": name}},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def pod(name: str, namespace: str = "default", on: str = "", cpu: str = "1", **spec: Any) -> Json:
    made: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": 0,
            "containers": [{"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }
    if on:
        made["spec"]["nodeName"] = on
        made["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return made


def decided(record: Json, version: str, endpoint: str) -> Json:
    named = {"name": "mended", "category": "mended", "nodes": [node("a"), node("b")], **record}
    (result,) = asyncio.run(decide(named, version, endpoint))
    return result


@pytest.mark.parametrize(("version", "mended"), VERSIONS)
def test_empty_selector_of_a_spread_constraint_counts_every_pod(
    version: str, mended: bool, endpoint: str
) -> None:
    """kubernetes 141340."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }
    record: Json = {
        "pods": [pod("p1", on="a", cpu="10m")],
        "pod": pod("web", cpu="10m", topologySpreadConstraints=[constraint]),
    }
    record["pod"]["metadata"]["labels"] = {"app": "web"}
    assert decided(record, version, endpoint)["feasible"] == (["b"] if mended else ["a", "b"])


@pytest.mark.parametrize(("version", "mended"), VERSIONS)
def test_empty_selector_of_a_disruption_budget_covers_every_pod(
    version: str, mended: bool, endpoint: str
) -> None:
    """kubernetes 141785. The victim has no labels; the budget covers it all the same."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0},
    }
    record = {
        "pods": [pod("covered", on="a"), pod("free", "other", on="b")],
        "pod": pod("high", priority=10),
        "podDisruptionBudgets": [budget],
    }
    assert decided(record, version, endpoint)["preemption"]["nominated"] == ("b" if mended else "a")
