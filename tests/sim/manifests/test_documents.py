"""YAML and JSON are read as by Kubernetes, and the line of a field is found."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from berth_sim.manifests.documents import DocumentError, documents_of, line_of
from hypothesis import given
from hypothesis import strategies as st


def only(text: str) -> Any:
    ((document, _),) = documents_of(text)
    return document


def values(text: str) -> list[Any]:
    return [document for document, _ in documents_of(text)]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: 1", 1, id="integer"),
        pytest.param("a: '1'", "1", id="quoted"),
        pytest.param("a: 010", 8, id="octal"),
        pytest.param("a: 0x1F", 31, id="hexadecimal"),
        pytest.param("a: 1_000", 1000, id="underscores"),
        pytest.param("a: 0.5", 0.5, id="float"),
        pytest.param("a: 1e3", 1000.0, id="exponent"),
        pytest.param("a: 500m", "500m", id="quantity"),
        pytest.param("a: 0b_", "0b_", id="prefix of a number"),
        pytest.param("a: 12:30:45", "12:30:45", id="no base 60"),
        pytest.param("a: 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", id="a time stays text"),
        pytest.param("a: 2026-01-01", "2026-01-01", id="a date stays text"),
        pytest.param("a: yes", True, id="yes is true"),
        pytest.param("a: y", True, id="y is true"),
        pytest.param("a: !Ref b", "b", id="an unknown tag is a string"),
        pytest.param("a: off", False, id="off is false"),
        pytest.param("a: ~", None, id="null"),
        pytest.param("a: !!str 5", "5", id="told to be a string"),
        pytest.param("a: |\n  x\n  y\n", "x\ny\n", id="block"),
    ],
)
def test_scalar_is_read_as_kubernetes_reads_it(text: str, want: Any) -> None:
    assert only(text) == {"a": want}


def test_keys_are_strings() -> None:
    assert only("1: a\ntrue: b\n") == {"1": "a", "true": "b"}


def test_documents_are_counted_with_the_empty_ones() -> None:
    assert values("# head\na: 1\n---\n---\nb: 2\n") == [{"a": 1}, None, {"b": 2}]


def test_aliases_and_merges_are_written_out() -> None:
    text = "base: &base {a: 1, b: 2}\nuser:\n  <<: *base\n  b: 3\nlist: [*base, *base]\n"
    assert only(text) == {
        "base": {"a": 1, "b": 2},
        "user": {"a": 1, "b": 3},
        "list": [{"a": 1, "b": 2}, {"a": 1, "b": 2}],
    }


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        pytest.param("a: 1\nb: [", 2, "is not YAML", id="open bracket"),
        pytest.param("a: &x\n  b: *x\n", 2, "value contains itself", id="endless alias"),
        pytest.param("a: .inf\n", 1, "is not a number of JSON", id="infinity"),
        pytest.param("? [a]\n: b\n", 1, "it must be a word, not a list or map", id="list as a key"),
        pytest.param('{"a": NaN}', 0, "NaN is not a number of JSON", id="NaN in JSON"),
        pytest.param("a: 1\n\tb: 2\n", 2, "is not YAML", id="tab"),
        pytest.param("a: 1\nb: *x\n", 2, "unknown anchor 'x' referenced", id="alias to nothing"),
        pytest.param("a: !!int x\n", 1, "cannot decode !!str `x` as a !!int", id="tag that lies"),
        pytest.param(
            f'{{"a": {"9" * 5000}}}', 0, "is not an integer of 64 bits", id="endless number in JSON"
        ),
        pytest.param(f"a:\n  {'[' * 100_000}", 2, "nested deeper than 100 levels", id="deep list"),
        pytest.param("- " * 100_000, 1, "nested deeper than 100 levels", id="deep block"),
        pytest.param(f'{{"a": {"[" * 200}{"]" * 200}}}', 0, "nested deeper than 100", id="deep JSON"),
        pytest.param(f'{{"a": {"[" * 100_000}', 1, "nested deeper than 100", id="very deep JSON"),
    ],
)
def test_text_that_is_no_document_names_line_and_cause(text: str, line: int, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem.replace(".", r"\.").replace("[", r"\[")) as caught:
        values(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: 1\nb: 2\na: 3\n", [("a", 3)]),
        ('{"b": 2, "a": 1, "a": 3}', [("a", 0)]),
        ("b: 2\nx: &x {a: 1}\n<<: *x\na: 3\n", []),
    ],
    ids=["yaml", "json", "written over a merged key"],
)
def test_the_last_of_a_repeated_key_counts_and_is_told(text: str, lines: list[tuple[str, int]]) -> None:
    ((document, repeated),) = documents_of(text)
    assert document["a"] == 3
    assert repeated == lines


def test_aliases_that_stand_for_too_much_are_refused() -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 20)]
    with pytest.raises(DocumentError, match="its aliases stand for too many values") as caught:
        values("\n".join(lines))
    assert caught.value.line == 4


def test_json_values_may_follow_each_other() -> None:
    assert values('{"a": 1}\n{"b": 2} {"c": 3}\n') == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_documents_before_the_bad_one_are_read() -> None:
    found = []
    with pytest.raises(DocumentError):
        for document, _ in documents_of("a: 1\n---\nb: [\n"):
            found.append(document)
    assert found == [{"a": 1}]


TEXT = """\
kind: Node
metadata:
  labels:
    example.com/a: x
