"""Label selectors: both forms, null and empty ones, and the values that Kubernetes refuses."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import SelectorError
from berth_sdk.selectors import (
    LabelSelector,
    Operator,
    Requirement,
    is_label_key,
    is_label_value,
    parse_int64,
)
from berth_sdk.testing import make_node, make_table
from hypothesis import given
from hypothesis import strategies as st

KEYS = ("app", "example.com/tier")
VALUES = ("web", "db", "7", "12", "")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
requirements = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(KEYS),
        st.sampled_from((Operator.IN, Operator.NOT_IN)),
        st.frozensets(st.sampled_from(VALUES), min_size=1),
    ),
    st.builds(
        Requirement, st.sampled_from(KEYS), st.sampled_from((Operator.EXISTS, Operator.DOES_NOT_EXIST))
    ),
    st.builds(
        Requirement,
        st.sampled_from(KEYS),
        st.sampled_from((Operator.GT, Operator.LT)),
        st.sampled_from(("7", "8")).map(lambda bound: frozenset((bound,))),
    ),
)


def test_null_matches_nothing_and_empty_matches_everything() -> None:
    nodes = make_table([make_node("a"), make_node("b")])
    null, empty = LabelSelector.of(None), LabelSelector.of({})
    assert (null.matches({}), empty.matches({"any": "thing"})) == (False, True)
    assert (null.over(nodes).tolist(), empty.over(nodes).tolist()) == ([False, False], [True, True])
    assert (null.is_empty, empty.is_empty) == (False, True)


@pytest.mark.parametrize(
    ("requirement", "value", "want"),
    [
        pytest.param(Requirement("k", Operator.IN, frozenset({"a", "b"})), "b", True, id="in"),
        pytest.param(Requirement("k", Operator.IN, frozenset({""})), None, False, id="missing is not empty"),
        pytest.param(Requirement("k", Operator.NOT_IN, frozenset({"a"})), None, True, id="notin, missing"),
        pytest.param(Requirement("k", Operator.NOT_IN, frozenset({"a"})), "a", False, id="notin"),
        pytest.param(Requirement("k", Operator.EXISTS), "", True, id="exists, empty"),
        pytest.param(Requirement("k", Operator.DOES_NOT_EXIST), "", False, id="absent, empty"),
        pytest.param(Requirement("k", Operator.GT, frozenset({"7"})), "7", False, id="gt is strict"),
        pytest.param(Requirement("k", Operator.GT, frozenset({"7"})), "10", True, id="gt counts, not sorts"),
        pytest.param(Requirement("k", Operator.LT, frozenset({"7"})), "x", False, id="lt, no number"),
        pytest.param(Requirement("k", Operator.LT, frozenset({"7"})), "-9", True, id="lt, negative"),
        pytest.param(Requirement("k", Operator.LT, frozenset({"7"})), None, False, id="lt, missing"),
        pytest.param(Requirement("k", Operator.LT, frozenset({"7"})), "9" * 20, False, id="lt, too large"),
    ],
)
def test_requirement_matches_by_its_operator(requirement: Requirement, value: str | None, want: bool) -> None:
    assert requirement.matches({} if value is None else {"k": value}) is want


@given(wanted=st.lists(requirements, max_size=3), shown=st.lists(labels, min_size=1, max_size=5))
def test_matching_a_table_equals_matching_each_row(
    wanted: list[Requirement], shown: list[dict[str, str]]
) -> None:
    selector = LabelSelector(tuple(wanted))
    nodes = make_table([make_node(f"n{i}", labels=one) for i, one in enumerate(shown)])
    assert selector.over(nodes).tolist() == [selector.matches(one) for one in shown]
    rows = list(range(len(shown) - 1, -1, -2))
    assert selector.over(nodes.take(rows)).tolist() == [selector.matches(shown[row]) for row in rows]


def test_labels_and_expressions_must_all_match() -> None:
    selector = LabelSelector.of(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}],
        }
    )
    assert selector.matches({"app": "web"})
    assert not selector.matches({"app": "web", "tier": "db"})
    assert not selector.matches({"tier": "front"})


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            'labelSelector.matchExpressions[0].operator: Unsupported value: "Gt": supported values: "In",'
            ' "NotIn", "Exists", "DoesNotExist"',
            id="operator of node selectors",
        ),
        pytest.param({"matchExpressions": [{"key": "a"}]}, 'Unsupported value: ""', id="no operator"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "In"}]}, "[0].values: Required", id="no values"
        ),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "[0].values: Invalid",
            id="values for exists",
        ),
        pytest.param({"matchLabels": {"a b": "c"}}, '.key: Invalid value: "a b"', id="key"),
        pytest.param({"matchLabels": {"a": "-c"}}, '.values[0]: Invalid value: "-c"', id="value"),
        pytest.param({"matchLabels": ["a"]}, "matchLabels: must be a map, not list", id="list of labels"),
        pytest.param({"matchExpressions": {"a": "b"}}, "must be a list, not dict", id="map of expressions"),
        pytest.param({"matchExpressions": ["a"]}, "[0]: must be a map, not str", id="text"),
    ],
)
def test_unreadable_selector_raises_with_its_path(raw: Any, problem: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.of(raw)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("app=web", {"app": "web"}, {"app": "db"}),
        ("app==web", {"app": "web"}, {}),
        ("app!=web", {}, {"app": "web"}),
        ("app", {"app": ""}, {}),
        ("!app", {}, {"app": ""}),
        ("app in (web, db)", {"app": "db"}, {"app": "cache"}),
        ("app notin (web,db),tier", {"tier": "x"}, {"tier": "x", "app": "web"}),
        ("gen>7", {"gen": "8"}, {"gen": "7"}),
        ("gen < 7", {"gen": "6"}, {"gen": "x"}),
        ("app=", {"app": ""}, {}),
        ("", {"any": "thing"}, None),
    ],
)
def test_selector_is_read_from_its_text_form(
    text: str, matching: dict[str, str], other: dict[str, str] | None
) -> None:
    selector = LabelSelector.parse(text)
    assert selector.matches(matching)
    assert other is None or not selector.matches(other)


@pytest.mark.parametrize("text", ["app=web db", "a b", "app in web", "gen>x", "=web", "app in ()x"])
def test_error_quotes_an_unreadable_text(text: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.parse(text)
    assert f'selector "{text}"' in str(caught.value)


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("app", True),
        ("example.com/app", True),
        ("Example.com/app", False),
        ("a/b/c", False),
        ("/app", False),
        ("app/", False),
        ("", False),
        ("a" * 63, True),
        ("a" * 64, False),
        ("_a", False),
    ],
)
def test_label_keys_are_checked_as_the_api_does(key: str, want: bool) -> None:
    assert is_label_key(key) is want


@pytest.mark.parametrize(
    ("value", "want"), [("", True), ("a.b_c-D", True), ("-a", False), ("a b", False), ("a" * 64, False)]
)
def test_label_values_are_checked_as_the_api_does(value: str, want: bool) -> None:
    assert is_label_value(value) is want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("+5", 5),
        ("0x10", None),
        (" 5", None),
        ("5\n", None),
        ("٣", None),
        ("", None),
    ],
)
def test_integers_are_read_as_upstream_reads_them(text: str, want: int | None) -> None:
    assert parse_int64(text) == want


@pytest.mark.parametrize("odd", ["a\nb", "-a", "a" * 64, "\n", "é", 7, None])
def test_an_odd_value_among_many_is_found(odd: Any) -> None:
    values: list[Any] = [f"v{i}" for i in range(100)]
    raw = {"key": "app", "operator": "In", "values": [*values, ""]}
    assert Requirement.of(raw, "selector").values == {*values, ""}
    raw["values"] = [*values[:50], odd, *values[50:]]
    if isinstance(odd, str):
        with pytest.raises(SelectorError, match=r"selector.values\[50\]"):
            Requirement.of(raw, "selector")
    else:
        assert str(odd) in Requirement.of(raw, "selector").values


def test_hash_of_a_long_selector_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[object] = []
    keys = [{"key": f"k{i}", "operator": "Exists"} for i in range(100)]
    selector = LabelSelector.of({"matchExpressions": keys})
    plain = Requirement.__hash__

    def counting(self: Requirement) -> int:
        hashed.append(self)
        return plain(self)

    monkeypatch.setattr(Requirement, "__hash__", counting)
    assert len({hash(selector) for _ in range(10)}) == 1
    assert len(hashed) == 100
    assert hash(LabelSelector.of({"matchExpressions": keys})) == hash(selector)
