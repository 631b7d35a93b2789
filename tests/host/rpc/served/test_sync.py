"""The copy of the snapshot over a real socket: what a call carries, and everything in chunks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from berth_host.rpc.call_rules import PointPolicy
from berth_host.rpc.served.link import InstanceLink, StateFeed
from berth_host.rpc.state_codec import CHUNK_BYTES
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin, PodSensitivity, ScoreNormalization
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.serve.state_copy import LocalCopy
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable, StateVersion
from berth_sdk.testing.builders import make_node, make_pod
from numpy.typing import NDArray
from support.attached import AttachedHost, at_socket, attached_host

NODES = 1000
POINTS = {point: PointPolicy(10.0) for point in ("filter", "preScore", "score")}


class Crowded(Plugin):
    """Likes nodes with many pods; reads nodes and pods."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())
    normalization = ScoreNormalization.NONE

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.reject_where(nodes.unschedulable, Status.unschedulable("cordoned"))

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        counts = np.bincount(nodes.pods.node_index, minlength=int(nodes.slots.max()) + 1)
        crowds: NDArray[np.int64] = counts[nodes.slots].astype(np.int64)
        return crowds


class Summary(Crowded):
    """The same by the counts of the nodes; reads no pods."""

    needs: Sequence[Need] = (Need.nodes(),)
    pod_sensitivity = PodSensitivity.NONE

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return nodes.pod_count.astype(np.int64)


@asynccontextmanager
async def attached(
    tmp_path: Path, cls: type, node_count: int = NODES
) -> AsyncIterator[tuple[AttachedHost, PluginServer, InstanceLink]]:
    """Yield a host with this number of nodes, and with the class served at a socket."""
    path = tmp_path / "p.sock"
    with PluginServer({cls.__name__: cls}) as server:
        server.listen(f"unix:{path}")
        place = at_socket(path, cls.__name__)
        async with attached_host(place, node_count=node_count, points=POINTS) as host:
            link = host.attachments.places[0].link
            assert link is not None
            yield host, server, link


async def scores(host: AttachedHost) -> list[int]:
    """Return the results of one cycle's Filter and Score for every node."""
    cycle = host.cycle()
    assert (await host.client.filter(cycle, host.nodes)).all_passed
    outcome = await host.client.score(cycle, host.nodes)
    assert outcome.status.is_success
    return [int(score) for score in outcome.raw]


async def test_call_costs_the_bytes_of_the_changes_and_one_round_trip(tmp_path: Path) -> None:
    async with attached(tmp_path, Summary) as (host, _, link):
        assert await scores(host) == [0] * NODES
        before = link.calls_made
        host.sent.clear()
        assert await scores(host) == [0] * NODES
        host.state.put(make_pod("a", cpu="500m"), "n7")
        assert (await scores(host))[7] == 1
        for i in range(10):
            host.state.put(make_pod(f"b-{i}", cpu="500m"), f"n{i}")
        assert (await scores(host))[:10] == [1] * 7 + [2] + [1] * 2
        assert [(plugin, call) for plugin, call, _, _ in host.sent] == [("Summary", "Filter")] * 3
        assert link.calls_made - before == 3
        nothing, one, ten = (sent for _, _, sent, _ in host.sent)
        assert nothing < 300
        assert nothing + 40 < one < nothing + 200
        assert one + 9 * 40 < ten < nothing + 10 * 200
        # The answer: a byte for each of the scores, and a few around them.
        assert all(NODES < received < NODES + 50 for _, _, _, received in host.sent)


async def test_pods_are_sent_only_to_instances_that_declared_them(tmp_path: Path) -> None:
    pod = make_pod("a", labels={f"label-{i}": "x" * 20 for i in range(20)})
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    sizes = []
    for folder, cls in (("one", Summary), ("other", Crowded)):
        async with attached(tmp_path / folder, cls, 3) as (host, _, _link):
            await scores(host)
            host.state.put(pod, "n1")
            host.sent.clear()
            assert await scores(host) == [0, 1, 0]
            sizes.append(host.sent[0][2])
    assert sizes[1] > sizes[0] + 20 * 20


async def test_full_synchronisation_goes_in_chunks_below_the_limit(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 50) as (host, server, link):
        for i in range(500):
            host.state.put(make_pod(f"p-{i}", labels={"app": "web"}), f"n{i % 50}")
        feed = Watched(link.feed)
        link.feed = feed
        link.identity = replace(link.identity, max_message_bytes=2048)
        sent = link.synced_bytes
        await link.sync(("Crowded", "SyncState"), ends_in(30), full=True)
        assert max(feed.sizes) <= 2048
        assert len(feed.sizes) > 30
        assert link.synced_bytes - sent == sum(feed.sizes) > 500 * 50
        assert link.held == host.state.version == server.instance.copy.version
        assert same(server, host)


async def test_changes_during_a_full_synchronisation_come_with_the_next_call(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 50) as (host, server, link):
        for i in range(500):
            host.state.put(make_pod(f"p-{i}"), f"n{i % 50}")

        def meanwhile() -> None:
            host.state.put(make_pod("late"), "n0")
            host.state.put(make_pod("later"), "n49")
            host.state.add_nodes([make_node("new")])

        feed = Watched(link.feed, meanwhile)
        link.feed = feed
        link.identity = replace(link.identity, max_message_bytes=2048)
        begun = host.state.version
        await link.sync(("Crowded", "SyncState"), ends_in(30), full=True)
        assert link.held == begun == server.instance.copy.version
        assert begun != host.state.version
        assert len(server.instance.copy.nodes()) == 50
        host.sent.clear()
        got = await scores(host)
        assert (got[0], got[1], got[49], got[50]) == (11, 10, 11, 0)
        assert [call for _, call, _, _ in host.sent] == ["Filter"]
        assert same(server, host)


