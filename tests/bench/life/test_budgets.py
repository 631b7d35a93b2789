"""The law of disruption budgets sees a violation that another node would have spared, and only that."""

from __future__ import annotations

from typing import Any

import pytest
from berth_bench.life.budgets import Budgets
from berth_bench.life.steady import STEADY_S, Steady
from berth_bench.versus.objects import node, pod
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sim.cluster.server import ApiServer


class Watched:
    """Node n1 with the pod `kept`, whose budget allows no disruption; n2 with `other`, without a budget."""

    def __init__(self, allowed: int = 0, **of_other: Any) -> None:
        self.clock = ManualClock()
        self.server = ApiServer(self.clock)
        self.steady = Steady(self.clock.monotonic_s)
        self.budgets = Budgets(self.server, self.clock.monotonic_s, self.steady)
        self.server.store.subscribe(self.steady.see)
        self.server.store.subscribe(self.budgets.see)
        for name in ("n1", "n2"):
            self.server.create(node(name, "1"))
        made = pod("kept", "800m", priority=0)
        made["metadata"]["labels"] = {"app": "kept"}
        self.server.create(made)
        self.server.create(pod("other", "800m", **{"priority": 0, **of_other}))
        for name, where in (("kept", "n1"), ("other", "n2")):
            self.server.bind(ObjectRef(name=name, namespace="default"), where)
        self.server.create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
            }
        )
        ref = ObjectRef(name="b", namespace="default")
        status = {"status": {"disruptionsAllowed": allowed, "observedGeneration": 1}}
        self.server.patch("policy/poddisruptionbudgets", ref, status, subresource="status")
        self.clock.advance(STEADY_S)

    def found(self, name: str) -> KubeObject:
        one = self.server.get("pods", ObjectRef(name=name, namespace="default"))
        assert one is not None
        return one

    def preempted(self, **of_preemptor: Any) -> str:
        """Evict `kept` for a new pod; return what is wrong."""
        self.server.create(pod("preemptor", "500m", **{"priority": 100, **of_preemptor}))
        victim, preemptor = self.found("kept"), self.found("preemptor")
        self.budgets.evicts(victim)
        self.server.delete("pods", ObjectRef(name="kept", namespace="default"))
        note = f"Preempted by pod {preemptor.ref.uid} on node n1"
        return self.budgets.event(Pod.from_object(victim), "Preempted", note)


def test_budget_is_broken_although_another_node_would_do() -> None:
    wrong = Watched().preempted()
    assert wrong.startswith("a pod was preempted whose budget allows no disruption: default/kept (default/b)")
    assert "n2 has room" in wrong


@pytest.mark.parametrize(
    ("of_other", "of_preemptor"),
    [
        pytest.param({"priority": 100}, {}, id="other pods are as important"),
        pytest.param({"schedulingGroup": {"podGroupName": "g"}}, {}, id="other pods are a gang's"),
        pytest.param({}, {"nodeSelector": {"kubernetes.io/hostname": "n1"}}, id="the preemptor is tied"),
    ],
)
def test_budget_may_be_broken_where_no_other_node_is_sure_to_do(
    of_other: dict[str, Any], of_preemptor: dict[str, Any]
) -> None:
    assert Watched(**of_other).preempted(**of_preemptor) == ""


def test_budget_that_allows_a_disruption_is_not_broken() -> None:
    assert Watched(allowed=1).preempted() == ""


@pytest.mark.parametrize("how", ["changed", "cordoned"])
def test_node_that_is_closed_or_not_steady_counts_as_full(how: str) -> None:
    watched = Watched()
    spec = {"unschedulable": True} if how == "cordoned" else {"podCIDR": "10.0.0.0/24"}
    watched.server.patch("nodes", ObjectRef(name="n2"), {"spec": spec})
    if how == "cordoned":
        watched.clock.advance(STEADY_S)
    assert watched.preempted() == ""
