"""`Handle.run_scores` under the whole host: a plugin in it, or in another process, gets the same answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.asks_for_scores import CLOSED
from support.hosts import World, node, pod
from support.plugin_processes import plugin_process

MODULE = "support.asks_for_scores"
PLUGINS = ("AsksForScores", "AsksWhileAsked")
NODES = ["n3", "n1", "n2"]


def configuration(where: str, name: str, folder: Path) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{multiPoint: {{enabled: [{{name: {name}, weight: 3}}]}}}}\n"
        f"  pluginConfig: [{{name: {name}, args: {{folder: {folder}, nodes: [{', '.join(NODES)}]}}}}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: {name}\n  {where}\n  required: true\n"
        "  points: {filter: {deadline: 10s}, postFilter: {deadline: 10s}, score: {deadline: 10s},"
        " reserve: {deadline: 10s}, permit: {deadline: 10s}}\n"
    )


Configured = Callable[[str], str]


@pytest.fixture(params=["in process", "served"])
async def configured(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Configured]:
    """Yield a configuration with one of the plugins, in process or served."""
    if request.param == "in process":
        yield lambda name: configuration(f"inProcess: '{MODULE}:{name}'", name, tmp_path)
        return
    async with plugin_process(tmp_path / "p.sock", *(f"{MODULE}:{name}" for name in PLUGINS)) as process:
        yield lambda name: configuration(f"endpoint: '{process.endpoint}'", name, tmp_path)


async def written(folder: Path) -> list[Any]:
    """Return the notes of the plugin."""
    text = await asyncio.to_thread((folder / "log").read_text)
    return [json.loads(line) for line in text.splitlines()]


def scored(world: World, name: str) -> dict[str, tuple[int, dict[str, list[Any]]]]:
    """Total, and [weight, score] by plugin, of each node as the pod's own cycle has scored it."""
    found = world.host.diagnoses.find(f"default/{name}")
    assert found is not None
    (attempt,) = found.attempts()
    return {
        item.node_name: (
            item.total,
            {plugin: [weight, score] for plugin, (_, score, weight) in item.plugins.items()},
        )
        for item in attempt.top_scores
    }


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_permit_hears_the_scores_by_which_the_node_was_chosen(
    configured: Configured, tmp_path: Path
) -> None:
    nodes = [node("n1", cpu="2"), node("n2", cpu="8"), node("n3", cpu="4", labels={"disk": "ssd"})]
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
                }
            ]
        }
    }
    web = pod("web", cpu="1", affinity=affinity)
    async with World([*nodes, web], configuration=configured("AsksForScores")) as world:
        await world.settle()
        assert world.node_of("web")
        chosen, own = world.node_of("web"), scored(world, "web")
    reserved, nothing, all_three, unknown = await written(tmp_path)
    point, message, names, totals, plugins = all_three
    assert (point, message, names) == ("permit", "", NODES)
    assert totals == [own[name][0] for name in NODES]
    assert plugins == {
        plugin: [weight, [own[name][1][plugin][1] for name in NODES]]
        for plugin, (weight, _) in own["n1"][1].items()
    }
    assert plugins["AsksForScores"] == [3, [3, 1, 2]]
    assert {"NodeResourcesFit", "NodeAffinity"} < set(plugins)
    assert max(zip(totals, names, strict=True))[1] == chosen

    # One node alone: scores that are normalised over the nodes have no other node to be compared with.
    assert reserved[:3] == ["reserve", "", [chosen, chosen]]
    assert reserved[3] == [reserved[3][0]] * 2
    assert nothing == ["reserve", "", [], [], {}]
    assert unknown == ["permit", "node 'nowhere' is not in the snapshot"]


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_scores_of_pods_whose_answers_are_kept_are_those_of_their_cycles(
    configured: Configured, tmp_path: Path
) -> None:
    spread: dict[str, Any] = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "disk",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 7,
                        "podAffinityTerm": {
                            "topologyKey": "disk",
                            "labelSelector": {"matchLabels": {"app": "web"}},
                        },
                    }
                ]
            }
        },
    }
    nodes = [node(name, cpu=str(3 + i), labels={"disk": f"d{i % 2}"}) for i, name in enumerate(sorted(NODES))]
    pods = [
        pod(f"web-{i}", cpu="500m", labels={"app": "web", "own": str(i // 4)}, **spread) for i in range(6)
    ]
    async with World([*nodes, *pods], configuration=configured("AsksForScores")) as world:
        await world.settle()
        own = [scored(world, f"web-{i}") for i in range(6)]
    answers = [line for line in await written(tmp_path) if line[0] == "permit" and len(line) == 5]
    assert len(answers) == 6
    for (_, message, names, totals, plugins), by_node in zip(answers, own, strict=True):
        assert (message, names) == ("", NODES)
        assert totals == [by_node[name][0] for name in NODES]
        assert {"PodTopologySpread", "NodeResourcesFit"} < set(plugins)
        for plugin, (weight, scores) in plugins.items():
            assert [[weight, score] for score in scores] == [by_node[name][1][plugin] for name in NODES]


@pytest.mark.sampled(every=2)
@pytest.mark.slow
async def test_post_filter_nominates_the_best_of_the_nodes_that_are_closed(
    configured: Configured, tmp_path: Path
) -> None:
    # What the plugin answered early of Score says 0 for a closed node: it is asked anew.
    nodes = [node(name, cpu="4", labels={CLOSED: ""}) for name in NODES]
    async with World([*nodes, pod("web", cpu="1")], configuration=configured("AsksForScores")) as world:
        await world.settle()
        assert {name: len(pods) for name, pods in world.host.queue.nominated_pods().items()} == {"n3": 1}
        assert world.everything_is_accounted_for()
    for point, message, names, _, plugins in await written(tmp_path):
        assert (point, message, names) == ("post_filter", "", NODES)
        assert plugins["AsksForScores"] == [3, [3, 1, 2]]


@pytest.mark.sampled(every=2)
async def test_scores_are_run_in_open_calls_of_the_cycle_alone(
    configured: Configured, tmp_path: Path
) -> None:
    nodes = [node(name, cpu="4") for name in NODES]
    objects = [*nodes, pod("a", cpu="1"), pod("b", cpu="1")]
    async with World(objects, configuration=configured("AsksForScores")) as world:
        await world.settle()
        assert world.node_of("a") and world.node_of("b")
    last = (await written(tmp_path))[-1]
    assert last[0] == "permit"
    assert last[1].startswith("no PostFilter, Reserve or Permit of AsksForScores is open in cycle ")


@pytest.mark.sampled(every=2)
async def test_run_scores_within_run_scores_is_refused(configured: Configured, tmp_path: Path) -> None:
    nodes = [node(name, cpu="4") for name in NODES]
    async with World([*nodes, pod("web", cpu="1")], configuration=configured("AsksWhileAsked")) as world:
        await world.settle()
        assert world.node_of("web")
    lines = (await asyncio.to_thread((tmp_path / "log").read_text)).splitlines()
    assert [line.partition(": ")[2] or line for line in lines[1:]] == [
        "scores are being run for AsksWhileAsked already",
        "permit SUCCESS 1",
    ]
    assert "no PostFilter, Reserve or Permit of AsksWhileAsked is open" in lines[0]
