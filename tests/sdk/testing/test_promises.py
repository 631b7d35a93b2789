"""A test finds a class whose answers follow from more than its `depends_on` names."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from berth_sdk import DependsOn, Plugin, Pod, ScoreNormalization, Status
from berth_sdk.errors import PluginAnswerError
from berth_sdk.tables import NodeTable, NodeView
from berth_sdk.testing import Attempt, PluginHost, make_node, make_pod

NO = Status.unschedulable("not this one")


class Alternates(Plugin):
    def __init__(self, args: Any, handle: Any) -> None:
        super().__init__(args, handle)
        self.calls = count()

    def filter(self, state: Any, pod: Pod, node: NodeView) -> Status:
        return NO if next(self.calls) % 2 else Status.success()


class CountsPods(Plugin):
    def filter(self, state: Any, pod: Pod, node: NodeView) -> Status:
        return NO if node.pod_count else Status.success()


class CountsNodes(Plugin):
    def filter_nodes(self, state: Any, pod: Pod, nodes: NodeTable) -> Status:
        return Status.success() if len(nodes.whole) > 1 else NO


class ScoresByPods(Plugin):
    def score(self, state: Any, pod: Pod, node: NodeView) -> int:
        return node.pod_count


def attempt(cls: type[Plugin], how: DependsOn | None, names: str = "ab") -> Attempt:
    declared: Any = type(cls.__name__, (cls,), {"depends_on": how})
    host = PluginHost(declared, nodes=[make_node(name) for name in names], pods=[make_pod("old", node="a")])
    return host.attempt(make_pod("web"))


@pytest.mark.parametrize(
    ("cls", "how", "change", "cure"),
    [
        (Alternates, DependsOn.TABLE, "when asked again about the same pod and nodes", "DependsOn.OTHER"),
        (CountsPods, DependsOn.NODE, "without the pods on the nodes", "DependsOn.ROW"),
        (CountsPods, DependsOn.NODES, "without the pods on the nodes", "DependsOn.TABLE"),
        (CountsNodes, DependsOn.NODE, "without the other nodes", "DependsOn.TABLE"),
        (CountsNodes, DependsOn.ROW, "without the other nodes", "DependsOn.TABLE"),
    ],
)
def test_filter_that_follows_from_more_than_it_declares_is_refused(
    cls: type[Plugin], how: DependsOn, change: str, cure: str
) -> None:
    with pytest.raises(PluginAnswerError) as caught:
        # An odd number of nodes: with an even one, answers that alternate come out the same again.
        attempt(cls, how, "abc").filter()
    said = str(caught.value)
    assert f"{cls.__name__}.filter answers" in said
    assert f"{change}, but the class declares depends_on {how.name}" in said
    assert f"declare {cure}, or" in said


def test_score_that_follows_from_more_than_it_declares_is_refused() -> None:
    with pytest.raises(
        PluginAnswerError, match=r"ScoresByPods.score answers 1 for node a, and 0 without the"
    ):
        attempt(ScoresByPods, DependsOn.NODE).score()


@pytest.mark.parametrize(
    ("cls", "how"),
    [
        (Alternates, DependsOn.OTHER),
        (Alternates, None),
        (CountsPods, DependsOn.ROW),
        (CountsPods, DependsOn.TABLE),
        (CountsNodes, DependsOn.NODES),
    ],
)
def test_class_that_keeps_its_promise_is_asked_as_before(cls: type[Plugin], how: DependsOn | None) -> None:
    assert attempt(cls, how).filter().keys() == {"a", "b"}
    assert attempt(cls, how).filter("b").keys() == {"b"}


@pytest.mark.parametrize("how", list(DependsOn))
def test_scores_are_those_of_the_first_answer(how: DependsOn) -> None:
    class ScoresByName(Plugin):
        normalization = ScoreNormalization.NONE

        def score(self, state: Any, pod: Pod, node: NodeView) -> int:
            return {"a": 90, "b": 0}[node.name]

    assert attempt(ScoresByName, how).score() == {"a": 90, "b": 0}
    assert attempt(ScoresByName, how).score("a") == {"a": 90}


def test_pre_score_is_asked_alone() -> None:
    class Skips(ScoresByPods):
        def pre_score(self, state: Any, pod: Pod, nodes: NodeTable) -> Status:
            return Status.skip() if len(nodes) < 2 else Status.success()

    asked = attempt(Skips, None)
    assert asked.pre_score().is_success
    assert asked.pre_score("a").code.name == "SKIP"
    assert asked.score("a") == {}
