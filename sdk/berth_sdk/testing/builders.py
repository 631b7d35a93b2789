"""Keywords -> Kubernetes JSON -> records and tables, for tests of plugins.

`make_pod` and `make_node` write the JSON of an API server and read it as the host does, so a test gets the
records of a real cluster. `pod_object` and `node_object` return the JSON. `make_table` makes the snapshot of
a cluster with these nodes and pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.tables.node_columns import changed_usage
from berth_sdk.tables.pod_table import PodTable

Json = dict[str, Any]
Quantity = str | int
HOSTNAME = "kubernetes.io/hostname"


class Meta(TypedDict, total=False):
    """The metadata that every object may have. `meta`: raw metadata, which replaces equal keys."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    meta: Mapping[str, Any]


class PodFields(Meta, total=False):
    """Keywords of `make_pod`. All are optional.

    - cpu, memory, requests: requests of the first container; `requests` has any other resource.
    - images: the containers' images, one container each. The first container has the requests and the ports.
    - containers, init_containers: raw containers, in place of the ones made from images.
    - host_ports: numbers, or raw ports.
    - tolerations: raw ones, or `key=value:Effect`, `key:Effect` (operator Exists), `key` (every effect).
    - node: spec.nodeName. nominated: status.nominatedNodeName. gates: names of scheduling gates.
    - spec, status: raw fields, which replace equal keys.
    """

    namespace: str
    cpu: Quantity
    memory: Quantity
    requests: Mapping[str, Quantity]
    images: Sequence[str]
    containers: Sequence[Mapping[str, Any]]
    init_containers: Sequence[Mapping[str, Any]]
    overhead: Mapping[str, Quantity]
    host_ports: Sequence[int | Mapping[str, Any]]
    priority: int
    node: str
    nominated: str
    scheduler: str
    gates: Sequence[str]
    node_selector: Mapping[str, str]
    affinity: Mapping[str, Any]
    tolerations: Sequence[str | Mapping[str, Any]]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]


class NodeFields(Meta, total=False):
    """Keywords of `make_node`. All are optional. The node gets a label with its host name.

    - cpu, memory, pods: allocatable; default 4 cores, 8Gi and 110 pods. allocatable: any other resource.
    - taints: raw ones, or `key=value:Effect`, `key:Effect`. images: name to size in bytes.
    - spec, status: raw fields, which replace equal keys.
    """

    cpu: Quantity
    memory: Quantity
    pods: Quantity
    allocatable: Mapping[str, Quantity]
    taints: Sequence[str | Mapping[str, Any]]
    unschedulable: bool
    images: Mapping[str, int]
    features: Sequence[str]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]


def make_pod(name: str, **fields: Unpack[PodFields]) -> Pod:
    """Return a pod's record. Raises ObjectError for values that the host would refuse.

    >>> make_pod("web", cpu="500m").requests["cpu"]
    500
    >>> make_pod("web", tolerations=["dedicated=gpu:NoSchedule"]).tolerations[0].value
    'gpu'
    """
    return Pod.from_object(pod_object(name, **fields))


def make_node(name: str, **fields: Unpack[NodeFields]) -> Node:
    """Return a node's record. Raises ObjectError for values that the host would refuse.

    >>> make_node("node-1", cpu=2, taints=["dedicated=gpu:NoSchedule"]).allocatable["cpu"]
    2000
    """
    return Node.from_object(node_object(name, **fields))


