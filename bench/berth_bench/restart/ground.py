"""One turn: a scheduler starts on a cluster with many running pods, and binds the one that waits.

Called by the command, with contenders in turns.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from berth_bench.restart.figures import Start, TakeOver
from berth_bench.restart.running_pods import fill
from berth_bench.versus import processes
from berth_bench.versus.api import ApiClient
from berth_bench.versus.contenders import UNLIMITED, Contender
from berth_bench.versus.objects import pod
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerError, SchedulerProcess, SchedulerSetup

PATIENCE_S: Final = 300.0
"""A turn is given up if the pod is not bound within this time, in seconds."""
_LOOK_S: Final = 0.5
_LEASE_LOOK_S: Final = 0.01
_LEASE: Final = {
    "leaderElect": True,
    "leaseDuration": "3s",
    "renewDeadline": "2s",
    "retryPeriod": "500ms",
}


class Ground:
    """A filled cluster on which schedulers start. `folder`: for all files."""

    def __init__(self, servers: RealServers, folder: Path) -> None:
        self._servers = servers
        self._api = ApiClient(servers.url, servers.tokens[ADMIN])
        self._kubeconfig = servers.kubeconfig(SCHEDULER)
        self._folder = folder
        self._serial = 0
        self.pod_bytes = 0

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def fill(self, nodes: int, running: int) -> None:
        """Make the nodes and the running pods; wait until the API server has them. Raises ApiError."""
        self.pod_bytes = await fill(self._api, self._servers.etcd_url, nodes, running)
        for path, count in (("api/v1/nodes", nodes), ("api/v1/pods", running)):
            while await self._count(path) < count:  # noqa: ASYNC110  # another process counts
                await asyncio.sleep(_LOOK_S)

    async def _count(self, path: str) -> int:
        """Return the number of objects, by the first object of a list and what the server says remains."""
        answer = await self._api.request("GET", f"{path}?limit=1")
        return len(answer["items"]) + int(answer["metadata"].get("remainingItemCount") or 0)

    async def compile(self, contender: Contender) -> None:
        """Let berth compile its modules, as those of an installed berth are: start it once, unmeasured.

        Raises SchedulerError.
        """
        if not contender.is_berth:
            return
        process = SchedulerProcess(self._setup(contender))
        began_s = time.monotonic()
        try:
            await process.start()
            while True:
                with suppress(SchedulerError):
                    await process.ready()
                    break
                if process.ended_with is not None or time.monotonic() - began_s > PATIENCE_S:
                    raise SchedulerError(f"berth does not start:\n{process.last_lines()}")
        finally:
            await process.stop()

    async def start(self, contender: Contender) -> Start:
        """Start a scheduler, measure until it has bound a pod, and stop it.

        Raises SchedulerError and ApiError.
        """
        self._serial += 1
        name = f"first-{self._serial}"
        made = await self._api.create(pod(name))
        process = SchedulerProcess(self._setup(contender))
        servers_s = self._servers_cpu_s()
        began_s = time.monotonic()
        bound = asyncio.create_task(self._bound(name, made["metadata"]["resourceVersion"]))
        try:
            await process.start()
            while not bound.done():
                await asyncio.wait({bound}, timeout=_LOOK_S)
                if process.ended_with is not None:
                    raise SchedulerError(
                        f"the scheduler ended with {process.ended_with}:\n{process.last_lines()}"
                    )
                if time.monotonic() - began_s > PATIENCE_S:
                    raise SchedulerError(f"nothing bound in {PATIENCE_S:.0f} s:\n{process.last_lines()}")
            return Start(
                cpu_s=process.cpu_s(),
                took_s=bound.result() - began_s,
                memory_mb=process.memory_mb(),
                servers_cpu_s=self._servers_cpu_s() - servers_s,
                load=os.getloadavg()[0],
            )
        finally:
            bound.cancel()
            await asyncio.wait({bound})
            await process.stop()
            await self._api.delete("Pod", name, grace_period_s=0)

    async def take_over(self, contender: Contender) -> TakeOver:
        """Kill a leader beside a standby; measure from the Lease's new holder until a pod is bound.

        The pod is created when the leader is dead. Raises SchedulerError and ApiError.
        """
        self._serial += 1
        name = f"first-{self._serial}"
        setup = self._setup(contender, _LEASE)
        leader, standby = SchedulerProcess(setup, "leader"), SchedulerProcess(setup, "standby")
        try:
            await leader.start()
            await leader.ready()
            first = await self._holder_other_than("")
            await standby.start()
            await standby.ready()
            await leader.kill()
            made = await self._api.create(pod(name))
            cpu_s = standby.cpu_s()
            bound = asyncio.create_task(self._bound(name, made["metadata"]["resourceVersion"]))
            async with asyncio.timeout(PATIENCE_S):
                await self._holder_other_than(first)
                held_s = time.monotonic()
                took_s = await bound - held_s
            return TakeOver(took_s=took_s, cpu_s=standby.cpu_s() - cpu_s, load=os.getloadavg()[0])
        except TimeoutError:
            raise SchedulerError(f"nothing bound in {PATIENCE_S:.0f} s:\n{standby.last_lines()}") from None
        finally:
            await leader.kill()
            await standby.stop()
            await self._api.delete("Pod", name, grace_period_s=0)
            await self._api.delete("Lease", "kube-scheduler", namespace="kube-system")

    async def _holder_other_than(self, old: str) -> str:
        """Return the holder of the Lease when it is another one, looking 100 times a second."""
        while True:
            lease = await self._api.get("Lease", "kube-scheduler", "kube-system")
            holder = "" if lease is None else str(lease["spec"].get("holderIdentity") or "")
            if holder not in ("", old):
                return holder
            await asyncio.sleep(_LEASE_LOOK_S)

    async def _bound(self, name: str, version: str) -> float:
        """Return when the pod is seen on a node (monotonic seconds)."""
        while True:
            lines = self._api.watch_lines("Pod", version, f"metadata.name={name}", namespace="default")
            async for line in lines:
                item = orjson.loads(line)["object"]
                version = item["metadata"]["resourceVersion"]
                if item.get("spec", {}).get("nodeName"):
                    return time.monotonic()

    def _setup(self, contender: Contender, lease: Mapping[str, Any] | None = None) -> SchedulerSetup:
        """Return the start of a contender. `lease`: its leaderElection; None: it leads without a Lease."""
        content = yaml.safe_load(contender.configuration())
        if lease is not None:
            content["leaderElection"] = lease
        return SchedulerSetup(
            program="berth" if contender.is_berth else str(program("kube-scheduler")),
            kubeconfig=self._kubeconfig,
            folder=self._folder,
            configuration=yaml.safe_dump(content, sort_keys=False),
            client_connection=UNLIMITED,
            python=contender.python,
            bytecode=self._folder / "bytecode",
        )

    def _servers_cpu_s(self) -> float:
        return sum(processes.cpu_s(pid) for pid in self._servers.pids)
