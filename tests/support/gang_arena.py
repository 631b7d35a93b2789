"""Gangs of both kinds on a real API server, with a host and a stateful plugin that a test kills or cuts off.

`Arena.figures` counts what must never be: lost pods, pods bound twice, leaked reservations, gangs that stay
partly bound, conditions that are not true. Used by the tests of `tests/cluster`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from berth_bench.versus.api import POD_GROUP, ApiClient, path_at
from berth_bench.versus.objects import create_all, node, pod, pod_group
from berth_bench.versus.real_servers import SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup
from berth_sdk.pod import COSCHEDULING_LABEL
from berth_sdk.pod_group import INITIALLY_SCHEDULED
from support import coscheduling_api
from support.bindings import Bindings, bound_twice, until
from support.coscheduling import their_group
from support.emptying import empty
from support.group_volumes import PATH, SIZE, ZONE
from support.observed.stage import api_of
from support.plugin_processes import PluginProcess

ROUND_S = 120.0
MEMBERS = 4
VOLUME = 4096
ROOM = 4 * MEMBERS
"""Volumes in all zones by default: those of two gangs, and of two that end. A leaked one is missed soon."""
KUBERNETES, COSCHEDULING = "kubernetes", "coscheduling"
KINDS = (KUBERNETES, COSCHEDULING)
BOUND = "bound"
MOMENTS = ("tentative", "good", "permit", "pre-bind", BOUND)
"""The last step of a member before the kill: a reservation in a trial, one for good, and so on."""
VICTIMS = ("host", "plugin", "both")
GROUPS_PATH = path_at(POD_GROUP, namespace="default")
CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
profiles:
- plugins:
    multiPoint: {{enabled: [{{name: Coscheduling}}, {{name: GroupVolumes}}]}}
    queueSort: {{enabled: [{{name: Coscheduling}}], disabled: [{{name: "*"}}]}}
  pluginConfig:
  - name: GroupVolumes
    args: {{root: {root}, capacity: {{zone-a: {half}, zone-b: {half}}}}}
"""
OWN_CONFIGURATION = """\
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: GroupVolumes
  endpoint: {endpoint}
  required: true
"""


@dataclass(slots=True)
class Figures:
    """The figures of a run. `kills` and `at`: kills in the middle of a gang, and their moments.

    The other numbers are 0 in a run without a fault. `wrong_conditions`: of groups and of pods. `ended`:
    hosts and plugins that ended by themselves. `found`: what was wrong, in words.
    """

    kills: int = 0
    at: dict[str, int] = field(default_factory=dict)
    gangs: int = 0
    pods: int = 0
    lost_pods: int = 0
    bound_twice: int = 0
    left_reserved: int = 0
    wrong_volumes: int = 0
    gangs_partly_bound: int = 0
    assumed_pods: int = 0
    wrong_conditions: int = 0
    ended: int = 0
    found: list[str] = field(default_factory=list)

    @property
    def problems(self) -> dict[str, Any]:
        """The figures that must be zero, and are not."""
        return {
            key: value
            for key, value in asdict(self).items()
            if value and key not in ("kills", "at", "gangs", "pods")
        }


@dataclass(frozen=True, slots=True)
class Gang:
    """One gang, which needs all of its pods."""

    name: str
    kind: str
    size: int = MEMBERS

    @property
    def names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.size)]

    @property
    def path(self) -> str:
        return GROUPS_PATH if self.kind == KUBERNETES else coscheduling_api.PATH

    def group(self) -> dict[str, Any]:
        if self.kind == COSCHEDULING:
            return their_group(self.name, minMember=self.size)
        return pod_group(self.name, self.size)

    def pods(self) -> Iterator[dict[str, Any]]:
        for name in self.names:
            content = _wanting(name)
            if self.kind == KUBERNETES:
                content["spec"]["schedulingGroup"] = {"podGroupName": self.name}
            else:
                content["metadata"]["labels"] = {COSCHEDULING_LABEL: self.name}
            yield content


