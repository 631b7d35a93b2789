"""Constraints over the devices of one claim: all with the same value of an attribute, or each with a
different one.

Source: `dynamic-resource-allocation/structured/internal/incubating/` (matchAttributeConstraint) and
`constraint.go` (distinctAttributeConstraint), v1.38.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from berth_plugins.dynamic_resources.devices import Device
from berth_plugins.dynamic_resources.requests import Request

_KINDS = ("string", "int", "bool", "version")
TypedValue = tuple[str, Any]


class Constraint(Protocol):
    """A constraint, which the search calls for every device that it takes or puts back."""

    def add(self, request: Request, device: Device) -> bool:
        """Add the device to the ones taken, if the constraint allows it. Returns True if it was added."""
        ...

    def remove(self, request: Request, device: Device) -> None:
        """Undo an `add` that returned True."""
        ...


class MatchAttribute:
    """All devices of the constraint have the attribute, with the same value."""

    def __init__(
        self, requests: Sequence[str], attribute: str, *, versions_without_build: bool = True
    ) -> None:
        self._requests = requests
        self._versions_without_build = versions_without_build
        self._attribute = attribute
        self._value: TypedValue | None = None
        self._count = 0

    def add(self, request: Request, device: Device) -> bool:
        """Add the device. The first device decides the value."""
        if not request.is_among(self._requests):
            return True
        raw = attribute_of(device, self._attribute)
        if raw is None:
            return False
        value = _typed(raw, versions_without_build=self._versions_without_build)
        if self._count == 0:
            self._value = value
        elif value is None or value != self._value:
            return False
        self._count += 1
        return True

    def remove(self, request: Request, device: Device) -> None:
        """Remove the device. Without devices, the next one decides the value."""
        if request.is_among(self._requests):
            self._count -= 1


class DistinctAttribute:
    """All devices of the constraint have the attribute, each with a different value."""

    def __init__(
        self, requests: Sequence[str], attribute: str, *, versions_without_build: bool = True
    ) -> None:
        self._requests = requests
        self._versions_without_build = versions_without_build
        self._attribute = attribute
        self._values: list[TypedValue | None] = []

    def add(self, request: Request, device: Device) -> bool:
        """Add the device if no other device has its value."""
        if not request.is_among(self._requests):
            return True
        raw = attribute_of(device, self._attribute)
        if raw is None:
            return False
        value = _typed(raw, versions_without_build=self._versions_without_build)
        if self._values and (value is None or value in self._values):
            return False
        self._values.append(value)
        return True

    def remove(self, request: Request, device: Device) -> None:
        """Remove the last device: the search puts devices back in reverse order."""
        if request.is_among(self._requests):
            self._values.pop()


def constraints_of(spec: Mapping[str, Any], *, versions_without_build: bool = True) -> list[Constraint]:
    """Return the constraints of a claim, without devices. Raises ValueError with the place of a constraint of
    another kind. `versions_without_build`: versions that differ in their build part are equal, as in semver.
    """
    made: list[Constraint] = []
    for i, raw in enumerate((spec.get("devices") or {}).get("constraints") or ()):
        requests = tuple(raw.get("requests") or ())
        if raw.get("matchAttribute") is not None:
            match = raw["matchAttribute"]
            made.append(MatchAttribute(requests, match, versions_without_build=versions_without_build))
        elif raw.get("distinctAttribute") is not None:
            distinct = raw["distinctAttribute"]
            made.append(DistinctAttribute(requests, distinct, versions_without_build=versions_without_build))
        else:
            raise ValueError(f"constraint #{i}: empty constraint (unsupported constraint type?)")
    return made


def attribute_of(device: Device, name: str) -> Mapping[str, Any] | None:
    """Return the attribute with a full name, `domain/name`. A name without a domain in the slice belongs to
    the domain of its driver.
    """
    found = device.attributes.get(name)
    if found is not None:
        return found
    domain, slash, short = name.partition("/")
    return device.attributes.get(short) if slash and domain == device.id.driver else None


def _typed(raw: Mapping[str, Any], *, versions_without_build: bool) -> TypedValue | None:
    for kind in _KINDS:
        if raw.get(kind) is not None:
            value = raw[kind]
            if kind == "version" and versions_without_build and isinstance(value, str):
                value = value.partition("+")[0]
            return kind, value
    return None
