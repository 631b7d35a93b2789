"""Checks types and names of an object's fields, as the API server's strict decoding does.

Called by `validation.problems_of` first, so that the later checks can rely on the types. The table of fields
(`schema.json`) is made from the Kubernetes client's models by `tests/support/kube_schema.py`. Unknown fields
below `status` are accepted, because newer components write there.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from berth_host.errors.cluster import FieldProblem
from berth_sdk.errors import QuantityError
from berth_sdk.quantity import nano_value
from berth_sdk.rfc3339 import parse_time

_TYPE_WORDS: Final[dict[type, str]] = {
    dict: "a map",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    type(None): "null",
}
_EXPLAINED: Final = 100
"""The number of problems up to which similar names are looked up, which is slow."""
_ZERO: Final = {"string": "", "quantity": "0"}
_SIMPLE: Final[dict[str, type]] = {"string": str, "integer": int, "boolean": bool}


_CUSTOM: Final[Mapping[str, Mapping[str, str]]] = {
    "PodGroup.scheduling.x-k8s.io": {
        "apiVersion": "string",
        "kind": "string",
        "metadata": "ObjectMeta",
        "spec": "CoschedulingSpec",
        "status": "CoschedulingStatus",
    },
    "CoschedulingSpec": {
        "minMember": "integer",
        "minResources": "{quantity}",
        "scheduleTimeoutSeconds": "integer",
    },
    "CoschedulingStatus": {
        "phase": "string",
        "occupiedBy": "string",
        "running": "integer",
        "succeeded": "integer",
        "failed": "integer",
        "scheduleStartTime": "time",
    },
}
"""The structs of custom kinds. Source: scheduler-plugins `apis/scheduling/v1alpha1/types.go`."""


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    table: Mapping[str, Mapping[str, str]] = json.loads(
        (Path(__file__).parent / "schema.json").read_text(encoding="utf-8")
    )
    return {**table, **_CUSTOM}


@cache
def _plain_fields(struct: str) -> Mapping[str, type]:
    """Return the fields of a struct for which the right Python type makes any value valid, with the type."""
    plain: dict[str, type] = {"string": str, "boolean": bool}
    return {name: plain[kind] for name, kind in _table()[struct].items() if kind in plain}


def field_problems(kind: str, obj: Mapping[str, Any]) -> list[FieldProblem]:
    """Return a problem for every field of `obj` that is unknown or of the wrong type."""
    problems: list[FieldProblem] = []
    if kind in _table():
        _struct(problems, kind, obj, "", lenient=False)
    return problems


def spelled(kind: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with known field names in their right spelling; Go's decoder ignores case.
    Unknown names stay.
    """
    return _spelled(kind, obj) if kind in _table() else dict(obj)


def _spelled(field_type: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_spelled(field_type[1:-1], item) for item in value] if field_type[0] == "[" else value
    if not isinstance(value, dict):
        return value
    if field_type[0] == "{":
        return {name: _spelled(field_type[1:-1], item) for name, item in value.items()}
    if not field_type[0].isupper():
        return value
    fields = _table()[field_type]
    by_lower = {name.lower(): name for name in fields}
    result: dict[str, Any] = {}
    for name, item in value.items():
        own = name if name in fields else by_lower.get(str(name).lower(), str(name))
        result[own] = _spelled(fields[own], item) if own in fields else item
    return result


