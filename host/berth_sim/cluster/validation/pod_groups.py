"""Checks PodGroup, CompositePodGroup and Workload as the API server does, and the changes that it refuses.

Called by `validation`. Source: `pkg/apis/scheduling/validation/validation.go` and the declarative validation
of `k8s.io/api` scheduling/v1beta1 and v1alpha3, v1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_host.errors.cluster import FieldProblem

from berth_sim.cluster.validation.fields import (
    MAX_INT32,
    Problems,
    check_amounts,
    check_int32,
    check_label_key,
    check_object_name,
    items,
    join,
)

Spec = Mapping[str, Any]
MAX_CLAIMS: Final = 4
MAX_TEMPLATES: Final = 8
MAX_DEPTH: Final = 4
_POLICIES: Final = ("PreemptLowerPriority", "Never")
_MIN_COUNT: Final = "minCount"
_MIN_GROUP_COUNT: Final = "minGroupCount"


def check_pod_group(problems: Problems, obj: Spec) -> None:
    """Check the spec of a PodGroup."""
    spec = obj.get("spec") or {}
    _check_spec(problems, spec, "spec", _MIN_COUNT)
    if spec.get("parentCompositePodGroupName") and not spec.get("workloadRef"):
        problems.add("spec.workloadRef", "must be set when parentCompositePodGroupName is set")


def check_composite_pod_group(problems: Problems, obj: Spec) -> None:
    """Check the spec of a CompositePodGroup."""
    _check_spec(problems, obj.get("spec") or {}, "spec", _MIN_GROUP_COUNT)


def check_workload(problems: Problems, obj: Spec) -> None:
    """Check the templates of a Workload."""
    spec = obj.get("spec") or {}
    given = [key for key in ("podGroupTemplates", "compositePodGroupTemplates") if spec.get(key)]
    if len(given) != 1:
        problems.add("spec", "must have one of podGroupTemplates and compositePodGroupTemplates")
    _check_templates(problems, spec, "spec", 1)


def check_coscheduling(problems: Problems, obj: Spec) -> None:
    """Check the spec of coscheduling's PodGroup, as its CustomResourceDefinition says."""
    spec = obj.get("spec") or {}
    check_int32(problems, spec, "spec", "minMember", "scheduleTimeoutSeconds")
    check_amounts(problems, spec.get("minResources"), "spec.minResources")


def group_update_problems(kind: str, old: Spec, new: Spec) -> list[FieldProblem]:
    """Return the changes of a group's spec that the API server refuses: all but the minimum of a gang."""
    minimum = _MIN_COUNT if kind == "PodGroup" else _MIN_GROUP_COUNT
    before, after = _without_minimum(old, minimum), _without_minimum(new, minimum)
    return [
        FieldProblem(f"spec.{key}", "cannot be changed: delete the group and make a new one")
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _without_minimum(spec: Spec, minimum: str) -> dict[str, Any]:
    policy = dict(spec.get("schedulingPolicy") or {})
    if policy.get("gang"):
        policy["gang"] = {key: value for key, value in policy["gang"].items() if key != minimum}
    return {**spec, "schedulingPolicy": policy}


def _check_spec(problems: Problems, spec: Spec, path: str, minimum: str) -> None:
    _check_policy(problems, spec.get("schedulingPolicy") or {}, join(path, "schedulingPolicy"), minimum)
    topology = list(
        items(spec.get("schedulingConstraints") or {}, f"{path}.schedulingConstraints", "topology")
    )
    if len(topology) > 1:
        problems.add(f"{path}.schedulingConstraints.topology", "must have one entry at most")
    for here, constraint in topology:
        check_label_key(problems, constraint.get("key"), f"{here}.key")
    if spec.get("disruptionMode") is not None:
        _one_member(problems, spec["disruptionMode"], f"{path}.disruptionMode", ("single", "all"))
    if spec.get("preemptionPolicy") is not None:
        problems.one_of(spec["preemptionPolicy"], f"{path}.preemptionPolicy", _POLICIES)
    check_int32(problems, spec, path, "priority")
    for key in ("parentCompositePodGroupName", "priorityClassName"):
        if spec.get(key):
            check_object_name(problems, spec[key], join(path, key))
    claims = list(items(spec, path, "resourceClaims"))
    if len(claims) > MAX_CLAIMS:
        problems.add(
            f"{path}.resourceClaims", f"must have {MAX_CLAIMS} entries at most, and has {len(claims)}"
        )
    for here, claim in claims:
        check_object_name(problems, claim.get("name"), f"{here}.name", label=True)
        named = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key)]
        if len(named) != 1:
            problems.add(here, "must have one of resourceClaimName and resourceClaimTemplateName")
    problems.unique([(f"{here}.name", claim.get("name")) for here, claim in claims])


def _check_policy(problems: Problems, policy: Spec, path: str, minimum: str) -> None:
    if not _one_member(problems, policy, path, ("basic", "gang")) or policy.get("gang") is None:
        return
    count = policy["gang"].get(minimum)
    if count is None:
        problems.add(f"{path}.gang.{minimum}", "is required")
    elif not 1 <= count <= MAX_INT32:
        problems.add(f"{path}.gang.{minimum}", f"must be 1 to {MAX_INT32}, not {count}")


def _one_member(problems: Problems, union: Spec, path: str, members: tuple[str, str]) -> bool:
    if sum(union.get(member) is not None for member in members) == 1:
        return True
    problems.add(path, f"must have one of {' and '.join(members)}")
    return False


def _check_templates(problems: Problems, parent: Spec, path: str, depth: int) -> None:
    """Check the templates under a Workload, or under a template of composite groups at `depth` - 1."""
    names: list[tuple[str, Any]] = []
    for key, minimum in (("podGroupTemplates", _MIN_COUNT), ("compositePodGroupTemplates", _MIN_GROUP_COUNT)):
        templates = list(items(parent, path, key))
        if len(templates) > MAX_TEMPLATES:
            problems.add(
                join(path, key), f"must have {MAX_TEMPLATES} entries at most, and has {len(templates)}"
            )
        if templates and depth > MAX_DEPTH:
            problems.add(join(path, key), f"is deeper than {MAX_DEPTH} levels: take a level out")
            return
        for here, template in templates:
            check_object_name(problems, template.get("name"), f"{here}.name", label=True)
            _check_spec(problems, template, here, minimum)
            if minimum == _MIN_GROUP_COUNT:
                _check_templates(problems, template, here, depth + 1)
            names.append((f"{here}.name", template.get("name")))
    problems.unique(names)
