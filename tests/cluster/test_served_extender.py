"""A stock kube-scheduler that schedules through a berth plugin served as an extender, on a real API server.

The same plugin in berth's own process places the same pods on the same nodes: no two nodes have the same
score, scores are multiples of 10, and both look at all nodes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml
from berth_bench.versus import processes
from berth_bench.versus.api import ApiClient
from berth_bench.versus.objects import node, pod
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from support.certificates import Authority, pair_files
from support.emptying import empty
from support.extended_racks import PLACES
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.long

_HEAD: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "percentageOfNodesToScore": 100,
    "podInitialBackoffSeconds": 1,
    "podMaxBackoffSeconds": 1,
}
Json = dict[str, Any]


@dataclass
class Cluster:
    """The servers, and a client."""

    servers: RealServers
    folder: Path
    api: ApiClient

    async def has_nodes(self, count: int = PLACES, **fields: Any) -> None:
        """Create nodes n1, n2 and so on, in three racks."""
        for i in range(1, count + 1):
            await self.api.create(node(f"n{i}", place=str(i), rack=f"r{i % 3}", **fields))

    async def pod(self, name: str) -> Json:
        """Return a pod, or an empty object where it is gone."""
        return await self.api.get("Pod", name) or {}

    async def node_of(self, name: str) -> str:
        """Return the pod's node; empty if it has none."""
        return str((await self.pod(name)).get("spec", {}).get("nodeName", ""))

    async def bound(self, name: str) -> str:
        """Wait until a pod has a node, and return it."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.node_of(name)):
                await asyncio.sleep(0.02)
        return found

    async def told(self, name: str, words: str) -> str:
        """Wait until an event of a pod has these words; return its note.

        The pod's condition may be another one a moment later.
        """
        uid = (await self.pod(name))["metadata"]["uid"]
        notes: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    events, _ = await self.api.all_of("Event")
                    notes = [one["note"] for one in events if one["regarding"].get("uid") == uid]
                    for note in notes:
                        if words in note:
                            return note
                    await asyncio.sleep(0.05)
        except TimeoutError as err:
            raise AssertionError(f"{name} was never told {words!r}, but {notes}") from err


@pytest.fixture
async def cluster(empty_servers: RealServers, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with ApiClient(empty_servers.url, empty_servers.tokens[ADMIN]) as api:
        yield Cluster(empty_servers, tmp_path, api)


def access_flags(cluster: Cluster) -> list[str]:
    """Return the flags of an extender that uses the API server as kube-scheduler does, with a token."""
    token = cluster.folder / "token"
    token.write_text(cluster.servers.tokens[SCHEDULER])
    servers = cluster.servers
    return [f"--server={servers.url}", f"--certificate-authority={servers.ca_file}", f"--token-file={token}"]


@asynccontextmanager
async def served(cluster: Cluster, plugin: str, *flags: str) -> AsyncIterator[Json]:
    """Serve a plugin of `support.extended_racks` as an extender; the entry that the command prints."""
    with (cluster.folder / "extender.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "berth_sdk", "serve", f"support.extended_racks:{plugin}"),
            *("--extender=127.0.0.1:0", *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=processes.environment(),
        )
    try:
        assert process.stdout is not None
        printed = ""
        async with asyncio.timeout(PATIENCE_S):
            while "nodeCacheCapable" not in printed:
                line = await process.stdout.readline()
                assert line, (cluster.folder / "extender.log").read_text()
                printed += line.decode()
        (entry,) = yaml.safe_load(printed)["extenders"]
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            while not entry.get("enableHTTPS") and await healthz(session, entry) != 200:
                await asyncio.sleep(0.05)
        yield entry
    finally:
        process.kill()
        await process.wait()


async def healthz(session: aiohttp.ClientSession, entry: Json) -> int:
    async with session.get(f"{entry['urlPrefix']}/healthz") as answer:
        return answer.status


@asynccontextmanager
async def scheduling(
    cluster: Cluster, name: str, configuration: Json, own: Json | None = None
) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler: kube-scheduler, or berth where it has a document of its own."""
    setup = SchedulerSetup(
        program="berth" if own else str(program("kube-scheduler")),
        kubeconfig=cluster.servers.kubeconfig(SCHEDULER),
        folder=cluster.folder,
        configuration=yaml.safe_dump({**_HEAD, **configuration}),
        more_documents=yaml.safe_dump(own) if own else "",
    )
    process = SchedulerProcess(setup, name)
    try:
        await process.start()
        await process.ready()
        yield process
    finally:
        await process.stop()


def in_berth(plugin: str, name: str) -> tuple[Json, Json]:
    """Return both documents of a berth that has the plugin in its own process."""
    configuration = {"profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": name, "weight": 1}]}}}]}
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "plugins": [{"name": name, "inProcess": f"support.extended_racks:{plugin}"}],
    }
    return configuration, own


