"""The soak's own watch, against the embedded cluster over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

from berth_bench.soak.account import Account
from berth_bench.soak.clusters import EmbeddedCluster, embedded_cluster
from berth_bench.soak.followed_pods import FollowedPods
from berth_bench.versus.objects import node, pod
from berth_host.model.clock import RealClock
from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_sim.cluster.http.history import History
from berth_sim.cluster.http.serving import served
from berth_sim.cluster.server import ApiServer
from support.waiting import PATIENCE_S

BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
WITHIN_S = PATIENCE_S


async def test_watch_reports_every_change_even_after_the_server_was_unreachable(tmp_path: Path) -> None:
    theirs, ours = Account(["n1"]), Account(["n1"])
    async with embedded_cluster(theirs, tmp_path) as cluster:
        client = await KubeClient.open(Connection(kubeconfig=str(cluster.kubeconfig)))
        followed = FollowedPods(client, "default", ours)
        await cluster.create(node("n1", "4"))
        await cluster.create(pod("a"))
        await followed.count_anew()
        assert ours.unbound == ["a"]
        following = asyncio.create_task(followed.run())
        try:
            await cluster.create(pod("b"))
            assert await ours.until(lambda: ours.seen == 2, WITHIN_S)
            (cut,) = cluster.interruptions
            await cut.begin()
            await cluster.create(pod("c"))
            await cluster.delete_pod("b")
            await cut.end()
            await client.request("POST", "/api/v1/namespaces/default/pods/a/binding", body=BINDING)
            assert await ours.until(lambda: ours.bound == 1 and ours.seen == 3, WITHIN_S)
            assert ours.unbound == theirs.unbound == ["c"]
            assert ours.vanished == theirs.vanished == {"b"}
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()


async def test_version_that_is_too_old_is_replaced_by_a_new_list(tmp_path: Path) -> None:
    server = ApiServer(RealClock())
    ours = Account(["n1"])
    async with served(server) as over_http:
        cluster = EmbeddedCluster(server, over_http, Account([]), tmp_path)
        client = await KubeClient.open(Connection(kubeconfig=str(cluster.kubeconfig)))
        followed = FollowedPods(client, "default", ours)
        await followed.count_anew()
        await cluster.create(pod("a"))
        history = over_http.handlers.history
        assert isinstance(history, History)
        history.compact()
        following = asyncio.create_task(followed.run())
        try:
            assert await ours.until(lambda: ours.unbound == ["a"], WITHIN_S)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await client.close()
