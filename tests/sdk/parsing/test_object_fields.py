"""Fields of parsed objects: empty where they are missing, and named where they have the wrong type."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.errors import ObjectError
from berth_sdk.parsing.object_fields import integer, items, mapping, strings


@pytest.mark.parametrize("parent", [{}, {"a": None}], ids=["missing", "null"])
def test_absent_field_is_empty(parent: dict[str, Any]) -> None:
    assert (mapping(parent, "a"), items(parent, "a"), strings(parent, "p", "a")) == ({}, [], {})
    assert integer(parent.get("a"), "p.a") == 0


def test_present_field_is_not_copied() -> None:
    parent: dict[str, Any] = {"map": {"x": "1"}, "list": [{"x": "1"}]}
    assert mapping(parent, "map") is parent["map"]
    assert items(parent, "list") is parent["list"]
    assert strings(parent, "p", "map") is parent["map"]
    assert integer(-3, "p") == -3


@pytest.mark.parametrize("value", ["text", 3, True, [1]], ids=str)
def test_error_names_a_field_that_is_not_a_map(value: Any) -> None:
    for read in (lambda: mapping({"a": value}, "a"), lambda: strings({"a": value}, "p", "a")):
        with pytest.raises(ObjectError, match=f"a: must be a map, not {type(value).__name__}"):
            read()


def test_error_names_the_place_of_an_item_that_is_not_a_map() -> None:
    with pytest.raises(ObjectError, match=r"a\[1\]: must be a map, not str"):
        items({"a": [{}, "x"]}, "a")
    with pytest.raises(ObjectError, match="a: must be a list, not dict"):
        items({"a": {}}, "a")


def test_error_asks_for_quotes_around_a_number_in_a_map_of_strings() -> None:
    with pytest.raises(ObjectError, match=r"\.labels\.tier: must be a string, not int: put it in quotes"):
        strings({"labels": {"app": "a", "tier": 1}}, "metadata", "labels")


@pytest.mark.parametrize("value", [True, "3", 3.0], ids=repr)
def test_integer_refuses_booleans_texts_and_fractions(value: Any) -> None:
    with pytest.raises(ObjectError, match=r"spec\.priority: must be an integer"):
        integer(value, "spec.priority")
