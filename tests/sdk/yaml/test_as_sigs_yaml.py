"""YAML is read as by Kubernetes: every recorded text gives the recorded value.

The recording is made by `tests/cluster/envtest/yamltable`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from berth_host.config.source.node import SourceError
from berth_host.config.source.yaml_reader import read_yaml
from berth_sdk.yaml.reader import read_one
from berth_sdk.yaml.scalars import YamlTextError

# libyaml takes these spellings, which Go's port of it refuses (`\\/`, `%YAML 1.2`) and refuses a byte
# order mark inside a text, which Go's keeps.
TAKEN_BY_LIBYAML = ("escapes", "escape slash", "json escape slash", "directive yaml 12", "bom inside")
ALL_RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parent / "testdata/sigs_yaml.jsonl").read_text().split("\n")
    if line
]
RECORDS = [record for record in ALL_RECORDS if record["name"] not in TAKEN_BY_LIBYAML]


# One test for all texts: each takes a millisecond, and a test of its own takes four.


def test_a_text_has_the_value_that_kubernetes_reads() -> None:
    wrong = {record["name"]: got for record in RECORDS if (got := value_of(record)) != wanted(record)}
    assert wrong == {}


def test_a_configuration_is_read_and_refused_as_kubernetes_does() -> None:
    wrong = {
        record["name"]: got
        for record in RECORDS
        if (got := as_configuration(record)) != (wanted(record), "strict_error" not in record)
    }
    assert wrong == {}


def test_libyaml_differs_from_go_in_these_spellings_alone() -> None:
    texts = {record["name"]: record["text"] for record in ALL_RECORDS}
    assert read_one(texts["escape slash"]) == {"a": "/"}
    assert read_one(texts["json escape slash"]) == {"a": "x/y"}
    assert read_one(texts["directive yaml 12"]) == {"a": True}
    with pytest.raises(YamlTextError):
        read_one(texts["bom inside"])


def wanted(record: dict[str, Any]) -> str:
    return repr_sorted(record["json"]) if "json" in record else repr("refused")


def value_of(record: dict[str, Any]) -> str:
    try:
        return repr_sorted(read_one(record["text"]))
    except YamlTextError:
        return repr("refused")


def as_configuration(record: dict[str, Any]) -> tuple[str, bool]:
    """Return the value of a text, and whether no key is repeated in it."""
    try:
        root = read_yaml(record["text"]).root
        return repr_sorted(root.to_json()), not list(root.repeated_keys())
    except SourceError:
        return repr("refused"), False


def repr_sorted(value: Any) -> str:
    """Return a text that tells 1 from 1.0 and from True, and does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True)
