"""Validates objects as the API server does; returns every problem with its path.

The embedded server calls `problems_of` for every object that is created or changed. The manifest loader adds
file and line to the problems.

Each kind has one function for what goes beyond its metadata. `KnownGood` is a cache of valid values, keyed by
their JSON, because workloads repeat values. An update of a pod or a pod group may change only some fields;
updates of other kinds are not checked.
Source: the validation packages of core (ValidatePodUpdate), apps, batch, policy, scheduling and storage,
v1.36.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from berth_host.errors.cluster import FieldProblem
from berth_host.model.compact_json import compacted

from berth_sim.cluster.kinds import POD, Kind
from berth_sim.cluster.validation.fields import (
    Problems,
    check_amounts,
    check_int32,
    check_label_key,
    check_metadata,
    check_object_name,
    items,
    label_value_problem,
)
from berth_sim.cluster.validation.pod import check_pod_spec
from berth_sim.cluster.validation.pod_groups import (
    check_composite_pod_group,
    check_coscheduling,
    check_pod_group,
    check_workload,
    group_update_problems,
)
from berth_sim.cluster.validation.schema import field_problems
from berth_sim.cluster.validation.selectors import check_label_selector, check_node_selector

Object = Mapping[str, Any]
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
MAX_USER_PRIORITY: Final = 1_000_000_000


def _pod(problems: Problems, pod: Object) -> None:
    check_pod_spec(problems, pod.get("spec") or {})


def _node(problems: Problems, node: Object) -> None:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    seen: list[tuple[str, Any]] = []
    for here, taint in items(spec, "spec", "taints"):
        check_label_key(problems, taint.get("key"), f"{here}.key")
        if (problem := label_value_problem(taint.get("value") or "")) is not None:
            problems.add(f"{here}.value", problem)
        problems.one_of(taint.get("effect"), f"{here}.effect", _TAINT_EFFECTS)
        seen.append((here, (taint.get("key"), taint.get("effect"))))
    problems.unique(seen)
    check_amounts(problems, status.get("capacity"), "status.capacity")
    check_amounts(problems, status.get("allocatable"), "status.allocatable")


def _workload(problems: Problems, workload: Object) -> None:
    spec = workload.get("spec") or {}
    check_int32(problems, spec, "spec", "replicas", "parallelism", "completions")
    for key in ("replicas", "parallelism", "completions"):
        if (spec.get(key) or 0) < 0:
            problems.add(f"spec.{key}", f"must not be below zero, but is {spec[key]}")
    if not problems.required(spec, "spec", "template"):
        return
    template = spec["template"]
    check_metadata(problems, template.get("metadata") or {}, "spec.template.metadata")
    check_pod_spec(problems, template.get("spec") or {}, "spec.template.spec")
    for path, claim in items(spec, "spec", "volumeClaimTemplates"):
        # The API server accepts any template, but the claims cannot be created without these fields.
        metadata = claim.get("metadata") or {}
        check_object_name(problems, metadata.get("name"), f"{path}.metadata.name")
        problems.required(claim, path, "spec")


def _selecting_workload(problems: Problems, workload: Object) -> None:
    _workload(problems, workload)
    spec = workload.get("spec") or {}
    if not problems.required(spec, "spec", "selector"):
        return
    check_label_selector(problems, spec["selector"], "spec.selector")
    wanted = spec["selector"].get("matchLabels") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    for key, value in wanted.items():
        if labels.get(key) != value:
            problems.add(
                f"spec.selector.matchLabels.{key}",
                f"does not select the template's own pods: give spec.template.metadata.labels {key}: {value}",
            )


def _priority_class(problems: Problems, obj: Object) -> None:
    check_int32(problems, obj, "", "value")
    value = obj.get("value")
    name = (obj.get("metadata") or {}).get("name") or ""
    if value is None:
        problems.add("value", "is required")
    elif value > MAX_USER_PRIORITY and not name.startswith("system-"):
        problems.add("value", f"{value} is above {MAX_USER_PRIORITY}, the highest for classes of your own")
    if obj.get("preemptionPolicy") is not None:
        problems.one_of(obj["preemptionPolicy"], "preemptionPolicy", ("PreemptLowerPriority", "Never"))


def _disruption_budget(problems: Problems, obj: Object) -> None:
    spec = obj.get("spec") or {}
    check_label_selector(problems, spec.get("selector"), "spec.selector")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        problems.add("spec.maxUnavailable", "minAvailable is set as well: remove one of the two")
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        share = isinstance(value, str) and _SHARE.fullmatch(value) and int(value[:-1]) <= 100
        number = isinstance(value, int) and value >= 0
        if value is not None and not (share or number):
            problems.add(f"spec.{name}", f"{value} is no number of pods, and no share from 0% to 100%")


def _volume(problems: Problems, obj: Object) -> None:
    spec = obj.get("spec") or {}
    problems.required(spec, "spec", "capacity", "accessModes")
    check_amounts(problems, spec.get("capacity"), "spec.capacity")
    _check_access_modes(problems, spec)
    required = (spec.get("nodeAffinity") or {}).get("required")
    if required is not None:
        check_node_selector(problems, required, "spec.nodeAffinity.required")


def _claim(problems: Problems, obj: Object) -> None:
    spec = obj.get("spec") or {}
    problems.required(spec, "spec", "accessModes", "resources")
    _check_access_modes(problems, spec)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if spec.get("resources") and requests.get("storage") is None:
        problems.add("spec.resources.requests.storage", "is required")
    check_amounts(problems, requests, "spec.resources.requests")
    check_label_selector(problems, spec.get("selector"), "spec.selector")


def _check_access_modes(problems: Problems, spec: Object) -> None:
    for i, mode in enumerate(spec.get("accessModes") or ()):
        problems.one_of(mode, f"spec.accessModes[{i}]", _ACCESS_MODES)


def _storage_class(problems: Problems, obj: Object) -> None:
    problems.required(obj, "", "provisioner")
    if obj.get("volumeBindingMode") is not None:
        problems.one_of(obj["volumeBindingMode"], "volumeBindingMode", _BINDING_MODES)


def _csi_node(problems: Problems, obj: Object) -> None:
    for here, driver in items(obj.get("spec") or {}, "spec", "drivers"):
        problems.required(driver, here, "name", "nodeID")


KIND_CHECKS: Final[Mapping[str, Callable[[Problems, Object], None]]] = {
    "Pod": _pod,
    "Node": _node,
    "Deployment": _selecting_workload,
    "ReplicaSet": _selecting_workload,
    "StatefulSet": _selecting_workload,
    "Job": _workload,
    "ReplicationController": _workload,
    "PriorityClass": _priority_class,
    "PodDisruptionBudget": _disruption_budget,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "StorageClass": _storage_class,
    "CSINode": _csi_node,
    "PodGroup": check_pod_group,
    "CompositePodGroup": check_composite_pod_group,
    "Workload": check_workload,
    "PodGroup.scheduling.x-k8s.io": check_coscheduling,
}


_FREE: Final = frozenset(
    {"tolerations", "schedulingGates", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
)
_FREE_WHILE_GATED: Final = frozenset({"nodeSelector", "affinity"})
_SHARE: Final = re.compile(r"[0-9]{1,3}%")
_CONTAINERS: Final = ("containers", "initContainers")
Spec = Mapping[str, Any]


def update_problems(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldProblem]:
    """Return the changes that the API server refuses. Both objects must be valid."""
    if kind.title in ("PodGroup", "CompositePodGroup"):
        return group_update_problems(kind.title, old.get("spec") or {}, new.get("spec") or {})
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


# Only JSON's own types: a time must not equal the string that it is written as.
_EXACT: Final = (
    orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
)


class KnownGood:
    """A cache of at most `most` values of at most `max_bytes` each; drops the least recently used one."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._values: OrderedDict[bytes, None] = OrderedDict()

    def key(self, value: Any) -> bytes | None:
        """Return the value as JSON; None if its JSON is ambiguous or longer than `max_bytes`."""
        try:
            key = orjson.dumps(value, option=_EXACT)  # no RawJson, whose text is not checked here
        except TypeError:
            return None
        # Other values are written as null too, such as NaN.
        return None if len(key) > self._max_bytes or b"null" in key else key

    def holds(self, key: bytes | None) -> bool:
        """Return True if the value with this key is known to be valid."""
        if key is None or key not in self._values:
            return False
        self._values.move_to_end(key)
        return True

    def add(self, key: bytes | None) -> None:
        """Record that the value with this key is valid."""
        if key is not None:
            self._values[compacted(key)] = None
            if len(self._values) > self._most:
                self._values.popitem(last=False)


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
        return field_problems(kind.title, obj) or _metadata_problems(kind, obj).found
    wrong_fields = field_problems(kind.title, obj)
    if wrong_fields:
        return wrong_fields
    problems = _metadata_problems(kind, obj)
    check = KIND_CHECKS.get(kind.title)
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
