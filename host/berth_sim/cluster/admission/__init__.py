"""Admission of the embedded API server: the defaults that scheduling reads, and PriorityClasses.

Called by the embedded server, with `admit` for a new object and `admit_update` for a new version of one.
Neither changes its input. A new pod or pod group gets priority and preemptionPolicy from its
priorityClassName; one that may have passed admission before, such as one of a cluster dump, keeps its own
priority.
Source, v1.36: `pkg/apis/core/v1/defaults.go`, `pkg/apis/storage/v1/defaults.go`,
`pkg/registry/core/namespace/strategy.go`, `plugin/pkg/admission/storage/storageclass`,
`plugin/pkg/admission/priority/admission.go`.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from berth_host.errors.cluster import FieldProblem
from berth_sdk.kube_object import KubeObject

from berth_sim.cluster.admission.label_keys import with_label_keys
from berth_sim.cluster.admission.pod import default_pod

DEFAULT_PREEMPTION_POLICY: Final = "PreemptLowerPriority"
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClasses:
    """The PriorityClasses by name, with the two that every cluster has."""

    def __init__(self) -> None:
        self._classes: dict[str, tuple[int, str]] = {
            name: (value, DEFAULT_PREEMPTION_POLICY) for name, value in _SYSTEM.items()
        }
        self._global_defaults: set[str] = set()
        self.version = 0
        """The number of changes; results of `admitted` are valid for one version."""

    def keep(self, obj: KubeObject) -> None:
        """Store a new or changed class."""
        self.version += 1
        name = obj.ref.name
        policy = obj.get("preemptionPolicy") or DEFAULT_PREEMPTION_POLICY
        self._classes[name] = (int(obj.get("value", 0)), policy)
        if obj.get("globalDefault"):
            self._global_defaults.add(name)
        else:
            self._global_defaults.discard(name)

    def drop(self, name: str) -> None:
        """Remove a deleted class; a system class gets its built-in value again."""
        self.version += 1
        self._classes.pop(name, None)
        self._global_defaults.discard(name)
        if name in _SYSTEM:
            self._classes[name] = (_SYSTEM[name], DEFAULT_PREEMPTION_POLICY)

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def admitted(
        self, spec: Json, *, is_new: bool, owner: str = "pod"
    ) -> tuple[Json, list[FieldProblem], str]:
        """Return the spec with priority and preemptionPolicy, the problems and the refusal ("": none).

        Problems are values of the pod that contradict its class; a missing class is refused. `is_new`: the
        pod has not passed admission before. Any other pod keeps its own priority if its class is missing or
        not set. `owner`: what the spec belongs to, for messages.
        """
        said = None if is_new else spec.get("priority")
        name = spec.get("priorityClassName") or ("" if said is not None else self._global_default())
        found = self._classes.get(name) if name else None
        if found is not None:
            value, policy = found
        elif name and said is None:
            return spec, [], f"no PriorityClass with name {name} was found"
        else:
            value, policy = said or 0, DEFAULT_PREEMPTION_POLICY
            spec = spec if is_new else {**spec, "preemptionPolicy": spec.get("preemptionPolicy") or policy}
            policy = policy if is_new else spec["preemptionPolicy"]
        return self._completed(spec, name, value, policy), _contradictions(spec, value, policy, owner), ""

    def _global_default(self) -> str:
        # Several global defaults can exist only after a race; the lowest one counts.
        defaults = sorted(self._global_defaults, key=lambda name: (self._classes[name][0], name))
        return defaults[0] if defaults else ""

    @staticmethod
    def _completed(spec: Json, name: str, value: int, policy: str) -> Json:
        completed = spec | {"priority": value}
        if name:
            completed["priorityClassName"] = name
        if not completed.get("preemptionPolicy"):
            completed["preemptionPolicy"] = policy
        return completed


def _contradictions(spec: Json, value: int, policy: str, owner: str) -> list[FieldProblem]:
    said = {
        "priority": ("the integer value of priority", value),
        "preemptionPolicy": ("the string value of PreemptionPolicy", policy),
    }
    return [
        FieldProblem(
            f"spec.{name}",
            f"{what} ({spec[name]}) must not be provided in {owner} spec; priority admission controller"
            f" computed {computed} from the given PriorityClass name: leave it out, or name the class that"
            " has it",
        )
        for name, (what, computed) in said.items()
        if spec.get(name) not in (None, "", computed)
    ]


NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""The annotation for a claim's class; overrides the field, also with an empty value."""
DEFAULT_CLASS_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
Object = dict[str, Any]


