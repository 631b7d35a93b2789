"""Spans of calls at the plugin: in a process of `berth-sdk serve`, and what they continue."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.tracing import MISSING, CallTraces, traces_of_environment
from berth_sdk.testing import make_node
from berth_sdk.wire.traces import SpanExport
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from support.collector import Collector, tree_of
from support.echo_plugin import Echo
from support.hosts import World, node, pod
from support.plugin_processes import serve_command
from support.sdk_server import ALL, TIMEOUT_S, RawHost, refused

CALL = "berth.plugin.v1.SchedulingService"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
POD = Pod(name="web", namespace="shop", uid="u1")
IN_METADATA = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
IN_MESSAGE = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME", ENDPOINT):
        monkeypatch.delenv(name, raising=False)
    with Collector() as collector:
        yield collector


@pytest.mark.slow
async def test_process_continues_the_trace_and_spans_of_the_plugin_are_below_the_call(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The child has the environment of the host.
    monkeypatch.setenv(ENDPOINT, f"http://{collector.address}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    command = list(serve_command("support.traced_plugin:Racks"))
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n"
        "      enabled: [{name: Racks}, {name: PrioritySort}, {name: DefaultBinder}]\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "tracing: {samplingRatePerMillion: 1000000}\n"
        f"plugins:\n- {{name: Racks, command: {command}}}\n"
    )
    async with World([node("a", labels={"rack": "r1"})], configuration=text) as world:
        world.server.create(pod("web", labels={"rack": "r1"}))
        await world.settle()
        assert world.node_of("web") == "a"
    spans = collector.wait_for(lambda spans: {span.service for span in spans} >= {"berth-plugin"})
    assert f"""\
      berth-scheduler CLIENT {CALL}/PreFilter
        berth-plugin SERVER {CALL}/PreFilter
          berth-plugin INTERNAL read racks
          berth-plugin INTERNAL compare racks
""" in tree_of(spans)
    assert len({span.trace for span in spans}) == 1


@pytest.fixture
def host(collector: Collector, tmp_path: Path) -> Iterator[RawHost]:
    export = SpanExport("echo", collector.address, sampler=ALWAYS_ON)
    server = PluginServer({"Echo": Echo}, traces=CallTraces(export.provider, export.close))
    host = RawHost(server.listen(f"unix:{tmp_path / 'echo.sock'}"))
    try:
        host.attach()
        host.give_nodes(make_node("n0"))
        yield host
    finally:
        host.close()
        server.stop(0.2)


def asked(host: RawHost, metadata: Any = (), **fields: Any) -> None:
    request = spb.FilterRequest(ctx=host.ctx("Echo", POD, "c1", **fields), candidates=ALL)
    host.scheduling.Filter(request, timeout=TIMEOUT_S, metadata=metadata)


def test_call_continues_its_metadata_before_its_message_and_has_no_span_without_both(
    host: RawHost, collector: Collector
) -> None:
    asked(host, [("traceparent", IN_METADATA)], traceparent=IN_MESSAGE)
    asked(host, traceparent=IN_MESSAGE)
    asked(host)
    asked(host, traceparent=IN_METADATA)
    spans = collector.wait_for(lambda spans: len(spans) >= 3)
    parents = [f"00-{span.trace}-{span.parent}-01" for span in spans]
    assert parents == [IN_METADATA, IN_MESSAGE, IN_METADATA]
    assert [span.name for span in spans] == [f"{CALL}/Filter"] * 3


def test_refused_call_has_a_span_with_an_error(host: RawHost, collector: Collector) -> None:
    request = spb.FilterRequest(ctx=host.ctx("Unknown", POD, "c1", traceparent=IN_MESSAGE), candidates=ALL)
    refused(lambda: host.scheduling.Filter(request, timeout=TIMEOUT_S))
    (span,) = collector.wait_for(bool)
    assert span.error


def test_environment_without_a_collector_turns_nothing_on(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert traces_of_environment() is None
    monkeypatch.setenv(ENDPOINT, f"http://{collector.address}")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert traces_of_environment() is None


def test_missing_packages_are_named_with_the_extra(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, f"http://{collector.address}")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)
    with caplog.at_level(logging.ERROR):
        assert traces_of_environment() is None
    assert caplog.messages == [MISSING]
    assert "berth-sdk[tracing]" in MISSING
