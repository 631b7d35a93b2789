"""The bodies of extenders' answers -> typed values, as Go's encoding/json reads them.

A plain answer is read in the shortest way; every other one by `go_json`, which knows all of Go's rules and
has Go's words for errors. Of a key that an answer repeats in the same spelling, the last value counts.
Called by `extenders`.
Source: `k8s.io/kube-scheduler/extender/v1/types.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from berth_sdk.json.scanner import ITEMS, ScanError, cut, spans

from berth_host.extenders.go_json import (
    INT64_MAX,
    INT64_MIN,
    INVALID,
    Int64,
    ListOf,
    MapOf,
    Pointer,
    Struct,
    Text,
    folded,
    read,
)

__all__ = [
    "INVALID",
    "FilterAnswer",
    "MetaVictims",
    "bind_error",
    "filter_answer",
    "preempt_answer",
    "priorities",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterAnswer:
    """The result of filter. `names`, `nodes`: names of the nodes that pass, None where the field is absent or
    null; `nodes` is from whole Node objects. The failed nodes are messages by name.
    """

    names: list[str] | None = None
    nodes: list[str] | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """The victims that an extender names on one node: uids, and broken budgets."""

    uids: tuple[str, ...] = ()
    violations: int = 0


_MESSAGES: Final = MapOf("v1.FailedNodesMap", Text())
# Of a Node its name alone counts, so the rest of the object is not read.
_NODE: Final = Struct("Node", {"metadata": Struct("ObjectMeta", {"name": Text()})})
_FILTER: Final = Struct(
    "ExtenderFilterResult",
    {
        "Nodes": Pointer(Struct("NodeList", {"items": ListOf("[]v1.Node", _NODE)})),
        "NodeNames": Pointer(ListOf("[]string", Text())),
        "FailedNodes": _MESSAGES,
        "FailedAndUnresolvableNodes": _MESSAGES,
        "Error": Text(),
    },
)
_PRIORITY: Final = Struct("HostPriority", {"Host": Text(), "Score": Int64()})
_PRIORITIES: Final = ListOf("v1.HostPriorityList", _PRIORITY)
_META_VICTIMS: Final = Struct(
    "MetaVictims",
    {
        "Pods": ListOf("[]*v1.MetaPod", Pointer(Struct("MetaPod", {"UID": Text()}))),
        "NumPDBViolations": Int64(),
    },
)
_PREEMPTION: Final = Struct(
    "ExtenderPreemptionResult",
    {"NodeNameToMetaVictims": MapOf("map[string]*v1.MetaVictims", Pointer(_META_VICTIMS))},
)
_ITEMS: Final = {b"items": {ITEMS: {b"metadata": {b"managedFields": "managedFields"}}}}
_MANAGED: Final = {b"Nodes": _ITEMS, b"nodes": _ITEMS}
_BINDING: Final = Struct("ExtenderBindingResult", {"Error": Text()})


def filter_answer(body: bytes) -> FilterAnswer:
    """Read an ExtenderFilterResult. Raises ExtenderError."""
    plain = _plain_filter(body)
    if plain is not None:
        return plain
    fields = read(body, _FILTER)
    nodes = fields["Nodes"]
    return FilterAnswer(
        names=fields["NodeNames"],
        nodes=None if nodes is None else [item["metadata"]["name"] for item in nodes["items"] or ()],
        failed=fields["FailedNodes"] or {},
        unresolvable=fields["FailedAndUnresolvableNodes"] or {},
        error=fields["Error"],
    )


def priorities(body: bytes) -> tuple[list[str], list[int]]:
    """Read a HostPriorityList as (hosts, scores). Raises ExtenderError."""
    try:
        value = orjson.loads(body)
        hosts, scores = [item["Host"] for item in value], [item["Score"] for item in value]
        # No third key: it might be one of the two in another case.
        is_plain = set(map(len, value)) <= {2} and set(map(type, hosts)) <= {str}
        if is_plain and _are_int64(scores) and type(value) is list:
            return hosts, scores
    except (orjson.JSONDecodeError, KeyError, TypeError):
        pass
    items = read(body, _PRIORITIES) or []
    return [item["Host"] for item in items], [item["Score"] for item in items]


def preempt_answer(body: bytes) -> dict[str, MetaVictims]:
    """Read an ExtenderPreemptionResult, as victims by node. Raises ExtenderError."""
    by_node = read(body, _PREEMPTION)["NodeNameToMetaVictims"] or {}
    return {
        name: MetaVictims()
        if meta is None
        else MetaVictims(
            tuple("" if pod is None else pod["UID"] for pod in meta["Pods"] or ()), meta["NumPDBViolations"]
        )
        for name, meta in by_node.items()
    }


def bind_error(body: bytes) -> str:
    """Read an ExtenderBindingResult; return its error, "" for none. Raises ExtenderError."""
    error: str = read(body, _BINDING)["Error"]
    return error


# --- plain answers -------------------------------------------------------------------------------


def _loads(body: bytes) -> Any:
    """Parse an answer. Where it is too deep, parse it without the managedFields of the nodes that an extender
    sends back as it got them. Raises JSONDecodeError.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            places = [span for span in spans(body, _MANAGED) if span is not None]
        except ScanError:
            places = []
        if not places:
            raise
        return orjson.loads(cut(body, places, [b"null"] * len(places)))


def _plain_filter(body: bytes) -> FilterAnswer | None:
    """Return the answer if it is one object of the right types, else None."""
    try:
        value = _loads(body)
        if type(value) is not dict:
            return None
        fields = {folded(key): item for key, item in value.items() if item is not None}
        if len(set(map(folded, value))) != len(value):
            return None
        names, nodes = fields.get("nodenames"), fields.get("nodes")
        failed, unresolvable = fields.get("failednodes", {}), fields.get("failedandunresolvablenodes", {})
        error = fields.get("error", "")
        passed = None if nodes is None else [item["metadata"]["name"] for item in _plain_items(nodes)]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    is_plain = (
        (names is None or (type(names) is list and set(map(type, names)) <= {str}))
        and (passed is None or set(map(type, passed)) <= {str})
        and all(
            type(refused) is dict and set(map(type, refused.values())) <= {str}
            for refused in (failed, unresolvable)
        )
        and type(error) is str
    )
    if not is_plain:
        return None
    return FilterAnswer(names=names, nodes=passed, failed=failed, unresolvable=unresolvable, error=error)


def _plain_items(nodes: Any) -> list[Any]:
    """Return the items of a NodeList. Raises KeyError and TypeError for any other value."""
    if type(nodes) is not dict:
        raise TypeError
    items = nodes["items"]
    # Keys in another case might be the same fields again.
    if type(items) is not list or not nodes.keys() <= _LIST_KEYS:
        raise TypeError
    if not (set(map(type, items)) <= {dict} and all(map(_NODE_KEYS.issuperset, items))):
        raise TypeError
    if not {type(item["metadata"]) for item in items} <= {dict}:
        raise TypeError
    return items


_LIST_KEYS: Final = frozenset({"metadata", "items", "kind", "apiVersion"})
_NODE_KEYS: Final = frozenset({"metadata", "spec", "status", "kind", "apiVersion"})


def _are_int64(values: list[Any]) -> bool:
    return (
        set(map(type, values)) <= {int}
        and min(values, default=0) >= INT64_MIN
        and max(values, default=0) <= INT64_MAX
    )
