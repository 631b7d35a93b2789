"""A real API server and a real berth: plays steps, and compares what berth says with what the API says.

Problems are texts that begin with their kind: `ended`, `unanswered`, `accounts`, `answer`, `hold`, `cpu`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
from berth_bench.hostile.loop_holds import LoopHolds
from berth_bench.versus.api import ApiClient, ApiError
from berth_bench.versus.contenders import UNLIMITED
from berth_bench.versus.objects import node
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers
from berth_bench.versus.scheduler_process import SchedulerError, SchedulerProcess, SchedulerSetup
from support.fuzzed import gadgets
from support.fuzzed.objects import CLASS, DRIVER, NODES, WIDGET, Step
from support.fuzzed.reading import parsed
from support.fuzzed.recount import MOST, by_node
from support.fuzzed.trees import encoded

Json = dict[str, Any]
SETTLES_WITHIN_S: Final = 60.0
MOST_HOLD_S: Final = 1.0
"""CPU seconds of one step of the loop. The limit is 0.25; a busy machine adds to that, but not this much."""
MOST_CPU_S: Final = 1.0
"""CPU seconds of an average step."""
_COMPARED: Final = ("cpu", "memory", "ephemeral-storage", "pods", WIDGET)
_MERGE: Final = "application/merge-patch+json"
_BY_KEYS: Final = "application/strategic-merge-patch+json"
"""Merges lists by their keys, as clients of a pod's status do: the condition that berth wrote stays."""
_CLEARED: Final = (
    "Pod",
    "PodGroup",
    "ResourceClaim",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Service",
    "Node",
    gadgets.KIND,
)
_PAUSE_S: Final = 0.2
_ALSO_WAIT_FOR: Final = ("schedulingGates", "resourceClaims", "schedulingGroup")
"""Fields of a pod for which it waits before it is in the queue."""
_WAITING: Final = ("gated", "incomplete")
"""States without a condition: these pods wait for an object that berth names."""


@dataclass(slots=True)
class Played:
    """What became of the steps. `problems`: what berth did wrong."""

    admitted: int = 0
    refused: int = 0
    admitted_kinds: Counter[str] = field(default_factory=Counter)
    hold_s: float = 0.0
    cpu_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Played) -> None:
        """Count what another one counted, too."""
        self.admitted += other.admitted
        self.refused += other.refused
        self.admitted_kinds += other.admitted_kinds
        self.hold_s = max(self.hold_s, other.hold_s)
        self.cpu_s += other.cpu_s
        self.problems += other.problems


