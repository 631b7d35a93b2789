"""Expressions, and what kube-scheduler 1.37.2 said of them: the compile error, the runtime error, or the
result and its cost. Recorded from its compiler of device selectors over a device with one attribute `n`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from berth_plugins.cel.errors import CelError
from berth_plugins.dynamic_resources.cel import Expression
from berth_plugins.dynamic_resources.devices import Device, Slice
from berth_sdk.kube_object import KubeObject

RECORDS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "recorded.jsonl").read_text().split("\n") if line
]


def the_device() -> Device:
    devices = [{"name": "d0", "attributes": {"n": {"int": 1}}}]
    raw = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {"driver": "d", "pool": {"name": "p"}, "nodeName": "n", "devices": devices},
    }
    return Slice.of(KubeObject.of(raw)).devices[0]


def answer(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"expr": text}
    try:
        expression = Expression(text)
    except CelError as err:
        return {**found, "compile": str(err)}
    try:
        found["result"], found["cost"] = expression.evaluate(the_device())
    except CelError as err:
        found["runtime"] = str(err)
    return found


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("record", RECORDS, ids=[record["expr"][:60] for record in RECORDS])
def test_expression_ends_as_in_kube_scheduler(record: dict[str, Any]) -> None:
    assert answer(record["expr"]) == record
