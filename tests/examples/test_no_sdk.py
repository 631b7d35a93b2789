"""The plugin without the SDK: small, on stubs alone, and a plugin like any other."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import yaml
from berth_host.cli.main import berth
from click.testing import CliRunner
from support.commands import answer
from support.examples import EXAMPLES
from support.manifest_objects import node_object, pod_object

SOURCE = EXAMPLES / "no_sdk" / "maintenance.py"
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {filter: {enabled: [{name: Maintenance}]}}
  pluginConfig: [{name: Maintenance, args: {nodes: [shut]}}]
"""


def test_plugin_without_sdk_that_conforms_has_at_most_eighty_five_lines() -> None:
    assert len(SOURCE.read_text().splitlines()) <= 85


def test_plugin_without_sdk_imports_only_stubs_grpc_and_the_standard_library() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    assert all(name == "grpc" or name.startswith("berth_sdk.plugin.v1") for name in foreign)


def test_maintenance_keeps_pods_off_its_nodes(tmp_path: Path) -> None:
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "plugins": [{"name": "Maintenance", "command": [sys.executable, str(SOURCE)]}],
    }
    (tmp_path / "config.yaml").write_text(f"{CONFIG}---\n{yaml.safe_dump(own)}")
    big = pod_object("big", cpu="8")
    objects = [node_object("shut", cpu="16"), node_object("open"), pod_object("web"), big]
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
    arguments = ["-f", str(tmp_path / "cluster.yaml"), "--config", str(tmp_path / "config.yaml")]
    result = CliRunner().invoke(berth, ["simulate", *arguments, "-o", "json"], catch_exceptions=False)
    got = answer(result)
    assert "Maintenance" not in result.stderr
    assert [(item["pod"], item["node"]) for item in got["placements"]] == [("default/web", "open")]
    (pending,) = got["pending"]
    filtered, _, _ = pending["message"].partition(" preemption:")
    assert filtered == "0/2 nodes are available: 1 Insufficient cpu, 1 under maintenance."
