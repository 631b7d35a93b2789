"""The resources that the host watches: only those that the host or its plugins read.

A host adds the resources of its configuration before it follows the cluster. Plugins that attach later may
need more. The objects that a plugin reads (`needs`) and the events that it registers for (`events`) both
count.
Source: kube-scheduler `scheduler.go` (unionedGVKs) and `eventhandlers.go` (addAllEventHandlers), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from berth_sdk.events import ANY_RESOURCE, POD_RESOURCES
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.needs import NeedKind
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.cluster.port import ClusterPort, WatchEvent
from berth_host.config.configuration import LoadedConfiguration
from berth_host.errors.cluster import UnavailableError
from berth_host.model.resources import COSCHEDULING_GROUPS, KIND_OF_RESOURCE, RESOURCE_OF_GATE
from berth_host.queue.events import WILDCARD
from berth_host.queue.registrations import REJECTING_POINTS, Registration, registrations_of
from berth_host.rpc.client import PluginClient

WATCH_S: Final = 10.0
"""Seconds (real time) to list the resources that a new plugin needs."""
ALWAYS: Final = frozenset({"pods", "nodes"})
BUDGETS: Final = "policy/poddisruptionbudgets"
"""The host's preemption, which any PostFilter plugin may call, reads PodDisruptionBudgets."""
NAMESPACES: Final = "namespaces"
"""The host reads namespaces if the operator's scope of a plugin has a namespaceSelector."""
VOLUME_CLAIMS: Final = "persistentvolumeclaims"
RESOURCE_CLAIMS: Final = "resource.k8s.io/resourceclaims"
"""The host reads claims if the scope that a plugin declares names classes of claims."""
GROUP_POLICY: Final = "PodGroupPreemptionPolicy"
"""The feature gate with which the group says whether it preempts, instead of its pods."""
_BY_GATE: Final = frozenset(RESOURCE_OF_GATE.values())
_RESOURCE_OF_KIND: Final = {kind: resource for resource, kind in KIND_OF_RESOURCE.items()} | {"Node": "nodes"}


class Watching:
    """The watched resources of one cluster: made -follow, take_over-> followed.

    `needed`: the resources to watch; the set only grows. `is_followed`: True after a host follows the
    cluster.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self.needed: frozenset[str] = frozenset()
        self.is_followed = False

    def need(self, resources: Collection[str]) -> None:
        """Add resources to `needed`, without a request to the cluster."""
        self.needed |= frozenset(resources)

    async def follow(self, handle: Callable[[WatchEvent], None]) -> None:
        """List the needed resources, and call `handle` with every change. Raises ClusterError."""
        self.is_followed = True
        await self._cluster.start(handle, self.needed)

    def take_over(self) -> None:
        """Record that another host follows the same cluster already."""
        self.is_followed = True

    async def declare(self, descriptors: Iterable[Descriptor]) -> None:
        """Watch the further resources that plugins need, before they are attached.

        Raises ClusterError.
        """
        new = frozenset[str]().union(*map(resources_of, descriptors)) - self.needed
        if new and self.is_followed:
            await self.watch(new)
        self.need(new)

    async def watch(self, resources: Collection[str]) -> None:
        """Watch further resources of a followed cluster; return after they were listed.

        Raises UnavailableError after WATCH_S, so that a missing right does not block the plugin. The cluster
        retries the list, so a later call may succeed.
        """
        try:
            async with asyncio.timeout(WATCH_S):
                await self._cluster.watch(resources)
        except TimeoutError as err:
            raise UnavailableError(
                ", ".join(sorted(resources)),
                "",
                f"not listed within {WATCH_S:g} s; see watch.failed in the log: usually a role lacks"
                " the rights list and watch",
            ) from err


class ChangeFeed:
    """The feed of the cluster's changes to one host, and after a reload to the next one, without a relist.

    `to`: the current handler of the changes.
    """

    def __init__(self, to: Callable[[WatchEvent], None]) -> None:
        self.to = to

    def handle(self, event: WatchEvent) -> None:
        """Pass one change on."""
        self.to(event)


def group_gates(configuration: LoadedConfiguration) -> frozenset[str]:
    """Return the feature gates of pod groups that are on; none for a version with other pod groups."""
    if not configuration.emulation.rules.has_pod_groups:
        return frozenset()
    return frozenset(gate for gate in RESOURCE_OF_GATE if configuration.gates.is_enabled(gate))


def watched_resources(
    configuration: LoadedConfiguration, clients: Mapping[str, Mapping[str, PluginClient]]
) -> frozenset[str]:
    """Return the resources that all profiles need. `clients`: by schedulerName and plugin.

    Served plugins that are not attached yet add theirs later (`Watching.declare`).
    """
    found = {*ALWAYS, *(RESOURCE_OF_GATE[gate] for gate in group_gates(configuration))}
    if configuration.scheduler.extenders:
        # Every change may help a pod that an extender rejected (`queue.wiring`).
        found |= _of_events(registrations_of(None))
    for profile in configuration.profiles:
        if profile.plugins_at("postFilter"):
            found.add(BUDGETS)
        for name, client in clients[profile.scheduler_name].items():
            found |= resources_of(client.descriptor)
            settings = configuration.berth.plugin(name)
            if settings is not None and settings.scope.namespace_selector is not None:
                found.add(NAMESPACES)
    return frozenset(found)


def judges_coscheduling(descriptor: Descriptor) -> bool:
    """Return True for a plugin at PlacementFeasible that reads coscheduling's PodGroups: with such a plugin,
    the host schedules the pods with their label as groups.
    """
    return ExtensionPoint.PLACEMENT_FEASIBLE in descriptor.points and COSCHEDULING_GROUPS in resources_of(
        descriptor
    )


def resources_of(descriptor: Descriptor) -> frozenset[str]:
    """Return the resources that one plugin reads, and those of the events that it registers for."""
    found = {need.resource for need in descriptor.needs if need.kind is NeedKind.OBJECT}
    for term in descriptor.scope or ():
        found |= {VOLUME_CLAIMS} if term.storage_classes else set()
        found |= {RESOURCE_CLAIMS} if term.device_classes else set()
    if REJECTING_POINTS & {point.config_name for point in descriptor.points}:
        found |= _of_events(registrations_of(descriptor.events))
    return frozenset(found)


def _of_events(registrations: Iterable[Registration]) -> set[str]:
    return {
        resource for one in registrations for resource in _of_event(one.resource) if resource not in ALWAYS
    }


def _of_event(name: str) -> Iterator[str]:
    """Yield the resources of an event: `storage.k8s.io/CSINode` -> storage.k8s.io/csinodes,
    `widgets.v1.example.com` -> example.com/widgets.

    Unknown kinds yield nothing, as the host has no watch for them. The kinds of pod groups yield nothing
    either: their feature gates decide, as most API servers do not serve them.
    """
    if name == WILDCARD:
        for each in ANY_RESOURCE:
            yield from _of_event(each)
        return
    kind = "Pod" if name in POD_RESOURCES else name.rpartition("/")[2]
    if kind in _RESOURCE_OF_KIND:
        if _RESOURCE_OF_KIND[kind] not in _BY_GATE:
            yield _RESOURCE_OF_KIND[kind]
    elif kind.count(".") > 1:
        plural, _, group = kind.split(".", 2)
        yield f"{group}/{plural}"
