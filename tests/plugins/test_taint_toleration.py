"""TaintToleration: verdicts, scores and hints; and the matching rule itself."""

from __future__ import annotations

from typing import Any

import pytest
from berth_plugins.objects.tolerations import tolerates
from berth_plugins.taint_toleration import TaintToleration
from berth_sdk.errors import PluginArgsError
from berth_sdk.events import ClusterEvent
from berth_sdk.node import Node, Taint
from berth_sdk.pod import Toleration
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import NO_HANDLE, Ask, Plug

PLUG = Plug(TaintToleration)
COMPARING = Plug(TaintToleration, {"featureGates": {"TaintTolerationComparisonOperators": True}})
REJECTED = Status.unresolvable("node(s) had untolerated taint(s)")
GPU = Taint("dedicated", "gpu", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "taint", "want"),
    [
        pytest.param(Toleration("dedicated", "Equal", "gpu", "NoSchedule"), GPU, True, id="exact"),
        pytest.param(Toleration("dedicated", "", "gpu", "NoSchedule"), GPU, True, id="no operator is Equal"),
        pytest.param(Toleration("dedicated", "Equal", "cpu", "NoSchedule"), GPU, False, id="other value"),
        pytest.param(Toleration("dedicated", "Exists", "", ""), GPU, True, id="every effect"),
        pytest.param(Toleration("dedicated", "Exists", "", "NoExecute"), GPU, False, id="other effect"),
        pytest.param(Toleration("other", "Exists", "", ""), GPU, False, id="other key"),
        pytest.param(Toleration("", "Exists", "", ""), GPU, True, id="everything"),
        pytest.param(Toleration("", "Equal", "gpu", ""), GPU, True, id="empty key compares values"),
        pytest.param(Toleration("dedicated", "Equals", "gpu", ""), GPU, False, id="unknown operator"),
        pytest.param(Toleration("dedicated", "Gt", "1", ""), GPU, False, id="comparison is off"),
    ],
)
def test_toleration_covers_a_taint_by_key_operator_value_and_effect(
    toleration: Toleration, taint: Taint, want: bool
) -> None:
    assert tolerates(toleration, taint) is want


@pytest.mark.parametrize(
    ("operator", "bound", "value", "want"),
    [
        ("Lt", "10", "9", True),
        ("Lt", "10", "10", False),
        ("Gt", "10", "11", True),
        ("Gt", "10", "10", False),
        ("Gt", "-5", "-4", True),
        ("Gt", "010", "11", False),
        ("Gt", "10", "+11", False),
        ("Lt", "0", "-0", False),
        ("Gt", "10", "eleven", False),
        ("Gt", "9223372036854775808", "1", False),
    ],
)
def test_comparison_reads_plain_decimal_integers(operator: str, bound: str, value: str, want: bool) -> None:
    toleration = Toleration("level", operator, bound)
    assert tolerates(toleration, Taint("level", value, "NoSchedule"), compare=True) is want


async def test_hard_taints_need_tolerations_and_soft_ones_do_not(ask: Ask) -> None:
    nodes = make_table(
        [
            make_node("a"),
            make_node("b", taints=["dedicated=gpu:NoSchedule"]),
            make_node("c", taints=["dedicated=gpu:NoSchedule", "broken:NoExecute"]),
            make_node("d", taints=["slow:PreferNoSchedule"]),
        ]
    )
    ok = Status.success()
    assert await ask.filter(PLUG, make_pod("web"), nodes) == [ok, REJECTED, REJECTED, ok]
    pod = make_pod("web", tolerations=["dedicated=gpu:NoSchedule"])
    assert await ask.filter(PLUG, pod, nodes) == [ok, ok, REJECTED, ok]


async def test_comparing_tolerations_count_only_with_the_gate(ask: Ask) -> None:
    nodes = make_table([make_node("a", taints=["level=7:NoSchedule"])])
    pod = make_pod("web", tolerations=[{"key": "level", "operator": "Lt", "value": "8"}])
    assert await ask.filter(PLUG, pod, nodes) == [REJECTED]
    assert await ask.filter(COMPARING, pod, nodes) == [Status.success()]


async def test_score_counts_untolerated_soft_taints(ask: Ask) -> None:
    nodes = make_table(
        [
            make_node("a"),
            make_node("b", taints=["x:PreferNoSchedule"]),
            make_node("c", taints=["x:PreferNoSchedule", "y:PreferNoSchedule", "z:NoSchedule"]),
            make_node("d", taints=["y=1:PreferNoSchedule", "y=1:PreferNoSchedule"]),
        ]
    )
    assert await ask.score(PLUG, make_pod("web"), nodes) == [0, 1, 2, 2]
    # Tolerations of another effect say nothing about soft taints, those of every effect do.
    pod = make_pod("web", tolerations=["x:NoSchedule", "y"])
    assert await ask.score(PLUG, pod, nodes) == [0, 1, 1, 0]


async def test_all_nodes_pass_in_a_cluster_without_taints(ask: Ask) -> None:
    nodes = make_table([make_node("a"), make_node("b")])
    assert await ask.filter(PLUG, make_pod("web"), nodes) == [Status.success()] * 2
    assert await ask.score(PLUG, make_pod("web"), nodes) == [0, 0]


TAINTED = make_node("a", taints=["x:NoSchedule"])


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, make_node("a"), True, id="untainted node added"),
        pytest.param(None, TAINTED, False, id="tainted node added"),
        pytest.param(TAINTED, make_node("a"), True, id="taint removed"),
        pytest.param(make_node("a"), make_node("a", taints=["y:PreferNoSchedule"]), False, id="as before"),
        pytest.param(TAINTED, make_node("a", taints=["z:NoExecute"]), False, id="another hard taint"),
    ],
)
async def test_hint_for_changes_of_nodes(ask: Ask, old: Node | None, new: Node, want: bool) -> None:
    event = ClusterEvent(resource="Node", action="update.taints", old=old, new=new)
    assert await ask.hint(PLUG, event, make_pod("web")) is want


async def test_hint_for_the_pods_own_tolerations(ask: Ask) -> None:
    pod = make_pod("web")
    for other, want in ((pod, True), (make_pod("api"), False)):
        event = ClusterEvent(resource="Pod", action="update.tolerations", old=other, new=other)
        assert await ask.hint(PLUG, event, pod) is want


@pytest.mark.parametrize("gates", [{"TaintTolerationComparisonOperators": "yes"}, "all"])
def test_malformed_feature_gate_is_refused(gates: Any) -> None:
    with pytest.raises(PluginArgsError, match="must be true or false"):
        TaintToleration({"featureGates": gates}, NO_HANDLE)
