"""The errors in a plugin's arguments -> one PluginArgsError, in Kubernetes' field-error form.

Used by the plugins that take arguments. Source: apimachinery `util/validation/field/errors.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.duration import SECOND_NS, parse_duration
from berth_sdk.errors import PluginArgsError


def joined(texts: Sequence[str]) -> str:
    """Return several errors as one text, without repeats."""
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


class Findings:
    """Collects errors field by field. `check` raises them all at once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def invalid(self, path: str, value: object, problem: str) -> None:
        """Add an error for a value that is not acceptable."""
        self.texts.append(f"{path}: Invalid value: {_shown(value)}: {problem}")

    def required(self, path: str, problem: str) -> None:
        """Add an error for a missing field."""
        self.texts.append(f"{path}: Required value: {problem}")

    def forbidden(self, path: str, problem: str) -> None:
        """Add an error for a field that must not be set."""
        self.texts.append(f"{path}: Forbidden: {problem}")

    def unsupported(self, path: str, value: object, supported: Sequence[str]) -> None:
        """Add an error for a value that is not one of `supported`."""
        known = ", ".join(f'"{name}"' for name in supported)
        self.texts.append(f"{path}: Unsupported value: {_shown(value)}: supported values: {known}")

    def duplicate(self, path: str, value: object) -> None:
        """Add an error for a value that is in the list already."""
        self.texts.append(f"{path}: Duplicate value: {_shown(value)}")

    def check(self) -> None:
        """Raise PluginArgsError if there is any error."""
        if self.texts:
            raise PluginArgsError(joined(self.texts))


def maps(args: Mapping[str, Any], key: str, path: str) -> list[Mapping[str, Any]]:
    """Return the list of maps under `key`, empty where it is missing. Raises PluginArgsError."""
    items = _list(args, key, path)
    for i, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise PluginArgsError(f"{path}[{i}]: Invalid value: {_shown(item)}: must be a map")
    return items


def strings(args: Mapping[str, Any], key: str, path: str) -> list[str]:
    """Return the list of strings under `key`, empty where it is missing. Raises PluginArgsError."""
    items = _list(args, key, path)
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise PluginArgsError(f"{path}[{i}]: Invalid value: {_shown(item)}: must be a string")
    return items


def mapping(args: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any] | None:
    """Return the map under `key`, or None. Raises PluginArgsError."""
    value = args.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise PluginArgsError(f"{path}: Invalid value: {_shown(value)}: must be a map")
    return value


def integer(item: Mapping[str, Any], key: str, path: str) -> int:
    """Return the integer under `key`, 0 where it is missing. Raises PluginArgsError.

    A whole float counts: arguments that came over the wire have no integers.
    """
    value = item.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise PluginArgsError(f"{path}: Invalid value: {_shown(value)}: must be an integer")
    return int(value)


def duration_s(args: Mapping[str, Any], key: str, path: str, default: float) -> float:
    """Return the duration under `key`, written as in `1m30s`, in seconds; `default` where it is missing.
    Raises PluginArgsError.
    """
    value = args.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise PluginArgsError(f"{path}: Invalid value: {_shown(value)}: must be a duration, such as 10s")
    try:
        return parse_duration(value) / SECOND_NS
    except ValueError as err:
        raise PluginArgsError(f"{path}: Invalid value: {_shown(value)}: {err}") from err


def _list(args: Mapping[str, Any], key: str, path: str) -> list[Any]:
    value = args.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise PluginArgsError(f"{path}: Invalid value: {_shown(value)}: must be a list")
    return list(value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)