def default_node(node: Object) -> Object:
    """Return the node; a missing `allocatable` becomes the capacity."""
    status = node.get("status") or {}
    if status.get("capacity") and status.get("allocatable") is None:
        return node | {"status": status | {"allocatable": status["capacity"]}}
    return node


def default_claim(claim: Object, default_class: str | None) -> Object:
    """Return the claim with its defaults, among them the StorageClass if `storageClassName` is missing.

    A claim with the class "" keeps it: it asks for a volume without a class.
    """
    spec = claim.get("spec") or {}
    changes: Object = {}
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    names_none = spec.get("storageClassName") is None and CLASS_ANNOTATION not in annotations
    if names_none and default_class is not None:
        changes["storageClassName"] = default_class
    if not spec.get("volumeMode"):
        changes["volumeMode"] = "Filesystem"
    return _pending(claim | {"spec": spec | changes} if changes else claim)


def default_object(kind: str, obj: Object) -> Object:
    """Return an object of another kind with its defaults."""
    if kind == "Namespace":
        metadata = obj.get("metadata") or {}
        labels = (metadata.get("labels") or {}) | {NAMESPACE_LABEL: metadata.get("name")}
        return obj | {"metadata": metadata | {"labels": labels}}
    if kind == "StorageClass":
        return {"volumeBindingMode": "Immediate", "reclaimPolicy": "Delete"} | obj
    if kind == "PersistentVolume":
        return _pending(obj | {"spec": {"volumeMode": "Filesystem"} | (obj.get("spec") or {})})
    return obj


def _pending(obj: Object) -> Object:
    """Return a claim or volume with the phase Pending, unless its status has a phase."""
    return obj | {"status": {"phase": "Pending"} | (obj.get("status") or {})}


class DefaultStorageClass:
    """The default StorageClass: of several the newest one, then the first by name."""

    def __init__(self) -> None:
        self._created: dict[str, str] = {}

    @property
    def name(self) -> str | None:
        """The class's name; None if no class is the default."""
        newest = max(self._created.values(), default="")
        return min((name for name, created in self._created.items() if created == newest), default=None)

    def keep(self, obj: KubeObject) -> None:
        """Store a new or changed class."""
        annotations = obj.get("metadata.annotations") or {}
        if any(annotations.get(key) == "true" for key in DEFAULT_CLASS_ANNOTATIONS):
            self._created[obj.ref.name] = str(obj.get("metadata.creationTimestamp") or "")
        else:
            self.drop(obj.ref.name)

    def drop(self, name: str) -> None:
        """Remove a deleted class."""
        self._created.pop(name, None)


__all__ = ["Admission", "PriorityClasses"]
_MAX_SPECS: Final = 512
# The oldest format: equal values of equal types give equal bytes, however they are shared in memory.
_EXACT: Final = 2
_KEPT: Final = ("priority", "preemptionPolicy")
"""The fields that a pod or a group gets from its PriorityClass at create; an update without them keeps
them.
"""
_GROUPS: Final = ("PodGroup", "CompositePodGroup")
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
        if kind in _GROUPS:
            spec, problems, refusal = self.priorities.admitted(
                obj.get("spec") or {}, is_new=is_new, owner="pod group"
            )
            return {**obj, "spec": spec}, problems, refusal
        return default_object(kind, obj), [], ""

    @staticmethod
    def admit_update(kind: str, old: Json, new: Json) -> Json:
        """Return `new`, which replaces `old`, with the defaults for its missing fields."""
        if kind == "Node":
            return default_node(new)
        before, after = old.get("spec") or {}, new.get("spec") or {}
        if kind not in ("Pod", *_GROUPS) or after is before:
            return new
        kept = {key: before[key] for key in _KEPT if key in before and after.get(key) is None}
        if kind in _GROUPS:
            return {**new, "spec": {**after, **kept}}
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
