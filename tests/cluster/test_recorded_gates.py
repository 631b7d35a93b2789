"""The recording of the feature gates equals kube-scheduler's answers now."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from berth_bench.versus.real_servers import RealServers
from support.places import ROOT


def _tool() -> ModuleType:
    """Load the recorder, which is a script and not part of a package."""
    name = "record_feature_gates"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()
RECORDED = json.loads((ROOT / "tests/host/config/golden/feature_gates_1_37.json").read_text())


def test_gate_stages_and_defaults_equal_the_recording(servers: RealServers) -> None:
    fields = ("stage", "default")
    assert tool.shown(servers) == {
        name: {field: gate[field] for field in fields} for name, gate in RECORDED["gates"].items()
    }


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    "gate",
    ["DRAAdminAccess", "DRAPrioritizedList", "GenericWorkload", "TopologyAwareWorkloadScheduling", "KMSv1"],
)
def test_gate_answers_equal_the_recording(gate: str) -> None:
    recorded = RECORDED["gates"][gate]
    answers = [tool.answer(f"{gate}={value}") for value in ("true", "false")]
    assert [answer.error for answer in answers] == [recorded["true"], recorded["false"]]
    assert recorded["warns"] in {answer.warning for answer in answers}