# --- placements --------------------------------------------------------------------------------------

PODS: Final = [
    {"factor": str(factor), **({"avoid": f"r{factor % 3}"} if factor % 2 else {})} for factor in range(1, 11)
] + [{"factor": "3", "only": "n7"}, {"factor": "5", "only": "n2"}]
"""The labels of the pods, in the order of their creation."""


async def place(cluster: Cluster, entry: Json | None = None) -> dict[str, str]:
    """Create the pods one after the other; return the node of each.

    `entry`: of an extender that counts pods; the next pod waits until the extender has seen the last one.
    """
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for i, labels in enumerate(PODS):
        made = pod(f"p{i}")
        made["metadata"]["labels"] = labels
        await cluster.api.create(made)
        node_name = found[f"p{i}"] = await cluster.bound(f"p{i}")
        counts[node_name] = counts.get(node_name, 0) + 1
        if entry is not None:
            await counted(entry, node_name, counts[node_name])
    return found


async def counted(entry: Json, node_name: str, count: int) -> None:
    """Wait until the extender counts so many pods on a node."""
    probe = pod("probe")
    probe["metadata"]["labels"] = {"most": "0"}
    request = {"Pod": probe, "Nodes": None, "NodeNames": [node_name]}
    said = f"node has {count} pods"
    async with aiohttp.ClientSession() as session, asyncio.timeout(PATIENCE_S):
        while True:
            async with session.post(f"{entry['urlPrefix']}/filter", json=request) as answer:
                if (await answer.json())["FailedNodes"] == {node_name: said}:
                    return
            await asyncio.sleep(0.02)


async def placed_by_berth(cluster: Cluster, plugin: str) -> dict[str, str]:
    """Return what berth does with the same nodes, pods and plugin."""
    empty(cluster.servers)
    await cluster.has_nodes()
    configuration, own = in_berth(plugin, "Racks")
    async with scheduling(cluster, "berth", configuration, own):
        return await place(cluster)


@pytest.mark.slow
async def test_placements_are_those_of_the_plugin_in_berth_with_node_objects(cluster: Cluster) -> None:
    await cluster.has_nodes()
    async with served(cluster, "Racks") as entry:
        assert entry["nodeCacheCapable"] is False
        async with scheduling(cluster, "kube-scheduler", {"extenders": [entry]}):
            through_extender = await place(cluster)
    in_berth = await placed_by_berth(cluster, "Racks")
    assert through_extender == in_berth
    assert len(set(in_berth.values())) > 5  # the plugin decides, and not the first node of a list
    assert (in_berth["p10"], in_berth["p11"]) == ("n7", "n2")
    assert {name: int(node_name[1:]) % 3 for name, node_name in in_berth.items()}["p0"] != 1


@pytest.mark.slow
@pytest.mark.parametrize("node_cache_capable", [True, False])
async def test_placements_are_those_of_the_plugin_in_berth_where_it_counts_pods(
    cluster: Cluster, node_cache_capable: bool
) -> None:
    await cluster.has_nodes()
    flags = ["--node-cache-capable"] if node_cache_capable else []
    async with served(cluster, "Crowded", *flags, *access_flags(cluster)) as entry:
        assert entry["nodeCacheCapable"] is node_cache_capable
        async with scheduling(cluster, "kube-scheduler", {"extenders": [entry]}):
            through_extender = await place(cluster, entry)
    in_berth = await placed_by_berth(cluster, "Crowded")
    assert through_extender == in_berth
    on_nodes = list(in_berth.values())
    assert max(on_nodes.count(name) for name in on_nodes) == 2


@pytest.mark.slow
async def test_extender_with_tls_knows_kube_scheduler_by_its_certificate(cluster: Cluster) -> None:
    authority = Authority("extenders")
    mine = pair_files(cluster.folder, "extender", authority.issue("extender"), authority)
    theirs = pair_files(cluster.folder, "client", authority.issue("x", dns="kube-scheduler"), authority)
    flags = [f"--tls-cert={mine.certificate}", f"--tls-key={mine.key}", f"--tls-client-ca={mine.authority}"]
    await cluster.has_nodes()
    async with served(cluster, "Racks", *flags, "--tls-client-name=kube-scheduler") as entry:
        assert set(entry["tlsConfig"]) == {"caFile", "certFile", "keyFile"}
        tls = {"caFile": theirs.authority, "certFile": theirs.certificate, "keyFile": theirs.key}
        entry["tlsConfig"] = {key: str(path) for key, path in tls.items()}
        async with scheduling(cluster, "kube-scheduler", {"extenders": [entry]}):
            made = pod("p1")
            made["metadata"]["labels"] = {"factor": "1", "avoid": "r1"}
            await cluster.api.create(made)
            assert await cluster.bound("p1") == "n9"  # 10 is in the rack r1


