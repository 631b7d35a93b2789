"""Selectors that cannot be parsed are found, with the paths of kube-scheduler."""

from __future__ import annotations

import pytest
from berth_host.config.checks.selectors import check_label_selector, check_node_affinity
from berth_host.config.decoding.core_v1 import (
    LabelSelectorV1,
    NodeAffinityV1,
    NodeSelectorTermV1,
    NodeSelectorV1,
    PreferredSchedulingTermV1,
    RequirementV1,
)

REQUIRED = "a.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"


def required(term: NodeSelectorTermV1) -> list[tuple[str, str]]:
    affinity = NodeAffinityV1(required=NodeSelectorV1(node_selector_terms=(term,)))
    return [(str(f.type), f.field.removeprefix(REQUIRED)) for f in check_node_affinity("a", affinity)]


def expression(key: str, operator: str, *values: str) -> NodeSelectorTermV1:
    return NodeSelectorTermV1(match_expressions=(RequirementV1(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("term", "want"),
    [
        pytest.param(expression("k", "In", "a", ""), [], id="empty value is a value"),
        pytest.param(expression("k", "In"), [("FieldValueInvalid", ".values")], id="In without values"),
        pytest.param(
            expression("k", "Exists", "a"), [("FieldValueInvalid", ".values")], id="Exists with one"
        ),
        pytest.param(expression("k", "Gt", "5"), [], id="Gt"),
        pytest.param(
            expression("k", "Lt", "5", "x"),
            [("FieldValueInvalid", ".values"), ("FieldValueInvalid", ".values[1]")],
            id="Lt with two, one no number",
        ),
        pytest.param(
            expression("k", "Gt", "9" * 30), [("FieldValueInvalid", ".values[0]")], id="over 64 bits"
        ),
        pytest.param(expression("k", "Near"), [("FieldValueNotSupported", ".operator")], id="operator"),
        pytest.param(expression("k", ""), [("FieldValueNotSupported", ".operator")], id="no operator"),
        pytest.param(expression("a b", "Exists"), [("FieldValueInvalid", ".key")], id="key"),
        pytest.param(expression("", "Exists"), [("FieldValueInvalid", ".key")], id="no key, one finding"),
        pytest.param(expression("k", "In", "a b"), [("FieldValueInvalid", ".values[0][k]")], id="value"),
    ],
)
def test_expression(term: NodeSelectorTermV1, want: list[tuple[str, str]]) -> None:
    assert required(term) == [(kind, f".matchExpressions[0]{path}") for kind, path in want]


def test_fields_take_in_and_not_in_with_one_value() -> None:
    one = RequirementV1(key="metadata.name", operator="In", values=("n",))
    two = RequirementV1(key="metadata.name", operator="NotIn", values=("n", "m"))
    exists = RequirementV1(key="metadata.name", operator="Exists")
    assert required(NodeSelectorTermV1(match_fields=(one, two, exists))) == [
        ("FieldValueInvalid", ".matchFields[1].values"),
        ("FieldValueNotSupported", ".matchFields[2].operator"),
    ]


def test_preferred_terms_without_weight_are_not_looked_at() -> None:
    bad = expression("k", "Near")
    terms = (
        PreferredSchedulingTermV1(weight=0, preference=bad),
        PreferredSchedulingTermV1(weight=1, preference=bad),
    )
    found = check_node_affinity("a", NodeAffinityV1(preferred=terms))
    assert [finding.field for finding in found] == [
        "a.preferredDuringSchedulingIgnoredDuringExecution[1].matchExpressions[0].operator"
    ]


def test_label_selector_knows_four_operators_and_checks_labels() -> None:
    selector = LabelSelectorV1(
        match_labels={"a b": "c d"}, match_expressions=(RequirementV1(key="k", operator="Gt", values=("1",)),)
    )
    assert [finding.field for finding in check_label_selector("s", selector)] == [
        "s.matchLabels",
        "s.matchLabels",
        "s.matchExpressions[0].operator",
    ]
