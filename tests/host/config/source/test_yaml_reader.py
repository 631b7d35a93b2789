"""The first YAML document becomes JSON values that know their lines."""

from __future__ import annotations

import pytest
from berth_host.config.source.node import MAX_VALUES, SourceError, SourceNode
from berth_host.config.source.yaml_reader import read_yaml
from berth_sdk.yaml.reader import MAX_DEPTH


def read(text: str) -> SourceNode:
    return read_yaml(text).root


def test_keys_that_are_no_strings_become_their_text() -> None:
    assert read("1: a\ntrue: b\non: c\n1.5: d\n").to_json() == {"1": "a", "true": "c", "1.5": "d"}


def test_whole_floats_become_integers_as_go_writes_them() -> None:
    got = read("a: 4.0\nb: 1e2\nc: 4.5").to_json()
    assert got == {"a": 4, "b": 100, "c": 4.5}
    assert isinstance(got, dict)
    assert [type(value) for value in got.values()] == [int, int, float]


def test_quoted_words_stay_strings() -> None:
    assert read("a: 'on'\nb: \"3\"").to_json() == {"a": "on", "b": "3"}


def test_empty_text_and_comments_are_null() -> None:
    assert read("").to_json() is None
    assert read("# nothing\n").to_json() is None


def test_lines_count_from_one() -> None:
    root = read("a: 1\nb:\n- x: 1\n  name: p\n- y: 2\n")
    assert root.line_of("b") == 2
    assert root.line_of("b[1].y") == 5
    assert root.line_of("b[0].missing.deeper") == 3
    assert root.line_of("b[p].name") == 4
    assert root.line_of("c") == 1


def test_repeated_key_is_kept_for_the_decoder_and_the_last_one_counts() -> None:
    root = read("a:\n  k: 1\n  k: 2\n")
    assert root.to_json() == {"a": {"k": 2}}
    assert [(path, key.key, key.line) for path, key in root.repeated_keys()] == [("a", "k", 3)]


def test_number_and_text_are_different_keys() -> None:
    assert list(read('1: a\n"1": b\n').repeated_keys()) == []


def test_merged_map_fills_in_and_an_overridden_key_counts_as_repeated() -> None:
    merged = read("x: &a {p: 1}\nz:\n  <<: *a\n  q: 2\n")
    assert merged.to_json() == {"x": {"p": 1}, "z": {"p": 1, "q": 2}}
    overridden = read("x: &a {p: 1}\nz:\n  <<: *a\n  p: 2\n")
    assert [key.key for _, key in overridden.repeated_keys()] == ["p"]


def test_list_of_maps_is_merged_with_the_earlier_ones_winning() -> None:
    root = read("a: &a {k: 1}\nb: &b {k: 2, m: 3}\nc:\n  <<: [*a, *b]\n")
    assert root.members["c"].node.to_json() == {"k": 1, "m": 3}


def test_text_after_the_document_is_not_looked_at() -> None:
    document = read_yaml("a: 1\n---\nb: [\n")
    assert document.root.to_json() == {"a": 1}
    assert (document.end_line, document.end_column) == (1, 0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("a: [\n", 2, id="open list"),
        pytest.param("a:\n\t- b\n", 2, id="tab as indentation"),
        pytest.param("a: *nowhere\n", 1, id="unknown anchor"),
        pytest.param("a: &a\n  b: *a\n", 2, id="anchor inside itself"),
        pytest.param("? [x]\n: 1\n", 1, id="list as key"),
        pytest.param("? {}\n: 1\n", 1, id="map as key"),
        pytest.param("~: 1\n", 1, id="null as key"),
        pytest.param("a: 1\nb: .inf\n", 2, id="infinity"),
        pytest.param("a:\n  <<: 3\n", 2, id="merge of a number"),
        pytest.param("[" * (MAX_DEPTH + 5), 1, id="too deep"),
        pytest.param("a: \x00", None, id="control character"),
        pytest.param("a: \ud800", None, id="lone surrogate"),
    ],
)
def test_unreadable_text_is_an_error_with_its_line(text: str, line: int | None) -> None:
    with pytest.raises(SourceError) as caught:
        read(text)
    assert caught.value.line == line


def test_a_tab_is_named_as_the_cause() -> None:
    with pytest.raises(SourceError, match="a tab; indent with spaces"):
        read("a:\n\tb: 1\n")


def test_aliases_of_aliases_are_stopped() -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(SourceError, match="aliases"):
        read("\n".join(lines))


@pytest.mark.long
def test_document_of_too_many_values_is_refused_where_they_are_too_many() -> None:
    """The rest is not read: what is refused costs no more for being longer."""
    text = "".join(f"key{number}: 1\n" for number in range(MAX_VALUES + 100_000))
    with pytest.raises(SourceError, match=f"more than {MAX_VALUES} values, the limit .* take out") as caught:
        read_yaml(text)
    assert caught.value.line == MAX_VALUES + 1
