"""A pod's containers -> its requests. Called once per pod, when the pod's record is made.

Sums are exact; only the final numbers are rounded.

Source: component-helpers `resource/helpers.go` (PodRequests, AggregateContainerRequests) and kube-scheduler
`framework/types.go` (calculateResource), v1.38, v1.37 and v1.36, with PodLevelResources and the gates of
resizes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

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


def requests_of(
    spec: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    *,
    resizes_by_container: bool = False,
    scores_pod_level: bool = False,
) -> PodRequests:
    """Return the requests of a pod. `status`: for a pod on a node, whose resizes count; None for other pods.

    While a pod is resized, its requests are the most of three totals over all containers: what the spec
    requests, what the kubelet has allocated, and what is in force. `resizes_by_container`: as in
    kube-scheduler 1.36, where each container counts with its most. `scores_pod_level`: the pod's own requests
    count in `score` in place of its containers', since kube-scheduler 1.38.

    Raises ObjectError with the path of a quantity that cannot be read.
    """
    shape = _plain_shape(spec, status)
    if shape is not None:
        return _of_shape(shape)
    return _computed(
        spec, status, resizes_by_container=resizes_by_container, scores_pod_level=scores_pod_level
    )


def has_resizes(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return True if the status may say other requests than the spec."""
    if status.get("resources") is not None or _is_infeasible(status):
        return True
    if not status.get("containerStatuses") and not status.get("initContainerStatuses"):
        return False
    wanted = {
        container.get("name"): (container.get("resources") or {}).get("requests") or {}
        for field in ("containers", "initContainers")
        for container in spec.get(field) or ()
    }
    for field in ("containerStatuses", "initContainerStatuses"):
        for item in status.get(field) or ():
            allocated, actual = item.get("allocatedResources"), item.get("resources")
            known = wanted.get(item.get("name"))
            if allocated is not None and allocated != known:
                return True
            if actual is not None and actual.get("requests") not in (None, known):
                return True
    return False


