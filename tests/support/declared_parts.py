"""Every part of the cluster that a plugin can read, with the need that brings it. See
`tests/host/rpc/test_declared_parts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.extension_points import Plugin
from berth_sdk.needs import Need
from berth_sdk.pod import HostPort, Pod
from berth_sdk.scenarios import Scenarios
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.selectors import LabelSelector
from berth_sdk.status import Status
from berth_sdk.tables import NodeTable, PodsWith
from berth_sdk.testing import make_node, make_pod

CLAIMS: Final = "persistentvolumeclaims"
PLUGIN: Final = "ReadsOnePart"
SHARED: Final = {"Other/key": b"value"}
NODE: Final = make_node(
    "n0",
    uid="node-uid",
    labels={"zone": "a", "rack": "r1"},
    annotations={"note/a": "yes", "other/b": "no"},
    taints=["dedicated=gpu:NoSchedule"],
    images={"web:v1": 5000},
    features=["Swap"],
    unschedulable=True,
)
ON_NODE: Final = make_pod(
    "held",
    uid="held-uid",
    node="n0",
    cpu=1,
    labels={"app": "web", "tier": "db"},
    annotations={"note/a": "held", "other/b": "no"},
    host_ports=[8080],
    spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}], "hostNetwork": True},
    affinity={
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
            ]
        }
    },
    status={"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "gpu-1"}]},
)
CLAIM: Final[Mapping[str, Any]] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default", "uid": "claim-uid"},
    "spec": {"volumeName": "pv-1", "storageClassName": "fast"},
}
WAITING: Final = make_pod("web", uid="web-uid", labels={"app": "web"}, annotations={"own/a": "1"})

Read = Callable[[Any, Any, Pod, NodeTable], object]
ReadScenarios = Callable[[Scenarios], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part. `read` or `read_scenarios`: reads it. `needs`: declared beside `base`, they bring it.

    `refusal`: the error without them. `reads_shared`: in place of `needs`.
    """

    read: Read | None = None
    read_scenarios: ReadScenarios | None = None
    needs: Sequence[Need] = ()
    base: Sequence[Need] = (Need.nodes(),)
    refusal: str = ""
    reads_shared: Sequence[str] = ()

    def plugin(self, *, declared: bool) -> type[Plugin]:
        """Return a class that reads the part in Filter, or of what-ifs, and gives its value as the reason."""
        one: Any = self

        def filter_nodes(self: Any, state: Any, pod: Pod, nodes: NodeTable) -> Status:
            return Status.unschedulable(repr(ordered(one.read(self, state, pod, nodes))))

        def filter_scenarios(self: Any, state: Any, pod: Pod, scenarios: Scenarios) -> Status:
            return Status.unschedulable(repr(ordered(one.read_scenarios(scenarios))))

        methods: dict[str, Any] = {"filter_nodes": filter_nodes}
        if one.read is None:
            methods = {"filter_nodes": lambda self, state, pod, nodes: None}
            methods["filter_scenarios"] = filter_scenarios
        attributes = {
            "name": PLUGIN,
            "needs": (*self.base, *self.needs) if declared else tuple(self.base),
            "reads_shared": tuple(self.reads_shared) if declared else (),
        }
        made: type[Plugin] = type(PLUGIN, (Plugin,), {**methods, **attributes})
        return made


def ordered(value: object) -> object:
    """Return the value with its maps in the order of their keys, which no transport promises."""
    if isinstance(value, list):
        return [ordered(one) for one in value]
    return dict(sorted(value.items())) if isinstance(value, Mapping) else value


def node_of(nodes: NodeTable) -> Any:
    """Return the node as an object."""
    return nodes.node_named("n0")


def held(nodes: NodeTable) -> Any:
    """Return the pod on the node."""
    return node_of(nodes).pods[0]


def app(pod: Pod) -> str | None:
    """Return a reading of a pod's record."""
    return pod.annotations.get("note/a")


def affine(pod: Pod) -> str | None:
    """Return a reading of a pod's object."""
    return None if pod.pod_affinity is None else "affine"


