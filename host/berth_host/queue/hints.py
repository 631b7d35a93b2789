"""Decides whether an event may help a pod: by the plugins' registrations, then by their QueueingHints.

Called by the queue for unschedulable pods, and for a pod that comes back from an attempt, with the events
since its pop. Source: kube-scheduler `backend/queue/scheduling_queue.go` (isPodWorthRequeuing,
isEntityWorthRequeuing, determineSchedulingHintForInFlightPod), v1.37.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import Narrowing

from berth_host.metrics.series import instant_s
from berth_host.queue.events import PluginRequest, QueueEvent
from berth_host.queue.in_flight import Remembered
from berth_host.queue.interfaces import DEFERRED, HintQuestion, HintVerdict, QueueSeams
from berth_host.queue.pool import Alike, Interest, Wanted
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedEntity, QueuedPodInfo
from berth_host.queue.registrations import Registration, RegistrationIndex


class Strategy(IntEnum):
    """The way in which an event requeues a pod; the strongest comes last."""

    SKIP = 0
    """Stay in the pool of unschedulable pods."""
    AFTER_BACKOFF = 1
    """Go to backoffQ, or to activeQ if the backoff is over."""
    IMMEDIATELY = 2
    """Go to activeQ at once: the event that the pod was pending on has happened."""


class Hints:
    """The registrations and hints of all profiles.

    `every_plugin`: also call the hints after a deciding verdict, so that all verdicts are observed.
    """

    def __init__(
        self, seams: QueueSeams, registrations: Mapping[str, RegistrationIndex], *, every_plugin: bool
    ) -> None:
        self._seams = seams
        self._registrations = registrations
        self._every_plugin = every_plugin

    def is_of_interest(self, event: QueueEvent) -> bool:
        """Return True if a plugin of any profile registered for this kind of event."""
        return event.is_wildcard or any(index.matching(event) for index in self._registrations.values())

    def interested(self, event: QueueEvent) -> Interest:
        """Return which waiting pods the event may help: those of the plugins of all profiles that registered
        for this kind of event, as far as the plugins narrow it, in a stable order.
        """
        plugins: dict[str, None] = {}
        keys: dict[tuple[str, str], Wanted] = {}
        for name, index in self._registrations.items():
            narrows = {} if self._every_plugin else self._seams.profiles[name].narrows
            for plugin, registrations in index.matching(event).items():
                found = None
                if plugin in narrows and all(one.ask and not one.leaves_scope for one in registrations):
                    found = self._narrowed(plugin, narrows[plugin], event)
                if found is None:
                    plugins[plugin] = None
                else:
                    keys[name, plugin] = found
        if not keys:
            return Interest(plugins)
        return Interest(plugins, keys, [one for one in (event.old, event.new) if isinstance(one, Pod)])

    def _narrowed(self, plugin: str, narrows: Narrowing, event: QueueEvent) -> Wanted | None:
        def wants(key: Hashable) -> bool:
            try:
                return found(key)  # type: ignore[operator,misc]  # called for functions alone
            except Exception as err:  # noqa: BLE001  # A plugin's error must not keep a pod from being retried.
                self._seams.observer.plugin_raised(plugin, "PreQueueingHint", err)
                return True

        try:
            found = narrows.of_event(event.cluster_event)
            wanted = None if found is None else wants if callable(found) else frozenset(found)
        except Exception as err:  # noqa: BLE001  # as above
            self._seams.observer.plugin_raised(plugin, "PreQueueingHint", err)
            wanted = None
        self._seams.observer.hint_narrowed(plugin, event, to_all=wanted is None)
        return wanted

    def judge(self, entity: QueuedEntity, event: Remembered) -> Strategy:
        """Return the strategy of `event` for an entity: the strongest one for a pod of it."""
        is_change = not isinstance(event, PluginRequest)
        if is_change and entity.is_group and self._seams.rules.judges_group_trees:
            return self._judge_group(entity, event)
        best = Strategy.SKIP
        for info in self._members(entity, event):
            if not self._decided(info, best):
                best = max(best, self._judge_pod(info, event, entity.uid))
        return best

    def _judge_group(self, entity: QueuedEntity, event: Remembered) -> Strategy:
        """Return the strategy for a group whose gates were called up to the first closed one: members behind
        it have no plugin on record, and do not requeue the group.
        """
        best = Strategy.SKIP
        is_gated = is_unjudged = False
        for info in self._members(entity, event):
            is_gated |= info.is_gated
            if entity.is_gated and not info.rejecting:
                is_unjudged = True
            elif not self._decided(info, best):
                best = max(best, self._judge_pod(info, event, entity.uid))
        if entity.is_gated and is_unjudged and not is_gated:
            # The member with the closed gate has left the group.
            return max(best, Strategy.AFTER_BACKOFF)
        return best

    def _members(self, entity: QueuedEntity, event: Remembered) -> Iterable[QueuedPodInfo]:
        """Return the pods of an entity to judge: of a group, one of each kind, and the pod that the event is
        about.
        """
        if (
            self._every_plugin
            or not isinstance(entity, QueuedGroupInfo)
            or isinstance(event, PluginRequest)
            or event.is_wildcard
        ):
            return entity.pods()
        subjects = dict.fromkeys(one.uid for one in (event.old, event.new) if isinstance(one, Pod))
        return entity.kinds(self._seams.profiles).one_of_each(subjects)

    def _judge_pod(self, info: QueuedPodInfo, event: Remembered, entity_uid: str) -> Strategy:
        if isinstance(event, PluginRequest):
            return _judge_request(info, event, entity_uid)
        if not info.is_rejected:
            return Strategy.AFTER_BACKOFF
        if event.is_wildcard:
            subject = event.new
            if isinstance(subject, Pod) and subject.uid != info.uid:
                return Strategy.SKIP
            return Strategy.AFTER_BACKOFF
        index = self._registrations.get(info.pod.scheduler_name)
        if index is None:
            return Strategy.AFTER_BACKOFF
        return self._ask_rejecting((info,), event, index) or Strategy.SKIP

    def judge_alike(self, alike: Alike, event: QueueEvent) -> Strategy | None:
        """Return the strategy of an event about another object for all of `alike`.

        None: each pod must be judged by itself.
        """
        info = alike.first
        if not isinstance(info, QueuedPodInfo):
            return None
        index = self._registrations.get(info.pod.scheduler_name)
        if event.is_wildcard or index is None or not info.is_rejected:
            return None
        signs = self._seams.profiles[info.pod.scheduler_name].signs
        for plugin, registrations in index.matching(event).items():
            if not info.is_rejected_by(plugin):
                continue
            # Each pod has claims of its own, so one may be in the plugin's scope and another one not.
            if any(one.leaves_scope or (one.ask and plugin not in signs) for one in registrations):
                return None
        return self._ask_rejecting(alike.pods(), event, index)

    def judge_all(self, info: QueuedPodInfo, events: Sequence[Remembered]) -> Strategy:
        """Return the strongest strategy of `events` for a pod that comes back from an attempt."""
        best = Strategy.SKIP
        for event in events:
            best = max(best, self.judge(info, event))
            if self._decided(info, best):
                break
        return best

    def judge_own_updates(self, entity: QueuedEntity, events: Sequence[QueueEvent]) -> Iterator[Strategy]:
        """Return the strategy of each event about a pod of the entity, in order; judged lazily."""
        answers = (self.judge(entity, event) for event in events)
        return iter(list(answers)) if self._every_plugin else answers

    def _ask_rejecting(
        self, infos: Collection[QueuedPodInfo], event: QueueEvent, index: RegistrationIndex
    ) -> Strategy | None:
        """Return the strategy of `event` for all of `infos`.

        None: there are several pods, and a plugin answers later.
        """
        best = Strategy.SKIP
        info = next(iter(infos))
        for plugin, registrations in index.matching(event).items():
            if not info.is_rejected_by(plugin):
                continue
            for registration in registrations:
                if not registration.selects(event):
                    continue
                started_s = instant_s()
                verdict = self._verdict(plugin, registration, event, info, started_s)
                took_s = instant_s() - started_s
                self._seams.observer.hint_took(plugin, event.label, verdict, took_s)
                if verdict is HintVerdict.DEFERRED and len(infos) > 1:
                    return None
                self._seams.observer.hint_given(plugin, event.label, infos, verdict)
                if verdict in (HintVerdict.SKIP, HintVerdict.DEFERRED):
                    continue
                best = max(best, strategy_of(info, plugin))
                if self._decided(info, best):
                    return best
        return best

    def _decided(self, info: QueuedPodInfo, best: Strategy) -> bool:
        """Return True if no further verdict can change the strategy.

        Only a plugin that the pod is pending on can improve AFTER_BACKOFF.
        """
        if self._every_plugin:
            return False
        return best is Strategy.IMMEDIATELY or (best is Strategy.AFTER_BACKOFF and not info.pending_plugins)

    def _verdict(
        self,
        plugin: str,
        registration: Registration,
        event: QueueEvent,
        info: QueuedPodInfo,
        asked_s: float,
    ) -> HintVerdict:
        if registration.leaves_scope:
            in_scope = self._seams.profiles[info.pod.scheduler_name].in_scope[plugin]
            return HintVerdict.SKIP if in_scope(info.pod) else HintVerdict.QUEUE
        if not registration.ask:
            return HintVerdict.QUEUE
        ask = self._seams.profiles[info.pod.scheduler_name].hint
        try:
            answer = ask(
                HintQuestion(plugin, event.cluster_event, info.pod, info.attempts, event.label, asked_s)
            )
        except Exception as err:  # noqa: BLE001  # A plugin's error must not keep the pod from being retried.
            self._seams.observer.plugin_raised(plugin, "QueueingHint", err)
            return HintVerdict.ERROR
        if answer is DEFERRED:
            return HintVerdict.DEFERRED
        return HintVerdict.of(answer)


def strategy_of(info: QueuedPodInfo, plugin: str) -> Strategy:
    """Return the strategy if `plugin` says that the pod may be schedulable.

    A pod that was pending on the plugin skips its backoff.
    """
    return Strategy.IMMEDIATELY if plugin in info.pending_plugins else Strategy.AFTER_BACKOFF


def _judge_request(info: QueuedPodInfo, request: PluginRequest, entity_uid: str) -> Strategy:
    if request.uids is None:
        meant = info.is_rejected_by(request.plugin)
    else:
        meant = info.uid in request.uids or entity_uid in request.uids
    if not meant:
        return Strategy.SKIP
    return Strategy.IMMEDIATELY if request.skip_backoff else strategy_of(info, request.plugin)
