"""Traces of attempts, as a collector receives them: over real sockets, from a host and from plugins."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from berth_host.metrics import families
from berth_host.metrics.exposition import Exposition
from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.tracing import CallTraces
from berth_sdk.wire.traces import SpanExport
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.collector import Collector, Span, tree_of
from support.hosts import World, node, pod
from support.traced_plugin import Racks

PARENT = "0af7651916cd43dd8448eb211c80319c"
EXAMPLE = Path(__file__).parents[3] / "docs/how-to/trace-example.json"
ALL = 1_000_000
CALL = "berth.plugin.v1.SchedulingService"
HOST, PLUGIN = "berth-scheduler", "berth-plugin"
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
SERVED_TREE = TREE.replace(
    f"    {HOST} INTERNAL Racks PreFilter\n",
    f"    {HOST} INTERNAL Racks PreFilter\n"
    f"      {HOST} CLIENT {CALL}/PreFilter\n"
    f"        {PLUGIN} SERVER {CALL}/PreFilter\n",
).replace(f"    {HOST} INTERNAL Racks Filter\n", "")
SPANS_OF_ONE = len(TREE.splitlines())


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting of whoever runs the tests must not decide."""
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


def configuration(address: str, place: str = "", *, rate: int | None = ALL) -> str:
    """Racks and DefaultBinder alone. `place`: fields that say where Racks is; empty: in process."""
    sampling = "" if rate is None else f", samplingRatePerMillion: {rate}"
    where = place or "inProcess: support.traced_plugin:Racks"
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n"
        "      enabled: [{name: Racks}, {name: PrioritySort}, {name: DefaultBinder}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"tracing: {{endpoint: '{address}'{sampling}}}\n"
        f"plugins:\n- {{name: Racks, {where}}}\n"
    )


def racked(name: str = "web", rack: str = "r1", traceparent: str = "") -> dict[str, Any]:
    made = pod(name, labels={"rack": rack})
    if traceparent:
        made["metadata"]["annotations"] = {"traceparent": traceparent}
    return made


NODES = [node("a", labels={"rack": "r1"}), node("b", labels={"rack": "r2"})]


async def scheduled(text: str, *pods: dict[str, Any]) -> World:
    """Run a host until it has tried `pods`, then stop it, which sends its spans."""
    async with World(NODES, configuration=text) as world:
        for made in pods:
            world.server.create(made)
        await world.settle()
    return world


async def served_trace(
    collector: Collector, folder: Path, transport: str, *pods: dict[str, Any]
) -> list[Span]:
    export = SpanExport(PLUGIN, collector.address)
    with PluginServer({"Racks": Racks}, traces=CallTraces(export.provider, export.close)) as server:
        server.listen(f"unix:{folder / 'racks.sock'}")
        place = f"endpoint: 'unix://{folder / 'racks.sock'}', transport: {transport}"
        await scheduled(configuration(collector.address, place), *pods)
    return collector.spans


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
            assert above.began_ns <= span.began_ns and span.ended_ns <= above.ended_ns, span
    root = spans[0].attributes
    assert root["k8s.pod.name"] == "web"
    assert (root["k8s.node.name"], root["berth.outcome"], root["berth.attempt"]) == ("a", "bound", 1)
    assert (root["berth.nodes"], root["berth.nodes.feasible"]) == (2, 1)
    served = next(span for span in spans if span.kind == "SERVER")
    assert served.attributes["berth.plugin"] == "Racks"
    assert served.attributes["berth.cycle_id"] == root["berth.cycle_id"]


async def test_traced_call_is_an_exemplar_of_its_duration(collector: Collector) -> None:
    world = await scheduled(configuration(collector.address), racked())
    assert world.host.metrics.has_exemplars
    text = (await Exposition(lambda: world.host.metrics.sources).open_metrics()).decode()
    read: Any = text_string_to_metric_families
    found = {
        (sample.labels["plugin"], sample.labels["extension_point"]): sample.exemplar
        for metric in read(text)
        if metric.name == families.PLUGIN_CALL_DURATION.name
        for sample in metric.samples
        if sample.exemplar is not None
    }
    calls = {tuple(span.name.split()): span for span in collector.spans if "berth.plugin" in span.attributes}
    assert found.keys() >= {("Racks", "PreFilter"), ("Racks", "Filter"), ("DefaultBinder", "Bind")}
    for call, exemplar in found.items():
        assert exemplar.labels == {"trace_id": calls[call].trace, "span_id": calls[call].id}
        assert exemplar.value == pytest.approx((calls[call].ended_ns - calls[call].began_ns) / 1e9, abs=1e-6)
    plain = (await Exposition(lambda: world.host.metrics.sources).text()).decode()
    assert f"# TYPE {families.PLUGIN_CALL_DURATION.name} histogram" in plain
    assert "trace_id" not in plain


async def test_in_process_plugin_has_the_same_spans_but_for_requests(collector: Collector) -> None:
    await scheduled(configuration(collector.address), racked())
    assert tree_of(collector.spans) == TREE


async def test_example_of_the_how_to_is_what_a_run_gives(collector: Collector, tmp_path: Path) -> None:
    await served_trace(collector, tmp_path, "framed", racked(traceparent=f"00-{PARENT}-b7ad6b7169203331-01"))

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
    sampled, unsampled = f"00-{PARENT}-b7ad6b7169203331-01", f"00-{PARENT}-b7ad6b7169203331-00"
    pods = racked("yes", traceparent=sampled), racked("no", traceparent=unsampled), racked("alone")
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
