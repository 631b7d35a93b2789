"""`berth why` says which metrics a load-aware plugin lacks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from berth_host.cli.main import berth
from berth_sdk.testing.builders import node_object, pod_object
from click.testing import CliRunner
from support.json_server import serving_json
from support.plugin_processes import serve_command

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{multiPoint: {{enabled: [{{name: TargetLoadPacking}}]}}}}
  pluginConfig:
  - name: TargetLoadPacking
    args: {{watcherAddress: "{address}"}}
"""
SERVED = """---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: TargetLoadPacking
  command: {command}
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", pytest.param(SERVED, marks=pytest.mark.long)], ids=["here", "served"])
def test_why_shows_the_server_that_does_not_answer(tmp_path: Path, more: str) -> None:
    items = [node_object("a"), node_object("b"), pod_object("web", cpu=1)]
    cluster = tmp_path / "cluster.json"
    cluster.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": [
                    {**items[0], "apiVersion": "v1", "kind": "Node"},
                    {**items[1], "apiVersion": "v1", "kind": "Node"},
                    items[2],
                ],
            }
        )
    )
    config = tmp_path / "scheduler.yaml"
    command = json.dumps(serve_command("TargetLoadPacking"))
    with serving_json({"/watcher": (503, "busy")}) as server:
        config.write_text(CONFIGURATION.format(address=server.address) + more.format(command=command))
        done = CliRunner().invoke(berth, ["why", "web", "-f", str(cluster), "--config", str(config)])
    assert done.exit_code == 0, done.output
    # In a process of its own, the plugin may give up before a busy machine answers.
    answer = " cannot be read: .*" if more else " answered with status 503"
    note = f"note: TargetLoadPacking: no metrics yet; {server.address}/watcher"
    assert re.search(f"{note}({answer}| answered with status 503); no node is scored\n", done.output)
