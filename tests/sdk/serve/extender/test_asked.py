"""The points at which a plugin is called for one request, and the answers made of its results."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from berth_sdk import (
    CycleState,
    FilterResult,
    NodeMode,
    Plugin,
    Pod,
    PodSensitivity,
    PreFilterResult,
    ScoreNormalization,
    Status,
    Verdicts,
)
from berth_sdk.serve.extender.asked import Call
from berth_sdk.tables import NodeTable

from sdk.serve.extender.serving import (
    Pools,
    about_names,
    about_nodes,
    about_victims,
    extender,
    names_in,
    node,
    pod,
)


async def test_scores_are_rounded_to_the_nearest_tenth() -> None:
    raw = {"n1": 0, "n2": 4, "n3": 5, "n4": 14, "n5": 50, "n6": 94, "n7": 95, "n8": 100}
    nodes = [node(name, labels={"rank": str(rank)}) for name, rank in raw.items()]
    async with extender(Pools) as asking:
        answer = await asking.post("prioritize", about_nodes(*nodes))
    assert [(one["Host"], one["Score"]) for one in answer] == list(
        zip(raw, [0, 0, 1, 1, 5, 9, 10, 10], strict=True)
    )


class Reversed(Plugin):
    normalization = ScoreNormalization.HOST_MAX_REVERSED

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        return np.arange(len(nodes), dtype=np.int64)


class OwnNormal(Plugin):
    """Keeps in PreScore what Score and NormalizeScore read."""

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        state.write("count", len(nodes))
        return Status.skip() if pod.name == "skipped" else Status.success()

    async def score(self, state: CycleState, pod: Pod, node: Any) -> int:
        await asyncio.sleep(0)
        return int(state.read("count"))

    def normalize(self, state: CycleState, pod: Pod, scores: Any, nodes: NodeTable) -> Any:
        return scores * 10


async def test_scores_are_normalised_before_they_are_scaled() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    async with extender(Reversed) as asking:
        answer = await asking.post("prioritize", about_nodes(*nodes))
        assert [one["Score"] for one in answer] == [10, 5, 0]
    async with extender(OwnNormal) as asking:
        answer = await asking.post("prioritize", about_nodes(*nodes))
        assert [one["Score"] for one in answer] == [3, 3, 3]
        answer = await asking.post("prioritize", about_nodes(*nodes, of=pod("skipped")))
        assert [one["Score"] for one in answer] == [0, 0, 0]


class Before(Plugin):
    """PreFilter decides by the pod's name, and leaves what Filter and Score read."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        state.write("owner", pod.name)
        return {
            "skip": Status.skip(),
            "never": Status.unresolvable("never here"),
            "not-now": Status.unschedulable("not now"),
            "first": PreFilterResult(eligible=frozenset({nodes.name(0), "unknown"})),
            "early": PreFilterResult(early_filter=Verdicts.of([Status.unschedulable("early")] * len(nodes))),
            "wait": Status.pending("wait"),
        }.get(pod.name)

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        if node.name == "n9":
            return Status.unschedulable(f"not for {state.read('owner')}")
        return Status.success()

    def score(self, state: CycleState, pod: Pod, node: Any) -> int:
        return 10 * len(state.read("owner"))


@pytest.mark.parametrize(
    ("name", "passed", "failed", "unresolvable"),
    [
        ("web", ["n1", "n2"], {"n9": "not for web"}, {}),
        ("skip", ["n1", "n2", "n9"], {}, {}),
        ("not-now", [], dict.fromkeys(["n1", "n2", "n9"], "not now"), {}),
        ("never", [], {}, dict.fromkeys(["n1", "n2", "n9"], "never here")),
        ("first", ["n1"], {}, dict.fromkeys(["n2", "n9"], "node(s) didn't satisfy plugin(s) [Before]")),
        ("early", [], dict.fromkeys(["n1", "n2", "n9"], "early"), {}),
    ],
)
async def test_pre_filter_counts(
    name: str, passed: list[str], failed: dict[str, str], unresolvable: dict[str, str]
) -> None:
    async with extender(Before) as asking:
        answer = await asking.post("filter", about_nodes(node("n1"), node("n2"), node("n9"), of=pod(name)))
    assert names_in(answer) == passed
    assert answer["FailedNodes"] == failed
    assert answer["FailedAndUnresolvableNodes"] == unresolvable


async def test_pre_filter_that_cannot_be_is_the_error_of_the_answer() -> None:
    async with extender(Before) as asking:
        answer = await asking.post("filter", about_nodes(node("n1"), of=pod("wait")))
    assert answer == {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": 'running PreFilter plugin "Before": wait',
    }


