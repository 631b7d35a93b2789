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
from berth_host.yaml.reader import read_one
from berth_host.yaml.scalars import YamlTextError

# libyaml takes these spellings, which Go's port of it refuses (`\\/`, `%YAML 1.2`) and refuses a byte
# order mark inside a text, which Go's keeps.
TAKEN_BY_LIBYAML = ("escapes", "escape slash", "json escape slash", "directive yaml 12", "bom inside")
ALL_RECORDS = [
    json.loads(line)
    for line in (Path(__file__).parent / "testdata/sigs_yaml.jsonl").read_text().split("\n")
    if line
]
RECORDS = [record for record in ALL_RECORDS if record["name"] not in TAKEN_BY_LIBYAML]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record["name"]))
def test_a_text_has_the_value_that_kubernetes_reads(record: dict[str, Any]) -> None:
    want = repr(record.get("json", "refused"))
    try:
        value = repr_sorted(read_one(record["text"]))
    except YamlTextError:
        value = repr("refused")
    assert value == (repr_sorted(record["json"]) if "json" in record else want)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record["name"]))
def test_a_configuration_is_read_and_refused_as_kubernetes_does(record: dict[str, Any]) -> None:
    try:
        root = read_yaml(record["text"]).root
        value, is_strict = repr_sorted(root.to_json()), not list(root.repeated_keys())
    except SourceError:
        value, is_strict = repr("refused"), False
    assert value == (repr_sorted(record["json"]) if "json" in record else repr("refused"))
    assert is_strict == ("strict_error" not in record)


def test_libyaml_differs_from_go_in_these_spellings_alone() -> None:
    texts = {record["name"]: record["text"] for record in ALL_RECORDS}
    assert read_one(texts["escape slash"]) == {"a": "/"}
    assert read_one(texts["json escape slash"]) == {"a": "x/y"}
    assert read_one(texts["directive yaml 12"]) == {"a": True}
    with pytest.raises(YamlTextError):
        read_one(texts["bom inside"])


def repr_sorted(value: Any) -> str:
    """Return a text that tells 1 from 1.0 and from True, and does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True)
