"""Two API servers at one address: faults before and after the effect, events, a server that is away, 410."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from berth_bench.life.api_servers import URL, ApiServers, Arrived
from berth_bench.life.faulty_cluster import HARMLESS, Fault, Faults
from berth_bench.life.network import Lateness, MemoryNetwork
from berth_bench.life.processes import Process
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.versus.objects import node, pod
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.http.serving import Handlers
from berth_sim.cluster.server import ApiServer

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
PATIENCE_S = 10.0


class Cluster:
    """The API servers of a cluster with one node, and what they noted."""

    def __init__(self, clocks: VirtualClocks) -> None:
        self.server = ApiServer(clocks)
        self.server.create(node("n1", "4"))
        self.notes: list[tuple[str, Arrived, Fault]] = []
        self.events: list[tuple[str, str, str]] = []
        self.network = clocks.loop.network = MemoryNetwork(clocks.loop, random.Random(1), Lateness())
        self.servers = ApiServers(
            self.server, self.network, random.Random(1), HARMLESS, self._note, self._note_event
        )

    def _note(self, moment: str, request: Arrived, fault: Fault) -> None:
        self.notes.append((moment, request, fault))

    def _note_event(self, ref: ObjectRef, reason: str, note: str) -> None:
        self.events.append((ref.key, reason, note))

    def meets(self, fault: Fault) -> None:
        """Let every request meet a fault."""
        self.servers.faults = Faults(share=1.0, kinds=(fault,))

    @property
    def nodes(self) -> list[str]:
        return [one.ref.name for one in self.server.list("nodes")]


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(URL, timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session:
        yield session


def on_a_cluster(main: Callable[[Cluster, aiohttp.ClientSession], Coroutine[Any, Any, None]]) -> None:
    async def life(clocks: VirtualClocks) -> None:
        cluster = Cluster(clocks)

        async def work() -> None:
            async with client() as session:
                await main(cluster, session)

        await clocks.loop.create_task(work(), context=Process("host-1.1").context())
        assert cluster.servers.failure is None
        await cluster.servers.stop()

    run(life, random.Random(0))


def test_request_is_noted_with_its_sender_its_object_and_its_node() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        cluster.server.create(pod("web", "1"))
        body = {"metadata": {"name": "web"}, "target": {"name": "n1"}}
        await asyncio.sleep(7.0)
        async with session.post(f"{PODS}/web/binding", data=orjson.dumps(body)) as answer:
            assert answer.status == 201
        assert [(moment, fault) for moment, _, fault in cluster.notes] == [
            ("begun", Fault.NONE),
            ("done", Fault.NONE),
        ]
        assert cluster.notes[0][1] == Arrived("host-1.1", 7.0, "bind", "pods", "default/web", "n1")
        for query, call in (("", "list"), ("?watch=true&timeoutSeconds=1", "watch")):
            async with session.get(f"{NODES}{query}") as answer:
                await answer.read()
            assert cluster.notes[-1][1].call == call

    on_a_cluster(main)


@pytest.mark.parametrize(
    ("fault", "status", "is_done"),
    [
        (Fault.NONE, 201, True),
        (Fault.INTERNAL_BEFORE, 500, False),
        (Fault.CONFLICT, 409, False),
        (Fault.TOO_MANY, 429, False),
        (Fault.FORBIDDEN, 403, False),
        (Fault.INTERNAL_AFTER, 500, True),
        (Fault.TIME_OUT_BEFORE, 0, False),
        (Fault.TIME_OUT_AFTER, 0, True),
        (Fault.UNAVAILABLE_AFTER, 0, True),
    ],
)
def test_write_takes_effect_before_its_answer_is_lost_or_not_at_all(
    fault: Fault, status: int, is_done: bool
) -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        cluster.meets(fault)
        try:
            async with session.post(NODES, data=orjson.dumps(node("n2", "1"))) as answer:
                got = answer.status
        except (aiohttp.ClientError, TimeoutError):
            got = 0
        assert got == status
        assert ("n2" in cluster.nodes) is is_done
        assert [moment for moment, _, _ in cluster.notes] == (["begun", "done"] if is_done else ["begun"])

    on_a_cluster(main)


@pytest.mark.parametrize("fault", [Fault.TIME_OUT_BEFORE, Fault.TIME_OUT_AFTER])
def test_request_without_an_answer_is_reset_when_nothing_fails_any_more(fault: Fault) -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        cluster.meets(fault)
        written = orjson.dumps(node("n2", "1"))
        hanging = asyncio.create_task(session.post(NODES, data=written, timeout=aiohttp.ClientTimeout()))
        await asyncio.sleep(100 * PATIENCE_S)
        assert not hanging.done()
        cluster.servers.behave()
        with pytest.raises(aiohttp.ClientError):
            await hanging
        assert ("n2" in cluster.nodes) is (fault is Fault.TIME_OUT_AFTER)
        async with session.get(NODES) as answer:
            assert answer.status == 200

    on_a_cluster(main)


def test_write_that_finds_no_server_takes_no_effect_whether_it_is_refused_or_reset() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        cluster.meets(Fault.UNAVAILABLE_BEFORE)
        met = set()
        for _ in range(10):
            try:
                async with session.post(NODES, data=orjson.dumps(node("n2", "1"))) as answer:
                    met.add(answer.status)
            except aiohttp.ClientError:
                met.add(0)
        assert met == {0, 503}
        assert cluster.nodes == ["n1"]
        assert {moment for moment, _, _ in cluster.notes} == {"begun"}

    on_a_cluster(main)


def test_read_meets_no_conflict() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        cluster.meets(Fault.CONFLICT)
        for _ in range(10):
            try:
                async with session.get(NODES) as answer:
                    assert answer.status == 503
            except aiohttp.ClientError:
                pass

    on_a_cluster(main)


def test_servers_that_are_away_reset_and_refuse_connections_until_they_are_back() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        async with session.get(f"{NODES}?watch=true") as watch:
            cluster.servers.go_away()
            with pytest.raises(aiohttp.ClientError):
                await watch.content.read()
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(NODES)
        cluster.servers.come_back()
        async with session.get(NODES) as answer:
            assert answer.status == 200

    on_a_cluster(main)


def test_watch_from_before_a_compaction_is_told_to_list_again() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        before = cluster.servers.history.version
        cluster.server.create(node("n2", "1"))
        query = f"?watch=true&timeoutSeconds=1&resourceVersion={before}"
        async with session.get(NODES + query) as answer:
            assert (await answer.content.readline()).startswith(b'{"type":"ADDED"')
        cluster.servers.compact()
        for _ in range(10):  # whichever server answers
            async with session.get(NODES + query) as answer:
                assert orjson.loads(await answer.read())["object"]["code"] == 410

    on_a_cluster(main)


def test_connections_go_to_both_servers_of_which_one_is_late() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        cluster.servers.late.lag_s = 60.0
        before = cluster.servers.history.version
        cluster.server.create(node("n2", "1"))
        got = []
        for _ in range(20):
            query = f"?watch=true&timeoutSeconds=1&resourceVersion={before}"
            async with client() as other, other.get(NODES + query) as answer:
                got.append(b"n2" in await answer.read())
        assert set(got) == {True, False}
        cluster.servers.behave()
        async with session.get(f"{NODES}?watch=true&timeoutSeconds=1&resourceVersion={before}") as answer:
            assert b"n2" in await answer.read()

    on_a_cluster(main)


def test_event_is_told_with_its_text_and_its_repetition_without() -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        body = {
            "metadata": {"name": "web.1", "namespace": "default"},
            "regarding": {"kind": "Pod", "namespace": "default", "name": "web", "uid": "u"},
            "reason": "FailedScheduling",
            "note": "no room",
        }
        await session.post(EVENTS, data=orjson.dumps(body))
        series = orjson.dumps({"series": {"count": 2}})
        await session.patch(f"{EVENTS}/web.1", data=series)
        await session.patch(f"{EVENTS}/never-created.1", data=series)
        assert cluster.events == [
            ("default/web", "FailedScheduling", "no room"),
            ("default/web", "FailedScheduling", ""),
        ]

    on_a_cluster(main)


def test_error_of_the_servers_themselves_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(cluster: Cluster, session: aiohttp.ClientSession) -> None:
        async def breaks(self: Handlers, request: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(Handlers, "handle", breaks)
        async with session.get(f"{NODES}/n1") as answer:
            assert answer.status == 500
        assert isinstance(cluster.servers.failure, ZeroDivisionError)
        cluster.servers.failure = None

    on_a_cluster(main)
