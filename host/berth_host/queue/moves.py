"""`Moves`: the moves out of the pool of unschedulable pods, by events and by plugins that activate pods.

    event -> entities whose rejecting plugins registered for it -> hints -> gates -> backoffQ | activeQ | stay

A plugin may name the entities that an event can help, before any hint is called (`NarrowingPlugin`).
If the plugins answer the same for alike pods, only one of them is judged, so that thousands of pods that wait
for the same event cost no more than one. Owned by `SchedulingQueue`.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (moveAllToActiveOrBackoffQueue), v1.37.
"""

from __future__ import annotations

from collections.abc import Iterable

from berth_sdk.pod import Pod

from berth_host.queue.events import FORCE_ACTIVATE, QueueEvent
from berth_host.queue.gates import OpenMove
from berth_host.queue.hints import Hints, Strategy
from berth_host.queue.interfaces import Evicting, PreCheck
from berth_host.queue.places import Place, Places
from berth_host.queue.pool import Alike
from berth_host.queue.queued_pod import QueuedEntity
from berth_host.queue.registrations import Registration


class Moves:
    """The moves out of the pool of unschedulable pods."""

    def __init__(self, places: Places, hints: Hints, evicting: Evicting) -> None:
        self._places = places
        self._hints = hints
        self._evicting = evicting

    def by_event(self, event: QueueEvent, pre_check: PreCheck | None = None) -> None:
        """Requeue all pods that `event` helps and that pass `pre_check`."""
        pool = self._places.pool
        self._places.gates.missed(event)
        if event.is_wildcard:
            self.each([info for info in pool if _passes(info, pre_check)], event)
            return
        pool.renew(self._evicting.take_changed())
        leaving: list[tuple[QueuedEntity, Strategy]] = []
        for alike in pool.concerned(self._hints.interested(event)):
            if alike.is_gated and not _concerns(alike.gating_plugin_events, event):
                continue
            strategy = None
            if pre_check is None and not _is_about(event, alike):
                strategy = self._hints.judge_alike(alike, event)
            if strategy is None:
                chosen = (info for info in alike.infos if _passes(info, pre_check))
                leaving.extend((info, self._hints.judge(info, event)) for info in chosen)
            elif strategy is not Strategy.SKIP and not self._places.stay_gated(alike, strategy, event.label):
                leaving.extend((info, strategy) for info in alike.infos)
        if len(leaving) > 1:
            leaving.sort(key=lambda item: pool.place_of(item[0]))
        self._requeue(leaving, event)

    def each(self, infos: Iterable[QueuedEntity], event: QueueEvent, *, gated: bool = False) -> None:
        """Requeue the entities of `infos` (all in the pool) that `event` helps; each is judged by itself.

        `gated`: gated ones too, whichever events their gates wait for.
        """
        asked = (
            info
            for info in infos
            if gated or not info.is_gated or _concerns(info.gating_plugin_events, event)
        )
        self._requeue([(info, self._hints.judge(info, event)) for info in asked], event)

    def continue_move(self, move: OpenMove) -> None:
        """Continue a move that gates interrupted. Judge an entity that stays gated by the events since."""
        info = move.entity
        self._places.requeue(info, move.strategy, move.label, move.answered)
        for event, several in move.answered.missed.values():
            if not self._stays_gated(info):
                return
            if not several:
                self.each([info], event)
            elif _concerns(info.gating_plugin_events, event):
                strategy = Strategy.AFTER_BACKOFF
                if any(one.pending_plugins for one in info.pods()):
                    # A pod skips its backoff if it is pending on a plugin that waits for the event.
                    strategy = max(strategy, self._hints.judge(info, event))
                self._places.requeue(info, strategy, event.label)

        if move.hinted is not None and self._stays_gated(info):
            self._places.requeue(info, *move.hinted)

    def _stays_gated(self, info: QueuedEntity) -> bool:
        places = self._places
        return places.pool.get(info.key) is info and places.gates.open_move(info) is None

    def by_own_update(self, info: QueuedEntity, changes: list[QueueEvent]) -> None:
        """Judge an entity in the pool again after the update of its pod, or of a member."""
        gates = self._places.gates
        awaited = gates.open_move(info)
        for event, strategy in zip(changes, self._hints.judge_own_updates(info, changes), strict=True):
            if self._places.requeue(info, strategy, event.label) is not Place.POOL:
                return
        if awaited is not None and gates.open_move(info) is awaited:
            # The open question to the gate was about the pod's old version.
            self._places.requeue(info, awaited.strategy, awaited.label)

    def activate(self, key: str) -> bool:
        """Move the entity with this key to activeQ for a plugin; return True if the entity left its place."""
        info = self._places.pool.get(key)
        if info is not None:
            return (
                self._places.requeue(info, Strategy.IMMEDIATELY, FORCE_ACTIVATE, afresh=True)
                is not Place.POOL
            )
        info = self._places.backoff.get(key)
        if info is None:
            return False
        self._places.activate_from_backoff(info, FORCE_ACTIVATE)
        return True

    def _requeue(self, leaving: Iterable[tuple[QueuedEntity, Strategy]], event: QueueEvent) -> None:
        for info, strategy in leaving:
            if strategy is not Strategy.SKIP and not self._places.gates.postpones(info, strategy, event):
                self._places.pool.remove(info.key)
                self._places.requeue(info, strategy, event.label)


def _concerns(registrations: Iterable[Registration], event: QueueEvent) -> bool:
    return any(item.matches(event) for item in registrations)


def _passes(entity: QueuedEntity, pre_check: PreCheck | None) -> bool:
    return pre_check is None or any(pre_check(info.pod) for info in entity.pods())


def _is_about(event: QueueEvent, alike: Alike) -> bool:
    """Return True if one of the pods is the event's object: plugins may judge that pod differently."""
    old, new = event.old, event.new
    if isinstance(old, Pod) and alike.has(old):
        return True
    return new is not old and isinstance(new, Pod) and alike.has(new)
