"""The evaluator over columns against the rules told pod by pod."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from unittest import mock

import pytest
from berth_host.app.alone import FrameworkAlone
from berth_host.config.emulation import emulation_of
from berth_host.config.loading import load_configuration
from berth_host.cycle.chooser import SmallestName
from berth_host.framework.framework import Framework, all_rows
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NominatedPods
from berth_host.plugins.registry import ClassRegistry
from berth_host.preemption.eligibility import NEVER, TERMINATING, UNDER_WAY
from berth_host.preemption.evaluator import Evaluation, Evaluator, SearchLimits
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import ObjectStore
from berth_sdk.testing import make_node, make_pod
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain_preemption import PlainBudget, PlainNode, preempt
from support.tiers import examples

NOT_ASKED: Final = Status.unresolvable("fits")
ALL: Final = SearchLimits(100, 0)
LABELS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"app": "web"},
    {"app": "web", "tier": "front"},
    {"app": "db"},
)
CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodePorts}, {name: NodeResourcesFit}, {name: PrioritySort}, {name: DefaultBinder}]
      disabled: [{name: "*"}]
"""


class Known:
    """`PodsAndPreemptions`: the pod is as it was popped."""

    def __init__(self, *preempting: str, gone: bool = False) -> None:
        self.preempting = preempting
        self.gone = gone

    def current(self, pod: Pod) -> Pod | None:
        return None if self.gone else pod

    def is_preempting(self, uid: str) -> bool:
        return uid in self.preempting


def store_of(budgets: Sequence[dict[str, Any]]) -> ObjectStore:
    store = ObjectStore()
    for i, raw in enumerate(budgets):
        item = KubeObject.of(raw)
        store.put(ObjectRef(namespace="default", name=f"b{i}"), item, i + 1)
    return store


def budget(labels: dict[str, str], allowed: int, disrupted: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": "b"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "now")},
    }


def evaluate(
    pod: Pod,
    nodes: Sequence[PlainNode],
    nominated: dict[str, list[Pod]] | None = None,
    budgets: Sequence[dict[str, Any]] = (),
    *,
    limits: SearchLimits = ALL,
    known: Known | None = None,
    version: str = "",
) -> Evaluation:
    """Return the result of the evaluator for a cluster, after the cycle's own Filter."""
    alone = FrameworkAlone(
        load_configuration(CONFIGURATION, source="test", registered=ClassRegistry().points())
    )
    for one in nodes:
        alone.add_node(make_node(one.name, cpu=f"{one.cpu_milli}m", pods=one.pod_limit))
        for other in one.pods:
            alone.add_pod(other)

    async def run() -> Evaluation:
        cycle = alone.cycle(pod)
        cycle.nominated = NominatedPods.of(
            cycle.nodes,
            {
                name: [other for other in pods if other.priority >= pod.priority]
                for name, pods in (nominated or {}).items()
            },
        )
        cycle.statuses = NodeStatuses(cycle.nodes)
        await alone.framework.run_pre_filter(cycle)
        passed = await alone.framework.run_filter(
            cycle, cycle.statuses, all_rows(cycle.nodes), cycle.nominated
        )
        cycle.statuses.groups[passed] = cycle.statuses.group_of(NOT_ASKED)
        rules = emulation_of(version, source="test").rules
        evaluator = Evaluator(SmallestName(), store_of(budgets), known or Known(), rules=rules)
        return await evaluator.evaluate(alone.framework, cycle, limits)

    return asyncio.run(run())


@st.composite
def pods_on(draw: st.DrawFn, node: str, count: int) -> tuple[Pod, ...]:
    made = []
    for i in range(count):
        started = draw(st.integers(0, 50)) if draw(st.booleans()) else None
        made.append(
            make_pod(
                f"{node}-{i}",
                uid=f"uid-{node}-{i}",
                node=node,
                cpu=draw(st.integers(0, 3)),
                priority=draw(st.integers(0, 4)),
                labels=draw(st.sampled_from(LABELS)),
                host_ports=draw(st.sampled_from([[], [], [80], [81]])),
                # No two pods of a node are equally important: which of them leaves is then open.
                status={} if started is None else {"startTime": f"2026-01-01T00:{started:02}:{i:02}Z"},
            )
        )
    distinct = {(pod.priority, pod.started_at_s): pod for pod in made}
    ports: set[int] = set()
    kept = []
    for pod in distinct.values():
        # One port is one entry of a node: the first pod that leaves takes it along.
        if not ports & {port.port for port in pod.host_ports}:
            ports |= {port.port for port in pod.host_ports}
            kept.append(pod)
    return tuple(kept)


