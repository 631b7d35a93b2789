"""Node selector terms: alternatives, fields, errors that are kept, and the demands of a pod's spec."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import SelectorError
from berth_sdk.node_selectors import NodeSelector, PreferredTerms, RequiredNodeAffinity
from berth_sdk.testing import make_node, make_table

Json = dict[str, Any]
SSD: Json = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
NAMED: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
BROKEN: Json = {
    "matchExpressions": [
        {"key": "disk", "operator": "Near"},
        {"key": "gen", "operator": "Gt", "values": ["x"]},
    ],
    "matchFields": [{"key": "metadata.name", "operator": "Exists"}],
}
NODES = make_table([make_node("a", labels={"disk": "ssd"}), make_node("b"), make_node("c")])


def test_node_matches_any_of_the_terms_and_an_empty_term_matches_nothing() -> None:
    selector = NodeSelector.of({"nodeSelectorTerms": [SSD, {}, NAMED]})
    assert selector.over(NODES).tolist() == [True, True, False]
    assert [selector.matches(node.labels, node.name) for node in NODES] == [True, True, False]
    assert not NodeSelector.of({"nodeSelectorTerms": [{}]}).over(NODES).any()
    assert not NodeSelector.of({}).over(NODES).any()


def test_unreadable_term_is_left_out_and_all_its_errors_are_kept() -> None:
    selector = NodeSelector.of({"nodeSelectorTerms": [SSD, BROKEN]}, "spec")
    assert selector.over(NODES).tolist() == [True, False, False]
    with pytest.raises(SelectorError) as caught:
        selector.check()
    for place in ("matchExpressions[0].operator", "matchExpressions[1].values", "matchFields[0].operator"):
        assert f"spec.nodeSelectorTerms[1].{place}" in str(caught.value)


@pytest.mark.parametrize("raw", ["ssd", ["ssd"], {"a": 1}])
def test_terms_of_a_wrong_shape_are_an_error(raw: Any) -> None:
    with pytest.raises(SelectorError):
        NodeSelector.of({"nodeSelectorTerms": raw}).check()


def test_required_affinity_raises_only_when_no_term_decides() -> None:
    stanza = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [SSD, BROKEN]}}
    required = RequiredNodeAffinity.of_spec(
        {"affinity": {"nodeAffinity": stanza}, "nodeSelector": {"zone": "a"}}
    )
    assert required.matches({"zone": "a", "disk": "ssd"}, "n")
    assert not required.matches({"disk": "hdd"}, "n")  # the node selector decides
    with pytest.raises(SelectorError, match="Near"):
        required.matches({"zone": "a", "disk": "hdd"}, "n")


def test_missing_affinity_differs_from_affinity_without_terms() -> None:
    assert RequiredNodeAffinity.of_spec({}).over(NODES).all()
    empty: Json = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}
    assert not RequiredNodeAffinity.of_spec(empty).over(NODES).any()


def test_weights_of_matching_preferred_terms_add_up() -> None:
    terms = PreferredTerms.of(
        [
            {"weight": 3, "preference": SSD},
            {"weight": 4, "preference": NAMED},
            {"weight": 9, "preference": {}},
        ]
    )
    assert terms.over(NODES).tolist() == [3, 4, 0]


def test_preferred_term_of_weight_zero_is_not_read() -> None:
    assert PreferredTerms.of([{"weight": 0, "preference": BROKEN}]).terms == ()
    with pytest.raises(SelectorError, match=r"\[0\]\.matchExpressions"):
        PreferredTerms.of([{"weight": 1, "preference": BROKEN}])


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (
            ["150.1"],
            "values[0]: Invalid value: \"150.1\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (["1", "2"], "for 'Gt', 'Lt' operators, exactly one value is required"),
    ],
)
def test_comparison_with_no_integer_is_refused_in_kube_schedulers_words(values: list[str], want: str) -> None:
    expression = {"key": "force", "operator": "Gt", "values": values}
    with pytest.raises(SelectorError) as err:
        PreferredTerms.of([{"weight": 1, "preference": {"matchExpressions": [expression]}}])
    assert want in str(err.value)
