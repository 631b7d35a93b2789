"""Counts of pods by node and by domain: right at the first read, and after every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.selected_pods import SelectedPods, labels_kind
from berth_sdk.selectors import EVERYTHING, LabelSelector
from berth_sdk.tables import (
    NodeColumns,
    NodeTable,
    PodCounts,
    PodsWith,
    PodTable,
    Tally,
    changed_by,
    pod_counts,
)
from berth_sdk.testing import make_node, make_pod, make_table
from berth_sdk.testing.builders import make_columns
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray
from support.tiers import examples

ZONE = "zone"
WEB = LabelSelector.equal_to({"app": "web"})


def tier_of(pod: Pod) -> str | None:
    return pod.labels.get("tier")


def letters_of(tier: str) -> int:
    return len(tier)


@dataclass(frozen=True)
class NotTier:
    """A tally that is defined in this test."""

    tier: str

    def __call__(self, tier: str) -> int:
        return -3 if tier != self.tier else 0


class Asked:
    """Counts the pods of one app, and keeps the pods that it was asked about."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.pods: list[str] = []

    def of(self, pod: Pod) -> int:
        self.pods.append(pod.name)
        return int(pod.labels.get("app") == self.app)

    def over(self, pods: PodTable) -> NDArray[np.int64]:
        return np.fromiter((self.of(pods.pod(row)) for row in range(len(pods))), dtype=np.int64)

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        return labels_kind


class ByName(Asked):
    """Counts the pods of one name."""

    raises = False

    def of(self, pod: Pod) -> int:
        if self.raises:
            raise RuntimeError("no name")
        return int(pod.name == self.app)

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        return name_of


def name_of(pod: Pod) -> str:
    return pod.name


class ByItself(Asked):
    """Counts the pods of one app, and reads their kind with a function of its own at each read."""

    @property
    def kind_of(self) -> Callable[[Pod], Hashable]:
        return lambda pod: pod.labels.get("app")


TALLIES: list[Tally] = [
    Asked("db"),
    SelectedPods(frozenset({"a"}), WEB),
    SelectedPods(frozenset({"a", "b"}), WEB, exclude_terminating=True),
    SelectedPods(None, LabelSelector.parse("app, tier notin (db)")),
    SelectedPods(None, EVERYTHING, exclude_terminating=True),
    SelectedPods(None, LabelSelector.of(None)),
    SelectedPods(frozenset(), EVERYTHING),
    PodsWith("test/tier", tier_of, letters_of),
    PodsWith("test/tier", tier_of, NotTier("db")),
]


def plain_counts(columns: NodeColumns, tally: Tally) -> list[int]:
    assert columns.pods is not None
    counts = [0] * columns.capacity
    for slot in range(columns.capacity):
        counts[slot] = sum(tally.of(pod) for pod in columns.pods.pods_of(slot))
    return counts


