"""Preemption pod by pod and node by node, as kube-scheduler's documents tell it: the evaluator's columns must
say the same. Requests of cpu, the number of pods, and host ports are all that counts here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from berth_sdk.pod import Pod

CPU, PODS = "Insufficient cpu", "Too many pods"
PORTS = "node(s) didn't have free ports for the requested pod ports"
NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True)
class PlainNode:
    name: str
    cpu_milli: int
    pod_limit: int
    pods: tuple[Pod, ...]


@dataclass(frozen=True)
class PlainBudget:
    labels: Mapping[str, str]
    allowed: int
    disrupted: frozenset[str] = frozenset()


@dataclass
class PlainCandidate:
    victims: list[Pod]
    violations: int


@dataclass
class PlainResult:
    """`rejected`: reasons of the nodes that were tried in vain."""

    tried: list[str] = field(default_factory=list)
    candidates: dict[str, PlainCandidate] = field(default_factory=dict)
    rejected: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def best(self) -> list[str]:
        """One criterion after the other, over those that were equal so far."""
        left = list(self.candidates)
        for cost in (
            lambda one: one.violations,
            lambda one: one.victims[0].priority,
            lambda one: sum(pod.priority + 2**31 for pod in one.victims),
            lambda one: len(one.victims),
            lambda one: -_earliest(one.victims),
        ):
            values = {name: cost(self.candidates[name]) for name in left}
            left = [name for name in left if values[name] == min(values.values())]
        return left


def preempt(
    pod: Pod,
    nodes: Sequence[PlainNode],
    nominated: Mapping[str, Sequence[Pod]],
    budgets: Sequence[PlainBudget],
) -> PlainResult:
    """Every node that the pod does not fit now, but might."""
    result = PlainResult()
    for node in nodes:
        counted = [other for other in nominated.get(node.name, ()) if other.priority >= pod.priority]
        reasons = passes(pod, node, node.pods, counted)
        if not reasons or (pod.requests.get("cpu", 0) > node.cpu_milli and CPU in reasons):
            continue
        result.tried.append(node.name)
        _try(pod, node, counted, budgets, result)
    return result


def _try(
    pod: Pod,
    node: PlainNode,
    counted: Sequence[Pod],
    budgets: Sequence[PlainBudget],
    result: PlainResult,
) -> None:
    lower = sorted((other for other in node.pods if other.priority < pod.priority), key=_importance)
    if not lower:
        result.rejected[node.name] = (NO_VICTIMS,)
        return
    there = [other for other in node.pods if other not in lower]
    reasons = passes(pod, node, there, counted)
    if reasons:
        result.rejected[node.name] = reasons
        return
    violating = violating_pods(lower, budgets)
    victims: list[Pod] = []
    for other in [*violating, *(one for one in lower if one not in violating)]:
        if passes(pod, node, [*there, other], counted):
            victims.append(other)
        else:
            there.append(other)
    victims.sort(key=_importance)
    violations = sum(one in violating for one in victims)
    result.candidates[node.name] = PlainCandidate(victims, violations)


def passes(pod: Pod, node: PlainNode, there: Sequence[Pod], counted: Sequence[Pod]) -> tuple[str, ...]:
    """Why not, empty if it passes; with the nominated pods first."""
    if counted and (reasons := _reasons(pod, node, [*there, *counted])):
        return reasons
    return _reasons(pod, node, there)


def _reasons(pod: Pod, node: PlainNode, there: Sequence[Pod]) -> tuple[str, ...]:
    used = {port.normalized for other in there for port in other.host_ports}
    if any(port.normalized in used for port in pod.host_ports):
        return (PORTS,)
    reasons = []
    if len(there) + 1 > node.pod_limit:
        reasons.append(PODS)
    wanted = pod.requests.get("cpu", 0)
    if wanted and wanted > node.cpu_milli - sum(other.requests.get("cpu", 0) for other in there):
        reasons.append(CPU)
    return tuple(reasons)


def violating_pods(pods: Sequence[Pod], budgets: Sequence[PlainBudget]) -> list[Pod]:
    left = [budget.allowed for budget in budgets]
    found = []
    for pod in pods:
        breaks = False
        for i, budget in enumerate(budgets):
            selected = bool(pod.labels) and budget.labels.items() <= pod.labels.items()
            if selected and pod.name not in budget.disrupted:
                left[i] -= 1
                breaks = breaks or left[i] < 0
        if breaks:
            found.append(pod)
    return found


def _importance(pod: Pod) -> tuple[int, float]:
    return -pod.priority, _started(pod)


def _started(pod: Pod) -> float:
    return float("inf") if pod.started_at_s is None else pod.started_at_s


def _earliest(victims: Sequence[Pod]) -> float:
    highest = victims[0].priority
    return min(_started(pod) for pod in victims if pod.priority == highest)
