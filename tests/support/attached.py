"""A host's state, attachments and clients without a scheduler: what tests of `attach` and `rpc` drive."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from berth_host.attach.attachments import Attachments
from berth_host.attach.configured_places import Place, WantedPlugin, WantedProfile
from berth_host.attach.interfaces import AttachSeams, HandleGrants, LiveCycle
from berth_host.attach.retrying import attach_backoff
from berth_host.attach.state import PlaceChange, ScopeChange, Swap
from berth_host.attempt.cycle import Cycle
from berth_host.cache.cache import Cache
from berth_host.cache.change_log import ChangeLog
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.model.resources import kind_of
from berth_host.model.state_changes import StateChanges
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.client import PluginClient
from berth_host.rpc.route import ClientSettings
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kube_object import ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.selection import StateSelection
from berth_sdk.tables import NodeTable, ObjectStore, StateVersion
from berth_sdk.testing.builders import make_node, make_pod
from support.patience import patient
from support.waiting import PATIENCE_S

PROFILE = "default-scheduler"
ALL_POINTS = frozenset(point.config_name for point in ExtensionPoint)


class ClusterState:
    """Cache and snapshot with the change log: `attach.feed.HostState`, and `rpc.validate.ClusterFacts`."""

    def __init__(self) -> None:
        generations = Generations()
        self.objects = ObjectStores(generations)
        self.cache = Cache(generations)
        self.snapshot = Snapshot(self.objects)
        self._log = ChangeLog(self.snapshot)

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Nodes come; the snapshot takes them over."""
        for node in nodes:
            self.cache.add_node(node)
        self.snapshot.update(self.cache)

    def put(self, pod: Pod, node_name: str) -> Pod:
        """A pod comes to a node; the snapshot takes it over."""
        placed = pod.on_node(node_name)
        self.cache.add_pod(placed)
        self.snapshot.update(self.cache)
        return placed

    @property
    def nodes(self) -> NodeTable:
        """Every node."""
        return self.snapshot.nodes

    @property
    def version(self) -> StateVersion:
        """The snapshot's version."""
        return self._log.version

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """The changes that a holder of `base` lacks."""
        return self._log.changes_since(base, selection)

    def index_of(self, node_name: str) -> int | None:
        """The slot of a node."""
        return self.snapshot.columns.index_of.get(node_name)

    def node_names(self) -> list[str]:
        """Every node's name."""
        return self.nodes.names

    def objects_of(self, resource: str) -> ObjectStore:
        """The objects of a resource in the snapshot."""
        return self.snapshot.objects_of_kind(kind_of(resource))

    async def refresh(self) -> None:
        """Bring the snapshot up to date."""
        self.snapshot.update(self.cache)

    def has_node(self, node_name: str) -> bool:
        """Whether there is such a node."""
        return node_name in self.snapshot.columns.index_of

    def pod_on_node(self, node_name: str, uid: str) -> Pod | None:
        """The pod on that node."""
        pod = self.cache.get_pod(uid)
        return pod if pod is not None and pod.node_name == node_name else None

    def pod_on_some_node(self, uid: str) -> Pod | None:
        """The pod, if it is on a node."""
        pod = self.cache.get_pod(uid)
        return pod if pod is not None and pod.node_name else None

    def evicted_with(self, pod: Pod) -> str:
        """Nothing: every pod leaves alone."""
        return ""

    def preemption_priority(self, pod: Pod) -> int:
        """Its own."""
        return pod.priority


