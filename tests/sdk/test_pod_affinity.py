"""Terms of pod affinity: equal terms are one object, pods share them, and they are read once."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.selectors import LabelSelector, Requirement
from berth_sdk.testing import make_pod, pod_object
from berth_sdk.wire.records import decode_pod, encode_pod

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}


def near(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def terms_of(pod: Pod) -> PodAffinity:
    stanza = pod.pod_affinity
    assert stanza is not None
    return stanza


def test_pods_of_a_namespace_with_equal_stanzas_share_one_pod_affinity() -> None:
    first = terms_of(make_pod("a", affinity=near(dict(TERM))))
    assert terms_of(make_pod("b", affinity=near(dict(TERM)))) is first
    elsewhere = terms_of(make_pod("a", namespace="shop", affinity=near(dict(TERM))))
    assert elsewhere is not first
    assert elsewhere.required[0].namespaces == {"shop"}


def test_equal_terms_of_any_pods_are_one_object() -> None:
    everywhere = {**TERM, "namespaceSelector": {}}
    first = terms_of(make_pod("a", affinity=near(everywhere)))
    other = terms_of(make_pod("b", namespace="shop", affinity={"podAntiAffinity": {REQUIRED: [everywhere]}}))
    assert first.required[0] is other.required_anti[0]


def test_term_without_namespaces_and_selector_applies_to_the_pods_namespace() -> None:
    def namespaces(**fields: Any) -> tuple[set[str], LabelSelector]:
        term = terms_of(make_pod("a", affinity=near({**TERM, **fields}))).required[0]
        return set(term.namespaces), term.namespace_selector

    nothing = LabelSelector(None)
    assert namespaces() == ({"default"}, nothing)
    assert namespaces(namespaces=[]) == ({"default"}, nothing)
    assert namespaces(namespaces=["shop"]) == ({"shop"}, nothing)
    assert namespaces(namespaceSelector={}) == (set(), LabelSelector())
    assert namespaces(namespaces=["shop"], namespaceSelector={}) == ({"shop"}, LabelSelector())


def test_term_matches_by_namespace_or_namespace_labels_and_by_pod_labels() -> None:
    selector = LabelSelector.equal_to({"team": "red"})
    term = PodAffinityTerm(frozenset({"shop"}), selector, LabelSelector.equal_to({"app": "db"}), "zone")
    assert term.matches("shop", {"app": "db"}, {})
    assert term.matches("home", {"app": "db"}, {"team": "red"})
    assert not term.matches("home", {"app": "db"}, {})
    assert not term.matches("shop", {"app": "web"}, {"team": "red"})


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": {}}])
def test_a_pod_without_the_stanzas_has_no_terms(affinity: Json | None) -> None:
    spec = {} if affinity is None else {"affinity": affinity}
    assert make_pod("a", spec=spec).pod_affinity is None


def test_unreadable_list_of_terms_is_empty_and_the_other_lists_count() -> None:
    broken = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"operator": "Near"}]}}
    stanza = terms_of(
        make_pod(
            "a",
            affinity={
                "podAffinity": {REQUIRED: [TERM, broken]},
                "podAntiAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 3, "podAffinityTerm": TERM}]},
            },
        )
    )
    assert stanza.required == ()
    assert stanza.errors == ('requiredAffinityTerms: "Near" is not a valid label selector operator',)
    assert stanza.broken_required
    assert stanza.required_anti == (stanza.preferred_anti[0][0],)
    assert stanza.preferred_anti[0][1] == 3


def test_reading_terms_drops_the_parsed_form_of_the_object_again() -> None:
    item = KubeObject.of(pod_object("a", affinity=near(TERM)))
    sent = encode_pod(Pod.from_object(item))
    received = KubeObject("v1", "Pod", raw=item.raw)
    pod = decode_pod(sent, item=received)
    assert terms_of(pod) is terms_of(Pod.from_object(item))
    assert not received.is_parsed
    assert decode_pod(sent).pod_affinity is None


def test_bound_pod_keeps_its_terms() -> None:
    pod = make_pod("a", affinity=near(TERM))
    assert pod.on_node("n").pod_affinity is pod.pod_affinity


def long_pod(kind: str) -> dict[str, Any]:
    """Return a pod with 1000 parts in one list."""
    few: dict[str, Any] = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    many = [{**few, "topologyKey": f"t{i}"} for i in range(1000)]
    keys = {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(1000)]}
    stanza: dict[str, Any] = {
        "terms": {REQUIRED: many},
        "weighted terms": {PREFERRED: [{"weight": 1, "podAffinityTerm": one} for one in many]},
        "a selector": {REQUIRED: [{**few, "labelSelector": keys}]},
        "a selector of namespaces": {REQUIRED: [{**few, "namespaceSelector": keys}]},
    }[kind]
    spec = {"containers": [{"name": "c"}], "affinity": {"podAntiAffinity": stanza}}
    return {"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}


@pytest.mark.parametrize("kind", ["terms", "weighted terms", "a selector", "a selector of namespaces"])
def test_long_terms_are_read_ahead_in_pieces_and_found_by_the_pod(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    init = Requirement.__init__

    def counting(self: Requirement, *args: Any) -> None:
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(Requirement, "__init__", counting)
    raw = long_pod(kind)
    work = Pod.long_parts(raw)
    assert work is not None
    most, before = 0, 0
    try:
        while True:
            next(work)
            most, before = max(most, len(made) - before), len(made)
    except StopIteration as end:
        kept = end.value
    assert len(made) >= 1000
    assert most <= 2
    pod = Pod.from_object(raw)
    assert len(made) == before  # nothing was read again
    assert pod.pod_affinity is kept[0]


@pytest.mark.parametrize("spec", [{}, {"affinity": []}, {"affinity": {"podAffinity": {REQUIRED: {}}}}, []])
def test_pods_without_long_lists_and_malformed_ones_are_not_read_ahead(spec: Any) -> None:
    assert Pod.long_parts({"metadata": {}, "spec": spec}) is None
    assert Pod.long_parts(spec) is None
