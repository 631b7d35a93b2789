"""matchLabelKeys and mismatchLabelKeys of pod affinity terms and topology spread constraints."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.model.clock import ManualClock
from berth_sim.cluster.admission import Admission
from berth_sim.cluster.server import ApiServer
from support.manifest_objects import pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"matchLabels": {"app": "web"}}
IN = {"key": "rev", "operator": "In", "values": ["2"]}
NOT_IN = {"key": "rev", "operator": "NotIn", "values": ["2"]}


def admit(spec: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    pod = {"metadata": {"labels": {"app": "web", "rev": "2"}}, "spec": spec}
    stored, problems, _ = Admission().admit("Pod", pod)
    return stored["spec"], [str(problem) for problem in problems]


def admitted(affinity: dict[str, Any]) -> Any:
    spec, problems = admit({"affinity": affinity})
    assert problems == []
    return spec["affinity"]


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


def test_keys_of_spread_constraints_become_requirements() -> None:
    given = term(WEB, matchLabelKeys=["rev", "absent"], maxSkew=1)
    spec, problems = admit({"topologySpreadConstraints": [given, term(WEB)]})
    want = given | {"labelSelector": WEB | {"matchExpressions": [IN]}}
    assert (spec["topologySpreadConstraints"], problems) == ([want, term(WEB)], [])
    assert given["labelSelector"] == WEB


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(term({"matchLabels": {"rev": "2"}}, matchLabelKeys=["x", "rev"]), id="labels"),
        pytest.param(term({"matchExpressions": [NOT_IN]}, matchLabelKeys=["x", "rev"]), id="expressions"),
        pytest.param(
            term({"matchLabels": {"rev": "2"}, "matchExpressions": [NOT_IN]}, matchLabelKeys=["x", "rev"]),
            id="both",
        ),
    ],
)
def test_a_key_that_the_selector_names_itself_is_refused(given: dict[str, Any]) -> None:
    preferred = [{"weight": 1, "podAffinityTerm": given}]
    affinity = {"podAffinity": {REQUIRED: [given]}, "podAntiAffinity": {PREFERRED: preferred}}
    _, problems = admit({"affinity": affinity, "topologySpreadConstraints": [given]})
    places = (
        f"affinity.podAffinity.{REQUIRED}[0]",
        f"affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm",
        "topologySpreadConstraints[0]",
    )
    said = "'rev' exists in both matchLabelKeys and labelSelector: remove it from one"
    assert problems == [f"spec.{place}.matchLabelKeys[1]: {said}" for place in places]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(term({"matchLabels": {"app": "web"}}, mismatchLabelKeys=["app"]), id="mismatch"),
        pytest.param(term({"matchLabels": {"colour": "red"}}, matchLabelKeys=["colour"]), id="no such label"),
    ],
)
def test_a_key_that_the_selector_may_name_itself(given: dict[str, Any]) -> None:
    assert admit({"affinity": {"podAffinity": {REQUIRED: [given]}}})[1] == []


def test_a_stored_pod_may_get_other_labels() -> None:
    server = ApiServer(ManualClock(1_800_000_000))
    given = {"podAffinity": {REQUIRED: [term(WEB, matchLabelKeys=["rev"])]}}
    metadata = {"labels": {"app": "web", "rev": "2"}}
    stored = server.create(pod_object("web", metadata=metadata, affinity=given))
    changed = server.patch("pods", stored.ref, {"metadata": {"labels": {"rev": "3"}}})
    want = term(WEB | {"matchExpressions": [IN]}, matchLabelKeys=["rev"])
    assert changed.get("spec.affinity.podAffinity")[REQUIRED] == [want]


def test_a_pod_that_was_read_from_a_cluster_can_be_stored_in_another() -> None:
    constraint = term(WEB, matchLabelKeys=["rev"], maxSkew=1, whenUnsatisfiable="DoNotSchedule")
    pod = pod_object(
        "web",
        metadata={"labels": {"app": "web", "rev": "2"}},
        affinity={"podAffinity": {REQUIRED: [term(WEB, matchLabelKeys=["rev"])]}},
        topologySpreadConstraints=[constraint],
    )
    first = ApiServer(ManualClock(1_800_000_000)).create(pod)
    again = ApiServer(ManualClock(1_800_000_000)).create(first.parsed, restore=True)
    assert again.parsed["spec"] == first.parsed["spec"]
    assert again.get("spec.topologySpreadConstraints")[0]["labelSelector"]["matchExpressions"] == [IN]


def test_a_term_without_selector_stays_without() -> None:
    given = term(None, matchLabelKeys=["rev"])
    assert admitted({"podAffinity": {REQUIRED: [given]}})["podAffinity"][REQUIRED] == [given]
