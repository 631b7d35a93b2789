"""A ResourceSlice -> records of its devices. Read once for each version of a slice.

Quantities are exact, in billionths. Source: `k8s.io/api/resource/v1` types.go, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from berth_sdk.kube_object import KubeObject
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.quantity import nano_value
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray


class PoolId(NamedTuple):
    """A pool. Its name is unique only for its driver."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """One device of the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def pool_id(self) -> PoolId:
        """The pool of the device."""
        return PoolId(self.driver, self.pool)


@dataclass(frozen=True, slots=True)
class Place:
    """The nodes where a slice or a device can be used: one node, all nodes, or those that a selector
    matches.
    """

    node_name: str | None = None
    everywhere: bool = False
    selector: NodeSelector | None = None
    raw_selector: Mapping[str, Any] | None = None

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Place:
        """Read `nodeName`, `allNodes`, `nodeSelector`. Raises SelectorError."""
        selector = None
        if raw.get("nodeSelector") is not None:
            selector = NodeSelector.of(raw["nodeSelector"])
            selector.check()
        return Place(
            raw.get("nodeName") or None, bool(raw.get("allNodes")), selector, raw.get("nodeSelector")
        )

    @property
    def is_said(self) -> bool:
        """True if any of the three fields is set."""
        return self.node_name is not None or self.everywhere or self.selector is not None

    def over(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes where the slice or device can be used."""
        count = len(nodes)
        if self.node_name is not None:
            mask = np.zeros(count, dtype=np.bool_)
            position = nodes.position(self.node_name)
            if position is not None:
                mask[position] = True
            return mask
        if self.everywhere or self.selector is None:
            return np.full(count, self.everywhere, dtype=np.bool_)
        return self.selector.over(nodes)


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint of a device."""

    key: str
    value: str
    effect: str

    @staticmethod
    def of(raw: Mapping[str, Any]) -> DeviceTaint:
        """Read a taint."""
        return DeviceTaint(raw.get("key") or "", raw.get("value") or "", raw.get("effect") or "")


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device, and how much of it one claim may take. Billionths.

    `text`: the amount as it is written. `default`, `values`: (amount, text). `step_is_binary`: the step is
    written with a binary suffix.
    """

    nano: int
    text: str
    has_policy: bool = False
    default: tuple[int, str] | None = None
    values: tuple[tuple[int, str], ...] | None = None
    has_range: bool = False
    least: tuple[int, str] | None = None
    most_nano: int | None = None
    step_nano: int | None = None
    step_is_binary: bool = False

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Capacity:
        """Read a DeviceCapacity. Raises QuantityError."""
        amount, text = _amount(raw["value"])
        policy = raw.get("requestPolicy")
        if policy is None:
            return Capacity(amount, text)
        values = policy.get("validValues")
        span = policy.get("validRange")
        return Capacity(
            amount,
            text,
            True,
            default=None if policy.get("default") is None else _amount(policy["default"]),
            values=tuple(map(_amount, values)) if values else None,
            has_range=span is not None,
            least=_amount(span["min"]) if span and span.get("min") is not None else None,
            most_nano=nano_value(span["max"]) if span and span.get("max") is not None else None,
            step_nano=nano_value(span["step"]) if span and span.get("step") is not None else None,
            step_is_binary=bool(span) and str(span.get("step")).endswith("i"),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device. `attributes`: as in the slice, with the names used there.

    `consumes`: for each counter set the amounts that the device takes, in billionths. `place` counts only
    where the slice leaves the place to its devices.
    """

    id: DeviceId
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Capacity]
    is_shareable: bool
    taints: tuple[DeviceTaint, ...]
    consumes: tuple[tuple[str, Mapping[str, int]], ...]
    place: Place
    binds_to_node: bool
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]

    @property
    def taints_in_the_way(self) -> list[DeviceTaint]:
        """The taints that exclude claims without a toleration."""
        return [taint for taint in self.taints if taint.effect in ("NoSchedule", "NoExecute")]


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """One ResourceSlice. `counters`: amounts in billionths by counter set, of a slice that defines counters.
    `repeats_counter_set`: the slice names a counter set twice.
    """

    name: str
    pool: PoolId
    generation: int
    slice_count: int
    place: Place
    per_device: bool
    devices: tuple[Device, ...]
    counters: Mapping[str, Mapping[str, int]]
    repeats_counter_set: bool

    @staticmethod
    def of(item: KubeObject) -> Slice:
        """Read a slice. Raises QuantityError or SelectorError for values that cannot be read, and KeyError,
        TypeError or AttributeError for a shape that the API server refuses.
        """
        spec = item.parsed["spec"]
        pool = PoolId(spec["driver"], spec["pool"]["name"])
        sets = spec.get("sharedCounters") or ()
        counters = {one["name"]: _amounts(one.get("counters")) for one in sets}
        return Slice(
            name=item.ref.name,
            pool=pool,
            generation=int(spec["pool"].get("generation") or 0),
            slice_count=int(spec["pool"].get("resourceSliceCount") or 0),
            place=Place.of(spec),
            per_device=bool(spec.get("perDeviceNodeSelection")),
            devices=tuple(_device(pool, raw) for raw in spec.get("devices") or ()),
            counters=counters,
            repeats_counter_set=len(counters) < len(sets),
        )


def _device(pool: PoolId, raw: Mapping[str, Any]) -> Device:
    return Device(
        id=DeviceId(pool.driver, pool.pool, raw["name"]),
        attributes=raw.get("attributes") or {},
        capacity={name: Capacity.of(value) for name, value in (raw.get("capacity") or {}).items()},
        is_shareable=bool(raw.get("allowMultipleAllocations")),
        taints=tuple(map(DeviceTaint.of, raw.get("taints") or ())),
        consumes=tuple(
            (one["counterSet"], _amounts(one.get("counters"))) for one in raw.get("consumesCounters") or ()
        ),
        place=Place.of(raw),
        binds_to_node=bool(raw.get("bindsToNode")),
        binding_conditions=_texts(raw.get("bindingConditions")),
        binding_failure_conditions=_texts(raw.get("bindingFailureConditions")),
    )


def _amount(value: Any) -> tuple[int, str]:
    return nano_value(value), str(value)


def _amounts(raw: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: nano_value(one["value"]) for name, one in (raw or {}).items()}


def _texts(raw: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(raw or ())
