"""`Laws`: what must hold in every life, at each step and at its end.

Pods and nodes are counted by the changes of the API server itself (`soak.account`), and not by what the host
reports.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from berth_host.app import Host
from berth_host.cluster.port import WatchEvent
from berth_host.model.clock import Clock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sim.cluster.server import ApiServer

from berth_bench.life import devices, storage
from berth_bench.life.budgets import Budgets
from berth_bench.life.faulty_cluster import Fault
from berth_bench.life.nodes_over_time import NodesOverTime
from berth_bench.life.placed import unplaced_members
from berth_bench.life.plugins import KEEPER, Ledger
from berth_bench.life.steady import Steady
from berth_bench.life.told import Told
from berth_bench.life.trace import Trace
from berth_bench.life.world import PRIORITIES, Gang
from berth_bench.soak.account import Account

WHOLE_WITHIN_S: Final = 60.0
"""Seconds between the first and the last necessary binding of a gang, at most, in a life without faults."""

PREEMPTED_WITHIN_S: Final = 60.0
"""Seconds after which the evictions for a pod that is not pending any more must have been sent."""
_MOST_WAITED: Final = 1000
_BIND_FAILED: Final = "running Bind plugin "


class LawBrokenError(Exception):
    """A law does not hold. The text names it, and the objects."""


class Laws:
    """The laws of one life, as an observer of the API server and of the host's calls.

    `account`: the pods. `told`: what the hosts said about them. `steady`: which nodes are steady. `budgets`:
    the law of disruption budgets, for a life without faults. `faults`: the number of faults so far.
    """

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        trace: Trace,
        slack_s: float,
        gangs: dict[str, Gang],
        *,
        is_calm: bool = False,
        in_order: bool = True,
    ) -> None:
        """`slack_s`: see `NodesOverTime`. `gangs`: the world's, by the group's name. `is_calm`: nothing fails
        in this life. `in_order`: see `Told`.
        """
        self.nodes = NodesOverTime(clock.monotonic_s, slack_s)
        self.account = Account(self.nodes)
        self.told = Told(in_order=in_order)
        self.steady = Steady(clock.monotonic_s)
        self.budgets = Budgets(server, clock.monotonic_s, self.steady) if is_calm else None
        self.faults = 0
        self._server = server
        self._clock = clock
        self._trace = trace
        self._gangs = gangs
        self._broken = ""
        self._waited: deque[tuple[float, int]] = deque(maxlen=_MOST_WAITED)
        """The pods that were pending until lately: until when, and their priority."""
        self._unanswered: set[str] = set()
        """The uids of the pods whose last binding took effect, and was answered with an error."""
        self._quota: int | None = None
        """The most pods that may come after the quota; None: there is no quota."""
        self._since_quota: set[str] = set()
        """The names of the pods that came after the quota."""
        self._close = server.store.subscribe(self._see)

    def close(self) -> None:
        """Observe nothing any more."""
        self._close()

    def check(self) -> None:
        """Raise LawBrokenError if a law has been broken since the begin of the life."""
        account = self.account
        self._check_members()
        for what, found in (
            ("pods disappeared that nobody deleted", account.vanished),
            ("nodes got more than they can hold", account.over_committed),
            ("pods were bound to nodes that take none", account.misplaced),
            ("pods whose node changed", {str(account.double_binds)} if account.double_binds else set()),
        ):
            if found:
                raise LawBrokenError(f"{what}: {', '.join(sorted(found))}")
        if self._broken:
            raise LawBrokenError(self._broken)

    def check_gangs(self) -> None:
        """Raise LawBrokenError if a gang has had too few nodes for WHOLE_WITHIN_S; for a life without faults.

        A member that has left after its binding counts. A gang that lost a member before does not.
        """
        now_s = self._clock.monotonic_s()
        for name, gang in self._gangs.items():
            if gang.is_leaving or gang.is_short or not 0 < len(gang.ever_bound) < gang.least:
                gang.partial_since_s = None
            elif gang.partial_since_s is None:
                gang.partial_since_s = now_s
            elif now_s - gang.partial_since_s > WHOLE_WITHIN_S:
                raise LawBrokenError(
                    f"a gang was partly bound for {WHOLE_WITHIN_S:g} s: {name} of {gang.least}, of which"
                    f" {len(gang.ever_bound)} had nodes"
                )

    def room(self) -> dict[str, int]:
        """Return the free CPU of each open node now, in thousandths, as the API server has it."""
        nodes, account = self.nodes, self.account
        return {name: nodes.milli_cpu_now(name) - account.taken_milli_cpu(name) for name in nodes.names()}

    def note(self, moment: str, call: str, resource: str, key: str, fault: Fault) -> None:
        """Note a call of the host."""
        met = "" if fault is Fault.NONE else f" {fault.name}"
        if moment == "begun" and met:
            self.faults += 1
        self._trace.add(f"call {moment} {call} {resource} {key}{met}")
        if moment == "begun" and call == "delete" and resource == "pods":
            self._preempts(key)
        if call == "bind":
            self._unanswered.discard(uid := self._uid_of(key))
            if moment == "done" and fault is not Fault.NONE:
                self._unanswered.add(uid)

    def note_event(self, pod: Pod, reason: str, note: str) -> None:
        """Note an event that the host records about a pod."""
        self._trace.add(f"event {reason} {pod.key}")
        self._breaks(self.told.event(pod, reason, note))
        if reason == "FailedScheduling":
            self._attempt_failed(pod, note)
            self._check_members()
        if self.budgets is not None:
            self._breaks(self.budgets.event(pod, reason, note))

    def _uid_of(self, key: str) -> str:
        """Return the uid of the pod `namespace/name`; "" if there is none."""
        namespace, _, name = key.partition("/")
        found = self._server.get("pods", ObjectRef(name=name, namespace=namespace))
        return found.ref.uid if found is not None else ""

    def _check_members(self) -> None:
        if (host := self.steady.host()) is not None:
            found = unplaced_members(host)
            self._breaks(_listed("members count as placed in their group and are on no node", found))

    def _attempt_failed(self, pod: Pod, note: str) -> None:
        found = self._server.get("pods", pod.ref)
        if found is None:
            return
        gang = self._gangs.get(found.get("spec.schedulingGroup.podGroupName") or "")
        if gang is not None and KEEPER in note:
            # Nothing tells the host when the keeper would decide otherwise.
            gang.is_short = True
        if pod.uid in self._unanswered and note.startswith(_BIND_FAILED) and found.get("spec.nodeName"):
            self._breaks(f"an attempt failed although its binding took effect: {pod.key}")

    def _preempts(self, key: str) -> None:
        """Note that the host deletes a pod. A pod with a higher priority must be pending, or must have been a
        moment ago: it may leave while its victims are evicted.
        """
        pods = {pod.ref.key: pod for pod in self._server.list("pods")}
        victim = pods.get(key)
        self.account.leaves(key.rpartition("/")[2])
        if victim is None:
            return
        pending = [_priority(pod) for pod in pods.values() if not pod.get("spec.nodeName")]
        since_s = self._clock.monotonic_s() - PREEMPTED_WITHIN_S
        pending += [priority for when_s, priority in self._waited if when_s >= since_s]
        if max(pending, default=min(PRIORITIES.values())) <= _priority(victim):
            self._breaks(f"a pod was preempted without a pending pod of more priority: {key}")
        if self.budgets is not None:
            self.budgets.evicts(victim)

    def _breaks(self, what: str) -> None:
        """Keep the first law that is broken. `what`: "" if none is."""
        self._broken = self._broken or what

    def _see(self, event: WatchEvent) -> None:
        new, old = event.new, event.old
        seen = new if new is not None else old
        if seen is None:
            return
        kind = "gone" if new is None else "new" if old is None else "changed"
        on = f" on {node}" if event.kind == "Pod" and (node := seen.get("spec.nodeName")) else ""
        self._trace.add(f"{kind} {event.kind} {seen.ref.key} {seen.ref.resource_version}{on}")
        self.steady.see(event)
        if self.budgets is not None:
            self.budgets.see(event)
        if event.kind == "ResourceQuota":
            self._quota = None if new is None else int(new.get("spec.hard.pods"))
            self._since_quota.clear()
        elif event.kind == "ResourceClaim":
            if (
                new is not None
                and new.get("status.allocation")
                and (old is None or not old.get("status.allocation"))
            ):
                self._breaks(
                    _listed("two claims have the same device", devices.devices_taken_twice(self._server))
                )
        elif event.kind == "Node":
            if new is not None:
                self.nodes.is_there(new.parsed)
            else:
                self.nodes.is_gone(seen.ref.name)
        elif event.kind == "Pod":
            if old is not None and not old.get("spec.nodeName") and (new is None or new.get("spec.nodeName")):
                self._waited.append((self._clock.monotonic_s(), _priority(old)))
            if old is None:
                self._since_quota.add(seen.ref.name)
                if self._quota is not None and len(self._since_quota) > self._quota:
                    self._breaks(f"more pods than the quota allows: {seen.ref.key}")
            if (
                new is not None
                and new.get("spec.nodeName")
                and old is not None
                and not old.get("spec.nodeName")
            ):
                self._check_holdings(new)
            # A pod that has ended takes no room any more, as one that is gone.
            if new is None:
                self._since_quota.discard(seen.ref.name)
                self.account.is_gone(seen.ref.name)
                self.told.pod_is_gone(seen)
            elif new.get("status.phase") in ("Succeeded", "Failed"):
                self.account.leaves(new.ref.name)
                self.account.is_gone(new.ref.name)
            else:
                self.account.is_there(new.parsed)
                self.told.pod_is(new)
                self._count_member(new)

    def _check_holdings(self, pod: KubeObject) -> None:
        """Check that a pod that is being bound has its devices and its volumes."""
        lacking = devices.lacking_claims(self._server, pod)
        self._breaks(
            _listed("pods were bound without their devices", [f"{pod.ref.key} ({one})" for one in lacking])
        )
        lacking = storage.unbound_volumes(self._server, pod)
        self._breaks(
            _listed("pods were bound without their volumes", [f"{pod.ref.key} ({one})" for one in lacking])
        )

    def _count_member(self, pod: KubeObject) -> None:
        gang = self._gangs.get(pod.get("spec.schedulingGroup.podGroupName") or "")
        if gang is not None and pod.get("spec.nodeName"):
            gang.ever_bound.add(pod.ref.name)

    # --- at the end -----------------------------------------------------------------------------------

    def check_end(self, host: Host, ledger: Ledger) -> None:
        """Raise LawBrokenError unless queue, cache and API server agree, and nothing is held any more.

        For a calm world in which every pod has a node.
        """
        self.check_cache(host)
        agree("pods are assumed and were bound long ago", host.cache.assumed_uids)
        agree("pods are in the queue and have a node", [pod.key for pod in host.queue.pods()])
        agree("pods are in flight and have a node", [info.key for info in host.queue.in_flight])
        agree("binding cycles have not ended", [one.cycle_id for one in host.binding.attempts()])
        agree("pods wait at Permit", [one.pod.key for one in host.waiting_pods.list()])
        agree("reservations were neither undone nor ended", ledger.held.values())
        agree("the keeper was called in a wrong order", ledger.broken)
        agree("nominations outlive their pods", host.queue.nominated_pods())
        agree("pods were bound without a Scheduled event", self.told.unsaid())
        agree("claims hold devices that no pod uses", devices.idle_claims(self._server))
        agree("volumes name claims that have others, or none", storage.half_bound_volumes(self._server))
        for name, gang in self._gangs.items():
            if not gang.is_leaving and len(gang.ever_bound) < gang.least:
                raise LawBrokenError(
                    f"at rest, a gang is partly bound: {name} of {gang.least}, of which"
                    f" {len(gang.ever_bound)} had nodes"
                )

    def check_cache(self, host: Host) -> None:
        """Raise LawBrokenError unless the cache of a host, which may stand by, agrees with the API server."""
        bound = {pod.ref.uid: str(pod.get("spec.nodeName")) for pod in self._pods()}
        cached = {pod.uid: info.name for info in host.cache.node_infos() for pod in info.pods}
        nodes = {node.ref.name for node in self._server.list("nodes")}
        known = {info.name for info in host.cache.node_infos() if info.node is not None}
        agree("the cache has other pods on nodes than the API server", cached.items() ^ bound.items())
        agree("the cache has other nodes than the API server", known ^ nodes)

    def check_conditions(self) -> None:
        """Raise LawBrokenError if a pod was tried and its condition does not say why it has no node.

        For a world in which no call fails, a while after the last attempt.
        """
        agree("attempts failed without a condition", self.told.without_condition(self._server.list("pods")))

    def _pods(self) -> list[KubeObject]:
        over = ("Succeeded", "Failed")
        return [pod for pod in self._server.list("pods") if pod.get("status.phase") not in over]


def agree(what: str, found: Iterable[Any]) -> None:
    """Raise LawBrokenError if there is something in `found`."""
    if names := sorted(map(str, found)):
        raise LawBrokenError(f"at rest, {what}: {', '.join(names)}")


def check_nothing_left(loop: asyncio.AbstractEventLoop, timers: Callable[[], Sequence[str]]) -> None:
    """Raise LawBrokenError if a stopped host has left a task or a timer. To be called by the only task."""
    mine = asyncio.current_task(loop)
    left = sorted(str(task.get_coro()) for task in asyncio.all_tasks(loop) if task is not mine)
    if left:
        raise LawBrokenError(f"tasks of a host that has stopped still run: {', '.join(left)}")
    if found := timers():
        raise LawBrokenError(f"timers of a host that has stopped are still set: {', '.join(found)}")


def _listed(what: str, found: Sequence[str]) -> str:
    return f"{what}: {', '.join(sorted(found))}" if found else ""


def _priority(pod: KubeObject) -> int:
    return int(pod.get("spec.priority") or 0)
