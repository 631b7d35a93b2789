"""Groups that are equal for a plugin have equal signatures; where answers are not declared, there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from berth_host.attempt.group_cycle import GroupCycle
from berth_host.framework.group_signature import OF_NODES, OF_ROWS, group_signature
from berth_host.rpc.client import PluginClient
from berth_sdk.extension_points import DependsOn
from berth_sdk.pod_fields import PodField
from berth_sdk.pod_group import GroupView, PodGroup
from berth_sdk.testing.builders import make_pod
from support.frameworks import framework_of, table_of

NODES = table_of("n0", "n1")
GROUP = PodGroup(name="a", uid="1", is_gang=True, min_count=2)
PODS = (make_pod("a-0", uid="a-0", cpu="1"), make_pod("a-1", uid="a-1", cpu="1"))


def client_of(depends_on: DependsOn | None, sign_fields: Sequence[PodField] | None = None) -> PluginClient:
    answers = {"placement_score": lambda self, *rest: 1, "depends_on": depends_on}
    plugin = type("Ranks", (), {**answers, "sign_fields": sign_fields})()
    return framework_of([plugin]).clients[0]


def signed(client: PluginClient, group: PodGroup = GROUP, pods: Any = PODS, **more: Any) -> Any:
    view = GroupView(group, tuple(pods), **more)
    return group_signature(client, GroupCycle("g", view, "default-scheduler", nodes=NODES), OF_ROWS)


def test_groups_that_differ_in_identity_alone_are_equal() -> None:
    client = client_of(DependsOn.ROW, (PodField.REQUESTS,))
    other = [replace(pod, name=f"b-{i}", uid=f"b-{i}", labels={"of": "b"}) for i, pod in enumerate(PODS)]
    assert signed(client) is not None
    assert signed(client, replace(GROUP, name="b", uid="2", resource_version="9"), other) == signed(client)


@pytest.mark.parametrize(
    "change",
    [{"labels": {"team": "b"}}, {"min_count": 1}, {"priority": 7}, {"topology_key": "rack"}, {"wait_s": 1.0}],
)
def test_groups_that_differ_in_what_a_plugin_may_read_are_not_equal(change: dict[str, Any]) -> None:
    client = client_of(DependsOn.ROW, ())
    assert signed(client, replace(GROUP, **change)) != signed(client)


def test_members_count_by_the_plugin_s_own_signature() -> None:
    bigger = [PODS[0], make_pod("a-1", uid="a-1", cpu="2")]
    reads, reads_nothing = client_of(DependsOn.ROW, (PodField.REQUESTS,)), client_of(DependsOn.ROW, ())
    assert signed(reads, pods=bigger) != signed(reads)
    assert signed(reads_nothing, pods=bigger) == signed(reads_nothing)
    assert signed(reads_nothing, pods=PODS[:1]) != signed(reads_nothing)


def test_a_requeue_of_the_plugin_ends_what_was_kept() -> None:
    client = client_of(DependsOn.ROW, ())
    before = signed(client)
    assert client.follows is not None
    client.follows.forget()
    assert signed(client) != before


def test_without_a_declaration_and_with_members_on_nodes_there_is_no_signature() -> None:
    assert signed(client_of(None)) is None
    assert signed(client_of(DependsOn.OTHER)) is None
    assert signed(client_of(DependsOn.TABLE)) is None
    assert signed(client_of(DependsOn.ROW), scheduled=PODS[:1]) is None
    assert signed(client_of(DependsOn.ROW), replace(GROUP, claims=(("gpu", "claim"),))) is None
    cycle = GroupCycle("g", GroupView(GROUP, PODS), "default-scheduler", nodes=NODES)
    assert group_signature(client_of(DependsOn.ROW), cycle, OF_NODES) is None
