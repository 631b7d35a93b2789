"""`KubeCluster`: a real API server as a `ClusterPort`.

Made by `process` from an open `client.KubeClient`. The caller closes that client: leader election and health
checks still use it after `cut`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from berth_host.cluster.port import ClusterPort, EventRecord, WatchHandler
from berth_host.errors.cluster import UnavailableError
from berth_host.model.clock import Clock

from berth_kube.calls import Calls
from berth_kube.client import KubeClient
from berth_kube.delivery import Delivery
from berth_kube.events import EventWriter
from berth_kube.informer import Informer, Keeps, WatchTimes
from berth_kube.late_reading import LateReader
from berth_kube.resources import Resources, built_in

WRITTEN: Final = frozenset(
    {
        "pods",
        "persistentvolumes",
        "persistentvolumeclaims",
        "resource.k8s.io/resourceclaims",
        "scheduling.k8s.io/podgroups",
        "scheduling.k8s.io/compositepodgroups",
    }
)
"""The built-in resources that schedulers write: bindings, volumes, allocations, statuses. Plugins may write
custom ones.
"""
_BUILT_IN: Final = frozenset(one.name for one in built_in())


class KubeCluster(Calls, ClusterPort):
    """A cluster with a real API server; `ClusterPort` documents the calls.

    `host_name`: the host named in events; "" for this machine's name. `keeps`: by resource.
    """

    answers_at_once = False

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        host_name: str = "",
        times: WatchTimes | None = None,
        keeps: Mapping[str, Keeps] | None = None,
    ) -> None:
        resources = Resources(client)
        super().__init__(client, resources, self._check_may_send)
        self._keeps = keeps or {}
        self._times = times
        self.events = EventWriter(
            client, clock, self._check_may_send, resources.api_version_of, host_name=host_name
        )
        self.lease_has_run_out: Callable[[], bool] = lambda: False
        """Called before each request other than lists and watches, and true after the Lease has run out: then
        the request is not sent."""
        self._delivery: Delivery | None = None
        self._late = LateReader(clock)
        self._handler: WatchHandler | None = None
        self._informers: dict[str, Informer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False

    async def start(self, handler: WatchHandler, resources: Collection[str]) -> None:
        """List and watch `resources`; return after all existing objects were handed over.

        Raises NotFoundError if the API server does not serve a resource that a feature gate needs.
        """
        self._handler = handler
        self._delivery = Delivery()
        await self.watch(resources)
        self._delivery.yield_to_others()

    async def watch(self, resources: Collection[str]) -> None:
        """List and watch further resources; return after all their existing objects were handed over."""
        if self._handler is None or self._delivery is None:
            raise RuntimeError("KubeCluster.watch before start")
        for name in sorted(resources):
            if name not in self._informers:
                informer = Informer(
                    name,
                    self._client,
                    self._resources,
                    self._delivery,
                    self._late,
                    self._handler,
                    times=self._times,
                    keeps=self._keeps.get(name),
                )
                self._informers[name] = informer
                task = asyncio.get_running_loop().create_task(informer.run(), name=f"watch {name}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*(self._informers[name].synced.wait() for name in resources))
        for name in sorted(resources):
            if (unserved := self._informers[name].unserved) is not None:
                raise unserved

    async def catch_up(self, timeout_s: float) -> Sequence[str]:
        """Hand over all changes that the API server has now of resources that a scheduler or its plugins
        write; return those that are still behind.

        Others are left out because each watch that is opened anew costs both sides a TLS handshake.
        """
        asking = {
            name: asyncio.get_running_loop().create_task(informer.catch_up(), name=f"catch up {name}")
            for name, informer in self._informers.items()
            if name in WRITTEN or name not in _BUILT_IN
        }
        try:
            if asking:
                await asyncio.wait(asking.values(), timeout=timeout_s)
        finally:
            for task in asking.values():
                task.cancel()
            ends = await asyncio.gather(*asking.values(), return_exceptions=True)
        return [name for name, end in sorted(zip(asking, ends, strict=True)) if end is not None]

    async def stop(self) -> None:
        """End the watches; write the events that are still queued, for a bounded time."""
        if self._delivery is not None:
            self._delivery.stop()
        self._late.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.events.stop()

    def cut(self) -> None:
        """Stop sending requests other than lists and watches."""
        self._is_cut = True
        self.events.cut()

    @property
    def kept_event_count(self) -> int:
        """The number of events kept, so that their repetitions become a series."""
        return self.events.kept_count

    @property
    def undelivered_count(self) -> int:
        """The number of changes that have arrived and were not handed over yet."""
        return 0 if self._delivery is None else self._delivery.waiting_count

    @property
    def synced(self) -> Mapping[str, bool]:
        """True per resource once its first list was handed over."""
        return {name: informer.synced.is_set() for name, informer in self._informers.items()}

    @property
    def problems(self) -> Mapping[str, str]:
        """The reason why a resource is not up to date now, by resource; only for such resources."""
        return {name: informer.problem for name, informer in self._informers.items() if informer.problem}

    @property
    def informers(self) -> Mapping[str, Informer]:
        """The informers by resource, for their counters."""
        return self._informers

    def create_event(self, event: EventRecord) -> None:
        """Write any event."""
        self.events.add(event)

    def _check_may_send(self) -> None:
        if self._is_cut:
            raise UnavailableError("", "", "this host is not the leader any more: nothing is sent")
        # A process that was suspended may continue its calls before it checks its Lease.
        if self.lease_has_run_out():
            raise UnavailableError("", "", "this host could not renew its Lease in time: nothing is sent")