async def test_large_change_goes_ahead_of_its_call_in_chunks(tmp_path: Path) -> None:
    async with attached(tmp_path, Summary, 10) as (host, server, link):
        await scores(host)
        host.sent.clear()
        host.state.add_nodes(make_node(f"m{i}", labels={"zone": f"z{i}"}) for i in range(2000))
        assert await scores(host) == [0] * 2010
        assert [call for _, call, _, _ in host.sent] == ["SyncState", "Filter"]
        assert host.sent[0][2] > CHUNK_BYTES
        assert host.sent[1][2] < 300
        assert link.held == host.state.version
        assert same(server, host)


async def test_a_copy_that_a_call_has_brought_further_is_not_sent_everything(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 50) as (host, server, link):
        assert link.feed is not None
        begun = link.held
        assert begun is not None
        host.state.put(make_pod("a"), "n0")
        further = link.feed.delta(begun, link.identity.max_message_bytes)  # what a call under way carries
        assert further is not None
        server.instance.copy.bring_to(further)
        between = host.state.version
        host.state.put(make_pod("b"), "n1")
        feed = link.feed = Watched(link.feed)
        await link.sync(("Crowded", "SyncState"), ends_in(30))
        assert feed.bases == [begun, between]  # and not everything, which takes as long as some calls may
        assert link.held == host.state.version
        assert same(server, host)


async def test_pods_of_a_node_that_come_in_two_chunks_have_the_order_of_the_host(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 2) as (host, server, link):
        pods = [host.state.put(make_pod(f"p{i}", labels={"app": "x" * 60}), "n1") for i in range(60)]
        await link.sync(("Crowded", "SyncState"), ends_in(30))
        for pod in reversed(pods[:40]):
            host.state.cache.update_pod(pod, replace(pod, labels={"app": "y" * 60}))
        await host.state.refresh()
        feed = link.feed = Watched(link.feed)
        link.identity = replace(link.identity, max_message_bytes=2048)
        await link.sync(("Crowded", "SyncState"), ends_in(30))
        assert len(feed.sizes) > 2
        assert same(server, host)


async def test_a_late_answer_does_not_take_back_the_held_version(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 2) as (host, _, link):
        early = link.held
        assert early is not None
        host.state.put(make_pod("a"), "n1")
        await link.sync(("Crowded", "SyncState"), ends_in(30))
        link.confirm(early)
        assert link.held == host.state.version


async def test_a_copy_that_lost_everything_gets_everything(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 50) as (host, server, link):
        begun = link.held
        server.instance.copy = LocalCopy(Crowded.needs)
        host.state.put(make_pod("a"), "n0")
        feed = link.feed = Watched(link.feed)
        await link.sync(("Crowded", "SyncState"), ends_in(30))
        assert feed.bases == [begun, None]
        assert same(server, host)


async def test_call_during_a_synchronisation_waits_for_it_instead_of_racing_with_it(tmp_path: Path) -> None:
    async with attached(tmp_path, Crowded, 50) as (host, server, link):
        calls: list[asyncio.Task[list[int]]] = []
        host.state.put(make_pod("a"), "n0")
        link.feed = Watched(link.feed, lambda: calls.append(asyncio.ensure_future(scores(host))))
        host.sent.clear()
        await link.sync(("Crowded", "SyncState"), ends_in(30))
        assert (await calls[0])[:2] == [1, 0]
        assert [call for _, call, _, _ in host.sent] == ["SyncState", "Filter"]
        assert same(server, host)


class Watched:
    """A feed whose chunks are weighed. `meanwhile`: called once, after the first of them."""

    def __init__(self, feed: StateFeed | None, meanwhile: Any = None) -> None:
        assert feed is not None
        self._feed = feed
        self._meanwhile = meanwhile
        self.sizes: list[int] = []
        self.bases: list[StateVersion | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def stream(
        self, base: StateVersion | None, max_message_bytes: int
    ) -> tuple[StateVersion, Iterator[state_pb2.SyncStateRequest | None]]:
        self.bases.append(base)
        target, chunks = self._feed.stream(base, max_message_bytes)
        return target, self._weighed(chunks)

    def _weighed(
        self, chunks: Iterator[state_pb2.SyncStateRequest | None]
    ) -> Iterator[state_pb2.SyncStateRequest | None]:
        for chunk in chunks:
            yield chunk
            if chunk is None:
                continue
            self.sizes.append(chunk.ByteSize())
            if self._meanwhile is not None:
                self._meanwhile, now = None, self._meanwhile
                now()


def same(server: PluginServer, host: AttachedHost) -> bool:
    """Whether the copy has the nodes and pods of the snapshot, slot for slot."""
    copied, own = server.instance.copy.nodes(), host.nodes
    assert copied.names == own.names
    assert copied.slots.tolist() == own.slots.tolist()
    assert copied.generation.tolist() == own.generation.tolist()
    assert copied.pod_count.tolist() == own.pod_count.tolist()
    if server.instance.descriptors.get("Crowded"):
        assert [[pod.uid for pod in node.pods] for node in copied] == [
            [pod.uid for pod in node.pods] for node in own
        ]
    return True


def ends_in(seconds: float) -> float:
    """Monotonic seconds, for the link."""
    return time.monotonic() + seconds
