"""Exemplars of traced calls, on `/metrics` of the secure port."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.metrics import families
from berth_host.metrics.exposition import OPEN_METRICS, wants_open_metrics
from berth_host.model.user import User
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.collector import Collector
from support.hosts import World
from support.serving import FakeProcess, KnownUsers, served
from support.traced_hosts import NODES, configuration, racked

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""The Accept header of Prometheus 3."""
NAME = families.PLUGIN_CALL_DURATION.name


class Scrapers(KnownUsers):
    """Reviews as with the default roles, and a user with a role that allows GET on /metrics."""

    def __init__(self) -> None:
        super().__init__({"scrapes": User(name="scraper"), "other": User(name="other")})

    async def may(self, user: User, verb: str, path: str) -> bool:
        is_scrape = (user.name, verb, path) == ("scraper", "get", "/metrics")
        return is_scrape or await super().may(user, verb, path)


async def test_scraper_with_the_right_gets_the_traced_calls_as_exemplars(collector: Collector) -> None:
    text = configuration(collector.address)
    async with World(NODES, configuration=text) as world:
        world.server.create(racked())
        await world.settle()
        process = FakeProcess(world.host.configuration, world.host)
        async with served(process, Scrapers()) as port:
            asked = {"headers": {"Accept": PROMETHEUS}}
            reply = await port.ask("GET", "/metrics", token="scrapes", **asked)
            refused = [
                (await port.ask("GET", "/metrics", token=token, **asked)).status for token in ("other", "")
            ]
            plain = await port.ask("GET", "/metrics", token="scrapes", headers={"Accept": "text/plain"})
            other = await port.ask("GET", "/metrics", token="scrapes")
    assert refused == [403, 403]
    assert (reply.status, reply.content_type) == (200, OPEN_METRICS)
    read: Any = text_string_to_metric_families
    found = {
        (sample.labels["plugin"], sample.labels["extension_point"]): sample.exemplar
        for metric in read(reply.body)
        if metric.name == NAME
        for sample in metric.samples
        if sample.exemplar is not None
    }
    calls = {tuple(span.name.split()): span for span in collector.spans if "berth.plugin" in span.attributes}
    assert found.keys() >= {("Racks", "PreFilter"), ("Racks", "Filter"), ("DefaultBinder", "Bind")}
    for call, exemplar in found.items():
        assert exemplar.labels == {"trace_id": calls[call].trace, "span_id": calls[call].id}
        assert exemplar.value == pytest.approx((calls[call].ended_ns - calls[call].began_ns) / 1e9, abs=1e-6)
    for shown in (plain, other):
        assert (shown.status, str(shown.content_type).partition(";")[0]) == (200, "text/plain")
        assert f"# TYPE {NAME} histogram" in shown.body
        assert "trace_id" not in shown.body


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0", True),
        ("text/plain;q=0.5, application/openmetrics-text;q=0.4", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=much", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_accept_header_with_the_highest_quality_decides(accept: str, expected: bool) -> None:
    assert wants_open_metrics(accept) is expected
