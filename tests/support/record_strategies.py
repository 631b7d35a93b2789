"""Hypothesis strategies for the SDK's records: pods, nodes, usages, as ingest makes them."""

from __future__ import annotations

from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node, NodeImage, Taint
from berth_sdk.pod import HostPort, OwnerRef, Pod, Toleration
from berth_sdk.tables import NodeUsage
from hypothesis import strategies as st

WORDS = st.sampled_from(["", "a", "b", "zone-1", "ü"])
NAMES = st.sampled_from(["alpha", "beta", "gamma"])
LABELS = st.dictionaries(st.sampled_from(["app", "tier", "example.com/x"]), WORDS, max_size=3)
AMOUNTS = st.integers(0, 2**62)
RESOURCES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/gpu"]), AMOUNTS, max_size=4
)
HOST_PORTS = st.builds(
    HostPort,
    st.sampled_from(["", "0.0.0.0", "10.0.0.1"]),
    st.sampled_from(["", "UDP"]),
    st.integers(1, 65535),
)
TIMES_S = st.none() | st.integers(0, 2**32 * 10**6).map(lambda microseconds: microseconds / 10**6)
OBJECTS = st.none() | st.builds(
    lambda text: KubeObject("v1", "Thing", raw=b'{"x":"%s"}' % text.encode()), WORDS
)


@st.composite
def pods(draw: st.DrawFn, name: str = "", node_name: str = "") -> Pod:
    """Any pod; its three maps of requests fit together as those of a real one."""
    requests = draw(RESOURCES)
    non_zero = {
        "cpu": requests.get("cpu") or draw(st.sampled_from([100, 200])),
        "memory": requests.get("memory") or draw(st.sampled_from([200, 400])),
    }
    score = draw(st.sampled_from([{**requests, **non_zero}, {"cpu": 100, "memory": 7}]))
    name = name or draw(NAMES)
    return Pod(
        name=name,
        namespace=draw(NAMES),
        uid=f"uid-{name}",
        resource_version=draw(WORDS),
        labels=draw(LABELS),
        annotations=draw(LABELS),
        priority=draw(st.integers(-(2**31), 2**31 - 1)),
        requests=requests,
        non_zero_requests=non_zero,
        score_requests=score,
        node_selector=draw(LABELS),
        tolerations=tuple(draw(st.lists(st.builds(Toleration, WORDS, WORDS, WORDS, WORDS), max_size=2))),
        owner=draw(st.none() | st.builds(OwnerRef, WORDS, WORDS, WORDS, WORDS)),
        scheduler_name=draw(NAMES),
        node_name=node_name or draw(WORDS),
        nominated_node=draw(WORDS),
        scheduling_gates=tuple(draw(st.lists(NAMES, max_size=2))),
        host_ports=tuple(draw(st.lists(HOST_PORTS, max_size=2))),
        images=tuple(draw(st.lists(WORDS, max_size=3))),
        claims=tuple(draw(st.lists(NAMES, max_size=2))),
        never_preempts=draw(st.booleans()),
        terminating=draw(st.booleans()),
        created_at_s=draw(TIMES_S),
        started_at_s=draw(TIMES_S),
        group_key=draw(st.sampled_from(["", "podgroup/default/g"])),
    )


@st.composite
def nodes(draw: st.DrawFn, name: str = "") -> Node:
    """Any node, without what its summary does not carry (uid, resource version, JSON)."""
    return Node(
        name=name or draw(NAMES),
        labels=draw(LABELS),
        annotations=draw(LABELS),
        taints=tuple(draw(st.lists(st.builds(Taint, NAMES, WORDS, WORDS), max_size=2))),
        unschedulable=draw(st.booleans()),
        allocatable=draw(RESOURCES),
        images=tuple(
            draw(st.lists(st.builds(NodeImage, st.lists(NAMES, max_size=2).map(tuple), AMOUNTS), max_size=2))
        ),
        declared_features=tuple(draw(st.lists(NAMES, max_size=2, unique=True))),
    )


USAGES = st.builds(
    NodeUsage,
    requested=RESOURCES,
    non_zero_requested=RESOURCES,
    pod_count=st.integers(0, 500),
    host_ports=st.frozensets(HOST_PORTS, max_size=3),
)