# --- preempt -----------------------------------------------------------------------------------------


async def has_victims(cluster: Cluster) -> None:
    """Fill n1 and n2. On n1 a loud pod stays whom nobody may evict; kube-scheduler would rather take n1."""
    for name, value in (("tiny", 1), ("low", 10), ("high", 1000), ("higher", 2000)):
        await cluster.api.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    await cluster.has_nodes(2, cpu="2")
    for name, cpu, node_name, priority, labels in (
        ("v1", "1500m", "n1", "tiny", {}),
        ("k1", "10m", "n1", "higher", {"loud": "yes"}),
        ("v2", "1500m", "n2", "low", {"loud": "yes"}),
    ):
        made = pod(name, cpu, nodeName=node_name, priorityClassName=priority)
        made["metadata"]["labels"] = labels
        await cluster.api.create(made)


async def preempted(cluster: Cluster) -> tuple[str, set[str]]:
    """Create the pod that needs room; return its node, and the pods that are left."""
    await cluster.api.create(pod("p1", "1", priorityClassName="high"))
    node_name = await cluster.bound("p1")
    left, _ = await cluster.api.all_of("Pod")
    return node_name, {item["metadata"]["name"] for item in left}


async def forget_classes(cluster: Cluster) -> None:
    for name in ("tiny", "low", "high", "higher"):
        await cluster.api.delete("PriorityClass", name)


@pytest.mark.slow
@pytest.mark.parametrize("node_cache_capable", [True, False])
async def test_preemption_takes_the_node_that_the_plugin_passes_without_the_victims(
    cluster: Cluster, node_cache_capable: bool
) -> None:
    await has_victims(cluster)
    flags = ["--node-cache-capable"] if node_cache_capable else []
    async with served(cluster, "Lonely", *flags, *access_flags(cluster)) as entry:
        assert entry["preemptVerb"] == "preempt"
        async with scheduling(cluster, "kube-scheduler", {"extenders": [entry]}):
            through_extender = await preempted(cluster)
    assert through_extender == ("n2", {"v1", "k1", "p1"})
    empty(cluster.servers)
    await forget_classes(cluster)
    await has_victims(cluster)
    async with scheduling(cluster, "berth", *in_berth("Lonely", "Lonely")):
        assert await preempted(cluster) == through_extender
    await forget_classes(cluster)


@pytest.mark.slow
async def test_preemption_without_the_verb_takes_the_other_node(cluster: Cluster) -> None:
    await has_victims(cluster)
    async with served(cluster, "Lonely", *access_flags(cluster)) as entry:
        del entry["preemptVerb"]
        async with scheduling(cluster, "kube-scheduler", {"extenders": [entry]}):
            await cluster.api.create(pod("p1", "1", priorityClassName="high"))
            async with asyncio.timeout(PATIENCE_S):
                while await cluster.pod("v1"):
                    await asyncio.sleep(0.02)
            assert await cluster.told("p1", "node is too loud")
    await forget_classes(cluster)


# --- bind --------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_extender_binds_with_a_client_certificate_and_refuses_in_the_plugins_words(
    cluster: Cluster, authority: Authority
) -> None:
    mine = pair_files(cluster.folder, "binder", authority.issue(SCHEDULER), authority)
    servers = cluster.servers
    flags = [f"--server={servers.url}", f"--certificate-authority={servers.ca_file}"]
    flags += [f"--client-certificate={mine.certificate}", f"--client-key={mine.key}"]
    await cluster.has_nodes(1)
    async with served(cluster, "Binder", *flags) as entry:
        assert {key for key in entry if key.endswith("Verb")} == {"bindVerb"}
        async with scheduling(cluster, "kube-scheduler", {"extenders": [entry]}):
            await cluster.api.create(pod("p1"))
            assert await cluster.bound("p1") == "n1"
            made = pod("p2")
            made["metadata"]["labels"] = {"refuse": "yes"}
            await cluster.api.create(made)
            assert "n1 has no free port for p2" in await cluster.told("p2", "no free port")
            assert await cluster.node_of("p2") == ""
    events = [json.loads(line) for line in servers.audit_log.read_text().splitlines()]
    uid = (await cluster.pod("p1"))["metadata"]["uid"]
    (binding,) = (
        one
        for one in events
        if one["objectRef"].get("subresource") == "binding" and one["requestObject"]["metadata"]["uid"] == uid
    )
    assert binding["userAgent"].startswith("Python")  # kube-scheduler itself bound nothing
    assert binding["responseStatus"]["code"] == 201
