"""Both ways to decide which units may stay, against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from unittest import mock

import pytest
from berth_host.preemption import reprieve
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sdk.testing import make_node, make_pod
from support.group_trials import TriedGroup
from support.grouped_clusters import running

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


def ways(running_pods: Sequence[Pod], members: Sequence[Pod], nodes: int) -> list[str]:
    """Return the way that was taken, for each reprieve."""
    taken: list[str] = []

    class Noted:
        def __init__(self, way: type) -> None:
            self.way = way

        def __call__(self, *args: object) -> object:
            taken.append(self.way.__name__)
            return self.way(*args)

    attempt = TriedGroup(
        CONFIGURATION, [make_node(f"n{i}", cpu=2) for i in range(nodes)], running_pods, NEW, members
    )
    units = [[pod] for pod in running_pods]

    async def run() -> None:
        for pod in running_pods:
            attempt.snapshot.remove(pod.uid)
        rerun = await attempt.rerun()
        await reprieve.victims_among(attempt.framework, rerun.placed, units, attempt.snapshot, attempt)

    with (
        mock.patch.object(reprieve, "NodeByNode", Noted(reprieve.NodeByNode)),
        mock.patch.object(reprieve, "OneByOne", Noted(reprieve.OneByOne)),
    ):
        asyncio.run(run())
    return taken


def member(name: str, affinity: Mapping[str, Any] | None = None) -> Pod:
    return make_pod(name, uid=f"uid-{name}", cpu=1, priority=5, affinity=affinity or {})


def test_members_without_an_eye_on_other_nodes_are_asked_about_their_own_node_alone() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    there = [running("low", "n0")]
    assert ways(there, [member("a"), member("b")], 1) == ["NodeByNode"]
    assert ways(there, [member("a"), member("b", affinity=apart)], 1) == ["OneByOne"]


def test_units_come_back_in_waves_without_a_common_node() -> None:
    waves = reprieve.waves_of([{1: []}, {2: []}, {1: [], 2: []}, {3: []}, {}, {2: []}])
    assert waves == [[0, 1, 3], [2], [5]]


@pytest.mark.parametrize("way", ["NodeByNode", "OneByOne"])
def test_a_unit_stays_only_beside_all_members_of_its_node(way: str) -> None:
    there = [running("first", "n0", minute=1), running("second", "n0", minute=2)]
    attempt = TriedGroup(CONFIGURATION, [make_node("n0", cpu=3)], there, NEW, [member("a"), member("b")])

    async def run() -> list[bool]:
        for pod in there:
            attempt.snapshot.remove(pod.uid)
        rerun = await attempt.rerun()
        found = await reprieve.victims_among(
            attempt.framework, rerun.placed, [[pod] for pod in there], attempt.snapshot, attempt
        )
        return [bool(one) for one in found]

    with mock.patch.object(reprieve, "NodeByNode", getattr(reprieve, way)):
        assert asyncio.run(run()) == [False, True]
