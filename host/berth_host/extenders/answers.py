"""The bodies of extenders' answers -> typed values, as Go's encoding/json reads them.

Keys match without regard to case, unknown keys are ignored, null stands for the zero value, and only the
first JSON value of a body counts. Called by `extenders`. Errors have Go's words.
Source: `k8s.io/kube-scheduler/extender/v1/types.go`, v1.36; Go `encoding/json` (Decoder, UnmarshalTypeError).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import orjson

from berth_host.errors.extenders import ExtenderOutcomeUnknownError

INVALID: Final = "violation"
"""The outcome of an answer that cannot be read."""
_SPACE: Final = b" \t\r\n"
_MIN: Final = -(2**63)
_MAX: Final = 2**63 - 1
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_GO_KINDS: Final[Mapping[type, str]] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
    list: "array",
    dict: "object",
}


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


def filter_answer(body: bytes) -> FilterAnswer:
    """Read an ExtenderFilterResult. Raises ExtenderError."""
    result = "ExtenderFilterResult"
    fields = _object(first_value(body), f"v1.{result}", _FILTER_FIELDS)
    names, nodes = fields.get("NodeNames"), fields.get("Nodes")
    return FilterAnswer(
        names=None if names is None else _strings(names, f"{result}.NodeNames"),
        nodes=None if nodes is None else _node_names(nodes, f"{result}.Nodes"),
        failed=_texts(fields.get("FailedNodes"), f"{result}.FailedNodes"),
        unresolvable=_texts(fields.get("FailedAndUnresolvableNodes"), f"{result}.FailedAndUnresolvableNodes"),
        error=_text(fields.get("Error"), f"{result}.Error"),
    )


def priorities(body: bytes) -> tuple[list[str], list[int]]:
    """Read a HostPriorityList as (hosts, scores). Raises ExtenderError."""
    value = first_value(body)
    if value is None:
        return [], []
    if type(value) is not list:
        _mismatch(value, "value", "v1.HostPriorityList")
    try:
        # What almost every extender answers, in the shortest way.
        hosts, scores = [item["Host"] for item in value], [item["Score"] for item in value]
        are_typed = set(map(type, hosts)) <= {str} and set(map(type, scores)) <= {int}
        if are_typed and min(scores, default=0) >= _MIN and max(scores, default=0) <= _MAX:
            return hosts, scores
    except (KeyError, TypeError):
        pass
    hosts, scores = [], []
    for item in value:
        fields = _object(item, "v1.HostPriority", _PRIORITY_FIELDS)
        hosts.append(_text(fields.get("Host"), "HostPriority.Host"))
        scores.append(_int64(fields.get("Score"), "HostPriority.Score"))
    return hosts, scores


def preempt_answer(body: bytes) -> dict[str, MetaVictims]:
    """Read an ExtenderPreemptionResult, as victims by node. Raises ExtenderError."""
    result = "ExtenderPreemptionResult"
    fields = _object(first_value(body), f"v1.{result}", _PREEMPT_FIELDS)
    by_node = fields.get("NodeNameToMetaVictims")
    where = f"{result}.NodeNameToMetaVictims"
    if by_node is None:
        return {}
    if type(by_node) is not dict:
        _mismatch(by_node, f"struct field {where}", "map[string]*v1.MetaVictims")
    return {name: _meta_victims(value, where) for name, value in by_node.items()}


def bind_error(body: bytes) -> str:
    """Read an ExtenderBindingResult; return its error, "" for none. Raises ExtenderError."""
    fields = _object(first_value(body), "v1.ExtenderBindingResult", _BIND_FIELDS)
    return _text(fields.get("Error"), "ExtenderBindingResult.Error")


# --- JSON, as Go reads it ------------------------------------------------------------------------


def first_value(body: bytes) -> Any:
    """Return the first JSON value of `body`. Raises ExtenderError with Go's words."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    # Not one valid value: bytes may follow it, or it is malformed. This reader is slower, and says where.
    if not body.strip(_SPACE):
        raise ExtenderOutcomeUnknownError("EOF", INVALID)
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    try:
        value, _ = _DECODER.raw_decode(text)
    except json.JSONDecodeError as err:
        raise ExtenderOutcomeUnknownError(_syntax_problem(text, err), INVALID) from err
    except RecursionError as err:
        raise ExtenderOutcomeUnknownError("exceeded max depth", INVALID) from err
    except ValueError as err:
        raise ExtenderOutcomeUnknownError(str(err), INVALID) from err
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"invalid character {_quoted(name[0])} looking for beginning of value")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _syntax_problem(text: str, err: json.JSONDecodeError) -> str:
    if err.pos >= len(text) or err.msg.startswith("Unterminated string"):
        return "unexpected EOF"
    found = _quoted(text[err.pos])
    if err.msg.startswith("Expecting property name"):
        return f"invalid character {found} looking for beginning of object key string"
    if err.msg.startswith("Expecting ':'"):
        return f"invalid character {found} after object key"
    if err.msg.startswith("Expecting ','"):
        inside = "object key:value pair" if _innermost(text[: err.pos]) == "{" else "array element"
        return f"invalid character {found} after {inside}"
    if err.msg.startswith("Invalid control"):
        return f"invalid character {found} in string literal"
    if err.msg.startswith("Invalid"):
        # The position is that of the backslash.
        return f"invalid character {_quoted(text[err.pos + 1 : err.pos + 2])} in string escape code"
    return f"invalid character {found} looking for beginning of value"


