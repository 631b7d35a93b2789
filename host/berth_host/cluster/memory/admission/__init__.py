"""Admission of the embedded API server: the defaults that scheduling reads, and PriorityClasses.

Called by the embedded server, with `admit` for a new object and `admit_update` for a new version of one.
Neither changes its input.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from berth_host.cluster.memory.admission.label_keys import with_label_keys
from berth_host.cluster.memory.admission.objects import (
    DefaultStorageClass,
    default_claim,
    default_node,
    default_object,
)
from berth_host.cluster.memory.admission.pod import default_pod
from berth_host.cluster.memory.admission.priority import PriorityClasses
from berth_host.errors.cluster import FieldProblem

__all__ = ["Admission", "PriorityClasses"]
_MAX_SPECS: Final = 512
# The oldest format: equal values of equal types give equal bytes, however they are shared in memory.
_EXACT: Final = 2
_KEPT: Final = ("priority", "preemptionPolicy")
"""The fields that a pod gets from its PriorityClass at create; an update without them keeps them."""
Json = dict[str, Any]


class Admission:
    """Defaulting, and the two admission steps that need other objects.

    `priorities` holds the PriorityClasses; `storage_classes` the default class of claims without one.
    """

    def __init__(self) -> None:
        self.priorities = PriorityClasses()
        self.storage_classes = DefaultStorageClass()
        # Specs with defaults, by everything that the defaults depend on: workloads repeat one spec.
        self._specs: OrderedDict[tuple[bytes, int, bool], Json] = OrderedDict()

    def admit(
        self, kind: str, obj: dict[str, Any], *, is_new: bool = False
    ) -> tuple[dict[str, Any], list[FieldProblem], str]:
        """Return the object to store, the problems with its fields, and the refusal ("": none).

        `is_new`: the object has not passed the admission of an API server yet.
        """
        if kind == "Pod":
            spec, problems, refusal = self._pod_spec(obj, is_new=is_new)
            return {**obj, "spec": spec}, problems, refusal
        if kind == "Node":
            return default_node(obj), [], ""
        if kind == "PersistentVolumeClaim":
            return default_claim(obj, self.storage_classes.name), [], ""
        return default_object(kind, obj), [], ""

    @staticmethod
    def admit_update(kind: str, old: Json, new: Json) -> Json:
        """Return `new`, which replaces `old`, with the defaults for its missing fields."""
        if kind == "Node":
            return default_node(new)
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if kind != "Pod" or after is before:
            return new
        kept = {key: before[key] for key in _KEPT if key in before and after.get(key) is None}
        return {**new, "spec": default_pod(after) | kept}

    def _pod_spec(self, pod: Mapping[str, Any], *, is_new: bool) -> tuple[Json, list[FieldProblem], str]:
        """Return a pod's spec with defaults, its problems and its refusal.

        Equal pods share one spec, because stored objects are never changed in place.
        """
        labels = (pod.get("metadata") or {}).get("labels") or {}
        given = pod.get("spec") or {}
        try:
            key = marshal.dumps((given, labels), _EXACT), self.priorities.version, is_new
        except ValueError:
            key = None  # `marshal` cannot write values of other types than JSON's.
        known = None if key is None else self._specs.get(key)
        if known is not None:
            return known, [], ""
        written, problems = with_label_keys(given, labels)
        spec, more, refusal = self.priorities.admitted(default_pod(written), is_new=is_new)
        problems += more
        if key is not None and not problems and not refusal:
            # Copied, because the caller may change the original in place.
            spec = self._specs[key] = marshal.loads(marshal.dumps(spec, _EXACT))
            if len(self._specs) > _MAX_SPECS:
                self._specs.popitem(last=False)
        return spec, problems, refusal
