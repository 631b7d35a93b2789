"""`kubectl berth shadow` against the secure port of a shadow beside a real scheduler."""

from __future__ import annotations

import json

from berth_host.cli.rendering.shadow import shadow_text
from berth_host.config.loading import load_configuration
from berth_host.shadow.record import ShadowOutcome
from berth_sim.run.settle import settle
from support.beside import Beside
from support.hosts import World, node, pod
from support.serving import FakeProcess, KnownUsers, served

from .conftest import READS, Ask, run

BEST_FIT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
"""
OUTCOMES = """\
OUTCOME                                PODS
same node                                 1
another node                              1
only the real scheduler found a node      1
"""


async def test_scheduler_that_is_no_shadow_is_named_with_the_cure(ask: Ask) -> None:
    result = await ask("shadow")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "this scheduler is no shadow: ask one that was started with --shadow" in result.stderr


async def test_report_of_a_shadow_is_printed_as_table_and_as_json() -> None:
    best_fit = load_configuration(BEST_FIT, source="shadow.yaml", registered={})
    objects = [node("a"), node("b"), pod("big", cpu="2", nodeName="a")]
    async with World(objects) as world, Beside(world, best_fit) as shadow:
        world.server.create(pod("web"))
        await shadow.counted(ShadowOutcome.OTHER_NODE)
        await settle(world.host)
        process = FakeProcess(shadow.host.configuration, shadow.host)
        async with served(process, KnownUsers({"reads": READS})) as port:
            server = f"https://127.0.0.1:{port.endpoints.server.port}"
            options = ("--server", server, "--insecure-skip-tls-verify", "--token", "reads")
            table = await run("shadow", *options)
            answer = await run("shadow", "-o", "json", *options)
    assert (table.exit_code, answer.exit_code) == (0, 0)
    value = json.loads(answer.stdout)
    assert value["outcomes"]["other_node"] == value["compared"] == 1
    sections = table.stdout.split("\n\n")
    assert sections[0].startswith("1 decision compared in ")
    assert sections[0].endswith("0.0 % agree; 0 open")
    assert sections[1].splitlines()[1].split() == ["another", "node", "1"]
    assert sections[3].splitlines()[1].split() == ["NodeResourcesFit", "another", "node", "1"]
    assert sections[4].splitlines()[1].split()[:1] == ["default/web"]
    assert sections[4].splitlines()[1].split()[2:5] == ["a", "b", "NodeResourcesFit"]


def test_table_names_victims_and_counts_what_it_leaves_out() -> None:
    line = {
        "pod": "default/high",
        "at": "2026-01-01T00:00:00.000000Z",
        "outcome": "only_real",
        "shadowNode": "a",
        "realNode": "b",
        "plugin": "",
        "reason": "the shadow would evict 1 pods elsewhere",
        "victims": ["default/low"],
        "decisionMs": 1.0,
        "realMs": None,
    }
    none = {"pods": 0, "mean": None, "p99": None}
    text = shadow_text(
        {
            "since": "2026-01-01T00:00:00.000000Z",
            "answeredAt": "2026-01-01T00:01:00.000000Z",
            "open": 2,
            "compared": 3,
            "agreed": 1,
            "outcomes": {"same": 1, "tie": 0, "other_node": 1, "only_real": 1},
            "plugins": [],
            "decisionMs": none,
            "realMs": none,
            "differences": [line] * 21,
        }
    )
    head, outcomes, differences = text.split("\n\n")
    assert head == "3 decisions compared in 1m: 33.3 % agree; 2 open"
    assert outcomes.splitlines() == OUTCOMES.splitlines()
    assert "a (evicts default/low)" in differences
    assert differences.endswith("1 more with -o json\n")
