"""NodePorts: conflicts by address, protocol and port, and the pods that free them."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.node_ports import NodePorts
from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import Ask, Plug

PLUG = Plug(NodePorts)
REJECTED = Status.unschedulable("node(s) didn't have free ports for the requested pod ports")


def port(number: int, ip: str | None = None, protocol: str | None = None) -> dict[str, Any]:
    raw: dict[str, Any] = {"containerPort": number, "hostPort": number}
    if ip is not None:
        raw["hostIP"] = ip
    if protocol is not None:
        raw["protocol"] = protocol
    return raw


@pytest.mark.parametrize(
    ("used", "wanted", "conflict"),
    [
        pytest.param(port(80), port(80), True, id="same port everywhere"),
        pytest.param(port(80), port(81), False, id="other port"),
        pytest.param(port(80), port(80, protocol="UDP"), False, id="other protocol"),
        pytest.param(port(80, protocol="TCP"), port(80), True, id="missing protocol is TCP"),
        pytest.param(port(80, "10.0.0.1"), port(80, "10.0.0.2"), False, id="two addresses"),
        pytest.param(port(80, "10.0.0.1"), port(80, "10.0.0.1"), True, id="same address"),
        pytest.param(port(80, "10.0.0.1"), port(80), True, id="missing address is every address"),
        pytest.param(port(80, "0.0.0.0"), port(80, "10.0.0.1"), True, id="every address is in use"),
        pytest.param(port(80, "10.0.0.1"), port(80, "0.0.0.0"), True, id="every address is wanted"),
    ],
)
async def test_ports_conflict_by_address_protocol_and_number(
    ask: Ask, used: dict[str, Any], wanted: dict[str, Any], conflict: bool
) -> None:
    nodes = make_table([make_node("a"), make_node("b")], [make_pod("old", node="b", host_ports=[used])])
    got = await ask.filter(PLUG, make_pod("web", host_ports=[wanted]), nodes)
    assert got == [Status.success(), REJECTED if conflict else Status.success()]


async def test_pod_without_host_ports_skips(ask: Ask) -> None:
    nodes = make_table([make_node("a")])
    containers = [{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 0}]}]
    result = await ask.pre_filter(PLUG, make_pod("web", containers=containers), nodes)
    assert result.status.code is Code.SKIP


async def test_only_restartable_init_containers_claim_ports(ask: Ask) -> None:
    nodes = make_table([make_node("a")], [make_pod("old", node="a", host_ports=[80])])
    plain = [{"name": "i", "ports": [port(80)]}]
    sidecar = [{"name": "i", "restartPolicy": "Always", "ports": [port(80)]}]
    assert await ask.filter(PLUG, make_pod("web", init_containers=plain), nodes) == [Status.success()]
    assert await ask.filter(PLUG, make_pod("web", init_containers=sidecar), nodes) == [REJECTED]


async def test_removing_one_of_two_identical_entries_frees_the_port(ask: Ask) -> None:
    held = [make_pod(name, node="a", host_ports=[80, 80]) for name in ("one", "two")]
    nodes = make_table([make_node("a")], held)
    scenarios = Scenarios(nodes, [Scenario("a", removed=(held[0],)), Scenario("a")])
    got = await ask.scenarios(PLUG, make_pod("web", host_ports=[80]), scenarios)
    assert got == [Status.success(), REJECTED]


async def test_preemption_must_evict_every_lower_pod_with_the_port(ask: Ask) -> None:
    held = [make_pod(name, node="a", host_ports=[80], priority=1) for name in ("one", "two")]
    held += [make_pod("high", node="a", host_ports=[80], priority=9), make_pod("other", node="a", priority=1)]
    nodes = make_table([make_node("a"), make_node("b")], held)
    one, two, _, other = held
    left = [(one, two, other), (two, other), (one, other), (one, two), (other,), ()]
    scenarios = Scenarios(nodes, [*(Scenario("a", removed=gone) for gone in left), Scenario("b")])
    got = await ask.scenarios(PLUG, make_pod("web", host_ports=[80], priority=5), scenarios)
    # Pods of higher priority keep the port only as long as no lower one leaves that had it as well.
    rejected = [False, True, True, False, True, True, False]
    assert got == [REJECTED if wrong else Status.success() for wrong in rejected]


@pytest.mark.parametrize(
    ("gone", "want"),
    [
        pytest.param(make_pod("old", host_ports=[80]), False, id="neither bound nor nominated"),
        pytest.param(make_pod("old", node="a", host_ports=[80]), True, id="bound"),
        pytest.param(make_pod("old", nominated="a", host_ports=[80]), True, id="nominated"),
        pytest.param(make_pod("old", node="a", host_ports=[81]), False, id="other port"),
        pytest.param(make_pod("old", node="a"), False, id="no ports"),
    ],
)
async def test_hint_for_a_deleted_pod(ask: Ask, gone: Pod, want: bool) -> None:
    event = ClusterEvent(resource="Pod", action="delete", old=gone)
    assert await ask.hint(PLUG, event, make_pod("web", host_ports=[80])) is want
