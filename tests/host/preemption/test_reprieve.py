"""Both ways to decide which units may stay, against each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from unittest import mock
from unittest.mock import AsyncMock

import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.preemption import reprieve
from berth_host.rpc.client import PluginClient
from berth_host.rpc.loop_slices import LoopSlices
from berth_plugins.inter_pod_affinity.plugin import InterPodAffinity
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.testing import make_node, make_pod
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.group_trials import TriedGroup
from support.grouped_clusters import running
from support.tiers import examples

CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: NodeResourcesFit}, {name: InterPodAffinity}, {name: PrioritySort},
                {name: DefaultBinder}]
      disabled: [{name: "*"}]
"""
NEW: Final = PodGroup(name="new", priority=5)


def tried(
    nodes: Sequence[Node], there: Sequence[Pod], members: Sequence[Pod], configuration: str = CONFIGURATION
) -> tuple[list[bool], Counter[str]]:
    """Return which of the running pods must leave, and how often each plugin was called at Filter for it."""
    attempt = TriedGroup(configuration, nodes, there, NEW, members)
    asked: Counter[str] = Counter()
    ask = PluginClient.filter

    def counted(client: PluginClient, *args: Any) -> Any:
        asked[client.name] += 1
        return ask(client, *args)

    async def run() -> list[bool]:
        for pod in there:
            attempt.snapshot.remove(pod.uid)
        rerun = await attempt.rerun()
        assert rerun.status.is_success
        with mock.patch.object(PluginClient, "filter", counted):
            away = await reprieve.victims_among(
                attempt.framework, rerun.placed, [[pod] for pod in there], attempt.snapshot, attempt
            )
        return [bool(one) for one in away]

    return asyncio.run(run()), asked


def member(name: str, affinity: Mapping[str, Any] | None = None, *, cpu: int = 1) -> Pod:
    return make_pod(name, uid=f"uid-{name}", cpu=cpu, priority=5, affinity=affinity or {})


APART: Final = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
        ]
    }
}


def zoned(count: int, **fields: Any) -> list[Node]:
    return [make_node(f"n{i}", labels={"zone": f"z{i % 2}"}, **{"cpu": 2, **fields}) for i in range(count)]


def test_plugin_that_looks_at_other_nodes_is_asked_once_about_pods_that_it_does_not_look_at() -> None:
    there = [running(f"low-{i}", f"n{i}", labels={"app": "db"}, minute=i) for i in range(4)]
    away, asked = tried(zoned(4), there, [member("a", APART), member("b", APART)])
    assert away == [False] * 4
    # About each member, without any of the pods.
    assert asked == {"InterPodAffinity": 2}


def test_plugin_that_looks_at_other_nodes_is_asked_about_each_pod_that_it_looks_at() -> None:
    labels = [{"app": "db"}, {"app": "web"}, {"app": "web"}, {"app": "db"}]
    there = [running(f"low-{i}", f"n{i}", labels=one, minute=i) for i, one in enumerate(labels)]
    away, asked = tried(zoned(4), there, [member("a", APART)])
    assert away == [False, False, True, False]  # the member is on n0, in the zone of n2
    assert asked == {"InterPodAffinity": 3}


def test_pods_come_back_in_their_order_whatever_plugin_looks_at_them() -> None:
    # The second pod needs the room of the third.
    there = [
        running("first", "n0", labels={"app": "db"}, minute=1),
        running("second", "n1", labels={"app": "web"}, minute=2),
        running("third", "n1", labels={"app": "db"}, minute=3),
    ]
    nodes = zoned(2)
    away, _ = tried(nodes, there, [member("a", APART), member("b", cpu=1)])
    with mock.patch.object(reprieve.OneByOne, "_may_sway", lambda *_: True):
        assert tried(nodes, there, [member("a", APART), member("b", cpu=1)])[0] == away
    assert away == [False, False, True]


def test_every_call_is_about_the_snapshot_as_it_is() -> None:
    labels = [{"app": "db"}, {"app": "web"}, {"app": "db"}]
    there = [running(f"low-{i}", "n0", cpu=0, labels=one, minute=i) for i, one in enumerate(labels)]
    attempt = TriedGroup(CONFIGURATION, zoned(1), there, NEW, [member("a", APART)])
    ask = PluginClient.filter_scenarios
    behind: list[bool] = []

    def checked(client: PluginClient, cycle: Cycle, *args: Any) -> Any:
        behind.append(cycle.version != attempt.snapshot.version)
        return ask(client, cycle, *args)

    async def run() -> None:
        for pod in there:
            attempt.snapshot.remove(pod.uid)
        rerun = await attempt.rerun()
        units = [[pod] for pod in there]
        with mock.patch.object(PluginClient, "filter_scenarios", checked):
            await reprieve.victims_among(attempt.framework, rerun.placed, units, attempt.snapshot, attempt)

    asyncio.run(run())
    # A served plugin's copy has one version of the snapshot: a call about an older one is refused.
    assert behind == [False] * 3


