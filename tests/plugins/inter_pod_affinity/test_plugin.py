"""InterPodAffinity: the cases that have names, bad input, arguments and hints. Laws: `..._rules.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from berth_plugins.inter_pod_affinity.plugin import InterPodAffinity
from berth_sdk.errors import PluginArgsError, SelectorError
from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import IN_PROCESS, NO_HANDLE, Ask, Plug
from support.plain_affinity import PREFERRED, REQUIRED

Json = dict[str, Any]
PLUG = Plug(InterPodAffinity)
OK = Status.success()
NOT_NEAR = Status.unresolvable("node(s) didn't match pod affinity rules")
TOO_NEAR = Status.unschedulable("node(s) didn't match pod anti-affinity rules")
UNWANTED = Status.unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
WEB, DB = {"app": "web"}, {"app": "db"}


def term(labels: Json, key: str = "zone", **fields: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **fields}


def near(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def rather(stanza: str, *weighted: tuple[int, Json]) -> Json:
    return {stanza: {PREFERRED: [{"weight": weight, "podAffinityTerm": one} for weight, one in weighted]}}


def namespaces(**labels: Json) -> dict[str, list[Json]]:
    kind = {"apiVersion": "v1", "kind": "Namespace"}
    return {
        "namespaces": [
            {**kind, "metadata": {"name": name, "labels": chosen}} for name, chosen in labels.items()
        ]
    }


def table(*pods: Pod) -> NodeTable:
    """Nodes a and b in zone 1, c in zone 2, d in none."""
    zones = {"a": "1", "b": "1", "c": "2"}
    return make_table(
        [make_node(name, labels={"zone": zones[name]} if name in zones else {}) for name in "abcd"], pods
    )


# --- Filter ------------------------------------------------------------------------------------------


async def test_required_affinity_needs_a_matching_pod_in_the_domain(ask: Ask) -> None:
    nodes = table(make_pod("db", labels=DB, node="a"))
    got = await ask.filter(PLUG, make_pod("web", affinity=near(term(DB))), nodes)
    assert got == [OK, OK, NOT_NEAR, NOT_NEAR]


async def test_one_pod_must_match_all_required_terms(ask: Ask) -> None:
    both = make_pod("web", affinity=near(term(DB), term({"tier": "1"})))
    halves = [make_pod("x", labels=DB, node="a"), make_pod("y", labels={"tier": "1"}, node="a")]
    assert await ask.filter(PLUG, both, table(*halves)) == [NOT_NEAR] * 4
    whole = make_pod("z", labels={**DB, "tier": "1"}, node="c")
    assert await ask.filter(PLUG, both, table(*halves, whole)) == [NOT_NEAR, NOT_NEAR, OK, NOT_NEAR]


async def test_first_pod_of_a_group_may_run_where_the_label_exists(ask: Ask) -> None:
    first = make_pod("web", labels=WEB, affinity=near(term(WEB)))
    assert await ask.filter(PLUG, first, table()) == [OK, OK, OK, NOT_NEAR]
    # It is no longer the first if there is one, wherever that is.
    other = make_pod("web-1", labels=WEB, node="c")
    assert await ask.filter(PLUG, first, table(other)) == [NOT_NEAR, NOT_NEAR, OK, NOT_NEAR]
    # One on a node without the label is in no domain.
    lost = make_pod("web-2", labels=WEB, node="d")
    assert await ask.filter(PLUG, first, table(lost)) == [OK, OK, OK, NOT_NEAR]
    stranger = make_pod("web", affinity=near(term(WEB)))
    assert await ask.filter(PLUG, stranger, table()) == [NOT_NEAR] * 4


async def test_anti_affinity_works_in_both_directions(ask: Ask) -> None:
    nodes = table(make_pod("db", labels=DB, node="a"))
    shy = make_pod("web", affinity=apart(term(DB), term(DB, "kubernetes.io/hostname")))
    assert await ask.filter(PLUG, shy, nodes) == [TOO_NEAR, TOO_NEAR, OK, OK]
    guarded = table(make_pod("db", affinity=apart(term(WEB)), node="c"))
    assert await ask.filter(PLUG, make_pod("web", labels=WEB), guarded) == [OK, OK, UNWANTED, OK]


async def test_the_first_reason_in_order_is_given(ask: Ask) -> None:
    holder = make_pod("db", labels=DB, affinity=apart(term(WEB)), node="a")
    both = make_pod("web", labels=WEB, affinity={**near(term({"app": "cache"})), **apart(term(DB))})
    assert await ask.filter(PLUG, both, table(holder)) == [NOT_NEAR] * 4
    shy = make_pod("web", labels=WEB, affinity=apart(term(DB)))
    assert await ask.filter(PLUG, shy, table(holder)) == [TOO_NEAR, TOO_NEAR, OK, OK]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        pytest.param({}, False, id="the pod's own namespace"),
        pytest.param({"namespaces": ["shop"]}, True, id="listed"),
        pytest.param({"namespaces": ["gone"]}, False, id="listed, another"),
        pytest.param({"namespaceSelector": {}}, True, id="every namespace"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "red"}}}, True, id="selected"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, False, id="others selected"),
        pytest.param(
            {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]
                }
            },
            False,
            id="a selector that no labels satisfy selects by the namespace's labels",
        ),
    ],
)
async def test_namespaces_of_the_pods_own_terms(ask: Ask, fields: Json, found: bool) -> None:
    plug = Plug(InterPodAffinity, None, namespaces(shop={"team": "red"}, home={"team": "blue"}))
    nodes = table(make_pod("db", namespace="shop", labels=DB, node="a"))
    shy = make_pod("web", namespace="home", affinity=apart(term(DB, **fields)))
    assert await ask.filter(plug, shy, nodes) == ([TOO_NEAR, TOO_NEAR, OK, OK] if found else [OK] * 4)


@pytest.mark.parametrize(
    ("team", "rejected"),
    [pytest.param("red", False, id="not this one"), pytest.param("blue", True, id="selected")],
)
async def test_namespaces_of_other_pods_terms_are_matched_by_labels(
    ask: Ask, team: str, rejected: bool
) -> None:
    selector = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
    holder = make_pod("db", affinity=apart(term(WEB, namespaceSelector=selector)), node="c")
    plug = Plug(InterPodAffinity, None, namespaces(shop={"team": team}))
    got = await ask.filter(plug, make_pod("web", namespace="shop", labels=WEB), table(holder))
    assert got == [OK, OK, UNWANTED if rejected else OK, OK]


async def test_pod_without_affected_terms_is_skipped(ask: Ask) -> None:
    holder = make_pod("db", affinity={**apart(term(WEB, "unknown")), **near(term(DB))}, node="c")
    got = await ask.pre_filter(PLUG, make_pod("web", labels=WEB), table(holder))
    assert got.status.code is Code.SKIP


@pytest.mark.parametrize(
    ("affinity", "text"),
    [
        pytest.param(
            near({"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"operator": "Near"}]}}),
            'parsing pod: requiredAffinityTerms: "Near" is not a valid label selector operator',
            id="operator",
        ),
        pytest.param(
            {
                **apart(term(WEB, namespaceSelector={"matchExpressions": [{"operator": "Gt"}]})),
                **rather("podAffinity", (1, {"labelSelector": {"matchExpressions": [{}]}})),
            },
            'parsing pod: [requiredAntiAffinityTerms: "Gt" is not a valid label selector operator,'
            ' preferredAffinityTerms: "" is not a valid label selector operator]',
            id="two lists",
        ),
        pytest.param(
            {"podAffinity": []},
            "parsing pod: [requiredAffinityTerms: must be a map, not list,"
            " preferredAffinityTerms: must be a map, not list]",
            id="a list",
        ),
        pytest.param(["web"], "parsing pod: affinity: must be a map, not list", id="no map at all"),
        pytest.param(
            rather("podAntiAffinity", (2**40, term(WEB))),
            f"parsing pod: preferredAntiAffinityTerms: weight: must be a 32-bit integer, not {2**40}",
            id="weight",
        ),
        pytest.param(
            near({"topologyKey": "zone", "namespaces": "shop"}),
            "parsing pod: requiredAffinityTerms: namespaces: must be a list, not str",
            id="namespaces",
        ),
    ],
)
async def test_unreadable_terms_are_named_in_the_rejection(ask: Ask, affinity: Any, text: str) -> None:
    pod = make_pod("web", spec={"affinity": affinity})
    assert await ask.filter(PLUG, pod, table()) == [Status.unresolvable(text)] * 4
    # On a node it goes without those terms, and keeps no pod away.
    running = make_pod("old", spec={"affinity": affinity}, node="a")
    assert await ask.filter(PLUG, make_pod("web", labels=WEB), table(running)) == [OK] * 4


# --- what if -----------------------------------------------------------------------------------------


async def test_what_if_removes_the_excluding_pods(ask: Ask) -> None:
    db, holder = make_pod("db", labels=DB, node="a"), make_pod("h", affinity=apart(term(WEB)), node="c")
    shy = make_pod("web", labels=WEB, affinity=apart(term(DB)))
    nodes = table(db, holder)
    asked = [Scenario("a", removed=(db,)), Scenario("b"), Scenario("c", removed=(holder,)), Scenario("c")]
    assert await ask.scenarios(PLUG, shy, Scenarios(nodes, asked)) == [OK, TOO_NEAR, OK, UNWANTED]


async def test_what_if_makes_the_pod_the_first_of_its_group_or_not(ask: Ask) -> None:
    member = make_pod("web", labels=WEB, affinity=near(term(WEB)))
    only = make_pod("web-1", labels=WEB, node="a")
    asked = [Scenario("a", removed=(only,)), Scenario("a"), Scenario("c", added=(only,)), Scenario("c")]
    assert await ask.scenarios(PLUG, member, Scenarios(table(only), asked)) == [OK, OK, OK, NOT_NEAR]
    # On a node without the label it is in no domain, and changes nothing.
    lost = make_pod("web-2", labels=WEB, node="d")
    asked = [Scenario("d", removed=(lost,)), Scenario("c"), Scenario("a", added=(only,))]
    assert await ask.scenarios(PLUG, member, Scenarios(table(lost), asked)) == [NOT_NEAR, OK, OK]


async def test_what_if_adds_pods(ask: Ask) -> None:
    db, holder = make_pod("db", labels=DB), make_pod("h", affinity=apart(term(WEB, "kubernetes.io/hostname")))
    picky = make_pod("web", labels=WEB, affinity=near(term(DB)))
    asked = [Scenario("a", added=(db,)), Scenario("c", added=(db, holder)), Scenario("d", added=(db,))]
    assert await ask.scenarios(PLUG, picky, Scenarios(table(), asked)) == [OK, UNWANTED, NOT_NEAR]


# --- Score -------------------------------------------------------------------------------------------


async def test_scores_add_up_own_and_other_pods_preferences(ask: Ask) -> None:
    nodes = table(
        make_pod("db", labels=DB, affinity=rather("podAntiAffinity", (7, term(WEB))), node="a"),
        make_pod("fan", affinity=near(term(WEB, "kubernetes.io/hostname")), node="c"),
    )
    web = make_pod("web", labels=WEB, affinity=rather("podAffinity", (10, term(DB)), (100, term(WEB))))
    assert await ask.score(PLUG, web, nodes) == [3, 3, 1, 0]
    heavy = Plug(InterPodAffinity, {"hardPodAffinityWeight": 5})
    assert await ask.score(heavy, web, nodes) == [3, 3, 5, 0]


async def test_score_is_skipped_without_terms_but_not_when_terms_add_up_to_0(ask: Ask) -> None:
    weightless = Plug(InterPodAffinity, {"hardPodAffinityWeight": 0})
    fan = make_pod("fan", affinity=near(term(WEB)), node="c")
    web = make_pod("web", labels=WEB)
    assert await ask.score(weightless, web, table(fan)) == Status.skip()
    undecided = {
        **rather("podAffinity", (5, term(WEB))),
        **rather("podAntiAffinity", (5, term(WEB))),
    }
    torn = make_pod("torn", affinity=undecided, node="c")
    assert await ask.score(weightless, web, table(torn)) == [0, 0, 0, 0]
    lost = make_pod("torn", affinity=undecided, node="d")
    assert await ask.score(weightless, web, table(lost)) == Status.skip()


async def test_preferences_of_others_can_be_ignored(ask: Ask) -> None:
    plug = Plug(InterPodAffinity, {"ignorePreferredTermsOfExistingPods": True})
    nodes = table(make_pod("fan", affinity=rather("podAffinity", (5, term(WEB))), node="c"))
    assert await ask.score(plug, make_pod("web", labels=WEB), nodes) == Status.skip()
    # A pod that prefers anything itself hears them all the same.
    picky = make_pod("web", labels=WEB, affinity=rather("podAffinity", (1, term(DB))))
    assert await ask.score(plug, picky, nodes) == [0, 0, 5, 0]


@pytest.mark.parametrize("weight", [-1, 101])
def test_weight_out_of_range_is_refused(weight: int) -> None:
    text = rf"hardPodAffinityWeight: Invalid value: {weight}: not in valid range \[0, 100\]"
    with pytest.raises(PluginArgsError, match=text):
        InterPodAffinity({"hardPodAffinityWeight": weight}, NO_HANDLE)


# --- hints -------------------------------------------------------------------------------------------

NEAR_DB = make_pod("web", uid="web", labels=WEB, affinity=near(term(DB), term({"tier": "1"}, "rack")))
APART = make_pod("web", uid="web", labels=WEB, affinity=apart(term(DB), term({"tier": "1"}, "rack")))
PLAIN = make_pod("web", uid="web", labels=WEB)
BOTH = {**DB, "tier": "1"}


def on_node(labels: Json, **fields: Any) -> Pod:
    return make_pod("other", labels=labels, **{"node": "a", **fields})


def added(pod: Pod) -> ClusterEvent:
    return ClusterEvent(resource="Pod", action="add", new=pod)


def deleted(pod: Pod) -> ClusterEvent:
    return ClusterEvent(resource="Pod", action="delete", old=pod)


def relabelled(before: Json, after: Json, **fields: Any) -> ClusterEvent:
    old, new = on_node(before, **fields), on_node(after, **fields)
    return ClusterEvent(resource="Pod", action="update.labels", old=old, new=new)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pod", "event", "want"),
    [
        pytest.param(NEAR_DB, added(on_node(BOTH)), True, id="company comes"),
        pytest.param(NEAR_DB, added(on_node(DB)), False, id="half of it comes"),
        pytest.param(NEAR_DB, added(on_node(BOTH, node="")), False, id="company that is nowhere yet"),
        pytest.param(
            NEAR_DB, added(on_node(BOTH, node="", nominated="a")), True, id="company that is nominated"
        ),
        pytest.param(NEAR_DB, relabelled(DB, BOTH), True, id="becomes company"),
        pytest.param(NEAR_DB, relabelled(BOTH, {**BOTH, "x": "y"}), False, id="stays company"),
        pytest.param(NEAR_DB, deleted(on_node(BOTH)), False, id="company leaves"),
        pytest.param(APART, deleted(on_node(BOTH)), True, id="the one in the way leaves"),
        pytest.param(APART, deleted(on_node(DB)), True, id="one in the way of one term leaves"),
        pytest.param(APART, relabelled(BOTH, DB), True, id="no longer in the way of all"),
        pytest.param(APART, relabelled(DB, {}), True, id="was in the way of one term"),
        pytest.param(APART, added(on_node(BOTH)), False, id="another in the way"),
        pytest.param(
            PLAIN, deleted(on_node({}, affinity=apart(term(WEB)))), True, id="who kept it away leaves"
        ),
        pytest.param(
            PLAIN, deleted(on_node({}, affinity=apart(term(DB)))), False, id="who kept others away leaves"
        ),
        pytest.param(
            PLAIN,
            deleted(on_node({}, namespace="x", affinity=apart(term(WEB, namespaceSelector={})))),
            True,
            id="every namespace",
        ),
        pytest.param(PLAIN, added(on_node(BOTH)), False, id="without terms nobody helps by coming"),
        pytest.param(
            PLAIN,
            ClusterEvent(resource="Pod", action="update.labels", old=PLAIN, new=make_pod("web", uid="web")),
            True,
            id="its own labels changed",
        ),
    ],
)
async def test_hint_for_events_of_pods(ask: Ask, pod: Pod, event: ClusterEvent, want: bool) -> None:
    assert await ask.hint(PLUG, event, pod) is want


def moved(before: Json | None, after: Json) -> ClusterEvent:
    old = None if before is None else make_node("a", labels=before)
    action = "add" if old is None else "update.labels"
    return ClusterEvent(resource="Node", action=action, old=old, new=make_node("a", labels=after))


@pytest.mark.parametrize(
    ("pod", "event", "want"),
    [
        pytest.param(NEAR_DB, moved(None, {"rack": "1"}), True, id="new, with a key"),
        pytest.param(NEAR_DB, moved(None, {"x": "1"}), False, id="new, without"),
        pytest.param(NEAR_DB, moved({}, {"zone": "1"}), True, id="key appears"),
        pytest.param(NEAR_DB, moved({"zone": "1"}, {"zone": "2"}), True, id="value changes"),
        pytest.param(NEAR_DB, moved({"zone": "1"}, {}), False, id="key goes"),
        pytest.param(NEAR_DB, moved({"zone": "1"}, {"zone": "1", "x": "y"}), False, id="another label"),
        pytest.param(APART, moved(None, {}), True, id="anti-affinity: new"),
        pytest.param(APART, moved({"zone": "1"}, {}), True, id="anti-affinity: key goes"),
        pytest.param(APART, moved({"zone": "1"}, {"zone": "2"}), True, id="anti-affinity: value changes"),
        pytest.param(APART, moved({}, {"zone": "1"}), False, id="anti-affinity: key appears"),
        pytest.param(
            PLAIN, moved(None, {"zone": "1"}), True, id="without terms: kept away by those of others"
        ),
    ],
)
async def test_hint_for_events_of_nodes(ask: Ask, pod: Pod, event: ClusterEvent, want: bool) -> None:
    assert await ask.hint(PLUG, event, pod) is want


@pytest.mark.parametrize(
    ("pod", "event"),
    [
        pytest.param(APART, deleted(on_node(DB)), id="one in the way of one term leaves"),
        pytest.param(APART, relabelled(DB, {}), id="was in the way of one term"),
        pytest.param(PLAIN, moved(None, {"zone": "1"}), id="a new node beside one that others hold"),
    ],
)
async def test_emulating_1_36_keeps_its_hints(ask: Ask, pod: Pod, event: ClusterEvent) -> None:
    off = ("ExactQueueingHints", "AnyAntiAffinityTermHints")
    emulating = Plug(InterPodAffinity, args={"featureGates": dict.fromkeys(off, False)})
    assert not await ask.hint(emulating, event, pod)


@pytest.mark.parametrize(
    ("pod", "event", "want"),
    [
        pytest.param(APART, deleted(on_node(DB)), True, id="one in the way of one term leaves"),
        pytest.param(APART, relabelled(DB, {}), True, id="was in the way of one term"),
        pytest.param(APART, relabelled({}, DB), False, id="comes in the way of one term"),
        pytest.param(PLAIN, moved(None, {"zone": "1"}), False, id="a new node beside one that others hold"),
    ],
)
async def test_emulating_1_37_has_the_hints_of_any_term(
    ask: Ask, pod: Pod, event: ClusterEvent, want: bool
) -> None:
    emulating = Plug(InterPodAffinity, args={"featureGates": {"ExactQueueingHints": False}})
    assert await ask.hint(emulating, event, pod) is want


@pytest.mark.parametrize(
    ("off", "want"),
    [
        pytest.param((), True, id="1.38: a namespace that is not known"),
        pytest.param(("NamespaceLabelsInHints",), False, id="1.37: no labels"),
    ],
)
async def test_emulated_hints_read_the_labels_of_namespaces_since_1_38(
    ask: Ask, off: Sequence[str], want: bool
) -> None:
    gates = dict.fromkeys(("ExactQueueingHints", *off), False)
    emulating = Plug(InterPodAffinity, args={"featureGates": gates})
    by_team = term(DB, namespaceSelector={"matchLabels": {"team": "a"}})
    waiting = make_pod("web", uid="web", affinity=near(by_team))
    assert await ask.hint(emulating, added(on_node(DB, namespace="x")), waiting) is want
    assert not await ask.hint(emulating, added(on_node(WEB, namespace="x")), waiting)


async def test_unreadable_required_terms_make_the_hint_raise() -> None:
    broken = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"operator": "Near"}]}}
    waiting = make_pod("web", uid="web", affinity=near(broken))
    for event in (added(on_node(DB)), moved(None, {})):
        with pytest.raises(SelectorError, match="Near"):
            await IN_PROCESS.hint(PLUG, event, waiting)
    # Terms of a pod that runs keep no pod away while they cannot be read.
    assert not await IN_PROCESS.hint(PLUG, deleted(on_node({}, affinity=apart(broken))), PLAIN)
    # Preferred terms keep no pod away, so they do not count here.
    indifferent = make_pod("web", uid="web", affinity=rather("podAffinity", (1, broken)))
    assert not await IN_PROCESS.hint(PLUG, added(on_node(DB)), indifferent)