def listed(column: Any) -> object:
    """Return a column, or a pair of codes and their dictionary, as plain values."""
    if isinstance(column, tuple):
        codes, values = column
        return [values.values[code] for code in codes.tolist()]
    return column.tolist()


def over_table(read: Callable[[NodeTable], object]) -> Read:
    """Read the table alone."""
    return lambda plugin, state, pod, nodes: read(nodes)


def need(part: str, need_text: str) -> str:
    """Return the text of a refusal."""
    return f"{PLUGIN} reads {part}, which it did not declare: add {need_text} to `needs`"


def dropping(part: str, field: str, need_text: str) -> str:
    """Return the text of a refusal for a dropped field."""
    return f"{PLUGIN} reads {part}, which it did not declare: do not drop {field!r} in {need_text} of `needs`"


def of_nodes(accessor: str, read: Callable[[NodeTable], object]) -> Part:
    """Return a column of the nodes' summaries."""
    text = need(f"nodes.{accessor}", "Need.nodes()")
    return Part(read=over_table(read), base=(), needs=(Need.nodes(),), refusal=text)


def of_node(accessor: str, read: Callable[[Any], object] | None = None) -> Part:
    """Return a field of one node's summary."""
    reading = read or (lambda node: getattr(node, accessor))
    text = need(f"node.{accessor}", "Need.nodes()")
    return Part(
        read=over_table(lambda nodes: reading(node_of(nodes))), base=(), needs=(Need.nodes(),), refusal=text
    )


def of_record(field: str) -> Part:
    """Return a field of the record behind a node, used in a condition."""
    return Part(
        read=over_table(lambda nodes: [getattr(node_of(nodes).node, field) or None]),
        base=(),
        needs=(Need.nodes(images=True),),
        refusal=need(f"node.{field}", "Need.nodes(images=True)" if field == "images" else "Need.nodes()"),
    )


def of_held(field: str, read: Callable[[Pod], object], wanted: Need, text: str) -> Part:
    """Return a part of a pod on a node, in a plugin that declared pods."""
    return Part(
        read=over_table(lambda nodes: read(held(nodes))),
        base=(Need.nodes(), Need.pods(label_prefixes=("app",))),
        needs=(wanted,),
        refusal=need(f"pod.{field}", text),
    )


def _key(prefixes: str, kind: str, key: str) -> str:
    return f"Need.{kind}({prefixes}=({key!r},))"


PORT: Final = HostPort("0.0.0.0", "TCP", 8080)
ALL_WEB: Final = SelectedPods(None, LabelSelector.equal_to({"app": "web"}))
NOTED: Final = PodsWith("test/noted", app, len)

