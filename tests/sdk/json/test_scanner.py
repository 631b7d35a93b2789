"""Parts are found by nesting and strings, whatever names, texts and spaces surround them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_sdk.json.scanner import ITEMS, ScanError, Span, cut, quick_cut, spans
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from .nasty_json import objects, texts

PATHS = {b"metadata": {b"managedFields": "dropped"}}
LIST = {b"items": {ITEMS: PATHS}}
MARK = "what a cut leaves"


def found(document: bytes, paths: Any = None) -> list[Span]:
    return [span for span in spans(document, PATHS if paths is None else paths) if span is not None]


def without(document: bytes, paths: Any = None) -> bytes:
    places = found(document, paths)
    return cut(document, places, [b"null"] * len(places))


def parts(document: bytes, paths: Any = None) -> list[bytes]:
    return [document[span.start : span.end] for span in found(document, paths)]


def dropped(item: Any) -> Any:
    """Return a parsed object as a full parse gives it, without its managedFields."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if isinstance(metadata, dict) and "managedFields" in metadata:
        metadata["managedFields"] = None
    return item


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_cut_is_what_a_full_parse_says(data: st.DataObject) -> None:
    document = data.draw(objects.flatmap(texts))
    assert json.loads(without(document)) == dropped(json.loads(document))


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_cut_of_a_list_is_what_a_full_parse_says(data: st.DataObject) -> None:
    items = data.draw(st.lists(objects.flatmap(texts), max_size=3))
    document = b'{"metadata":{"managedFields":[1]}, "items" :[' + b",".join(items) + b" ] }"
    wanted = json.loads(document)
    wanted["items"] = [dropped(item) for item in wanted["items"]]
    assert json.loads(without(document, LIST)) == wanted


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_quick_cut_that_passes_its_checks_is_the_exact_cut(data: st.DataObject) -> None:
    items = data.draw(st.lists(objects.flatmap(lambda one: texts(one, is_tight=True)), max_size=3))
    document = b"[" + b",".join(items) + b"]"
    guessed, count = quick_cut(document, json.dumps(MARK).encode())
    try:
        parsed = json.loads(guessed)
    except ValueError:
        return
    for item in parsed:
        metadata = item.get("metadata")
        if isinstance(metadata, dict) and metadata.get("managedFields") == MARK:
            metadata["managedFields"] = None
            count -= 1
    if not count:
        # A value that is no list stays, and is taken out after the parse.
        assert [dropped(item) for item in parsed] == [dropped(item) for item in json.loads(document)]


def test_quick_cut_takes_what_an_api_server_writes() -> None:
    fields = rb'[{"manager":"m","fieldsV1":{"f:a":{"k:{\"name\":\"b\"}":{}}}}]'
    document = (
        b'{"metadata":{"name":"p","managedFields":' + fields + b'},"spec":{"x":"\\"managedFields\\":["}}'
    )
    assert quick_cut(document, b"0") == (document.replace(fields, b"0"), 1)


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        pytest.param(b'{"metadata":{"labels":{"managedFields":"[]"}}}', [], id="label"),
        pytest.param(
            b'{"spec":{"managedFields":[1],"metadata":{"managedFields":[2]}}}', [], id="in the spec"
        ),
        pytest.param(b'{"managedFields":[1]}', [], id="beside metadata"),
        pytest.param(b'{"metadata":[{"managedFields":[1]}]}', [], id="in a list"),
        pytest.param(rb'{"metadata":{"\u006danaged\u0046ields":[1]}}', [b"[1]"], id="escapes"),
        pytest.param(b'{"metadata":{"managedFields":[1],"managedFields":"]"}}', [b"[1]", b'"]"'], id="twice"),
        pytest.param(
            b'{ "metadata" :\n{ "managedFields"\t: [ "]\\"" , {} ] } }', [b'[ "]\\"" , {} ]'], id="spaces"
        ),
    ],
)
def test_only_the_field_of_that_name_in_the_metadata_is_found(document: bytes, wanted: list[bytes]) -> None:
    assert parts(document) == wanted


@pytest.mark.parametrize("depth", [1_100, 200_000])
def test_depth_has_no_limit_and_long_work_gives_way(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    document = b'{"metadata":{"managedFields":' + deep + b'},"spec":' + deep + b"}"
    steps = list(spans(document, PATHS))
    assert [document[span.start : span.end] for span in steps if span is not None] == [deep]
    # Each step is a few milliseconds' work, however large the document is.
    assert len(steps) > 4 * depth // 8_500


def test_a_value_is_found_after_the_parts_within_it() -> None:
    paths = {b"object": {b"": "object", b"metadata": {b"name": "name"}}}
    document = b'{"type":"ADDED","object":{"metadata":{"name":"p"},"spec":{}}}'
    assert parts(document, paths) == [b'"p"', b'{"metadata":{"name":"p"},"spec":{}}']


@pytest.mark.parametrize(
    "document", [b"", b"{", b'{"metadata":{"managedFields":[', b'{"a" 1}', b"{} {}", b"[1,]", b"}"]
)
def test_what_is_no_json_is_refused(document: bytes) -> None:
    with pytest.raises(ScanError):
        found(document)