class Witness:
    """Notes what attachments report."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.swaps: list[Swap] = []
        self.changes: list[PlaceChange] = []
        self.scopes: list[ScopeChange] = []

    def attached(self, plugin: str) -> None:
        self.seen.append(("attached", plugin))

    def lost(self, plugin: str, reason: str) -> None:
        self.seen.append(("lost", plugin, reason))

    def post_bound(self, plugin: str, pod: ObjectRef) -> None:
        self.seen.append(("post_bound", plugin, pod.name))

    def swapped(self, swap: Swap) -> None:
        self.swaps.append(swap)

    def scope_changed(self, change: ScopeChange) -> None:
        self.scopes.append(change)

    def place_changed(self, change: PlaceChange) -> None:
        self.changes.append(change)


class HalfTheBound(random.Random):
    """No jitter: a wait that came out at nothing would hide the state that a test waits for."""

    def uniform(self, a: float, b: float) -> float:
        """The middle."""
        return (a + b) / 2


class AttachedHost:
    """Attachments to `places` over a small cluster, and a client per plugin."""

    def __init__(
        self,
        places: Sequence[Place],
        *,
        node_count: int = 3,
        grants: HandleGrants | None = None,
        points: Mapping[str, PointPolicy] | None = None,
        required: bool = True,
    ) -> None:
        self.state = ClusterState()
        self.state.add_nodes(make_node(f"n{i}") for i in range(node_count))
        self.witness = Witness()
        self.live_cycles: dict[str, list[LiveCycle]] = {}
        """The reservations and waits under way, by plugin, as a host would list them."""
        self.sent: list[tuple[str, str, int, int]] = []
        """Plugin, call, bytes sent and bytes received of every message."""
        seams = AttachSeams(
            state=self.state,
            listener=self.witness,
            grants=grants,
            cycles=self,
            host_version="test",
            traffic=lambda *message: self.sent.append(message),
        )
        self.attachments = Attachments(places, seams)
        for place in self.attachments.places:
            place.backoff = attach_backoff(HalfTheBound())
        self.state.snapshot.confirmed_generation = self.attachments.confirmed_generation
        settings = ClientSettings(points=patient(points or {}), required=required)
        self.clients = {
            name: PluginClient(
                name, PROFILE, self.attachments.route(name, PROFILE), self.state, settings=settings
            )
            for name in self.attachments.plugins
        }
        self._ids = itertools.count(1)

    def live(self, plugin: str) -> list[LiveCycle]:
        return self.live_cycles.get(plugin, [])

    def bound(self, plugin: str) -> list[LiveCycle]:
        return []

    def lost(self, plugin: str, cycles: Sequence[LiveCycle]) -> None:
        """The cycles of a test go on as the test says."""

    @property
    def client(self) -> PluginClient:
        """The only client."""
        (client,) = self.clients.values()
        return client

    @property
    def nodes(self) -> NodeTable:
        """The snapshot."""
        return self.state.nodes

    def cycle(self, pod: Pod | None = None, **options: Any) -> Cycle:
        """A new cycle, with more time for served plugins than it can need unless `budget_s` says how much."""
        options.setdefault("budget_s", PATIENCE_S)
        number = next(self._ids)
        pod = pod or make_pod(f"pod-{number}", uid=f"uid-{number}")
        return Cycle(
            f"cycle-{number}",
            pod,
            PROFILE,
            version=self.state.version,
            **options,
        )


@asynccontextmanager
async def attached_host(
    *places: Place, patience_s: float = PATIENCE_S, **options: object
) -> AsyncIterator[AttachedHost]:
    """A host whose attachments were started, and are stopped afterwards."""
    host = AttachedHost(places, **options)  # type: ignore[arg-type]  # handed through
    try:
        await host.attachments.start(patience_s)
        yield host
    finally:
        await host.attachments.stop()


def wanted(
    name: str, *points: str, required: bool = True, args: Mapping[str, object] | None = None
) -> WantedPlugin:
    """A plugin in one profile, at all points unless some are named."""
    profile = WantedProfile(
        scheduler_name=PROFILE,
        points=frozenset(points) or ALL_POINTS,
        args=dict(args) if args is not None else None,  # type: ignore[arg-type]  # JSON of the tests
    )
    return WantedPlugin(name=name, required=required, profiles=(profile,))


def at_socket(path: Path, *names: str, **options: bool) -> Place:
    """Plugins expected at a Unix socket."""
    plugins = tuple(wanted(name, required=options.get("required", True)) for name in names)
    return Place(endpoint=f"unix://{path}", plugins=plugins)


def launched(command: Sequence[str], *names: str) -> Place:
    """Plugins expected of a child."""
    return Place(command=tuple(command), plugins=tuple(wanted(name) for name in names))
