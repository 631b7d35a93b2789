"""One turn: an API server, nodes, pods, one scheduler, and the measurements.

Called by the command. Many pods are measured from the first bound pod to the last.
Pods created one by one are measured from the request until their node is seen.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import orjson

from berth_bench.versus import extender, processes
from berth_bench.versus.api import ApiClient
from berth_bench.versus.contenders import SHADOW, UNLIMITED, Beside, Contender
from berth_bench.versus.figures import Latency, Turn
from berth_bench.versus.objects import create_all, namespace, service_account
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerError, SchedulerProcess, SchedulerSetup
from berth_bench.versus.workloads import RUNNING, Versus, node_manifests, running_manifests

MORE_FLAGS: Final = ("--max-requests-inflight=2000",)
"""Flags of kube-apiserver with which it delays neither scheduler."""
PATIENCE_S: Final = 60.0
"""A turn is given up if no pod is bound for this time, in seconds."""
_AT_ONCE: Final = 32
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 0.005
_REST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Running:
    """A running scheduler, and optionally the process beside it."""

    process: SchedulerProcess
    contender: Contender
    extender_pid: int = 0
    shadow: SchedulerProcess | None = None

    async def ready(self) -> None:
        """Wait until the scheduler and its shadow are ready. Raises SchedulerError."""
        await self.process.ready()
        if self.shadow is not None:
            await self.shadow.ready()

    def beside(self) -> int:
        """Return the id of the other process, 0 if there is none."""
        if self.shadow is not None:
            return self.shadow.pid
        if self.contender.beside not in (Beside.PLUGIN, Beside.GO_PLUGIN):
            return self.extender_pid
        return next(iter(processes.children(self.process.pid)), 0)

    def log_end(self) -> str:
        return self.process.last_lines()


class Yard:
    """One API server started for this purpose, some nodes, one scheduler at a time. `folder`: for all
    files.
    """

    def __init__(self, servers: RealServers, folder: Path) -> None:
        self._servers = servers
        self._api = ApiClient(servers.url, servers.tokens[ADMIN])
        self._kubeconfig = servers.kubeconfig(SCHEDULER)
        self._token_file = folder / "token"
        self._token_file.write_text(servers.tokens[ADMIN])
        self._folder = folder
        self._nodes = 0
        self._running = 0
        self._has_namespace = False
        self._serial = 0

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def have_nodes(self, count: int) -> None:
        """Make the cluster have exactly `count` nodes, those of `workloads`."""
        if count != self._nodes:
            await self._api.delete_all("Node")
            await create_all(self._api, node_manifests(count), _AT_ONCE)
            self._nodes = count

    async def have_service_accounts(self) -> None:
        """Create the namespaces' service accounts, as a controller does in a real cluster, so that admission
        gives each pod a volume with a token.
        """
        await self._have_namespace()
        for where in ("default", RUNNING):
            await self._api.create(service_account(where))

    async def _have_namespace(self) -> None:
        if not self._has_namespace:
            await self._api.create(namespace(RUNNING))
            self._has_namespace = True

    async def have_running(self, count: int, *, small: bool = False) -> None:
        """Make so many pods run on the nodes. They stay until the servers stop, so `count` stays the same."""
        if count != self._running:
            await self._have_namespace()
            await create_all(self._api, running_manifests(count, self._nodes, small=small), _AT_ONCE)
            self._running = count

    async def turn(self, contender: Contender, workload: Versus) -> Turn:
        """Bind the workload's pods, which exist when the scheduler starts or arrive while it works.

        Raises SchedulerError, ExtenderError and ApiError.
        """
        await self._api.delete_all("Event")
        prefix = self._prefix()
        if not workload.arrives:
            await self._create(workload, prefix)
        try:
            async with self._bound() as bound, self._scheduler(contender) as running:
                if not workload.arrives:
                    return await self._measured(bound, running, workload)
                await running.ready()
                await asyncio.sleep(_REST_S)  # let the scheduler become idle
                shadow_s = running.shadow.cpu_s() if running.shadow is not None else None
                creating = asyncio.create_task(self._create(workload, prefix))
                measuring = asyncio.create_task(self._measured(bound, running, workload, shadow_s))
                try:
                    await asyncio.wait({creating, measuring}, return_when=asyncio.FIRST_EXCEPTION)
                    if creating.done():
                        creating.result()  # its error says more than that no pod was bound
                    return replace(measuring.result(), startup_s=0.0)
                finally:
                    for task in (creating, measuring):
                        task.cancel()
                    await asyncio.wait({creating, measuring})
        finally:
            await self._delete_pods(workload)

    async def _create(self, workload: Versus, prefix: str) -> None:
        await create_all(self._api, workload.groups(prefix, workload.pods), _AT_ONCE)
        await create_all(self._api, workload.manifests(prefix, workload.pods), _AT_ONCE)

    async def _measured(
        self,
        bound: asyncio.Queue[float],
        running: _Running,
        workload: Versus,
        shadow_first_s: float | None = None,
    ) -> Turn:
        """Measure until the last pod is bound, and the shadow until it has compared that pod.

        `shadow_first_s`: the shadow's CPU time before the first pod, for pods that arrive.
        """
        began_s = time.monotonic()
        await _next(bound, running)
        beside = running.beside()
        first_s, first_cpu_s = time.monotonic(), running.process.cpu_s()
        loop_first_s = running.process.loop_cpu_s()
        beside_first_s = processes.cpu_s(beside) if beside else 0.0
        servers_first_s = self._servers_cpu_s()
        for _ in range(workload.pods - 1):
            await _next(bound, running)
        # The thread's time is that of an interval within the process's.
        loop_s = running.process.loop_cpu_s() - loop_first_s
        took_s, cpu_s = time.monotonic() - first_s, running.process.cpu_s() - first_cpu_s
        servers_s = self._servers_cpu_s() - servers_first_s
        counted = workload.pods - 1
        beside_s = processes.cpu_s(beside) - beside_first_s if beside else 0.0
        beside_ms = 1000 * beside_s / counted
        compared = agreed = 0.0
        if running.shadow is not None:
            compared, agreed = await self._compared(running.shadow, workload.pods)
            if shadow_first_s is not None:
                beside_ms = 1000 * (running.shadow.cpu_s() - shadow_first_s) / workload.pods
        return Turn(
            pods_per_s=counted / took_s,
            cpu_ms_per_pod=1000 * cpu_s / counted,
            loop_cpu_ms_per_pod=1000 * loop_s / counted,
            memory_mb=running.process.memory_mb(),
            beside_cpu_ms_per_pod=beside_ms,
            beside_memory_mb=processes.memory_mb(beside) if beside else 0.0,
            servers_cpu_ms_per_pod=1000 * servers_s / counted,
            startup_s=first_s - began_s,
            load=os.getloadavg()[0],
            compared=compared,
            agreed=agreed,
        )

    async def _compared(self, shadow: SchedulerProcess, pods: int) -> tuple[float, float]:
        """Wait until the shadow has an outcome for every pod. Return the share of the pods that it tried in
        time, and the share of its decisions that agree. Raises SchedulerError.
        """
        ends_s = time.monotonic() + PATIENCE_S
        while True:
            report = await shadow.ask("/berth/v1/shadow", self._servers.tokens[ADMIN])
            undecided = report["outcomes"]["undecided"]
            if not report["open"] and report["compared"] + undecided >= pods:
                return 1 - undecided / pods, report["agreed"] / max(report["compared"], 1)
            if time.monotonic() > ends_s:
                said = f"{report['compared']} of {pods} decisions compared, {report['open']} open"
                raise SchedulerError(f"the shadow: {said} after {PATIENCE_S:.0f} s:\n{shadow.last_lines()}")
            await asyncio.sleep(_LOOK_S)

    async def latency(self, contender: Contender, workload: Versus, count: int) -> Latency:
        """Create `count` pods one by one, each after the previous one is bound. Raises as `turn` does.

        In a workload of gangs each pod is a gang of its own.
        """
        times_ms: list[float] = []
        workload = replace(workload, gang=min(workload.gang, 1))
        prefix = self._prefix()
        await create_all(self._api, workload.groups(prefix, count), _AT_ONCE)
        try:
            async with self._bound() as bound, self._scheduler(contender) as running:
                await running.ready()
                await asyncio.sleep(_REST_S)  # let the scheduler become idle
                cpu_s = running.process.cpu_s()
                for content in workload.manifests(prefix, count):
                    began_s = time.monotonic()
                    made = asyncio.create_task(self._api.create(content))
                    seen_s = await _next(bound, running)
                    times_ms.append(1000 * (seen_s - began_s))
                    await made
                    await asyncio.sleep(_PAUSE_S)
                cpu_s = running.process.cpu_s() - cpu_s
        finally:
            await self._delete_pods(workload)
        cuts = statistics.quantiles(times_ms, n=100, method="inclusive")
        return Latency(
            p50_ms=cuts[49],
            p99_ms=cuts[98],
            worst_ms=max(times_ms),
            cpu_ms_per_pod=1000 * cpu_s / count,
            load=os.getloadavg()[0],
        )

    async def _delete_pods(self, workload: Versus) -> None:
        await self._api.delete_all("Pod")
        if workload.gang:
            groups, _ = await self._api.all_of("PodGroup")
            await asyncio.gather(*(self._delete_group(one["metadata"]["name"]) for one in groups))

    async def _delete_group(self, name: str) -> None:
        """Delete a group without its finalizer, which a controller removes on other clusters."""
        await self._api.patch("PodGroup", name, {"metadata": {"finalizers": None}})
        await self._api.delete("PodGroup", name)

    def _servers_cpu_s(self) -> float:
        return sum(processes.cpu_s(pid) for pid in self._servers.pids)

    def _prefix(self) -> str:
        self._serial += 1
        return f"pod-{self._serial}"

    @asynccontextmanager
    async def _scheduler(self, contender: Contender) -> AsyncIterator[_Running]:
        if contender.beside is Beside.SHADOW:
            async with (
                self._started(SHADOW, name="shadow") as shadow,
                self._started(contender) as process,
            ):
                yield _Running(process, contender, shadow=shadow)
            return
        if not contender.extends:
            async with self._started(contender) as process:
                yield _Running(process, contender)
            return
        caches = self._token_file if contender.beside is Beside.NODE_CACHING_EXTENDER else None
        async with (
            extender.running(
                self._folder,
                caches=caches,
                server=self._servers.url,
                ca_file=self._servers.ca_file,
                varies=contender.varies,
            ) as other,
            self._started(contender, other.url) as process,
        ):
            yield _Running(process, contender, other.pid)

    @asynccontextmanager
    async def _started(
        self, contender: Contender, extender_url: str = "", name: str = "scheduler"
    ) -> AsyncIterator[SchedulerProcess]:
        setup = SchedulerSetup(
            program="berth" if contender.is_berth else str(program("kube-scheduler")),
            kubeconfig=self._kubeconfig,
            folder=self._folder,
            configuration=contender.configuration(extender_url),
            client_connection=UNLIMITED,
            more_documents=contender.berth_configuration(),
            flags=contender.flags,
            python=contender.python,
        )
        process = SchedulerProcess(setup, name)
        await process.start()
        try:
            yield process
        finally:
            await process.stop()

    @asynccontextmanager
    async def _bound(self) -> AsyncIterator[asyncio.Queue[float]]:
        """Yield the times at which pods were seen on nodes. The watch has one change per pod, so that it
        costs little.
        """
        _, version = await self._api.all_of("Lease")  # a kind with few objects
        seen: asyncio.Queue[float] = asyncio.Queue()

        async def follow() -> None:
            # The server ends the stream of a client that reads too slowly, as on a busy machine.
            last = version
            while True:
                async for line in self._api.watch_lines("Pod", last, "spec.nodeName!="):
                    change = orjson.loads(line)
                    last = change["object"]["metadata"]["resourceVersion"]
                    if change["type"] == "ADDED":
                        seen.put_nowait(time.monotonic())

        task = asyncio.create_task(follow())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait({task})


async def _next(bound: asyncio.Queue[float], running: _Running) -> float:
    """Return when the next pod was seen on its node. Raises SchedulerError if none is."""
    if not bound.empty():
        return bound.get_nowait()
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            async with asyncio.timeout(_LOOK_S):
                return await bound.get()
        except TimeoutError:
            if (code := running.process.ended_with) is not None:
                raise SchedulerError(f"the scheduler ended with {code}:\n{running.log_end()}") from None
            if time.monotonic() > ends_s:
                text = f"no pod was bound for {PATIENCE_S:.0f} s:\n{running.log_end()}"
                raise SchedulerError(text) from None