def _innermost(text: str) -> str:
    """Return the bracket that is open at the end of `text`."""
    open_brackets: list[str] = []
    for token in _TOKEN.findall(text):
        if token in "[{":
            open_brackets.append(token)
        elif token in "]}" and open_brackets:
            open_brackets.pop()
    return open_brackets[-1] if open_brackets else ""


def _quoted(character: str) -> str:
    shown = {"'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}.get(character, character)
    return f"'{shown}'"


def _names(*names: str) -> Mapping[str, str]:
    return {name.lower(): name for name in names}


_FILTER_FIELDS: Final = _names("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error")
_PRIORITY_FIELDS: Final = _names("Host", "Score")
_PREEMPT_FIELDS: Final = _names("NodeNameToMetaVictims")
_VICTIM_FIELDS: Final = _names("Pods", "NumPDBViolations")
_POD_FIELDS: Final = _names("UID")
_BIND_FIELDS: Final = _names("Error")
_LIST_FIELDS: Final = _names("items")
_NODE_FIELDS: Final = _names("metadata")
_METADATA_FIELDS: Final = _names("name")


def _object(value: Any, go_type: str, known: Mapping[str, str], where: str = "value") -> dict[str, Any]:
    """Return the known fields of an object, by their Go names; none for null."""
    if value is None:
        return {}
    if type(value) is not dict:
        _mismatch(value, where, go_type)
    fields: dict[str, Any] = {}
    for key, item in value.items():
        name = known.get(key.lower())
        if name is not None:
            fields[name] = item
    return fields


def _mismatch(value: Any, where: str, go_type: str) -> NoReturn:
    kind = _GO_KINDS[type(value)]
    if kind == "number" and go_type.startswith("int"):
        kind = f"number {value}"
    text = f"json: cannot unmarshal {kind} into Go {where} of type {go_type}"
    raise ExtenderOutcomeUnknownError(text, INVALID)


def _text(value: Any, path: str) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    _mismatch(value, f"struct field {path}", "string")


def _int64(value: Any, path: str) -> int:
    if value is None:
        return 0
    if type(value) is int and _MIN <= value <= _MAX:
        return value
    _mismatch(value, f"struct field {path}", "int64")


def _strings(value: Any, path: str) -> list[str]:
    if type(value) is not list:
        _mismatch(value, f"struct field {path}", "[]string")
    if set(map(type, value)) <= {str}:
        return value
    return [_text(item, path) for item in value]


def _texts(value: Any, path: str) -> Mapping[str, str]:
    if value is None:
        return {}
    if type(value) is not dict:
        _mismatch(value, f"struct field {path}", "v1.FailedNodesMap")
    return {name: _text(text, path) for name, text in value.items()}


def _node_names(value: Any, path: str) -> list[str]:
    """Return the names in a NodeList."""
    items = _items(value, "items", f"struct field {path}", "v1.NodeList", _LIST_FIELDS)
    try:
        names = [item["metadata"]["name"] for item in items]
        if set(map(type, names)) <= {str}:
            return names
    except (KeyError, TypeError):
        pass
    return [_node_name(item, f"{path}.items") for item in items]


def _node_name(item: Any, path: str) -> str:
    node = _object(item, "v1.Node", _NODE_FIELDS, f"struct field {path}")
    metadata = _object(
        node.get("metadata"), "v1.ObjectMeta", _METADATA_FIELDS, f"struct field {path}.metadata"
    )
    return _text(metadata.get("name"), f"{path}.metadata.name")


def _meta_victims(value: Any, path: str) -> MetaVictims:
    fields = _object(value, "v1.MetaVictims", _VICTIM_FIELDS, f"struct field {path}")
    pods = fields.get("Pods")
    if pods is not None and type(pods) is not list:
        _mismatch(pods, f"struct field {path}.Pods", "[]*v1.MetaPod")
    return MetaVictims(
        tuple(_uid(item, f"{path}.Pods") for item in pods or ()),
        _int64(fields.get("NumPDBViolations"), f"{path}.NumPDBViolations"),
    )


def _uid(value: Any, path: str) -> str:
    pod = _object(value, "v1.MetaPod", _POD_FIELDS, f"struct field {path}")
    return _text(pod.get("UID"), f"{path}.UID")


def _items(value: Any, name: str, where: str, go_type: str, known: Mapping[str, str]) -> list[Any]:
    items = _object(value, go_type, known, where).get(name)
    if items is None:
        return []
    if type(items) is not list:
        _mismatch(items, f"{where}.{name}", "[]v1.Node")
    return items