def without_unknown(kind: str, obj: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return a copy without the unknown fields, and their names, such as `PodSpec.newField`.

    For objects of a cluster of another version, which has accepted these fields. Those below `status` stay.
    """
    unknown: set[str] = set()
    status = {"status": obj["status"]} if "status" in obj else {}
    rest = {name: value for name, value in obj.items() if name != "status"}
    return ({**_known(kind, rest, unknown), **status} if kind in _table() else dict(obj)), unknown


def _known(field_type: str, value: Any, unknown: set[str]) -> Any:
    first = field_type[0]
    if first == "[" and isinstance(value, list):
        return [_known(field_type[1:-1], item, unknown) for item in value]
    if first == "{" and isinstance(value, dict):
        return {name: _known(field_type[1:-1], item, unknown) for name, item in value.items()}
    if not first.isupper() or not isinstance(value, dict):
        return value
    fields = _table()[field_type]
    unknown.update(f"{field_type}.{name}" for name in value.keys() - fields.keys())
    return {name: _known(fields[name], item, unknown) for name, item in value.items() if name in fields}


def with_zero_values(kind: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which null, in a map or list of texts or quantities, is empty text or 0.

    Go's decoder does the same. People write `labels: {node-role.kubernetes.io/worker: }`.
    """
    return _with_zero_values(kind, obj) if kind in _table() else dict(obj)


def _with_zero_values(field_type: str, value: Any) -> Any:
    if field_type[0] in "[{":
        own = field_type[1:-1]
        if isinstance(value, list) and field_type[0] == "[":
            return [_with_zero_values(own, _ZERO.get(own) if item is None else item) for item in value]
        if isinstance(value, dict) and field_type[0] == "{":
            return {
                name: _with_zero_values(own, _ZERO.get(own) if item is None else item)
                for name, item in value.items()
            }
    elif isinstance(value, dict) and field_type[0].isupper():
        fields = _table()[field_type]
        return {
            name: _with_zero_values(fields[name], item) if name in fields else item
            for name, item in value.items()
        }
    return value


def _struct(problems: list[FieldProblem], struct: str, value: Any, path: str, *, lenient: bool) -> None:
    if not isinstance(value, dict):
        problems.append(FieldProblem(path, f"must be a map, not {_shown(value)}"))
        return
    fields, plain = _table()[struct], _plain_fields(struct)
    for name, item in value.items():
        if plain.get(name) is type(item):
            continue
        here = f"{path}.{name}" if path else name
        field_type = fields.get(name)
        if field_type is None:
            if not lenient:
                problems.append(FieldProblem(here, _unknown(struct, name, fields, len(problems))))
        elif item is not None:
            _value(problems, field_type, item, here, lenient=lenient or (not path and name == "status"))


def _value(problems: list[FieldProblem], field_type: str, value: Any, path: str, *, lenient: bool) -> None:
    first = field_type[0]
    if first == "[":
        _list(problems, field_type[1:-1], value, path, lenient=lenient)
    elif first == "{":
        _map(problems, field_type[1:-1], value, path, lenient=lenient)
    elif first.isupper():
        _struct(problems, field_type, value, path, lenient=lenient)
    elif (problem := _scalar(field_type, value)) is not None:
        problems.append(FieldProblem(path, problem))


def _list(problems: list[FieldProblem], item_type: str, value: Any, path: str, *, lenient: bool) -> None:
    if not isinstance(value, list):
        problems.append(FieldProblem(path, f"must be a list, not {_shown(value)}"))
        return
    for i, item in enumerate(value):
        _value(problems, item_type, item, f"{path}[{i}]", lenient=lenient)


def _map(problems: list[FieldProblem], item_type: str, value: Any, path: str, *, lenient: bool) -> None:
    if not isinstance(value, dict):
        problems.append(FieldProblem(path, f"must be a map, not {_shown(value)}"))
        return
    for name, item in value.items():
        if item_type != "string" or type(item) is not str:
            _value(problems, item_type, item, f"{path}.{name}", lenient=lenient)


def _scalar(field_type: str, value: Any) -> str | None:
    expected = _SIMPLE.get(field_type)
    if expected is not None:
        if expected is int and type(value) is int and not -(2**63) <= value < 2**63:
            return f"must be an integer of 64 bits, not {value}"
        if type(value) is expected:
            return None
        cure = ": put it in quotes" if expected is str and not isinstance(value, dict | list) else ""
        return f"must be {_TYPE_WORDS[expected]}, not {_shown(value)}{cure}"
    if field_type == "quantity":
        return _quantity(value)
    if field_type == "number":
        bad = isinstance(value, bool) or not isinstance(value, int | float)
        return f"must be a number, not {_shown(value)}" if bad else None
    if field_type == "time":
        return _time(value)
    return None


def _quantity(value: Any) -> str | None:
    try:
        nano_value(value)
    except QuantityError as err:
        return str(err)
    return None


def _time(value: Any) -> str | None:
    try:
        parse_time(value)
    except ValueError:
        return f'must be an RFC 3339 time such as "2026-01-01T00:00:00Z", not {_shown(value)}'
    return None


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _TYPE_WORDS[type(value)]
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value)


@lru_cache(maxsize=1024)
def _near(struct: str, name: str) -> str:
    """Return the field with a similar name, or ""; kept, because many objects may repeat a misspelling."""
    return next(iter(difflib.get_close_matches(name, _table()[struct], n=1)), "")


def _unknown(struct: str, name: str, fields: Mapping[str, str], problems_before: int) -> str:
    if problems_before >= _EXPLAINED:
        return f"unknown field {name!r} of {struct}"
    near = _near(struct, name)
    cure = f"did you mean {near!r}?" if near else f"remove it, or use one of {', '.join(sorted(fields))}"
    return f"unknown field {name!r} of {struct}: {cure}"
