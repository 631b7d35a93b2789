"""`RealCluster`: a soak on a real API server, which the host reaches through a proxy that is cut.

Made by `world`. It uses objects of its own: a namespace for the pods, nodes with a label and a taint, a
scheduler name that no other pod uses. It requires a cluster without nodes, and deletes everything at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from berth_host.errors.cluster import ClusterError, ConflictError, NotFoundError
from berth_kube.client import KubeClient, path_of
from berth_kube.connection import Connection

from berth_bench.soak.account import Account
from berth_bench.soak.clusters import (
    CUT,
    CUT_LASTS_S,
    SCHEDULER_NAME,
    STOPPED,
    Interruption,
    SoakError,
)
from berth_bench.soak.cutting_proxy import CuttingProxy, cutting_proxy
from berth_bench.soak.followed_pods import FollowedPods
from berth_bench.soak.real_kubeconfig import RealKubeconfig
from berth_bench.soak.stopped_server import StoppedServer
from berth_bench.versus.objects import Json

RUN: Final = "soak.berth.io/run"
"""Label and taint of the nodes, and label of the namespace: the run that they belong to."""
PATIENCE_S: Final = 60.0
"""The longest wait for a server that does not answer, in seconds."""
_AGAIN_S: Final = 0.2
_STOPPED_S: Final = (1.0, 10.0)
_AT_ONCE: Final = 16
_NODES: Final = path_of("/api/v1", "nodes")


class RealCluster:
    """A real cluster; see `clusters.Cluster`. `rebinds` is 0: requests that the server refuses are not
    visible from outside.
    """

    def __init__(
        self,
        client: KubeClient,
        run: str,
        account: Account,
        kubeconfig: Path,
        interruptions: Sequence[Interruption],
    ) -> None:
        self.kubeconfig = kubeconfig
        self.interruptions = tuple(interruptions)
        self.rebinds = 0
        self.namespace = f"berth-soak-{run}"
        self._run = run
        self._client = client
        self._pods = path_of("/api/v1", "pods", self.namespace)
        self._followed = FollowedPods(client, self.namespace, account)
        self._limit = asyncio.Semaphore(_AT_ONCE)

    async def begin(self) -> None:
        """Create the namespace. Raises ClusterError."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": self._metadata(self.namespace)}
        await self._client.request("POST", path_of("/api/v1", "namespaces"), body=body)
        await self._until_it_takes_pods()
        await self._followed.count_anew()

    async def follow(self) -> None:
        """Report every change to the account until cancelled."""
        await self._followed.run()

    async def create(self, content: Json) -> None:
        """See `Cluster`. Raises ClusterError if the server does not answer for too long."""
        is_node = content["kind"] == "Node"
        body = self._as_own_node(content) if is_node else self._as_own_pod(content)

        async def make() -> None:
            # An earlier attempt whose answer was lost created it.
            with contextlib.suppress(ConflictError):
                await self._client.request("POST", _NODES if is_node else self._pods, body=body)

        async with self._limit:
            await _while_away(make)

    async def delete_pod(self, name: str) -> None:
        """See `Cluster`. Raises ClusterError if the server does not answer for too long."""

        async def delete() -> None:
            with contextlib.suppress(NotFoundError):
                await self._client.request("DELETE", f"{self._pods}/{name}", body={"gracePeriodSeconds": 0})

        await _while_away(delete)

    async def count_anew(self) -> None:
        """See `Cluster`. Raises ClusterError if the server does not answer for too long."""
        await _while_away(self._followed.count_anew)

    async def clear(self) -> None:
        """Delete what this run has created. Raises ClusterError."""
        ours = {"labelSelector": f"{RUN}={self._run}"}
        await self._drop(self._pods)
        await self._drop(_NODES, ours)
        await self._drop(path_of("/apis/events.k8s.io/v1", "events", self.namespace))
        await self._drop(path_of("/api/v1", "namespaces", name=self.namespace))

    async def _drop(self, path: str, query: dict[str, str] | None = None) -> None:
        async def drop() -> None:
            with contextlib.suppress(NotFoundError):
                await self._client.request("DELETE", path, query=query, body={"gracePeriodSeconds": 0})

        await _while_away(drop)

    async def refuse_nodes(self) -> None:
        """Raise SoakError if the cluster has nodes. Raises ClusterError too."""
        answer = await self._client.request("GET", _NODES, resource="nodes")
        found: list[dict[str, Any]] = answer.get("items") or []
        if not found:
            return
        some = ", ".join(one["metadata"]["name"] for one in found[:3])
        if all(RUN in (one["metadata"].get("labels") or {}) for one in found):
            raise SoakError(
                f"{len(found)} nodes of another soak exist ({some}); once that has ended,"
                f" kubectl delete nodes,namespaces -l {RUN} deletes what it left"
            )
        raise SoakError(
            f"the cluster has {len(found)} nodes already ({some}); the soak needs a cluster without nodes,"
            " because it creates and deletes its own"
        )

    async def _until_it_takes_pods(self) -> None:
        """Wait until pods can be created: a new namespace refuses pods until a controller has created its
        service account.
        """
        container = {"name": "c", "image": "registry.example.com/app:v1"}
        probe = self._as_own_pod(
            {"kind": "Pod", "metadata": {"name": "probe"}, "spec": {"containers": [container]}}
        )

        async def ask() -> None:
            await self._client.request("POST", self._pods, query={"dryRun": "All"}, body=probe)

        await _while_away(ask, within_s=PATIENCE_S / 2)

    def _metadata(self, name: str, labels: Json | None = None) -> Json:
        return {"name": name, "labels": {**(labels or {}), RUN: self._run}}

    def _as_own_node(self, content: Json) -> Json:
        metadata = self._metadata(content["metadata"]["name"], content["metadata"].get("labels"))
        # Keeps other pods away, whichever scheduler they name.
        taint = {"key": RUN, "value": self._run, "effect": "NoSchedule"}
        return {**content, "metadata": metadata, "spec": {"taints": [taint]}}

    def _as_own_pod(self, content: Json) -> Json:
        spec = {
            **content["spec"],
            "schedulerName": SCHEDULER_NAME,
            # No kubelet reports for these nodes, so controllers taint them, and would evict the pods.
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        }
        return {**content, "metadata": {"name": content["metadata"]["name"]}, "spec": spec}


