"""A manifest is split into the documents that kubectl splits it into; what kubectl refuses is refused.

The recording is made by `tests/cluster/envtest/yamltable`.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from berth_sim.manifests.documents import DocumentError, documents_of
from support.places import TESTS

RECORDING: Final = TESTS / "sdk/yaml/testdata/sigs_yaml.jsonl"
# Escapes in quotes, which libyaml takes and Go's port of it refuses.
TAKEN_BY_LIBYAML: Final = ("escapes", "escape slash")
RECORDS: Final = [
    record
    for line in RECORDING.read_text().split("\n")
    if line
    for record in [json.loads(line)]
    if any(key.startswith("documents") for key in record) and record["name"] not in TAKEN_BY_LIBYAML
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record["name"]))
def test_text_has_the_documents_that_kubectl_reads(record: dict[str, Any]) -> None:
    if "documents_error" in record:
        with pytest.raises(DocumentError):
            list(documents_of(record["text"]))
        return
    read = [document for document, _ in documents_of(record["text"]) if document is not None]
    wanted = [document for document in record["documents"] if document is not None]
    assert json.dumps(read, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def test_content_beside_a_separator_is_named_with_its_line() -> None:
    with pytest.raises(DocumentError, match=r"'\{b: 2\}' is on the line of a separator") as caught:
        list(documents_of("a: 1\n--- # fine\nc: 3\n--- {b: 2}\n"))
    assert caught.value.line == 4
