"""What-ifs of plugins that declared usage and no pods: the usage travels, and is the same as in process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.rpc.served.requests import encode_scenarios
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import NodeMode, Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import HostPort, Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, NodeView
from berth_sdk.testing import make_node, make_pod
from berth_sdk.wire import records as wire
from support.attached import PROFILE, ClusterState
from support.both_ways import both_ways

RESOURCES = ("cpu", "memory", "example.com/gpu", "example.com/asked-for-by-a-new-pod")
PORTS = (HostPort("", "TCP", 80), HostPort("10.0.0.1", "TCP", 81), HostPort("", "UDP", 80))


def told(nodes: NodeTable) -> list[str]:
    """Return all that the columns say about the usage of each row."""
    rows = np.stack(
        [
            *(nodes.requested(resource) for resource in RESOURCES),
            *nodes.requested_of(RESOURCES),
            nodes.non_zero_requested("cpu"),
            *nodes.non_zero_requested_of_both,
            nodes.pod_count,
            *(nodes.port_taken(port) for port in PORTS),
        ]
    )
    return [" ".join(map(str, row)) for row in rows.T.tolist()]


class ByColumns(Plugin):
    """Rejects each row with its usage."""

    needs: Sequence[Need] = (Need.nodes(),)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.of([Status.unschedulable(text) for text in told(nodes)])


class ByScenarios(ByColumns):
    """Looks at a part of the scenarios, too."""

    def filter_scenarios(self, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        assert told(scenarios.nodes)[::2] == told(scenarios.take(np.arange(len(scenarios)) % 2 == 0).nodes)
        return self.filter_nodes(state, pod, scenarios.nodes)


class ByName(ByScenarios):
    """Names the nodes."""

    node_mode = NodeMode.NAMES


class ByNode(Plugin):
    """Rejects each node with its usage."""

    needs: Sequence[Need] = (Need.nodes(),)

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        usage = node.usage
        ports = sorted((port.ip, port.protocol, port.port) for port in usage.host_ports)
        amounts = sorted(usage.requested.items()), sorted(usage.non_zero_requested.items())
        return Status.unschedulable(f"{amounts} {usage.pod_count} {ports}")


def port(number: int, ip: str = "", protocol: str = "TCP") -> dict[str, object]:
    return {"containerPort": 1, "hostPort": number, "hostIP": ip, "protocol": protocol}


def cluster() -> ClusterState:
    state = ClusterState()
    state.add_nodes(make_node(f"n{i}", cpu="8") for i in range(3))
    both = [port(80), port(81, "10.0.0.1")]
    state.put(make_pod("p0", uid="p0", cpu="1", memory="1Gi", host_ports=both), "n0")
    state.put(make_pod("p1", uid="p1", requests={"example.com/gpu": 2}, host_ports=[port(80)]), "n0")
    state.put(make_pod("p2", uid="p2"), "n0")
    state.put(make_pod("p3", uid="p3", cpu="3", host_ports=[port(80, protocol="UDP")]), "n1")
    return state


def questions(state: ClusterState) -> list[Scenario]:
    here = {pod.uid: pod for view in state.nodes for pod in view.pods}
    new = make_pod("new", uid="new", cpu="2", host_ports=[port(81)], requests={RESOURCES[-1]: 5})
    return [
        Scenario("n0"),
        Scenario("n0", removed=(here["p0"],)),
        Scenario("n0", removed=(here["p0"], here["p1"], here["p2"])),
        Scenario("n0", removed=(here["p0"],), added=(new,)),
        Scenario("n1", removed=(here["p3"],), added=(new,)),
        Scenario("n2", added=(new,)),
    ]


@pytest.mark.parametrize("cls", [ByColumns, ByScenarios, ByName, ByNode])
async def test_usage_without_declared_pods_is_the_same_in_process_and_served(cls: type) -> None:
    state = cluster()
    async with both_ways(cls, state) as ways:
        answers = []
        for client in ways.clients:
            cycle = Cycle("one", make_pod("web", uid="web"), PROFILE, version=state.version, budget_s=30.0)
            verdicts = await client.filter_scenarios(cycle, Scenarios(state.nodes, questions(state)))
            answers.append([status.message for status in verdicts.to_list()])
    assert answers[0] == answers[1]
    # The last two nodes are equal after the change.
    assert len(set(answers[0])) == 5


async def test_served_plugin_counts_pods_and_ports_of_each_scenario() -> None:
    state = cluster()
    async with both_ways(ByNode, state) as ways:
        cycle = Cycle("one", make_pod("web", uid="web"), PROFILE, version=state.version, budget_s=30.0)
        verdicts = await ways.served.filter_scenarios(cycle, Scenarios(state.nodes, questions(state)[1:5:3]))
    first, second = (status.message for status in verdicts.to_list())
    # Two pods had the port 80: as in kube-scheduler, the first that leaves frees it.
    assert first.endswith(" 2 []")
    assert second.endswith(" 1 [('0.0.0.0', 'TCP', 81)]")


@pytest.mark.parametrize("mode", list(NodeMode))
def test_usage_travels_if_it_was_declared_and_equals_the_usage_of_the_record(mode: NodeMode) -> None:
    state = cluster()
    scenarios = Scenarios(state.nodes, questions(state))
    without = encode_scenarios(scenarios, mode, whole=False, usage=False)
    assert not any(message.node.HasField("usage") for message in without)
    messages = encode_scenarios(scenarios, mode, whole=False, usage=True)
    assert [wire.decode_usage(message.node.usage) for message in messages] == [
        scenarios.nodes.node(i).usage for i in range(len(scenarios))
    ]
