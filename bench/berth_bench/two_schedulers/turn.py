"""One case: two schedulers on one API server, pods for both, and the recount of the nodes.

Nothing runs the pods, so a pod that a kubelet would refuse stays on its node and is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from berth_bench.two_schedulers.cases import CPU_M, Case, Program, configuration, nodes
from berth_bench.two_schedulers.figures import Outcome, overfull
from berth_bench.versus.api import ApiClient
from berth_bench.versus.contenders import UNLIMITED
from berth_bench.versus.objects import create_all
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerError, SchedulerProcess, SchedulerSetup

QUIET_S: Final = 10.0
"""Seconds without a further binding after which a case is over."""
LIMIT_S: Final = 300.0
"""Seconds after the last pod was created after which a case is over in any event."""
_LOOK_S: Final = 2.0
_AT_ONCE: Final = 32
_SENT_BACK: Final = "berth_bindings_given_up_total "


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of every case. `rate`: pods created per second; 0: as fast as the API server takes them."""

    nodes: int
    places: int
    pods: int
    rate: float


class Ground:
    """One API server with nodes that have room for `size.places` pods. Close it after use."""

    def __init__(self, servers: RealServers, folder: Path, size: Size) -> None:
        self._servers = servers
        self._folder = folder
        self._size = size
        self._api = ApiClient(servers.url, servers.tokens[ADMIN])
        self._kubeconfig = servers.kubeconfig(SCHEDULER)

    async def make(self) -> None:
        """Create the nodes. Raises ApiError."""
        await create_all(self._api, nodes(self._size.nodes, self._size.places), _AT_ONCE)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def run(self, case: Case) -> Outcome:
        """Start the two schedulers, create the pods, and count when nothing changes any more.

        Raises ApiError and SchedulerError.
        """
        first, second = case.scheduler_names
        try:
            async with (
                self._started(case.first, first, f"{case.name}-1") as one,
                self._started(case.second, second, f"{case.name}-2") as other,
            ):
                await asyncio.gather(one.ready(), other.ready())
                await self._create(case)
                await self._quiet((one, other))
                sent_back = sum([await self._sent_back(process) for process in (one, other)])
            return await self._counted(case, sent_back)
        finally:
            await self._api.delete_all("Pod")
            await self._api.delete_all("Event")

    async def _create(self, case: Case) -> None:
        pods = case.pods(self._size.pods)
        if not self._size.rate:
            await create_all(self._api, pods, _AT_ONCE)
            return
        began_s = time.monotonic()
        for number, content in enumerate(pods):
            await asyncio.sleep(max(0.0, began_s + number / self._size.rate - time.monotonic()))
            await self._api.create(content)

    async def _quiet(self, processes: tuple[SchedulerProcess, ...]) -> None:
        """Wait until no pod has got a node for QUIET_S. Raises SchedulerError if a scheduler ended."""
        ends_s = time.monotonic() + LIMIT_S
        bound, since_s = -1, time.monotonic()
        while time.monotonic() < min(ends_s, since_s + QUIET_S):
            await asyncio.sleep(_LOOK_S)
            now = len(await self._nodes_of_pods())
            if now != bound:
                bound, since_s = now, time.monotonic()
            for process in processes:
                if process.ended_with is not None:
                    text = f"a scheduler ended with {process.ended_with}:\n{process.last_lines()}"
                    raise SchedulerError(text)

    async def _nodes_of_pods(self) -> list[str]:
        pods, _ = await self._api.all_of("Pod")
        return [name for pod in pods if (name := pod["spec"].get("nodeName"))]

    async def _counted(self, case: Case, sent_back: int) -> Outcome:
        on_nodes = await self._nodes_of_pods()
        found, _ = await self._api.all_of("Node")
        room = {node["metadata"]["name"]: _room_of(node) for node in found}
        too_many, overfull_nodes = overfull(room, on_nodes)
        return Outcome(
            case=case.name,
            title=case.title,
            rate=self._size.rate,
            nodes=len(room),
            places=sum(room.values()),
            pods=self._size.pods,
            bound=len(on_nodes),
            too_many=too_many,
            overfull_nodes=overfull_nodes,
            sent_back=sent_back,
        )

    async def _sent_back(self, process: SchedulerProcess) -> int:
        """Return the number of pods that a berth did not bind because others had filled their node."""
        if not process.setup.is_berth:
            return 0
        headers = {"Authorization": f"Bearer {self._servers.tokens[ADMIN]}"}
        connector = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.get(f"https://127.0.0.1:{process.port}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(_SENT_BACK))

    @asynccontextmanager
    async def _started(self, what: Program, name: str, file: str) -> AsyncIterator[SchedulerProcess]:
        setup = SchedulerSetup(
            program="berth" if what.is_berth else str(program("kube-scheduler")),
            kubeconfig=self._kubeconfig,
            folder=self._folder,
            configuration=configuration(name),
            client_connection=UNLIMITED,
            flags=what.flags,
        )
        process = SchedulerProcess(setup, file)
        await process.start()
        try:
            yield process
        finally:
            await process.stop()


def _room_of(node: dict[str, Any]) -> int:
    """Return the number of pods that a node has room for."""
    cpu = str(node["status"]["allocatable"]["cpu"])
    return (int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)) // CPU_M
