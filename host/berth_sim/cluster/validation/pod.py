"""Checks the fields of a pod's spec that scheduling reads, as the API server does.

Called for pods and for the templates of workloads, after schema.py has checked the types.
Source: core `validation.go` (ValidatePodSpec and its callees), v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sdk.quantity import nano_value

from berth_sim.cluster.validation.fields import (
    Problems,
    check_amounts,
    check_int32,
    check_label_key,
    check_labels,
    check_object_name,
    items,
    join,
    label_value_problem,
)
from berth_sim.cluster.validation.selectors import (
    check_affinity,
    check_label_keys,
    check_label_selector,
)

_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_TOLERATION_OPERATORS: Final = ("", "Equal", "Exists", "Lt", "Gt")
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")
_POLICIES: Final = ("Honor", "Ignore")
_SPREAD: Final = ("DoNotSchedule", "ScheduleAnyway")
_RESTART: Final = ("Always", "OnFailure", "Never")
MAX_PORT: Final = 65535
Spec = Mapping[str, Any]


def check_pod_spec(problems: Problems, spec: Spec, path: str = "spec") -> None:
    """Check all fields of a pod's spec that scheduling reads."""
    problems.required(spec, path, "containers")
    _check_containers(problems, spec, path)
    _check_resources(problems, spec.get("resources"), join(path, "resources"))
    check_amounts(problems, spec.get("overhead"), join(path, "overhead"))
    check_labels(problems, spec.get("nodeSelector"), join(path, "nodeSelector"))
    check_affinity(problems, spec.get("affinity"), join(path, "affinity"))
    _check_tolerations(problems, spec, path)
    _check_spread(problems, spec, path)
    _check_volumes(problems, spec, path)
    check_int32(problems, spec, path, "priority")
    gates = [(join(here, "name"), gate.get("name")) for here, gate in items(spec, path, "schedulingGates")]
    for here, name in gates:
        check_label_key(problems, name, here)
    problems.unique(gates)
    if gates and spec.get("nodeName"):
        problems.add(join(path, "nodeName"), "a pod with schedulingGates cannot be on a node: remove one")
    if spec.get("nodeName"):
        check_object_name(problems, spec["nodeName"], join(path, "nodeName"))
    for key, choices in (("preemptionPolicy", _PREEMPTION), ("restartPolicy", _RESTART)):
        if spec.get(key) is not None:
            problems.one_of(spec[key], join(path, key), choices)
    if spec.get("schedulingGroup") is not None:
        here = join(path, "schedulingGroup")
        check_object_name(problems, spec["schedulingGroup"].get("podGroupName"), f"{here}.podGroupName")
        if spec.get("evictionResponders"):
            problems.add(here, "a pod of a group cannot have evictionResponders: remove one of the two")


def _check_containers(problems: Problems, spec: Spec, path: str) -> None:
    names: list[tuple[str, Any]] = []
    host_ports: list[tuple[str, Any]] = []
    for key in ("initContainers", "containers"):
        for here, container in items(spec, path, key):
            check_object_name(problems, container.get("name"), join(here, "name"), label=True)
            if container.get("name"):
                names.append((join(here, "name"), container["name"]))
            _check_resources(problems, container.get("resources"), join(here, "resources"))
            for port_path, port in items(container, here, "ports"):
                _check_port(problems, port, port_path, spec)
                if key == "containers" and port.get("hostPort"):
                    identity = (port["hostPort"], port.get("protocol") or "TCP", port.get("hostIP") or "")
                    host_ports.append((join(port_path, "hostPort"), identity))
    problems.unique(names)
    problems.unique(host_ports)


def _check_port(problems: Problems, port: Spec, path: str, spec: Spec) -> None:
    for key in ("containerPort", "hostPort"):
        number = port.get(key)
        if number is None or (key == "hostPort" and number == 0):
            if key == "containerPort":
                problems.add(join(path, key), "is required")
        elif not 1 <= number <= MAX_PORT:
            problems.add(join(path, key), f"must be 1 to {MAX_PORT}, not {number}")
    if port.get("protocol"):
        problems.one_of(port["protocol"], join(path, "protocol"), _PROTOCOLS)
    if spec.get("hostNetwork") and port.get("hostPort") not in (None, 0, port.get("containerPort")):
        problems.add(join(path, "hostPort"), "must equal containerPort while hostNetwork is true")


