"""The columns that default plugins declare in `reads` are all that their answers depend on, and none is
superfluous: without any of them, the check names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

import pytest
from berth_plugins.node_affinity import NodeAffinity
from berth_plugins.node_declared_features import RESTART_ALL, NodeDeclaredFeatures
from berth_plugins.node_name import NodeName
from berth_plugins.node_ports import NodePorts
from berth_plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_plugins.node_unschedulable import NodeUnschedulable
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk import DependsOn, NodeColumn, Plugin, Pod
from berth_sdk.testing import PluginHost, check_reads, make_node, make_pod

GPU = "example.com/gpu"
NODES = (
    make_node("n0", labels={"zone": "a", "disk": "ssd"}, allocatable={GPU: 2}),
    make_node("n1", cpu=2, pods=2, taints=["t=1:NoSchedule"], features=[RESTART_ALL], labels={"zone": "b"}),
    make_node("n2", unschedulable=True, taints=["u:PreferNoSchedule"], images={"web:v1": 900 << 20}),
)
PODS = (
    make_pod("a", node="n0", cpu=1, memory="1Gi", requests={GPU: 1}),
    make_pod("b", node="n1", host_ports=[80]),
    make_pod("c", node="n1", cpu=1),
)
_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
_NAMED = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
_RULE = {"restartPolicyRules": [{"action": "RestartAllContainers"}]}
_AFFINITY = {
    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": _TERM}]}
}
ASKING: Mapping[type, tuple[Pod, ...]] = {
    NodeAffinity: (
        make_pod("selects", node_selector={"zone": "a"}),
        make_pod("prefers", affinity=_AFFINITY),
        make_pod(
            "avoids",
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NAMED]}
                }
            },
        ),
    ),
    NodeDeclaredFeatures: (make_pod("restarts", containers=[{"name": "c", **_RULE}]),),
    NodeName: (make_pod("named", node="n1"),),
    NodePorts: (make_pod("claims", host_ports=[80, 81]),),
    NodeResourcesBalancedAllocation: (
        make_pod("small", cpu="500m", memory="1Gi"),
        make_pod("gpu", requests={GPU: 1}),
    ),
    NodeResourcesFit: (make_pod("small", cpu="500m", memory="1Gi"), make_pod("gpu", requests={GPU: 1})),
    NodeUnschedulable: (make_pod("plain"),),
    TaintToleration: (make_pod("plain"), make_pod("tolerates", tolerations=["t"])),
}
ARGS: Mapping[type, Mapping[str, Any]] = {
    NodeResourcesFit: {
        "scoringStrategy": {
            "type": "LeastAllocated",
            "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory", GPU)],
        }
    },
}
DECLARED = [
    pytest.param(cls, column, id=f"{cls.__name__}-{column.name}")
    for cls in ASKING
    for column in cls.reads  # type: ignore[attr-defined]  # all of them are Plugins
]


def test_every_default_plugin_of_one_row_declares_what_it_reads() -> None:
    loaded = [entry.load() for entry in entry_points(group="berth.plugins")]
    classes = [cls for cls in loaded if cls.__module__.startswith("berth_plugins.")]
    by_row = {cls for cls in classes if cls.depends_on in (DependsOn.NODE, DependsOn.ROW)}
    assert {cls for cls in by_row if cls.reads is not None} == set(ASKING)
    # No Filter and no Score.
    assert {cls.__name__ for cls in by_row if cls.reads is None} == {"PodGroupPodsCount", "SchedulingGates"}


@pytest.mark.parametrize("cls", ASKING, ids=lambda cls: cls.__name__)
def test_answers_change_with_no_other_part_of_a_row(cls: type[Plugin]) -> None:
    check_reads(PluginHost(cls, ARGS.get(cls), nodes=NODES, pods=PODS), *ASKING[cls])


@pytest.mark.parametrize(("cls", "column"), DECLARED)
def test_column_that_a_declaration_lacks_is_named(
    cls: type[Plugin], column: NodeColumn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cls, "reads", [one for one in cls.reads or () if one is not column])
    host = PluginHost(cls, ARGS.get(cls), nodes=NODES, pods=PODS)
    named = r"NodeLabel\('zone'\)" if column is NodeColumn.LABELS else f"NodeColumn.{column.name}:"
    with pytest.raises(AssertionError, match=rf"^{cls.__name__}\.reads lacks {named}"):
        check_reads(host, *ASKING[cls])
