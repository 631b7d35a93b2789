"""Hypothesis strategies for small clusters as an API server would show them, odd values included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from berth_sdk.testing import node_object, pod_object
from hypothesis import strategies as st

Json = dict[str, Any]
GPU = "example.com/gpu"
NAMES = ("n0", "n1", "n2", "n3", "n4")
KEYS = ("zone", "gen")
VALUES = ("a", "b", "7", "0007", "")
IMAGES = ("web:v1", "web:latest", "registry:5000/db", "big:v2")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MIB = 1024 * 1024
SIZES = {
    "web:v1": 500 * MIB,
    "web:latest": 31 * MIB,
    "registry:5000/db:latest": 900 * MIB,
    "big:v2": 3000 * MIB,
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, the pods on them, and a pod that waits, as JSON."""

    nodes: list[Json]
    pods: list[Json]
    pod: Json


def _some(strategy: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=most)


# "-3" is no label value for a selector; on a node it is what hand-made objects may have.
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from((*VALUES, "-3")))
taints = _some(
    st.fixed_dictionaries(
        {"key": st.sampled_from(("t", "u")), "effect": st.sampled_from(EFFECTS)},
        optional={"value": st.sampled_from(("", "x"))},
    ),
    3,
)
tolerations = _some(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(("", "t", "u", "node.kubernetes.io/unschedulable")),
            "operator": st.sampled_from(("", "Equal", "Exists", "Gt", "equal")),
            "value": st.sampled_from(("", "x")),
            "effect": st.sampled_from(("", *EFFECTS)),
        },
    ),
    3,
)
ports = _some(
    st.fixed_dictionaries(
        {"containerPort": st.just(1), "hostPort": st.sampled_from((0, 80, 81))},
        optional={
            "hostIP": st.sampled_from(("", "0.0.0.0", "10.0.0.1", "10.0.0.2")),
            "protocol": st.sampled_from(("", "TCP", "UDP")),
        },
    )
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from((0, "1m", "500m", 1, 3, 40)),
        "memory": st.sampled_from((0, 1, 7, 900 * MIB, 1300 * MIB)),
        "ephemeral-storage": st.sampled_from((0, 5, 1000)),
        GPU: st.sampled_from((0, 1, 3)),
    },
)
containers = st.builds(
    lambda asked, used, image: {"name": "c", "resources": {"requests": asked}, "ports": used, **image},
    requests,
    ports,
    st.fixed_dictionaries({}, optional={"image": st.sampled_from(IMAGES)}),
)
init_containers = st.builds(
    lambda container, always: {**container, **({"restartPolicy": "Always"} if always else {})},
    containers,
    st.booleans(),
)
expressions = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(KEYS),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(KEYS),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
    st.builds(
        lambda key, operator, bound: {"key": key, "operator": operator, "values": [bound]},
        st.sampled_from(KEYS),
        st.sampled_from(("Gt", "Lt")),
        st.sampled_from(("0", "4", "7")),
    ),
)
fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(("In", "NotIn")),
    st.sampled_from((*NAMES, "gone")),
)
terms = st.fixed_dictionaries(
    {}, optional={"matchExpressions": _some(expressions), "matchFields": _some(fields, 1)}
)
broken_terms = st.just({"matchExpressions": [{"key": "zone", "operator": "Near"}]})
affinities = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": _some(terms | broken_terms, 3)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": _some(
            st.fixed_dictionaries({"weight": st.integers(-3, 100), "preference": terms}), 3
        ),
    },
)


def _pod(name: str, node: str | None, spec: Json) -> Json:
    if node is not None:
        spec = {**spec, "nodeName": node}
    return pod_object(name, spec=spec)


pod_specs = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=3), "tolerations": tolerations},
    optional={
        "initContainers": _some(init_containers),
        "overhead": st.just({"cpu": "250m", "memory": 3}),
        "nodeSelector": labels,
        "affinity": st.builds(lambda one: {"nodeAffinity": one}, affinities),
    },
)


def _node(name: str, chosen: Json) -> Json:
    images = [{"names": [image], "sizeBytes": SIZES[image]} for image in chosen.pop("images")]
    allocatable = chosen.pop("allocatable")
    return node_object(name, **chosen, status={"allocatable": allocatable, "images": images})


node_fields = st.fixed_dictionaries(
    {
        "labels": labels,
        "taints": taints,
        "unschedulable": st.booleans(),
        "images": st.lists(st.sampled_from(sorted(SIZES)), unique=True),
        "allocatable": st.fixed_dictionaries(
            {
                "cpu": st.sampled_from((0, 1, 3, 40)),
                "memory": st.sampled_from((0, 7, 2000 * MIB, 4096 * MIB)),
            },
            optional={
                "pods": st.sampled_from((0, 1, 110)),
                "ephemeral-storage": st.sampled_from((0, 10, 1000)),
                GPU: st.sampled_from((0, 1, 8)),
            },
        ),
    }
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to five nodes, up to six pods on them, and a pod that waits."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    nodes = [_node(name, draw(node_fields)) for name in names]
    count = draw(st.integers(0, 6))
    pods = [_pod(f"p{i}", draw(st.sampled_from(names)), draw(pod_specs)) for i in range(count)]
    wanted = draw(st.none() | st.sampled_from((*names, "gone", "")))
    return Cluster(nodes, pods, _pod("web", wanted, draw(pod_specs)))
