"""One runtime calls every style of plugin: plain and async, per node and over the table."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginAnswerError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import DependsOn, NodeColumn, NodeLabel, Plugin
from berth_sdk.kept.kept_answers import MAX_SIGNATURES, RowColumns
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_fields import PodField
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
    ReserveResult,
)
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.tables import NodeColumns, NodeTable, NodeUsage
from berth_sdk.testing import make_node, make_pod, make_table
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

POD = Pod(name="web", uid="u1")
SPOT = Status.unschedulable("node is a spot node")


def columns_of(*pools: str, generation: int = 1) -> NodeColumns:
    """Nodes n0, n1, ... with a label `pool`, all at `generation`."""
    columns = NodeColumns()
    for i, pool in enumerate(pools):
        slot = columns.add(Node(name=f"n{i}", labels={"pool": pool}))
        columns.set_usage(slot, NodeUsage(requested={"cpu": 100 * i}, pod_count=i))
        columns.generation[slot] = generation
    return columns


def table(*pools: str, generation: int = 1) -> NodeTable:
    return NodeTable(columns_of(*pools, generation=generation))


NODES = table("spot", "steady", "spot")


async def result(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


def runtime(**methods: Any) -> PluginRuntime:
    cls = type("Example", (Plugin,), methods)
    return PluginRuntime(cls({}, None))


def state() -> CycleState:
    return CycleState("cycle-1", plugin="Example")


# --- Filter ----------------------------------------------------------------------------------------


def per_node(self: Any, state: CycleState, pod: Pod, node: Any) -> Status | None:
    return SPOT if node.labels["pool"] == "spot" else None


async def per_node_async(self: Any, state: CycleState, pod: Pod, node: Any) -> Status | None:
    return per_node(self, state, pod, node)


def whole_table(self: Any, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
    codes, values = nodes.label("pool")
    return Verdicts.reject_where(np.equal(codes, values.find("spot")), SPOT)


async def whole_table_async(self: Any, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
    return whole_table(self, state, pod, nodes)


@pytest.mark.parametrize(
    "methods",
    [
        pytest.param({"filter": per_node}, id="per node"),
        pytest.param({"filter": per_node_async}, id="per node, async"),
        pytest.param({"filter": per_node, "depends_on": DependsOn.ROW}, id="per node, by row"),
        pytest.param({"filter": per_node_async, "depends_on": DependsOn.ROW}, id="per node, async, by row"),
        pytest.param({"filter_nodes": whole_table}, id="table"),
        pytest.param({"filter_nodes": whole_table_async}, id="table, async"),
        pytest.param({"filter_nodes": whole_table, "filter": lambda *_: 1 / 0}, id="both: the table wins"),
    ],
)
async def test_every_style_of_filter_gives_the_same_verdicts(methods: dict[str, Any]) -> None:
    plugin = runtime(**methods)
    for _ in range(2):
        got = await result(plugin.filter(state(), POD, NODES))
        assert got.verdicts.to_list() == [SPOT, Status.success(), SPOT]


def test_a_plain_method_needs_no_event_loop() -> None:
    got = runtime(filter=per_node).filter(state(), POD, NODES)
    assert isinstance(got, FilterResult)


@pytest.mark.parametrize("answer", [None, Status.success(), SPOT])
def test_a_bare_status_holds_for_all_nodes(answer: Status | None) -> None:
    got = runtime(filter_nodes=lambda *_: answer).filter(state(), POD, NODES)
    assert isinstance(got, FilterResult)
    assert got.verdicts.to_list() == [answer or Status.success()] * 3


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        pytest.param(
            {"filter": lambda *_: True}, "Example.filter answered bool True: answer a Status", id="bool"
        ),
        pytest.param(
            {"filter_nodes": lambda *_: Verdicts.feasible(2)},
            "answered for 2 nodes and was asked about 3",
            id="wrong length",
        ),
        pytest.param({"filter_nodes": lambda *_: [SPOT] * 3}, "Verdicts or a Status", id="a list"),
        pytest.param(
            {"filter_nodes": lambda *_: FilterResult(Verdicts.feasible(3), np.zeros(3, dtype=np.int64))},
            "early scores with normalization PLUGIN",
            id="early scores that depend on the candidates",
        ),
    ],
)
def test_a_wrong_answer_to_filter_names_plugin_and_cure(methods: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginAnswerError, match=text):
        runtime(**methods).filter(state(), POD, NODES)


async def test_exception_of_the_plugin_passes_through() -> None:
    async def broken(self: Any, state: CycleState, pod: Pod, node: Any) -> Status:
        raise LookupError("no price list")

    with pytest.raises(LookupError, match="no price list"):
        await result(runtime(filter=broken).filter(state(), POD, NODES))


# --- memory of plugins by row ------------------------------------------------------------------------


def counting(**attributes: Any) -> tuple[PluginRuntime, list[str]]:
    asked: list[str] = []

    def check(self: Any, state: CycleState, pod: Pod, node: Any) -> Status | None:
        asked.append(node.name)
        return per_node(self, state, pod, node)

    return runtime(filter=check, depends_on=DependsOn.ROW, **attributes), asked


def test_a_plugin_by_row_is_asked_once_per_state_of_a_node() -> None:
    plugin, asked = counting()
    columns = columns_of("spot", "steady")
    nodes = NodeTable(columns)
    plugin.filter(state(), POD, nodes)
    plugin.filter(state(), Pod(name="sibling", uid="u2"), nodes)
    assert asked == ["n0", "n1"]
    columns.set_node(1, Node(name="n1", labels={"pool": "spot"}))
    columns.generation[1] = 2
    got = plugin.filter(state(), POD, NodeTable(columns))
    assert asked == ["n0", "n1", "n1"]
    assert isinstance(got, FilterResult)
    assert got.verdicts.to_list() == [SPOT, SPOT]


def test_pods_that_differ_are_asked_about_apart() -> None:
    plugin, asked = counting()
    nodes = table("spot")
    plugin.filter(state(), POD, nodes)
    plugin.filter(state(), Pod(name="db", labels={"app": "db"}), nodes)
    assert asked == ["n0", "n0"]


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        pytest.param((PodField.REQUESTS,), 1, id="of the spec"),
        pytest.param((PodField.LABELS,), 2, id="beside the spec"),
        pytest.param((), 1, id="none"),
        pytest.param(tuple(PodField), 2, id="all"),
        pytest.param(None, 2, id="nothing said"),
    ],
)
def test_pods_that_are_equal_in_the_fields_share_an_answer(
    fields: tuple[PodField, ...] | None, kinds: int
) -> None:
    plugin, asked = counting(sign_fields=fields)
    nodes = table("spot")
    pods = [Pod(name=app, labels={"app": app}) for app in ("web", "db")]
    for pod in pods:
        plugin.filter(state(), pod, nodes)
    assert len(asked) == kinds
    assert plugin.descriptor.signs_queue
    assert plugin.sign_queue is not None
    assert len({plugin.sign_queue(pod) for pod in pods}) == kinds


def test_a_method_says_more_than_the_fields() -> None:
    plugin, asked = counting(sign_fields=(), sign=lambda self, pod, nodes: pod.labels["app"])
    nodes = table("spot")
    for app in ("web", "db"):
        plugin.filter(state(), Pod(name=app, labels={"app": app}), nodes)
    assert asked == ["n0", "n0"]


def test_the_memory_of_a_pure_plugin_is_bounded() -> None:
    plugin, _ = counting()
    nodes = table("spot")
    for i in range(3 * MAX_SIGNATURES):
        plugin.filter(state(), Pod(name="p", priority=i), nodes)
    assert isinstance(plugin.kept.verdicts, RowColumns)
    assert len(plugin.kept.verdicts) == MAX_SIGNATURES


def test_another_table_is_asked_anew() -> None:
    plugin, asked = counting()
    for _ in range(2):
        plugin.filter(state(), POD, table("spot"))
    assert asked == ["n0", "n0"]


@pytest.mark.parametrize("style", ["plain", "async"])
def test_nodes_that_are_alike_are_asked_about_once(style: str) -> None:
    asked: list[str] = []

    def check(self: Any, state: CycleState, pod: Pod, node: Any) -> Status | None:
        asked.append(node.name)
        return per_node(self, state, pod, node)

    async def check_later(self: Any, state: CycleState, pod: Pod, node: Any) -> Status | None:
        return check(self, state, pod, node)

    def rate(self: Any, state: CycleState, pod: Pod, node: Any) -> int:
        asked.append(node.name)
        return len(node.labels["pool"])

    plugin = runtime(
        filter=check if style == "plain" else check_later,
        score=rate,
        depends_on=DependsOn.NODE,
        reads=(NodeLabel("pool"),),
    )
    columns = columns_of("spot", "steady", "spot", "steady")
    nodes = NodeTable(columns)
    found = asyncio.run(result(plugin.filter(state(), POD, nodes)))
    assert found.verdicts.to_list() == [SPOT, Status.success(), SPOT, Status.success()]
    assert asked == ["n0", "n1"]
    assert asyncio.run(result(plugin.score(state(), POD, nodes))).tolist() == [4, 6, 4, 6]
    assert asked == ["n0", "n1"] * 2
    # Answers by content hold for a row that moved, and for a node that is added.
    columns.set_node(1, Node(name="n1", labels={"pool": "spot", "more": "x"}))
    columns.add(Node(name="n4", labels={"pool": "steady"}))
    found = asyncio.run(result(plugin.filter(state(), POD, NodeTable(columns))))
    assert [one.is_success for one in found.verdicts.to_list()] == [False, False, False, True, True]
    assert asyncio.run(result(plugin.score(state(), POD, NodeTable(columns)))).tolist() == [4, 4, 4, 6, 6]
    assert asked == ["n0", "n1"] * 2
    columns.set_node(3, Node(name="n3", labels={"pool": "large"}))
    asyncio.run(result(plugin.filter(state(), POD, NodeTable(columns))))
    assert asked == [*["n0", "n1"] * 2, "n3"]


def test_many_nodes_are_asked_about_in_groups() -> None:
    asked: list[str] = []

    def check(self: Any, state: CycleState, pod: Pod, node: Any) -> Status:
        asked.append(node.name)
        return Status.unschedulable(node.labels["pool"])

    plugin = runtime(filter=check, depends_on=DependsOn.NODE, reads=(NodeLabel("pool"),))
    pools = [f"pool-{number % 3}" for number in range(300)]
    found: Any = plugin.filter(state(), POD, table(*pools))
    assert [one.message for one in found.verdicts.to_list()] == pools
    assert asked == ["n0", "n1", "n2"]


def test_what_if_has_a_row_of_its_own() -> None:
    plugin = runtime(
        filter=lambda self, state, pod, node: SPOT if node.pod_count > 1 else None,
        depends_on=DependsOn.ROW,
        reads=(NodeColumn.POD_COUNT,),
        needs=(Need.nodes(), Need.pods()),
    )
    nodes = make_table([make_node("n0"), make_node("n1")], [make_pod("a", node="n0")])
    more = [Scenario("n0", (), (Pod(name="b", uid="b"),)), Scenario("n1", (), (Pod(name="c", uid="c"),))]
    verdicts: Any = plugin.filter_scenarios(state(), POD, Scenarios(nodes, more))
    assert [one.is_success for one in verdicts.to_list()] == [False, True]


STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["spot", "steady"]), st.integers(0, 2), st.integers(1, 63)),
    max_size=25,
)


@given(STEPS, st.booleans())
def test_remembered_answers_equal_fresh_ones(steps: list[tuple[int, str, int, int]], declares: bool) -> None:
    """Nodes change while pods of a few kinds are asked about on some of the nodes."""

    def judge(self: Any, state: CycleState, pod: Pod, node: Any) -> Status | None:
        return Status.unschedulable(f"{node.labels['pool']} {pod.priority}") if node.index % 2 else None

    def rate(self: Any, state: CycleState, pod: Pod, node: Any) -> int:
        return len(node.labels["pool"]) * (pod.priority + 1)

    # The answers go by the slot, and so by the name.
    reads = (NodeColumn.NAME, NodeLabel("pool")) if declares else None
    pure = runtime(filter=judge, score=rate, depends_on=DependsOn.ROW, reads=reads)
    plain = runtime(filter=judge, score=rate)
    columns = columns_of("spot", "steady", "spot", "steady", "spot", "steady")
    for generation, (slot, pool, priority, mask) in enumerate(steps, start=2):
        columns.set_node(slot, Node(name=f"n{slot}", labels={"pool": pool}))
        columns.generation[slot] = generation
        pod = Pod(name="p", priority=priority)
        nodes = NodeTable(columns).take([row for row in range(6) if mask >> row & 1])
        got, want = pure.filter(state(), pod, nodes), plain.filter(state(), pod, nodes)
        assert isinstance(got, FilterResult)
        assert isinstance(want, FilterResult)
        assert got.verdicts.to_list() == want.verdicts.to_list()
        scores: Any = pure.score(state(), pod, nodes)
        fresh: Any = plain.score(state(), pod, nodes)
        assert scores.tolist() == fresh.tolist()


# --- scores ----------------------------------------------------------------------------------------


def rank(self: Any, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
    return nodes.pod_count * 10 + 1


@pytest.mark.parametrize(
    "methods",
    [
        pytest.param({"score": lambda self, state, pod, node: node.pod_count * 10 + 1}, id="per node"),
        pytest.param(
            {"score": lambda self, s, p, node: node.pod_count * 10 + 1, "depends_on": DependsOn.ROW},
            id="by row",
        ),
        pytest.param({"score_nodes": rank}, id="table"),
        pytest.param({"score_nodes": lambda self, s, p, nodes: [1, 11, 21]}, id="a plain list"),
    ],
)
async def test_every_style_of_score_gives_the_same_scores(methods: dict[str, Any]) -> None:
    got = await result(runtime(**methods).score(state(), POD, NODES))
    assert got.dtype == np.int64
    assert got.tolist() == [1, 11, 21]


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        pytest.param({"score": lambda *_: 0.5}, "an integer", id="fraction"),
        pytest.param({"score": lambda *_: True}, "an integer", id="bool"),
        pytest.param({"score_nodes": lambda *_: np.full(3, 0.5)}, "array of float64", id="fractions"),
        pytest.param(
            {"score_nodes": lambda *_: np.zeros((3, 1), dtype=np.int64)}, "2 dimensions", id="matrix"
        ),
        pytest.param(
            {"score_nodes": lambda *_: np.zeros(2, dtype=np.int64)}, "answered for 2 nodes", id="length"
        ),
        pytest.param({"score_nodes": lambda *_: None}, "an array of 3 integers", id="nothing"),
    ],
)
def test_a_wrong_score_names_plugin_and_cure(methods: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginAnswerError, match=text):
        runtime(**methods).score(state(), POD, NODES)


async def test_normalize_may_write_to_its_scores() -> None:
    def halve(
        self: Any, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        scores //= 2
        return scores

    raw = np.asarray([2, 4, 6], dtype=np.int64)
    raw.flags.writeable = False
    got = await result(runtime(score_nodes=rank, normalize=halve).normalize(state(), POD, raw, NODES))
    assert got.tolist() == [1, 2, 3]


# --- what if ---------------------------------------------------------------------------------------


def test_a_table_plugin_answers_scenarios_from_the_changed_usage() -> None:
    def roomy(self: Any, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.pod_count > 1, SPOT)

    scenarios = Scenarios(
        NODES, [Scenario("n2", removed=(POD,)), Scenario("n1", added=(POD,)), Scenario("n0")]
    )
    got = runtime(filter_nodes=roomy).filter_scenarios(state(), POD, scenarios)
    assert isinstance(got, Verdicts)
    assert got.to_list() == [Status.success(), SPOT, Status.success()]


class Counted:
    """A number of pods that a what-if may change without being noticed."""

    def __init__(self, count: int) -> None:
        self.count = count

    def clone(self) -> Counted:
        return Counted(self.count)


def counting_pods(filter_style: dict[str, Any]) -> PluginRuntime:
    def change(sign: int) -> Any:
        def changed(self: Any, state: CycleState, pod: Pod, other: Pod, node: Any) -> None:
            state.read("count").count += sign

        return changed

    return runtime(add_pod=change(1), remove_pod=change(-1), **filter_style)


@pytest.mark.parametrize(
    "style",
    [
        pytest.param(
            {"filter": lambda self, s, p, n: SPOT if s.read("count").count > 1 else None}, id="per node"
        ),
        pytest.param(
            {"filter_nodes": lambda self, s, p, nodes: SPOT if s.read("count").count > 1 else None},
            id="table",
        ),
    ],
)
def test_a_plugin_that_counts_pods_sees_each_scenario_alone(style: dict[str, Any]) -> None:
    cycle = state()
    cycle.write("count", Counted(1))
    scenarios = Scenarios(
        NODES, [Scenario("n0", added=(POD,)), Scenario("n0"), Scenario("n1", removed=(POD,))]
    )
    got = counting_pods(style).filter_scenarios(cycle, POD, scenarios)
    assert isinstance(got, Verdicts)
    assert got.to_list() == [SPOT, Status.success(), Status.success()]
    assert cycle.read("count").count == 1


def test_a_failed_add_pod_is_an_error_of_that_scenario() -> None:
    def refuse(self: Any, *args: Any) -> Status:
        return Status.error("lost count")

    plugin = runtime(filter=per_node, add_pod=refuse, remove_pod=refuse)
    got = plugin.filter_scenarios(
        state(), POD, Scenarios(NODES, [Scenario("n1", added=(POD,)), Scenario("n1")])
    )
    assert isinstance(got, Verdicts)
    assert got.status(0) == Status.error("running AddPod on PreFilter plugin: lost count")
    assert got.status(1).is_success


def test_a_plugin_with_its_own_answer_to_scenarios_is_asked_that() -> None:
    def own(self: Any, state: CycleState, pod: Pod, scenarios: Scenarios) -> Verdicts:
        return Verdicts.of([Status.pending(item.node_name) for item in scenarios.items])

    plugin = runtime(filter=per_node, filter_scenarios=own)
    got = plugin.filter_scenarios(state(), POD, Scenarios(NODES, [Scenario("n2")]))
    assert isinstance(got, Verdicts)
    assert got.to_list() == [Status.pending("n2")]


# --- the readings of the other points --------------------------------------------------------------

HERE = (CycleState("c"), POD, "n1")
REJECTIONS = (CycleState("c"), POD, NodeRejections())
QUEUED = (QueuedPod(pod=POD),)
OVER = (CycleState("c"), POD, NODES)


@pytest.mark.parametrize(
    ("method", "args", "answer", "want"),
    [
        ("pre_enqueue", QUEUED, None, Status.success()),
        ("pre_enqueue", QUEUED, SPOT, SPOT),
        ("sort_key", QUEUED, b"k", b"k"),
        ("pre_filter", OVER, None, PreFilterResult()),
        ("pre_filter", OVER, Status.skip(), PreFilterResult(Status.skip())),
        (
            "pre_filter",
            OVER,
            PreFilterResult(eligible=frozenset(["n1"])),
            PreFilterResult(eligible=frozenset(["n1"])),
        ),
        ("post_filter", REJECTIONS, None, PostFilterResult(Status.unschedulable())),
        ("post_filter", REJECTIONS, Status.unresolvable("no"), PostFilterResult(Status.unresolvable("no"))),
        ("pre_score", OVER, None, Status.success()),
        ("reserve", HERE, None, None),
        ("reserve", HERE, SPOT, ReserveResult(SPOT)),
        ("unreserve", HERE, "ignored", None),
        ("permit", HERE, None, None),
        ("permit", HERE, SPOT, PermitResult(SPOT)),
        ("permit", HERE, PermitResult.wait(3), PermitResult(Status(Code.WAIT), 3)),
        ("pre_bind_pre_flight", HERE, None, PreFlightResult(Status.success())),
        ("pre_bind_pre_flight", HERE, Status.skip(), PreFlightResult(Status.skip())),
        ("pre_bind", HERE, None, None),
        ("pre_bind", HERE, Status.success(), PreBindResult(Status.success())),
        ("bind", HERE, None, None),
        ("bind", HERE, Status.skip(), BindResult(Status.skip())),
        ("bind", HERE, BindResult(Status.success(), host_binds=True), BindResult(Status.success(), True)),
        ("post_bind", HERE, None, None),
    ],
)
@pytest.mark.parametrize("style", ["plain", "async"])
async def test_answers_are_read_as_promised(
    method: str, args: Sequence[Any], answer: Any, want: Any, style: str
) -> None:
    async def wait(self: Any, *args: Any) -> Any:
        return answer

    def plain(self: Any, *args: Any) -> Any:
        return answer

    partners = {"unreserve": {"reserve": plain}, "pre_bind_pre_flight": {"pre_bind": plain}}.get(method, {})
    plugin = runtime(**{method: plain if style == "plain" else wait}, **partners)
    assert await result(getattr(plugin, method)(*args)) == want


@pytest.mark.parametrize(
    ("method", "args", "answer", "text"),
    [
        ("reserve", HERE, True, "Example.reserve answered bool True: answer a Status"),
        ("permit", HERE, 3, "a Status or a PermitResult"),
        ("pre_bind", HERE, BindResult(SPOT), "a Status or a PreBindResult"),
        ("sort_key", QUEUED, "text", "bytes"),
        ("sort_key", QUEUED, bytes(257), "257 bytes, 256 is the limit"),
        ("pre_filter", OVER, PreFilterResult(early_filter=Verdicts.feasible(1)), "answered for 1 nodes"),
    ],
)
def test_a_wrong_answer_names_plugin_method_and_cure(
    method: str, args: Sequence[Any], answer: Any, text: str
) -> None:
    with pytest.raises(PluginAnswerError, match=text):
        getattr(runtime(**{method: lambda *_: answer}), method)(*args)


def test_unset_fields_of_a_plugin_have_a_reading() -> None:
    plugin = runtime(filter=per_node, reserve=lambda *_: Status.success(), pre_bind=lambda *_: None)
    assert plugin.pre_enqueue(QueuedPod(pod=POD)) == Status.success()
    assert plugin.sort_key(QueuedPod(pod=POD)) == b""
    assert plugin.queueing_hint(ClusterEvent(resource="Node", action="add"), POD) is True
    assert plugin.pre_score(*OVER) == Status.success()
    assert plugin.pre_bind_pre_flight(*HERE) == PreFlightResult(Status.success())
    assert plugin.unreserve(*HERE) is None


def test_a_point_that_the_plugin_does_not_have_is_an_error() -> None:
    with pytest.raises(PluginAnswerError, match="has no method `permit`"):
        runtime(filter=per_node).permit(*HERE)


def test_less_answers_in_process() -> None:
    plugin = runtime(less=lambda self, first, second: first.pod.name < second.pod.name)
    assert plugin.less(QueuedPod(pod=Pod(name="a")), QueuedPod(pod=Pod(name="b"))) is True
