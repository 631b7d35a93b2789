"""`PodAsks`: what a pod needs of NUMA zones: its containers one by one, and all together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from berth_sdk.needs import Need
from berth_sdk.quantity import nano_value, resource_units

FIELDS: Final = (
    "containers.resources",
    "containers.restartPolicy",
    "initContainers.resources",
    "initContainers.restartPolicy",
    "overhead",
    "resources",
)
"""The fields of a pod's spec that this module reads."""
NEED: Final = Need.whole_pod(FIELDS)
_BOUND: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"
_STORAGE: Final = ("storage", "ephemeral-storage")


class Kind(Enum):
    """The kinds of containers, with the reason for a container that cannot be aligned."""

    INIT = "cannot align init container"
    SIDECAR = "cannot align sidecar container"
    MAIN = "cannot align container"


NO_POD: Final = "cannot align pod"


@dataclass(frozen=True, slots=True)
class PodAsks:
    """The requests of a pod. Amounts by resource, cpu in milli and all else in base units.

    `containers`: kind and requests, init containers first. `together`: what all of them need at most at a
    time, with overhead. `guaranteed`: the kubelet binds cpu and memory to zones for pods of this class alone.
    """

    containers: tuple[tuple[Kind, Mapping[str, int]], ...]
    together: Mapping[str, int]
    guaranteed: bool

    def binds(self, resource: str) -> bool:
        """Return True if the kubelet takes the resource of the pod from zones."""
        return self.guaranteed or not (resource in _BOUND or resource.startswith(_HUGE_PAGES))

    @property
    def asks_of_zones(self) -> bool:
        """True if the pod may need anything of zones."""
        return any(amount > 0 and self.binds(name) for name, amount in self.together.items())


def may_be_elsewhere(resource: str) -> bool:
    """Return True for a resource that a node may have without any zone: extended ones, and storage."""
    return "/" in resource or resource in _STORAGE


def read_asks(spec: Mapping[str, Any]) -> PodAsks:
    """Return what a pod of this spec needs."""
    inits = [(_kind(one), one) for one in spec.get("initContainers") or ()]
    mains = [(Kind.MAIN, one) for one in spec.get("containers") or ()]
    containers = tuple((kind, _requests(one.get("resources"))) for kind, one in (*inits, *mains))
    together: dict[str, int] = {}
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for kind, requests in containers:
        if kind is Kind.INIT:
            _raise(most, _sum(beside, requests))
        else:
            beside = _sum(beside, requests)
            _raise(most, beside)
    together = dict(most)
    if "resources" in spec:
        # Requests of the pod itself take the place of the sums, for the resources that they name.
        together |= _requests(spec.get("resources"))
    together = _sum(together, _amounts(spec.get("overhead")))
    return PodAsks(containers, together, _is_guaranteed(spec, (one for _, one in (*inits, *mains))))


def _kind(container: Mapping[str, Any]) -> Kind:
    return Kind.SIDECAR if container.get("restartPolicy") == "Always" else Kind.INIT


def _amounts(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: resource_units(name, nano_value(value)) for name, value in (amounts or {}).items()}


def _requests(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Return the requests; a limit without a request is one."""
    resources = resources or {}
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def _raise(most: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        most[name] = max(most.get(name, 0), amount)


def _is_guaranteed(spec: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> bool:
    holders = [spec] if spec.get("resources") else list(containers)
    for holder in holders:
        resources = holder.get("resources") or {}
        limits, requests = _amounts(resources.get("limits")), _requests(resources)
        if any(limits.get(name, 0) <= 0 or limits[name] != requests.get(name) for name in _BOUND):
            return False
    return bool(holders)
