"""The default plugins in a process of their own, asked over a real socket. See `support.asking`.

Every question attaches anew, with the plugin's arguments and a snapshot of the table's nodes and pods, so
that a test gets from a served plugin what it gets from one in process.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

from berth_host.attach.configured_places import Place
from berth_host.attempt.cycle import Cycle
from berth_host.config.berth.points import PointPolicy
from berth_host.model.resources import kind_of
from berth_host.rpc.client import PluginClient
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, PreFilterResult, QueuedPod
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import make_node, make_table
from support.asking import Plug
from support.attached import PROFILE, AttachedHost, wanted
from support.plugin_processes import can_connect, fork, serve_command


def _plugins_of(package: str) -> list[str]:
    return sorted(
        entry.name for entry in entry_points(group="berth.plugins") if entry.value.startswith(f"{package}.")
    )


DEFAULT_PLUGINS = _plugins_of("berth_plugins")
SCHEDULER_PLUGINS = _plugins_of("berth_scheduler_plugins")
"""The plugins with the names of kubernetes-sigs/scheduler-plugins."""
START_TIMEOUT_S = 60.0
# Decisions are compared, not times, and machines may be busy.
PATIENT = {
    point: PointPolicy(deadline_s=10.0)
    for point in ("preEnqueue", "queueSort", "queueingHints", "preFilter", "filter", "preScore", "score")
}


@contextmanager
def default_plugin_server(folder: Path) -> Iterator[str]:
    """All default plugins, served by one process; the endpoint."""
    with plugin_server(folder, DEFAULT_PLUGINS) as endpoint:
        yield endpoint


@contextmanager
def plugin_server(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Installed plugins, served by one process; the endpoint."""
    socket_path = folder / "plugins.sock"
    process = fork([*serve_command(*names), "--listen", f"unix:{socket_path}"], {})
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not can_connect(socket_path):
            if process.returncode is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the plugins do not listen at {socket_path}")
            time.sleep(0.02)
        yield f"unix://{socket_path}"
    finally:
        process.kill()
        process.reap()


class Served:
    """`support.asking.Ask` over the wire."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    async def pre_filter(self, plug: Plug, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        """PreFilter alone."""
        async with self.attached(plug, nodes) as host:
            answer = await host.client.pre_filter(cycle_of(host, pod), host.nodes)
            return replace(answer, status=_unsigned(answer.status))

    async def filter(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[Status]:
        """PreFilter, then Filter."""
        async with self.attached(plug, nodes) as host:
            cycle, asked = cycle_of(host, pod), same_rows(nodes, host.nodes)
            if ExtensionPoint.PRE_FILTER in host.client.points:
                before = (await host.client.pre_filter(cycle, host.nodes)).status
                if before.code is Code.SKIP:
                    return [Status.success()] * len(nodes)
                if not before.is_success:
                    return [_unsigned(before)] * len(nodes)
            return [_unsigned(one) for one in (await host.client.filter(cycle, asked)).to_list()]

    async def scenarios(self, plug: Plug, pod: Pod, scenarios: Scenarios) -> list[Status]:
        """What if."""
        async with self.attached(plug, scenarios.nodes.whole) as host:
            asked = Scenarios(host.nodes, scenarios.items)
            verdicts = await host.client.filter_scenarios(cycle_of(host, pod), asked)
            return [_unsigned(one) for one in verdicts.to_list()]

    async def score(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
        """PreScore, then Score."""
        async with self.attached(plug, nodes) as host:
            cycle, asked = cycle_of(host, pod), same_rows(nodes, host.nodes)
            if ExtensionPoint.PRE_SCORE in host.client.points:
                status = await host.client.pre_score(cycle, asked)
                if not status.is_success:
                    return _unsigned(status)
            outcome = await host.client.score(cycle, asked)
            scores: list[int] = outcome.raw.tolist()
            return scores if outcome.status.is_success else outcome.status

    async def final_scores(self, plug: Plug, pod: Pod, nodes: NodeTable) -> list[int] | Status:
        """PreScore, Score, then NormalizeScore."""
        async with self.attached(plug, nodes) as host:
            cycle, asked = cycle_of(host, pod), same_rows(nodes, host.nodes)
            if ExtensionPoint.PRE_SCORE in host.client.points:
                status = await host.client.pre_score(cycle, asked)
                if not status.is_success:
                    return _unsigned(status)
            outcome = await host.client.score(cycle, asked)
            scores: list[int] = outcome.normalized.tolist()
            return scores if outcome.status.is_success else outcome.status

    async def pre_enqueue(self, plug: Plug, pod: QueuedPod) -> Status:
        """PreEnqueue."""
        async with self._client(plug) as client:
            return _unsigned((await client.pre_enqueue([pod]))[0])

    async def sort_key(self, plug: Plug, pod: QueuedPod) -> bytes:
        """QueueSort."""
        async with self._client(plug) as client:
            return (await client.sort_keys([pod]))[0]

    async def hint(self, plug: Plug, event: ClusterEvent, pod: Pod) -> bool:
        """QueueingHint."""
        async with self._client(plug) as client:
            return bool((await client.queueing_hints(event, [pod]))[0])

    async def bind(self, plug: Plug, pod: Pod, node_name: str) -> BindResult | None:
        """Bind."""
        async with self.attached(plug, make_table([make_node(node_name)])) as host:
            return await host.client.bind(cycle_of(host, pod), node_name)

    @asynccontextmanager
    async def _client(self, plug: Plug) -> AsyncIterator[PluginClient]:
        async with self.attached(plug, make_table([make_node("a")])) as host:
            yield host.client

    @asynccontextmanager
    async def attached(self, plug: Plug, nodes: NodeTable) -> AsyncIterator[AttachedHost]:
        """Yield a host with a new instance of the plugin, and with the nodes and pods of a table."""
        place = Place(endpoint=self._endpoint, plugins=(wanted(plug.cls.__name__, args=plug.args),))
        host = AttachedHost([place], node_count=0, points=PATIENT)
        whole = nodes.whole
        for resource, items in plug.objects.items():
            for item in items:
                host.state.objects.put(kind_of(resource), KubeObject.of(item))
        host.state.add_nodes(view.node for view in whole)
        for view in whole:
            for held in view.pods:
                host.state.put(held, view.name)
        try:
            await host.attachments.start(START_TIMEOUT_S)
            yield host
        finally:
            await host.attachments.stop()


def cycle_of(host: AttachedHost, pod: Pod) -> Cycle:
    """Return a cycle that the server has not seen: it outlives the hosts that ask it."""
    return Cycle(uuid.uuid4().hex, pod, PROFILE, version=host.state.version, budget_s=60.0)


def _unsigned(status: Status) -> Status:
    """As the plugin gave it: the host's client signs what it passes on."""
    return Status(status.code, status.reasons)


def same_rows(nodes: NodeTable, other: NodeTable) -> NodeTable:
    """Return the rows of `other` that have the names of `nodes`, in their order."""
    positions = [other.position(name) for name in nodes.names]
    return other.take([position for position in positions if position is not None])
