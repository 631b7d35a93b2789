"""Default plugins say which waiting pods an event may help: never too few, and few where it matters."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

import pytest
from berth_plugins.node_affinity import NodeAffinity
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.pod_topology_spread.plugin import PodTopologySpread
from berth_plugins.volumes.volume_binding.plugin import VolumeBinding
from berth_sdk.events import ClusterEvent, EventObject
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import make_table
from berth_sdk.testing.handle import RecordingHandle
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

Json = dict[str, Any]
KINDS = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "services",
    "replicationcontrollers",
    "apps/replicasets",
    "apps/statefulsets",
    "storage.k8s.io/storageclasses",
    "storage.k8s.io/csinodes",
    "storage.k8s.io/csidrivers",
    "storage.k8s.io/csistoragecapacities",
    "resource.k8s.io/deviceclasses",
)


def plugin_of(cls: Any, args: Mapping[str, Any] | None = None) -> Any:
    return cls(args or {}, RecordingHandle(lambda: make_table([]), {kind: ObjectStore() for kind in KINDS}))


def a_pod(name: str, namespace: str = "default", *, labels: Json | None = None, **spec: Any) -> Pod:
    requests = spec.pop("requests", {"cpu": "1"})
    status = {"nominatedNodeName": spec.pop("nominated", "")}
    return Pod.from_object(
        KubeObject.of(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{namespace}-{name}",
                    "labels": labels or {},
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
                "status": status,
            }
        )
    )


def a_node(labels: Json | None = None, taints: Iterable[Json] = (), **offered: Any) -> Node:
    if "gpus" in offered:
        offered["example.com/gpu"] = offered.pop("gpus")
    return Node.from_object(
        KubeObject.of(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n1", "labels": labels or {}},
                "spec": {"taints": list(taints)},
                "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"} | offered},
            }
        )
    )


def changes(resource: str, states: Iterable[EventObject]) -> list[ClusterEvent]:
    """Return all events between these states, with additions and deletions."""
    found = list(states)
    return [
        ClusterEvent(
            resource=resource,
            action="update" if old and new else "add" if new else "delete",
            old=old,
            new=new,
        )
        for old, new in itertools.product([None, *found], [None, *found])
        if old is not None or new is not None
    ]


def shown(events: list[ClusterEvent]) -> list[ClusterEvent]:
    """Return the events without deletions."""
    return [event for event in events if event.new is not None]


def known(events: list[ClusterEvent]) -> list[ClusterEvent]:
    """Return the events without additions."""
    return [event for event in events if event.old is not None]


def term(key: str, *values: str, operator: str = "In") -> Json:
    return {
        "matchExpressions": [{"key": key, "operator": operator, **({"values": values} if values else {})}]
    }


def affinity(*terms: Json) -> Json:
    required = {"nodeSelectorTerms": [*terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def spread(app: str, key: str = "zone", **more: Any) -> list[Json]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
            **more,
        }
    ]


NODES = [
    a_node(),
    a_node({"zone": "a"}),
    a_node({"zone": "b", "disk": "ssd"}),
    a_node({"zone": "a", "x": ""}, [{"key": "k", "effect": "NoSchedule"}]),
    a_node(cpu="5"),
    a_node(cpu="5", memory="1Gi", gpus="2"),
    a_node(cpu="1", pods="20"),
    a_node(pods="0"),
]
OTHERS = [
    a_pod("other", labels={"app": "web"}),
    a_pod("other", labels={"app": "web"}, nodeName="n1"),
    a_pod("other", labels={"app": "db"}, nodeName="n1", requests={"cpu": "100m", "memory": "1Gi"}),
    a_pod("other", labels={"app": "db"}, nodeName="n1", requests={}),
]
FIT_PODS = [
    a_pod("small"),
    a_pod("none", requests={}),
    a_pod("large", requests={"cpu": "4"}),
    a_pod("huge", requests={"cpu": "9223372036854775807", "memory": "9223372036854775807"}),
    a_pod("gpu", requests={"example.com/gpu": "1"}),
    a_pod("nominated", nominated="n1", requests={"cpu": "4"}),
]
AFFINE_PODS = [
    a_pod("plain"),
    a_pod("zone", nodeSelector={"zone": "a"}),
    a_pod("empty", nodeSelector={"x": ""}),
    a_pod("two", nodeSelector={"zone": "b", "disk": "ssd"}),
    a_pod("either", affinity=affinity(term("zone", "a", "b"), term("disk", "ssd"))),
    a_pod("not", affinity=affinity(term("zone", "a", operator="NotIn"))),
    a_pod("exists", affinity=affinity(term("zone", "b"), term("zone", operator="Exists"))),
    a_pod("unreadable", affinity=affinity(term("zone", "c"), term("-", "a"))),
    a_pod("nothing", affinity=affinity({})),
    a_pod("both", nodeSelector={"disk": "ssd"}, affinity=affinity(term("zone", "b"))),
]
SPREAD_PODS = [
    a_pod("web", labels={"app": "web"}, topologySpreadConstraints=spread("web")),
    a_pod("db", topologySpreadConstraints=spread("db", "disk", nodeTaintsPolicy="Honor")),
    a_pod("far", "elsewhere", topologySpreadConstraints=spread("web")),
    a_pod("picky", topologySpreadConstraints=spread("none"), nodeSelector={"disk": "ssd"}),
    a_pod(
        "any", topologySpreadConstraints=spread("none", nodeAffinityPolicy="Ignore"), nodeSelector={"x": ""}
    ),
    a_pod(
        "either",
        topologySpreadConstraints=spread(
            "",
            labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
        ),
    ),
    a_pod("unreadable", topologySpreadConstraints=spread("-/-/-")),
]


def stored(kind: str, name: str, **fields: Any) -> KubeObject:
    metadata = {"name": name, "uid": f"uid-{name}", **fields.pop("metadata", {})}
    return KubeObject.of({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})


def volumes(**named: Json) -> list[Json]:
    return [{"name": name, **source} for name, source in named.items()]


VOLUME_PODS = [
    a_pod("claims", volumes=volumes(v={"persistentVolumeClaim": {"claimName": "c"}})),
    a_pod("made", volumes=volumes(v={"ephemeral": {"volumeClaimTemplate": {}}})),
    a_pod("inline", volumes=volumes(v={"csi": {"driver": "d"}})),
    a_pod("plain"),
]
CLAIMS = [
    stored("PersistentVolumeClaim", name, metadata={"namespace": namespace})
    for name, namespace in (("c", "default"), ("made-v", "default"), ("other", "default"), ("c", "elsewhere"))
]
CLAIM_EVENTS = [event for one in CLAIMS for event in shown(changes("PersistentVolumeClaim", [one]))]
CLASS_STATES = [stored("StorageClass", "s"), stored("StorageClass", "s", allowedTopologies=[{}])]
DRIVERS = [stored("CSIDriver", "d"), stored("CSIDriver", "d", spec={"storageCapacity": True})]
VOLUME_EVENTS = [
    *CLAIM_EVENTS,
    *shown(changes("storage.k8s.io/StorageClass", CLASS_STATES)),
    *shown(known(changes("storage.k8s.io/CSIDriver", DRIVERS))),
]
CASES = {
    "NodeResourcesFit": (
        NodeResourcesFit,
        FIT_PODS,
        [*shown(changes("Node", NODES)), *known(changes("Pod", OTHERS))],
    ),
    "NodeAffinity": (NodeAffinity, AFFINE_PODS, shown(changes("Node", NODES))),
    "PodTopologySpread": (PodTopologySpread, SPREAD_PODS, [*changes("Node", NODES), *changes("Pod", OTHERS)]),
    "VolumeBinding": (VolumeBinding, VOLUME_PODS, [*VOLUME_EVENTS, *known(changes("Pod", OTHERS[1:2]))[1:]]),
}
"""By plugin: its class, waiting pods, and events of its interest."""


def named(plugin: Any, event: ClusterEvent, pod: Pod) -> bool:
    """Return True if the host calls the hint about this pod."""
    try:
        found = plugin.pre_queueing_hint(event)
    except Exception:  # noqa: BLE001 (counts as all pods: version 1.36 has no interest in deleted pods)
        return True
    if found is None:
        return True
    try:
        keys = plugin.hint_keys(pod)
    except Exception:  # noqa: BLE001 (the host takes such keys for unknown)
        keys = None
    if callable(found):
        return keys is None or any(map(found, keys))
    return bool(found) if keys is None else bool({*found} & {*keys})


def helps(plugin: Any, event: ClusterEvent, pod: Pod) -> bool:
    """Return the hint; True where it raises."""
    try:
        answer = plugin.queueing_hint(event, pod)
    except Exception:  # noqa: BLE001 (counts as Queue)
        return True
    assert not isinstance(answer, Awaitable)
    return bool(answer)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_every_pod_that_an_event_may_help_is_named(name: str, exact: bool) -> None:
    cls, pods, events = CASES[name]
    plugin = plugin_of(cls, {} if exact else {"featureGates": {"ExactQueueingHints": False}})
    for event in events:
        missed = [pod.name for pod in pods if helps(plugin, event, pod) and not named(plugin, event, pod)]
        assert missed == [], event


@pytest.mark.parametrize("name", CASES)
def test_most_pods_that_an_event_does_not_help_are_not_named(name: str) -> None:
    cls, pods, events = CASES[name]
    plugin = plugin_of(cls)
    asked = [(event, pod) for event in events for pod in pods if not helps(plugin, event, pod)]
    in_vain = sum(named(plugin, event, pod) for event, pod in asked)
    assert in_vain < 0.6 * len(asked)


LABELS = st.dictionaries(st.sampled_from(["app", "tier", "zone"]), st.sampled_from(["a", "b"]), max_size=3)
EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, values: {"key": key, "operator": "In", "values": sorted(values)},
        st.sampled_from(["app", "tier", "zone"]),
        st.sets(st.sampled_from(["a", "b"]), min_size=1),
    ),
    st.sampled_from(
        [
            {"key": "app", "operator": "NotIn", "values": ["a"]},
            {"key": "tier", "operator": "Exists"},
            {"key": "zone", "operator": "DoesNotExist"},
            {"key": "-", "operator": "Exists"},
        ]
    ),
)
SELECTORS = st.one_of(
    st.none(),
    st.builds(
        lambda labels, more: {"matchLabels": labels, "matchExpressions": more},
        LABELS,
        st.lists(EXPRESSIONS, max_size=2),
    ),
)
CONSTRAINTS = st.builds(
    lambda key, selector, affinity, taints: spread(
        "", key, labelSelector=selector, nodeAffinityPolicy=affinity, nodeTaintsPolicy=taints
    )[0],
    st.sampled_from(["zone", "tier"]),
    SELECTORS,
    st.sampled_from(["Honor", "Ignore"]),
    st.sampled_from(["Honor", "Ignore"]),
)
REQUESTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.sampled_from(["0", "1", "3"]), max_size=3
)
WAITING = st.builds(
    lambda namespace, labels, constraints, selector, terms, requests, nominated: a_pod(
        "waiting",
        namespace,
        labels=labels,
        requests=requests,
        topologySpreadConstraints=constraints,
        nominated=nominated,
        **({"nodeSelector": selector} if selector else {}),
        **({"affinity": affinity(*({"matchExpressions": one} for one in terms))} if terms else {}),
    ),
    st.sampled_from(["default", "elsewhere"]),
    LABELS,
    st.lists(CONSTRAINTS, min_size=1, max_size=2),
    LABELS,
    st.lists(st.lists(EXPRESSIONS, min_size=1, max_size=2), max_size=2),
    REQUESTS,
    st.sampled_from(["", "n1"]),
)
SOME_NODES = st.builds(
    lambda labels, taints, cpu, memory, gpus: a_node(labels, taints, cpu=cpu, memory=memory, gpus=gpus),
    LABELS,
    st.sampled_from([(), ({"key": "k", "effect": "NoSchedule"},)]),
    st.sampled_from(["0", "2", "4"]),
    st.sampled_from(["0", "2", "4"]),
    st.sampled_from(["0", "2"]),
)
SOME_PODS = st.builds(
    lambda labels, requests, node_name: a_pod("other", labels=labels, requests=requests, nodeName=node_name),
    LABELS,
    REQUESTS,
    st.sampled_from(["n1", ""]),
)


@given(
    name=st.sampled_from(["NodeResourcesFit", "PodTopologySpread"]),
    pod=WAITING,
    states=st.one_of(
        st.tuples(st.just("Node"), SOME_NODES, SOME_NODES), st.tuples(st.just("Pod"), SOME_PODS, SOME_PODS)
    ),
    exact=st.booleans(),
)
@settings(max_examples=examples(400), deadline=None)
def test_no_pod_that_an_event_helps_is_left_out(
    name: str, pod: Pod, states: tuple[str, EventObject, EventObject], exact: bool
) -> None:
    resource, *objects = states
    plugin = plugin_of(CASES[name][0], {} if exact else {"featureGates": {"ExactQueueingHints": False}})
    for event in changes(resource, objects):
        if name == "NodeResourcesFit" and (event.new if resource == "Node" else event.old) is None:
            continue  # no event of its interest
        assert named(plugin, event, pod) or not helps(plugin, event, pod), event


def test_event_about_labels_that_no_waiting_pod_selects_by_helps_none() -> None:
    plugin = plugin_of(PodTopologySpread)
    event = next(
        one
        for one in changes("Node", [a_node({"zone": "a"}), a_node({"zone": "a", "x": "1"})])
        if one.old is not None and one.new is not None and one.old is not one.new
    )
    waiting = a_pod("picky", topologySpreadConstraints=spread("web"), nodeSelector={"disk": "ssd"})
    assert not named(plugin, event, waiting)
    by_x = a_pod("by x", topologySpreadConstraints=spread("web"), affinity=affinity(term("x", "1")))
    assert named(plugin, event, by_x)
