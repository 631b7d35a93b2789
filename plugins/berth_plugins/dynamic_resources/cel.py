"""`Expression`: a selector of devices, in the environment that kube-scheduler compiles selectors in.

Source: `dynamic-resource-allocation/cel/compile.go` and `errors.go`, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from berth_plugins.cel.declarations import QUANTITY
from berth_plugins.cel.environment import Environment
from berth_plugins.cel.errors import CelError, EvalError
from berth_plugins.cel.functions import regexes
from berth_plugins.cel.functions.quantities import Quantity
from berth_plugins.cel.functions.versions import Semver
from berth_plugins.cel.types import BOOL, DYN, STRING, Type, map_of, struct
from berth_plugins.cel.values import MapValue, Optional, Value, type_name
from berth_plugins.dynamic_resources.devices import Device

EXTRA: Final = "berth-plugins[dra]"
MISSING: Final = f"CEL selectors need the extra {EXTRA} (pip install '{EXTRA}')"
MAX_COST: Final = 1_000_000
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for "
    "optional fields"
)
_DEVICE: Final = struct("kubernetes.DRADevice")
_FIELDS: Final[Mapping[str, Type]] = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
# Fields of a device's attribute that hold its value, the value of several first.
_ATTRIBUTE_FIELDS: Final = ("ints", "bools", "strings", "versions", "int", "bool", "string", "version")
# Reasons why a result is no bool, by the name of its type.
_NO_BOOL: Final = {
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "string": "unsupported native conversion from string to 'bool'",
    "type": "type conversion not supported for 'type'",
    "null_type": "type conversion error from 'null_type' to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "kubernetes.NamedFormat": "type conversion error from 'Format' to 'bool'",
}


def is_installed() -> bool:
    """Return True if the extra is installed."""
    return regexes.library() is not None


@cache
def _environment() -> Environment:
    if not is_installed():
        raise CelError(MISSING)
    return Environment({"device": _DEVICE}, {_DEVICE.name: _FIELDS}, MAX_COST)


class Expression:
    """One compiled expression. Raises CelError, with the text of kube-scheduler."""

    def __init__(self, text: str) -> None:
        self._program = _environment().compile(text, (BOOL.name, DYN.name))

    def matches(self, device: Device) -> bool:
        """Return True if the expression is true for the device. Raises CelError."""
        return self.evaluate(device)[0]

    def evaluate(self, device: Device) -> tuple[bool, int]:
        """Return whether the expression is true for the device, and the cost. Raises CelError."""
        try:
            result, cost = self._program.evaluate(_seen(device))
        except EvalError as err:
            text = str(err)
            raise CelError(f"{text}{_HINT}" if "no such key:" in text else text) from err
        if isinstance(result, Optional) and result.has_value and type(result.value) is bool:
            result = result.value
        if type(result) is not bool:
            raise CelError(
                f"CEL result of type {type_name(result)} could not be converted to bool: {_reason(result)}"
            )
        return result, cost


def _reason(result: Value) -> str:
    while isinstance(result, Optional):
        if not result.has_value:
            return "optional.none() dereference"
        result = result.value
    name = type_name(result)
    return _NO_BOOL.get(name) or f"type conversion error from '{name.rpartition('.')[2]}' to 'bool'"


# --- devices ---------------------------------------------------------------------------------------

_EMPTY: Final = MapValue()


def _seen(device: Device) -> MapValue:
    """Return the device as expressions see it. A domain that nobody publishes is an empty map."""
    driver = device.id.driver
    attributes: dict[str, list[tuple[str, Value]]] = {}
    for name, raw in device.attributes.items():
        domain, short = _split(name, driver)
        try:
            value = _attribute_value(raw)
        except EvalError as err:
            raise CelError(f"attribute {name}: {err}") from err
        attributes.setdefault(domain, []).append((short, value))
    capacity: dict[str, list[tuple[str, Value]]] = {}
    for name, amount in device.capacity.items():
        domain, short = _split(name, driver)
        capacity.setdefault(domain, []).append((short, Quantity.of(amount.text)))
    return MapValue(
        (
            ("driver", driver),
            ("allowMultipleAllocations", device.is_shareable),
            ("attributes", _by_domain(attributes)),
            ("capacity", _by_domain(capacity)),
        )
    )


def _by_domain(found: Mapping[str, list[tuple[str, Value]]]) -> MapValue:
    return MapValue(((domain, MapValue(values)) for domain, values in found.items()), default=_EMPTY)


def _split(name: str, driver: str) -> tuple[str, str]:
    """Return the domain and the name in it. A name without a domain belongs to the driver's."""
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


def _attribute_value(raw: Mapping[str, Any]) -> Value:
    for field in _ATTRIBUTE_FIELDS:
        value = raw.get(field)
        if value is None:
            continue
        if field == "version":
            return _version(value)
        return [_version(one) for one in value] if field == "versions" else value
    raise EvalError("unsupported attribute value")


def _version(text: str) -> Semver:
    try:
        return Semver.of(text)
    except EvalError as err:
        raise EvalError(f"parse semantic version: {err}") from err