def plain_domains(columns: NodeColumns, counts: list[int], slots: set[int]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for slot, node in enumerate(columns.nodes):
        if node is not None and ZONE in node.labels and slot in slots:
            sums[node.labels[ZONE]] += counts[slot]
    return sums


class Columns(RuleBasedStateMachine):
    """Adds, changes and removes nodes and pods, in any order, in one version or over many."""

    names = st.sampled_from([f"node-{i}" for i in range(20)])
    uids = st.sampled_from([f"pod-{i}" for i in range(12)])
    labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "db", "cache"]))

    @initialize(columns_kept=st.sampled_from([1, 3, 100]), remembered=st.sampled_from([1, 4, 1000]))
    def begin(self, columns_kept: int, remembered: int) -> None:
        self.columns = NodeColumns()
        self.columns.pods = self.pods = PodTable()
        self.counts = PodCounts(self.columns, max_columns=columns_kept, remembered=remembered)
        self.where: dict[str, str] = {}
        self.records: dict[str, Pod] = {}
        self.generation = 1
        self.asked: list[int] = [0]
        self.odd = np.zeros(0, dtype=np.bool_)

    def _write(self, name: str) -> None:
        slot = self.columns.index_of.get(name)
        if slot is not None:
            self.generation += 1
            here = [self.records[uid] for uid, on in self.where.items() if on == name]
            self.pods.set_node_pods(slot, here, (), self.generation)
            self.columns.touch(slot, self.generation)

    @rule(name=names, zone=st.sampled_from([None, "x", "y", "z"]))
    def put_node(self, name: str, zone: str | None) -> None:
        node = Node(name=name, labels={} if zone is None else {ZONE: zone})
        slot = self.columns.index_of.get(name)
        if slot is None:
            self.columns.add(node)
        else:
            self.columns.set_node(slot, node)
        self._write(name)

    @rule(name=names, reuse=st.booleans())
    def remove_node(self, name: str, reuse: bool) -> None:
        slot = self.columns.index_of.get(name)
        if slot is not None:
            self.generation += 1
            self.columns.remove(slot, self.generation)
        if reuse:
            self.columns.reclaim()

    @rule(uid=uids, name=names, labels=labels, namespace=st.sampled_from("abc"), terminating=st.booleans())
    def put_pod(self, uid: str, name: str, labels: dict[str, str], namespace: str, terminating: bool) -> None:
        # Also one that is there already: it changes its labels, or moves to another node.
        before = self.where.get(uid)
        self.where[uid] = name
        self.records[uid] = Pod(
            name=uid, uid=uid, namespace=namespace, labels=labels, terminating=terminating
        )
        self._write(name)
        if before not in (None, name):
            self._write(before)

    @rule(uid=uids)
    def remove_pod(self, uid: str) -> None:
        name = self.where.pop(uid, None)
        if name is not None:
            self._write(name)

    @rule()
    def next_version(self) -> None:
        self.columns.begin_update()

    @rule(which=st.lists(st.sampled_from(range(len(TALLIES))), min_size=1, unique=True))
    def ask(self, which: list[int]) -> None:
        """From now on only these tallies are read; the others fall behind."""
        self.asked = which

    @invariant()
    def counts_are_those_of_the_pods(self) -> None:
        for i in self.asked:
            tally = TALLIES[i]
            want = plain_counts(self.columns, tally)
            for counts in (self.counts, self.columns.pod_counts):
                assert counts.column(tally).tolist() == want
                self._check_domains(counts, tally, want)
        assert len(self.counts) <= self.counts.max_columns

    def _check_domains(self, counts: PodCounts, tally: Tally, want: list[int]) -> None:
        codes, values = self.columns.label(ZONE)
        # The same array again, as long as it says the same.
        odd = self.columns.generation % 2 == 1
        if np.array_equal(odd, self.odd):
            odd = self.odd
        self.odd = odd
        everywhere = set(range(self.columns.capacity))
        for among, slots in ((None, everywhere), (odd, {i for i in everywhere if odd[i]})):
            sums = counts.by_domain(tally, ZONE, among)
            plain = plain_domains(self.columns, want, slots)
            assert sums.tolist() == [0 if value is None else plain[value] for value in values.values]
        assert codes.shape == odd.shape


Columns.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestColumns = pytest.mark.slow(Columns.TestCase)


def small_columns() -> NodeColumns:
    nodes = [make_node("n1", labels={ZONE: "x"}), make_node("n2", labels={ZONE: "y"}), make_node("n3")]
    pods = [
        make_pod("p1", node="n1", labels={"app": "web"}),
        make_pod("p2", node="n1", labels={"app": "db"}),
        make_pod("p3", node="n2", labels={"app": "web"}),
        make_pod("p4", node="n3", labels={"app": "web"}),
    ]
    return make_columns(nodes, pods)


def small_table() -> NodeTable:
    return NodeTable(small_columns())


def test_counts_by_row_and_by_domain() -> None:
    nodes = small_table()
    tally = SelectedPods(frozenset({"default"}), WEB)
    assert nodes.take_of(nodes.pod_counts.column(tally)).tolist() == [1, 1, 1]
    codes, values = nodes.label(ZONE)
    zones = nodes.pod_counts.by_domain(tally, ZONE)
    assert {value: zones[values.find(value)] for value in ("x", "y")} == {"x": 1, "y": 1}
    assert zones.take(codes).tolist() == [1, 1, 0]


def test_columns_are_read_only() -> None:
    nodes = small_table()
    column = nodes.pod_counts.column(SelectedPods(None, WEB))
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 7


def test_table_without_pods_is_refused() -> None:
    columns = NodeColumns()
    columns.add(Node(name="n"))
    with pytest.raises(ValueError, match=r"Need\.pods\(\)"):
        NodeTable.of(columns).pod_counts.column(SelectedPods(None, WEB))


def test_each_table_has_its_own_counts() -> None:
    first, second = small_table(), make_table([make_node("n1")], [])
    tally = SelectedPods(None, WEB)
    assert first.pod_counts.column(tally).sum() == 3
    assert second.pod_counts.column(tally).sum() == 0
    assert first.pod_counts.column(tally).sum() == 3


