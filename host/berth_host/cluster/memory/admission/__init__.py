"""What the API server adds to a new object before it is stored: the defaults that scheduling reads.

Called by the embedded server at create. `admit` never changes its input; it answers the object with
defaults and what makes admission refuse it.
"""

from __future__ import annotations

from typing import Any

from berth_host.cluster.memory.admission.label_keys import with_label_keys
from berth_host.cluster.memory.admission.objects import default_claim, default_node, default_object
from berth_host.cluster.memory.admission.pod import default_pod
from berth_host.cluster.memory.admission.priority import PriorityClasses
from berth_host.errors.cluster import FieldProblem

__all__ = ["Admission", "PriorityClasses"]


class Admission:
    """The defaulting and the two admission steps that look at other objects.

    `priorities` knows the PriorityClasses; `default_storage_class` is the name of the class that claims
    without one get, or None.
    """

    def __init__(self) -> None:
        self.priorities = PriorityClasses()
        self.default_storage_class: str | None = None

    def admit(self, kind: str, obj: dict[str, Any]) -> tuple[dict[str, Any], list[FieldProblem]]:
        """The object as it is to be stored, and why it must not be."""
        if kind == "Pod":
            labels = (obj.get("metadata") or {}).get("labels") or {}
            given, problems = with_label_keys(obj.get("spec") or {}, labels)
            spec, more = self.priorities.resolve(default_pod(given))
            return obj | {"spec": spec}, problems + more
        if kind == "Node":
            return default_node(obj), []
        if kind == "PersistentVolumeClaim":
            return default_claim(obj, self.default_storage_class), []
        return default_object(kind, obj), []
