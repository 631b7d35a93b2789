"""The checks of each kind beyond its metadata: one function per kind.

Called by `problems_of`. Source: the validation packages of core, apps, batch, policy, scheduling and
storage, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_host.cluster.memory.validation.fields import (
    Problems,
    check_amounts,
    check_int32,
    check_label_key,
    check_metadata,
    check_object_name,
    items,
    label_value_problem,
)
from berth_host.cluster.memory.validation.pod import check_pod_spec
from berth_host.cluster.memory.validation.selectors import check_label_selector, check_node_selector

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
}
