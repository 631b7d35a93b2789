"""matchLabelKeys and mismatchLabelKeys of pod affinity terms."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.cluster.memory.admission import Admission

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"matchLabels": {"app": "web"}}
IN = {"key": "rev", "operator": "In", "values": ["2"]}
NOT_IN = {"key": "rev", "operator": "NotIn", "values": ["2"]}


def admitted(affinity: dict[str, Any]) -> Any:
    pod = {"metadata": {"labels": {"app": "web", "rev": "2"}}, "spec": {"affinity": affinity}}
    return Admission().admit("Pod", pod)[0]["spec"]["affinity"]


def term(selector: Any, **keys: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": selector, **keys}


@pytest.mark.parametrize(
    ("given", "expressions"),
    [
        (term(WEB, matchLabelKeys=["rev", "absent"]), [IN]),
        (term(WEB, mismatchLabelKeys=["rev"]), [NOT_IN]),
        (term(WEB | {"matchExpressions": [IN]}, matchLabelKeys=["rev"]), [IN]),
    ],
)
@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_keys_become_requirements(kind: str, given: dict[str, Any], expressions: list[Any]) -> None:
    preferred = [{"weight": 1, "podAffinityTerm": given}]
    found = admitted({kind: {REQUIRED: [given], PREFERRED: preferred}})[kind]
    want = WEB | {"matchExpressions": expressions}
    assert found[REQUIRED][0]["labelSelector"] == want
    assert found[PREFERRED][0]["podAffinityTerm"]["labelSelector"] == want


def test_a_term_without_selector_stays_without() -> None:
    given = term(None, matchLabelKeys=["rev"])
    assert admitted({"podAffinity": {REQUIRED: [given]}})["podAffinity"][REQUIRED] == [given]
