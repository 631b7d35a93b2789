"""The API server's defaults for an object before it is stored, as far as scheduling reads them.

Called by the embedded server. `admit`, at create, returns the object with defaults, the problems with its
fields and the reason for which admission refuses it; `admit_update` the object that takes another's place.
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
"""The fields set from a pod's PriorityClass, at create alone: an update without them keeps them."""
Json = dict[str, Any]


class Admission:
    """The defaulting and the two admission steps that look at other objects.

    `priorities` knows the PriorityClasses; `storage_classes` the class that claims without one get.
    """

    def __init__(self) -> None:
        self.priorities = PriorityClasses()
        self.storage_classes = DefaultStorageClass()
        # Specs by all that their defaults follow from: workloads make the same one over and over.
        self._specs: OrderedDict[tuple[bytes, int, bool], Json] = OrderedDict()

    def admit(
        self, kind: str, obj: dict[str, Any], *, is_new: bool = False
    ) -> tuple[dict[str, Any], list[FieldProblem], str]:
        """Return the object as it is to be stored, the problems with its fields, and a refusal ("": none).

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
        """`new`, which takes the place of `old`, with the defaults that it does not say itself."""
        if kind == "Node":
            return default_node(new)
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if kind != "Pod" or after is before:
            return new
        kept = {key: before[key] for key in _KEPT if key in before and after.get(key) is None}
        return {**new, "spec": default_pod(after) | kept}

    def _pod_spec(self, pod: Mapping[str, Any], *, is_new: bool) -> tuple[Json, list[FieldProblem], str]:
        """Equal pods share it, as stored objects are never changed in place."""
        labels = (pod.get("metadata") or {}).get("labels") or {}
        given = pod.get("spec") or {}
        try:
            key = marshal.dumps((given, labels), _EXACT), self.priorities.version, is_new
        except ValueError:
            key = None  # not of JSON alone
        known = None if key is None else self._specs.get(key)
        if known is not None:
            return known, [], ""
        written, problems = with_label_keys(given, labels)
        spec, more, refusal = self.priorities.admitted(default_pod(written), is_new=is_new)
        problems += more
        if key is not None and not problems and not refusal:
            # A copy: the caller may change the original in place.
            spec = self._specs[key] = marshal.loads(marshal.dumps(spec, _EXACT))
            if len(self._specs) > _MAX_SPECS:
                self._specs.popitem(last=False)
        return spec, problems, refusal
