"""Traces of pod groups: a span per attempt of the group, with the attempts of its members below."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.collector import Collector, Span, tree_of
from support.groups import GROUPS, members, pod_group
from support.hosts import World, node
from support.traced_hosts import (
    HOST,
    PARENT,
    PLUGIN,
    SAMPLED,
    UNSAMPLED,
    annotated,
    configuration,
    place_of,
    scheduled,
    traced_server,
)

SCHEDULING = "berth.plugin.v1.SchedulingService"
OTHER = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
PLUGINS = ("Islands", "Racks", "GangScheduling", "NodeResourcesFit")
POINTS = "    placementGenerate: {enabled: [{name: Islands}]}\n"
GATES = {**GROUPS, "TopologyAwareWorkloadScheduling": True}
PLACES = pytest.mark.parametrize("place", ["in process", "served"])


async def traced(collector: Collector, folder: Path, place: str, *objects: Any, **more: Any) -> World:
    """Try a group with two plugins, of which Islands makes a placement of each node."""
    with traced_server(collector) as server:
        server.listen(f"unix:{folder / 'plugins.sock'}")
        where = "" if place == "in process" else place_of(folder)
        text = configuration(collector.address, where, plugins=PLUGINS, points=POINTS, **more)
        return await scheduled(text, *objects, gates=GATES)


def group(least: int = 2, traceparent: str = "") -> dict[str, Any]:
    return annotated(pod_group("ring", least=least), traceparent)


def ring(count: int = 2, **more: Any) -> list[dict[str, Any]]:
    return members("ring", count, labels={"rack": "r1"}, **more)


def outcomes(spans: list[Span]) -> dict[str, Counter[str]]:
    """Return the number of attempts by outcome, by name of the pod or of the group."""
    found: dict[str, Counter[str]] = {}
    for span in spans:
        if span.name.startswith("schedule pod"):
            name = span.attributes.get("k8s.pod.name", "group")
            found.setdefault(name, Counter())[span.attributes["berth.outcome"]] += 1
    return found


@PLACES
async def test_attempt_of_a_group_is_a_span_with_its_members(
    collector: Collector, tmp_path: Path, place: str
) -> None:
    world = await traced(collector, tmp_path, place, group(), *ring())
    assert (world.node_of("ring-0"), world.node_of("ring-1")) == ("a", "a")
    (whole,) = (span for span in collector.spans if span.name == "schedule pod group")
    assert not whole.parent
    assert whole.attributes["berth.group"] == "podgroup/default/ring"
    assert whole.attributes["berth.group.members"] == ["default/ring-0", "default/ring-1"]
    assert (whole.attributes["berth.group.size"], whole.attributes["berth.group.trials"]) == (2, 2)
    assert (whole.attributes["berth.outcome"], whole.attributes["berth.attempt"]) == ("scheduled", 1)
    spans = [span for span in collector.spans if span.trace == whole.trace]
    # Node a has the rack of the members. On node b the first of them fails, which ends the trial.
    assert outcomes(spans) == {
        "group": {"scheduled": 1},
        "ring-0": {"trial": 1, "bound": 1},
        "ring-1": {"bound": 1},
    }
    for span in spans:
        if span.name == "schedule pod":
            assert span.parent == whole.id
            assert span.attributes["berth.placement"] in ("a", "b")
    lines = tree_of(spans).splitlines()
    at = lines.index(f"  {HOST} INTERNAL PlacementGenerate")
    assert lines[at + 1] == f"    {HOST} INTERNAL Islands PlacementGenerate"
    asked = [
        f"      {HOST} CLIENT {SCHEDULING}/PlacementGenerate",
        f"        {PLUGIN} SERVER {SCHEDULING}/PlacementGenerate",
    ]
    assert (lines[at + 2 : at + 4] == asked) == (place == "served")
    called = {"Racks PreFilter", "GangScheduling PlacementFeasible", "NodeResourcesFit Filter"}
    assert called | {"DefaultBinder Bind"} <= {span.name for span in spans}


async def test_group_without_room_is_a_span_with_its_reason(collector: Collector, tmp_path: Path) -> None:
    await traced(collector, tmp_path, "in process", group(3), *ring(3, cpu="2"))
    whole = next(span for span in collector.spans if span.name == "schedule pod group")
    assert (whole.attributes["berth.outcome"], whole.error) == ("unschedulable", False)
    assert "placements are available" in whole.attributes["berth.message"]
    spans = [span for span in collector.spans if span.trace == whole.trace]
    assert outcomes(spans)["group"] == {"unschedulable": 1}
    assert {span.parent for span in spans if span.name == "schedule pod"} == {whole.id}


@pytest.mark.parametrize(
    ("of_group", "of_members", "expected"),
    [
        pytest.param(SAMPLED, ["", ""], {PARENT: 4}, id="the group names a parent"),
        pytest.param("", [SAMPLED, ""], {PARENT: 4}, id="a member names a parent"),
        pytest.param(
            SAMPLED, [SAMPLED, OTHER], {PARENT: 3, OTHER[3:35]: 1}, id="a member is of another trace"
        ),
        pytest.param("", ["", ""], {}, id="nobody names one"),
        pytest.param(UNSAMPLED, ["", ""], {}, id="the parent is not sampled"),
        pytest.param(UNSAMPLED, [OTHER, ""], {OTHER[3:35]: 4}, id="one of both is sampled"),
    ],
)
async def test_annotations_of_group_and_members_name_the_parent(
    collector: Collector, tmp_path: Path, of_group: str, of_members: list[str], expected: dict[str, int]
) -> None:
    pods = [annotated(made, its) for made, its in zip(ring(), of_members, strict=True)]
    await traced(collector, tmp_path, "in process", group(traceparent=of_group), *pods, rate=None)
    attempts = [span for span in collector.spans if span.name.startswith("schedule pod")]
    assert Counter(span.trace for span in attempts) == expected
    wholes = {span.id for span in attempts if span.name == "schedule pod group"}
    for span in attempts:
        if span.id not in wholes:
            assert {span.parent, *span.links} & wholes


async def test_trace_of_a_large_group_is_bounded(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth_host.observers.attempt_traces.MOST_CALLS", 3)
    objects = [node(f"n{number}", labels={"rack": "r2"}) for number in range(4)]
    text = configuration(collector.address, plugins=PLUGINS, points=POINTS)
    await scheduled(text, *objects, group(), *ring(), gates=GATES)
    whole = next(span for span in collector.spans if span.name == "schedule pod group")
    below = [span for span in collector.spans if span.parent == whole.id and span.name == "schedule pod"]
    assert Counter(span.attributes["berth.outcome"] for span in below) == {"bound": 2, "trial": 1}
    assert whole.attributes["berth.calls_without_span"] > 0
