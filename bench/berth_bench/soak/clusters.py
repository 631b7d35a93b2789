"""`Cluster`: what a soak needs of a cluster; `EmbeddedCluster`: the embedded one, over loopback HTTP.

Made by `world`, which outlives the hosts. The other kind is in `real_cluster`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from berth_host.cluster.memory.http.serving import ServedCluster, served
from berth_host.cluster.memory.server import ApiServer
from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import NotFoundError
from berth_host.model.clock import RealClock
from berth_sdk.kube_object import ObjectRef

from berth_bench.soak.account import Account
from berth_bench.versus.objects import Json

SCHEDULER_NAME: Final = "berth-soak"
"""A name that no other scheduler of a cluster answers to, and pods of others do not ask for."""
CUT: Final = "cluster_cut"
STOPPED: Final = "cluster_stopped"
CUT_LASTS_S: Final = (0.2, 3.0)
"""The least and the most."""


class SoakError(Exception):
    """The soak cannot run as it was asked to; the text ends with the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A misfortune of the cluster. `name`: in the result; `end` mends what `begin` brought, also where that
    did not end. `lasts_s`: the least and the most.
    """

    name: str
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]
    lasts_s: tuple[float, float]


class Cluster(Protocol):
    """The cluster, as the soak's own process reaches it: no interruption is between them."""

    @property
    def kubeconfig(self) -> Path:
        """By which the host reaches it."""
        ...

    @property
    def interruptions(self) -> Sequence[Interruption]:
        """What can happen to it."""
        ...

    @property
    def rebinds(self) -> int:
        """Requests to bind a pod to another node than before, as far as the soak can see them."""
        ...

    async def create(self, content: Json) -> None:
        """Make a node or a pod. An API server that is away is waited for."""
        ...

    async def delete_pod(self, name: str) -> None:
        """At once. An API server that is away is waited for."""
        ...

    async def count_anew(self) -> None:
        """Tell the account of all pods as they are now."""
        ...


class EmbeddedCluster:
    """See `Cluster`. `server`: the soak makes objects in it without HTTP."""

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
        """Those that the embedded cluster refused."""
        return self._over_http.handlers.rebinds

    async def create(self, content: Json) -> None:
        """At once."""
        self._server.create(content)

    async def delete_pod(self, name: str) -> None:
        """At once; one that is gone is missed by the account."""
        try:
            self._server.delete("pods", ObjectRef(name=name, namespace="default"))
        except NotFoundError:
            return

    async def count_anew(self) -> None:
        """All pods as they are."""
        self._account.are_there(pod.parsed for pod in self._server.list("pods"))


@asynccontextmanager
async def embedded_cluster(account: Account, folder: Path) -> AsyncIterator[EmbeddedCluster]:
    """An empty one, served until the block ends."""
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