def make_table(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> NodeTable:
    """Return the snapshot of a cluster. `pods` count on the nodes that they name, in the order given.

    >>> table = make_table([make_node("node-1")], [make_pod("web", cpu=1, node="node-1")])
    >>> table.requested("cpu").tolist(), table.pod_count.tolist()
    ([1000], [1])
    """
    return NodeTable(make_columns(nodes, pods))


def make_columns(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> NodeColumns:
    """Return the columns of the same snapshot, for tests that change them. `NodeTable(columns)` shows the
    changes.
    """
    columns = NodeColumns()
    columns.begin_update()
    columns.pods = PodTable()
    for node in nodes:
        slot = columns.add(node)  # first, because adding may replace the arrays
        columns.generation[slot] = 1
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(pod.node_name, []).append(pod)
    empty = NodeTable(columns)
    usages = {
        name: changed_usage(view.usage, (), held)
        for name, held in by_node.items()
        if (view := empty.node_named(name)) is not None
    }
    for name, usage in usages.items():
        slot = columns.index_of[name]
        columns.set_usage(slot, usage)
        columns.pods.set_node_pods(slot, by_node[name], (), 1)
    return columns


def pod_object(name: str, **fields: Unpack[PodFields]) -> Json:
    """Return the JSON of a pod.

    >>> pod_object("web", images=["web:v1"])["spec"]["containers"]
    [{'name': 'c0', 'image': 'web:v1'}]
    """
    _refuse_unknown("pod", fields, PodFields.__optional_keys__)
    namespace = fields.get("namespace", "default")
    spec: Json = {"containers": [dict(one) for one in fields.get("containers") or _containers(fields)]}
    if "init_containers" in fields:
        spec["initContainers"] = [dict(one) for one in fields["init_containers"]]
    plain = {
        "nodeName": fields.get("node"),
        "priority": fields.get("priority"),
        "schedulerName": fields.get("scheduler"),
        "nodeSelector": fields.get("node_selector"),
        "affinity": fields.get("affinity"),
        "overhead": fields.get("overhead"),
    }
    spec.update({key: value for key, value in plain.items() if value is not None})
    if "gates" in fields:
        spec["schedulingGates"] = [{"name": gate} for gate in fields["gates"]]
    if "tolerations" in fields:
        spec["tolerations"] = [_toleration(one) for one in fields["tolerations"]]
    spec.update(fields.get("spec") or {})
    status: Json = {"phase": "Pending"}
    if "nominated" in fields:
        status["nominatedNodeName"] = fields["nominated"]
    status.update(fields.get("status") or {})
    metadata = _metadata({"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}, fields)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def node_object(name: str, **fields: Unpack[NodeFields]) -> Json:
    """Return the JSON of a node."""
    _refuse_unknown("node", fields, NodeFields.__optional_keys__)
    metadata = _metadata({"name": name, "uid": f"node/{name}"}, fields)
    metadata["labels"] = {HOSTNAME: name, **metadata.get("labels", {})}
    spec: Json = {}
    if fields.get("unschedulable"):
        spec["unschedulable"] = True
    if "taints" in fields:
        spec["taints"] = [_taint(one) for one in fields["taints"]]
    spec.update(fields.get("spec") or {})
    allocatable: Json = {
        "cpu": fields.get("cpu", 4),
        "memory": fields.get("memory", "8Gi"),
        "pods": fields.get("pods", 110),
        **(fields.get("allocatable") or {}),
    }
    status: Json = {"allocatable": allocatable}
    if "images" in fields:
        status["images"] = [{"names": [key], "sizeBytes": size} for key, size in fields["images"].items()]
    if "features" in fields:
        status["declaredFeatures"] = list(fields["features"])
    status.update(fields.get("status") or {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def _refuse_unknown(what: str, fields: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in fields:
        if name not in known:
            raise TypeError(f"a {what} has no keyword {name!r}: use {', '.join(sorted(known))}")


def _metadata(known: Json, fields: Meta) -> Json:
    if "uid" in fields:
        known["uid"] = fields["uid"]
    if "labels" in fields:
        known["labels"] = dict(fields["labels"])
    if "annotations" in fields:
        known["annotations"] = dict(fields["annotations"])
    known.update(fields.get("meta") or {})
    return known


def _containers(fields: PodFields) -> list[Json]:
    images = fields.get("images") or ("",)
    containers: list[Json] = [
        {"name": f"c{i}", **({"image": image} if image else {})} for i, image in enumerate(images)
    ]
    requests = dict(fields.get("requests") or {})
    if "cpu" in fields:
        requests["cpu"] = fields["cpu"]
    if "memory" in fields:
        requests["memory"] = fields["memory"]
    if requests:
        containers[0]["resources"] = {"requests": requests}
    if "host_ports" in fields:
        containers[0]["ports"] = [_port(one) for one in fields["host_ports"]]
    return containers


def _port(port: int | Mapping[str, Any]) -> Json:
    return {"containerPort": port, "hostPort": port} if isinstance(port, int) else dict(port)


def _toleration(toleration: str | Mapping[str, Any]) -> Json:
    if not isinstance(toleration, str):
        return dict(toleration)
    pair, _, effect = toleration.partition(":")
    key, equals, value = pair.partition("=")
    result: Json = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        result["value"] = value
    if effect:
        result["effect"] = effect
    return result


def _taint(taint: str | Mapping[str, Any]) -> Json:
    if not isinstance(taint, str):
        return dict(taint)
    pair, _, effect = taint.partition(":")
    key, equals, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if equals else {})}
