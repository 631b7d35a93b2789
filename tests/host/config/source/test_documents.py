"""Which documents of a file are read: the first, and berth's own."""

from __future__ import annotations

import pytest
from berth_host.config.source.documents import read_documents
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
    "text",
    [
        pytest.param(f"a: 1\n---\n{BERTH}---\n{BERTH}", id="twice"),
        pytest.param(f"{BERTH}---\na: 1\n", id="before the scheduler's"),
        pytest.param(f"a: 1\n---\n{BERTH}x: [\n", id="malformed"),
    ],
)
def test_a_document_of_berth_in_the_wrong_place_or_shape_is_an_error(text: str) -> None:
    with pytest.raises(SourceError):
        read_documents(text)
