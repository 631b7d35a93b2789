"""A pod's containers -> its requests. Called once per pod, when the pod's record is made.

Sums are exact; only the final numbers are rounded.

Source: component-helpers `resource/helpers.go` (PodRequests, AggregateContainerRequests) and kube-scheduler
`framework/types.go` (calculateResource), v1.36, with PodLevelResources and InPlacePodVerticalScaling on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from berth_sdk.errors import ObjectError, QuantityError
from berth_sdk.quantity import nano_value, resource_units

Nanos = dict[str, int]
DEFAULT_CPU_NANO: Final = 10**8  # 100m, DefaultMilliCPURequest
DEFAULT_MEMORY_NANO: Final = 200 * 2**20 * 10**9  # 200 MiB, DefaultMemoryRequest
_DEFAULTS: Final = {"cpu": DEFAULT_CPU_NANO, "memory": DEFAULT_MEMORY_NANO}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequests:
    """A pod's requests. Units: cpu in milli, everything else in base units. An explicit 0 stays in the maps.

    `requests`: counted against allocatable. `non_zero`: cpu and memory, as the pod counts in a node's
    non-zero total. `score`: the amounts that NodeResourcesFit's strategies add for the pod.
    """

    requests: dict[str, int]
    non_zero: dict[str, int]
    score: dict[str, int]


def requests_of(spec: Mapping[str, Any], status: Mapping[str, Any] | None) -> PodRequests:
    """Return the requests of a pod. `status`: for a pod on a node, whose resizes count; None for other pods.

    Raises ObjectError with the path of a quantity that cannot be read.
    """
    shape = _plain_shape(spec, status)
    return _computed(spec, status) if shape is None else _of_shape(shape)


_Shape = tuple[tuple[tuple[str, Any], ...], ...]


def _plain_shape(spec: Mapping[str, Any], status: Mapping[str, Any] | None) -> _Shape | None:
    """Return the requests of plain containers, one entry each. None: something else in the pod counts too."""
    if any(spec.get(field) for field in ("initContainers", "overhead", "resources")):
        return None
    if status and (status.get("containerStatuses") or status.get("resources")):
        return None
    try:
        return tuple(
            tuple(((container.get("resources") or {}).get("requests") or {}).items())
            for container in spec.get("containers") or ()
        )
    except AttributeError:
        return None  # a value has a wrong type; the full reading reports it


def _of_shape(shape: _Shape) -> PodRequests:
    try:
        # 1, 1.0 and True are equal as keys but not as quantities.
        return _remembered(shape) if all(type(v) is str for item in shape for _, v in item) else _again(shape)
    except TypeError:
        return _again(shape)  # a value that cannot be a key; the full reading reports it


@lru_cache(maxsize=1024)
def _remembered(shape: _Shape) -> PodRequests:
    """Return cached requests. Equal pods share the three maps, which no code changes."""
    return _again(shape)


def _again(shape: _Shape) -> PodRequests:
    return _computed({"containers": [{"resources": {"requests": dict(item)}} for item in shape]}, None)


def _computed(spec: Mapping[str, Any], status: Mapping[str, Any] | None) -> PodRequests:
    reader = _Reader(spec, status)
    plain = reader.containers(defaults=None)
    overhead = _quantities(spec.get("overhead"), "spec.overhead")
    pod_level = reader.pod_level()
    score = reader.containers(defaults=_DEFAULTS)
    if pod_level:
        total = plain | pod_level
        _add(total, overhead)
        _add(score, overhead)
        # For a resource that neither pod nor container names, the default counts per container, not once per
        # pod.
        lacking = {name: default for name, default in _DEFAULTS.items() if name not in total}
        guessed = reader.containers(defaults=lacking) if lacking else {}
        non_zero = {name: (guessed if name in lacking else total).get(name, 0) for name in _DEFAULTS}
    else:
        total = plain
        _add(total, overhead)
        _add(score, overhead)
        non_zero = {name: score.get(name, 0) for name in _DEFAULTS}
    return PodRequests(requests=_units(total), non_zero=_units(non_zero), score=_units(score))


class _Reader:
    def __init__(self, spec: Mapping[str, Any], status: Mapping[str, Any] | None) -> None:
        self._spec = spec
        self._status = status
        self._actual: dict[str, Mapping[str, Any]] = {}
        self._infeasible = False
        if status:
            for field in ("containerStatuses", "initContainerStatuses"):
                for item in status.get(field) or ():
                    if item.get("resources") is not None:
                        self._actual[str(item.get("name"))] = item
            self._infeasible = any(
                condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
                for condition in status.get("conditions") or ()
            )

    def containers(self, defaults: Mapping[str, int] | None) -> Nanos:
        total: Nanos = {}
        for i, container in enumerate(self._spec.get("containers") or ()):
            _add(total, self._request(container, f"spec.containers[{i}]", defaults))
        init = self._spec.get("initContainers")
        if not init:
            return total
        sidecars: Nanos = {}
        peak: Nanos = {}
        for i, container in enumerate(init):
            always = container.get("restartPolicy") == "Always"
            request = self._request(container, f"spec.initContainers[{i}]", defaults, always)
            if always:
                _add(total, request)
                _add(sidecars, request)
                current = sidecars
            else:
                current = dict(request)
                _add(current, sidecars)
            _raise_to(peak, current)
        _raise_to(total, peak)
        return total

    def pod_level(self) -> Nanos:
        """Return the pod-level requests of the resources that may be set there; empty when there are none."""
        resources = self._spec.get("resources")
        if not resources or not resources.get("requests"):
            return {}
        wanted = _quantities(resources["requests"], "spec.resources.requests")
        actual = (self._status or {}).get("resources")
        if actual is not None:
            wanted = self._resized(
                wanted, actual.get("requests"), (self._status or {}).get("allocatedResources")
            )
        return {
            name: value
            for name, value in wanted.items()
            if name in ("cpu", "memory") or name.startswith("hugepages-")
        }

    def _request(
        self,
        container: Mapping[str, Any],
        path: str,
        defaults: Mapping[str, int] | None,
        resizable: bool = True,
    ) -> Nanos:
        request = _quantities(
            (container.get("resources") or {}).get("requests"), f"{path}.resources.requests"
        )
        actual = self._actual.get(str(container.get("name"))) if resizable else None
        if actual is not None:
            request = self._resized(
                request, actual["resources"].get("requests"), actual.get("allocatedResources")
            )
        if defaults is not None:
            for name, value in defaults.items():
                request.setdefault(name, value)
        return request

    def _resized(self, wanted: Nanos, actual: Any, allocated: Any) -> Nanos:
        result = {} if self._infeasible else dict(wanted)
        _raise_to(result, _quantities(actual, "status resources.requests"))
        _raise_to(result, _quantities(allocated, "status allocatedResources"))
        return result


def _quantities(raw: Any, path: str) -> Nanos:
    if not raw:
        return {}
    if not isinstance(raw, Mapping):
        raise ObjectError(path, "is not a map of resource names to quantities")
    result: Nanos = {}
    for name, value in raw.items():
        try:
            result[name] = nano_value(value)
        except QuantityError as err:
            raise ObjectError(f"{path}.{name}", str(err)) from err
    return result


def quantities(raw: Any, path: str) -> dict[str, int]:
    """Return a map of quantities in scheduling units. Raises ObjectError with `path` and the key."""
    return _units(_quantities(raw, path))


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise_to(total: Nanos, least: Mapping[str, int]) -> None:
    for name, value in least.items():
        if name not in total or total[name] < value:
            total[name] = value


def _units(values: Mapping[str, int]) -> dict[str, int]:
    return {name: resource_units(name, value) for name, value in values.items()}
