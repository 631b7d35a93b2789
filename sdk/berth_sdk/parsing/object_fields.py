"""Reads fields of parsed objects. An error names the field that has the wrong type. Used by `pod`,
`pod_spec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.errors import ObjectError, shown

_EMPTY: Final[Mapping[str, Any]] = {}


def mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the map under `key`, empty where it is missing. Raises ObjectError for another type."""
    value = parent.get(key)
    if value is None:
        return _EMPTY
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ObjectError(key, f"must be a map, not {type(value).__name__}")
    return value


def items(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the list of maps under `key`, empty where it is missing. Raises ObjectError."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ObjectError(key, f"must be a list, not {type(value).__name__}")
    for i, item in enumerate(value):
        if type(item) is not dict and not isinstance(item, Mapping):
            raise ObjectError(f"{key}[{i}]", f"must be a map, not {type(item).__name__}")
    return value


def strings(parent: Mapping[str, Any], path: str, key: str) -> Mapping[str, str]:
    """Return the map of strings under `key`, empty where it is missing. Raises ObjectError."""
    value = parent.get(key)
    if not value:
        return {}
    if type(value) is not dict and not isinstance(value, Mapping):
        raise ObjectError(f"{path}.{key}", f"must be a map, not {type(value).__name__}")
    for name, text in value.items():
        if not isinstance(text, str):
            raise ObjectError(
                f"{path}.{key}.{name}",
                f"must be a string, not {type(text).__name__}: put it in quotes",
            )
    return value


def integer(value: Any, path: str) -> int:
    """Return an integer, 0 where it is missing. Raises ObjectError."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise ObjectError(path, f"must be an integer, not {shown(value)}")
    return value