class Arena:
    """The cluster, the host and the plugin of one run. `room`: the number of volumes in all zones."""

    def __init__(
        self, servers: RealServers, api: ApiClient, bindings: Bindings, folder: Path, room: int
    ) -> None:
        self.root = folder / "volumes"
        self.root.mkdir()
        self.figures = Figures()
        self._servers = servers
        self._api = api
        self._bindings = bindings
        self._plugin = PluginProcess(folder / "p.sock", "support.group_volumes:GroupVolumes")
        self._setup = SchedulerSetup(
            program="berth",
            kubeconfig=servers.kubeconfig(SCHEDULER),
            folder=folder,
            configuration=CONFIGURATION.format(root=self.root, half=room // 2 * VOLUME),
            more_documents=OWN_CONFIGURATION.format(endpoint=self._plugin.endpoint),
            flags=(
                "--feature-gates=GenericWorkload=true",
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            ),
        )
        self._serial: Iterator[int] = itertools.count(1)
        self._host = SchedulerProcess(self._setup)
        self._chance = random.Random(30)
        self._before: list[Gang] = []

    async def begin(self) -> None:
        zones = ("zone-a", "zone-b")
        await create_all(self._api, (node(f"n{i}", **{ZONE: zones[i % 2]}) for i in range(4)))
        await self._plugin.start()
        await self._start_host()

    async def end(self) -> None:
        await self._host.kill()
        await self._plugin.kill()

    async def _start_host(self) -> None:
        self._host = SchedulerProcess(self._setup, f"host-{next(self._serial)}")
        await self._host.start()
        await self._host.ready()

    # --- a round -----------------------------------------------------------------------------------

    async def round(self, victim: str, moment: str, kind: str) -> None:
        """Let gangs come and end, kill in the middle of one, and count what is wrong in the end."""
        number = next(self._serial)
        gangs = [Gang(f"g{number}-{one[0]}", one) for one in KINDS]
        target = next(gang for gang in gangs if gang.kind == kind)
        # The bindings of a gang come at the same time.
        nth = 1 if moment == BOUND else self._chance.randint(1, MEMBERS - 1)
        watching = asyncio.create_task(self._comes_to(target, moment, nth))
        ending = asyncio.create_task(self._end_gangs())
        for gang in gangs:
            await self._api.request("POST", gang.path, gang.group())
        pods = [one for pair in zip(*(gang.pods() for gang in gangs), strict=True) for one in pair]
        creating = asyncio.create_task(create_all(self._api, pods, at_once=4))
        await watching
        if moment != BOUND:
            await asyncio.sleep(self._chance.uniform(0.0, 0.01))
        await self._kill(victim)
        await creating
        await ending
        bound = await self._node_names(target.names)
        if len(bound) < MEMBERS:
            self.figures.kills += 1
            when = f"{victim} at {moment}"
            self.figures.at[when] = self.figures.at.get(when, 0) + 1
        await self._rise(victim)
        self._before = gangs
        self.figures.gangs += len(gangs)
        self.figures.pods += len(pods)
        await self._judge(gangs)

    async def outage(self, kind: str, size: int, away: Callable[[], Awaitable[None]]) -> None:
        """Let a gang come, let the API server go away when half of it is bound, and count what is wrong.

        `away`: returns when the API server is there again.
        """
        gang = Gang(f"o{next(self._serial)}", kind, size)
        await self._api.request("POST", gang.path, gang.group())
        await create_all(self._api, gang.pods())
        await self._comes_to(gang, BOUND, size // 2)
        await away()
        self.figures.gangs += 1
        self.figures.pods += size
        await self._judge([gang])
        self.figures.ended += self._host.ended_with is not None

    async def _comes_to(self, gang: Gang, moment: str, nth: int) -> None:
        """Wait until `nth` members of the gang have come to a moment."""
        names = set(gang.names)
        async with asyncio.timeout(ROUND_S):
            while True:
                if moment == BOUND:
                    count = sum(self._bindings.name_of.get(uid) in names for uid in self._bindings.node_of)
                else:
                    count = sum(what == moment and name in names for what, _, name in self._journal())
                if count >= nth:
                    return
                await asyncio.sleep(0.001)  # another process writes the file

    def _journal(self) -> list[list[str]]:
        path = self.root / "journal"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line.split() for line in lines]

    async def _kill(self, victim: str) -> None:
        self.figures.ended += sum([self._host.ended_with is not None, self._plugin.ended_with is not None])
        if victim != "host":
            await self._plugin.kill()
        if victim == "both":
            await asyncio.sleep(self._chance.uniform(0.0, 0.05))
        if victim != "plugin":
            await self._host.kill()

    async def _rise(self, victim: str) -> None:
        (self.root / "journal").unlink(missing_ok=True)
        if victim != "host":
            await self._plugin.start()
        if victim != "plugin":
            await self._start_host()

    async def _end_gangs(self) -> None:
        gangs, self._before = self._before, []
        for gang in gangs:
            for name in gang.names:
                await self._api.delete("Pod", name, grace_period_s=0)
            # No controller runs that takes the finalizer away once the group has no pods.
            path, change = f"{gang.path}/{gang.name}", {"metadata": {"finalizers": None}}
            await self._api.request("PATCH", path, change, "application/merge-patch+json")
            await self._api.request("DELETE", path)

    def unbound(self) -> list[str]:
        """Return the names of the pods that have no node yet."""
        return self._bindings.unbound()

    # --- what is wrong -----------------------------------------------------------------------------

    async def _judge(self, gangs: list[Gang]) -> None:
        """Wait until all is as it should be. Count what still is not when time is up."""
        found = Figures()

        async def is_clean() -> bool:
            nonlocal found
            found = await self._looked_at(gangs)
            return not found.problems

        try:
            await until(is_clean, "the round to end", ROUND_S)
        except TimeoutError:
            for key, value in found.problems.items():
                setattr(self.figures, key, getattr(self.figures, key) + value)

    async def _looked_at(self, gangs: list[Gang]) -> Figures:
        """Return what is wrong now."""
        found = Figures()
        items = {one["metadata"]["name"]: one for one in (await self._api.all_of("Pod"))[0]}
        for gang in gangs:
            there = [items[name] for name in gang.names if name in items]
            bound = [one for one in there if one["spec"].get("nodeName")]
            found.lost_pods += gang.size - len(bound)
            found.gangs_partly_bound += 0 < len(bound) < gang.size
            said = await self._condition(gang)
            if said not in (("True", "Scheduled", ""), ("Scheduling", "", "")):
                found.wrong_conditions += 1
                found.found.append(f"{gang.name} says {said}")
            for one in bound:
                conditions = {item["type"]: item["status"] for item in one["status"].get("conditions", ())}
                found.wrong_conditions += conditions.get("PodScheduled") != "True"
                path = Path(one["metadata"]["annotations"].get(PATH, "-"))
                zone = "zone-a" if int(one["spec"]["nodeName"][1:]) % 2 == 0 else "zone-b"
                is_right = path == self.root / zone / one["metadata"]["uid"] and path.exists()
                found.wrong_volumes += not is_right
        found.left_reserved = len(self._promised())
        found.assumed_pods = await self._assumed()
        return found

    async def _condition(self, gang: Gang) -> tuple[str, str, str]:
        """Return status, reason and message of the group; the phase for a group of coscheduling."""
        status = (await self._api.request("GET", f"{gang.path}/{gang.name}")).get("status") or {}
        if gang.kind == COSCHEDULING:
            return status.get("phase", ""), "", ""
        for one in status.get("conditions") or ():
            if one["type"] == INITIALLY_SCHEDULED:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def _promised(self) -> dict[str, str]:
        path = self.root / "promised.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    async def _assumed(self) -> int:
        """Return the assumed pods that the host has, from its metrics."""
        url = f"https://127.0.0.1:{self._host.port}/metrics"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.get(url) as answer,
        ):
            text = await answer.text()
        (value,) = re.findall(r'^scheduler_cache_size\{type="assumed_pods"\} (\S+)$', text, re.MULTILINE)
        return int(float(value))

    async def _node_names(self, names: list[str]) -> list[str]:
        items, _ = await self._api.all_of("Pod")
        return [
            one["spec"]["nodeName"]
            for one in items
            if one["metadata"]["name"] in names and one["spec"].get("nodeName")
        ]

    async def count_at_the_end(self) -> None:
        """Count what can be seen once all is over."""
        self.figures.bound_twice = len(bound_twice(self._servers.audit_log)) + len(self._bindings.problems)
        self.figures.found.extend(self._bindings.problems)
        await self._api.create(probe := _wanting("probe"))
        await self._bound(probe["metadata"]["name"])
        # The cycle of the probe has removed the volumes of pods that are gone.
        there = {item.name for zone in ("zone-a", "zone-b") for item in (self.root / zone).iterdir()}
        pods = {one["metadata"]["uid"] for one in (await self._api.all_of("Pod"))[0]}
        self.figures.wrong_volumes += len(there ^ pods)

    async def _bound(self, name: str) -> None:
        async def is_bound() -> bool:
            return bool(await self._node_names([name]))

        await until(is_bound, f"{name} to be bound", ROUND_S)


def _wanting(name: str) -> dict[str, Any]:
    content = pod(name)
    content["metadata"]["annotations"] = {SIZE: str(VOLUME)}
    return content


@asynccontextmanager
async def arena_on(servers: RealServers, folder: Path, room: int = ROOM) -> AsyncIterator[Arena]:
    """Yield an arena with a host and a plugin that run, on servers with pod groups, which are emptied."""
    empty(servers)
    coscheduling_api.install(servers, coscheduling_api.PATCH_PODS)
    async with api_of(servers) as api, Bindings(api) as bindings:
        made = Arena(servers, api, bindings, folder, room)
        try:
            await made.begin()
            yield made
        finally:
            await made.end()
