"""Configuration and plugins -> the resources that the host needs the cluster to hand over, and no others.

Called by `parts` before the cluster is taken over, and by `watching` for plugins that attach later. What a
plugin declares (`needs`) and what it wants to hear of (`events`) count alike; what the host itself reads is
named here.
Source: kube-scheduler `scheduler.go` (unionedGVKs) and `eventhandlers.go` (addAllEventHandlers), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from berth_sdk.needs import NeedKind
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.cache.resources import KIND_OF_RESOURCE
from berth_host.config.configuration import LoadedConfiguration
from berth_host.plugins.clients import Clients
from berth_host.queue.events import WILDCARD
from berth_host.queue.registrations import (
    ANY_RESOURCE,
    REJECTING_POINTS,
    Registration,
    registrations_of,
)

ALWAYS: Final = frozenset({"pods", "nodes"})
BUDGETS: Final = "policy/poddisruptionbudgets"
"""Read by the host's preemption, which any PostFilter plugin may ask for."""
NAMESPACES: Final = "namespaces"
"""Read where a plugin's scope has a namespaceSelector."""
_RESOURCE_OF_KIND: Final = {kind: resource for resource, kind in KIND_OF_RESOURCE.items()} | {"Node": "nodes"}


def watched_resources(configuration: LoadedConfiguration, clients: Clients) -> frozenset[str]:
    """The needs of every profile, as far as its plugins are known."""
    found = set(ALWAYS)
    for profile in configuration.profiles:
        if profile.plugins_at("postFilter"):
            found.add(BUDGETS)
        for name, client in clients.by_profile[profile.scheduler_name].items():
            found |= resources_of(client.descriptor)
            settings = configuration.berth.plugin(name)
            if settings is not None and settings.scope.namespace_selector is not None:
                found.add(NAMESPACES)
    return frozenset(found)


def resources_of(descriptor: Descriptor) -> frozenset[str]:
    """The kinds that one plugin reads and the events that it wants."""
    found = {need.resource for need in descriptor.needs if need.kind is NeedKind.OBJECT}
    if REJECTING_POINTS & {point.config_name for point in descriptor.points}:
        found |= _of_events(registrations_of(descriptor.events))
    return frozenset(found)


def _of_events(registrations: Iterable[Registration]) -> set[str]:
    return {
        resource for one in registrations for resource in _of_event(one.resource) if resource not in ALWAYS
    }


def _of_event(name: str) -> Iterator[str]:
    """`storage.k8s.io/CSINode`: storage.k8s.io/csinodes; `widgets.v1.example.com`: example.com/widgets.

    Kinds that nothing is known of are left out: they have no watch that could tell of them.
    """
    if name == WILDCARD:
        for each in ANY_RESOURCE:
            yield from _of_event(each)
        return
    kind = name.rpartition("/")[2]
    if kind in _RESOURCE_OF_KIND:
        yield _RESOURCE_OF_KIND[kind]
    elif kind.count(".") > 1:
        plural, _, group = kind.split(".", 2)
        yield f"{group}/{plural}"
