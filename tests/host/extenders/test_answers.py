"""Answers of extenders, read as kube-scheduler's JSON decoder reads them.

`testdata/go_json.jsonl` holds what Go 1.26 makes of 600 bodies, good and bad: `json.NewDecoder(body).Decode`
into the types of `k8s.io/kube-scheduler/extender/v1`. `body` has one character for each byte.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from berth_host.errors.extenders import ExtenderError, ExtenderOutcomeUnknownError
from berth_host.extenders import answers
from hypothesis import given
from hypothesis import strategies as st

Json = dict[str, Any]
RECORDED: Final = [
    json.loads(line)
    for line in (Path(__file__).parent / "testdata" / "go_json.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def filtered(body: bytes) -> Json:
    answer = answers.filter_answer(body)
    return {
        "names": answer.names,
        "nodes": answer.nodes,
        "failed": dict(answer.failed) or None,
        "unresolvable": dict(answer.unresolvable) or None,
        "error": answer.error,
    }


def prioritized(body: bytes) -> list[Json]:
    return [{"Host": host, "Score": score} for host, score in zip(*answers.priorities(body), strict=True)]


def preempted(body: bytes) -> Json:
    return {name: [list(meta.uids), meta.violations] for name, meta in answers.preempt_answer(body).items()}


READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "filter": filtered,
    "prioritize": prioritized,
    "preempt": preempted,
    "bind": answers.bind_error,
}


def problem(verb: str, body: bytes | str) -> str:
    """Return the error of an answer; fails if it has none."""
    with pytest.raises(ExtenderError) as caught:
        READERS[verb](body if isinstance(body, bytes) else body.encode())
    # An extender that was to bind may have bound the pod, whatever it answers.
    assert isinstance(caught.value, ExtenderOutcomeUnknownError)
    assert caught.value.outcome == "violation"
    return str(caught.value)


def as_slow(body: bytes) -> bytes:
    """Return a body that means the same and is not read in the short way: bytes follow its first value."""
    return body + b" x"


def test_recording_has_good_and_bad_bodies_for_every_verb() -> None:
    for verb in READERS:
        outcomes = ["error" in one for one in RECORDED if one["kind"] == verb]
        assert outcomes.count(True) >= 50
        assert outcomes.count(False) >= 15


@pytest.mark.parametrize("verb", READERS)
def test_every_recorded_body_is_read_as_go_reads_it(verb: str) -> None:
    for one in RECORDED:
        if one["kind"] != verb:
            continue
        body = one["body"].encode("latin-1")
        if "error" in one:
            assert problem(verb, body) == one["error"], body
        else:
            assert READERS[verb](body) == one["value"], body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "EOF"),
        (" \n\t\r", "EOF"),
        ('{"Error":', "unexpected EOF"),
        ('{"Error":"no', "unexpected EOF"),
        ("tru", "unexpected EOF"),
        ("-", "unexpected EOF"),
        ('{"Error":1.', "unexpected EOF"),
        ("<html>", "invalid character '<' looking for beginning of value"),
        ('{"Error":nul}', "invalid character '}' in literal null (expecting 'l')"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"a":[1,]}', "invalid character ']' looking for beginning of value"),
        ("{'Error': 1}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        ('{"a":{"b":[1 2]}}', "invalid character '2' after array element"),
        ('{"a":"\n"}', "invalid character '\\n' in string literal"),
        ('{"a":"\\q"}', "invalid character 'q' in string escape code"),
        ('{"a":"\\u12x4"}', "invalid character 'x' in \\u hexadecimal character escape"),
        ('{"a":-x}', "invalid character 'x' in numeric literal"),
        ('{"a":1.x}', "invalid character 'x' after decimal point in numeric literal"),
        ('{"a":1e+}', "invalid character '}' in exponent of numeric literal"),
        ('{"a":NaN}', "invalid character 'N' looking for beginning of value"),
        ('{"a":-Infinity}', "invalid character 'I' in numeric literal"),
    ],
)
@pytest.mark.parametrize("verb", READERS)
def test_syntax_errors_have_gos_words(verb: str, body: str, words: str) -> None:
    assert problem(verb, body) == words


def test_bytes_in_errors_are_shown_one_by_one_as_go_does() -> None:
    assert problem("bind", "é") == "invalid character 'Ã' looking for beginning of value"
    assert problem("bind", b"\xff") == "invalid character 'ÿ' looking for beginning of value"
    assert problem("bind", b"\x00{}") == "invalid character '\\x00' looking for beginning of value"


def test_syntax_comes_before_types_and_the_first_wrong_type_counts() -> None:
    assert problem("filter", '{"Error":5') == "unexpected EOF"
    first = "json: cannot unmarshal number into Go struct field ExtenderFilterResult.Error of type string"
    assert problem("filter", '{"Error":5,"NodeNames":7}') == first
    other = (
        "json: cannot unmarshal number into Go struct field ExtenderFilterResult.NodeNames of type []string"
    )
    assert problem("filter", '{"NodeNames":7,"Error":5}') == other


@pytest.mark.parametrize("verb", ["filter", "preempt", "bind"])
def test_null_and_unknown_keys_mean_nothing(verb: str) -> None:
    empty = READERS[verb](b"{}")
    for body in (b"null", b'{"other": [{"Error": 1}]}', b'{"ERROR": null, "NodeNames": null}'):
        assert READERS[verb](body) == empty


def test_keys_match_in_any_case_and_later_ones_replace_earlier_ones() -> None:
    assert answers.bind_error(b'{"eRRor": "a"}') == "a"
    assert answers.bind_error(b'{"Error": "a", "ERROR": "b"}') == "b"
    assert answers.bind_error(b'{"Error": "a", "error": null}') == "a"
    assert answers.priorities(b'[{"Host": "a", "host": "b", "Score": 1}]') == (["b"], [1])
    assert answers.priorities('[{"Ho\u017ft": "a"}]'.encode()) == (["a"], [0])
    maps = b'{"FailedNodes": {"a": "x"}, "failednodes": {"b": "y"}}'
    assert answers.filter_answer(maps).failed == {"a": "x", "b": "y"}
    assert answers.filter_answer(b'{"FailedNodes": {"a": "x"}, "failednodes": null}').failed == {}


def test_key_repeated_in_one_spelling_counts_with_its_last_value() -> None:
    # Where null or a map comes second, Go keeps the value before, or a part of it.
    assert answers.filter_answer(b'{"NodeNames": ["a"], "NodeNames": ["b"]}').names == ["b"]
    assert answers.priorities(b'[{"Host": "a", "Score": 1, "Score": 2}]') == (["a"], [2])


@pytest.mark.parametrize(
    "more", [b" ", b"\n\n", b"garbage", b"{}", b"]", b"\x00", b"\xff", b'{"Error": "b"}']
)
def test_only_the_first_value_of_a_body_counts(more: bytes) -> None:
    assert answers.bind_error(b' {"Error": "a"}' + more) == "a"
    assert answers.filter_answer(b'{"NodeNames": ["a"]}' + more).names == ["a"]
    assert answers.priorities(b'[{"Host": "a", "Score": 3}]' + more) == (["a"], [3])


@pytest.mark.parametrize(
    ("number", "score"),
    [
        ("0", 0),
        ("-0", 0),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("null", 0),
    ],
)
def test_every_int64_is_a_score(number: str, score: int) -> None:
    assert answers.priorities(f'[{{"Host": "a", "Score": {number}}}]'.encode()) == (["a"], [score])


@pytest.mark.parametrize(
    "number", [str(2**63), str(-(2**63) - 1), "1.5", "1.0", "-0.0", "1e2", "1E400", "9" * 5000, "0.1e1"]
)
def test_other_numbers_are_shown_as_the_body_writes_them(number: str) -> None:
    expected = f"json: cannot unmarshal number {number} into Go struct field HostPriority.Score of type int64"
    assert problem("prioritize", f'[{{"Host": "a", "Score": {number}}}]') == expected


def test_null_in_lists_is_a_zero_value() -> None:
    assert answers.filter_answer(b'{"NodeNames": ["a", null]}').names == ["a", ""]
    assert answers.filter_answer(b'{"Nodes": {"items": [null, {"metadata": null}]}}').nodes == ["", ""]
    assert answers.priorities(b"[null, {}]") == (["", ""], [0, 0])
    # A null victim ends kube-scheduler's process; here it is a victim without uid, which no node has.
    assert preempted(b'{"NodeNameToMetaVictims": {"n": {"Pods": [null]}, "m": null}}') == {
        "n": [[""], 0],
        "m": [[], 0],
    }


def test_absent_nodes_and_empty_nodes_differ() -> None:
    for body, names, nodes in (
        (b"{}", None, None),
        (b'{"NodeNames": []}', [], None),
        (b'{"Nodes": {}}', None, []),
        (b'{"Nodes": {"items": null}}', None, []),
        (b'{"Nodes": null, "NodeNames": null}', None, None),
    ):
        answer = answers.filter_answer(body)
        assert (answer.names, answer.nodes) == (names, nodes)


def test_text_that_is_not_unicode_becomes_replacement_characters() -> None:
    # A lone surrogate could not be written to a pod's condition, to a log line or to a metric.
    bodies = (
        b'{"Error": "a\xff\xc3("}',
        rb'{"Error": "a\ud800\udfffx"}',
        rb'{"Error": "\udc00"}',
        rb'{"Error": "\ud83d\ude00"}',
    )
    assert [answers.bind_error(body) for body in bodies] == [
        "a\ufffd\ufffd(",
        "a\U000103ffx",
        "\ufffd",
        "\U0001f600",
    ]
    assert answers.filter_answer(rb'{"FailedNodes": {"\ud800": "\ud801"}}').failed == {"\ufffd": "\ufffd"}
    assert answers.filter_answer(rb'{"NodeNames": ["\ud800"]}').names == ["\ufffd"]


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("levels", [900, 5_000, 100_000, 3_000_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_an_error_of_the_answer_alone(verb: str, levels: int, opening: bytes) -> None:
    said = problem(verb, opening * levels)
    # Up to 10000 levels Go reads on; how many levels Python reads depends on its version.
    assert said == "exceeded max depth" or (levels < 10_000 and said == "unexpected EOF")


def test_unusual_answer_takes_memory_in_proportion_to_its_size() -> None:
    body = b'{"FailedNodes":[' + b'"",' * 500_000 + b"!"
    tracemalloc.start()
    try:
        assert problem("filter", body) == "invalid character '!' looking for beginning of value"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(body)


# --- the short way and the long way agree ----------------------------------------------------------------


FILTERS: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "NodeNames": st.none() | st.lists(NAMES),
        "Nodes": st.none()
        | st.fixed_dictionaries(
            {"items": st.lists(st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"name": NAMES})}))},
            optional={"metadata": st.just({}), "Items": st.just([])},
        ),
        "FailedNodes": st.none() | st.dictionaries(NAMES, NAMES),
        "FailedAndUnresolvableNodes": st.none() | st.dictionaries(NAMES, NAMES),
        "Error": st.none() | NAMES,
        "error": st.none() | NAMES,
        "failednodes": st.none() | st.dictionaries(NAMES, NAMES),
    },
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | NAMES,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["Error", "Nodes", "NodeNames", "Host"]) | NAMES, inner)
    ),
    max_leaves=12,
)


def outcome(verb: str, body: bytes) -> Any:
    try:
        return READERS[verb](body)
    except ExtenderError as err:
        return str(err)


@given(FILTERS)
def test_short_way_and_long_way_agree_about_filter_results(result: Json) -> None:
    body = json.dumps(result, ensure_ascii=False).encode()
    assert filtered(body) == filtered(as_slow(body))


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "Host": st.none() | NAMES,
                "Score": st.none() | st.integers(-(2**64), 2**64),
                "score": st.integers(0, 9),
                "HOST": NAMES,
            },
        )
    )
)
def test_short_way_and_long_way_agree_about_priorities(result: list[Json]) -> None:
    body = json.dumps(result).encode()
    assert outcome("prioritize", body) == outcome("prioritize", as_slow(body))


@given(st.sampled_from(list(READERS)), ANY)
def test_any_value_is_read_the_same_in_both_ways(verb: str, value: Any) -> None:
    body = json.dumps(value).encode()
    assert outcome(verb, body) == outcome(verb, as_slow(body))


@given(st.sampled_from(list(READERS)), st.binary())
def test_any_bytes_give_an_answer_or_an_error_of_the_answer(verb: str, body: bytes) -> None:
    outcome(verb, body)


@pytest.mark.parametrize("key", ["nodes", "Nodes"])
def test_nodes_are_sent_back_with_managed_fields_of_any_depth(key: str) -> None:
    deep = b'{"f:a":' * 1_100 + b"{}" + b"}" * 1_100
    node = b'{"metadata":{"name":"n1","managedFields":[{"fieldsV1":%b}]}}' % deep
    body = b'{"%b":{"items":[%b,{"metadata":{"name":"n2"}}]}}' % (key.encode(), node)
    assert answers.filter_answer(body).nodes == ["n1", "n2"]
