"""Hypothesis strategies for clusters whose pods want to be near each other, or not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from berth_plugins.args.gates import EXACT_NAMESPACES, KEY
from berth_sdk.testing import node_object, pod_object
from hypothesis import strategies as st
from support.plain_affinity import PREFERRED, REQUIRED, Rules

Json = dict[str, Any]
NODES = ("n0", "n1", "n2", "n3")
KEYS = ("zone", "rack", "kubernetes.io/hostname", "")
NAMESPACES = ("a", "b", "c")
"""Pods are in all of them; not all need to exist."""

_pod_labels = st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from(("x", "y")))
_node_labels = st.dictionaries(st.sampled_from(("zone", "rack")), st.sampled_from(("1", "2", "")))
_team_labels = st.dictionaries(st.just("team"), st.sampled_from(("red", "blue")))


def _expressions(key: str, values: tuple[str, ...]) -> st.SearchStrategy[Json]:
    return st.one_of(
        st.builds(
            lambda operator, chosen: {"key": key, "operator": operator, "values": chosen},
            st.sampled_from(("In", "NotIn")),
            st.lists(st.sampled_from(values), min_size=1, max_size=2),
        ),
        st.builds(
            lambda operator: {"key": key, "operator": operator}, st.sampled_from(("Exists", "DoesNotExist"))
        ),
    )


def _selectors(labels: st.SearchStrategy[Json], expressions: st.SearchStrategy[Json]) -> Any:
    return st.none() | st.fixed_dictionaries(
        {}, optional={"matchLabels": labels, "matchExpressions": st.lists(expressions, max_size=2)}
    )


terms = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(KEYS),
        "labelSelector": _selectors(_pod_labels, _expressions("app", ("x", "y"))),
    },
    optional={
        "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2),
        "namespaceSelector": _selectors(_team_labels, _expressions("team", ("red", "blue"))),
    },
)
weighted = st.builds(
    lambda weight, term: {"weight": weight, "podAffinityTerm": term}, st.integers(-2, 100), terms
)
_stanzas = st.fixed_dictionaries(
    {}, optional={REQUIRED: st.lists(terms, max_size=2), PREFERRED: st.lists(weighted, max_size=2)}
)
affinities = st.fixed_dictionaries({}, optional={"podAffinity": _stanzas, "podAntiAffinity": _stanzas})


@st.composite
def pods(draw: st.DrawFn, name: str, node: str | None = None) -> Json:
    """Return a pod, on `node` if one is given."""
    spec: Json = {"affinity": draw(affinities)} if draw(st.booleans()) else {}
    if node is not None:
        spec["nodeName"] = node
    namespace = draw(st.sampled_from(NAMESPACES))
    return pod_object(name, uid=f"uid-{name}", namespace=namespace, labels=draw(_pod_labels), spec=spec)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Json:
    """Return a node; some lack labels that others have."""
    return node_object(name, labels=draw(_node_labels))


@dataclass(frozen=True)
class AffineCluster:
    """Nodes, the pods on them, the labels of the namespaces that exist, and a pod that waits."""

    nodes: list[Json]
    pods: list[Json]
    namespaces: dict[str, dict[str, str]]
    pod: Json
    args: Json = field(default_factory=dict)

    @property
    def rules(self) -> Rules:
        """The answer of the rules."""
        return Rules(
            self.nodes,
            self.pods,
            self.namespaces,
            self.pod,
            hard_weight=self.args.get("hardPodAffinityWeight", 1),
            ignore_preferred=self.args.get("ignorePreferredTermsOfExistingPods", False),
            exact=self.args.get(KEY, {}).get(EXACT_NAMESPACES, True),
        )

    @property
    def namespace_objects(self) -> list[Json]:
        """The namespaces as objects."""
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            for name, labels in self.namespaces.items()
        ]

    def with_pods(self, pods: list[Json]) -> AffineCluster:
        """Return the same with other pods on the nodes."""
        return replace(self, pods=pods)


namespaces = st.dictionaries(st.sampled_from(NAMESPACES), _team_labels)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "hardPodAffinityWeight": st.sampled_from((0, 1, 7)),
        "ignorePreferredTermsOfExistingPods": st.booleans(),
        KEY: st.fixed_dictionaries({EXACT_NAMESPACES: st.booleans()}),
    },
)


@st.composite
def clusters(draw: st.DrawFn) -> AffineCluster:
    """One to four nodes, up to six pods on them."""
    names = NODES[: draw(st.integers(1, len(NODES)))]
    count = draw(st.integers(0, 6))
    placed = [draw(pods(f"p{i}", draw(st.sampled_from(names)))) for i in range(count)]
    return AffineCluster(
        [draw(nodes(name)) for name in names], placed, draw(namespaces), draw(pods("web")), draw(arguments)
    )
