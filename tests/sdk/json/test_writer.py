"""Values of any depth are written, and the parts that stayed bytes as they came."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from berth_sdk.json.objects import put_back
from berth_sdk.json.reader import MAX_DEPTH, RawJson, read_deep_json
from berth_sdk.json.writer import is_deeper, write_json
from hypothesis import given

from .nasty_json import values


def as_maps(value: object) -> object:
    """Return the value with maps in place of pairs."""
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return {key: as_maps(item) for key, item in value}
        return [as_maps(one) for one in value]
    return value


@given(values)
def test_what_is_written_is_read_as_the_same(value: object) -> None:
    value = as_maps(value)
    assert write_json(value) == json.dumps(value, separators=(",", ":")).encode()
    assert read_deep_json(write_json([[value, RawJson(b"1")]])) == [[value, 1]]


@pytest.mark.parametrize("depth", [1, 20_000])
def test_kept_bytes_are_written_unchanged(depth: int) -> None:
    kept = RawJson(rb'{"b":1.0,"a":1e5,"a":"\ud800"}')
    value: object = {"z": kept, "a": [kept, '"']}
    for _ in range(depth):
        value = [value, {}]
    text = write_json(value)
    assert text.count(kept.content) == 2
    assert text == b"[" * depth + b'{"z":%b,"a":[%b,"\\""]}' % (kept.content, kept.content) + b",{}]" * depth


def test_value_that_json_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="set is no value of JSON"):
        write_json([{1}])


def test_depth_is_measured() -> None:
    value: object = {"leaf": 1}
    for _ in range(MAX_DEPTH + 50):
        value = [1, value]
    text = write_json(value)
    assert is_deeper(value)
    cut = read_deep_json(text)
    assert not is_deeper(cut)
    assert write_json(cut) == text
    assert copy.deepcopy(cut) == cut
    assert pickle.loads(pickle.dumps(cut)) == cut


def test_mark_of_a_value_that_stayed_bytes_elsewhere_is_a_string() -> None:
    value = {"spec": {"config": [{"opaque": {"parameters": "x"}}]}}
    put_back(value, {b"spec": {b"config": {b"*": {b"opaque": {b"parameters": "kept"}}}}}, [b"{}"])
    assert value == {"spec": {"config": [{"opaque": {"parameters": "x"}}]}}


def test_any_number_of_raw_values_is_written_in_one_pass() -> None:
    # One pass for each would take hours.
    count = 300_000
    value = {"a": [RawJson(b"[]")] * count + ["text"]}
    assert write_json(value) == b'{"a":[' + b"[]," * count + b'"text"]}'
