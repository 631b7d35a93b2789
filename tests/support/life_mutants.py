"""Mutants of the host that lives must find: each breaks one thing in the queue, the cache, the binding cycle,
the preemption or the groups. `tests/bench/life/mutants.py` lists them and runs lives with them.

Mutants patch what is private: these parts have no public switch. A mutant of KNOWN is also killed by other
tests; one of NEW is subtle, and was written for lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest
from berth_host.attempt.cycle import CycleEnd
from berth_host.cache.cache import Cache
from berth_host.cache.node_info import NodeInfo
from berth_host.cache.pod_groups import PodGroups
from berth_host.cluster.handlers import EventHandlers
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.cycle.schedule_one import BindingCycle, FailureHandler, Undoing
from berth_host.framework.framework import Framework
from berth_host.groups.schedule_group import GroupScheduler
from berth_host.preemption import victims
from berth_host.preemption.evicting_pods import Preempting
from berth_host.preemption.evictions import Evictions
from berth_host.queue.flush_timers import FlushTimers
from berth_host.queue.group_entries import Aside, GroupEntries
from berth_host.queue.hints import Hints, Strategy
from berth_host.queue.in_flight import InFlight
from berth_host.queue.moves import Moves
from berth_host.queue.nominator import Nominator
from berth_host.queue.pool import Alike, UnschedulablePool
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_sdk.status import SUCCESS

LifeMutant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def replaced(doc: str, owner: Any, name: str, made: Callable[[Any], Any]) -> LifeMutant:
    """Return the mutant that replaces an attribute by `made(original)`. `doc`: what is wrong then."""

    def mutant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(owner, name, made(getattr(owner, name)))

    mutant.__doc__ = doc
    return mutant


def without_effect(doc: str, owner: Any, name: str, answer: Any = None) -> LifeMutant:
    """Return the mutant whose method does nothing, and returns `answer`."""
    return replaced(doc, owner, name, lambda original: lambda self, *args, **more: answer)


def without_await(doc: str, owner: Any, name: str, answer: Any = None) -> LifeMutant:
    """Return the mutant whose coroutine does nothing, and returns `answer`."""

    async def nothing(self: Any, *args: Any, **more: Any) -> Any:
        return answer

    return replaced(doc, owner, name, lambda original: nothing)


# --- the queue -------------------------------------------------------------------------------------------


def _loses_failed(original: Any) -> Any:
    def add_unschedulable(self: SchedulingQueue, info: Any, **more: Any) -> bool:
        if info.is_rejected:
            return bool(original(self, info, **more))
        self.in_flight.end(info.uid)
        return False

    return add_unschedulable


def _first_of_the_alike(original: Any) -> Any:
    return property(lambda self: [self.first])


def _arms_once(original: Any) -> Any:
    def fire(self: FlushTimers) -> None:
        arm, self.arm = self.arm, lambda: None  # type: ignore[method-assign]
        try:
            original(self)
        finally:
            self.arm = arm  # type: ignore[method-assign]
        self._backoff_due_us = self._backoff_due_us or 0

    return fire


def _drops_events_of_others(original: Any) -> Any:
    def end(self: InFlight, uid: str) -> bool:
        known = bool(original(self, uid))
        if known:
            self._first_number += len(self._events)
            self._events.clear()
            for other, marker in self._markers.items():
                self._markers[other] = replace(marker, position=max(marker.position, self._first_number))
        return known

    return end


def _leaves_members_aside(original: Any) -> Any:
    return lambda self, group: self.forest.put(group)


def _leaves_the_entry(original: Any) -> Any:
    return lambda self, group: self.forest.remove(group.key)


def _forgets_the_cycle(original: Any) -> Any:
    def attempted(self: GroupEntries, entry: Any, outcome: Any) -> str:
        for info in entry.members:
            self._aside[Aside.PENDING].pop(info.key, None)
        return str(original(self, entry, outcome))

    return attempted


# --- the cache -------------------------------------------------------------------------------------------


def _stays_assumed(original: Any) -> Any:
    def replace_pod(self: Cache, pod: Any) -> None:
        was = pod.uid in self._assumed
        original(self, pod)
        if was:
            self._assumed.add(pod.uid)

    return replace_pod


def _misses_late_changes(original: Any) -> Any:
    def changed_since(self: Cache, generation: int) -> list[NodeInfo]:
        found: list[NodeInfo] = original(self, generation)
        return found[:-1] if len(found) > 1 else found

    return changed_since


def _keeps_the_old_size(original: Any) -> Any:
    return lambda self, node: self._infos[node.name]


# --- the binding cycle -----------------------------------------------------------------------------------


def _undoes_twice(original: Any) -> Any:
    async def fail_binding(self: BindingCycle, attempt: Any, failed: Any) -> None:
        await self.unreserve(attempt, failed.message)
        await original(self, attempt, failed)

    return fail_binding


def _forgets_only_rejected(original: Any) -> Any:
    async def fail_cycle(self: BindingCycle, attempt: Any, failed: Any) -> None:
        if attempt.assumed and not failed.status.is_rejected:
            await self.unreserve(attempt, failed.message)
            self._failures.handle(attempt.queued, self._ended_with(attempt, failed))
        else:
            await original(self, attempt, failed)

    return fail_cycle


def _frees_in_silence(original: Any) -> Any:
    def handle_binding_failure(self: FailureHandler, queued: Any, assumed: Any, failure: Any) -> None:
        self._forget(assumed)
        self.handle(queued, failure)

    return handle_binding_failure


def _loses_the_unbound(original: Any) -> Any:
    def handle_binding_failure(self: FailureHandler, queued: Any, assumed: Any, failure: Any) -> None:
        self._forget(assumed)
        self._queue.done(assumed.uid)

    return handle_binding_failure


def _gone_pods_stay_in_flight(original: Any) -> Any:
    def handle(self: FailureHandler, queued: Any, failure: Any) -> None:
        if self._pods.pod(queued.pod.key) is not None:
            original(self, queued, failure)

    return handle


def _posts_again(original: Any) -> Any:
    async def post(self: BindingCycle, attempt: Any, plugin: str) -> Any:
        status, is_known = await original(self, attempt, plugin)
        return status, is_known or not status.is_success

    return post


def _reports_nothing_to_plugins(original: Any) -> Any:
    async def report_bound(self: BindingCycle, attempt: Any) -> None:
        attempt.framework.end_cycle(attempt, CycleEnd.BOUND)
        self._observer.ended(attempt)

    return report_bound


def _prepares_without_permit(original: Any) -> Any:
    async def wait_on_permit(self: Framework, attempt: Any) -> Any:
        self.waiting_pods.discard(attempt.pod.uid)
        return SUCCESS

    return wait_on_permit


def _frees_assumed_in_silence(original: Any) -> Any:
    def leaves(self: EventHandlers, pod: Any) -> None:
        assumed = self._cache.get_pod(pod.uid) or pod
        if not self._attempts.reject_waiting(pod.uid):
            self._cache.forget(assumed)

    return leaves


def _queues_the_bound(original: Any) -> Any:
    def updated(self: EventHandlers, old: Any, new: Any) -> None:
        if old.node_name or not new.node_name:
            original(self, old, new)
        else:
            self._assigned(new)

    return updated


# --- preemption ------------------------------------------------------------------------------------------


def _breaks_no_budget(original: Any) -> Any:
    return lambda budgets, *args: original((), *args)


def _fails_in_silence(original: Any) -> Any:
    def ended(self: Evictions, eviction: Any, begun_s: float, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    return ended


# --- groups ----------------------------------------------------------------------------------------------


def _loses_the_last_member(original: Any) -> Any:
    async def give_back(self: GroupScheduler, group: Any, member: Any, failed: Any) -> None:
        if member is group.members[-1]:
            member.is_given_back = True
            self._steps._queue.done(member.queued.uid)
        else:
            await original(self, group, member, failed)

    return give_back


KNOWN: Final[Mapping[str, LifeMutant]] = {
    "queue: failed pods are lost": replaced(
        "A pod whose attempt ended in an error is not queued again.",
        SchedulingQueue,
        "add_unschedulable",
        _loses_failed,
    ),
    "queue: attempts never end": without_effect(
        "Pods stay in flight for ever.", InFlight, "end", answer=True
    ),
    "queue: events during an attempt are lost": without_effect(
        "An event that comes during an attempt is not kept.", InFlight, "remember"
    ),
    "queue: backoffQ is not flushed": without_effect(
        "Pods stay in backoffQ when their backoff is over.", SchedulingQueue, "flush_backoff", answer=0
    ),
    "queue: events move no pod": without_effect("No event moves an unschedulable pod.", Moves, "by_event"),
    "queue: nobody is woken": without_effect(
        "The scheduler is not woken for a new pod.", SchedulingQueue, "_wake"
    ),
    "queue: hints say skip": replaced(
        "Every hint says that the event helps nobody.",
        Hints,
        "_ask_rejecting",
        lambda original: lambda self, *args: Strategy.SKIP,
    ),
    "queue: keys are not indexed": replaced(
        "Unschedulable pods are not found by what they wait for.",
        UnschedulablePool,
        "_index_keys",
        lambda original: lambda self, info, likeness, alike: None,
    ),
    "queue: one of the alike moves": replaced(
        "An event moves only the first of the pods that are alike.", Alike, "infos", _first_of_the_alike
    ),
    "queue: nominations stay": without_effect(
        "The nomination of a pod outlives the pod.", Nominator, "remove"
    ),
    "cache: assumed pods are not forgotten": without_effect(
        "A pod that was not bound stays on its node.", Cache, "forget_if_assumed"
    ),
    "cache: deleted pods stay": without_effect("A deleted pod stays on its node.", Cache, "remove_pod"),
    "cache: nodes keep their size": replaced(
        "The change of a node is not applied.", Cache, "update_node", _keeps_the_old_size
    ),
    "cache: deleted nodes stay": without_effect("A deleted node stays.", Cache, "remove_node"),
    "cache: totals only grow": without_effect(
        "The requests of a pod that left count on.", NodeInfo, "_uncount"
    ),
    "cache: bound pods stay assumed": replaced(
        "The watch does not confirm an assumed pod.", Cache, "_replace", _stays_assumed
    ),
    "cache: the snapshot is a change late": replaced(
        "The snapshot misses the newest change of several.", Cache, "changed_since", _misses_late_changes
    ),
    "reserve: nothing is undone": without_await("Unreserve is not called.", Undoing, "unreserve"),
    "reserve: PostBind is not called": replaced(
        "Plugins do not hear of a binding.", BindingCycle, "report_bound", _reports_nothing_to_plugins
    ),
    "binding: Permit does not hold": replaced(
        "A pod that a plugin holds is bound at once.", Framework, "wait_on_permit", _prepares_without_permit
    ),
    "binding: pods are lost after an error": replaced(
        "A pod that was not bound is not queued again.",
        FailureHandler,
        "handle_binding_failure",
        _loses_the_unbound,
    ),
    "binding: an unknown outcome is a failure": replaced(
        "The host does not read whether a pod was bound.", BindingCycle, "_post", _posts_again
    ),
    "binding: no Scheduled event": without_effect(
        "The event of a binding is not written.", BindingCycle, "_tell"
    ),
    "binding: no condition": without_effect(
        "The result of a failed attempt is not written.", PodStatusWriter, "attempt_failed"
    ),
    "preemption: it never ends": without_effect(
        "A preemptor waits for its victims for ever.", Preempting, "end"
    ),
    "preemption: a failed eviction goes on": replaced(
        "A preemptor waits for ever for victims whose eviction failed.",
        Evictions,
        "_ended",
        _fails_in_silence,
    ),
    "groups: a member is lost": replaced(
        "The last member of a group that is not placed is not queued again.",
        GroupScheduler,
        "_give_back",
        _loses_the_last_member,
    ),
    "groups: members stay aside": replaced(
        "Members that waited for their group are not queued.",
        GroupEntries,
        "add_group",
        _leaves_members_aside,
    ),
    "groups: the entry is lost": replaced(
        "Members that were given back are not queued.", GroupEntries, "attempted", _forgets_the_cycle
    ),
    "groups: a deleted group stays": replaced(
        "The entry of a deleted group stays in the queue.", GroupEntries, "delete_group", _leaves_the_entry
    ),
}
"""By area and name."""

NEW: Final[Mapping[str, LifeMutant]] = {
    "queue: the timer is set once": replaced(
        "The timer of backoffQ is not set again.", FlushTimers, "_fire", _arms_once
    ),
    "queue: an end drops the events of others": replaced(
        "When an attempt ends, the events for the other attempts are dropped.",
        InFlight,
        "end",
        _drops_events_of_others,
    ),
    "queue: bound pods stay queued": replaced(
        "A pod that is bound while it is queued stays in the queue.",
        EventHandlers,
        "_pod_updated",
        _queues_the_bound,
    ),
    "queue: gone pods stay in flight": replaced(
        "The attempt of a pod that was deleted meanwhile does not end.",
        FailureHandler,
        "handle",
        _gone_pods_stay_in_flight,
    ),
    "cache: a missed forget": replaced(
        "A pod whose Reserve or Permit ended in an error stays on its node.",
        BindingCycle,
        "fail_cycle",
        _forgets_only_rejected,
    ),
    "binding: a lost requeue": replaced(
        "The room of a pod that was not bound helps nobody.",
        FailureHandler,
        "handle_binding_failure",
        _frees_in_silence,
    ),
    "binding: a lost requeue after a deletion": replaced(
        "The room of an assumed pod that was deleted helps nobody.",
        EventHandlers,
        "_assumed_pod_leaves",
        _frees_assumed_in_silence,
    ),
    "reserve: a double undo": replaced(
        "Unreserve is called twice.", BindingCycle, "fail_binding", _undoes_twice
    ),
    "preemption: budgets do not count": replaced(
        "Victims are chosen as if no budget protected them.", victims, "violating", _breaks_no_budget
    ),
    "groups: a missed forget": without_effect(
        "A member that was not bound counts as placed in its group.", PodGroups, "forget"
    ),
}
"""By area and name; see KNOWN."""

ALL: Final[Mapping[str, LifeMutant]] = {**KNOWN, **NEW}
