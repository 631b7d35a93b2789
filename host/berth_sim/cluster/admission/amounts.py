"""Formats amounts as the API server does in its refusals. Used by `gatekeeping` and `quotas`.

A sum has the form of its first amount: binary (`1536Mi`) or decimal (`1500M`, `1700m`).
Source: apimachinery `pkg/api/resource/quantity.go` (CanonicalizeBytes), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth_sdk.quantity import NANO

_BINARY: Final = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL: Final = ("E", "P", "T", "G", "M", "k", "", "m", "u", "n")
_CONTAINERS: Final = ("containers", "initContainers")


def written(nano: int, *, binary: bool) -> str:
    """Return an amount in billionths as text, with the largest suffix that keeps it exact."""
    if binary and nano % NANO == 0:
        amount = nano // NANO
        for power, suffix in zip(range(6, 0, -1), _BINARY, strict=True):
            if amount and amount % 1024**power == 0:
                return f"{amount // 1024**power}{suffix}"
        return str(amount)
    for exponent, suffix in zip(range(27, -1, -3), _DECIMAL, strict=True):
        if nano and nano % 10**exponent == 0:
            return f"{nano // 10**exponent}{suffix}"
    return "0"


def shape_of(spec: Mapping[str, Any], which: str) -> dict[str, Any]:
    """Return a pod's spec with only its amounts, as requests, so that `requests_of` adds them up.

    `which`: `requests` or `limits`. Containers keep their restartPolicy, which marks sidecars. Pod-level
    amounts count before those of the containers. The overhead is left out.
    """

    def amounts(holder: Mapping[str, Any]) -> dict[str, Any]:
        return {"requests": (holder.get("resources") or {}).get(which) or {}}

    shape: dict[str, Any] = {
        key: [
            {
                "resources": amounts(container),
                **({"restartPolicy": container["restartPolicy"]} if container.get("restartPolicy") else {}),
            }
            for container in spec[key]
        ]
        for key in _CONTAINERS
        if spec.get(key)
    }
    if (own := amounts(spec))["requests"]:
        shape["resources"] = own
    return shape


def named_in(shape: Mapping[str, Any]) -> set[str]:
    """Return the names of all amounts in a result of `shape_of`."""
    holders = (shape, *(container for key in _CONTAINERS for container in shape.get(key, ())))
    return {name for holder in holders for name in (holder.get("resources") or {}).get("requests") or {}}


def is_binary(amount: Any) -> bool:
    """Return True if an amount is written in powers of 1024."""
    return str(amount).endswith("i")


def is_binary_in(spec: Mapping[str, Any], which: str, name: str) -> bool:
    """Return True if the first amount of this name in a pod's spec is written in powers of 1024.

    `which`: `requests` or `limits`.
    """
    holders: Iterable[Any] = (spec, *(one for key in _CONTAINERS for one in spec.get(key) or ()))
    said = (((holder.get("resources") or {}).get(which) or {}).get(name) for holder in holders)
    return is_binary(next((amount for amount in said if amount is not None), ""))
