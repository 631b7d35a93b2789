"""`Budgets`: the law of disruption budgets: no victim's budget is exhausted where other victims would do.

A preemptor may evict a pod whose budget allows no disruption only if no node has room for the preemptor after
the eviction of pods without a budget alone. kube-scheduler promises no more: it picks the node with the
fewest violations.

The law judges what it can be sure of: preemptors that may run on every node, and steady nodes (`steady`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_host.cluster.port import WatchEvent
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.quantity import milli_value
from berth_sdk.selectors import LabelSelector
from berth_sim.cluster.server import ApiServer

from berth_bench.life.guard import forbids
from berth_bench.life.steady import STEADY_S, Steady

_BUDGETS: Final = "policy/poddisruptionbudgets"
_PREEMPTED_BY: Final = re.compile(r"Preempted by pod (\S+) on node ")


@dataclass(frozen=True, slots=True)
class _Other:
    """A steady node. `free_milli`: its CPU without any eviction. `evictable`: the CPU of its pods without a
    budget and without a group, by priority.
    """

    name: str
    free_milli: int
    evictable: Mapping[int, int]

    def fits(self, priority: int, milli_cpu: int) -> bool:
        below = sum(amount for other, amount in self.evictable.items() if other < priority)
        return self.free_milli + below >= milli_cpu


class Budgets:
    """The law, for a life without faults."""

    def __init__(self, server: ApiServer, now_s: Callable[[], float], steady: Steady) -> None:
        self._server = server
        self._now_s = now_s
        self._steady = steady
        self._budgets_changed_s = 0.0
        self._exhausted: dict[str, tuple[str, Sequence[_Other]]] = {}
        """By the uid of a victim whose budget allows no disruption: the budget, and the other nodes."""

    def see(self, event: WatchEvent) -> None:
        """Note a change of the API server."""
        if event.kind == "PodDisruptionBudget":
            self._budgets_changed_s = self._now_s()

    def evicts(self, victim: KubeObject) -> None:
        """Note that a host begins to delete a pod."""
        if self._now_s() - self._budgets_changed_s < STEADY_S:
            return
        budgets = self._server.list(_BUDGETS)
        exhausted = [one for one in budgets if _allowed(one) == 0 and _selects(one, victim)]
        if exhausted:
            self._steady.look()
            self._exhausted[victim.ref.uid] = exhausted[0].ref.key, tuple(self._others(budgets))

    def event(self, victim: Pod, reason: str, note: str) -> str:
        """Note an event. Return what is wrong with the eviction that it tells of; "" for nothing."""
        found = _PREEMPTED_BY.match(note) if reason == "Preempted" else None
        if found is None:
            return ""
        budget, others = self._exhausted.pop(victim.uid, ("", ()))
        preemptor = self._steady.plain(found[1])
        if preemptor is None:
            return ""
        fitting = [one.name for one in others if one.fits(preemptor.priority, preemptor.milli_cpu)]
        if not fitting:
            return ""
        return (
            f"a pod was preempted whose budget allows no disruption: {victim.key} ({budget}), although"
            f" {fitting[0]} has room for pod {found[1]} without it"
        )

    def _others(self, budgets: Sequence[KubeObject]) -> Iterator[_Other]:
        """Yield the open nodes that have not changed for a while."""
        taken: defaultdict[str, int] = defaultdict(int)
        evictable: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for item in self._server.list("pods"):
            node = item.get("spec.nodeName") or item.get("status.nominatedNodeName")
            if not node or item.get("status.phase") in ("Succeeded", "Failed"):
                continue
            milli_cpu = Pod.from_object(item).requests.get("cpu", 0)
            taken[node] += milli_cpu
            may_go = item.get("spec.nodeName") and not item.get("spec.schedulingGroup")
            if may_go and not any(_selects(one, item) for one in budgets):
                evictable[node][int(item.get("spec.priority") or 0)] += milli_cpu
        for node in self._server.list("nodes"):
            name = node.ref.name
            is_open = not (node.get("spec.taints") or node.get("spec.unschedulable") or forbids(name))
            if is_open and self._steady.is_steady(name):
                offered = milli_value(str(node.get("status.allocatable.cpu")))
                yield _Other(name, offered - taken[name], dict(evictable[name]))


def _allowed(budget: KubeObject) -> int:
    return int(budget.get("status.disruptionsAllowed") or 0)


def _selects(budget: KubeObject, pod: KubeObject) -> bool:
    return LabelSelector.of(budget.get("spec.selector") or {}).matches(pod.get("metadata.labels") or {})
