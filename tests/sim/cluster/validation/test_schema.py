"""The field table: types, unknown names, and agreement with Kubernetes' own models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from berth_sim.cluster.validation.schema import field_problems
from support.kube_schema import SCHEMA, table_from_client


def problems(kind: str, obj: Any) -> list[str]:
    return [str(problem) for problem in field_problems(kind, obj)]


def test_every_field_of_the_table_is_one_of_the_models() -> None:
    models = table_from_client()
    for struct, fields in json.loads(SCHEMA.read_text()).items():
        for name, field_type in fields.items():
            assert models[struct].get(name) == field_type, f"{struct}.{name}"


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(
            {"spec": {"contaners": []}},
            "spec.contaners: unknown field 'contaners' of PodSpec: did you mean 'containers'?",
            id="misspelt field",
        ),
        pytest.param(
            {"spec": {"containers": {"name": "a"}}},
            "spec.containers: must be a list, not a map",
            id="map for a list",
        ),
        pytest.param(
            {"spec": {"containers": ["a"]}},
            "spec.containers[0]: must be a map, not 'a'",
            id="string for a map",
        ),
        pytest.param(
            {"metadata": {"labels": {"on": True}}},
            "metadata.labels.on: must be a string, not true: put it in quotes",
            id="yes without quotes",
        ),
        pytest.param(
            {"spec": {"priority": "high"}},
            "spec.priority: must be an integer, not 'high'",
            id="word for a number",
        ),
        pytest.param(
            {"spec": {"priority": 2**63}},
            f"spec.priority: must be an integer of 64 bits, not {2**63}",
            id="number beyond 64 bits",
        ),
        pytest.param(
            {"spec": {"hostNetwork": "yes"}},
            "spec.hostNetwork: must be true or false, not 'yes'",
            id="word for a boolean",
        ),
        pytest.param(
            {"spec": {"overhead": {"cpu": "1 core"}}},
            "spec.overhead.cpu: '1 core' is not a quantity: write digits with an optional suffix,"
            ' such as "500m", "2" or "1.5Gi"',
            id="quantity",
        ),
        pytest.param(
            {"metadata": {"creationTimestamp": "yesterday"}},
            'metadata.creationTimestamp: must be an RFC 3339 time such as "2026-01-01T00:00:00Z",'
            " not 'yesterday'",
            id="time",
        ),
        pytest.param(
            {"status": {"startTime": "2026-01-01T00:00:00"}},
            'status.startTime: must be an RFC 3339 time such as "2026-01-01T00:00:00Z",'
            " not '2026-01-01T00:00:00'",
            id="time without a zone",
        ),
        pytest.param({"spec": []}, "spec: must be a map, not a list", id="list for a map"),
    ],
)
def test_wrong_field_is_named_with_its_cure(obj: Any, want: str) -> None:
    assert problems("Pod", obj) == [want]


def test_null_reads_as_absent_and_unknown_status_fields_are_let_through() -> None:
    assert problems("Pod", {"spec": {"nodeSelector": None}, "status": {"phase": "x", "newThing": 1}}) == []


def test_status_fields_that_are_known_are_typed() -> None:
    want = "status.allocatable: must be a map, not '4'"
    assert problems("Node", {"status": {"allocatable": "4"}}) == [want]


def test_all_problems_are_found_not_the_first_alone() -> None:
    obj = {"spec": {"priority": "x", "containers": [{"name": 1}, {"nme": "b"}]}}
    assert len(problems("Pod", obj)) == 3
