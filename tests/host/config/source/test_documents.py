"""Which documents of a file are read: the first, and berth's own."""

from __future__ import annotations

import pytest
from berth_host.config.source.documents import Documents, read_documents, read_rest
from berth_host.config.source.node import SourceError

BERTH = "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"


def test_only_the_first_document_counts_and_the_others_are_named() -> None:
    documents = read_documents("a: 1\n---\nb: [\n---\nc: 2\n")
    assert documents.scheduler is not None
    assert documents.scheduler.to_json() == {"a": 1}
    assert [warning.split(" is ignored")[0] for warning in documents.warnings] == [
        "the YAML document at line 2",
        "the YAML document at line 4",
    ]


def test_a_document_with_the_line_of_berth_is_read_wherever_it_stands() -> None:
    documents = read_documents(f"a: 1\n---\nb: [\n---\n{BERTH}cycleBudget: 2s\n")
    assert documents.berth is not None
    assert documents.berth.line_of("cycleBudget") == 7
    assert len(documents.warnings) == 1


def test_a_document_that_only_mentions_berth_inside_is_ignored() -> None:
    documents = read_documents("a: 1\n---\nx:\n  apiVersion: config.berth.io/v1alpha1\n")
    assert documents.berth is None
    assert len(documents.warnings) == 1


def test_a_file_may_hold_only_the_document_of_berth() -> None:
    documents = read_documents(f"---\n{BERTH}")
    assert documents.scheduler is None
    assert documents.berth is not None


def test_empty_documents_and_comments_are_no_documents() -> None:
    assert read_documents("a: 1\n---\n# nothing\n---\n").warnings == ()


def test_text_behind_an_end_mark_is_another_document() -> None:
    assert len(read_documents("a: 1\n...\nb: 2\n").warnings) == 1


def test_a_byte_order_mark_is_no_content() -> None:
    scheduler = read_documents("\ufeffa: 1").scheduler
    assert scheduler is not None
    assert scheduler.to_json() == {"a": 1}


def test_a_file_in_braces_is_json_and_nothing_else() -> None:
    assert read_documents('  {"a": 1}').is_yaml is False
    with pytest.raises(SourceError, match="read as JSON"):
        read_documents("{a: 1}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(f"a: 1\n---\n{BERTH}---\n{BERTH}", 5, id="twice"),
        pytest.param(f"a: 1\n---\n{BERTH}x: [\n", 6, id="malformed"),
    ],
)
def test_what_is_wrong_with_berths_document_leaves_the_first_one_readable(text: str, line: int) -> None:
    documents = read_documents(text)
    assert documents.scheduler is not None
    assert documents.berth is None
    assert documents.berth_error is not None
    assert documents.berth_error.line == line


def test_berths_document_is_not_the_first_of_several() -> None:
    with pytest.raises(SourceError, match="comes after"):
        read_documents(f"{BERTH}---\na: 1\n")


@pytest.mark.parametrize("first", ["a: [1\n", "a: '\n", "---\na: [\n", "# none\n---\na: [\n"])
def test_berths_document_is_found_behind_one_that_cannot_be_read(first: str) -> None:
    documents = read_rest(f"{first}---\nb: [\n---\n{BERTH}x: 1\n")
    assert documents.berth is not None
    assert documents.berth.line_of("x") == 7 + first.count("\n") - 1


HEAD = "apiVersion: old\nkind: K\n"


def joined(text: str) -> Documents:
    return read_documents(HEAD + text, joins_rest=lambda root: "apiVersion" in root.members)


def test_a_bare_rest_is_joined_to_the_first_part_with_a_warning() -> None:
    documents = joined("\n...\n\n# about b\nb:\n  c: 2 # two\n")
    assert documents.scheduler is not None
    assert documents.scheduler.to_json() == {"apiVersion": "old", "kind": "K", "b": {"c": 2}}
    assert documents.scheduler.line_of("b.c") == 8
    assert len(documents.warnings) == 1
    assert documents.warnings[0].startswith('line 7: "..." ends a YAML document')


def test_every_bare_part_is_joined_up_to_the_next_document() -> None:
    documents = joined(f"...\nb: 2\n...\nc: 3\n...\n---\nd: 4\n---\n{BERTH}")
    assert documents.scheduler is not None
    assert list(documents.scheduler.members) == ["apiVersion", "kind", "b", "c"]
    assert documents.scheduler.line_of("c") == 6
    assert documents.berth is not None
    assert [warning[:6] for warning in documents.warnings] == ["line 4", "line 6", "the YA"]
    assert "line 8 is ignored" in documents.warnings[2]


def test_a_key_in_both_parts_counts_as_repeated() -> None:
    documents = joined("b: 1\n...\nb: 2\n")
    assert documents.scheduler is not None
    assert [(key.key, key.line) for key in documents.scheduler.repeated] == [("b", 5)]


@pytest.mark.parametrize("rest", ["apiVersion: v1\nb: 1\n", "kind: Pod\n", "---\nb: 1\n", f"{BERTH}"])
def test_a_document_of_its_own_is_not_joined(rest: str) -> None:
    documents = joined(f"...\n{rest}")
    assert documents.scheduler is not None
    assert list(documents.scheduler.members) == ["apiVersion", "kind"]
    assert len(documents.warnings) == (rest != BERTH)
    assert (documents.berth is not None) == (rest == BERTH)


@pytest.mark.parametrize("rest", ["# the end\n", "...\n", "\n\n", "%YAML 1.1\n---\n# nothing\n"])
def test_empty_document_after_an_end_mark_is_nothing(rest: str) -> None:
    assert joined(f"...\n{rest}").warnings == ()


def test_an_empty_object_after_an_end_mark_adds_nothing() -> None:
    documents = joined("...\n{}\n")
    assert documents.scheduler is not None
    assert list(documents.scheduler.members) == ["apiVersion", "kind"]


@pytest.mark.parametrize("rest", ["- a\n", "word\n", "b: [\n", "<<: *unknown\n"])
def test_a_rest_that_cannot_be_joined_is_an_error_and_not_dropped(rest: str) -> None:
    with pytest.raises(SourceError) as caught:
        joined(f"...\n{rest}")
    assert caught.value.line is not None
    assert caught.value.line > 3


def test_a_rest_is_not_joined_if_the_caller_declines_it() -> None:
    documents = read_documents(f"{HEAD}...\nb: 1\n", joins_rest=lambda root: False)
    assert documents.scheduler is not None
    assert "b" not in documents.scheduler.members


def test_nothing_stands_between_two_end_marks() -> None:
    documents = joined("...\n# nothing\n\n...\nb: 2\n")
    assert documents.scheduler is not None
    assert documents.scheduler.line_of("b") == 7
    assert len(documents.warnings) == 1