def test_member_that_fits_no_more_without_any_pod_keeps_every_pod_away() -> None:
    there = [running(f"low-{i}", f"n{i}", labels={"app": "db"}) for i in range(2)]
    with mock.patch.object(reprieve.OneByOne, "_fits", AsyncMock(return_value=False)):
        assert tried(zoned(2), there, [member("a", APART)])[0] == [True, True]


def test_plugin_that_cannot_tell_which_pods_it_looks_at_is_asked_about_all() -> None:
    there = [running(f"low-{i}", f"n{i}", labels={"app": "db"}) for i in range(3)]

    def fails(self: object, pod: Pod, other: Pod) -> bool:
        raise ValueError("no idea")

    with mock.patch.object(InterPodAffinity, "sensitive_to", fails), capture_logs() as logs:
        away, asked = tried(zoned(3), there, [member("a", APART)])
    assert away == [False] * 3
    assert asked == {"InterPodAffinity": 3}
    assert [(one["event"], one["plugin"]) for one in logs] == [
        ("plugin.cannot_tell_sensitivity", "InterPodAffinity")
    ]


def test_answer_that_is_not_false_counts_as_true() -> None:
    there = [running("low", "n0", labels={"app": "db"})]
    with mock.patch.object(InterPodAffinity, "sensitive_to", lambda *_: None):
        assert tried(zoned(1), there, [member("a", APART)])[1] == {"InterPodAffinity": 1}


def test_other_tasks_run_while_units_come_back() -> None:
    there = [running(f"low-{i}", f"n{i % 4}", cpu=0, minute=i % 60) for i in range(64)]
    turns = 0

    async def turn(*_: object) -> None:
        nonlocal turns
        turns += 1

    with mock.patch.object(LoopSlices, "step", turn):
        tried(zoned(4), there, [member("a")])
    # The pods of each node come back one after the other.
    assert turns == 16


@st.composite
def lookers(draw: st.DrawFn) -> tuple[list[Pod], list[Pod]]:
    """Draw members that look at other pods, and pods on nodes that some of them look at."""
    terms = st.sampled_from(["web", "db"]).map(
        lambda app: {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    )
    anti = st.lists(terms, max_size=1).map(
        lambda found: (
            {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": found}} if found else {}
        )
    )
    members = [
        make_pod(
            f"new-{i}",
            uid=f"uid-new-{i}",
            cpu=draw(st.integers(0, 2)),
            priority=5,
            labels={"app": draw(st.sampled_from(["web", "db", "new"]))},
            affinity=draw(anti),
            spec={"topologySpreadConstraints": draw(st.sampled_from([[], [SPREAD]]))},
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    there = [
        running(
            f"low-{i}",
            f"n{draw(st.integers(0, 3))}",
            minute=i,
            cpu=draw(st.integers(0, 2)),
            labels=draw(st.sampled_from([{}, {"app": "web"}, {"app": "db"}, {"app": "new"}])),
            affinity=draw(anti),
        )
        for i in range(draw(st.integers(1, 10)))
    ]
    return members, there


SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "new"}},
}
SPREADING: Final = CONFIGURATION.replace(
    "{name: InterPodAffinity},", "{name: InterPodAffinity}, {name: PodTopologySpread},"
)


@pytest.mark.slow
@settings(max_examples=examples(120), deadline=None)
@given(drawn=lookers())
def test_same_pods_leave_if_plugins_are_asked_about_every_pod(drawn: tuple[list[Pod], list[Pod]]) -> None:
    members, there = drawn
    nodes = zoned(4, cpu=4)
    attempt = TriedGroup(SPREADING, nodes, [], NEW, members)
    assume(asyncio.run(attempt.rerun()).status.is_success)
    away, _ = tried(nodes, there, members, SPREADING)
    with mock.patch.object(reprieve.OneByOne, "_may_sway", lambda *_: True):
        assert tried(nodes, there, members, SPREADING)[0] == away


def test_units_come_back_in_waves_without_a_common_node() -> None:
    waves = reprieve.waves_of([{1: []}, {2: []}, {1: [], 2: []}, {3: []}, {}, {2: []}])
    assert waves == [[0, 1, 3], [2], [5]]


@pytest.mark.parametrize("looks", [False, True], ids=["node by node", "one by one"])
def test_a_unit_stays_only_beside_all_members_of_its_node(looks: bool) -> None:
    there = [running("first", "n0", minute=1), running("second", "n0", minute=2)]
    with mock.patch.object(reprieve, "looks_further", lambda client: looks):
        away, asked = tried([make_node("n0", cpu=3)], there, [member("a"), member("b")])
    assert away == [False, True]
    assert bool(asked) is looks
