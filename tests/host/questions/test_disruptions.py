"""PodDisruptionBudgets in a drain: the same pods are refused as by the eviction API, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.questions.disruptions import Disruptions
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod

STARTED = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
READY = {**STARTED, "conditions": [{"type": "Ready", "status": "True"}]}
COUNTED = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "observedGeneration": 1}


def pod(name: str = "web", status: dict[str, Any] | None = None, *, controlled: bool = True) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    return Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": {"app": "web"},
                "ownerReferences": [owner] if controlled else [],
            },
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "web"}]},
            "status": status or {},
        }
    )


def budget(name: str = "web", status: dict[str, Any] | None = None, **spec: Any) -> KubeObject:
    made: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
    }
    return KubeObject.of(made if status is None else made | {"status": status})


def refusal(asked: Pod, *budgets: KubeObject, pods: tuple[Pod, ...] = ()) -> str:
    found = Disruptions(budgets, lambda _: pods).evict(asked)
    return "" if found is None else found.message


@pytest.mark.parametrize(
    ("status", "spec", "said"),
    [
        (COUNTED, {}, "PodDisruptionBudget default/web needs 2 healthy pods and has 2"),
        (COUNTED | {"disruptionsAllowed": 1}, {}, ""),
        (COUNTED | {"observedGeneration": 0}, {}, "the disruption controller has not counted its pods since"),
        (COUNTED, {"selector": {"matchLabels": {"app": "db"}}}, ""),
        (COUNTED, {"selector": {}}, "needs 2 healthy"),
        (COUNTED, {"selector": None}, ""),
        (COUNTED, {"selector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}}, ""),
        (
            COUNTED
            | {
                "conditions": [
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "SyncFailed",
                        "message": "widgets.example.com has no scale",
                    }
                ]
            },
            {},
            "cannot be counted: widgets.example.com has no scale",
        ),
    ],
    ids=["none-left", "one-left", "older", "other-pods", "all-pods", "no-selector", "invalid", "not-counted"],
)
def test_budget_of_a_cluster_decides_by_its_status(
    status: dict[str, Any], spec: dict[str, Any], said: str
) -> None:
    found = refusal(pod(status=READY), budget(status=status, **spec))
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("status", "healthy", "policy", "refused"),
    [
        (STARTED, 2, None, False),
        (STARTED, 1, None, True),
        (STARTED, 1, "AlwaysAllow", False),
        (READY, 2, "AlwaysAllow", True),
        ({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}, 1, None, False),
        # No kubelet has reported: a pod of manifests counts as one that runs.
        ({"phase": "Pending"}, 2, None, True),
    ],
    ids=["healthy-without-it", "needed", "always", "ready", "not-started", "manifest"],
)
def test_pod_that_is_not_ready_is_let_go_if_the_budget_does_not_need_it(
    status: dict[str, Any], healthy: int, policy: str | None, refused: bool
) -> None:
    spec = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    found = refusal(pod(status=status), budget(status=COUNTED | {"currentHealthy": healthy}, **spec))
    assert bool(found) is refused


def test_pod_of_two_budgets_is_never_let_go() -> None:
    free = COUNTED | {"disruptionsAllowed": 5}
    found = Disruptions([budget("a", free), budget("b", free)], lambda _: ()).evict(pod(status=READY))
    assert found is not None
    assert (found.round, found.budget) == (None, "default/a")
    assert found.message.startswith("2 PodDisruptionBudgets select it (default/a, default/b)")


def test_budget_lets_the_next_pod_go_when_the_first_one_is_replaced() -> None:
    budgets = Disruptions([budget(status=COUNTED | {"disruptionsAllowed": 1})], lambda _: ())
    first, second = pod("web-0", READY), pod("web-1", READY)
    assert budgets.evict(first) is None
    refused = budgets.evict(second)
    assert refused is not None
    assert refused.message.endswith("waits for the replacement of default/web-0")
    budgets.replaced(first)
    assert budgets.evict(second) is None
    # Only a pod that the budget had counted makes room in it.
    budgets.replaced(first)
    assert budgets.evict(pod("web-2", READY)) is not None


@pytest.mark.parametrize(
    ("spec", "controlled", "goes"),
    [
        ({"minAvailable": 3}, True, 1),
        ({"minAvailable": "50%"}, True, 2),
        ({"minAvailable": "51%"}, True, 1),
        ({"maxUnavailable": 3}, True, 3),
        ({"maxUnavailable": "10%"}, True, 1),
        ({"maxUnavailable": 9}, True, 4),
        ({}, True, 4),
        # Shares are shares of what controllers want; a number is a number of pods.
        ({"maxUnavailable": 1}, False, 4),
        ({"minAvailable": 3}, False, 1),
    ],
    ids=[
        "min",
        "min-share",
        "min-rounded",
        "max",
        "max-rounded",
        "max-all",
        "empty",
        "alone-max",
        "alone-min",
    ],
)
def test_budget_of_manifests_is_counted_as_the_disruption_controller_does(
    spec: dict[str, Any], controlled: bool, goes: int
) -> None:
    pods = tuple(pod(f"web-{i}", controlled=controlled) for i in range(4))
    budgets = Disruptions([budget(**spec)], lambda namespace: pods if namespace == "default" else ())
    assert [budgets.evict(one) is None for one in pods] == [True] * goes + [False] * (4 - goes)
