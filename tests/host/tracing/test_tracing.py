"""Traces of attempts, as a collector receives them: over real sockets, from a host and from plugins."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from berth_host.metrics import families
from support.collector import Collector, Span, tree_of
from support.traced_hosts import (
    ALL,
    HOST,
    PARENT,
    PLUGIN,
    SAMPLED,
    UNSAMPLED,
    configuration,
    racked,
    scheduled,
    served_trace,
)

EXAMPLE = Path(__file__).parents[3] / "docs/how-to/trace-example.json"
CALL = "berth.plugin.v1.SchedulingService"
TREE = f"""\
{HOST} INTERNAL schedule pod
  {HOST} INTERNAL PreFilter
    {HOST} INTERNAL Racks PreFilter
  {HOST} INTERNAL Filter
    {HOST} INTERNAL Racks Filter
  {HOST} INTERNAL Reserve
  {HOST} INTERNAL Permit
  {HOST} INTERNAL binding cycle
    {HOST} INTERNAL PreBindPreFlight
    {HOST} INTERNAL Bind
      {HOST} INTERNAL DefaultBinder Bind
    {HOST} INTERNAL write Binding
    {HOST} INTERNAL PostBind"""
# The verdicts of Filter came with the answer to PreFilter.
SERVED_TREE = (
    TREE.replace(
        f"    {HOST} INTERNAL Racks PreFilter\n",
        f"    {HOST} INTERNAL Racks PreFilter\n"
        f"      {HOST} CLIENT {CALL}/PreFilter\n"
        f"        {PLUGIN} SERVER {CALL}/PreFilter\n",
    ).replace(f"    {HOST} INTERNAL Racks Filter\n", "")
    + f"""
  {HOST} CLIENT {CALL}/EndCycles
    {PLUGIN} SERVER {CALL}/EndCycles"""
)
SPANS_OF_ONE = len(TREE.splitlines())


def first_trace(spans: list[Span]) -> list[Span]:
    """Return the spans of the first attempt: a pod that finds no node is tried again."""
    return [span for span in spans if span.trace == spans[0].trace]


@pytest.mark.parametrize("transport", ["framed", "unary"])
async def test_pod_through_a_served_plugin_is_one_trace_with_the_spans_of_host_and_plugin(
    collector: Collector, tmp_path: Path, transport: str
) -> None:
    spans = await served_trace(collector, tmp_path, transport, racked())
    assert tree_of(spans) == SERVED_TREE
    assert len({span.trace for span in spans}) == 1
    assert not [span for span in spans if span.error]
    by_id = {span.id: span for span in spans}
    for span in spans:
        assert span.began_ns <= span.ended_ns
        above = by_id.get(span.parent)
        if above is not None and above.service == span.service:
            # The end of the cycle is told after the attempt.
            is_within = span.ended_ns <= above.ended_ns or span.name.endswith("/EndCycles")
            assert above.began_ns <= span.began_ns and is_within, span
    root = spans[0].attributes
    assert root["k8s.pod.name"] == "web"
    assert (root["k8s.node.name"], root["berth.outcome"], root["berth.attempt"]) == ("a", "bound", 1)
    assert (root["berth.nodes"], root["berth.nodes.feasible"]) == (2, 1)
    served = next(span for span in spans if span.kind == "SERVER")
    assert served.attributes["berth.plugin"] == "Racks"
    assert served.attributes["berth.cycle_id"] == root["berth.cycle_id"]


async def test_in_process_plugin_has_the_same_spans_but_for_requests(collector: Collector) -> None:
    await scheduled(configuration(collector.address), racked())
    assert tree_of(collector.spans) == TREE


async def test_example_of_the_how_to_is_what_a_run_gives(collector: Collector, tmp_path: Path) -> None:
    await served_trace(collector, tmp_path, "framed", racked(traceparent=SAMPLED))

    def shape(document: dict[str, Any]) -> list[tuple[str, str, str, list[str]]]:
        spans = [
            (span, resource)
            for resource in document["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]
        names = {span["spanId"]: span["name"] for span, _ in spans}
        return sorted(
            (
                span["name"],
                span["kind"],
                names.get(span.get("parentSpanId", ""), ""),
                [item["key"] for item in span.get("attributes", [])],
            )
            for span, _ in spans
        )

    assert shape(json.loads(EXAMPLE.read_text(encoding="utf-8"))) == shape(collector.as_json())


async def test_annotation_of_the_pod_names_the_parent(collector: Collector) -> None:
    text = configuration(collector.address, rate=None)
    pods = racked("yes", traceparent=SAMPLED), racked("no", traceparent=UNSAMPLED), racked("alone")
    await scheduled(text, *pods, racked("bad", traceparent="00-nonsense"))
    (root,) = (span for span in collector.spans if span.name == "schedule pod")
    assert (root.trace, root.parent, root.attributes["k8s.pod.name"]) == (PARENT, "b7ad6b7169203331", "yes")


@pytest.mark.parametrize(("rate", "expected"), [(0, 0), (ALL, 3)])
async def test_rate_decides_about_pods_without_a_parent(
    collector: Collector, rate: int, expected: int
) -> None:
    text = configuration(collector.address, rate=rate)
    await scheduled(text, *(racked(f"pod-{number}") for number in range(3)))
    assert len({span.trace for span in collector.spans}) == expected


async def test_sampler_of_the_environment_decides_where_no_rate_is_set(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-scheduler")
    await scheduled(configuration(collector.address, rate=None), racked())
    assert {span.service for span in collector.spans} == {"my-scheduler"}


async def test_environment_turns_tracing_off(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    world = await scheduled(configuration(collector.address), racked())
    assert world.node_of("web") == "a"
    assert world.host.tracing is None
    assert not collector.spans


async def test_unschedulable_pod_is_a_trace_with_its_reason(collector: Collector) -> None:
    await scheduled(configuration(collector.address), racked(rack="r9"))
    root, *others = first_trace(collector.spans)
    assert (root.attributes["berth.outcome"], root.error) == ("unschedulable", False)
    assert root.attributes["berth.message"].startswith("0/2 nodes are available: 2 another rack.")
    (step,) = (span for span in others if span.name == "Filter")
    assert step.attributes["berth.status"] == "UNSCHEDULABLE"
    assert "binding cycle" not in {span.name for span in others}


async def test_plugin_that_fails_has_spans_with_errors_on_both_sides(
    collector: Collector, tmp_path: Path
) -> None:
    spans = await served_trace(collector, tmp_path, "unary", racked(rack="broken"))
    spans = first_trace(spans)
    failed = [(span.service, span.name) for span in spans if span.error]
    assert failed == [
        (HOST, "schedule pod"),
        (HOST, "Filter"),
        (HOST, "Racks Filter"),
        (HOST, f"{CALL}/Filter"),
        (PLUGIN, f"{CALL}/Filter"),
    ]
    assert spans[0].attributes["berth.outcome"] == "error"


async def test_collector_that_does_not_answer_costs_one_warning_and_the_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        with structlog.testing.capture_logs() as logs:
            world = await scheduled(configuration(address), *(racked(f"pod-{number}") for number in range(3)))
    assert [world.node_of(f"pod-{number}") for number in range(3)] == ["a"] * 3
    warnings = [entry for entry in logs if entry["event"] == "tracing.spans_dropped"]
    assert [(entry["log_level"], entry["endpoint"]) for entry in warnings] == [("warning", address)]
    assert world.host.tracing is not None
    counts = dict(world.host.tracing.counts())
    assert counts[("sent",)] == 0
    assert counts[("dropped",)] == 3 * SPANS_OF_ONE
    shown = next(one for one in world.host.metrics.sources if one.family.name == families.TRACE_SPANS.name)
    metric = shown.collect()
    assert metric is not None
    assert {sample.labels["result"]: sample.value for sample in metric.samples} == {
        "sent": 0,
        "dropped": counts[("dropped",)],
    }


async def test_full_queue_drops_spans_and_counts_them(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with structlog.testing.capture_logs() as logs:
        world = await scheduled(configuration(collector.address), *(racked(f"pod-{n}") for n in range(20)))
    assert world.host.tracing is not None
    counts = dict(world.host.tracing.counts())
    assert counts[("sent",)] == len(collector.spans)
    assert counts[("sent",)] + counts[("dropped",)] == 20 * SPANS_OF_ONE
    assert counts[("dropped",)] > 0
    said = next(entry["error"] for entry in logs if entry["event"] == "tracing.spans_dropped")
    assert said == "the queue of spans is full: it takes spans too slowly"


def test_host_without_tracing_does_not_import_opentelemetry() -> None:
    code = (
        "import sys, berth_host.app, berth_sdk.serve.server, berth_sdk.cli.serve;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
