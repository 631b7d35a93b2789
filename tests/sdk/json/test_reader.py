"""Documents that fast parsers refuse are read as Go reads them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from berth_sdk.json.reader import MAX_DEPTH, RawJson, read_deep_json, reading
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from .nasty_json import texts, values


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_ordinary_documents_are_read_as_any_parser_reads_them(data: st.DataObject) -> None:
    document = data.draw(values.flatmap(texts))
    assert read_deep_json(document) == json.loads(document)


@given(st.binary(max_size=12) | st.text('[]{}",:\\u0e1.-tfn ', max_size=12).map(str.encode))
def test_what_is_no_json_is_refused(document: bytes) -> None:
    try:
        json.loads(document.decode())
    except (ValueError, UnicodeDecodeError):
        if not is_go_json(document):
            with pytest.raises(ValueError, match="no JSON"):
                read_deep_json(document)
    else:
        if b"NaN" not in document and b"Infinity" not in document:
            read_deep_json(document)


def is_go_json(document: bytes) -> bool:
    """Return True where the only fault is a byte that is no UTF-8, which Go replaces."""
    try:
        json.loads(document.decode(errors="replace"))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        pytest.param(rb'"\ud800"', "\ufffd", id="half of a pair"),
        pytest.param(rb'"\ud800x\udc00"', "\ufffdx\ufffd", id="two halves"),
        pytest.param(rb'"\ud83d\ude00"', "\U0001f600", id="a pair"),
        pytest.param(b'"a\xffb"', "a\ufffdb", id="no UTF-8"),
        pytest.param(b'"\xe2\x82"', "\ufffd\ufffd", id="each wrong byte"),
        pytest.param(b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd", id="half of a pair as UTF-8"),
        pytest.param(b'{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}, id="repeated key"),
        pytest.param(b"9223372036854775807", 2**63 - 1, id="largest int64"),
        pytest.param(b"1" + b"0" * 30, 1e30, id="beyond 64 bits"),
        pytest.param(b"1" * 5_000, sys.float_info.max, id="5000 digits"),
        pytest.param(b"-1e99999", -sys.float_info.max, id="exponent"),
        pytest.param(b"1e-99999", 0.0, id="tiny"),
        pytest.param(b"0." + b"3" * 5_000, 1 / 3, id="5000 decimals"),
    ],
)
def test_hostile_values_are_read_as_go_reads_them(document: bytes, wanted: Any) -> None:
    assert read_deep_json(document) == wanted


@pytest.mark.parametrize(
    "document",
    [
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
        b'"\\x"',
        b'"\\u12"',
        b'"\n"',
        b"nul",
        b"[1 2]",
        b"[}",
        b'{"a"}',
    ],
)
def test_grammar_is_strict(document: bytes) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        read_deep_json(document)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_what_lies_too_deep_stays_bytes(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    document = opening * 20_000 + b"1" + closing * 20_000
    value = read_deep_json(document)
    for _ in range(MAX_DEPTH):
        (value,) = value.values() if isinstance(value, dict) else value
    assert value == RawJson(opening * (20_000 - MAX_DEPTH) + b"1" + closing * (20_000 - MAX_DEPTH))
    assert len(repr(value)) < 40


def test_a_large_document_is_read_in_steps() -> None:
    document = b"[" + b",".join([b'{"a":[]}'] * 40_000) + b"]"
    steps = list(reading(document))
    assert len(steps) >= 20