@st.composite
def clusters(draw: st.DrawFn) -> list[PlainNode]:
    return [
        PlainNode(
            f"n{i}",
            1000 * draw(st.integers(1, 6)),
            draw(st.integers(1, 6)),
            draw(pods_on(f"n{i}", draw(st.integers(0, 5)))),
        )
        for i in range(draw(st.integers(1, 5)))
    ]


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), nodes=clusters())
def test_columns_find_the_victims_that_the_rules_find(data: st.DataObject, nodes: list[PlainNode]) -> None:
    pod = make_pod(
        "new",
        uid="uid-new",
        cpu=data.draw(st.integers(1, 6)),
        priority=data.draw(st.integers(0, 5)),
        host_ports=data.draw(st.sampled_from([[], [80]])),
    )
    promised = {
        node.name: [
            make_pod(
                f"promised-{node.name}",
                uid=f"uid-promised-{node.name}",
                cpu=data.draw(st.integers(0, 3)),
                priority=data.draw(st.integers(0, 5)),
            )
        ]
        for node in nodes
        if data.draw(st.booleans())
    }
    plain = [
        PlainBudget(
            data.draw(st.sampled_from(LABELS[1:])),
            data.draw(st.integers(0, 2)),
            frozenset(data.draw(st.lists(st.sampled_from(["n0-0", "n1-0"]), max_size=1))),
        )
        for _ in range(data.draw(st.integers(0, 2)))
    ]
    want = preempt(pod, nodes, promised, plain)
    raw = [budget(dict(one.labels), one.allowed, sorted(one.disrupted)) for one in plain]
    got = evaluate(pod, nodes, promised, raw)
    assert sorted(got.statuses.table.take(got.potential).names) == sorted(want.tried)
    rejected = {name: got.statuses.status_of(name).reasons for name in set(want.tried) - set(want.candidates)}
    assert rejected == want.rejected
    if not want.candidates:
        assert got.choice is None
        assert got.clear_nomination
        return
    choice = got.choice
    assert choice is not None
    found = {
        choice.node_name(place): (choice.victims_of(place), int(choice.candidates.violations[place]))
        for place in range(len(choice.candidates))
    }
    assert found == {name: (one.victims, one.violations) for name, one in want.candidates.items()}
    assert sorted(choice.node_name(place) for place in choice.best.tolist()) == sorted(want.best())
    assert got.result().nominated_node == min(want.best())


def full(count: int, priorities: Sequence[int]) -> list[PlainNode]:
    return [
        PlainNode(
            f"n{i}",
            1000 * len(priorities),
            110,
            tuple(
                make_pod(f"n{i}-{j}", uid=f"uid-{i}-{j}", node=f"n{i}", cpu=1, priority=priority)
                for j, priority in enumerate(priorities)
            ),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        pytest.param(SearchLimits(10, 3), 3, id="number"),
        pytest.param(SearchLimits(50, 3), 10, id="share"),
        pytest.param(SearchLimits(0, 100), 20, id="no more than there are"),
    ],
)
def test_search_ends_when_it_has_enough(limits: SearchLimits, count: int) -> None:
    pod = make_pod("new", uid="uid-new", cpu=1, priority=5)
    found = evaluate(pod, full(20, [1]), limits=limits)
    assert found.choice is not None
    assert len(found.choice.candidates) == count


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    priorities=st.lists(
        st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True), min_size=8, max_size=16
    ),
    wanted=st.integers(1, 3),
    allowed=st.integers(0, 2),
)
def test_search_of_a_part_finds_the_victims_that_the_search_of_all_nodes_finds(
    priorities: list[list[int]], wanted: int, allowed: int
) -> None:
    pod = make_pod("new", uid="uid-new", cpu=2, priority=4)
    nodes = [
        PlainNode(
            f"n{i}",
            2000,
            10,
            tuple(
                make_pod(
                    f"n{i}-{j}", uid=f"u-{i}-{j}", node=f"n{i}", cpu=1, priority=value, labels={"app": "web"}
                )
                for j, value in enumerate(sorted(values, reverse=True))
            ),
        )
        for i, values in enumerate(priorities)
    ]
    limits, budgets = SearchLimits(0, wanted), [budget({"app": "web"}, allowed)]
    some = evaluate(pod, nodes, budgets=budgets, limits=limits)
    with mock.patch.object(Framework, "has_served", new=True):
        every = evaluate(pod, nodes, budgets=budgets, limits=limits)
    assert some.result() == every.result()
    if some.choice is not None and every.choice is not None:
        assert some.choice.candidates.places.tolist() == every.choice.candidates.places.tolist()


