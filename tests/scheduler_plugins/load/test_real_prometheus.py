"""A real Prometheus, which scrapes a hot node and a cool one: the hot node gets nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from berth_bench.versus.free_ports import free_port
from berth_scheduler_plugins.load.load_plugin import LoadPlugin
from berth_scheduler_plugins.load.samples import Sample
from berth_scheduler_plugins.load_variation_risk_balancing import LoadVariationRiskBalancing
from berth_sdk.status import Code
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.debian_prometheus import program
from support.json_server import serving_json
from support.waiting import wait_until

LOADS = {"hot": 0.9, "cool": 0.1}
WEB = make_pod("web", cpu=1, memory="1Gi")
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: nodes
  honor_labels: true
  static_configs: [{{targets: ["{target}"]}}]
"""


def exposed(loads: dict[str, float]) -> str:
    lines = [
        f'{name}{{instance="{node}"}} {load}'
        for name in ("instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio")
        for node, load in loads.items()
    ]
    return "".join(f"{line}\n" for line in lines)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Run Prometheus, which scrapes a target, until the block ends; yield its address."""
    tool = program("prometheus")
    assert tool is not None, "no prometheus, and CI must run this: `make envtest` brings it on Debian"
    config = folder / "prometheus.yml"
    config.write_text(CONFIGURATION.format(target=target.removeprefix("http://")))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            str(tool),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=error",
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def refreshed(host: PluginHost) -> Sample | None:
    plugin = host.runtime.plugin
    assert isinstance(plugin, LoadPlugin)
    return plugin.sample.refresh()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(
    program("prometheus") is None and not os.environ.get("CI"),
    reason="no prometheus: `make envtest` brings it on Debian",
)
def test_hot_node_scores_lower_and_a_stopped_prometheus_is_named(tmp_path: Path) -> None:
    nodes = [make_node(name) for name in LOADS]
    with serving_json({"/metrics": (200, exposed(LOADS))}) as server:
        with prometheus(tmp_path, server.address) as address:
            args = {"metricProvider": {"type": "Prometheus", "address": address}}
            host = PluginHost(LoadVariationRiskBalancing, args, nodes=nodes)
            wait_until(lambda: refreshed(host), "Prometheus has the load of the nodes")
            assert host.attempt(WEB).pre_score().message == ""
            scores = host.attempt(WEB).score()
            assert scores["hot"] < 60 < scores["cool"]
        # The last sample is used until it is too old; a new process has none.
        assert refreshed(host) is not None
        host.close()
        host = PluginHost(LoadVariationRiskBalancing, args, nodes=nodes)
        status = host.attempt(WEB).pre_score()
        assert status.code is Code.SKIP
        assert status.message.startswith(f"no metrics yet; {address}/api/v1/query cannot be read: ")
        host.close()
