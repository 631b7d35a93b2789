"""RFC 7386, with the examples of its appendix."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from berth_host.model.merge_patch import merged
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("original", "patch", "want"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_examples_of_the_rfc(original: Any, patch: Any, want: Any) -> None:
    assert merged(original, patch) == want


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


@given(original=OBJECTS, patch=OBJECTS)
def test_patch_twice_is_patch_once_and_nothing_is_changed_in_place(original: Any, patch: Any) -> None:
    before = copy.deepcopy((original, patch))
    once = merged(original, patch)
    assert merged(once, patch) == once
    assert (original, patch) == before