def _is_infeasible(status: Mapping[str, Any]) -> bool:
    """Return True if the node can never have what the resized pod requests."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


_Shape = tuple[tuple[tuple[str, Any], ...], ...]


def _plain_shape(spec: Mapping[str, Any], status: Mapping[str, Any] | None) -> _Shape | None:
    """Return the requests of plain containers, one entry each. None: something else in the pod counts too."""
    if any(spec.get(field) for field in ("initContainers", "overhead", "resources")):
        return None
    if status and (
        any(status.get(field) for field in ("containerStatuses", "resources")) or _is_infeasible(status)
    ):
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


def _computed(
    spec: Mapping[str, Any],
    status: Mapping[str, Any] | None,
    *,
    resizes_by_container: bool = False,
    scores_pod_level: bool = False,
) -> PodRequests:
    reader = _ContainerReader(spec, status) if resizes_by_container else _Reader(spec, status)
    plain = reader.containers(defaults=None)
    overhead = _quantities(spec.get("overhead"), "spec.overhead")
    pod_level = reader.pod_level()
    score = reader.containers(defaults=_DEFAULTS)
    if pod_level:
        total = plain | pod_level
        if scores_pod_level:
            score |= pod_level
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
    """Reads the requests of one pod."""

    def __init__(self, spec: Mapping[str, Any], status: Mapping[str, Any] | None) -> None:
        self._spec = spec
        self._status: Mapping[str, Any] = status or {}
        self._infeasible = _is_infeasible(self._status)
        self._actual: dict[str, Mapping[str, Any]] = {}
        for field in ("containerStatuses", "initContainerStatuses"):
            for item in self._status.get(field) or ():
                self._actual.setdefault(str(item.get("name")), item)

    def containers(self, defaults: Mapping[str, int] | None) -> Nanos:
        """Return the most that the containers need at one time. `defaults`: for requests that are missing."""
        wanted = self._peak(_request_of_spec, defaults)
        if not self._status:
            return wanted
        total = {} if self._infeasible else wanted
        level = self._status.get("resources")
        allocated = self._status.get("allocatedResources")
        if level is not None and level.get("requests") is not None and allocated is not None:
            # The totals of the pod, which the kubelet has added up.
            _raise_to(total, _quantities(level["requests"], "status.resources.requests"))
            _raise_to(total, _quantities(allocated, "status.allocatedResources"))
        else:
            _raise_to(total, self._peak(self._request_allocated, defaults))
            _raise_to(total, self._peak(self._request_in_force, defaults))
        return total

    def pod_level(self) -> Nanos:
        """Return the pod-level requests of the resources that may be set there; empty when there are none."""
        resources = self._spec.get("resources")
        if not resources or not resources.get("requests"):
            return {}
        wanted = _quantities(resources["requests"], "spec.resources.requests")
        actual = self._status.get("resources")
        if actual is not None:
            wanted = self._resized(wanted, actual.get("requests"), self._status.get("allocatedResources"))
        return {
            name: value
            for name, value in wanted.items()
            if name in ("cpu", "memory") or name.startswith("hugepages-")
        }

    def _peak(self, request_of: _Request, defaults: Mapping[str, int] | None) -> Nanos:
        """Return the most that the containers need at one time. `request_of`: what one of them needs."""
        total: Nanos = {}
        for i, container in enumerate(self._spec.get("containers") or ()):
            request = request_of(container, f"spec.containers[{i}]", is_kept=True)
            _add(total, _with_defaults(request, defaults))
        init = self._spec.get("initContainers")
        if not init:
            return total
        sidecars: Nanos = {}
        peak: Nanos = {}
        for i, container in enumerate(init):
            always = container.get("restartPolicy") == "Always"
            request = request_of(container, f"spec.initContainers[{i}]", is_kept=always)
            request = _with_defaults(request, defaults)
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

    def _request_allocated(self, container: Mapping[str, Any], path: str, *, is_kept: bool) -> Nanos:
        status = self._actual.get(str(container.get("name"))) or {}
        if status.get("allocatedResources") is not None:
            return _quantities(status["allocatedResources"], "status allocatedResources")
        return {} if self._infeasible else _request_of_spec(container, path, is_kept=is_kept)

    def _request_in_force(self, container: Mapping[str, Any], path: str, *, is_kept: bool) -> Nanos:
        status = self._actual.get(str(container.get("name"))) or {}
        actual = (status.get("resources") or {}).get("requests")
        if actual is not None:
            return _quantities(actual, "status resources.requests")
        return self._request_allocated(container, path, is_kept=is_kept)

    def _resized(self, wanted: Nanos, actual: Any, allocated: Any) -> Nanos:
        result = {} if self._infeasible else dict(wanted)
        _raise_to(result, _quantities(actual, "status resources.requests"))
        _raise_to(result, _quantities(allocated, "status allocatedResources"))
        return result


class _ContainerReader(_Reader):
    """Reads the requests of one pod as kube-scheduler 1.36 does: each container counts with its most."""

    def containers(self, defaults: Mapping[str, int] | None) -> Nanos:
        """Return the most that the containers need at one time. `defaults`: for requests that are missing."""
        return self._peak(self._most_of, defaults)

    def _most_of(self, container: Mapping[str, Any], path: str, *, is_kept: bool) -> Nanos:
        request = _request_of_spec(container, path, is_kept=is_kept)
        # Init containers that end are not resized.
        actual = self._actual.get(str(container.get("name"))) if is_kept else None
        if actual is None or actual.get("resources") is None:
            return request
        return self._resized(request, actual["resources"].get("requests"), actual.get("allocatedResources"))


class _Request(Protocol):
    """Returns what a container requests. `path`: of the container, for errors. `is_kept`: it runs beside the
    containers that come after it.
    """

    def __call__(self, container: Mapping[str, Any], path: str, *, is_kept: bool) -> Nanos: ...


def _request_of_spec(container: Mapping[str, Any], path: str, *, is_kept: bool) -> Nanos:
    return _quantities((container.get("resources") or {}).get("requests"), f"{path}.resources.requests")


def _with_defaults(request: Nanos, defaults: Mapping[str, int] | None) -> Nanos:
    return request if defaults is None else {**defaults, **request}


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