def _check_resources(problems: Problems, resources: Spec | None, path: str) -> None:
    if resources is None:
        return
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    check_amounts(problems, requests, join(path, "requests"))
    check_amounts(problems, limits, join(path, "limits"))
    for key, names in (("requests", requests), ("limits", limits)):
        for name in names:
            if not _is_resource(name):
                cure = f"use one of {', '.join(_RESOURCES)} or hugepages-SIZE, or a name with a domain"
                problems.add(f"{join(path, key)}.{name}", f"{name!r} is not a resource: {cure}")
    for name, amount in requests.items():
        limit = limits.get(name)
        here = f"{join(path, 'requests')}.{name}"
        if limit is None:
            continue
        if not_overcommitted(name) and nano_value(amount) != nano_value(limit):
            problems.add(here, f"{amount!r} must equal the limit {limit!r}: {name} cannot be overcommitted")
        elif nano_value(amount) > nano_value(limit):
            problems.add(here, f"{amount!r} is above the limit {limit!r}: lower it, or raise the limit")


def _is_resource(name: str) -> bool:
    return "/" in name or name in _RESOURCES or name.startswith("hugepages-")


def not_overcommitted(resource: str) -> bool:
    """Return True if a container's limit of this resource must equal its request.

    That holds for extended resources and huge pages.
    """
    native = "/" not in resource or resource.partition("/")[0].endswith("kubernetes.io")
    return resource.startswith("hugepages-") or not native


def _check_tolerations(problems: Problems, spec: Spec, path: str) -> None:
    for here, toleration in items(spec, path, "tolerations"):
        key, value = toleration.get("key") or "", toleration.get("value") or ""
        operator = toleration.get("operator") or ""
        if key:
            check_label_key(problems, key, join(here, "key"))
        elif operator != "Exists":
            problems.add(join(here, "operator"), "must be Exists where the key is empty")
        if problems.one_of(operator, join(here, "operator"), _TOLERATION_OPERATORS):
            if operator == "Exists" and value:
                problems.add(join(here, "value"), "must be empty with operator Exists")
            elif operator in ("", "Equal") and (problem := label_value_problem(value)) is not None:
                problems.add(join(here, "value"), problem)
        problems.one_of(toleration.get("effect") or "", join(here, "effect"), _EFFECTS)
        seconds = toleration.get("tolerationSeconds")
        if seconds is not None and toleration.get("effect") != "NoExecute":
            problems.add(join(here, "effect"), "must be NoExecute where tolerationSeconds is set")


def _check_spread(problems: Problems, spec: Spec, path: str) -> None:
    seen: list[tuple[str, Any]] = []
    for here, constraint in items(spec, path, "topologySpreadConstraints"):
        skew = constraint.get("maxSkew")
        if skew is None or skew <= 0:
            problems.add(join(here, "maxSkew"), f"must be above zero, not {skew}")
        check_label_key(problems, constraint.get("topologyKey"), join(here, "topologyKey"))
        action = constraint.get("whenUnsatisfiable")
        problems.one_of(action, join(here, "whenUnsatisfiable"), _SPREAD)
        minimum = constraint.get("minDomains")
        if minimum is not None and (minimum <= 0 or action != "DoNotSchedule"):
            problems.add(join(here, "minDomains"), "must be above zero, and goes with DoNotSchedule only")
        for key in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(key) is not None:
                problems.one_of(constraint[key], join(here, key), _POLICIES)
        check_label_selector(problems, constraint.get("labelSelector"), join(here, "labelSelector"))
        check_label_keys(problems, constraint, here)
        seen.append((here, (constraint.get("topologyKey"), action)))
    problems.unique(seen)


def _check_volumes(problems: Problems, spec: Spec, path: str) -> None:
    names: list[tuple[str, Any]] = []
    for here, volume in items(spec, path, "volumes"):
        check_object_name(problems, volume.get("name"), join(here, "name"), label=True)
        names.append((join(here, "name"), volume.get("name")))
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            problems.required(claim, join(here, "persistentVolumeClaim"), "claimName")
    problems.unique(names)
