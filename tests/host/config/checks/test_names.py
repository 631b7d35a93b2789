"""Qualified names, label values and extended resource names."""

from __future__ import annotations

import pytest
from berth_host.config.checks.names import (
    check_extended_resource_name,
    label_value_complaints,
    qualified_name_complaints,
)


@pytest.mark.parametrize("name", ["cpu", "example.com/gpu", "a", "A_b.c-d", "x/" + "n" * 63])
def test_good_names_have_no_complaint(name: str) -> None:
    assert qualified_name_complaints(name) == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("", 2, id="empty: missing and malformed"),
        pytest.param("bad name", 1, id="space"),
        pytest.param("/x", 1, id="empty prefix"),
        pytest.param("x/", 2, id="empty name"),
        pytest.param("Upper.com/x", 1, id="upper case prefix"),
        pytest.param("a/b/c", 1, id="two slashes"),
        pytest.param("n" * 64, 1, id="too long"),
        pytest.param("-" * 64, 2, id="too long and malformed"),
        pytest.param("p" * 254 + "/x", 1, id="prefix too long"),
        pytest.param("a\n", 1, id="line end"),
    ],
)
def test_each_broken_rule_is_one_complaint(name: str, count: int) -> None:
    assert len(qualified_name_complaints(name)) == count


def test_label_values_may_be_empty_but_not_odd() -> None:
    assert label_value_complaints("") == []
    assert len(label_value_complaints("a b")) == 1
    assert len(label_value_complaints("-" * 64)) == 2


@pytest.mark.parametrize("name", ["cpu", "kubernetes.io/foo", "x.kubernetes.io/foo", "requests.x/y"])
def test_native_resources_are_no_extended_ones(name: str) -> None:
    (finding,) = check_extended_resource_name("p", name)
    assert ": is an invalid extended resource name (write it as domain/name" in finding.message


def test_extended_resource_names_are_accepted() -> None:
    assert check_extended_resource_name("p", "example.com/gpu") == []
