"""CEL expressions over a device, compiled and evaluated by the library of the extra `berth-plugins[dra]`.

This module adds the parts of kube-scheduler's environment: `device`, quantities and semantic versions.

Source: `dynamic-resource-allocation/cel/compile.go`, `apiserver/pkg/cel/library/quantity.go` and
`semverlib.go`, v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_plugins.dynamic_resources.cel_library import (
    CelError,
    environment,
    library,
    quantity_message,
    semver,
)
from berth_plugins.dynamic_resources.devices import Device

# A string literal, which stays as it is, or one of the device's maps before an index.
_LOOKUP: Final = re.compile(
    r"(?P<text>[rR]?(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'))"
    r"|\bdevice\s*\.\s*(?P<map>attributes|capacity)(?=\s*\[)",
    re.DOTALL,
)


class Expression:
    """One compiled expression. Raises CelError."""

    def __init__(self, text: str) -> None:
        self._domains: set[str] = set()
        try:
            self._compiled = environment().compile(_LOOKUP.sub(self._replace, text))
        except RuntimeError as err:
            raise CelError(f"compilation failed: {_first_line(err)}") from err
        kinds = library().Type
        found = self._compiled.return_type()
        if found not in (kinds.BOOL, kinds.DYN):
            raise CelError(f"must evaluate to bool or the unknown type, not {found.name().lower()}")

    def matches(self, device: Device) -> bool:
        """Return True if the expression is true for the device. Raises CelError."""
        try:
            result = self._compiled.eval(data={"device": self._seen(device)})
        except RuntimeError as err:
            raise CelError(_first_line(err)) from err
        kinds, kind, value = library().Type, result.type(), result.value()
        if kind == kinds.ERROR:
            raise CelError(_first_line(value))
        if kind != kinds.BOOL:
            raise CelError(f"CEL result of type {kind.name().lower()} could not be converted to bool")
        return bool(value)

    def _replace(self, match: re.Match[str]) -> str:
        text = match["text"]
        if text is None:
            return f"device.{match['map']}OrEmpty"
        self._domains.add(text.lstrip("rR").strip("\"'"))
        return text

    def _seen(self, device: Device) -> dict[str, Any]:
        """Return the device as the data of an expression. A domain without values is an empty map for an
        index, and absent for a test whether it exists.
        """
        driver = device.id.driver
        attributes = _by_domain(device.attributes, driver, _attribute_value)
        capacity = _by_domain(device.capacity, driver, lambda one: quantity_message(one.nano))
        empty = dict.fromkeys((*self._domains, driver), _EMPTY)
        return {
            "driver": driver,
            "allowMultipleAllocations": device.is_shareable,
            "attributes": attributes,
            "capacity": capacity,
            "attributesOrEmpty": {**empty, **attributes},
            "capacityOrEmpty": {**empty, **capacity},
        }


_EMPTY: Final[dict[str, Any]] = {}


def _by_domain(
    named: Mapping[str, Any], driver: str, value_of: Callable[[Any], Any]
) -> dict[str, dict[str, Any]]:
    """Return the values by domain, then by name. A name without a domain belongs to the driver's domain."""
    found: dict[str, dict[str, Any]] = {}
    for name, raw in named.items():
        domain, slash, short = name.partition("/")
        if not slash:
            domain, short = driver, name
        try:
            found.setdefault(domain, {})[short] = value_of(raw)
        except CelError as err:
            raise CelError(f"attribute {name}: {err}") from err
    return found


def _attribute_value(raw: Mapping[str, Any]) -> Any:
    for kind in ("int", "bool", "string"):
        if raw.get(kind) is not None:
            return raw[kind]
    if raw.get("version") is not None:
        return semver(raw["version"])
    raise CelError("unsupported attribute value")


def _first_line(err: object) -> str:
    return (str(err).strip().splitlines() or [""])[0]
