"""Write scenarios.json: scenarios of SimulateFilter, and what their nodes have free.

    python proto/write_vectors.py scenarios

The expected usage is computed here from the amounts of the pods alone, without the code of host or SDK.
`tests/contract/test_vectors.py` compares the host's messages and the SDK's columns with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from vectors.writing import written

GI: Final = 2**30
MI: Final = 2**20
_DEFAULT_CPU: Final = 100
_DEFAULT_MEMORY: Final = 200 * MI
"""The amounts that a container without a request adds to non_zero_requested."""


@dataclass(frozen=True)
class PodAmounts:
    """The requests of one pod. `non_zero`: the amounts in non_zero_requests. `port`: hostPort; 0: none."""

    requests: dict[str, int]
    non_zero: dict[str, int] = field(default_factory=dict)
    port: int = 0


_PODS: Final = {
    "small": PodAmounts({"cpu": 500, "memory": GI}),
    "large": PodAmounts({"cpu": 3000, "memory": 6 * GI}),
    "no-requests": PodAmounts({}, {"cpu": _DEFAULT_CPU, "memory": _DEFAULT_MEMORY}),
    "memory-alone": PodAmounts({"memory": 2 * GI}, {"cpu": _DEFAULT_CPU}),
    "explicit-zero": PodAmounts({"cpu": 0, "memory": 0}),
    "gpu": PodAmounts({"cpu": 1000, "memory": GI, "example.com/gpu": 2}),
    "port": PodAmounts({"cpu": 100, "memory": 64 * MI}, port=8080),
    "same-port": PodAmounts({"cpu": 100, "memory": 64 * MI}, port=8080),
}
_NODES: Final[tuple[tuple[int, str, dict[str, int], tuple[str, ...]], ...]] = (
    (0, "n0", {"cpu": 4000, "memory": 8 * GI, "pods": 110}, ("small", "no-requests")),
    (1, "n1", {"cpu": 8000, "memory": 16 * GI, "pods": 3, "example.com/gpu": 4}, ("large", "gpu")),
    (9, "n9", {"cpu": 2000, "memory": 4 * GI, "pods": 110}, ()),
    (10, "n10", {"cpu": 2000, "memory": 4 * GI, "pods": 110}, ("port",)),
)
"""Index, name, allocatable and pods of each node."""
_SCENARIOS: Final[tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("the node with index 0, as it is", "n0", (), ()),
    ("one pod goes", "n1", ("large",), ()),
    ("one pod comes", "n0", (), ("large",)),
    ("one goes, another one comes", "n1", ("gpu",), ("small",)),
    ("one goes, two come", "n0", ("small",), ("gpu", "memory-alone")),
    ("all pods go: the usage is there, and is 0", "n1", ("large", "gpu"), ()),
    ("no pod, and none comes", "n9", (), ()),
    ("a pod that requests nothing", "n9", (), ("explicit-zero",)),
    ("a pod with defaults for what it does not request", "n9", (), ("no-requests",)),
    ("more than the node has", "n9", (), ("large",)),
    ("more pods than the node takes", "n1", (), ("small", "explicit-zero")),
    ("a host port is free again", "n10", ("port",), ()),
    ("a host port of two pods is one", "n10", (), ("same-port",)),
)
"""Name, node, pods that go, and pods that come."""


def document() -> dict[str, Any]:
    """Return the content of scenarios.json."""
    return {
        "source": "ScenarioNode in scheduling.proto; written by proto/write_vectors.py",
        "pods": [{"name": name, "summary": written(_summary(name))} for name in _PODS],
        "state": written(_state()),
        "scenarios": [_scenario(*row) for row in _SCENARIOS],
    }


def _scenario(name: str, node_name: str, gone: Sequence[str], come: Sequence[str]) -> dict[str, Any]:
    index, _, allocatable, here = next(row for row in _NODES if row[1] == node_name)
    usage = _usage([pod for pod in here if pod not in gone] + list(come))
    changed = scheduling_pb2.ScenarioNode(
        removed=[_ref(pod) for pod in gone],
        added=[pb.PodState(pod=_summary(pod)) for pod in come],
        usage=usage,
    )
    by_index, by_name = scheduling_pb2.Scenario(node=changed), scheduling_pb2.Scenario(node=changed)
    by_index.node.node_index = index
    by_name.node.node_name = node_name
    free = {
        key: amount - (usage.pod_count if key == "pods" else usage.requested.get(key, 0))
        for key, amount in allocatable.items()
    }
    return {
        "name": name,
        "node": node_name,
        "removed": list(gone),
        "added": list(come),
        "by_index": written(by_index),
        "by_name": written(by_name),
        "free": dict(sorted(free.items())),
    }


def _state() -> pb.StateDelta:
    """Return the full state, with summaries, usage and pods."""
    made = pb.StateDelta(target=pb.StateVersion(epoch=7, generation=len(_NODES)), node_count=len(_NODES))
    for generation, (index, name, allocatable, here) in enumerate(_NODES, 1):
        made.upserts.add(
            index=index,
            generation=generation,
            name=name,
            summary=pb.NodeSummary(allocatable=allocatable),
            usage=_usage(here),
            pods=[pb.PodState(pod=_summary(pod)) for pod in here],
            pods_complete=True,
        )
        made.generation_sum += generation
    return made


def _usage(pods: Sequence[str]) -> pb.NodeUsage:
    """Return the sum. A total of 0 has no key."""
    requested: dict[str, int] = {}
    non_zero: dict[str, int] = {}
    ports = set()
    for pod in pods:
        amounts = _PODS[pod]
        for key, amount in amounts.requests.items():
            requested[key] = requested.get(key, 0) + amount
        for key in ("cpu", "memory"):
            amount = amounts.non_zero.get(key, amounts.requests.get(key, 0))
            non_zero[key] = non_zero.get(key, 0) + amount
        ports |= {amounts.port} - {0}
    return pb.NodeUsage(
        requested={key: amount for key, amount in requested.items() if amount},
        non_zero_requested={key: amount for key, amount in non_zero.items() if amount},
        pod_count=len(pods),
        host_ports=[_port(port) for port in sorted(ports)],
    )


def _summary(name: str) -> pb.PodSummary:
    amounts = _PODS[name]
    ports = [_port(amounts.port)] if amounts.port else []
    return pb.PodSummary(
        ref=_ref(name), requests=amounts.requests, non_zero_requests=amounts.non_zero, host_ports=ports
    )


def _port(number: int) -> pb.HostPort:
    return pb.HostPort(ip="0.0.0.0", protocol="TCP", port=number)


def _ref(name: str) -> pb.ObjectRef:
    return pb.ObjectRef(namespace="default", name=name, uid=f"uid-{name}")
