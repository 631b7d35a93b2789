"""NodeUnschedulable: cordoned nodes, the toleration that allows them, and the hints."""

from __future__ import annotations

import pytest
from berth_plugins.node_unschedulable import NodeUnschedulable
from berth_sdk.events import ClusterEvent
from berth_sdk.status import Status
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import Ask, Plug

PLUG = Plug(NodeUnschedulable)
REJECTED = Status.unresolvable("node(s) were unschedulable")
CORDONED = make_node("b", unschedulable=True)
NODES = make_table([make_node("a"), CORDONED])
TAINT = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("tolerations", "tolerated"),
    [
        pytest.param([], False, id="none"),
        pytest.param([f"{TAINT}:NoSchedule"], True, id="exact"),
        pytest.param([f"{TAINT}=:NoSchedule"], True, id="equal with empty value"),
        pytest.param([f"{TAINT}=x:NoSchedule"], False, id="other value"),
        pytest.param([f"{TAINT}:NoExecute"], False, id="other effect"),
        pytest.param([TAINT], True, id="every effect"),
        pytest.param([{"operator": "Exists"}], True, id="everything"),
    ],
)
async def test_cordoned_node_needs_the_toleration(ask: Ask, tolerations: list[str], tolerated: bool) -> None:
    pod = make_pod("web", tolerations=tolerations)
    want = [Status.success(), Status.success() if tolerated else REJECTED]
    assert await ask.filter(PLUG, pod, NODES) == want


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(None, make_node("b"), True, id="schedulable node added"),
        pytest.param(None, CORDONED, False, id="cordoned node added"),
        pytest.param(CORDONED, make_node("b"), True, id="uncordoned"),
        pytest.param(make_node("b"), make_node("b"), False, id="was schedulable before"),
        pytest.param(make_node("b"), CORDONED, False, id="cordoned"),
    ],
)
async def test_hint_for_changes_of_nodes(ask: Ask, old: object, new: object, want: bool) -> None:
    event = ClusterEvent(resource="Node", action="update.taints", old=old, new=new)  # type: ignore[arg-type]  # as parametrized
    assert await ask.hint(PLUG, event, make_pod("web")) is want


@pytest.mark.parametrize(
    ("uid", "tolerations", "want"),
    [("u1", [TAINT], True), ("u1", ["other"], False), ("u2", [TAINT], False)],
)
async def test_hint_for_the_pods_own_tolerations(
    ask: Ask, uid: str, tolerations: list[str], want: bool
) -> None:
    new = make_pod("web", uid=uid, tolerations=tolerations)
    event = ClusterEvent(resource="Pod", action="update.tolerations", old=make_pod("web", uid=uid), new=new)
    assert await ask.hint(PLUG, event, make_pod("web", uid="u1")) is want
