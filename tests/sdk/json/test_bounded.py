"""JSON is read up to one depth, whatever Python can."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_sdk.json.bounded import MAX_DEPTH, NestedTooDeeplyError, is_nested_deeper, read_bounded_json
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{}\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[{'), inner, max_size=4),
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_values_are_read_up_to_the_limit_and_no_further(opening: str, closing: str) -> None:
    step = opening.count("[") + opening.count("{")
    fits = MAX_DEPTH // step
    text = opening * fits + "1" + closing * fits
    assert read_bounded_json(text) == read_bounded_json(text.encode()) == json.loads(text)
    for count in (fits + 1, 5000, 100_000):
        for deep in (opening * count + "1" + closing * count, opening * count):
            for form in (deep, deep.encode(), deep.encode("utf-16")):
                with pytest.raises(NestedTooDeeplyError, match="nested too deeply"):
                    read_bounded_json(form)


def test_brackets_in_strings_and_beside_each_other_are_no_depth() -> None:
    for text in (json.dumps("[" * 5000), json.dumps({"[{" * 5000: '\\"[{' * 5000}), f"[{'[],' * 5000}1]"):
        assert read_bounded_json(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN', '"' + "[" * 5000, '"\\' + '\\"[' * 5000, "[" * 3])
def test_invalid_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_bounded_json(text)
    assert not isinstance(caught.value, NestedTooDeeplyError)


def test_constants_that_json_does_not_know_go_to_the_caller() -> None:
    assert read_bounded_json("[NaN]", parse_constant=lambda name: name) == ["NaN"]


@given(VALUES, st.integers(0, 6), st.integers(0, 40))
def test_depth_is_that_of_the_value(value: Any, levels: int, cut: int) -> None:
    text = json.dumps(value)
    assert is_nested_deeper(text, levels) == (depth_of(value) > levels)
    is_nested_deeper(text[:cut], 0)  # ends for any text
