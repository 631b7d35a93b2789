"""Validates objects as the API server does; returns every problem with its path.

The embedded server calls `problems_of` for every object that is created or changed. The manifest loader adds
file and line to the problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_host.cluster.memory.kinds import Kind
from berth_host.cluster.memory.validation.fields import Problems, check_metadata, check_object_name
from berth_host.cluster.memory.validation.kinds import KIND_CHECKS
from berth_host.cluster.memory.validation.known_good import KnownGood
from berth_host.cluster.memory.validation.schema import field_problems
from berth_host.cluster.memory.validation.updates import update_problems
from berth_host.errors.cluster import FieldProblem

__all__ = ["own_problems", "problems_of", "status_problems"]
_good_specs: Final = KnownGood(512, max_bytes=1024 * 1024)
"""The valid specs of pods."""
_good_statuses: Final = KnownGood(256, max_bytes=4096)
"""The valid status values of pods, without their plain text fields."""


def problems_of(kind: Kind, obj: Mapping[str, Any]) -> list[FieldProblem]:
    """Return all problems of `obj`. Values are checked only if every field has the right type."""
    spec = _good_specs.key(obj["spec"]) if kind.kind == "Pod" and obj.get("spec") else None
    if _good_specs.holds(spec):
        # Check the rest of the object; nothing requires a pod's spec.
        obj = {key: value for key, value in obj.items() if key != "spec"}
        return field_problems(kind.kind, obj) or _metadata_problems(kind, obj).found
    wrong_fields = field_problems(kind.kind, obj)
    if wrong_fields:
        return wrong_fields
    problems = _metadata_problems(kind, obj)
    check = KIND_CHECKS.get(kind.kind)
    if check is not None:
        check(problems, obj)
    if not problems.found:
        _good_specs.add(spec)
    return problems.found


def own_problems(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldProblem]:
    """Return the problems of `new`, which replaces `old`; the status of a pod was checked when written."""
    if kind.kind != "Pod":
        return problems_of(kind, new) or update_problems(kind, old, new)
    problems = problems_of(kind, {key: value for key, value in new.items() if key != "status"})
    if not problems and new.get("spec") is not old.get("spec"):
        problems = update_problems(kind, old, new)
    return problems


def status_problems(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldProblem]:
    """Return the problems of a new status.

    Problems of other fields are left out: these fields may be older than a check.
    """
    if kind.kind == "Pod":
        # The checks of pods concern the spec, and each status field can be checked alone.
        before, status = old.get("status") or {}, new["status"]
        if isinstance(status, Mapping):
            status = {key: value for key, value in status.items() if before.get(key) is not value}
        return _pod_status_problems(status)
    return [problem for problem in problems_of(kind, new) if problem.path.startswith("status")]


def _pod_status_problems(status: Any) -> list[FieldProblem]:
    """Return the problems of a pod's status.

    Many pods get the same conditions at once, so a valid value is checked only once. The statuses differ in
    plain text fields only, such as nominatedNodeName, which are checked apart.
    """
    if isinstance(status, Mapping) and any(type(value) is str for value in status.values()):
        texts = {key: value for key, value in status.items() if type(value) is str}
        others = {key: value for key, value in status.items() if key not in texts}
        if field_problems("Pod", {"status": texts}) or (others and _pod_status_problems(others)):
            return field_problems("Pod", {"status": status})
        return []
    key = _good_statuses.key(status)
    if _good_statuses.holds(key):
        return []
    problems = field_problems("Pod", {"status": status})
    if not problems:
        _good_statuses.add(key)
    return problems


def _metadata_problems(kind: Kind, obj: Mapping[str, Any]) -> Problems:
    problems = Problems()
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        problems.add("metadata", "must be a map, with the object's name")
        return problems
    if metadata.get("name") or not metadata.get("generateName"):
        check_object_name(problems, metadata.get("name"), "metadata.name")
    if kind.namespaced and metadata.get("namespace"):
        check_object_name(problems, metadata["namespace"], "metadata.namespace", label=True)
    check_metadata(problems, metadata)
    return problems
