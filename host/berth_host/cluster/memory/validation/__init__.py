"""What the API server would refuse of an object, with the path of each problem.

`problems_of` is asked by the embedded server for everything that is created or changed, and by the
manifest loader, which adds file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth_host.cluster.memory.kinds import Kind
from berth_host.cluster.memory.validation.fields import Problems, check_metadata, check_object_name
from berth_host.cluster.memory.validation.kinds import KIND_CHECKS
from berth_host.cluster.memory.validation.schema import field_problems
from berth_host.errors.cluster import FieldProblem

__all__ = ["problems_of"]


def problems_of(kind: Kind, obj: Mapping[str, Any]) -> list[FieldProblem]:
    """All that is wrong with `obj`. Values are looked at only once every field has its right type."""
    wrong_fields = field_problems(kind.kind, obj)
    if wrong_fields:
        return wrong_fields
    problems = Problems()
    metadata = obj.get("metadata") or {}
    if metadata.get("name") or not metadata.get("generateName"):
        check_object_name(problems, metadata.get("name"), "metadata.name")
    if kind.namespaced and metadata.get("namespace"):
        check_object_name(problems, metadata["namespace"], "metadata.namespace", label=True)
    check_metadata(problems, metadata)
    check = KIND_CHECKS.get(kind.kind)
    if check is not None:
        check(problems, obj)
    return problems.found
