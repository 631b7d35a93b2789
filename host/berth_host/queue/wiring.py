"""`QueueWiring`: makes the queue's functions and registrations from the clients of the profiles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.scope import Scope

from berth_host.config.configuration import ResolvedProfile
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME, EXTENDER
from berth_host.config.emulation import Emulation
from berth_host.model.clock import Clock
from berth_host.queue.events import PluginRequest
from berth_host.queue.interfaces import (
    QueueProfile,
    QueueSort,
    SortKeyQuestion,
)
from berth_host.queue.plugin_calls import AnswerSink, PluginQuestions, QueueClient
from berth_host.queue.registrations import (
    CLAIMS_LEAVE_SCOPE,
    LEAVES_SCOPE,
    NAMESPACE_LEAVES_SCOPE,
    REJECTING_POINTS,
    Registration,
    registrations_of,
)
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.rpc.client import PluginClient


class EnabledPlugin(Protocol):
    """A plugin that a profile enables at a point."""

    @property
    def client(self) -> PluginClient:
        """The client that calls the plugin in this profile."""
        ...


PointPlugins = Mapping[ExtensionPoint, Sequence[EnabledPlugin]]
"""The plugins of a profile by point, in configured order."""


class QueueWiring:
    """The functions that the queue calls, and the delivery of late answers to the queue."""

    def __init__(
        self,
        clock: Clock,
        refresh: Callable[[], Awaitable[None]],
        emulation: Emulation,
        *,
        has_extenders: bool = False,
        traced: Callable[[QueueClient], QueueClient] = lambda client: client,
    ) -> None:
        """Create the wiring. `refresh`: updates the snapshot when no cycle holds it. `emulation`: its events
        replace those that the plugins declare. `has_extenders`: the configuration has an extender, whatever
        its verbs; any event then helps the pods that extenders rejected. `traced`: returns a client
        that makes spans of its traced calls.
        """
        self._emulation = emulation
        self._has_extenders = has_extenders
        self.busy: set[asyncio.Future[None]] = set()
        self._queue: SchedulingQueue
        """Set by `connect`: the queue is made from the functions of this object."""
        self._sink = AnswerSink()
        self._questions = PluginQuestions(clock, self._sink, self.busy, refresh)
        self._traced = traced
        self._clients: list[tuple[str, frozenset[str], Mapping[str, PluginClient]]] = []
        """Per profile: schedulerName, the plugins that can reject a pod, the clients by plugin."""
        self._scopes: dict[str, tuple[Scope, ...] | None] = {}
        """The scope that each attached plugin declared last."""

    @property
    def retries(self) -> int:
        """The number of questions that wait for a retry."""
        return self._questions.retry_count

    def stop(self) -> None:
        """Ask no plugin again whose answer failed."""
        self._questions.stop()

    def connect(self, queue: SchedulingQueue) -> None:
        """Deliver all late answers to `queue` from now on."""
        self._queue = queue

        def sort_key(question: SortKeyQuestion, key: bytes) -> None:
            queue.sort_key_answered(question, key or None)

        self._sink.gate, self._sink.hint, self._sink.sort_key = (
            queue.gate_answered,
            queue.hint_answered,
            sort_key,
        )

    def plugin_attached(self, plugin: str) -> None:
        """Register the events of a newly attached plugin; requeue the pods that failed without it."""
        for scheduler_name, registrations in self.registrations_of(plugin):
            self._queue.register_events(scheduler_name, plugin, registrations)
        self._queue.plugin_recovered(plugin)
        found = (clients[plugin] for _, _, clients in self._clients if plugin in clients)
        scope = next((client.descriptor.scope for client in found), None)
        if self._scopes.get(plugin) != scope:
            # Pods that the plugin rejected may be outside now: then no event of the plugin requeues them.
            self._queue.requeue(PluginRequest(plugin=plugin, uids=None))
        self._scopes[plugin] = scope

    def registrations_of(self, plugin: str) -> Iterator[tuple[str, tuple[Registration, ...]]]:
        """Yield the events of an attached plugin with the schedulerName of each of its profiles."""
        for scheduler_name, rejecting, clients in self._clients:
            if plugin in rejecting and plugin in clients:
                yield scheduler_name, self._declared(plugin, scheduler_name, clients[plugin])

    def profiles(
        self,
        profiles: Iterable[ResolvedProfile],
        clients: Mapping[str, Mapping[str, PluginClient]],
        plugins: Mapping[str, PointPlugins],
    ) -> dict[str, QueueProfile]:
        """Return gates, registrations and hints of every profile, by schedulerName.

        `clients`: by schedulerName and plugin. `plugins`: by schedulerName.
        """
        return {
            profile.scheduler_name: self._profile(
                profile, clients[profile.scheduler_name], plugins[profile.scheduler_name]
            )
            for profile in profiles
        }

    def _profile(
        self, profile: ResolvedProfile, clients: Mapping[str, PluginClient], points: PointPlugins
    ) -> QueueProfile:
        rejecting = frozenset(
            enabled.name for point in REJECTING_POINTS for enabled in profile.plugins_at(point)
        )
        self._clients.append((profile.scheduler_name, rejecting, clients))
        # Of pods that a plugin signs alike, one may be in its scope and another one not.
        alike = {
            name: client.local
            for name, client in clients.items()
            if client.local is not None and not client.is_scoped
        }
        return QueueProfile(
            gates={
                plugin.client.name: self._questions.gate(self._traced(plugin.client))
                for plugin in points[ExtensionPoint.PRE_ENQUEUE]
            },
            registrations=self._registrations(profile.scheduler_name, rejecting, clients),
            hint=self._questions.hint({name: self._traced(client) for name, client in clients.items()}),
            signs={name: sign for name, local in alike.items() if (sign := local.sign_queue) is not None},
            in_scope={name: client.in_scope for name, client in clients.items()},
            narrows={
                name: narrows for name, local in alike.items() if (narrows := local.narrows) is not None
            },
            served=frozenset(
                plugin.client.name for plugin in points[ExtensionPoint.PRE_ENQUEUE] if plugin.client.is_served
            ),
        )

    def _registrations(
        self, profile: str, rejecting: frozenset[str], clients: Mapping[str, PluginClient]
    ) -> dict[str, tuple[Registration, ...]]:
        """Return the events that every plugin of `rejecting` declares, and those of extenders.

        A default plugin that this build does not have rejects nothing, and waits for no event.
        Extenders cannot declare events: every change counts for them, without a hint. Source: kube-scheduler
        `framework/runtime/framework.go` (NewFramework), v1.36.
        """
        result: dict[str, tuple[Registration, ...]] = {}
        if self._has_extenders:
            result[EXTENDER] = registrations_of(None)
        for name in sorted(rejecting):
            if name in clients:
                result[name] = self._declared(name, profile, clients[name])
            elif name in DEFAULT_PLUGINS_BY_NAME:
                result[name] = registrations_of(self._emulation.events.get(name, ()))
        return result

    def _declared(self, name: str, profile: str, client: PluginClient) -> tuple[Registration, ...]:
        found = registrations_of(self._emulation.events.get(name, client.descriptor.events_in(profile)))
        if not client.is_scoped:
            return found
        by_claims = any(one.storage_classes or one.device_classes for one in client.descriptor.scope or ())
        by_namespaces = client.settings.scope_reads_namespaces
        return (
            *found,
            LEAVES_SCOPE,
            *(CLAIMS_LEAVE_SCOPE if by_claims else ()),
            *((NAMESPACE_LEAVES_SCOPE,) if by_namespaces else ()),
        )

    def sort(self, plugins: Mapping[str, PointPlugins]) -> QueueSort:
        """Return the one QueueSort plugin, which is the same in every profile."""
        points = next(iter(plugins.values()), None)
        if points is None or not points[ExtensionPoint.QUEUE_SORT]:
            return QueueSort()
        client = points[ExtensionPoint.QUEUE_SORT][0].client
        if client.local is not None and client.descriptor.less_only:
            return QueueSort(plugin=client.name, less=client.local.less)
        return QueueSort(plugin=client.name, sort_key=self._questions.sort_key(self._traced(client)))
