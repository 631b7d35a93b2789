"""InterPodAffinity: the pods with equal signatures, and the work of signing."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.inter_pod_affinity.plugin import InterPodAffinity
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import NoConcern
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinityTerm
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing import RecordingHandle, make_node, make_pod, make_table
from support.plain_affinity import PREFERRED, REQUIRED

Json = dict[str, Any]


def term(labels: Json, **fields: Any) -> Json:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": labels}, **fields}


def apart(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def near(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def rather_near(one: Json) -> Json:
    return {"podAffinity": {PREFERRED: [{"weight": 3, "podAffinityTerm": one}]}}


def table(*pods: Pod) -> NodeTable:
    return make_table([make_node("a", labels={"zone": "1"}), make_node("b")], pods)


class World:
    """The plugin, and the namespaces that it reads."""

    def __init__(self, **args: Any) -> None:
        self.namespaces = ObjectStore()
        handle = RecordingHandle(table, {"namespaces": self.namespaces})
        self.plugin = InterPodAffinity(args, handle)

    def namespace(self, name: str, **labels: str) -> None:
        item = KubeObject("v1", "Namespace", parsed={"metadata": {"name": name, "labels": labels}})
        self.namespaces.put(item.ref, item, self.namespaces.version)

    def sign(self, pod: Pod, nodes: NodeTable) -> Any:
        return self.plugin.sign(pod, nodes)


@pytest.fixture
def world() -> World:
    return World()


def test_a_pod_without_terms_that_no_term_selects_is_skipped(world: World) -> None:
    assert world.sign(make_pod("p"), table()) is NoConcern.CYCLE
    carrier = make_pod("x", node="a", affinity=apart(term({"app": "db"})))
    assert world.sign(make_pod("p", labels={"app": "web"}), table(carrier)) is NoConcern.CYCLE


def test_labels_that_no_term_selects_are_not_signed(world: World) -> None:
    carrier = make_pod("x", node="a", affinity=apart(term({"app": "web"})))
    nodes = table(carrier)
    first, second, other = (
        world.sign(make_pod("p", labels=labels), nodes)
        for labels in ({"app": "web", "own": "1"}, {"app": "web", "own": "2"}, {"app": "db"})
    )
    assert first == second != other


@pytest.mark.parametrize("carried", [apart, rather_near, near])
def test_matching_terms_of_other_pods_are_signed(world: World, carried: Any) -> None:
    nodes = table(make_pod("x", node="a", affinity=carried(term({"app": "web"}))))
    meant, not_meant = (world.sign(make_pod("p", labels={"app": app}), nodes) for app in ("web", "db"))
    assert not_meant is NoConcern.CYCLE
    assert meant != not_meant


def test_required_affinity_of_other_pods_is_not_signed_without_a_weight() -> None:
    world = World(hardPodAffinityWeight=0)
    nodes = table(make_pod("x", node="a", affinity=near(term({"app": "web"}))))
    assert world.sign(make_pod("p", labels={"app": "web"}), nodes) is NoConcern.CYCLE


def test_signature_has_whether_the_pod_matches_its_own_terms(world: World) -> None:
    wanted = near(term({"app": "web"}), term({"tier": "1"}))
    signed = [
        world.sign(make_pod("p", labels=labels, affinity=wanted), table())
        for labels in ({"app": "web", "tier": "1"}, {"app": "web"}, {"tier": "1"})
    ]
    assert signed[0] != signed[1] == signed[2]


def test_a_term_has_one_number_for_all_pods(world: World) -> None:
    pod = make_pod("p", labels={"app": "web"})
    carriers = [make_pod(name, node="a", affinity=apart(term({"app": "web"}))) for name in "xy"]
    assert world.sign(pod, table(carriers[0])) == world.sign(pod, table(carriers[1]))


def test_only_a_new_term_is_matched_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = make_pod("p", labels={"app": "web", "tier": "1"})
    old = [
        make_pod(f"x{i}", node="a", affinity=apart(term({"app": "web"}, topologyKey=f"{i}"))) for i in "123"
    ]
    nodes = table(*old)
    before = world.sign(pod, nodes)
    pods = nodes.pods
    new = make_pod("y", node="a", affinity=apart(term({"tier": "1"})))
    pods.set_node_pods(0, [*old, new], (), 2)
    matched = []
    matches = PodAffinityTerm.matches

    def counted(self: PodAffinityTerm, *args: Any) -> bool:
        matched.append(self)
        return matches(self, *args)

    monkeypatch.setattr(PodAffinityTerm, "matches", counted)
    after = world.sign(pod, nodes)
    stanza = new.pod_affinity
    assert stanza is not None
    assert matched == [*stanza.required_anti]
    assert after != before
    assert world.sign(pod, nodes) == after
    assert len(matched) == 1


def test_terms_of_pods_that_are_nominated_are_signed(world: World) -> None:
    waiting = make_pod("p", labels={"app": "web"}, affinity=near(term({"app": "web"})))
    nodes = table()
    before = world.sign(waiting, nodes)
    coming = make_pod("x", affinity=apart(term({"app": "web"})))
    state = CycleState("c")
    world.plugin.pre_filter(state, waiting, nodes)
    world.plugin.filter_scenarios(state, waiting, Scenarios(nodes, [Scenario("a", added=(coming,))]))
    promised = world.sign(waiting, nodes)
    assert promised != before
    # Once it is there nothing changes.
    nodes.pods.set_node_pods(0, [make_pod("x", node="a", affinity=apart(term({"app": "web"})))], (), 2)
    assert world.sign(waiting, nodes) == promised


def test_a_changed_namespace_affects_only_terms_that_select_it(world: World) -> None:
    for name in ("one", "two", "three"):
        world.namespace(name, team=name)
    stanzas = {
        team: apart(term({"app": "web"}, namespaceSelector={"matchLabels": {"team": team}}))
        for team in ("one", "two", "new")
    }
    stanzas["all"] = apart(term({"app": "web"}, namespaceSelector={}))
    stanzas["own"] = apart(term({"app": "web"}))
    pods = {name: make_pod(name, affinity=stanza) for name, stanza in stanzas.items()}
    nodes = table()

    def signed() -> dict[str, Any]:
        return {name: world.sign(pod, nodes) for name, pod in pods.items()}

    first = signed()
    world.namespace("three", team="three", more="x")
    assert signed() == first
    world.namespace("one", team="new")
    second = signed()
    assert {name for name in pods if second[name] != first[name]} == {"one", "new"}
    world.namespaces.remove("", "two", world.namespaces.version)
    third = signed()
    assert {name for name in pods if third[name] != second[name]} == {"two"}


def test_labels_of_the_pods_namespace_are_signed(world: World) -> None:
    world.namespace("default", team="x")
    carrier = make_pod(
        "c",
        namespace="far",
        node="a",
        affinity=apart(term({}, namespaceSelector={"matchLabels": {"team": "x"}})),
    )
    nodes = table(carrier)
    pod = make_pod("p")
    assert world.sign(pod, nodes) is not NoConcern.CYCLE
    world.namespace("default", team="y")
    assert world.sign(pod, nodes) is NoConcern.CYCLE
