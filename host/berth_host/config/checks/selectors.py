"""Checks that node selectors and label selectors can be parsed.

Source: `component-helpers/scheduling/corev1/nodeaffinity`, `apimachinery/pkg/labels/selector.go`, v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from berth_host.config.checks.names import label_value_complaints, qualified_name_complaints
from berth_host.config.decoding.core_v1 import (
    LabelSelectorV1,
    NodeAffinityV1,
    NodeSelectorTermV1,
    RequirementV1,
)
from berth_host.config.errors import Finding, invalid, not_supported, without_repeats
from berth_host.config.source.node import child

_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS: Final = ("In", "NotIn")
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_INT64: Final = re.compile(r"[-+]?[0-9]+")


def check_node_affinity(path: str, affinity: NodeAffinityV1) -> list[Finding]:
    """Return the findings about required and preferred terms.

    Terms of weight 0, and terms that match nothing, are left out.
    """
    findings = []
    if affinity.required is not None:
        terms = child(path, "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
        for index, term in enumerate(affinity.required.node_selector_terms or ()):
            findings += _check_term(f"{terms}[{index}]", term)
    terms = child(path, "preferredDuringSchedulingIgnoredDuringExecution")
    for index, preferred in enumerate(affinity.preferred or ()):
        if preferred.weight != 0:
            # Without ".preference": kube-scheduler leaves it out of these paths.
            findings += _check_term(f"{terms}[{index}]", preferred.preference)
    return findings


def check_label_selector(path: str, selector: LabelSelectorV1) -> list[Finding]:
    """Return the findings about a selector of pods or namespaces."""
    findings = []
    for key, value in (selector.match_labels or {}).items():
        where = child(path, "matchLabels")
        findings += [invalid(where, key, complaint) for complaint in qualified_name_complaints(key)]
        findings += [invalid(where, value, complaint) for complaint in label_value_complaints(value)]
    for index, expression in enumerate(selector.match_expressions or ()):
        where = f"{child(path, 'matchExpressions')}[{index}]"
        findings += _check_requirement(where, expression, _LABEL_OPERATORS)
    return findings


def _check_term(path: str, term: NodeSelectorTermV1) -> list[Finding]:
    findings = []
    for index, expression in enumerate(term.match_expressions or ()):
        findings += _check_requirement(f"{path}.matchExpressions[{index}]", expression, _NODE_OPERATORS)
    for index, expression in enumerate(term.match_fields or ()):
        findings += _check_field_requirement(f"{path}.matchFields[{index}]", expression)
    return findings


def _check_field_requirement(path: str, requirement: RequirementV1) -> list[Finding]:
    if requirement.operator not in _FIELD_OPERATORS:
        return [not_supported(f"{path}.operator", requirement.operator, _FIELD_OPERATORS)]
    values = requirement.values or ()
    return [] if len(values) == 1 else [invalid(f"{path}.values", values, "must have one element")]


def _check_requirement(path: str, requirement: RequirementV1, operators: Sequence[str]) -> list[Finding]:
    if requirement.operator not in operators:
        return [not_supported(f"{path}.operator", requirement.operator, operators)]
    findings = []
    complaints = qualified_name_complaints(requirement.key)
    if complaints:
        findings.append(invalid(f"{path}.key", requirement.key, "; ".join(complaints)))
    values = requirement.values or ()
    findings += _check_values(f"{path}.values", requirement.operator, values)
    for index, value in enumerate(values):
        complaints = label_value_complaints(value)
        if complaints:
            # The path ends in the label's key: so kube-scheduler names the value of a label.
            where = f"{path}.values[{index}][{requirement.key}]"
            findings.append(invalid(where, value, "; ".join(complaints)))
    return without_repeats(findings)


def _check_values(path: str, operator: str, values: Sequence[str]) -> list[Finding]:
    if operator in ("In", "NotIn"):
        message = "for 'in', 'notin' operators, values set can't be empty"
        return [] if values else [invalid(path, values, message)]
    if operator in ("Exists", "DoesNotExist"):
        message = "values set must be empty for exists and does not exist"
        return [invalid(path, values, message)] if values else []
    findings = []
    if len(values) != 1:
        findings.append(invalid(path, values, "for 'Gt', 'Lt' operators, exactly one value is required"))
    for index, value in enumerate(values):
        if not _is_int64(value):
            message = "for 'Gt', 'Lt' operators, the value must be an integer"
            findings.append(invalid(f"{path}[{index}]", value, message))
    return findings


def _is_int64(text: str) -> bool:
    return bool(_INT64.fullmatch(text)) and len(text) < 25 and -(2**63) <= int(text) < 2**63