async def test_each_request_has_a_state_of_its_own_that_pre_filter_filled() -> None:
    names = ["a" * length for length in range(1, 9)]
    async with extender(Before) as asking:
        for _ in range(3):
            answers = await asyncio.gather(
                *(asking.post("prioritize", about_nodes(node("n1"), of=pod(name))) for name in names)
            )
            assert [one[0]["Score"] for one in answers] == list(range(1, 9))


class Early(Plugin):
    """Scores in PreFilter or in Filter, by the pod's name, and in Score otherwise."""

    normalization = ScoreNormalization.HOST_MAX

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        raw = np.arange(len(nodes), dtype=np.int64)
        only = frozenset({"n0", "n2"})
        return {
            "pre-filter": PreFilterResult(early_scores=raw),
            "pre-filter-skips": PreFilterResult(skip_score=True),
            "narrow": PreFilterResult(eligible=only),
        }.get(pod.name)

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        feasible = Verdicts.feasible(len(nodes))
        if pod.name in ("filter", "narrow"):
            return FilterResult(feasible, np.arange(1, len(nodes) + 1, dtype=np.int64))
        return FilterResult(feasible, skip_score=pod.name == "filter-skips")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Any:
        return np.full(len(nodes), 7, dtype=np.int64)


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("web", [10, 10, 10]),
        ("pre-filter", [0, 5, 10]),
        ("filter", [3, 7, 10]),
        ("narrow", [5, 0, 10]),
        ("pre-filter-skips", [0, 0, 0]),
        ("filter-skips", [0, 0, 0]),
    ],
)
async def test_early_scores_are_used(name: str, scores: list[int]) -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    async with extender(Early) as asking:
        answer = await asking.post("prioritize", about_nodes(*nodes, of=pod(name)))
    assert [one["Score"] for one in answer] == scores


# --- preempt -----------------------------------------------------------------------------------------


async def test_preempt_keeps_nodes_that_pass_with_their_victims() -> None:
    nodes = [node("n1", labels={"pool": "spot"}), node("n2"), node("n3", labels={"pool": "gone"})]
    victims = {one["metadata"]["name"]: [pod("v", uid=f"v-{one['metadata']['name']}")] for one in nodes}
    async with extender(Pools) as asking:
        await asking.post("filter", about_nodes(*nodes))
        answer = await asking.post("preempt", about_victims(victims))
    assert answer == {"NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "v-n2"}], "NumPDBViolations": 1}}}


async def test_preempt_leaves_out_nodes_that_no_request_had() -> None:
    async with extender(Pools) as asking:
        await asking.post("filter", about_nodes(node("n1")))
        answer = await asking.post("preempt", about_victims({"n1": [], "n2": [pod("v")]}))
    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 1}}}


class Crowd(Plugin):
    """Passes a node once the victim `blocker` is gone; keeps its own count."""

    node_mode = NodeMode.NAMES
    needs = ()
    pod_sensitivity = PodSensitivity.NODE

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        state.write("gone", [])

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status:
        return Status.success() if "blocker" in state.read("gone") else Status.unschedulable("blocked")

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: Any) -> None:
        raise AssertionError("no request adds pods")

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: Any) -> None:
        state.write("gone", [*state.read("gone"), removed.uid])


@pytest.mark.parametrize("meta", [False, True])
async def test_preempt_asks_the_plugin_what_would_be_without_the_victims(meta: bool) -> None:
    victims = {"n1": [pod("a", uid="other")], "n2": [pod("a", uid="x"), pod("b", uid="blocker")]}
    async with extender(Crowd, node_cache_capable=meta) as asking:
        assert names_in(await asking.post("filter", about_names("n1", "n2"))) == []
        answer = await asking.post("preempt", about_victims(victims, meta=meta))
    assert answer == {
        "NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": "x"}, {"UID": "blocker"}], "NumPDBViolations": 1}}
    }


@pytest.mark.parametrize(
    ("name", "kept"), [("skip", ["n1", "n9"]), ("never", []), ("not-now", ["n1"]), ("first", ["n1"])]
)
async def test_pre_filter_counts_at_preempt(name: str, kept: list[str]) -> None:
    async with extender(Before) as asking:
        await asking.post("filter", about_nodes(node("n1"), node("n9")))
        answer = await asking.post("preempt", about_victims({"n1": [], "n9": []}, of=pod(name)))
    assert list(answer["NodeNameToMetaVictims"]) == kept


def test_call_that_is_cancelled_calls_back_once() -> None:
    call, told = Call(), []
    assert call.is_active()
    assert call.add_callback(lambda: told.append("first"))
    call.cancel()
    call.cancel()
    assert (call.is_active(), told) == (False, ["first"])
    assert not call.add_callback(lambda: told.append("late"))
