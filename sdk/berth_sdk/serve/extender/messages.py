"""The messages of extender/v1: a request's JSON as records, and answers as JSON bytes.

Field names are those of the Go structs (`NodeNames`). Keys of requests match without regard to case, as Go
reads them. Answers have every field, null where there is nothing. Source: `k8s.io/kube-scheduler/extender/v1`
and kube-scheduler's `pkg/scheduler/extender.go`, v1.36.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from berth_sdk.errors import BerthError, ObjectError
from berth_sdk.json.bounded import read_bounded_json
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod

Json = Mapping[str, Any]


class BadRequestError(BerthError):
    """A request that is not one of extender/v1. The text names the field."""


@dataclass(frozen=True, slots=True, eq=False)
class SentNode:
    """A Node object of a request, read. `text`: its JSON. `uid` and `resource_version` are empty if it has
    none.
    """

    uid: str
    resource_version: str
    node: Node
    text: str


class NodeReader(Protocol):
    """Reads the Node objects of requests. `request_nodes.NodeCache` reads each once."""

    def read(self, item: Json, text: str = "") -> SentNode:
        """Return a node. `text`: its JSON; empty: not known. Raises BadRequestError."""
        ...

    def split(self, text: str) -> tuple[str, list[SentNode]] | None:
        """Return a request without its Node objects, and these; None: all of it has to be parsed.

        Raises BadRequestError for a malformed Node.
        """
        ...


@dataclass(frozen=True, slots=True)
class NodeArgs:
    """ExtenderArgs, of filter and prioritize. `nodes`: Node objects; None: the request has names only."""

    pod: Pod
    nodes: tuple[SentNode, ...] | None
    names: tuple[str, ...]
    """The names of the nodes, in the request's order, each once."""


@dataclass(frozen=True, slots=True)
class Victims:
    """The victims on one node. `pods`: as objects; None: only the uids are known."""

    uids: tuple[str, ...]
    pdb_violations: int
    pods: tuple[Pod, ...] | None = None


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """ExtenderPreemptionArgs. `victims`: by node."""

    pod: Pod
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True)
class BindingArgs:
    """ExtenderBindingArgs."""

    name: str
    namespace: str
    uid: str
    node: str


# --- requests ----------------------------------------------------------------------------------------


def node_args(body: bytes, reader: NodeReader) -> NodeArgs:
    """Read the request of filter or prioritize. Raises BadRequestError."""
    request, sent = _split(body, reader)
    pod = _pod(_field(request, "Pod"), "Pod")
    listed, names = _field(request, "Nodes"), _field(request, "NodeNames")
    if names is not None:
        return NodeArgs(pod, None, tuple(dict.fromkeys(_strings(names, "NodeNames"))))
    if listed is None:
        raise BadRequestError("the request has neither Nodes nor NodeNames")
    if sent is None:
        found = _list(_field(_map(listed, "Nodes"), "items"), "Nodes.items")
        for i, item in enumerate(found):
            _check_name(item, i)
        sent = [reader.read(item) for item in found]
    by_name = {one.node.name: one for one in sent}
    return NodeArgs(pod, tuple(by_name.values()), tuple(by_name))


def _split(body: bytes, reader: NodeReader) -> tuple[Json, list[SentNode] | None]:
    """Return a request, and its nodes if they were read apart from it."""
    try:
        parts = reader.split(body.decode())
    except UnicodeDecodeError:
        parts = None
    if parts is not None:
        rest, sent = parts
        request = _object(rest)
        # If the nodes were cut out of another place, there is still something here.
        if request.get("Nodes") == {"metadata": {}, "items": []}:
            return request, sent
    return _object(body), None


def preemption_args(body: bytes) -> PreemptionArgs:
    """Read the request of preempt. Raises BadRequestError."""
    request = _object(body)
    pod = _pod(_field(request, "Pod"), "Pod")
    whole, meta = _field(request, "NodeNameToVictims"), _field(request, "NodeNameToMetaVictims")
    if whole is None and meta is None:
        raise BadRequestError("the request has neither NodeNameToVictims nor NodeNameToMetaVictims")
    if meta is not None:
        by_node = _map(meta, "NodeNameToMetaVictims")
        return PreemptionArgs(
            pod, {node: _meta_victims(one, f"NodeNameToMetaVictims.{node}") for node, one in by_node.items()}
        )
    by_node = _map(whole, "NodeNameToVictims")
    return PreemptionArgs(
        pod, {node: _victims(one, f"NodeNameToVictims.{node}") for node, one in by_node.items()}
    )


