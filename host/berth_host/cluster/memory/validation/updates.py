"""Checks that an update of a pod changes only fields that may change.

Called by the embedded server for updates and patches of the main resource.
Source: core `validation.go` (ValidatePodUpdate), v1.36. Updates of other kinds are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_host.cluster.memory.kinds import POD, Kind
from berth_host.errors.cluster import FieldProblem

_FREE: Final = frozenset(
    {"tolerations", "schedulingGates", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
)
_FREE_WHILE_GATED: Final = frozenset({"nodeSelector", "affinity"})
_CONTAINERS: Final = ("containers", "initContainers")
Spec = Mapping[str, Any]


def update_problems(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldProblem]:
    """Return the changes that the API server refuses. Both objects must be valid."""
    if kind is not POD:
        return []
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    free = _FREE | (_FREE_WHILE_GATED if old_spec.get("schedulingGates") else frozenset())
    problems = [
        FieldProblem(f"spec.{key}", "cannot be changed: delete the pod and make a new one")
        for key in sorted({*old_spec, *new_spec} - free)
        if _fixed(key, old_spec.get(key)) != _fixed(key, new_spec.get(key))
    ]
    tolerations = new_spec.get("tolerations") or []
    if any(item not in tolerations for item in old_spec.get("tolerations") or []):
        problems.append(FieldProblem("spec.tolerations", "can only be added to"))
    gates = [gate.get("name") for gate in old_spec.get("schedulingGates") or []]
    if any(gate.get("name") not in gates for gate in new_spec.get("schedulingGates") or []):
        problems.append(FieldProblem("spec.schedulingGates", "can only be removed"))
    return problems


def _fixed(key: str, value: Any) -> Any:
    """Return the part of a field that must not change: of containers, everything except the image."""
    if key not in _CONTAINERS or not value:
        return value
    return [{name: item for name, item in container.items() if name != "image"} for container in value]
