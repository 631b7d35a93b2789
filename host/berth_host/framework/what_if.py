"""Filter over what-ifs: every plugin is asked about all scenarios that are left in one call.

Called by `Framework` for the preemption evaluator, and by `handle` for plugins that ask through their handle.
Source: kube-scheduler `framework/runtime/framework.go` (RunFilterPluginsWithNominatedPods), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.extension_points import PodSensitivity
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Verdicts
from numpy.typing import NDArray

from berth_host.framework.filtering import Rows, ask_in_order
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import Cycle


def sensitive(clients: Sequence[PluginClient]) -> list[PluginClient]:
    """The plugins whose verdict other pods can change."""
    return [client for client in clients if client.descriptor.pod_sensitivity is not PodSensitivity.NONE]


async def filter_scenarios(
    clients: Sequence[PluginClient], cycle: Cycle, scenarios: Scenarios
) -> NodeStatuses:
    """One verdict per scenario, signed by its plugin: a row of the answer's table is a scenario."""
    statuses = NodeStatuses(scenarios.nodes)

    async def ask(client: PluginClient, left: Rows) -> Verdicts:
        if client.descriptor.pod_sensitivity is PodSensitivity.NONE:
            return await _plain(client, cycle, scenarios.nodes.slots.take(left))
        asked = scenarios if len(left) == len(scenarios) else scenarios.take(left)
        return await client.filter_scenarios(cycle, asked)

    await ask_in_order(clients, statuses, np.arange(len(scenarios)), ask)
    return statuses


async def _plain(client: PluginClient, cycle: Cycle, slots: NDArray[np.intp]) -> Verdicts:
    """Other pods do not matter to it: its ordinary verdict, asked once for each node."""
    nodes = cycle.nodes
    if (slots[1:] > slots[:-1]).all():
        return await client.filter(cycle, nodes.take(nodes.slots.searchsorted(slots)))
    distinct, back = np.unique(slots, return_inverse=True)
    verdicts = await client.filter(cycle, nodes.take(nodes.slots.searchsorted(distinct)))
    return verdicts.take(back)
