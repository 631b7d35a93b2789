"""RuntimeClass: overhead, node selector and tolerations that a pod gets from its class.

Called by `Gatekeeping`. Source: `plugin/pkg/admission/runtimeclass/admission.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.kube_object import KubeObject
from berth_sdk.quantity import nano_value

Json = dict[str, Any]
_UNDEFINED: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def with_runtime_class(spec: Json, classes: Mapping[str, KubeObject]) -> tuple[Json, str]:
    """Return the completed spec and the API server's refusal ("": none)."""
    name = spec.get("runtimeClassName") or ""
    overhead = spec.get("overhead") or {}
    if not name:
        return spec, _UNDEFINED if overhead else ""
    found = classes.get(name)
    if found is None:
        return spec, f'pod rejected: RuntimeClass "{name}" not found'
    fixed = found.get("overhead.podFixed") or {}
    if overhead and fixed and not _equal(overhead, fixed):
        return spec, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    if overhead and not fixed:
        return spec, _UNDEFINED
    selector = dict(spec.get("nodeSelector") or {})
    for key, wanted in (found.get("scheduling.nodeSelector") or {}).items():
        if selector.setdefault(key, wanted) != wanted:
            where = f"[{key}] = "
            return spec, (
                f"conflict: runtimeClass.scheduling.nodeSelector{where}{wanted}; "
                f"pod.spec.nodeSelector{where}{selector[key]}"
            )
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in found.get("scheduling.tolerations") or () if one not in tolerations]
    completed = {"overhead": fixed, "nodeSelector": selector, "tolerations": tolerations}
    return {**spec, **{key: value for key, value in completed.items() if value}}, ""


def _equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        nano_value(first[name]) == nano_value(second[name]) for name in first
    )
