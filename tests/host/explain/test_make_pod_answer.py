"""The answers of a running host about pods in every state, with an in-process and a served plugin."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from berth_host.cli.rendering.why import explanation_text
from berth_host.explain.make_pod_answer import pod_answer, unknown_text
from berth_host.explain.nodes_answer import nodes_answer
from berth_host.explain.pod_answer import PodAnswer
from berth_sdk.kube_object import ObjectRef
from support.holding_world import TAINT, TRANSPORTS, holding_world
from support.hosts import World, node, pod
from support.probe_plugin import Probe

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


async def answer(world: World, name: str, **more: Any) -> PodAnswer:
    found = await pod_answer(world.host, f"default/{name}", **more)
    assert found is not None
    sent = found.as_json()
    assert PodAnswer.from_json(json.loads(json.dumps(sent))).as_json() == sent, "something is lost on the way"
    return found


def steps(found: PodAnswer) -> list[str]:
    """Return the steps without the moment in which a served PreEnqueue plugin is called."""
    return [item.step for item in found.timeline if item.step != "gated"]


@each_transport
async def test_every_pod_state_is_explained_with_its_reason(transport: str, tmp_path: Path) -> None:
    async with holding_world(transport, tmp_path) as world:
        states = {}
        for name in ("web", "old", "huge", "gated", "kept-out", "held"):
            found = await answer(world, name)
            states[name] = (found.state.value, found.explanation.message)
        node_name = world.node_of("web")
        assert states == {
            "web": ("bound", f"placed on {node_name}"),
            "old": (
                "bound",
                "is on small-1; it was bound before this process started, or by another scheduler",
            ),
            "huge": ("unschedulable", world.message_of("huge")),
            "gated": ("gated", "gated: waiting for scheduling gates: example.com/approval"),
            "kept-out": ("gated", "gated: kept out of the queue by plugin Holding: no budget left"),
            "held": (
                "waitingOnPermit",
                "waits at Permit for Holding until 2026-01-01T00:01:00.000000Z, for "
                + (await answer(world, "held")).permit.node,  # type: ignore[union-attr]  # it waits
            ),
        }
        assert states["huge"][1].startswith("0/3 nodes are available: 1 node(s) had untolerated taint(s)")


@pytest.mark.slow
@each_transport
async def test_pod_that_waits_on_permit_names_plugin_node_and_time(transport: str, tmp_path: Path) -> None:
    async with holding_world(transport, tmp_path) as world:
        found = await answer(world, "held")
        assert found.permit is not None
        assert found.permit.plugins == ("Holding",)
        assert found.permit.until_s - found.answered_at_s == 60
        assert found.explanation.scores, "the node that is reserved was chosen by its scores"
        assert steps(found) == ["queued", "tried", "waiting"]
        assert found.timeline[-1].text == "waits at Permit for Holding"
        on_node = (await answer(world, "held", node=found.permit.node)).on_node
        assert on_node is not None
        assert on_node.verdict == "waiting"
        world.clock.advance(61)
        await world.settle()
        again = await answer(world, "held", attempts=5)
        assert [item["outcome"] for item in again.last_attempts][-1] == "unschedulable"
        assert steps(again)[:4] == ["queued", "tried", "waiting", "rejected"]
        assert "rejected due to timeout after waiting 1m0s at plugin Holding" in _text(again, "rejected")


async def test_pod_that_cannot_fit_has_rejections_shortages_and_the_events_that_requeue_it() -> None:
    objects = [node("a", cpu="2"), node("b", cpu="4"), pod("huge", cpu="6")]
    async with World(objects) as world:
        await world.settle()
        found = await answer(world, "huge")
        explanation = found.explanation
        assert (explanation.attempts, explanation.node_count, explanation.feasible_count) == (1, 2, 0)
        assert [(item.plugin, item.reason, item.node_names) for item in explanation.rejections] == [
            ("NodeResourcesFit", "Insufficient cpu", ("a", "b"))
        ]
        assert [item.text for item in explanation.nearest] == ["node b lacks 2 CPU", "node a lacks 4 CPU"]
        assert found.queue is not None
        assert found.queue.rejected_by == ("NodeResourcesFit",)
        assert {item.plugin for item in found.requeue_events} == {"NodeResourcesFit"}


async def test_resource_that_node_resources_fit_leaves_out_is_no_shortage() -> None:
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [a.b/gpu]}}]}]\n"
    )
    huge = pod("huge")
    huge["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "6", "a.b/gpu": "1", "a.b/nic": "1"}
    async with World([node("a", cpu="2"), huge], configuration=text) as world:
        await world.settle()
        found = await answer(world, "huge", node="a")
        assert [item.text for item in found.explanation.nearest] == ["node a lacks 1 a.b/nic and 4 CPU"]
        assert found.on_node is not None
        assert found.on_node.text.endswith("; node a lacks 1 a.b/nic and 4 CPU")
        assert [
            (item.resource, item.actions, item.asks)
            for item in found.requeue_events
            if "/" not in item.resource
        ] == [
            ("AssignedPod", ("delete", "update.scaleDown"), True),
            ("TargetPod", ("update.scaleDown",), True),
            ("Node", ("add", "update.allocatable"), True),
            ("Node", ("update.taints",), False),
        ]
        assert steps(found) == ["queued", "tried", "rejected", "unschedulable"]


async def test_timeline_tells_the_event_that_woke_the_pod_and_where_it_went_then() -> None:
    async with World([node("a", cpu="2"), pod("huge", cpu="6")]) as world:
        await world.settle()
        world.clock.advance(30)
        world.server.create(node("b", cpu="8", taints=[TAINT]))
        await world.settle()
        world.clock.advance(30)
        world.server.create(node("c", cpu="8"))
        await world.settle()
        found = await answer(world, "huge", attempts=5)
        assert (found.state.value, found.explanation.node) == ("bound", "c")
        assert [(item.step, item.cause) for item in found.timeline] == [
            ("queued", "UnscheduledPodAdd"),
            ("tried", ""),
            ("rejected", "NodeResourcesFit"),
            ("unschedulable", "ScheduleAttemptFailure"),
            ("queued", "NodeAdd"),
            ("tried", ""),
            ("rejected", "NodeResourcesFit, TaintToleration"),
            ("unschedulable", "ScheduleAttemptFailure"),
            ("queued", "NodeAdd"),
            ("tried", ""),
            ("bound", "c"),
        ]
        assert [item["attempt"] for item in found.last_attempts] == [3, 2, 1]
        assert [item["nodes"] for item in found.last_attempts] == [3, 2, 1]
        times = [item.at_s for item in found.timeline]
        assert times == sorted(times)
        assert len((await answer(world, "huge")).last_attempts) == 1


@pytest.mark.parametrize(
    ("name", "asked_node", "verdict", "text"),
    [
        ("huge", "small-0", "rejected", "NodeResourcesFit rejected small-0: Insufficient cpu; node small-0"),
        ("huge", "tainted", "rejected", "TaintToleration rejected tainted: node(s) had untolerated taint(s)"),
        ("huge", "fresh", "new", "fresh was added after the last attempt"),
        ("huge", "tainte", "unknown", "there is no node tainte: did you mean tainted?"),
        ("gated", "small-0", "untried", "the pod has not been tried yet"),
        ("web", "tainted", "rejected", "the pod went to small-0; tainted did not pass the filters"),
        ("web", "small-1", "fits", "the pod fits on small-1, which scored "),
        ("old", "small-1", "bound", "it is on small-1"),
    ],
)
async def test_explanation_names_why_the_pod_is_not_on_a_given_node(
    name: str, asked_node: str, verdict: str, text: str, tmp_path: Path
) -> None:
    async with holding_world("in_process", tmp_path) as world:
        # It helps no pod, so no pod is tried again.
        world.server.create(node("fresh", cpu="4", taints=[TAINT]))
        while world.host.objects.node("fresh") is None:
            await world.until_waiting(1)
            await asyncio.sleep(0.001)
        found = (await answer(world, name, node=asked_node)).on_node
        assert found is not None
        assert (found.node, found.verdict) == (asked_node, verdict)
        assert found.text.startswith(text)


async def test_node_that_pre_filter_left_out_names_the_plugin() -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
                ]
            }
        }
    }
    async with World([node("a", cpu="1"), node("b"), pod("web", cpu="2", affinity=affinity)]) as world:
        await world.settle()
        found = (await answer(world, "web", node="b")).on_node
        assert found is not None
        assert found.verdict == "rejected"
        assert "node(s) didn't satisfy plugin(s) [NodeAffinity]" in found.text


async def test_pod_that_waits_for_its_victims_is_nominated() -> None:
    objects = [node("a", cpu="2"), pod("low", cpu="2", priority=0), pod("high", cpu="2", priority=10)]
    slow = objects[1]
    slow["metadata"]["finalizers"] = ["example.com/slow"]
    async with World(objects[:2]) as world:
        await world.settle()
        world.server.create(objects[2])
        await world.settle()
        found = await answer(world, "high", node="a")
        assert found.nominated_node == "a"
        assert "nominated" in steps(found)
        assert found.on_node is not None
        assert (found.on_node.verdict, found.on_node.plugin) == ("nominated", "NodeResourcesFit")
        low = await answer(world, "low")
        assert low.state.value == "bound"


async def test_deleted_pod_is_remembered_with_the_pod_that_took_its_place() -> None:
    objects = [node("a", cpu="2"), pod("low", cpu="2", priority=0)]
    async with World(objects) as world:
        await world.settle()
        world.server.create(pod("high", cpu="2", priority=10))
        await world.settle()
        found = await answer(world, "low")
        assert (found.state.value, found.explanation.message) == ("deleted", "preempted by default/high")
        await world.cluster.delete("pods", ObjectRef(namespace="default", name="high"))
        await world.settle()
        assert (await answer(world, "high")).explanation.message == "is deleted"


async def test_answer_about_an_unknown_pod_names_the_reason(tmp_path: Path) -> None:
    async with holding_world("in_process", tmp_path) as world:
        assert await pod_answer(world.host, "default/elsewhere") is None
        assert await pod_answer(world.host, "shop/web") is None
        assert unknown_text(world.host, "default/elsewhere") == (
            "pod default/elsewhere waits for another scheduler: its schedulerName is 'other', this one"
            " schedules default-scheduler; ask that one, or create the pod with one of these names"
        )
        assert unknown_text(world.host, "shop/web").startswith("no pod shop/web is known here: ")


async def test_error_of_a_plugin_is_a_failed_attempt() -> None:
    sick = pod("sick")
    sick["metadata"]["annotations"] = {"probe.example.com/filter": "error:no idea"}
    async with World([node("a"), sick], [Probe]) as world:
        await world.settle()
        found = await answer(world, "sick")
        assert found.state.value in ("backoff", "queued")
        assert "failed" in steps(found)
        assert "no idea" in found.explanation.message
        assert found.queue is not None
        assert found.queue.retry_at_s is not None


async def test_node_chosen_among_equals_is_told_to_score_as_much_as_the_recorded_ones() -> None:
    # The record has the first three of five nodes with one total; the chooser takes the smallest name.
    nodes = [node(name, cpu="8") for name in ("e", "d", "c", "b", "a")]
    async with World([*nodes, pod("web", cpu="1")]) as world:
        await world.settle()
        assert world.node_of("web") == "a"
        found = await answer(world, "web", node="e")
        assert [item.node_name for item in found.explanation.scores] == ["e", "d", "c"]
        total = found.explanation.scores[0].total
        assert found.on_node is not None
        assert found.on_node.text == f"the pod fits on e, which scored {total}; a scored {total}"
        other = (await answer(world, "web", node="b")).on_node
        assert other is not None
        assert other.text == "the pod went to a; b was rejected, or scored no more than e, d, c"
        table = await nodes_answer(world.host, "default/web")
        assert table is not None
        row = next(row for row in table["nodes"] if row[0] == "a")
        assert row[-4:] == ["chosen", "", "", total]
        text = explanation_text(found.explanation)
        assert text.endswith("\n  a, which was chosen, has the same total\n")


async def test_simulation_names_no_moment_at_which_an_unschedulable_pod_is_tried_again() -> None:
    async with World([node("a", cpu="2"), pod("huge", cpu="8")]) as world:
        await world.settle()
        found = await answer(world, "huge")
        assert (found.state.value, found.queue and found.queue.retry_at_s) == ("unschedulable", None)


def _text(found: PodAnswer, step: str) -> str:
    return next(item.text for item in found.timeline if item.step == step)