class World:
    """The cluster and berth. Call `start`, then `play` as often as needed, then `stop`."""

    def __init__(
        self, servers: RealServers, folder: Path, settles_within_s: float = SETTLES_WITHIN_S
    ) -> None:
        self._settles_within_s = settles_within_s
        self._servers = servers
        self._token = servers.tokens[ADMIN]
        self._api = ApiClient(servers.url, self._token)
        folder.mkdir(parents=True, exist_ok=True)
        self._holds = LoopHolds(folder / "holds")
        setup = SchedulerSetup(
            program="berth",
            kubeconfig=servers.kubeconfig(SCHEDULER),
            folder=folder,
            client_connection=UNLIMITED,
            configuration=gadgets.PROFILE,
            more_documents=gadgets.DOCUMENT,
            flags=("--feature-gates=GenericWorkload=true",),
            module=("-m", "berth_bench.hostile.loop_holds", str(folder / "holds")),
        )
        self._berth = SchedulerProcess(setup)

    async def start(self) -> None:
        """Clear the cluster and start berth. Raises ApiError and SchedulerError."""
        await asyncio.to_thread(gadgets.install, self._servers)
        await self._clear()
        await self._begin()
        await self._berth.start()
        await self._berth.ready()

    async def stop(self) -> None:
        """Clear the cluster, whose objects other tests may not be able to read, stop berth and close all."""
        await self._clear()
        await self._berth.stop()
        self._holds.close()
        await self._api.close()

    async def play(self, steps: Sequence[Step]) -> Played:
        """Do the steps, one after the other, wait until berth has answered, and clear the cluster again."""
        done = Played()
        self._holds.reset()
        cpu_s = self._cpu_s()
        for step in steps:
            if await self._is_admitted(step):
                done.admitted += 1
                done.admitted_kinds[f"{step['do']} {step['kind']}"] += 1
            else:
                done.refused += 1
        done.problems += await self._settled()
        done.hold_s, held_by = self._holds.longest()
        done.cpu_s = self._cpu_s() - cpu_s
        if done.hold_s > MOST_HOLD_S:
            done.problems.append(f"hold: {held_by} held the loop for {done.hold_s:.1f} s of CPU")
        if done.cpu_s > MOST_CPU_S * max(10, len(steps)):
            done.problems.append(f"cpu: {done.cpu_s:.0f} s for {len(steps)} steps")
        if not done.problems:
            await self._clear()
            await self._begin()
            done.problems += [f"{problem}, after all was deleted" for problem in await self._settled()]
        if done.problems:
            done.problems.append(f"log: {self._berth.last_lines(5)}"[:3000])
        return done

    # --- steps -----------------------------------------------------------------------------------

    async def _is_admitted(self, step: Step) -> bool:
        kind, name = step["kind"], step["name"]
        namespace = "" if kind == "Namespace" else "default"
        path = await self._api.path(kind, name, namespace)
        body = encoded(step["body"]) if "body" in step else None
        try:
            if step["do"] == "create":
                await self._api.text("POST", await self._api.path(kind, "", namespace), body)
                status = step["body"].get("status") if kind == "Node" else None
                if status is not None:
                    await self._api.text("PATCH", f"{path}/status", encoded({"status": status}), _MERGE)
            elif step["do"] == "delete":
                await self._api.text("DELETE", f"{path}?gracePeriodSeconds=0")
            else:
                part = "/status" if step["do"] == "status" else ""
                how = _BY_KEYS if part and kind == "Pod" else _MERGE
                await self._api.text("PATCH", path + part, body, how)
        except (ApiError, aiohttp.ClientError, TimeoutError):
            return False
        return True

    async def _begin(self) -> None:
        """Create the nodes and classes of every run."""
        for number in range(NODES):
            made = node(f"node-{number}", zone=f"z{number % 2}")
            for amounts in made["status"].values():
                amounts |= {WIDGET: "4", "ephemeral-storage": "100Gi"}
            await self._api.create(made)
            await self._api.patch("Node", f"node-{number}", {"status": made["status"]}, subresource="status")
        for kind, version, more in (
            ("DeviceClass", "resource.k8s.io/v1", {"spec": {}}),
            (
                "StorageClass",
                "storage.k8s.io/v1",
                {"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"},
            ),
            ("PriorityClass", "scheduling.k8s.io/v1", {"value": 1000}),
        ):
            if await self._api.get(kind, CLASS) is None:
                await self._api.create(
                    {"apiVersion": version, "kind": kind, "metadata": {"name": CLASS}} | more
                )

    async def _clear(self) -> None:
        ends_s = time.monotonic() + SETTLES_WITHIN_S
        for kind in _CLEARED:
            collection = await self._api.path(kind, "", "default")
            while items := await self._items(collection):
                if time.monotonic() > ends_s:
                    raise ApiError(0, "they were not deleted", collection)
                for item in items:
                    await self._drop(f"{collection}/{item['metadata']['name']}", item)
        for item in await self._items("api/v1/namespaces"):
            if item["metadata"]["name"].startswith("fuzzed-"):
                path = f"api/v1/namespaces/{item['metadata']['name']}"
                await self._drop(path, item)
                body = {"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []}}
                metadata = {"name": item["metadata"]["name"]}
                await self._try("PUT", f"{path}/finalize", {**body, "metadata": metadata})

    async def _drop(self, path: str, item: Json) -> None:
        await self._try("DELETE", f"{path}?gracePeriodSeconds=0")
        if item["metadata"].get("finalizers"):
            await self._try("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE)

    async def _try(self, *request: Any) -> None:
        try:
            await self._api.text(*request)
        except ApiError as err:
            if err.status not in (404, 409):
                raise

    async def _items(self, collection: str) -> list[Json]:
        text = await self._api.text("GET", collection)
        try:
            found = orjson.loads(text)
        except ValueError:
            found = parsed(text)
        return list(found.get("items") or ())

    # --- checks ----------------------------------------------------------------------------------

    def _cpu_s(self) -> float:
        return 0.0 if self._berth.ended_with is not None else self._berth.cpu_s()

    async def _settled(self) -> list[str]:
        """Wait until berth's accounts and answers are right; return what is wrong until the end."""
        ends_s = time.monotonic() + self._settles_within_s
        while True:
            if self._berth.ended_with is not None:
                return [f"ended: berth ended with {self._berth.ended_with}"]
            problems = await self._problems()
            if not problems or time.monotonic() > ends_s:
                return problems
            await asyncio.sleep(_PAUSE_S)

    async def _problems(self) -> list[str]:
        pods = await self._items("api/v1/pods")
        try:
            answer = await self._berth.ask("/berth/v1/nodes", self._token)
        except (SchedulerError, TimeoutError, OSError) as err:
            return [f"unanswered: /berth/v1/nodes: {err}"[:500]]
        problems = list(differences(answer, pods))
        there = {
            item["metadata"]["name"]
            for item in await self._items(await self._api.path(gadgets.KIND, "", "default"))
        }
        for pod in pods:
            if problem := await self._unanswered(pod, there):
                problems.append(problem)
        return problems

    async def _unanswered(self, pod: Json, there: Container[str]) -> str:
        """Return what berth did not answer about a pod, or "". `there`: the names of the gadgets."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if (
            spec.get("nodeName")
            or metadata.get("deletionTimestamp")
            or status.get("phase") not in (None, "Pending")
        ):
            return ""
        conditions = status.get("conditions") or ()
        if any(condition["type"] == "PodScheduled" for condition in conditions):
            return ""
        name = f"{metadata['namespace']}/{metadata['name']}"
        try:
            said = await self._berth.ask(f"/berth/v1/pods/{name}", self._token)
        except (SchedulerError, TimeoutError, OSError) as err:
            return f"answer: berth does not know pod {name}: {err}"[:300]
        if said["state"] not in _WAITING:
            return f"answer: pod {name} has no condition, and is {said['state']}"
        gadget = (metadata.get("labels") or {}).get(gadgets.LABEL)
        if gadget in there and not any(spec.get(field) for field in _ALSO_WAIT_FOR):
            return f"answer: pod {name} is {said['state']}, and its gadget {gadget} is there"
        return ""


def differences(answer: Json, pods: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield where berth's requests by node differ from a recount of the API's pods."""
    expected = by_node(pods)
    resources: list[str] = answer["resources"]
    at = {name: answer["columns"].index(name) for name in ("node", "allocatable", "requested")}
    for row in answer["nodes"]:
        name, has = row[at["node"]], row[at["allocatable"]]
        counted = expected.get(name, Counter())
        for resource, there, amount in zip(resources, has, row[at["requested"]], strict=True):
            right = counted[resource]
            if resource in _COMPARED and there is not None and right < MOST and amount != right:
                yield f"accounts: {name}: berth counts {amount} of {resource}, the API has {right}"
