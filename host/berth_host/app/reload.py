"""A new configuration for a running host: a new `Host` takes over from the old one, without a relist.

    make the new host -> let served plugins check their arguments -> give the new host the old one's objects,
    while the old host schedules -> drain and retire the old host -> hand over the changes since then, assumed
    pods and nominations -> attach the plugins, lead

The process calls `reload` at HUP, with a validated configuration. Attempts and backoffs begin anew. An error
before the old host retires leaves the old host unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import orjson
from berth_sdk.kube_object import KubeObject

from berth_host.app.host import Host
from berth_host.cluster.port import WatchEvent
from berth_host.config.configuration import LoadedConfiguration
from berth_host.log import get_logger

log = get_logger()
DRAIN_S: Final = 10.0
"""Seconds (real time) that the old host's open cycles get to end; see `Host.drain`."""
ADDS_PER_TURN: Final = 20
"""Objects to hand over before other tasks of the loop run."""


async def reload(old: Host, configuration: LoadedConfiguration) -> Host:
    """Return the host that follows `old` on the same cluster; it leads if `old` led.

    Raises PluginLoadError, PluginError or ClusterError for a configuration that cannot be used; `old` then
    continues. A later error ends both hosts (`wait_failed`), as neither of them schedules.
    """
    new = old.successor(configuration)
    missed: list[WatchEvent] = []
    try:
        await new.attachments.try_arguments(old.attachments)
        await new.clients.reconcile()
        await _follow(old, new, missed)
    except BaseException:
        old.feed.to = old.handle_event
        await new.clients.close()
        raise
    try:
        leads = old.is_leading
        if leads:
            await old.drain(DRAIN_S)
        await old.retire()
        _hand_over(old, new, missed)
        if len(new.binding.ends or ()):
            await new.clients.reconcile(new.cycles)
        await new.adopt_cluster(old.feed, stands_by=not leads)
        if leads:
            new.begin_scheduling()
    except Exception as err:
        for host in (old, new):
            host.internal_error.fail(err)
        await new.clients.close()  # nobody stops a host that never took over
        raise
    log.info("host.reloaded", profiles=list(new.scheduler.profiles))
    return new


async def _follow(old: Host, new: Host, missed: list[WatchEvent]) -> None:
    """Give `new` all objects of `old`. From now on each change goes to `old`, and into `missed`."""

    def both(event: WatchEvent) -> None:
        old.handle_event(event)
        missed.append(event)

    known = list(_adds(old))
    old.feed.to = both
    needed = new.watching.needed - old.watching.needed
    new.watching.need(old.watching.needed)
    if needed and old.watching.is_followed:
        await old.watching.watch(needed)
    for count, event in enumerate(known):
        if count % ADDS_PER_TURN == 0:
            await asyncio.sleep(0)
        new.handle_event(event)


def _hand_over(old: Host, new: Host, missed: list[WatchEvent]) -> None:
    """Hand over in one step of the loop, so that no change comes in between."""
    for event in missed:
        new.handle_event(event)
    old.feed.to = new.handle_event
    undecided = {pod.uid for pod in old.binding.undecided}
    for uid in list(old.cache.assumed_uids):
        assumed, current = old.cache.get_pod(uid), new.objects.pod_by_uid(uid)
        if assumed is None or current is None or current.node_name:
            continue
        new.cache.assume(assumed)
        if uid in undecided:
            new.binding.adopt(assumed)
    for node_name, pods in old.queue.nominated_pods().items():
        for pod in pods:
            current = new.objects.pod_by_uid(pod.uid)
            if current is None or current.node_name or new.cache.is_assumed(pod.uid):
                continue
            if current.scheduler_name in new.scheduler.profiles:  # else no event would remove it
                new.queue.nominate(current, node_name)
    new.holds.take_over(old.holds)
    new.binding.take_over(old.binding, {name: one.framework for name, one in new.scheduler.profiles.items()})


def _adds(host: Host) -> Iterator[WatchEvent]:
    """Yield all objects as adds; pods last, as they refer to other objects."""
    for kind, store in host.objects.by_kind():
        for item in store.changed_since(0):
            yield WatchEvent(kind, None, item.object)
    for node in host.objects.nodes():
        yield _add("Node", node.object)
    for pod in host.objects.pods():
        yield _add("Pod", pod.object)


def _add(kind: str, item: KubeObject | None) -> WatchEvent:
    if item is not None:
        item.parse(orjson.loads)
    return WatchEvent(kind, None, item)
