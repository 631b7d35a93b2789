"""Checks label selectors, node selectors and affinity terms as the API server does.

Called by the checks of pods and workloads, after schema.py has checked the types.
Source: apimachinery `meta/v1/validation`, core `validation.go` (ValidateNodeSelector, affinity terms,
ValidateMatchLabelKeysAndMismatchLabelKeys).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from berth_sim.cluster.validation.fields import (
    Problems,
    check_label_key,
    check_labels,
    items,
    join,
    label_value_problem,
)

LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS: Final = (*LABEL_OPERATORS, "Gt", "Lt")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MAX_WEIGHT: Final = 100
_MATCH_KEYS: Final = "matchLabelKeys"
_MISMATCH_KEYS: Final = "mismatchLabelKeys"


def check_label_selector(problems: Problems, selector: Mapping[str, Any] | None, path: str) -> None:
    """Check a metav1.LabelSelector; None is valid."""
    if selector is None:
        return
    check_labels(problems, selector.get("matchLabels"), join(path, "matchLabels"))
    for here, requirement in items(selector, path, "matchExpressions"):
        _check_requirement(problems, requirement, here, LABEL_OPERATORS)


def check_label_keys(problems: Problems, holder: Mapping[str, Any], path: str) -> None:
    """Check `matchLabelKeys` and `mismatchLabelKeys` of an affinity term or a spread constraint."""
    for name in (_MATCH_KEYS, _MISMATCH_KEYS):
        keys, here = holder.get(name) or (), join(path, name)
        if keys and holder.get("labelSelector") is None:
            problems.add(here, "must not be specified when labelSelector is not set")
            continue
        for i, key in enumerate(keys):
            check_label_key(problems, key, f"{here}[{i}]")
    check_selected_keys(problems, holder, path)
    others = holder.get(_MISMATCH_KEYS) or ()
    for i, key in enumerate(holder.get(_MATCH_KEYS) or ()):
        if key in others:
            text = f"{key!r} exists in both matchLabelKeys and mismatchLabelKeys: remove it from one"
            problems.add(f"{join(path, _MATCH_KEYS)}[{i}]", text)


def check_selected_keys(problems: Problems, holder: Mapping[str, Any], path: str) -> None:
    """Refuse keys of `matchLabelKeys` that the selector names more than once.

    The API server itself writes each key into the selector once.
    """
    keys = holder.get(_MATCH_KEYS)
    if not keys:
        return
    selector = holder.get("labelSelector") or {}
    named = [*(selector.get("matchLabels") or ())]
    named += [requirement.get("key") for requirement in selector.get("matchExpressions") or ()]
    for i, key in enumerate(keys):
        if named.count(key) > 1:
            text = f"{key!r} exists in both matchLabelKeys and labelSelector: remove it from one"
            problems.add(f"{join(path, _MATCH_KEYS)}[{i}]", text)


def check_affinity(problems: Problems, affinity: Mapping[str, Any] | None, path: str) -> None:
    """Check node affinity, pod affinity and pod anti-affinity of a pod; None is valid."""
    if affinity is None:
        return
    if (node := affinity.get("nodeAffinity")) is not None:
        check_node_affinity(problems, node, join(path, "nodeAffinity"))
    for name in ("podAffinity", "podAntiAffinity"):
        if (pods := affinity.get(name)) is not None:
            _check_pod_affinity(problems, pods, join(path, name))


def check_node_affinity(problems: Problems, affinity: Mapping[str, Any], path: str) -> None:
    """Check the required and preferred terms of a node affinity."""
    if (required := affinity.get(_REQUIRED)) is not None:
        check_node_selector(problems, required, join(path, _REQUIRED))
    for here, term in items(affinity, path, _PREFERRED):
        _check_weight(problems, term, here)
        if problems.required(term, here, "preference"):
            _check_node_term(problems, term["preference"], join(here, "preference"))


def check_node_selector(problems: Problems, selector: Mapping[str, Any], path: str) -> None:
    """Check a core/v1 NodeSelector, whose terms are ORed."""
    problems.required(selector, path, "nodeSelectorTerms")
    for here, term in items(selector, path, "nodeSelectorTerms"):
        _check_node_term(problems, term, here)


def _check_node_term(problems: Problems, term: Mapping[str, Any], path: str) -> None:
    for here, requirement in items(term, path, "matchExpressions"):
        _check_requirement(problems, requirement, here, NODE_OPERATORS)
    for here, requirement in items(term, path, "matchFields"):
        if requirement.get("key") != "metadata.name":
            problems.add(join(here, "key"), f"{requirement.get('key')!r} is not a field: use metadata.name")
        elif problems.one_of(requirement.get("operator"), join(here, "operator"), ("In", "NotIn")):
            values = requirement.get("values") or ()
            if len(values) != 1:
                problems.add(join(here, "values"), f"must hold one node name, not {len(values)}")


def _check_requirement(
    problems: Problems, requirement: Mapping[str, Any], path: str, operators: tuple[str, ...]
) -> None:
    check_label_key(problems, requirement.get("key"), join(path, "key"))
    operator = requirement.get("operator")
    if not problems.one_of(operator, join(path, "operator"), operators):
        return
    values = requirement.get("values") or ()
    here = join(path, "values")
    if operator in ("In", "NotIn"):
        if not values:
            problems.add(here, f"must not be empty with operator {operator}")
        for i, value in enumerate(values):
            if operators is LABEL_OPERATORS and (problem := label_value_problem(value or "")) is not None:
                problems.add(f"{here}[{i}]", problem)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            problems.add(here, f"must be empty with operator {operator}: remove it, or use In")
    elif len(values) != 1:
        problems.add(here, f"must hold one integer with operator {operator}, not {len(values)} values")


def _check_pod_affinity(problems: Problems, affinity: Mapping[str, Any], path: str) -> None:
    for here, term in items(affinity, path, _REQUIRED):
        _check_pod_term(problems, term, here)
    for here, weighted in items(affinity, path, _PREFERRED):
        _check_weight(problems, weighted, here)
        if problems.required(weighted, here, "podAffinityTerm"):
            _check_pod_term(problems, weighted["podAffinityTerm"], join(here, "podAffinityTerm"))


def _check_pod_term(problems: Problems, term: Mapping[str, Any], path: str) -> None:
    check_label_key(problems, term.get("topologyKey"), join(path, "topologyKey"))
    check_label_selector(problems, term.get("labelSelector"), join(path, "labelSelector"))
    check_label_selector(problems, term.get("namespaceSelector"), join(path, "namespaceSelector"))
    check_label_keys(problems, term, path)


def _check_weight(problems: Problems, term: Mapping[str, Any], path: str) -> None:
    weight = term.get("weight")
    if weight is None or not 1 <= weight <= MAX_WEIGHT:
        problems.add(join(path, "weight"), f"must be 1 to {MAX_WEIGHT}, not {weight}")