PARTS: Final[Mapping[str, Part]] = {
    # --- nodes, as columns
    "allocatable": of_nodes("allocatable", lambda n: listed(n.allocatable("cpu"))),
    "allocatable of several": of_nodes("allocatable_of", lambda n: listed(n.allocatable_of(("cpu", "x")))),
    "unschedulable": of_nodes("unschedulable", lambda n: listed(n.unschedulable)),
    "taint set": of_nodes("taint_set", lambda n: listed(n.taint_set)),
    "taint sets": of_nodes("taint_sets", lambda n: len(n.taint_sets)),
    "label": of_nodes("label('zone')", lambda n: listed(n.label("zone"))),
    "label keys": of_nodes("label_keys('zone')", lambda n: n.label_keys(("zone",))),
    "has label": of_nodes("label('zone')", lambda n: listed(n.has_label("zone", "a"))),
    "declared feature": of_nodes("declares_feature", lambda n: listed(n.declares_feature("Swap"))),
    "requested": of_nodes("requested", lambda n: listed(n.requested("cpu"))),
    "requested of several": of_nodes("requested_of", lambda n: listed(n.requested_of(("cpu", "memory")))),
    "non-zero requests": of_nodes("non_zero_requested", lambda n: listed(n.non_zero_requested("cpu"))),
    "non-zero requests of both": of_nodes(
        "non_zero_requested_of_both", lambda n: listed(n.non_zero_requested_of_both)
    ),
    "pod count": of_nodes("pod_count", lambda n: listed(n.pod_count)),
    "ports taken": of_nodes("ports_taken", lambda n: listed(n.ports_taken({PORT}))),
    "port taken": of_nodes("port_taken", lambda n: listed(n.port_taken(PORT))),
    "label of another prefix": Part(
        read=over_table(lambda n: listed(n.label("rack"))),
        base=(Need.nodes(label_prefixes=("zone",)),),
        needs=(Need.nodes(label_prefixes=("rack",)),),
        refusal=need("nodes.label('rack')", _key("label_prefixes", "nodes", "rack")),
    ),
    "image": Part(
        read=over_table(lambda n: n.image("web:v1")[1]),
        needs=(Need.nodes(images=True),),
        refusal=need("nodes.image", "Need.nodes(images=True)"),
    ),
    "whether an image is anywhere": Part(
        read=over_table(lambda n: n.has_image("web:v1")),
        needs=(Need.nodes(images=True),),
        refusal=need("nodes.has_image", "Need.nodes(images=True)"),
    ),
    # --- nodes, as objects
    "labels of a node": of_node("labels"),
    "taints of a node": of_node("taints"),
    "unschedulable node": of_node("unschedulable"),
    "allocatable of a node": of_node("allocatable"),
    "usage of a node": of_node("usage", lambda node: node.usage.requested),
    "requested of a node": of_node("requested"),
    "non-zero requests of a node": of_node("non_zero_requested"),
    "pod count of a node": of_node("pod_count"),
    "host ports of a node": of_node("host_ports"),
    **{f"{field} of a node's record": of_record(field) for field in ("labels", "taints", "images")},
    "features of a node's record": of_record("declared_features"),
    "annotations of a node": Part(
        read=over_table(lambda n: dict(node_of(n).annotations)),
        needs=(Need.nodes(annotation_prefixes=("note/",)),),
        refusal=need("node.annotations", _key("annotation_prefixes", "nodes", "...")),
    ),
    "annotation of another prefix": Part(
        read=over_table(lambda n: node_of(n).annotations.get("other/b")),
        base=(Need.nodes(annotation_prefixes=("note/",)),),
        needs=(Need.nodes(annotation_prefixes=("other/",)),),
        refusal=need("node.annotations['other/b']", _key("annotation_prefixes", "nodes", "other/b")),
    ),
    "label of another prefix of a node": Part(
        read=over_table(lambda n: "rack" in node_of(n).labels),
        base=(Need.nodes(label_prefixes=("zone",)),),
        needs=(Need.nodes(label_prefixes=("rack",)),),
        refusal=need("node.labels['rack']", _key("label_prefixes", "nodes", "rack")),
    ),
    "object of a node": Part(
        read=over_table(lambda n: node_of(n).object.get("metadata.uid")),
        needs=(Need.node_objects(),),
        refusal=need("node.object", "Need.node_objects()"),
    ),
    "uid of a node's record": Part(
        read=over_table(lambda n: f"{node_of(n).node.uid}"),
        needs=(Need.node_objects(),),
        refusal=need("node.uid", "Need.node_objects()"),
    ),
    "dropped field of a node": Part(
        read=over_table(lambda n: node_of(n).object.parsed["status"]["allocatable"]["cpu"]),
        base=(Need.node_objects("status.allocatable"),),
        needs=(Need.node_objects(),),
        refusal=dropping("'status.allocatable' of node.object", "status.allocatable", "Need.node_objects"),
    ),
    "column of a field dropped from nodes": Part(
        read=over_table(lambda n: listed(n.allocatable("cpu"))),
        base=(Need.node_objects("status"),),
        needs=(Need.nodes(),),
        refusal=need("nodes.allocatable", "Need.nodes()"),
    ),
    # --- pods on nodes
    "pods": Part(
        read=over_table(lambda n: listed(n.pods.priority)),
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("nodes.pods", "Need.pods()"),
    ),
    "pods of a node": Part(
        read=over_table(lambda n: [pod.name for pod in node_of(n).pods]),
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("node.pods", "Need.pods()"),
    ),
    "counts of pods": Part(
        read=over_table(lambda n: listed(n.take_of(n.pod_counts.column(ALL_WEB)))),
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("nodes.pod_counts", "Need.pods()"),
    ),
    "counts of pods by a reading": Part(
        read=over_table(lambda n: listed(n.take_of(n.pod_counts.column(NOTED)))),
        base=(Need.nodes(), Need.pods()),
        needs=(Need.pods(annotation_prefixes=("note/",)),),
        refusal=need("pod.annotations", _key("annotation_prefixes", "pods", "...")),
    ),
    "counts of pods by domain": Part(
        read=over_table(lambda n: listed(n.pod_counts.by_domain(ALL_WEB, "rack"))),
        base=(Need.nodes(label_prefixes=("zone",)), Need.pods()),
        needs=(Need.nodes(label_prefixes=("rack",)),),
        refusal=need("nodes.label('rack')", _key("label_prefixes", "nodes", "rack")),
    ),
    "volumes of pods": Part(
        read=over_table(lambda n: [pod.name for pod in n.pod_volumes.on_slot(0)]),
        base=(Need.nodes(), Need.pods()),
        needs=(Need.pod_objects(),),
        refusal=need("nodes.pod_volumes", "Need.pod_objects()"),
    ),
    "volumes dropped from pods": Part(
        read=over_table(lambda n: [pod.name for pod in n.pod_volumes.on_slot(0)]),
        base=(Need.nodes(), Need.pod_objects("spec.volumes")),
        needs=(Need.pod_objects(),),
        refusal=dropping("nodes.pod_volumes", "spec.volumes", "Need.pod_objects"),
    ),
    "column read from pods' objects": Part(
        read=over_table(lambda n: listed(n.pods.encoded("test/affine", affine))),
        base=(Need.nodes(), Need.pods()),
        needs=(Need.pod_objects("metadata", "status"),),
        refusal=need("pod.pod_affinity", "Need.pod_objects()"),
    ),
    "column read from a dropped field": Part(
        read=over_table(lambda n: listed(n.pods.encoded("test/affine", affine))),
        base=(Need.nodes(), Need.pod_objects("spec.affinity")),
        needs=(Need.pod_objects("spec.affinity.nodeAffinity"), Need.pod_objects()),
        refusal=dropping("pod.pod_affinity", "spec.affinity", "Need.pod_objects"),
    ),
    "label of pods": Part(
        read=over_table(lambda n: listed(n.pods.label("tier"))),
        base=(Need.nodes(), Need.pods(label_prefixes=("app",))),
        needs=(Need.pods(label_prefixes=("tier",)),),
        refusal=need("pods.label('tier')", _key("label_prefixes", "pods", "tier")),
    ),
    "label of a pod": of_held(
        "labels['tier']",
        lambda pod: pod.labels.get("tier"),
        Need.pods(),
        _key("label_prefixes", "pods", "tier"),
    ),
    "annotations of a pod": of_held(
        "annotations",
        lambda pod: sorted(pod.annotations),
        Need.pods(annotation_prefixes=("note/",)),
        _key("annotation_prefixes", "pods", "..."),
    ),
    "object of a pod": of_held(
        "object",
        lambda pod: pod.object.get("spec.hostNetwork"),  # type: ignore[union-attr]  # known
        Need.pod_objects(),
        "Need.pod_objects()",
    ),
    "spec of a pod": of_held(
        "spec", lambda pod: pod.spec.get("hostNetwork"), Need.pod_objects("status"), "Need.pod_objects()"
    ),
    "affinity of a pod": of_held(
        "pod_affinity", lambda pod: pod.pod_affinity is None, Need.pod_objects("status"), "Need.pod_objects()"
    ),
    "volumes of a pod": of_held(
        "volumes", lambda pod: len(pod.volumes), Need.pod_objects("metadata"), "Need.pod_objects()"
    ),
    "generated claims of a pod": of_held(
        "generated_claims", lambda pod: pod.generated_claims, Need.pod_objects(), "Need.pod_objects()"
    ),
    "dropped field of a pod": Part(
        read=over_table(lambda n: "hostNetwork" in held(n).spec),
        base=(Need.nodes(), Need.pod_objects("spec.hostNetwork", "metadata")),
        needs=(Need.pod_objects(),),
        refusal=dropping("'spec.hostNetwork' of pod.object", "spec.hostNetwork", "Need.pod_objects"),
    ),
    # --- what-ifs
    "pods of what-ifs": Part(
        read_scenarios=lambda what_if: listed(what_if.pods.priority),
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("nodes.pods", "Need.pods()"),
    ),
    "pods that leave": Part(
        read_scenarios=lambda what_if: [pod.priority + 1 for pod in what_if.items[0].removed],
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("pod.priority", "Need.pods()"),
    ),
    "requests of pods that leave": Part(
        read_scenarios=lambda what_if: listed(what_if.removed.requested_of(("cpu",))),
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("the table of the pods that leave", "Need.pods()"),
    ),
    "annotations of pods that leave": Part(
        read_scenarios=lambda what_if: dict(what_if.removed.pods(0)[0].annotations),
        needs=(Need.pods(annotation_prefixes=("note/",)),),
        refusal=need("pod.annotations", "Need.pods()"),
    ),
    "spec of pods that come": Part(
        read_scenarios=lambda what_if: sorted(what_if.added.pods(0)[0].spec),
        needs=(Need.whole_pod(),),
        refusal=need("pod.spec", "Need.whole_pod()"),
    ),
    "usage of a what-if": Part(
        read_scenarios=lambda what_if: listed(what_if.nodes.requested("cpu")),
        base=(Need.pods(),),
        needs=(Need.nodes(),),
        refusal=need("nodes.requested", "Need.nodes()"),
    ),
    "object of the node of a what-if": Part(
        read_scenarios=lambda what_if: what_if.view(0).object.get("metadata.uid"),  # type: ignore[union-attr]
        needs=(Need.node_objects(),),
        refusal=need("node.object", "Need.node_objects()"),
    ),
    # --- the rest
    "spec of the pod": Part(
        read=lambda plugin, state, pod, nodes: sorted(pod.spec),
        needs=(Need.whole_pod(),),
        refusal=need("pod.spec", "Need.whole_pod()"),
    ),
    "snapshot of the handle": Part(
        read=lambda plugin, state, pod, nodes: listed(plugin.handle.snapshot().pods.priority),
        base=(Need.node_objects(),),
        needs=(Need.pods(),),
        refusal=need("nodes.pods", "Need.pods()"),
    ),
    "objects": Part(
        read=lambda plugin, state, pod, nodes: (
            plugin.handle.objects(CLAIMS).get("data", "default").get("spec")
        ),
        needs=(Need.objects(CLAIMS),),
        refusal=need(f"objects of {CLAIMS!r}", f"Need.objects({CLAIMS!r})"),
    ),
    "dropped field of objects": Part(
        read=lambda plugin, state, pod, nodes: (
            plugin.handle.objects(CLAIMS).list()[0].get("spec.storageClassName")
        ),
        base=(Need.nodes(), Need.objects(CLAIMS, "spec.storageClassName", "status")),
        needs=(Need.objects(CLAIMS),),
        refusal=dropping(
            f"'spec.storageClassName' of objects of {CLAIMS!r}", "spec.storageClassName", "Need.objects"
        ),
    ),
    "shared value": Part(
        read=lambda plugin, state, pod, nodes: state.read_shared("Other/key"),
        reads_shared=("Other/key",),
        refusal=f"{PLUGIN} reads the shared value 'Other/key', which it did not declare:"
        " add 'Other/key' to `reads_shared`",
    ),
}
