"""NodeAffinity: selectors and affinity at PreFilter, Filter and Score, addedAffinity, and hints."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.node_affinity import NodeAffinity
from berth_sdk.errors import ObjectError, PluginArgsError, SelectorError
from berth_sdk.events import ClusterEvent
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Code, Status
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import IN_PROCESS, NO_HANDLE, Ask, Plug

PLUG = Plug(NodeAffinity)
OK = Status.success()
REJECTED = Status.unresolvable("node(s) didn't match Pod's node affinity/selector")
ENFORCED = Status.unresolvable("node(s) didn't match scheduler-enforced node affinity")
NODES = make_table(
    [
        make_node("a", labels={"disk": "ssd", "gen": "3"}),
        make_node("b", labels={"disk": "hdd", "gen": "7"}),
        make_node("c", labels={"gen": "new"}),
    ]
)
Json = dict[str, Any]


def expr(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def term(*expressions: Json, fields: list[Json] | None = None) -> Json:
    return {"matchExpressions": list(expressions), **({"matchFields": fields} if fields else {})}


def required(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def preferred(*terms: tuple[int, Json]) -> Json:
    items = [{"weight": weight, "preference": one} for weight, one in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": items}}


def pod(affinity: Json | None = None, **fields: Any) -> Pod:
    # Through JSON, so that tuples are lists as they come from a server.
    return (
        make_pod("web", **fields) if affinity is None else make_pod("web", affinity=_json(affinity), **fields)
    )


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, (list, tuple)) else value


NAME = "metadata.name"
BROKEN = term(expr("disk", "Near", "ssd"))


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param([term(expr("disk", "In", "ssd", "nvme"))], "a", id="In"),
        pytest.param([term(expr("disk", "NotIn", "ssd"))], "bc", id="NotIn holds where the label is missing"),
        pytest.param([term(expr("disk", "Exists"))], "ab", id="Exists"),
        pytest.param([term(expr("disk", "DoesNotExist"))], "c", id="DoesNotExist"),
        pytest.param([term(expr("gen", "Gt", "3"))], "b", id="Gt is strict and skips what is no number"),
        pytest.param([term(expr("gen", "Lt", "7"))], "a", id="Lt"),
        pytest.param([term(expr("disk", "Exists"), expr("gen", "Gt", "5"))], "b", id="all expressions"),
        pytest.param([term(expr("disk", "In", "ssd")), term(expr("gen", "In", "new"))], "ac", id="any term"),
        pytest.param([], "", id="no terms"),
        pytest.param([{}], "", id="a term without conditions"),
        pytest.param([{}, term(expr("disk", "In", "hdd"))], "b", id="empty terms are left out"),
        pytest.param([BROKEN], "", id="a broken term matches nothing"),
        pytest.param([BROKEN, term(expr("disk", "In", "hdd"))], "b", id="the others still count"),
        pytest.param([{"matchFields": [expr(NAME, "In", "c")]}], "c", id="field"),
        pytest.param([{"matchFields": [expr(NAME, "NotIn", "c")]}], "ab", id="field, negated"),
        pytest.param(
            [{"matchFields": [expr("spec.x", "NotIn", "c")]}], "abc", id="an unknown field is empty"
        ),
        pytest.param([{"matchFields": [expr(NAME, "In", "a", "b")]}], "", id="a field takes one value"),
        pytest.param([term(expr("gen", "Exists"), fields=[expr(NAME, "In", "b")])], "b", id="both"),
    ],
)
async def test_required_terms_decide_by_labels_and_names(ask: Ask, terms: list[Json], want: str) -> None:
    got = await ask.filter(PLUG, pod(required(*terms)), NODES)
    assert got == [OK if name in want else REJECTED for name in "abc"]


async def test_node_selector_and_affinity_must_both_match(ask: Ask) -> None:
    affinity = required(term(expr("gen", "Exists")))
    assert await ask.filter(PLUG, pod(affinity, node_selector={"disk": "hdd"}), NODES) == [
        REJECTED,
        OK,
        REJECTED,
    ]
    assert await ask.filter(PLUG, pod(node_selector={"disk": "ssd", "gen": "3"}), NODES) == [
        OK,
        REJECTED,
        REJECTED,
    ]


async def test_pod_without_conditions_skips_and_an_empty_selector_does_not(ask: Ask) -> None:
    assert (await ask.pre_filter(PLUG, pod(), NODES)).status.code is Code.SKIP
    assert (await ask.pre_filter(PLUG, pod({"nodeAffinity": {}}), NODES)).status.code is Code.SKIP
    empty = pod(node_selector={})
    assert (await ask.pre_filter(PLUG, empty, NODES)).status.is_success
    assert await ask.filter(PLUG, empty, NODES) == [OK] * 3


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param([{"matchFields": [expr(NAME, "In", "a")]}], {"a"}, id="one"),
        pytest.param(
            [{"matchFields": [expr(NAME, "In", "a")]}, {"matchFields": [expr(NAME, "In", "z")]}],
            {"a", "z"},
            id="alternatives, whether they exist or not",
        ),
        pytest.param(
            [{"matchFields": [expr(NAME, "In", "a"), expr(NAME, "In", "a", "b")]}], {"a"}, id="intersection"
        ),
        pytest.param(
            [{"matchFields": [expr(NAME, "In", "a")]}, term(expr("disk", "Exists"))], None, id="open"
        ),
        pytest.param([{"matchFields": [expr(NAME, "NotIn", "a")]}], None, id="negated"),
        pytest.param([{"matchFields": [expr(NAME, "In", "a")]}, {}], None, id="an empty term opens it too"),
    ],
)
async def test_terms_that_all_name_their_nodes_narrow_the_search(
    ask: Ask, terms: list[Json], want: set[str] | None
) -> None:
    result = await ask.pre_filter(PLUG, pod(required(*terms)), NODES)
    assert result.status.is_success
    assert result.eligible == (None if want is None else frozenset(want))


async def test_names_that_contradict_each_other_reject_the_pod(ask: Ask) -> None:
    terms = [{"matchFields": [expr(NAME, "In", "a"), expr(NAME, "In", "b")]}]
    result = await ask.pre_filter(PLUG, pod(required(*terms)), NODES)
    assert result.status == Status.unresolvable("pod affinity terms conflict")


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param([(30, term(expr("disk", "In", "ssd")))], [30, 0, 0], id="one"),
        pytest.param(
            [(30, term(expr("disk", "Exists"))), (50, term(expr("gen", "Gt", "5")))], [30, 80, 0], id="sum"
        ),
        pytest.param(
            [(-5, term(expr("disk", "Exists"))), (9, term(expr("gen", "Exists")))], [4, 4, 9], id="negative"
        ),
        pytest.param([(0, BROKEN), (7, {})], [0, 0, 0], id="weight 0 and empty terms are not read"),
        pytest.param([(4, {"matchFields": [expr(NAME, "In", "c")]})], [0, 0, 4], id="field"),
        pytest.param([], [0, 0, 0], id="an empty list does not skip"),
    ],
)
async def test_preferred_terms_add_their_weights(
    ask: Ask, terms: list[tuple[int, Json]], want: list[int]
) -> None:
    assert await ask.score(PLUG, pod(preferred(*terms)), NODES) == want


async def test_score_skips_without_preferences_and_fails_for_broken_ones(ask: Ask) -> None:
    assert await ask.score(PLUG, pod(required(term(expr("disk", "Exists")))), NODES) == Status.skip()
    got = await ask.score(PLUG, pod(preferred((1, BROKEN), (2, term(expr("gen", "Gt", "x"))))), NODES)
    assert isinstance(got, Status)
    assert got.code is Code.ERROR
    assert 'Unsupported value: "Near"' in got.message
    assert "[1].matchExpressions[0].values" in got.message


ADDED = Plug(
    NodeAffinity,
    {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [term(expr("disk", "Exists"))]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "preference": term(expr("gen", "In", "7"))}
            ],
        }
    },
)


async def test_added_affinity_holds_for_every_pod_and_is_checked_first(ask: Ask) -> None:
    assert await ask.filter(ADDED, pod(), NODES) == [OK, OK, ENFORCED]
    assert await ask.filter(ADDED, pod(node_selector={"disk": "ssd"}), NODES) == [OK, REJECTED, ENFORCED]
    assert await ask.score(ADDED, pod(), NODES) == [0, 10, 0]
    assert await ask.score(ADDED, pod(preferred((5, term(expr("gen", "Exists"))))), NODES) == [5, 15, 5]


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        (
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [BROKEN]}},
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
            '.matchExpressions[0].operator: Unsupported value: "Near": supported values: "In", "NotIn",'
            ' "Exists", "DoesNotExist", "Gt", "Lt"',
        ),
        (
            {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": BROKEN}]},
            "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].matchExpressions[0].operator",
        ),
        ("everywhere", "addedAffinity: Invalid value"),
        ({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": "x"}}, "must be a list"),
    ],
)
def test_added_affinity_that_cannot_be_read_is_refused(added: Any, problem: str) -> None:
    with pytest.raises(PluginArgsError) as caught:
        NodeAffinity({"addedAffinity": added}, NO_HANDLE)
    assert problem in str(caught.value)


async def test_summary_without_its_object_is_an_error_not_a_pass() -> None:
    with pytest.raises(ObjectError, match=r"Need\.whole_pod"):
        await IN_PROCESS.filter(PLUG, Pod(name="web", node_selector={"disk": "ssd"}), NODES)


SSD = make_node("a", labels={"disk": "ssd"})


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, SSD, True, id="matching node added"),
        pytest.param(None, make_node("a"), False, id="other node added"),
        pytest.param(make_node("a"), SSD, True, id="began to match"),
        pytest.param(SSD, make_node("a", labels={"disk": "ssd", "x": "y"}), False, id="matched before"),
        pytest.param(SSD, make_node("a"), False, id="no longer matches"),
    ],
)
async def test_hint_for_added_and_relabelled_nodes(ask: Ask, old: Node | None, new: Node, want: bool) -> None:
    event = ClusterEvent(resource="Node", action="update.labels", old=old, new=new)
    assert await ask.hint(PLUG, event, pod(required(term(expr("disk", "In", "ssd"))))) is want


async def test_hint_checks_the_enforced_affinity_first(ask: Ask) -> None:
    event = ClusterEvent(resource="Node", action="add", new=make_node("a"))
    assert await ask.hint(ADDED, event, pod(required(BROKEN))) is False


async def test_hint_fails_when_only_broken_terms_are_left() -> None:
    affinity = pod(required(term(expr("disk", "In", "hdd")), BROKEN))
    with pytest.raises(SelectorError, match="Near"):
        await IN_PROCESS.hint(PLUG, ClusterEvent(resource="Node", action="add", new=SSD), affinity)
    hdd = ClusterEvent(resource="Node", action="add", new=make_node("b", labels={"disk": "hdd"}))
    assert await IN_PROCESS.hint(PLUG, hdd, affinity) is True