def binding_args(body: bytes) -> BindingArgs:
    """Read the request of bind. Raises BadRequestError."""
    request = _object(body)
    fields = ("PodName", "PodNamespace", "PodUID", "Node")
    found = [_field(request, field) for field in fields]
    for field, value in zip(fields, found, strict=True):
        if not isinstance(value, str) or not value:
            raise BadRequestError(f"{field} must be a string that is not empty, not {value!r}")
    return BindingArgs(*found)


def _object(body: bytes | str) -> Json:
    try:
        request = read_bounded_json(body)
    except ValueError as err:
        raise BadRequestError(f"the request is not JSON: {err}") from err
    return _map(request, "the request")


def _field(parent: Json, name: str) -> Any:
    """Return a field, by its exact name, else by any spelling of its letters; None where it is missing."""
    if name in parent:
        return parent[name]
    wanted = name.lower()
    return next((value for key, value in parent.items() if key.lower() == wanted), None)


def _map(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise BadRequestError(f"{path} must be an object, not {_kind(value)}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if value is None:
        return []  # Go's empty slice
    if not isinstance(value, list):
        raise BadRequestError(f"{path} must be a list, not {_kind(value)}")
    return value


def _strings(value: Any, path: str) -> list[str]:
    found = _list(value, path)
    for i, one in enumerate(found):
        if not isinstance(one, str):
            raise BadRequestError(f"{path}[{i}] must be a string, not {_kind(one)}")
    return found


def _check_name(item: Any, i: int) -> None:
    metadata = _map(_map(item, f"Nodes.items[{i}]").get("metadata"), f"Nodes.items[{i}].metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise BadRequestError(f"Nodes.items[{i}].metadata.name must be a string that is not empty")


def _pod(value: Any, path: str) -> Pod:
    if value is None:
        raise BadRequestError(f"the request has no {path}")
    try:
        # The scheduler sends objects without apiVersion and kind.
        return Pod.from_object(KubeObject("v1", "Pod", parsed=_map(value, path)))
    except ObjectError as err:
        raise BadRequestError(f"{path}: {err}") from err


def _meta_victims(value: Any, path: str) -> Victims:
    victims = _map(value, path)
    listed = _list(_field(victims, "Pods"), f"{path}.Pods")
    uids = [_field(_map(one, f"{path}.Pods[{i}]"), "UID") for i, one in enumerate(listed)]
    return Victims(tuple(_strings(uids, f"{path}.Pods.UID")), _violations(victims, path))


def _victims(value: Any, path: str) -> Victims:
    victims = _map(value, path)
    listed = _list(_field(victims, "Pods"), f"{path}.Pods")
    pods = tuple(_pod(one, f"{path}.Pods[{i}]") for i, one in enumerate(listed))
    return Victims(tuple(pod.uid for pod in pods), _violations(victims, path), pods)


def _violations(victims: Json, path: str) -> int:
    number = _field(victims, "NumPDBViolations")
    if number is None:
        return 0
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadRequestError(f"{path}.NumPDBViolations must be an integer, not {number!r}")
    return number


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(
        type(value), repr(value)
    )


# --- answers -----------------------------------------------------------------------------------------


def filter_result(
    names: Sequence[str],
    nodes: Iterable[str] | None,
    failed: Mapping[str, str],
    unresolvable: Mapping[str, str],
) -> bytes:
    """Return ExtenderFilterResult. `nodes`: the JSON of the nodes that passed; None: answer their names."""
    rest = {"FailedNodes": failed, "FailedAndUnresolvableNodes": unresolvable, "Error": ""}
    if nodes is None:
        return _dumped({"Nodes": None, "NodeNames": list(names), **rest})
    items = ",".join(nodes).encode()
    return b'{"Nodes":{"metadata":{},"items":[%s]},"NodeNames":null,%s' % (
        items,
        _dumped(rest).removeprefix(b"{"),
    )


def filter_error(text: str) -> bytes:
    """Return ExtenderFilterResult of a filter that failed."""
    return _dumped(
        {
            "Nodes": None,
            "NodeNames": None,
            "FailedNodes": None,
            "FailedAndUnresolvableNodes": None,
            "Error": text,
        }
    )


def host_priorities(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """Return HostPriorityList."""
    return _dumped([{"Host": name, "Score": score} for name, score in zip(names, scores, strict=True)])


def preemption_result(victims: Mapping[str, Victims]) -> bytes:
    """Return ExtenderPreemptionResult."""
    return _dumped(
        {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in one.uids], "NumPDBViolations": one.pdb_violations}
                for node, one in victims.items()
            }
        }
    )


def binding_result(error: str = "") -> bytes:
    """Return ExtenderBindingResult."""
    return _dumped({"Error": error})


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
