"""Served Filter plugins answer as in process: one after the other, each about the nodes that are left."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from berth_host.framework.answers import AskEveryone
from berth_host.framework.framework import Framework, all_rows
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.nominated_pods import NOBODY
from berth_host.rpc.breaker import Breaker
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.client import PluginClient
from berth_host.rpc.route import ClientSettings
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_pod
from support.asking import NO_HANDLE
from support.attached import AttachedHost, at_socket, attached_host
from support.frameworks import framework_of

NODES = 6
ROUNDS = 80
POINTS = {"filter": PointPolicy(5.0, Policy.FAIL)}


class Ruled(Plugin):
    """A plugin that answers about a node by `rules`: `no`, `never`, `error`; `raises` fails the whole call.

    At most `most` nodes of a call pass. `asked`: the nodes of each call.
    """

    rules: ClassVar[dict[str, str]] = {}
    most: ClassVar[int] = NODES
    asked: ClassVar[list[list[str]]] = []

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Answer by the rules. Raises ValueError for a node with the rule `raises`."""
        self.asked.append(list(nodes.names))
        rules = [self.rules.get(name, "yes") for name in nodes.names]
        if "raises" in rules:
            raise ValueError("cannot judge this node")
        statuses = {
            "yes": Status.success(),
            "no": Status.unschedulable(f"{self.name} says no"),
            "never": Status.unresolvable(f"{self.name} says never"),
            "error": Status.error(f"{self.name} is broken"),
        }
        crowd = Status.unschedulable(f"{self.name} has enough")
        return Verdicts.of([statuses[rule] if i < self.most else crowd for i, rule in enumerate(rules)])


class First(Ruled):
    name = "First"
    asked: ClassVar[list[list[str]]] = []


class Second(Ruled):
    name = "Second"
    asked: ClassVar[list[list[str]]] = []


class Third(Ruled):
    name = "Third"
    asked: ClassVar[list[list[str]]] = []


PLUGINS: tuple[type[Ruled], ...] = (First, Second, Third)


def draw(seed: int) -> None:
    """Choose the rules of each plugin."""
    chance = random.Random(seed)
    for cls in PLUGINS:
        words = ["yes", "yes", "no", "never", "error", "raises"]
        cls.rules = {f"n{i}": chance.choice(words) for i in range(NODES) if chance.random() < 0.7}
        cls.most = chance.choice([1, 3, NODES])


async def ask(framework: Framework, host: AttachedHost) -> object:
    """Run Filter; return the verdicts, the nodes of each plugin's calls, and the counted calls and
    failures.
    """
    before = {client.name: _counted(client) for client in framework.clients}
    for cls in PLUGINS:
        cls.asked.clear()
    cycle = host.cycle(make_pod("web", uid="web"), nodes=host.nodes)
    statuses = NodeStatuses(host.nodes)
    passed = await framework.run_filter(cycle, statuses, all_rows(host.nodes), NOBODY)
    counted = {
        client.name: np.subtract(_counted(client), before[client.name]).tolist()
        for client in framework.clients
    }
    return (
        passed.tolist(),
        [_plain(statuses.statuses[group]) for group in statuses.groups],
        {cls.name: [*cls.asked] for cls in PLUGINS},
        counted,
    )


def _plain(status: Status) -> tuple[object, ...]:
    return status.code, status.plugin, status.reasons


def _counted(client: PluginClient) -> tuple[int, int, int]:
    stats = client.stats
    return stats.of("Filter").calls, stats.of("Filter").failed, stats.violations


@pytest.mark.parametrize("keeps", [True, False], ids=["keep answers", "ask everyone"])
async def test_served_filters_answer_as_one_after_the_other_in_the_host(tmp_path: Path, keeps: bool) -> None:
    path = tmp_path / "p.sock"
    names = [cls.name for cls in PLUGINS]
    settings = ClientSettings(points=POINTS)
    with PluginServer({cls.name: cls for cls in PLUGINS}) as server:
        server.listen(f"unix:{path}")
        async with attached_host(at_socket(path, *names), node_count=NODES, points=POINTS) as host:
            answers = None if keeps else AskEveryone()
            here = framework_of([cls({}, NO_HANDLE) for cls in PLUGINS], settings=settings, answers=answers)
            there = framework_of([host.clients[name] for name in names], settings=settings, answers=answers)
            for seed in range(ROUNDS):
                draw(seed)
                want = await ask(here, host)
                for client in host.clients.values():  # a plugin that failed before is called again
                    for breaker in _breakers(client):
                        breaker.succeeded()
                assert await ask(there, host) == want, seed


def _breakers(client: PluginClient) -> list[Breaker]:
    way = client.route.transport
    return [] if way is None or way.conduct is None else list(way.conduct.breakers.values())
