"""The resources that the cluster is asked to hand over, from the first list to plugins that attach later.

Made by `parts`; `watched` says what plugins need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.watched import resources_of
from berth_host.cluster.port import ClusterPort, WatchEvent
from berth_host.errors.cluster import UnavailableError

WATCH_S: Final = 10.0
"""Seconds (real time) for listing the kinds that a new plugin needs."""


class Watching:
    """made -follow, take_over-> followed. `needed`: the kinds asked of the cluster; it only grows.
    `is_followed`: whether the cluster's watches are followed.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self.needed: frozenset[str] = frozenset()
        self.is_followed = False

    def need(self, resources: Collection[str]) -> None:
        """Count these as needed, without asking the cluster."""
        self.needed |= frozenset(resources)

    async def follow(self, handle: Callable[[WatchEvent], None]) -> None:
        """List the needed kinds and have `handle` called for every change. Raises ClusterError."""
        self.is_followed = True
        await self._cluster.start(handle, self.needed)

    def take_over(self) -> None:
        """Another host of the same cluster follows it already."""
        self.is_followed = True

    async def declare(self, descriptors: Iterable[Descriptor]) -> None:
        """Ask the cluster for the kinds that these plugins, which are about to be attached, need as well.

        Raises ClusterError.
        """
        new = frozenset[str]().union(*map(resources_of, descriptors)) - self.needed
        if new and self.is_followed:
            await self.watch(new)
        self.need(new)

    async def watch(self, resources: Collection[str]) -> None:
        """Have a cluster that is followed already hand these over as well.

        Raises UnavailableError when that takes longer than WATCH_S: a missing right must not keep the plugin
        waiting. The cluster goes on trying, so asking again later may help.
        """
        try:
            async with asyncio.timeout(WATCH_S):
                await self._cluster.watch(resources)
        except TimeoutError as err:
            raise UnavailableError(
                ", ".join(sorted(resources)),
                "",
                f"not listed within {WATCH_S:g} s; the log says why (watch.failed): mostly it is a role that"
                " lacks list and watch",
            ) from err
