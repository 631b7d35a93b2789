"""`Cluster`: the cluster as a soak uses it; `EmbeddedCluster`: the embedded one, over loopback HTTP.

Made by `world`; it outlives the hosts. The other kind is in `real_cluster`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import NotFoundError
from berth_host.model.clock import RealClock
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.http.serving import ServedCluster, served
from berth_sim.cluster.server import ApiServer

from berth_bench.soak.account import Account
from berth_bench.versus.objects import Json

SCHEDULER_NAME: Final = "berth-soak"
"""A scheduler name that no other scheduler of a cluster uses, and no other pod names."""
CUT: Final = "cluster_cut"
STOPPED: Final = "cluster_stopped"
CUT_LASTS_S: Final = (0.2, 3.0)
"""Minimum and maximum duration of a cut, in seconds."""


class SoakError(Exception):
    """The soak cannot run as requested; the text ends with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A fault of the cluster. `name`: its name in the result; `end` repairs what `begin` did, even if `begin`
    failed. `lasts_s`: minimum and maximum duration.
    """

    name: str
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]
    lasts_s: tuple[float, float]


class Cluster(Protocol):
    """The cluster, as the soak's own process reaches it: interruptions do not affect this access."""

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for the host."""
        ...

    @property
    def interruptions(self) -> Sequence[Interruption]:
        """The faults that the cluster can have."""
        ...

    @property
    def rebinds(self) -> int:
        """The number of requests to bind a pod to another node than before, as far as the soak can see
        them.
        """
        ...

    async def create(self, content: Json) -> None:
        """Create a node or a pod. Waits while the API server does not answer."""
        ...

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once. Waits while the API server does not answer."""
        ...

    async def count_anew(self) -> None:
        """Report all current pods to the account."""
        ...


class EmbeddedCluster:
    """The embedded cluster; see `Cluster`. `server`: the soak creates objects in it without HTTP."""

    def __init__(self, server: ApiServer, over_http: ServedCluster, account: Account, folder: Path) -> None:
        self._server = server
        self._over_http = over_http
        self._account = account
        self.kubeconfig = folder / "kubeconfig.json"
        self.kubeconfig.write_text(json.dumps(_kubeconfig(over_http.url)))
        self.interruptions = (
            Interruption(name=CUT, begin=over_http.fall_silent, end=over_http.listen, lasts_s=CUT_LASTS_S),
        )

    @property
    def rebinds(self) -> int:
        """The number of rebinds that the embedded cluster refused."""
        return self._over_http.handlers.rebinds

    async def create(self, content: Json) -> None:
        """Create the object at once."""
        self._server.create(content)

    async def delete_pod(self, name: str) -> None:
        """Delete the pod at once; ignore a pod that no longer exists, because the account reports it."""
        try:
            self._server.delete("pods", ObjectRef(name=name, namespace="default"))
        except NotFoundError:
            return

    async def count_anew(self) -> None:
        """Report all pods to the account."""
        self._account.are_there(pod.parsed for pod in self._server.list("pods"))


@asynccontextmanager
async def embedded_cluster(account: Account, folder: Path) -> AsyncIterator[EmbeddedCluster]:
    """Serve an empty cluster until the block ends."""
    server = ApiServer(RealClock())

    def note(event: WatchEvent) -> None:
        if event.kind != "Pod":
            return
        if event.new is not None:
            account.is_there(event.new.parsed)
        elif event.old is not None:
            account.is_gone(event.old.ref.name)

    close = server.store.subscribe(note)
    try:
        async with served(server) as over_http:
            yield EmbeddedCluster(server, over_http, account, folder)
    finally:
        close()


def _kubeconfig(url: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "soak", "cluster": {"server": url}}],
        "users": [{"name": "soak", "user": {}}],
        "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
        "current-context": "soak",
    }
