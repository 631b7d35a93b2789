"""The `pods/resize` subresource: changes requests and limits of a pod's containers.

Called by `ApiServer.update` and `patch`. There is no kubelet here, so the new resources count at once.
Source: `pkg/registry/core/pod/strategy.go` (podResizeStrategy), core `validation.go` (ValidatePodResize),
v1.36. Pod-level resources are not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from berth_host.errors.cluster import FieldProblem
from berth_sdk.quantity import nano_value

_LISTS: Final = ("containers", "initContainers")
_TAKEN_OVER: Final = ("resources", "resizePolicy")
_MUTABLE: Final = frozenset({"cpu", "memory"})
_AMOUNTS: Final = ("requests", "limits")
Object = Mapping[str, Any]


def resized(old: Object, wanted: Object) -> dict[str, Any]:
    """Return the pod `old` with the container resources of `wanted`.

    Containers that do not match in number and names are copied from `wanted`; `resize_problems` refuses them.
    """
    spec, wish = old.get("spec") or {}, wanted.get("spec") or {}
    changes = {key: _containers(spec.get(key) or [], wish.get(key) or []) for key in _LISTS}
    return {**old, "spec": {**spec, **{key: value for key, value in changes.items() if value}}}


def _containers(old: list[Object], wanted: list[Object]) -> list[Any]:
    if [item.get("name") for item in old] != [item.get("name") for item in wanted]:
        return wanted
    return [
        {key: value for key, value in before.items() if key not in _TAKEN_OVER}
        | {key: after[key] for key in _TAKEN_OVER if key in after}
        for before, after in zip(old, wanted, strict=True)
    ]


def resize_problems(old: Object, new: Object) -> list[FieldProblem]:
    """Return the problems for which the API server refuses a resize. Both pods must be valid."""
    problems: list[FieldProblem] = []
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    for key in _LISTS:
        before, after = old_spec.get(key) or [], new_spec.get(key) or []
        if [item.get("name") for item in before] != [item.get("name") for item in after]:
            problems.append(FieldProblem(f"spec.{key}", "containers cannot be added, removed or renamed"))
            continue
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            problems += _resource_problems(f"spec.{key}[{i}].resources", one, other)
    if not problems and qos_class(old_spec) != qos_class(new_spec):
        problems.append(FieldProblem("spec", "the QoS class of a pod cannot be changed by a resize"))
    return problems


def _resource_problems(path: str, old: Object, new: Object) -> Iterator[FieldProblem]:
    for kind in _AMOUNTS:
        before = (old.get("resources") or {}).get(kind) or {}
        after = (new.get("resources") or {}).get(kind) or {}
        for name in sorted({*before, *after}):
            if before.get(name) == after.get(name):
                continue
            if name not in _MUTABLE:
                yield FieldProblem(f"{path}.{kind}.{name}", "only cpu and memory can be changed")
            elif name not in after:
                yield FieldProblem(f"{path}.{kind}.{name}", "cannot be removed")


def qos_class(spec: Object) -> str:
    """Return `Guaranteed`, `Burstable` or `BestEffort`, from cpu and memory of all containers."""
    containers = [item.get("resources") or {} for key in _LISTS for item in spec.get(key) or ()]
    amounts = [_amounts(item) for item in containers]
    if not any(requests or limits for requests, limits in amounts):
        return "BestEffort"
    if all(limits.keys() == _MUTABLE and {**limits, **requests} == limits for requests, limits in amounts):
        return "Guaranteed"
    return "Burstable"


def _amounts(resources: Object) -> tuple[dict[str, int], dict[str, int]]:
    """Return requests and limits of cpu and memory, without those of 0."""
    requests, limits = (
        {
            name: amount
            for name, text in (resources.get(kind) or {}).items()
            if name in _MUTABLE and (amount := nano_value(text))
        }
        for kind in _AMOUNTS
    )
    return requests, limits
