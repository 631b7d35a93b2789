"""The conformance kit passes plugins of several shapes that the SDK serves, and the one without the SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berth_plugins.node_name import NodeName
from berth_sdk import Need, NodeMode, NodeTable, NodeView, PermitResult, Plugin, Pod, PodSensitivity, Status
from berth_sdk.cli.loading import load_plugins
from berth_sdk.conformance import run
from berth_sdk.conformance.host import Target
from berth_sdk.cycle_state import CycleState
from berth_sdk.serve.server import PluginServer
from numpy.typing import NDArray
from support.by_arguments import ByArguments
from support.examples import EXAMPLES
from support.kit import failures
from support.waiting import PATIENCE_S


class ScoresBits(Plugin):
    """Filter and Score over the table, in SNAPSHOT mode, with the pods."""

    needs = (Need.nodes(), Need.pods())
    pod_sensitivity = PodSensitivity.NODE

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return Status.success() if node.pod_count < 1 else Status.unschedulable("taken")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return np.minimum(nodes.allocatable("cpu") // 100, 100)


class JudgesNames(Plugin):
    """NAMES mode, and the whole pod."""

    node_mode = NodeMode.NAMES
    needs = (Need.whole_pod(),)

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        assert pod.object is not None
        return Status.success()


class Binds(Plugin):
    """Every call from Reserve to PostBind."""

    def __init__(self, args: Mapping[str, Any], handle: Any) -> None:
        super().__init__(args, handle)
        self.held: set[str] = set()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.held.add(state.cycle_id)
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.held.discard(state.cycle_id)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        return PermitResult.wait(30.0)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[Any]) -> Status:
        return Status.success()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.held.discard(state.cycle_id)


class BindsBits(Binds):
    """The same beside a Filter over the table, in SNAPSHOT mode, without the pods."""

    needs = (Need.nodes(),)

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return Status.success() if node.pod_count < 100 else Status.unschedulable("taken")


class BindsWithMemory(BindsBits):
    """The same with what PreFilter keeps of the cycle, which a Reserve after its Unreserve finds no more."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        state.write("of PreFilter", pod.name)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        assert state.read("of PreFilter") == pod.name
        return super().reserve(state, pod, node_name)


def report_of(address: str, args: dict[str, Any] | None = None) -> run.Report:
    target = Target(address, args=args)
    (subject,) = (run.configured(target, one) for one in run.subjects(run.hello_of(target)))
    cases = [one for one in run.chosen(subject, "group") if one.id != "memory.cycles"]
    return run.run(target, subject, cases, limit_s=PATIENCE_S)


@pytest.mark.long
@pytest.mark.parametrize(
    "plugin",
    [ScoresBits, JudgesNames, Binds, BindsBits, BindsWithMemory, NodeName],
    ids=lambda plugin: plugin.__name__,
)
def test_kit_passes_what_the_sdk_serves(plugin: type, tmp_path: Path) -> None:
    server = PluginServer({plugin.__name__: plugin})
    try:
        report = report_of(server.listen(f"unix:{tmp_path / 'kit.sock'}"))
    finally:
        server.stop(0.2)
    assert failures(report) == {}
    assert report.conforms


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["Coscheduling", "DynamicResources", "PrioritySort", "SchedulingGates", "VolumeBinding"]
)
def test_kit_passes_default_plugins_with_a_queue_objects_and_reservations(name: str, tmp_path: Path) -> None:
    server = PluginServer(load_plugins([name]))
    try:
        report = report_of(server.listen(f"unix:{tmp_path / 'kit.sock'}"))
    finally:
        server.stop(0.2)
    assert failures(report) == {}
    assert report.conforms


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("args", "mode"),
    [({}, NodeMode.NAMES), ({"mode": "SNAPSHOT", "claim": "gold"}, NodeMode.SNAPSHOT)],
    ids=["handshake", "arguments"],
)
def test_kit_judges_a_plugin_by_what_it_declares_with_its_arguments(
    args: dict[str, Any], mode: NodeMode, tmp_path: Path
) -> None:
    server = PluginServer({"ByArguments": ByArguments})
    try:
        address = server.listen(f"unix:{tmp_path / 'kit.sock'}")
        target = Target(address, args=args)
        (subject,) = run.subjects(run.hello_of(target))
        assert run.configured(target, subject).plugin.node_mode == mode.value
        report = report_of(address, args)
    finally:
        server.stop(0.2)
    assert failures(report) == {}
    assert report.conforms


def test_kit_passes_the_plugin_without_the_sdk(tmp_path: Path) -> None:
    source = EXAMPLES / "no_sdk" / "maintenance.py"
    process = subprocess.Popen(
        [sys.executable, str(source)],
        env={**os.environ, "BERTH_PLUGIN_ENDPOINT": f"unix:{tmp_path / 'kit.sock'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        report = report_of(address, {"nodes": ["kit-node-2"]})
        process.stdin.close()
    assert failures(report) == {}
    assert report.conforms
