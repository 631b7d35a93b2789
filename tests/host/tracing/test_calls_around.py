"""Spans of the calls around attempts: of the queue, of the outbox, and of extenders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from support.collector import Collector, Span, tree_of
from support.hosts import World, node
from support.raw_http import answer, raw_server
from support.traced_hosts import (
    ALL,
    HOST,
    NODES,
    PARENT,
    PLUGIN,
    SAMPLED,
    UNSAMPLED,
    configuration,
    place_of,
    racked,
    scheduled,
    served_trace,
    traced_server,
)
from support.waiting import until

QUEUE = "berth.plugin.v1.QueueService"
SCHEDULING = "berth.plugin.v1.SchedulingService"
OTHER = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
DOORS: dict[str, Any] = {"plugins": ("Doors",), "sort": "ByName"}
PLACES = pytest.mark.parametrize("place", ["in process", "served"])


async def queued_and_let_in(collector: Collector, folder: Path, place: str, **more: Any) -> list[Span]:
    """Return the spans of a pod that Doors keeps out of the queue until a node is added."""
    where = "" if place == "in process" else place_of(folder)
    with traced_server(collector) as server:
        server.listen(f"unix:{folder / 'plugins.sock'}")
        text = configuration(collector.address, where, rate=None, **DOORS)
        async with World(NODES, configuration=text) as world:
            world.server.create(racked(door="closed", **more))
            await world.settle()
            assert not world.node_of("web")
            world.server.create(node("c"))
            await world.settle()
            assert world.node_of("web") == "a"
    return collector.spans


@PLACES
async def test_calls_of_the_queue_are_in_the_trace_that_the_pod_names(
    collector: Collector, tmp_path: Path, place: str
) -> None:
    spans = await queued_and_let_in(collector, tmp_path, place, traceparent=SAMPLED)
    assert {span.trace for span in spans} == {PARENT}
    of_queue = [span for span in spans if span.parent == SAMPLED[36:52] and span.name != "schedule pod"]
    assert [span.name for span in of_queue] == [
        "Doors PreEnqueue",
        "Doors QueueingHints",
        "Doors PreEnqueue",
        "ByName SortKeys",
    ]
    rejected = [span.attributes.get("berth.pods.rejected") for span in of_queue]
    assert rejected == [1, None, 0, None]
    lines = tree_of(spans).splitlines()
    for span in of_queue:
        assert span.attributes["berth.pods"] == 1
        assert span.attributes["k8s.pod.name"] == "web"
        call, at = span.name.partition(" ")[2], lines.index(f"{HOST} INTERNAL {span.name}")
        is_above = lines[at + 1 : at + 3] == [
            f"  {HOST} CLIENT {QUEUE}/{call}",
            f"    {PLUGIN} SERVER {QUEUE}/{call}",
        ]
        assert is_above == (place == "served")
    (hint,) = (span for span in of_queue if span.name == "Doors QueueingHints")
    assert hint.attributes["berth.pods.helped"] == 1
    assert hint.attributes["berth.event"] == "Node/add"


@PLACES
@pytest.mark.parametrize("traceparent", ["", UNSAMPLED])
async def test_calls_about_a_pod_that_is_not_sampled_have_no_spans(
    collector: Collector, tmp_path: Path, place: str, traceparent: str
) -> None:
    assert not await queued_and_let_in(collector, tmp_path, place, traceparent=traceparent)


async def test_rate_decides_about_requests_of_the_queue(collector: Collector, tmp_path: Path) -> None:
    spans = await served_trace(collector, tmp_path, "unary", racked(), rate=ALL, **DOORS)
    roots = [span.name for span in spans if not span.parent]
    assert sorted(roots) == ["ByName SortKeys", "Doors PreEnqueue", "schedule pod"]


async def test_call_about_several_pods_is_in_the_first_trace_and_links_to_the_others(
    collector: Collector, tmp_path: Path
) -> None:
    pods = racked("one", traceparent=SAMPLED), racked("two", traceparent=OTHER), racked("three")
    spans = await served_trace(collector, tmp_path, "unary", *pods, rate=None, **DOORS)
    for name in ("Doors PreEnqueue", "ByName SortKeys"):
        (span,) = (one for one in spans if one.name == name)
        assert (span.trace, span.parent) == (PARENT, SAMPLED[36:52])
        assert span.links == (OTHER[36:52],)
        # A batch has the pods of one turn of the event loop: "three" may come a turn later.
        assert span.attributes["berth.pods"] in (2, 3)
        assert "k8s.pod.name" not in span.attributes


async def test_messages_of_the_outbox_are_spans_of_the_attempts_that_they_are_about(
    collector: Collector, tmp_path: Path
) -> None:
    pods = racked("bound"), racked("refused", seat="taken"), racked("bound too")
    pods[2]["metadata"]["name"] = "bound-too"
    spans = await served_trace(collector, tmp_path, "framed", *pods, plugins=("Doors",))
    attempts = {span.id: span for span in spans if span.name == "schedule pod"}
    for call, outcome in (("PostBind", "bound"), ("Unreserve", "unschedulable")):
        requests = [span for span in spans if span.kind == "CLIENT" and span.name == f"{SCHEDULING}/{call}"]
        told = [attempts[one] for span in requests for one in (span.parent, *span.links)]
        expected = [span for span in attempts.values() if span.attributes["berth.outcome"] == outcome]
        assert sorted(span.id for span in told) == sorted(span.id for span in expected)
        for request in requests:
            (served,) = (span for span in spans if span.parent == request.id)
            assert (served.service, served.kind, served.name) == (PLUGIN, "SERVER", request.name)
            assert served.attributes["berth.plugin"] == "Doors"
    ends = [span for span in spans if span.name == f"{SCHEDULING}/EndCycles" and span.kind == "CLIENT"]
    assert {one for span in ends for one in (span.parent, *span.links)} <= attempts.keys()
    assert ends


async def test_reconcile_is_a_span_of_the_attempts_that_it_lists(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)
    text = configuration(collector.address, place_of(tmp_path), plugins=("Doors",))
    address = f"unix:{tmp_path / 'plugins.sock'}"
    first = traced_server(collector)
    first.listen(address)
    async with World(NODES, configuration=text) as world:
        world.server.create(racked(seat="later"))
        await world.until_waiting(1)
        await asyncio.to_thread(first.stop, 0.0)
        places = world.host.attachments.attached_places
        assert places is not None
        await until(lambda: not places.plugins["Doors"].is_attached)
        with traced_server(collector) as second:
            second.listen(address)
            await until(lambda: world.host.attachments.recoveries == 2)
            await world.settle()
    spans = collector.spans
    (request,) = (
        span for span in spans if span.name.endswith("StateService/Reconcile") and span.kind == "CLIENT"
    )
    (served,) = (span for span in spans if span.parent == request.id)
    assert (served.service, served.kind, served.name) == (PLUGIN, "SERVER", request.name)
    assert "schedule pod" in [span.name for span in spans if span.id == request.parent]


EXTENDERS = (
    "extenders:\n- {{urlPrefix: '{url}/x?token=hidden', filterVerb: filter, prioritizeVerb: prioritize,"
    " bindVerb: bind, weight: 1, nodeCacheCapable: true, httpTimeout: 30s}}\n"
)


@pytest.mark.parametrize("traceparent", [SAMPLED, ""])
async def test_requests_to_extenders_carry_the_trace_of_the_attempt(
    collector: Collector, traceparent: str
) -> None:
    def answered(request: Any) -> bytes:
        if request.line.endswith("/filter"):
            return answer(b'{"NodeNames": ["a", "b"]}')
        if request.line.endswith("/bind"):
            return answer(b"nonsense")
        return answer(b'[{"Host": "a", "Score": 1}, {"Host": "b", "Score": 2}]')

    async with raw_server(answered) as server:
        more = EXTENDERS.format(url=server.url)
        text = configuration(collector.address, rate=None, plugins=(), more=more)
        await scheduled(text, racked(traceparent=traceparent))
        sent = [request.headers.get("traceparent") for request in server.requests]
        verbs = [request.line.rpartition("/")[2] for request in server.requests]
    assert verbs[:3] == ["filter", "prioritize", "bind"]
    if not traceparent:
        assert set(sent) == {None}
        assert not collector.spans
        return
    spans = [span for span in collector.spans if span.kind == "CLIENT"]
    assert [span.name for span in spans] == [f"POST {verb}" for verb in verbs]
    assert sent == [f"00-{PARENT}-{span.id}-01" for span in spans]
    for span, verb in zip(spans, verbs, strict=True):
        assert span.attributes["http.request.method"] == "POST"
        assert span.attributes["url.full"] == f"{server.url}/x"
        assert span.attributes["berth.extender"] == f"extender {server.address}/x"
        (above,) = (one for one in collector.spans if one.id == span.parent)
        assert above.name == ("binding cycle" if verb == "bind" else "schedule pod")
