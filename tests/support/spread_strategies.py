"""Hypothesis strategies for clusters whose pods are to be spread, odd values included."""

from __future__ import annotations

from typing import Any

from berth_sdk.testing import node_object, pod_object
from hypothesis import strategies as st
from support.cluster_strategies import EFFECTS, taints, tolerations
from support.plain_spread import HARD, HOSTNAME, SOFT, Cluster

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
NAMES = ("n0", "n1", "n2", "n3", "n4", "n5")
KEYS = (ZONE, "rack", HOSTNAME)
NAMESPACES = ("default", "other")
# Most pods count for most constraints, and most nodes have the labels: else little is ever too full.
POD_LABELS = st.just({"app": "a"}) | st.dictionaries(
    st.sampled_from(("app", "tier")), st.sampled_from(("a", "b", ""))
)
requirements = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(("app", "tier")),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from(("a", "b", "")), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(("app", "tier")),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)
selectors = st.one_of(
    st.just({"matchLabels": {"app": "a"}}),
    st.fixed_dictionaries(
        {}, optional={"matchLabels": POD_LABELS, "matchExpressions": st.lists(requirements, max_size=2)}
    ),
    st.none(),
)


def constraints(*, with_selector: bool = True) -> st.SearchStrategy[Json]:
    """`maxSkew` 0 and below and `minDomains` 0 are what only hand-made objects have."""
    return st.fixed_dictionaries(
        {
            "maxSkew": st.sampled_from((1, 1, 1, 2, 3, 0, -4) if with_selector else (1, 2, 5)),
            "topologyKey": st.sampled_from(KEYS),
            "whenUnsatisfiable": st.sampled_from((HARD, SOFT)),
            **({"labelSelector": selectors} if with_selector else {}),
        },
        optional={
            "minDomains": st.sampled_from((0, 1, 2, 5)),
            "nodeAffinityPolicy": st.sampled_from(("Honor", "Ignore")),
            "nodeTaintsPolicy": st.sampled_from(("Honor", "Ignore")),
            "matchLabelKeys": st.lists(st.sampled_from(("app", "tier", "none")), max_size=2, unique=True),
        },
    )


node_labels = st.fixed_dictionaries(
    {ZONE: st.sampled_from(("a", "b", "c", "")), "rack": st.sampled_from(("1", "2"))}
) | st.fixed_dictionaries(
    {}, optional={ZONE: st.sampled_from(("a", "b", "c", "")), "rack": st.sampled_from(("1", "2"))}
)
wanted_nodes = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.builds(lambda value: {"rack": value}, st.sampled_from(("1", "2", "3"))),
        "affinity": st.builds(
            lambda operator, values: {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": ZONE, "operator": operator, "values": values}]}
                        ]
                    }
                }
            },
            st.sampled_from(("In", "NotIn")),
            st.lists(st.sampled_from(("a", "b")), min_size=1, max_size=2),
        ),
    },
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Json:
    labels = draw(node_labels)
    node = node_object(name, labels=labels, taints=draw(taints))
    if draw(st.sampled_from((False, False, False, True))):
        del node["metadata"]["labels"][HOSTNAME]
    return node


@st.composite
def peers(draw: st.DrawFn, name: str, node: str = "") -> Json:
    """Return a pod that may count."""
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if draw(st.integers(0, 4)) == 0 else {}
    namespace = draw(st.sampled_from(("default", "default", "other")))
    spec = {"nodeName": node} if node else {}
    return pod_object(
        name, uid=f"uid-{name}", namespace=namespace, labels=draw(POD_LABELS), meta=meta, spec=spec
    )


OWNERS = (("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"))


@st.composite
def owners(draw: st.DrawFn) -> Json:
    version, kind = draw(st.sampled_from(OWNERS))
    selector = draw(POD_LABELS if kind == "ReplicationController" else selectors)
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "own", "namespace": draw(st.sampled_from(NAMESPACES))},
        "spec": {"selector": selector},
    }


@st.composite
def services(draw: st.DrawFn, name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": draw(st.sampled_from(NAMESPACES))},
        "spec": {"selector": draw(st.none() | POD_LABELS)},
    }


@st.composite
def incoming(draw: st.DrawFn, own: st.SearchStrategy[list[Json]]) -> Json:
    spec = {"tolerations": draw(tolerations), **draw(wanted_nodes), "topologySpreadConstraints": draw(own)}
    version, kind = draw(st.sampled_from(OWNERS))
    ref = {"apiVersion": version, "kind": kind, "name": "own", "uid": "uid-own", "controller": True}
    meta = {"ownerReferences": [ref]} if draw(st.booleans()) else {}
    return pod_object("web", uid="uid-web", labels=draw(POD_LABELS), spec=spec, meta=meta)


@st.composite
def clusters(draw: st.DrawFn, *, with_objects: bool = False) -> tuple[Json, Cluster]:
    """Return a pod that waits, and its cluster: one to six nodes, up to twelve pods on them."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    cluster = Cluster(
        [draw(nodes(name)) for name in names],
        [draw(peers(f"p{i}", draw(st.sampled_from(names)))) for i in range(draw(st.integers(0, 12)))],
    )
    own = st.lists(constraints(), min_size=1, max_size=3)
    if with_objects:
        own = st.just([])
        cluster.services = [draw(services(f"s{i}")) for i in range(draw(st.integers(0, 2)))]
        cluster.owners = [draw(owners()) for _ in range(draw(st.integers(0, 1)))]
        defaults = st.lists(
            constraints(with_selector=False),
            max_size=3,
            unique_by=lambda one: (one["topologyKey"], one["whenUnsatisfiable"]),
        )
        cluster.defaults = draw(st.none() | defaults)
    return draw(incoming(own)), cluster


__all__ = ["EFFECTS", "clusters", "peers"]