@asynccontextmanager
async def real_cluster(
    account: Account, folder: Path, kubeconfig: Path, server_pid: int
) -> AsyncIterator[RealCluster]:
    """Run on the cluster of `kubeconfig` until the block ends. `server_pid`: the process of its API server,
    which is stopped now and then; 0: it is not stopped. Raises SoakError, ClientConfigError and ClusterError.
    """
    real = RealKubeconfig(kubeconfig)
    place = str(real.server.hostname), int(real.server.port or 0)
    stopped = await asyncio.to_thread(StoppedServer, server_pid, *place) if server_pid else None
    through = folder / "kubeconfig.json"
    client = await KubeClient.open(Connection(kubeconfig=str(kubeconfig), qps=-1, user_agent="berth-soak"))
    try:
        async with cutting_proxy(real.server.geturl(), 0) as proxy:
            proxy.is_calm = True
            real.write_through(proxy.url, through)
            interruptions = [_cut(proxy), *([_stop(stopped)] if stopped is not None else [])]
            cluster = RealCluster(client, secrets.token_hex(4), account, through, interruptions)
            await cluster.refuse_nodes()
            try:
                await cluster.begin()
                async with _following(cluster):
                    yield cluster
            finally:
                await cluster.clear()
    finally:
        through.unlink(missing_ok=True)
        await client.close()


@asynccontextmanager
async def _following(cluster: RealCluster) -> AsyncIterator[None]:
    task = asyncio.create_task(cluster.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _cut(proxy: CuttingProxy) -> Interruption:
    async def begin() -> None:
        proxy.go_down()

    async def end() -> None:
        proxy.come_up()

    return Interruption(name=CUT, begin=begin, end=end, lasts_s=CUT_LASTS_S)


def _stop(server: StoppedServer) -> Interruption:
    async def begin() -> None:
        server.stop()

    async def end() -> None:
        server.go_on()

    return Interruption(name=STOPPED, begin=begin, end=end, lasts_s=_STOPPED_S)


async def _while_away(request: Callable[[], Awaitable[None]], within_s: float = PATIENCE_S) -> None:
    """Repeat a request until it succeeds. Raises the last ClusterError after `within_s` seconds."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while True:
        try:
            return await request()
        except ClusterError:
            if loop.time() > until_s:
                raise
            await asyncio.sleep(_AGAIN_S)
