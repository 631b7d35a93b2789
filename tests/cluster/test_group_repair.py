"""A gang that lost a member, on a real API server with the rights of the chart: refilled, or evicted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from berth_bench.versus.real_servers import RealServers
from support.deployed import Deployed
from support.waiting import wait_until

pytestmark = pytest.mark.long

VALUES = {
    "podGroups": {"kubernetes": True},
    "config": {
        "profiles": [
            {
                "schedulerName": "berth",
                "pluginConfig": [
                    {"name": "GangScheduling", "args": {"repair": "Evict", "graceSeconds": 300}}
                ],
            }
        ],
        "leaderElection": {"leaderElect": False},
    },
    "replicaCount": 1,
}
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LEAST = 3


@pytest.fixture
def servers(
    empty_pod_group_servers: RealServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealServers]:
    """Yield a server with a gang of three, one on each of three nodes, which berth has placed."""
    servers = empty_pod_group_servers
    with Deployed(servers, tmp_path_factory.mktemp("berth"), VALUES) as berth:
        for i in range(LEAST):
            a_node(servers, f"n{i}")
        servers.create(
            GROUPS,
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": LEAST}}},
            },
        )
        for i in range(LEAST):
            a_member(servers, f"g-{i}")
        berth.lead()
        wait_until(lambda: len(placed(servers)) == LEAST, "the gang is placed")
        yield servers


def a_node(servers: RealServers, name: str) -> None:
    capacity = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    servers.create(NODES, {**made, "status": {"allocatable": capacity, "capacity": capacity}})


def a_member(servers: RealServers, name: str) -> None:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": "1"}}}
    servers.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "schedulerName": "berth",
                "schedulingGroup": {"podGroupName": "g"},
                "containers": [container],
            },
        },
    )


def pods(servers: RealServers) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in servers.request("GET", PODS)["items"]}


def placed(servers: RealServers) -> dict[str, str]:
    return {name: pod["spec"]["nodeName"] for name, pod in pods(servers).items() if "nodeName" in pod["spec"]}


def events(servers: RealServers, reason: str) -> list[dict[str, Any]]:
    items = servers.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return [event for event in items if event["reason"] == reason]


def lose(servers: RealServers, name: str) -> None:
    """Lose a member and its node."""
    servers.request("DELETE", f"{NODES}/{placed(servers)[name]}")
    servers.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def test_gang_that_lost_a_member_is_refilled_and_else_evicted_after_the_grace(servers: RealServers) -> None:
    lose(servers, "g-0")
    wait_until(lambda: events(servers, "GangLostMembers"), "the loss is told")
    (told,) = events(servers, "GangLostMembers")
    assert (told["regarding"]["kind"], told["regarding"]["name"]) == ("PodGroup", "g")
    a_node(servers, "n3")
    a_member(servers, "again")
    wait_until(lambda: placed(servers).get("again") == "n3", "the lost member is replaced")
    assert set(pods(servers)) == {"again", "g-1", "g-2"}

    lose(servers, "g-1")
    # Nothing comes, and the user does not want to wait any more.
    servers.request(
        "PATCH",
        f"{GROUPS}/g",
        {"metadata": {"annotations": {"gangs.berth.io/grace": "1ms"}}},
        content_type="application/merge-patch+json",
    )
    wait_until(
        lambda: all("deletionTimestamp" in pod["metadata"] for pod in pods(servers).values()),
        "the other members are evicted",
    )
    left = pods(servers)
    assert set(left) == {"again", "g-2"}  # without a kubelet they terminate for ever
    for pod in left.values():
        marks = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
        assert [(one["status"], one["reason"]) for one in marks] == [("True", "EvictionByGangRepair")]
    wait_until(lambda: len(events(servers, "GangEvicted")) == 3, "the evictions are told")
