"""The spec of a ResourceClaim -> its requests, with the defaults of the API server.

Source: `k8s.io/api/resource/v1` types.go (DeviceClaim), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.quantity import nano_value

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"


@dataclass(frozen=True, slots=True)
class DeviceToleration:
    """A toleration of device taints. The empty operator reads as Equal, the empty key and effect as any."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        """Return True if the toleration covers this taint."""
        if self.effect not in ("", effect) or self.key not in ("", key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == value)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, or one alternative of a request (`parent`) at `index`.

    `selectors`: CEL expressions, None for a selector of another kind. `capacity`: (amount in billionths,
    text) by name; None: the request names no capacity.
    """

    name: str
    class_name: str
    mode: str
    count: int
    admin_access: bool
    selectors: tuple[str | None, ...]
    tolerations: tuple[DeviceToleration, ...]
    raw_tolerations: Sequence[Mapping[str, Any]]
    capacity: Mapping[str, tuple[int, str]] | None
    parent: str = ""
    index: int = 0

    @property
    def full_name(self) -> str:
        """`request`, or `request/alternative`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def is_among(self, names: Sequence[str]) -> bool:
        """Return True if a constraint on requests with these names covers this request. No names: every
        request.
        """
        return not names or (self.parent or self.name) in names or self.full_name in names


@dataclass(frozen=True, slots=True)
class RequestList:
    """A request as it is written in the claim: its alternatives in order of preference, or itself alone."""

    name: str
    is_list: bool
    alternatives: tuple[Request, ...]

    @staticmethod
    def of(raw: Mapping[str, Any]) -> RequestList:
        """Read a request. Raises QuantityError, and any error of the reading on a shape that the API server
        refuses.
        """
        name = raw.get("name") or ""
        if raw.get("exactly") is not None:
            return RequestList(name, False, (_request(raw["exactly"], name),))
        choices = raw.get("firstAvailable") or ()
        return RequestList(
            name,
            True,
            tuple(_request(one, one.get("name") or "", name, i) for i, one in enumerate(choices)),
        )


def requests_of(spec: Mapping[str, Any]) -> tuple[RequestList, ...]:
    """Return the requests of a ResourceClaimSpec, in order."""
    return tuple(RequestList.of(raw) for raw in (spec.get("devices") or {}).get("requests") or ())


def _request(raw: Mapping[str, Any], name: str, parent: str = "", index: int = 0) -> Request:
    mode = raw.get("allocationMode") or EXACT_COUNT
    capacity = raw.get("capacity")
    wanted = None if capacity is None else capacity.get("requests") or {}
    tolerations = raw.get("tolerations") or ()
    return Request(
        name=name,
        class_name=raw.get("deviceClassName") or "",
        mode=mode,
        count=int(raw.get("count") or 1) if mode == EXACT_COUNT else 0,
        # Only a request itself can ask for it, not an alternative.
        admin_access=bool(raw.get("adminAccess")) and not parent,
        selectors=tuple((one.get("cel") or {}).get("expression") for one in raw.get("selectors") or ()),
        tolerations=tuple(
            DeviceToleration(
                one.get("key") or "",
                one.get("operator") or "",
                one.get("value") or "",
                one.get("effect") or "",
            )
            for one in tolerations
        ),
        raw_tolerations=tolerations,
        capacity=None
        if wanted is None
        else {key: (nano_value(value), str(value)) for key, value in wanted.items()},
        parent=parent,
        index=index,
    )
