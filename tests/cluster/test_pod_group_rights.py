"""The chart's rights on pod groups suffice to start with the gate; a missing one is named at the start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from berth_bench.versus.real_servers import RealServers
from support.deployed import Deployed, put
from support.waiting import wait_until

pytestmark = pytest.mark.long

VALUES = {
    "podGroups": {"kubernetes": True},
    "config": {"profiles": [{"schedulerName": "berth"}], "leaderElection": {"leaderElect": False}},
    "replicaCount": 1,
}


@pytest.fixture
def berth(
    empty_pod_group_servers: RealServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    """Put the chart's objects on a server with pod groups; no scheduler runs."""
    folder = tmp_path_factory.mktemp("berth")
    with Deployed(empty_pod_group_servers, folder, VALUES) as deployed:
        yield deployed


def test_scheduler_with_pod_groups_starts_with_the_rights_of_the_chart(berth: Deployed) -> None:
    berth.lead()


def test_missing_right_on_pod_groups_is_named_at_the_start(berth: Deployed) -> None:
    role = berth.manifest("ClusterRole", "kube-system:berth")
    rules = [rule for rule in role["rules"] if "podgroups" not in rule["resources"]]
    assert len(rules) == len(role["rules"]) - 1
    put(berth.servers, {**role, "rules": rules})
    process = berth.start("without-pod-groups")
    wait_until(lambda: process.ended_with is not None, "the scheduler ends")
    assert process.ended_with == 1
    assert "missing RBAC rights: list, watch podgroups.scheduling.k8s.io" in process.said
