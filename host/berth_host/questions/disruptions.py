"""PodDisruptionBudgets as the eviction API reads them: may this pod be evicted now? Asked by a drain.

`preemption.budgets` reads the same objects in the way of preemption, which may break a budget. The eviction
API never does.
Source: kube-apiserver `registry/core/pod/storage/eviction.go` (Create, checkAndDecrement); for a budget
without a status `controller/disruption/disruption.go` (trySync), v1.37.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.errors import SelectorError
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.selectors import LabelSelector

from berth_host.explain.pod_fit import Eviction

_NAMED: Final = 3
_ALWAYS: Final = "AlwaysAllow"


@dataclass(slots=True)
class _Budget:
    """One budget with what is left of it. `refusal`: why it lets no pod go, whatever is left; "": it counts.

    `took`: keys of the pods that were evicted under it and have no replacement yet.
    """

    key: str
    selector: LabelSelector
    allowed: int
    desired: int
    healthy: int
    evicts_unhealthy: bool
    refusal: str
    took: list[str] = field(default_factory=list)

    def lets_go(self, pod: Pod) -> bool:
        """Return True if the pod is not counted at all: it is not ready, and the budget does not need it."""
        return not _is_ready(pod) and (self.evicts_unhealthy or self.healthy >= self.desired > 0)

    @property
    def why(self) -> str:
        """The reason why no further pod goes."""
        name = f"PodDisruptionBudget {self.key}"
        if self.refusal:
            return f"{name} {self.refusal}"
        if self.took:
            more = f" and {len(self.took) - _NAMED} more" if len(self.took) > _NAMED else ""
            return f"{name} waits for the replacement of {', '.join(self.took[:_NAMED])}{more}"
        return f"{name} needs {self.desired} healthy pods and has {self.healthy}"


class Disruptions:
    """The budgets of a cluster during one drain that is thought through, not done.

    `pods_of`: returns the pods of a namespace, for budgets that no controller has counted.
    """

    def __init__(self, budgets: Iterable[KubeObject], pods_of: Callable[[str], Iterable[Pod]]) -> None:
        self._budgets: dict[str, list[_Budget]] = {}
        self._counted: dict[str, _Budget] = {}
        for item in budgets:
            budget = _budget(item, pods_of)
            if budget is not None:
                self._budgets.setdefault(item.ref.namespace or "default", []).append(budget)

    def evict(self, pod: Pod) -> Eviction | None:
        """Count the eviction of a pod; return None, or why the API server refuses it now."""
        if _has_not_started(pod):
            return None
        found = [one for one in self._budgets.get(pod.namespace, ()) if one.selector.matches(pod.labels)]
        if not found:
            return None
        budget = found[0]
        if len(found) > 1:
            names = ", ".join(one.key for one in found)
            message = f"{len(found)} PodDisruptionBudgets select it ({names}): the API server never evicts it"
            return Eviction(round=None, budget=budget.key, message=message)
        if budget.lets_go(pod):
            return None
        if budget.refusal or budget.allowed <= 0:
            return Eviction(round=None, budget=budget.key, message=budget.why)
        budget.allowed -= 1
        budget.took.append(pod.key)
        self._counted[pod.key] = budget
        return None

    def replaced(self, pod: Pod) -> None:
        """Record that another pod runs in place of an evicted one: its budget lets one more pod go."""
        budget = self._counted.pop(pod.key, None)
        if budget is not None:
            budget.allowed += 1
            budget.took.remove(pod.key)


def is_replaced(pod: Pod) -> bool:
    """Return True if a controller makes another pod in place of an evicted one."""
    owners = () if pod.object is None else pod.object.get("metadata.ownerReferences") or ()
    return any(owner.get("controller") for owner in owners)


def _budget(item: KubeObject, pods_of: Callable[[str], Iterable[Pod]]) -> _Budget | None:
    """Return the budget; None for one that selects no pod: its selector is missing or invalid."""
    raw = item.get("spec.selector")
    try:
        selector = LabelSelector.of(raw, "spec.selector")
    except SelectorError:
        return None
    if raw is None:
        return None
    status: Mapping[str, Any] = item.get("status") or {}
    if "disruptionsAllowed" in status:
        refusal = _refusal(item, status)
        healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
        allowed = status["disruptionsAllowed"] or 0
    else:
        # A manifest: no controller has counted the pods.
        selected = [pod for pod in pods_of(item.ref.namespace or "default") if selector.matches(pod.labels)]
        healthy = sum(bool(pod.node_name) and _is_ready(pod) for pod in selected)
        managed = sum(map(is_replaced, selected))
        desired = _desired(item.get("spec") or {}, managed)
        allowed, refusal = healthy - desired, ""
    return _Budget(
        key=item.ref.key,
        selector=selector,
        allowed=allowed,
        desired=desired,
        healthy=healthy,
        evicts_unhealthy=item.get("spec.unhealthyPodEvictionPolicy") == _ALWAYS,
        refusal=refusal,
    )


def _refusal(item: KubeObject, status: Mapping[str, Any]) -> str:
    if (status.get("observedGeneration") or 0) < (item.get("metadata.generation") or 0):
        return "has changed, and the disruption controller has not counted its pods since"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionAllowed" and condition.get("reason") == "SyncFailed":
            return f"allows no disruption, as its pods cannot be counted: {condition.get('message') or ''}"
    return ""


def _desired(spec: Mapping[str, Any], managed: int) -> int:
    """Return how many healthy pods a budget wants. `managed`: how many of its pods have a controller, of
    which shares are computed.
    """
    if spec.get("maxUnavailable") is not None:
        return max(0, managed - _scaled(spec["maxUnavailable"], managed))
    return _scaled(spec.get("minAvailable") or 0, managed)


def _scaled(value: int | str, total: int) -> int:
    """Return an IntOrString as a number of pods; a share is rounded up."""
    return value if isinstance(value, int) else math.ceil(int(value.removesuffix("%")) * total / 100)


def _has_not_started(pod: Pod) -> bool:
    """Return True for a pod that its node has taken, and not started: budgets do not count it.

    A pod without a start time is one of manifests, and counts as a running one.
    """
    if pod.object is None:
        return False
    return pod.object.get("status.phase") == "Pending" and bool(pod.object.get("status.startTime"))


def _is_ready(pod: Pod) -> bool:
    """Return True if the condition Ready is true, or if no kubelet has reported about the pod yet."""
    if pod.object is None or not pod.object.get("status.startTime"):
        return True
    conditions = pod.object.get("status.conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