@pytest.mark.parametrize(
    ("pod", "known", "reason"),
    [
        pytest.param(
            make_pod("new", uid="u", cpu=1, priority=5, spec={"preemptionPolicy": "Never"}),
            Known(),
            NEVER,
            id="never",
        ),
        pytest.param(make_pod("new", uid="u", cpu=1, priority=5), Known("u"), UNDER_WAY, id="under way"),
        pytest.param(
            make_pod("new", uid="u", cpu=1, priority=5, nominated="n0"), Known(), TERMINATING, id="leaving"
        ),
    ],
)
def test_a_pod_that_must_not_preempt_keeps_its_nomination(pod: Pod, known: Known, reason: str) -> None:
    (node,) = full(1, [1])
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    leaving = make_pod(
        "leaving",
        uid="uid-leaving",
        node="n0",
        cpu=0,
        priority=1,
        meta={"deletionTimestamp": "2026-01-01T00:00:00Z"},
        status={"conditions": [mark]},
    )
    found = evaluate(pod, [PlainNode("n0", 1000, 110, (*node.pods, leaving))], known=known)
    assert (found.ineligible, found.status.message) == (reason, reason)
    assert not found.result().clear_nomination


def test_a_pod_that_is_gone_is_an_error() -> None:
    found = evaluate(make_pod("new", uid="u", cpu=1, priority=5), full(1, [1]), known=Known(gone=True))
    assert found.status.code.name == "ERROR"


@pytest.mark.parametrize(("version", "violations"), [("", [1, 1]), ("1.37", [0, 0]), ("1.36", [0, 0])])
def test_budget_with_an_empty_selector_covers_every_pod(version: str, violations: list[int]) -> None:
    raw = budget({}, 0)
    raw["spec"] = {"selector": {}}
    pod = make_pod("new", uid="u", cpu=1, priority=5)
    found = evaluate(pod, full(2, [1]), budgets=[raw], version=version)
    assert found.choice is not None
    assert found.choice.candidates.violations.tolist() == violations


@pytest.mark.parametrize(("version", "violations"), [("", [1]), ("1.37", [1]), ("1.36", [2])])
def test_victim_that_breaks_a_budget_does_not_count_in_later_ones(
    version: str, violations: list[int]
) -> None:
    """Both pods are in the second budget, which allows one; the first pod breaks the first budget already."""
    labels = [{"app": "web", "first": "yes"}, {"app": "web"}]
    pods = tuple(
        make_pod(f"p{i}", uid=f"u{i}", cpu=1, priority=2 - i, labels=one, node="n0")
        for i, one in enumerate(labels)
    )
    node = PlainNode("n0", 2000, 10, pods)
    budgets = [budget({"first": "yes"}, 0), budget({"app": "web"}, 1)]
    found = evaluate(make_pod("new", uid="u", cpu=2, priority=5), [node], budgets=budgets, version=version)
    assert found.choice is not None
    assert found.choice.candidates.violations.tolist() == violations


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(None, id="missing"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "Near"}]}, id="invalid"),
    ],
)
def test_a_budget_without_a_usable_selector_protects_no_pod(selector: dict[str, Any] | None) -> None:
    raw = budget({}, 0)
    raw["spec"] = {} if selector is None else {"selector": selector}
    found = evaluate(make_pod("new", uid="u", cpu=1, priority=5), full(2, [1]), budgets=[raw])
    assert found.choice is not None
    assert found.choice.candidates.violations.tolist() == [0, 0]


@pytest.mark.parametrize(("version", "leaves"), [("1.38", "zzz"), ("", "aaa"), ("1.37", "aaa")])
def test_of_equal_victims_the_one_with_the_larger_uid_leaves_since_1_38(version: str, leaves: str) -> None:
    """Neither pod has started. Before, the pod that came last leaves."""
    pods = tuple(make_pod(uid, uid=uid, cpu=1, priority=1, node="n0") for uid in ("zzz", "aaa"))
    node = PlainNode("n0", 2000, 10, pods)
    found = evaluate(make_pod("new", uid="u", cpu=1, priority=5), [node], version=version)
    assert found.choice is not None
    assert [pod.uid for pod in found.choice.victims_of(found.choice.chosen)] == [leaves]


def test_victims_are_listed_by_priority_start_and_uid() -> None:
    started = {"startTime": "2026-01-01T00:00:01Z"}
    pods = tuple(
        make_pod(uid, uid=uid, cpu=1, priority=priority, node="n0", status=status)
        for uid, priority, status in (
            ("d", 1, {}),
            ("c", 1, {}),
            ("b", 1, started),
            ("a", 1, started),
            ("z", 2, {}),
        )
    )
    found = evaluate(
        make_pod("new", uid="u", cpu=5, priority=5), [PlainNode("n0", 5000, 10, pods)], version="1.38"
    )
    assert found.choice is not None
    assert [pod.uid for pod in found.choice.victims_of(found.choice.chosen)] == ["z", "a", "b", "c", "d"]
