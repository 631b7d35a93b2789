"""`Budgets`: the law of disruption budgets: no victim's budget is exhausted where other victims would do.

A preemptor may evict a pod whose budget allows no disruption only if no node has room for the preemptor after
the eviction of pods without a budget alone. kube-scheduler promises no more: it picks the node with the
fewest violations.

The law judges what it can be sure of: preemptors that may run on every node, and other nodes on which
nothing has changed for a while, and which the host holds for nobody.
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

STEADY_S: Final = 15.0
"""Seconds for which a node, or the budgets, must not have changed."""
LIMITING: Final = (
    "spec.nodeSelector",
    "spec.topologySpreadConstraints",
    "spec.affinity",
    "spec.schedulingGroup",
    "spec.resourceClaims",
    "spec.volumes",
)
"""The fields by which a pod may not run on every node."""
_BUDGETS: Final = "policy/poddisruptionbudgets"
_PREEMPTED_BY: Final = re.compile(r"Preempted by pod (\S+) on node ")
_KEPT_S: Final = 60.0


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


@dataclass(frozen=True, slots=True)
class _Preemptor:
    priority: int
    milli_cpu: int
    may_run_anywhere: bool


class Budgets:
    """The law. `held`: returns the nodes on which a host holds room that the API server does not know."""

    def __init__(self, server: ApiServer, now_s: Callable[[], float]) -> None:
        self.held: Callable[[], frozenset[str]] = frozenset
        self._server = server
        self._now_s = now_s
        self._changed_s: dict[str, float] = {}
        self._budgets_changed_s = 0.0
        self._pods: dict[str, _Preemptor] = {}
        self._exhausted: dict[str, tuple[float, str, Sequence[_Other]]] = {}
        """By the uid of a victim whose budget allows no disruption: when its eviction began, the budget, and
        the other nodes.
        """

    def see(self, event: WatchEvent) -> None:
        """Note a change of the API server."""
        if event.kind == "PodDisruptionBudget":
            self._budgets_changed_s = self._now_s()
        elif event.kind == "Node":
            self._changes((event.new or event.old).ref.name)  # type: ignore[union-attr]  # one of them is there
        elif event.kind == "Pod":
            for pod in (event.old, event.new):
                if pod is not None:
                    self._changes(pod.get("spec.nodeName"))
                    self._changes(pod.get("status.nominatedNodeName"))
            if event.new is None:
                # Its victims may still be evicted.
                pass
            elif event.old is None:
                self._pods[event.new.ref.uid] = _preemptor(event.new)

    def look(self) -> None:
        """Note which nodes a host holds room on now. To be called every few seconds."""
        for name in self.held():
            self._changes(name)

    def evicts(self, victim: KubeObject) -> None:
        """Note that a host begins to delete a pod."""
        self.look()
        now_s = self._now_s()
        if now_s - self._budgets_changed_s < STEADY_S:
            return
        budgets = self._server.list(_BUDGETS)
        exhausted = [one for one in budgets if _allowed(one) == 0 and _selects(one, victim)]
        if exhausted:
            others = tuple(self._others(budgets, now_s))
            self._exhausted[victim.ref.uid] = now_s, exhausted[0].ref.key, others

    def event(self, victim: Pod, reason: str, note: str) -> str:
        """Note an event. Return what is wrong with the eviction that it tells of; "" for nothing."""
        found = _PREEMPTED_BY.match(note) if reason == "Preempted" else None
        if found is None:
            return ""
        began_s, budget, others = self._exhausted.pop(victim.uid, (0.0, "", ()))
        preemptor = self._pods.get(found[1])
        if preemptor is None or not preemptor.may_run_anywhere or self._now_s() - began_s > _KEPT_S:
            return ""
        fitting = [one.name for one in others if one.fits(preemptor.priority, preemptor.milli_cpu)]
        if not fitting:
            return ""
        return (
            f"a pod was preempted whose budget allows no disruption: {victim.key} ({budget}), although"
            f" {fitting[0]} has room for pod {found[1]} without it"
        )

    def _changes(self, node: str | None) -> None:
        if node:
            self._changed_s[node] = self._now_s()

    def _others(self, budgets: Sequence[KubeObject], now_s: float) -> Iterator[_Other]:
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
            is_open = not node.get("spec.taints") and not node.get("spec.unschedulable")
            if is_open and now_s - self._changed_s.get(name, 0.0) >= STEADY_S:
                offered = milli_value(str(node.get("status.allocatable.cpu")))
                yield _Other(name, offered - taken[name], dict(evictable[name]))


def _preemptor(pod: KubeObject) -> _Preemptor:
    return _Preemptor(
        int(pod.get("spec.priority") or 0),
        Pod.from_object(pod).requests.get("cpu", 0),
        not any(map(pod.get, LIMITING)),
    )


def _allowed(budget: KubeObject) -> int:
    return int(budget.get("status.disruptionsAllowed") or 0)


def _selects(budget: KubeObject, pod: KubeObject) -> bool:
    return LabelSelector.of(budget.get("spec.selector") or {}).matches(pod.get("metadata.labels") or {})
