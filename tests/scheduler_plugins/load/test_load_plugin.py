"""`LoadPlugin`: the reasons for nodes that cannot be scored, and the pods placed since the sample."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from berth_scheduler_plugins.load.load_plugin import LoadPlugin
from berth_scheduler_plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from berth_scheduler_plugins.low_risk_over_commitment import LowRiskOverCommitment
from berth_scheduler_plugins.target_load_packing import TargetLoadPacking
from berth_sdk.errors import PluginArgsError
from berth_sdk.node import Node
from berth_sdk.rfc3339 import format_time
from berth_sdk.status import Code
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.asking import NO_HANDLE
from support.json_server import JsonServer, serving_json

PLUGINS = (TargetLoadPacking, LoadVariationRiskBalancing, LowRiskOverCommitment)
GPU = "example.com/gpu"
NODES = [make_node(name, cpu=4, memory="8Gi", allocatable={GPU: 8}) for name in ("a", "b")]
WEB = make_pod("web", cpu=1, memory="1Gi", requests={GPU: 1})
each_plugin = pytest.mark.parametrize("plugin", PLUGINS)


def metrics(nodes: Mapping[str, Mapping[str, float]], age_s: float = 0) -> tuple[int, Any]:
    """Return a load-watcher's answer: the average by type, in percent, of each node."""
    listed = {
        name: {"metrics": [{"type": kind, "operator": "AVG", "value": value} for kind, value in node.items()]}
        for name, node in nodes.items()
    }
    return 200, {"window": {"end": time.time() - age_s}, "data": {"NodeMetricsMap": listed}}


BOTH: Mapping[str, Mapping[str, float]] = {"a": {"CPU": 20, "Memory": 20}, "b": {"CPU": 20, "Memory": 20}}


@pytest.fixture
def server() -> Iterator[JsonServer]:
    with serving_json({"/watcher": metrics(BOTH)}) as served:
        yield served


def hosted(
    plugin: type[LoadPlugin], server: JsonServer, nodes: list[Node] = NODES, **args: Any
) -> PluginHost:
    return PluginHost(plugin, {"watcherAddress": server.address, **args}, nodes=nodes)


def refresh(host: PluginHost) -> None:
    plugin = host.runtime.plugin
    assert isinstance(plugin, LoadPlugin)
    plugin.sample.refresh()


def said(host: PluginHost) -> tuple[Code, str]:
    status = host.attempt(WEB).pre_score()
    return status.code, status.message


@each_plugin
def test_node_without_metrics_scores_0_and_is_named(plugin: type[LoadPlugin], server: JsonServer) -> None:
    server.answers["/watcher"] = metrics({"b": BOTH["b"]})
    host = hosted(plugin, server)
    assert said(host) == (Code.SUCCESS, f"1 node has no metrics at {server.address}, and score 0: a")
    scores = host.attempt(WEB).score()
    assert scores["a"] == 0
    assert scores["b"] > 0
    host.close()


@each_plugin
def test_server_that_is_away_is_named_until_it_is_back(plugin: type[LoadPlugin], server: JsonServer) -> None:
    server.answers["/watcher"] = (500, "")
    host = hosted(plugin, server)
    assert said(host) == (
        Code.SKIP,
        f"no metrics yet; {server.address}/watcher answered with status 500; no node is scored",
    )
    assert host.attempt(WEB).score() == {}
    server.answers["/watcher"] = metrics(BOTH)
    refresh(host)
    assert said(host) == (Code.SUCCESS, "")
    host.close()


@each_plugin
def test_sample_that_is_too_old_is_not_used(plugin: type[LoadPlugin], server: JsonServer) -> None:
    server.answers["/watcher"] = metrics(BOTH, age_s=1000)
    host = hosted(plugin, server)
    code, text = said(host)
    assert code is Code.SKIP
    assert re.fullmatch(
        f"the metrics of {server.address} are [0-9]+ s old, and maxMetricsAgeSeconds is 300;"
        " no node is scored",
        text,
    )
    host.close()
    patient = hosted(plugin, server, maxMetricsAgeSeconds=5000)
    assert said(patient) == (Code.SUCCESS, "")
    patient.close()


@each_plugin
def test_pods_that_the_sample_does_not_show_count(plugin: type[LoadPlugin], server: JsonServer) -> None:
    host = (
        hosted(plugin, server, targetUtilization=10)
        if plugin is TargetLoadPacking
        else hosted(plugin, server)
    )
    alike = host.attempt(WEB).score()
    assert alike["a"] == alike["b"]
    long_ago = {"startTime": format_time(time.time() - 3600)}
    host.put_pod(make_pod("old", cpu=1, memory="2Gi", node="a", status=long_ago))
    host.put_pod(make_pod("new", cpu=1, memory="2Gi", node="b"))
    scores = host.attempt(WEB).score()
    assert scores["b"] < scores["a"]
    host.close()


@pytest.mark.parametrize("plugin", [TargetLoadPacking, LoadVariationRiskBalancing])
def test_utilisation_of_gpus_counts_for_pods_that_want_some(
    plugin: type[LoadPlugin], server: JsonServer
) -> None:
    server.answers["/watcher"] = metrics({"a": {**BOTH["a"], "GPU": 90}, "b": {**BOTH["b"], "GPU": 30}})
    plain = hosted(plugin, server)
    scores = plain.attempt(WEB).score()
    assert scores["a"] == scores["b"]
    plain.close()
    host = hosted(plugin, server, gpuResource=GPU)
    scores = host.attempt(WEB).score()
    assert scores["a"] < scores["b"]
    scores = host.attempt(make_pod("plain", cpu=1, memory="1Gi")).score()
    assert scores["a"] == scores["b"]
    host.close()


def test_no_start_time_and_an_amount_are_read_as_they_are(server: JsonServer) -> None:
    path = "/apis/metrics.k8s.io/v1beta1/nodes"
    items = [
        {"metadata": {"name": name}, "timestamp": format_time(time.time() - age_s), "usage": usage}
        for name, age_s, usage in (
            ("a", 0, {"cpu": "3", "memory": "6Gi"}),
            ("b", 900, {"cpu": "1", "memory": "1Gi"}),
        )
    ]
    server.answers[path] = (200, {"items": items})
    provider = {"type": "KubernetesMetricsServer", "address": server.address, "token": "t"}
    host = PluginHost(LoadVariationRiskBalancing, {"metricProvider": provider}, nodes=NODES)
    assert said(host) == (Code.SUCCESS, f"1 node has no metrics at {server.address}, and score 0: b")
    # cpu: 3 of 4 and 1 more; memory: 7 of 8. No deviation.
    assert host.attempt(WEB).score() == {"a": 50, "b": 0}
    host.close()


@each_plugin
@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"maxMetricsAgeSeconds": 0}, "maxMetricsAgeSeconds: Invalid value: 0.0: must be greater than 0"),
        ({"target": 3}, "target: Forbidden: is no argument"),
        ({"gpuResource": 3}, "gpuResource: Invalid value: 3: must be a string"),
    ],
)
def test_invalid_arguments_are_refused(plugin: type[LoadPlugin], args: dict[str, Any], text: str) -> None:
    with pytest.raises(PluginArgsError, match=text):
        plugin({"watcherAddress": "http://127.0.0.1:9", **args}, NO_HANDLE)


def test_target_above_100_is_refused() -> None:
    with pytest.raises(PluginArgsError, match="targetUtilization: Invalid value: 120: must be at most 100"):
        TargetLoadPacking({"watcherAddress": "http://127.0.0.1:9", "targetUtilization": 120}, NO_HANDLE)
