"""A JSON file is read strictly, with lines, and numbers keep their kind."""

from __future__ import annotations

import json

import pytest
from berth_host.config.source.json_reader import read_json_source
from berth_host.config.source.node import SourceError
from hypothesis import given
from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON_VALUES, indent=st.sampled_from([None, 2, "\t"]))
def test_reader_agrees_with_the_writer_of_json(value: object, indent: int | str | None) -> None:
    assert read_json_source(json.dumps(value, indent=indent)).to_json() == value


def test_lines_and_repeated_keys_are_kept() -> None:
    root = read_json_source('{\n "a": {"b": 1,\n "b": 2}\n}')
    assert root.line_of("a.b") == 3
    assert [(path, key.key, key.line) for path, key in root.repeated_keys()] == [("a", "b", 3)]


def test_a_number_with_a_point_is_no_integer() -> None:
    assert type(read_json_source("4.0").value) is float
    assert type(read_json_source("4").value) is int


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{a: 1}", id="YAML in braces"),
        pytest.param('{"a": 1,}', id="comma at the end"),
        pytest.param('{"a": 1} {}', id="something behind"),
        pytest.param('{"a": 01}', id="leading zero"),
        pytest.param('{"a": "\n"}', id="line end in a string"),
        pytest.param('{"a": 1', id="open object"),
        pytest.param("[" * 500, id="too deep"),
        pytest.param("9" * 5000, id="endless number"),
        pytest.param("", id="nothing"),
    ],
)
def test_malformed_json_is_an_error(text: str) -> None:
    with pytest.raises(SourceError):
        read_json_source(text)


def test_a_lone_surrogate_is_replaced() -> None:
    assert read_json_source('"\\ud800"').value == "\ufffd"