def test_unchanged_pod_is_not_counted_again() -> None:
    columns = small_columns()
    nodes = NodeTable(columns)
    seen: list[str] = []

    def read(pod: Pod) -> str | None:
        seen.append(pod.name)
        return pod.labels.get("app")

    tally = PodsWith("test/seen", read, letters_of)
    nodes.pod_counts.column(tally)
    seen.clear()
    assert columns.pods is not None
    slot = columns.index_of["n1"]
    here = columns.pods.on_node(slot)
    columns.pods.set_node_pods(slot, [*here, make_pod("new", node="n1", labels={"app": "four"})], (), 9)
    columns.touch(slot, 9)
    seen.clear()
    assert nodes.pod_counts.column(tally)[slot] == 3 + 2 + 4
    assert seen == ["new"]


def with_pod(columns: NodeColumns, pod: Pod, generation: int) -> None:
    assert columns.pods is not None
    slot = columns.index_of[pod.node_name]
    columns.pods.set_node_pods(slot, [*columns.pods.on_node(slot), pod], (), generation)
    columns.touch(slot, generation)


def test_a_tally_with_kinds_weighs_one_pod_of_each_kind() -> None:
    columns = small_columns()
    counts = NodeTable(columns).pod_counts
    tally, other = Asked("web"), Asked("db")
    first = counts.column(tally).sum()
    counts.column(other)
    tally.pods.clear()
    for number in range(6):
        app = ("web", "db")[number % 2]
        with_pod(columns, make_pod(f"new-{number}", node="n1", labels={"app": app}), 9 + number)
        if number >= 2:
            counts.column(tally)
    assert counts.column(tally).sum() == first + 3
    assert tally.pods == ["new-0", "new-1"]
    assert counts.column(other).sum() == NodeTable(small_columns()).pod_counts.column(Asked("db")).sum() + 3


@pytest.mark.parametrize("limit", ["_MAX_KINDS", "_MAX_WEIGHTS", "_MAX_READINGS"])
def test_counts_hold_when_the_kept_kinds_are_dropped(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, limit, 1)
    columns = small_columns()
    counts = NodeTable(columns).pod_counts
    tallies: list[Tally] = [SelectedPods(None, WEB), Asked("db"), ByName("new-3"), ByName("new-4")]
    for number in range(9):
        with_pod(
            columns,
            make_pod(f"new-{number}", node="n1", labels={"app": ("web", "db", "x")[number % 3]}),
            9 + number,
        )
        for tally in tallies if number != 5 else tallies[:1]:
            assert counts.column(tally).tolist() == plain_counts(columns, tally)


def test_counts_hold_for_a_tally_that_makes_its_kind_of_at_each_read() -> None:
    columns = small_columns()
    counts = NodeTable(columns).pod_counts
    tally = ByItself("web")
    counts.column(tally)
    for number in range(70):
        app = ("web", "db", "x")[number * 7 % 5 % 3]
        with_pod(columns, make_pod(f"new-{number}", node="n1", labels={"app": app}), 9 + number)
        assert counts.column(tally).tolist() == plain_counts(columns, tally)


def test_a_tally_that_raises_counts_the_pod_at_the_next_read() -> None:
    columns = small_columns()
    counts = NodeTable(columns).pod_counts
    tally = ByName("new")
    counts.column(tally)
    with_pod(columns, make_pod("new", node="n1"), 9)
    tally.raises = True
    with pytest.raises(RuntimeError, match="no name"):
        counts.column(tally)
    tally.raises = False
    assert counts.column(tally).sum() == 1


@given(st.lists(st.sampled_from(["web", "db", ""]), max_size=4), st.data())
def test_scenario_counts_added_pods_more_and_removed_pods_less(apps: list[str], data: st.DataObject) -> None:
    pods = [Pod(name=f"p{i}", uid=f"p{i}", labels={"app": app}, node_name="n") for i, app in enumerate(apps)]
    items = []
    for _ in range(data.draw(st.integers(0, 3))):
        removed = tuple(pod for pod in pods if data.draw(st.booleans()))
        added = tuple(replace(pod, uid=f"{pod.uid}-new") for pod in pods if data.draw(st.booleans()))
        items.append(Scenario("n", removed, added))
    scenarios = Scenarios(make_table([make_node("n")], pods), items)
    tally = SelectedPods(None, WEB)
    got = changed_by(tally, scenarios.removed, scenarios.added)
    assert got.tolist() == [
        sum(map(tally.of, item.added)) - sum(map(tally.of, item.removed)) for item in items
    ]


def test_equal_tallies_share_a_column() -> None:
    counts = small_table().pod_counts
    for _ in range(2):
        counts.column(SelectedPods(frozenset({"default"}), LabelSelector.equal_to({"app": "web"})))
        counts.column(PodsWith("test/tier", tier_of, NotTier("db")))
    assert len(counts) == 2
