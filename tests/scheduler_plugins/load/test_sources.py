"""Sources of metrics over real HTTP: what is read, and what is said where it cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from berth_scheduler_plugins.load.http_client import SourceError
from berth_scheduler_plugins.load.samples import AVERAGE, CPU, DEVIATION, GPU, LATEST, MEMORY, Metric
from berth_scheduler_plugins.load.sources import source_of
from berth_sdk.errors import PluginArgsError
from support.json_server import serving_json

Json = dict[str, Any]
WATCHER: Json = {
    "timestamp": 105,
    "window": {"end": 100},
    "data": {
        "NodeMetricsMap": {
            "a": {
                "metrics": [{"type": "CPU", "operator": "AVG", "value": 20}, {"type": "Memory", "value": 5}]
            },
            "b": {},
        }
    },
}


def vector(*values: tuple[str, float, str]) -> tuple[int, Json]:
    result = [{"metric": {"instance": node}, "value": [at_s, value]} for node, at_s, value in values]
    return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_load_watcher_gives_metrics_and_the_end_of_the_measured_time() -> None:
    with serving_json({"/watcher": (200, WATCHER)}) as server:
        source = source_of({"watcherAddress": f"{server.address}/"})
        sample = source.read()
        source.close()
    assert sample.end_s == 100
    assert sample.nodes == {"a": [Metric(CPU, AVERAGE, 20.0), Metric(MEMORY, "", 5.0)], "b": []}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((503, "busy"), "/watcher answered with status 503"),
        ((302, "elsewhere"), "/watcher answered with status 302"),
        ((200, "<html>"), "/watcher answered no JSON"),
        ((200, ["a"]), "/watcher answered something else than metrics"),
        (
            (200, {"data": {"NodeMetricsMap": {"a": {"metrics": [{"value": "much"}]}}}}),
            "something else than metrics",
        ),
    ],
)
def test_other_answer_of_a_load_watcher_is_named(answer: tuple[int, Any], text: str) -> None:
    with serving_json({"/watcher": answer}) as server:
        source = source_of({"watcherAddress": server.address})
        with pytest.raises(SourceError, match=text):
            source.read()
        source.close()


def test_server_that_is_away_is_named() -> None:
    with serving_json({}) as server:
        pass
    source = source_of({"watcherAddress": server.address})
    with pytest.raises(SourceError, match=rf"{server.address}/watcher cannot be read: .*refused"):
        source.read()
    source.close()


def test_prometheus_is_asked_for_mean_and_deviation_of_the_named_series() -> None:
    def answer(query: dict[str, list[str]]) -> tuple[int, Json]:
        return {
            "avg_over_time(instance:node_cpu:ratio[15m])": vector(("a", 50.5, "0.25"), ("b", 50.5, "0.5")),
            "stddev_over_time(instance:node_cpu:ratio[15m])": vector(("a", 51, "0.1")),
            "avg_over_time((avg by (instance) (gpu_used))[15m:])": vector(("a", 50, "0.75")),
        }.get(query["query"][0], vector())

    provider = {"type": "Prometheus", "token": "t0ken", "series": {"gpu": "avg by (instance) (gpu_used)"}}
    with serving_json({"/api/v1/query": (200, answer)}) as server:
        source = source_of({"metricProvider": {**provider, "address": server.address}})
        sample = source.read()
        source.close()
    assert sample.end_s == 51
    assert sample.nodes == {
        "a": [Metric(CPU, AVERAGE, 25.0), Metric(CPU, DEVIATION, 10.0), Metric(GPU, AVERAGE, 75.0)],
        "b": [Metric(CPU, AVERAGE, 50.0)],
    }
    assert {headers["Authorization"] for _, _, headers in server.requests} == {"Bearer t0ken"}


def test_prometheus_without_the_series_is_told_how_to_name_others() -> None:
    with serving_json({"/api/v1/query": vector()}) as server:
        source = source_of({"metricProvider": {"type": "Prometheus", "address": server.address}})
        with pytest.raises(SourceError) as caught:
            source.read()
        source.close()
    assert str(caught.value) == (
        f"{server.address} has no series of instance:node_cpu:ratio, instance:node_memory_utilisation:ratio"
        " with the label 'instance': record them, or name others in metricProvider.series and"
        " metricProvider.nodeLabel"
    )


def test_metrics_api_gives_amounts_and_a_time_for_each_node() -> None:
    items = [
        {
            "metadata": {"name": "a"},
            "timestamp": "1970-01-01T00:01:40Z",
            "usage": {"cpu": "1500250u", "memory": "2Ki"},
        }
    ]
    path = "/apis/metrics.k8s.io/v1beta1/nodes"
    with serving_json({path: (200, {"items": items})}) as server:
        source = source_of({"metricProvider": {"address": server.address, "token": "t0ken"}})
        sample = source.read()
        source.close()
    assert sample.ends_s == {"a": 100.0}
    assert sample.nodes == {"a": [Metric(CPU, LATEST, 1501, True), Metric(MEMORY, LATEST, 2048, True)]}
    assert server.requests[0][2]["Authorization"] == "Bearer t0ken"


def test_metrics_api_without_a_service_account_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    source = source_of({})
    assert source.address == "https://[fd00::1]:443"
    with pytest.raises(SourceError, match=r"no service account .*: set metricProvider.address"):
        source.read()
    source.close()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"metricProvider": {"type": "SignalFx"}}, "invalid MetricProvider.Type, got SignalFx: use"),
        ({"metricProvider": {"type": "Prometheus"}}, "metricProvider.address: Required value"),
        ({"metricProvider": {"series": {"disk": "x"}}}, "disk: Forbidden"),
        ({"metricProvider": {"insecureSkipVerify": "no"}}, "must be true or false"),
        (
            {"watcherAddress": "watcher:2020"},
            'watcherAddress: Invalid value: "watcher:2020": must begin with',
        ),
        ({"watcherAddress": 2020}, "watcherAddress: Invalid value: 2020: must be a string"),
    ],
)
def test_source_that_cannot_be_is_refused(args: Json, text: str) -> None:
    if "series" in args.get("metricProvider", {}):
        args = {"metricProvider": {**args["metricProvider"], "type": "Prometheus", "address": "http://p"}}
    with pytest.raises(PluginArgsError, match=text):
        source_of(args)
