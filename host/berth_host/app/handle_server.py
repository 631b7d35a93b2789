"""The way back for plugins in other processes, wired to the host's parts. Made by `Host`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from berth_sdk.descriptor import Descriptor
from berth_sdk.extension_points import ExtensionPoint, PodSensitivity
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable

from berth_host.app.attachments import SnapshotState
from berth_host.framework.cycle import Cycle
from berth_host.handle.server import HandleServer
from berth_host.handle.service import HandleSeams, NoOpenPostFilterError
from berth_host.rpc.client import PluginClient

if TYPE_CHECKING:
    from berth_host.app.host import Host


def handle_server(host: Host) -> HandleServer:
    """HandleService of this host; it also listens on loopback TCP if some plugin is reached that way."""
    plugins = host.configuration.berth.plugins
    seams = HandleSeams(
        backend=host.backend,
        state=SnapshotState(host),
        filters=OpenPostFilters(host),
        descriptor_of=lambda name: _descriptor(host, name),
    )
    return HandleServer(
        seams, tcp=any(plugin.endpoint and not plugin.endpoint.startswith("unix:") for plugin in plugins)
    )


class OpenPostFilters:
    """`handle.service.FilterRunner`: the Filter plugins of the cycle that runs now."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        """Per scenario SUCCESS or the first rejection of the other plugins.

        Raises NoOpenPostFilterError.
        """
        attempt = self._host.scheduler.in_cycle
        if attempt is None or not attempt.has_cycle:
            raise NoOpenPostFilterError(cycle_id)
        cycle = attempt.cycle
        if cycle.context.cycle_id != cycle_id or plugin not in cycle.context.open_post_filters:
            raise NoOpenPostFilterError(cycle_id)
        answers = [SUCCESS] * len(scenarios)
        if not scenarios:
            return answers
        asked = Scenarios(cycle.nodes, scenarios)
        for client in attempt.framework.plugins_at(ExtensionPoint.FILTER):
            alive = [i for i, answer in enumerate(answers) if answer.is_success]
            takes_part = client.name not in cycle.skip_filter and client.in_scope(cycle.pod)
            if client.name == plugin or not takes_part or not alive:
                continue
            verdicts = await self._ask(client, cycle, asked, alive)
            for i, status in zip(alive, verdicts.to_list(), strict=True):
                answers[i] = status if status.is_success else status.with_plugin(client.name)
        return answers

    async def _ask(
        self, client: PluginClient, cycle: Cycle, asked: Scenarios, alive: Sequence[int]
    ) -> Verdicts:
        items = [asked.items[i] for i in alive]
        if client.descriptor.pod_sensitivity is not PodSensitivity.NONE:
            return await client.filter_scenarios(cycle.context, Scenarios(cycle.nodes, items))
        # Pods do not matter to it: the plain verdict, asked once for each node.
        names = list(dict.fromkeys(item.node_name for item in items))
        table = _rows(cycle.nodes, names)
        verdicts = await client.filter(cycle.context, table)
        row_of = {name: i for i, name in enumerate(table.names)}
        return verdicts.take([row_of[item.node_name] for item in items])


def _rows(nodes: NodeTable, names: Sequence[str]) -> NodeTable:
    positions = sorted(position for name in names if (position := nodes.position(name)) is not None)
    return nodes.take(np.asarray(positions, dtype=np.intp))


def _descriptor(host: Host, name: str) -> Descriptor | None:
    for clients in host.clients.by_profile.values():
        client = clients.get(name)
        if client is not None and client.is_remote and client.available:
            return client.descriptor
    return None
