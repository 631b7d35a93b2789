"""`count_copies`: how many equal pods each node takes, by the columns, without a cycle for each of the pods.

A plugin says so by a method `count_copies(pod, nodes)` beside Filter. The method returns int64[n]: how many
equal pods could follow each other onto each node by this plugin, where the first one passes Filter. It
returns None if the plugin cannot tell. Where the verdicts of a plugin follow from Node objects alone, all
equal pods pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, runtime_checkable

import numpy as np
from berth_sdk.extension_points import DependsOn, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.rpc.client import PluginClient

UNLIMITED: Final = np.iinfo(np.int64).max
"""The number of copies by plugins that set no limit."""


@runtime_checkable
class CountsCopies(Protocol):
    """A plugin whose verdicts change when equal pods are placed, and that can count them."""

    def count_copies(self, pod: Pod, nodes: NodeTable) -> NDArray[np.int64] | None:
        """Return how many equal pods each node takes; see the module."""
        ...


def count_copies(filters: Iterable[PluginClient], pod: Pod, nodes: NodeTable) -> NDArray[np.int64] | None:
    """Return int64[n]: how many equal pods each of `nodes` takes, where the first one passes.

    `filters`: the Filter plugins that judge the pod. None: some plugin cannot tell.
    """
    least = np.full(len(nodes), UNLIMITED, dtype=np.int64)
    for client in filters:
        if _judges_all_alike(client):
            continue
        plugin = None if client.local is None else client.local.plugin
        if not isinstance(plugin, CountsCopies):
            return None
        found = plugin.count_copies(pod, nodes)
        if found is None:
            return None
        np.minimum(least, found, out=least)
    return least


def _judges_all_alike(client: PluginClient) -> bool:
    """Return True if the verdicts stay the same when pods are placed, and are the same in each placement."""
    follows = client.descriptor.depends_on
    if follows is DependsOn.NODES:
        # PreFilter gets the nodes of the placement.
        return ExtensionPoint.PRE_FILTER not in client.descriptor.points
    return follows is DependsOn.NODE
