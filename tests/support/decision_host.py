"""A recorded cluster and pod -> the host's own cluster, queue and cycle -> what it decided.

Used by `parity/replay.py`. Nothing here decides: a record's objects are put into an embedded cluster as they
are written, a `Host` is made of the record's configuration, each pod is scheduled by `schedule_one`, and what
the host's parts answered is written down in the format of `parity/golden/README.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from berth_host.app import Host, HostOptions
from berth_host.attempt.call_record import Changes
from berth_host.attempt.cycle import Cycle
from berth_host.cycle.chooser import SmallestName
from berth_host.explain.diagnosis import Outcome
from berth_host.model.clock import ManualClock
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.pod import Pod
from berth_sdk.results import PostFilterResult
from berth_sim.cluster.cluster import MemoryCluster
from berth_sim.cluster.kinds import BY_KIND, POD
from support.decision_configuration import PROFILE, configuration_of
from support.decision_preemption import WatchedPreemption
from support.decision_seen import Seen, WatchedAlgorithm

Json = dict[str, Any]
FIRST_START_S: Final = 1767225600  # 2026-01-01T00:00:00Z
_POLL_S: Final = 0.0005
_ATTACHED_WITHIN_S: Final = 30.0
OBJECT_FIELDS: Final = (
    "namespaces",
    "nodes",
    "pods",
    "nominatedPods",
    "services",
    "replicaSets",
    "statefulSets",
    "replicationControllers",
    "persistentVolumes",
    "persistentVolumeClaims",
    "storageClasses",
    "csiNodes",
    "csiDrivers",
    "csiStorageCapacities",
    "volumeAttachments",
    "podDisruptionBudgets",
    "priorityClasses",
    "resourceClaims",
    "resourceSlices",
    "deviceClasses",
    "deviceTaintRules",
)


class CannotRunError(Exception):
    """The record asks for something that this host cannot be made to do."""


async def decide(record: Json, emulated_version: str, endpoint: str = "") -> list[Json]:
    """Return the results of a record, `expected` unread.

    `emulated_version`: the version of kube-scheduler to decide as; empty: no emulation. `endpoint`: where all
    default plugins are served; empty: they run in process.
    """
    clock = ManualClock(FIRST_START_S)
    cluster = MemoryCluster(clock)
    for name in OBJECT_FIELDS:
        for raw in record.get(name) or ():
            _put(cluster, raw)
    options = HostOptions(clock=clock, chooser=SmallestName())
    host = Host(configuration_of(record, emulated_version, endpoint), cluster, options)
    config = record.get("config") or {}
    if config.get("queuePreemption") != "apply":
        host.scheduler.pods.evictions = Nothing()
    replayed = _Replayed(host, cluster, brief=config.get("detail") == "brief")
    try:
        await host.connect()
        await _all_at(host, endpoint)
        await replayed.let_nominated_pods_wait()
        if "queue" not in record:
            return [await replayed.attempt(record["pod"])]
        return [result for raw in record["queue"] for result in await replayed.attempts_in_queue(raw)]
    finally:
        await host.stop()


async def _all_at(host: Host, endpoint: str) -> None:
    """Every plugin is where it was to be, and can be asked; a busy machine may take a second try."""
    clients = host.scheduler.profiles[PROFILE].framework.clients
    for client in clients:
        if client.is_served is not bool(endpoint):
            raise CannotRunError(f"{client.name} is not where it was to be")
    async with asyncio.timeout(_ATTACHED_WITHIN_S):
        while not all(client.available for client in clients):
            await asyncio.sleep(0.01)


def _put(cluster: MemoryCluster, raw: Json) -> None:
    kind = BY_KIND.get(raw.get("kind", ""))
    if kind is None:
        raise CannotRunError(f"objects of kind {raw.get('kind')!r} are not kept")
    metadata = raw["metadata"]
    key = kind.key(metadata.get("namespace") or "default", metadata["name"])
    # Into the store itself: what the API server would add or refuse is not part of the record.
    cluster.server.store.put(kind, key, raw)


class Nothing:
    """In the place of evictions: what preemption says is reported, and nothing comes of it."""

    def nominate(self, cycle: Cycle, plugin: str, result: PostFilterResult) -> None:
        """Nobody is evicted, and no node promised."""

    def change(self, pods: Sequence[Pod], changes: Sequence[Changes]) -> None:
        """Nothing is changed either."""

    def evict(self, *_: object, **__: object) -> None:
        """Nobody is evicted for a group."""


class _Replayed:
    """One host, asked about one pod after the other."""

    def __init__(self, host: Host, cluster: MemoryCluster, *, brief: bool) -> None:
        self._host = host
        self._cluster = cluster
        self._brief = brief
        profile = host.scheduler.profiles[PROFILE]
        self._served = profile.framework.has_served
        self._watched = WatchedAlgorithm(profile.algorithm, alone=not brief)
        host.scheduler.pods.profiles[PROFILE] = replace(profile, algorithm=self._watched)
        self._preemption = WatchedPreemption(host)
        self._bound_count = 0

    async def let_nominated_pods_wait(self) -> None:
        """Take the pods that wait out of activeQ: in flight they stay nominated and are not tried."""
        await self._settled()
        self._take_all()

    def _take_all(self) -> None:
        while self._host.queue.pop() is not None:
            pass

    async def attempt(self, raw: Json) -> Json:
        """One attempt for one pod; what the host said and did."""
        return await self._try(await self._queued(raw))

    async def _try(self, queued: QueuedPodInfo) -> Json:
        self._watched.seen = Seen()
        self._preemption.forget()
        await self._host.scheduler.pods.schedule_one(queued)
        await self._settled()
        return self._result(queued.pod)

    async def attempts_in_queue(self, raw: Json) -> list[Json]:
        """Return the same, and another one for a pod that was promised a node; a pod that was bound also
        starts.
        """
        # Pods that failed before may have been requeued: they are not tried again.
        self._take_all()
        results = [await self._attempt_in_queue(await self._queued(raw), 1)]
        pod = Pod.from_object(raw)
        if self._host.queue.nominator.node_of(pod.uid) and "preemption" in results[0]:
            self._host.queue.activate([pod])
            await self._settled()
            results.append(await self._attempt_in_queue(self._taken(pod), 2))
        return results

    def _taken(self, pod: Pod) -> QueuedPodInfo:
        """Return the pod, popped, and every other one before it."""
        queued = self._popped(pod)
        if queued is None:
            raise CannotRunError(f"{pod.key} did not come out of the queue")
        return queued

    def _popped(self, pod: Pod) -> QueuedPodInfo | None:
        while (queued := self._host.queue.pop()) is not None:
            if isinstance(queued, QueuedPodInfo) and queued.uid == pod.uid:
                return queued
        return None

    async def _attempt_in_queue(self, queued: QueuedPodInfo, attempt: int) -> Json:
        raw = queued.pod
        result = {**await self._try(queued), "attempt": attempt}
        if "chosen" in result:
            ref = raw.ref
            bound = self._cluster.server.get("pods", replace(ref, resource_version=""))
            if bound is None or bound.get("spec.nodeName") != result["chosen"]:
                raise CannotRunError(f"{ref.key} was chosen a node and is not bound to it")
            started = datetime.fromtimestamp(FIRST_START_S + self._bound_count, UTC)
            self._bound_count += 1
            status = {**bound.parsed.get("status", {}), "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ")}
            self._cluster.server.store.put(POD, bound.ref.key, {**bound.parsed, "status": status})
            await self._settled()
        return result

    async def _queued(self, raw: Json) -> QueuedPodInfo:
        """Return the pod, popped. Two fields may come only then: with the name of its node the cluster would
        count it as bound, and with claims that are missing it waits outside the queue.
        """
        wanted = Pod.from_object(raw)
        late = {"nodeName"}
        queued = await self._put_in_queue(raw, late)
        if queued is None:
            self._cluster.server.store.remove(POD, wanted.key)
            await self._settled()
            late.add("resourceClaims")
            queued = await self._put_in_queue(raw, late)
        if queued is None:
            raise CannotRunError(f"{wanted.key} did not come out of the queue")
        if any(raw["spec"].get(field) for field in late):
            queued.replace_pod(wanted)
        return queued

    async def _put_in_queue(self, raw: Json, late: Collection[str]) -> QueuedPodInfo | None:
        spec = {key: value for key, value in raw["spec"].items() if key not in late}
        _put(self._cluster, {**raw, "spec": spec})
        await self._settled()
        return self._popped(Pod.from_object(raw))

    async def _settled(self) -> None:
        """Until nothing is under way: no binding, no event, no write, no question of the queue."""
        while self._is_moving():
            # Answers from another process take their time; in process the next turn of the loop has all.
            await asyncio.sleep(_POLL_S if self._served else 0)

    def _is_moving(self) -> bool:
        host = self._host
        return bool(
            len(host.binding)
            or self._cluster.undelivered_count
            or host.status.pending_count
            or host.wiring.busy
            or len(host.evictions)
        )

    def _result(self, pod: Pod) -> Json:
        result = {"pod": pod.key, **self._watched.seen.shown(self._brief)}
        diagnosis = self._host.diagnoses.get(pod.uid)
        if diagnosis is None:
            raise CannotRunError(f"{pod.key} left no diagnosis")
        if diagnosis.outcome is Outcome.UNSCHEDULABLE:
            result["fitError"] = diagnosis.message
            result["preemption"] = self._preemption.shown()
        elif diagnosis.outcome is not Outcome.BOUND:
            result["error"] = diagnosis.message
        return result