---
kind: List
items:
- kind: Pod
  spec:
    containers:
    - name: a
      image: b
"""


@pytest.mark.parametrize(
    ("document", "path", "line"),
    [
        (1, "kind", 1),
        (1, "metadata.labels.example.com/a", 4),
        (1, "metadata.annotations.x", 2),
        (2, "items[0].spec.containers[0].image", 12),
        (2, "items[0].spec.containers[0].resources.requests.cpu", 11),
        (2, "", 6),
        (3, "kind", 0),
    ],
)
def test_line_of_a_field_or_of_what_holds_it(document: int, path: str, line: int) -> None:
    assert line_of(TEXT, document, path) == line


def test_lines_of_many_fields_are_found_with_the_text_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[str] = []
    compose_all = yaml.compose_all

    def counted(text: str, **options: Any) -> Any:
        composed.append(text)
        return compose_all(text, **options)

    monkeypatch.setattr(yaml, "compose_all", counted)
    text = "".join(f"---\na: {i}\n" for i in range(100))
    assert [line_of(text, i, "a") for i in (*range(1, 101), 1)] == [*range(2, 201, 2), 2]
    assert composed == [text]


# PyYAML writes words such as 0E0 and 0o7 without quotes; for Kubernetes they are numbers.
# So are the booleans y and n.
WORDS = st.text(max_size=8).filter(
    lambda text: text not in ("y", "Y", "n", "N") and re.match(r"[-+.]*[0-9]", text) is None
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(value=st.dictionaries(WORDS, JSON, max_size=4))
def test_dumped_documents_are_read_back(value: Any) -> None:
    assert only(json.dumps(value)) == value
    assert only("# a comment\n" + yaml.safe_dump(value, allow_unicode=False)) == value


def test_dump_of_a_cluster_is_read_whatever_its_managed_fields_hold() -> None:
    deep = '{"f:a":' * 1_100 + "{}" + "}" * 1_100
    pod = '{"metadata":{"name":"p","managedFields":[\n{"fieldsV1":%s}]},\n"spec":{"x":%s}}'
    text = '{"kind":"List","items":[%s]}' % (pod % (deep, "1"))
    ((value, repeated),) = documents_of(text)
    assert (value["items"][0]["spec"], repeated) == ({"x": 1}, [])
    # What is deep elsewhere is named as before.
    with pytest.raises(DocumentError, match="nested deeper"):
        list(documents_of('{"items":[%s]}' % (pod % ("{}", deep))))
