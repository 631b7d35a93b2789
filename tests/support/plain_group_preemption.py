"""The reprieve of a group's preemption, unit by unit and member by member, as kube-scheduler's documents tell
it. Requests of cpu, the number of pods, and host ports are all that counts here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from support.plain_preemption import (
    CPU,
    NO_VICTIMS,
    PlainBudget,
    PlainCandidate,
    PlainNode,
    PlainResult,
    passes,
    violating_pods,
)


@dataclass(frozen=True)
class PlainUnit:
    pods: tuple[Pod, ...]
    priority: int
    rank: int

    @property
    def importance(self) -> tuple[float, ...]:
        started = [float("inf") if pod.started_at_s is None else pod.started_at_s for pod in self.pods]
        return -self.priority, -self.rank, -len(self.pods), min(started)


def plain_units(pods: Sequence[Pod], groups: Mapping[str, PodGroup]) -> list[PlainUnit]:
    """Every pod, or every group that is evicted as a whole; in the order of the first pod."""
    together: dict[str, list[Pod]] = {}
    for pod in pods:
        path = _path(pod, groups)
        whole = [group.key for group in path if group.disrupts_all]
        together.setdefault(whole[-1] if whole else pod.uid, []).append(pod)
    units = []
    for key, members in together.items():
        path = _path(members[0], groups)
        rank = 2 if members[0].group_key else 1
        if key in groups and groups[key].is_composite:
            rank = 3
        units.append(PlainUnit(tuple(members), path[-1].priority if path else members[0].priority, rank))
    return units


def plain_victims(
    units: Sequence[PlainUnit],
    placed: Sequence[tuple[Pod, str]],
    nodes: Sequence[PlainNode],
    budgets: Sequence[PlainBudget],
    nominated: Mapping[str, Sequence[Pod]],
) -> tuple[list[Pod], int]:
    """The victims by importance, and how many evictions break a budget. `nodes`: without the units' pods."""
    units = sorted(units, key=lambda unit: unit.importance)
    broken = {pod.uid for pod in violating_pods([pod for unit in units for pod in unit.pods], budgets)}
    violations = [sum(pod.uid in broken for pod in unit.pods) for unit in units]
    there = {node.name: list(node.pods) for node in nodes}
    by_name = {node.name: node for node in nodes}
    away = []
    for i in sorted(range(len(units)), key=lambda i: violations[i] == 0):
        back = {name: list(pods) for name, pods in there.items()}
        for pod in units[i].pods:
            back[pod.node_name].append(pod)
        with_members = {name: list(pods) for name, pods in back.items()}
        fits = True
        for pod, name in placed:
            counted = [
                other
                for other in nominated.get(name, ())
                if other.priority >= pod.priority and other.uid != pod.uid
            ]
            fits = fits and not passes(pod, by_name[name], with_members[name], counted)
            with_members[name].append(pod)
        if fits:
            there = back
        else:
            away.append(i)
    away.sort()
    return [pod for i in away for pod in units[i].pods], sum(violations[i] for i in away)


def _path(pod: Pod, groups: Mapping[str, PodGroup]) -> list[PodGroup]:
    found, key = [], pod.group_key
    while key in groups:
        found.append(groups[key])
        key = groups[key].parent_key
    return found


def plain_pod_preempts(
    pod: Pod,
    nodes: Sequence[PlainNode],
    groups: Mapping[str, PodGroup],
    budgets: Sequence[PlainBudget],
) -> PlainResult:
    """Every node that one pod does not fit now, but might. Units on it leave with their pods elsewhere."""
    result = PlainResult()
    units = plain_units([other for node in nodes for other in node.pods], groups)
    for node in nodes:
        reasons = passes(pod, node, node.pods, ())
        if not reasons or (pod.requests.get("cpu", 0) > node.cpu_milli and CPU in reasons):
            continue
        result.tried.append(node.name)
        here = [
            unit
            for unit in units
            if unit.priority < pod.priority and any(other.node_name == node.name for other in unit.pods)
        ]
        if not here:
            result.rejected[node.name] = (NO_VICTIMS,)
            continue
        gone = {other.uid for unit in here for other in unit.pods}
        left = replace(node, pods=tuple(other for other in node.pods if other.uid not in gone))
        reasons = passes(pod, left, left.pods, ())
        if reasons:
            result.rejected[node.name] = reasons
            continue
        only_here = [
            PlainUnit(tuple(one for one in unit.pods if one.node_name == node.name), unit.priority, unit.rank)
            for unit in here
        ]
        victims, violations = _victims_on(pod, left, here, only_here, budgets)
        result.candidates[node.name] = PlainCandidate(victims, violations)
    return result


def _victims_on(
    pod: Pod,
    node: PlainNode,
    units: Sequence[PlainUnit],
    here: Sequence[PlainUnit],
    budgets: Sequence[PlainBudget],
) -> tuple[list[Pod], int]:
    order = sorted(range(len(units)), key=lambda i: units[i].importance)
    broken = {one.uid for one in violating_pods([one for i in order for one in units[i].pods], budgets)}
    violations = {i: sum(one.uid in broken for one in units[i].pods) for i in order}
    there, away = list(node.pods), []
    for i in sorted(order, key=lambda i: violations[i] == 0):
        if passes(pod, node, [*there, *here[i].pods], ()):
            away.append(i)
        else:
            there += here[i].pods
    away.sort(key=order.index)
    return [one for i in away for one in units[i].pods], sum(violations[i] for i in away)
