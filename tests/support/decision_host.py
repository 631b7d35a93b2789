"""A recorded cluster and pod -> the host's own configuration, cluster, queue and cycle -> what it decided.

Used by `parity/replay.py`. Nothing here decides: a record's objects are put into an embedded cluster as they
are written, a `Host` is made of the record's configuration, each pod is scheduled by `schedule_one`, and what
the host's parts answered is written down in the format of `parity/golden/README.md`.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from berth_host.app.host import Host, HostOptions
from berth_host.app.registry import ClassRegistry, points_of_class
from berth_host.cluster.memory.cluster import MemoryCluster
from berth_host.cluster.memory.kinds import BY_KIND, POD
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME
from berth_host.config.loading import load_configuration
from berth_host.explain.diagnosis import Outcome
from berth_host.framework.cycle import Cycle
from berth_host.framework.framework import Framework, PreFilterOutcome
from berth_host.framework.score_table import ScoreTable
from berth_host.model.clock import ManualClock
from berth_host.model.node_statuses import NodeStatuses
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import CycleContext
from berth_host.rpc.cycle import Outcome as CycleOutcome
from berth_host.scheduler.algorithm import Algorithm, Feasible, NominatedPods, ScheduleResult, SearchStart
from berth_host.scheduler.chooser import SmallestName
from berth_host.scheduler.preemption.eligibility import ineligible_reason
from berth_host.scheduler.preemption.evaluator import Choice, Evaluation, SearchLimits
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.results import NodeRejections, PostFilterResult
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable

Json = dict[str, Any]
PROFILE: Final = "default-scheduler"
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
)


class CannotRunError(Exception):
    """The record asks for something that this host cannot be made to do."""


def configuration_of(record: Json, endpoint: str = "") -> LoadedConfiguration:
    """The record's configuration, read from the text of a file; with `endpoint` the second document of it
    says that all default plugins are served there.
    """
    config = record.get("config") or {}
    args = {name: dict(value) for name, value in (config.get("pluginConfig") or {}).items()}
    args.setdefault("DefaultPreemption", {})["minCandidateNodesPercentage"] = 100
    weights = config.get("scoreWeights") or {}
    enabled = [{"name": name, "weight": weight} for name, weight in weights.items()]
    profile = {
        "schedulerName": PROFILE,
        # In the records a pod is bound right after Reserve: nobody binds volumes, so nobody waits for it.
        "plugins": {"multiPoint": {"enabled": enabled}, "preBind": {"disabled": [{"name": "*"}]}},
        "pluginConfig": [{"name": name, "args": value} for name, value in args.items()],
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [profile],
    }
    text = json.dumps(document)
    if endpoint:
        text = f"---\n{text}\n---\n{served_at(endpoint)}"
    return load_configuration(
        text,
        source=str(record.get("name", "record")),
        registered=ClassRegistry().points(),
        feature_gates=config.get("featureGates") or {},
    )


def served_at(endpoint: str) -> str:
    """A BerthConfiguration: every default plugin of this build is attached at `endpoint`.

    The deadlines are long: decisions are compared, on machines that may be busy, not times.
    """
    lines = [
        "apiVersion: config.berth.io/v1alpha1",
        "kind: BerthConfiguration",
        "cycleBudget: 60s",
        "plugins:",
    ]
    registry = ClassRegistry()
    for name in registry.names:
        cls = registry.find(name)
        if name in DEFAULT_PLUGINS_BY_NAME and cls is not None:
            points = sorted(points_of_class(name, cls))
            deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in points)
            lines.append(
                f'- {{name: {name}, endpoint: "{endpoint}", required: true, points: {{{deadlines}}}}}'
            )
    return "\n".join(lines) + "\n"


async def decide(record: Json, endpoint: str = "") -> tuple[list[Json], list[str]]:
    """The results of a record, `expected` unread, and the default plugins that this build lacks.

    `endpoint`: where all default plugins are served; empty: they run in process.
    """
    clock = ManualClock(FIRST_START_S)
    cluster = MemoryCluster(clock)
    for name in OBJECT_FIELDS:
        for raw in record.get(name) or ():
            _put(cluster, raw)
    options = HostOptions(clock=clock, chooser=SmallestName())
    host = Host(configuration_of(record, endpoint), cluster, options)
    config = record.get("config") or {}
    if config.get("queuePreemption") != "apply":
        host.scheduler.evictions = Nothing()
    replayed = _Replayed(host, cluster, brief=config.get("detail") == "brief")
    try:
        await host.connect()
        await _all_at(host, endpoint)
        await replayed.let_nominated_pods_wait()
        if "queue" not in record:
            return [await replayed.attempt(record["pod"])], host.clients.missing
        results = [result for raw in record["queue"] for result in await replayed.attempts_in_queue(raw)]
        return results, host.clients.missing
    finally:
        await host.stop()


async def _all_at(host: Host, endpoint: str) -> None:
    """Every plugin is where it was to be, and can be asked; a busy machine may take a second try."""
    clients = host.scheduler.profiles[PROFILE].framework.clients
    for client in clients:
        if client.is_remote is not bool(endpoint):
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


class _Replayed:
    """One host, asked about one pod after the other."""

    def __init__(self, host: Host, cluster: MemoryCluster, *, brief: bool) -> None:
        self._host = host
        self._cluster = cluster
        self._brief = brief
        profile = host.scheduler.profiles[PROFILE]
        self._remote = profile.framework.has_remote
        self._watched = WatchedAlgorithm(profile.algorithm, alone=not brief)
        host.scheduler.profiles[PROFILE] = replace(profile, algorithm=self._watched)
        self._preemption = WatchedPreemption(host)
        self._bound_count = 0

    async def let_nominated_pods_wait(self) -> None:
        """Take the pods that wait out of activeQ: in flight they stay nominated and nobody tries them."""
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
        await self._host.scheduler.schedule_one(queued)
        await self._settled()
        return self._result(queued.pod)

    async def attempts_in_queue(self, raw: Json) -> list[Json]:
        """The same, and another one for a pod that was promised a node; a pod that was bound also starts."""
        # Pods that failed before may have been woken up: they are not tried again.
        self._take_all()
        results = [await self._attempt_in_queue(await self._queued(raw), 1)]
        pod = Pod.from_object(raw)
        if self._host.queue.nominator.node_of(pod.uid) and "preemption" in results[0]:
            self._host.queue.activate([pod])
            await self._settled()
            results.append(await self._attempt_in_queue(self._taken(pod), 2))
        return results

    def _taken(self, pod: Pod) -> QueuedPodInfo:
        """The pod, popped, and every other one before it."""
        queued = self._popped(pod)
        if queued is None:
            raise CannotRunError(f"{pod.key} did not come out of the queue")
        return queued

    def _popped(self, pod: Pod) -> QueuedPodInfo | None:
        while (queued := self._host.queue.pop()) is not None:
            if queued.uid == pod.uid:
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
        """The pod, popped. Two fields may come only then: with the name of its node the cluster would count
        it as bound, and with claims that are missing it waits outside the queue.
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
            await asyncio.sleep(_POLL_S if self._remote else 0)

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


@dataclass(slots=True)
class Seen:
    """What the host's parts answered in one attempt."""

    nodes: NodeTable | None = None
    pre_filter: dict[str, Json] = field(default_factory=dict)
    filter: dict[str, Json] = field(default_factory=dict)
    framework: PreFilterOutcome | None = None
    combined: NodeStatuses | None = None
    feasible: Feasible | None = None
    chosen: ScheduleResult | None = None
    scores: ScoreTable | None = None

    def shown(self, brief: bool) -> Json:
        """In the format of the records."""
        if self.nodes is None or self.framework is None or self.feasible is None:
            return {}
        status = self.framework.status
        names = self.nodes.names
        feasible = sorted(names[row] for row in self.feasible.rows.tolist())
        result: Json = {"frameworkPreFilter": _shown(status, signed=False), "feasible": feasible, "best": []}
        if status.is_success and self.framework.eligible is not None:
            result["frameworkPreFilter"]["nodeNames"] = sorted(self.framework.eligible)
        if status.plugin:
            result["frameworkPreFilterPlugin"] = status.plugin
        result["combined"] = self._combined(feasible)
        if not brief:
            result |= {"preFilter": self.pre_filter, "filter": self.filter}
        if self.chosen is not None:
            result |= {"best": sorted(self.chosen.tied.names), "chosen": self.chosen.node_name}
        if self.scores is not None:
            result |= _shown_scores(self.scores, brief)
        return result

    def _combined(self, feasible: list[str]) -> Json:
        """The verdicts on the nodes that did not pass; none when PreFilter ended the search."""
        statuses = self.combined
        if statuses is None or self.feasible is None:
            return {}
        names = statuses.table.names
        rejected = [names[row] for row in np.flatnonzero(statuses.groups).tolist()]
        if statuses is self.feasible.statuses:
            # Nodes outside a PreFilter's subset were not asked about and have the common status.
            rejected = sorted(set(names) - set(feasible))
        return {name: _shown(statuses.status_of(name), signed=True) for name in rejected}


class WatchedPreemption:
    """Writes down what the host's PostFilter and evaluator answered."""

    def __init__(self, host: Host) -> None:
        self._evaluation: Json = {}
        self._answer: tuple[str, PostFilterResult] | None = None
        evaluate = host.evaluator.evaluate
        framework = host.scheduler.profiles[PROFILE].framework
        run_post_filter = framework.run_post_filter

        async def watched_evaluate(
            framework: Framework, cycle: Cycle, limits: SearchLimits | None = None
        ) -> Evaluation:
            found = await evaluate(framework, cycle, limits)
            # At once: it speaks of rows of this snapshot.
            self._evaluation = _shown_evaluation(found)
            return found

        async def watched_post_filter(
            cycle: Cycle, rejections: NodeRejections
        ) -> tuple[str, PostFilterResult]:
            self._answer = await run_post_filter(cycle, rejections)
            if not self._evaluation:
                # Another plugin ended the search before preemption was asked about.
                statuses = NodeStatuses(cycle.nodes)
                statuses.absent = rejections.absent
                why_not = ineligible_reason(cycle.pod, cycle.nodes, statuses)
                self._evaluation = {"eligible": not why_not, "ineligibleReason": why_not}
            return self._answer

        host.evaluator.evaluate = watched_evaluate  # type: ignore[method-assign]  # the same, overheard
        framework.run_post_filter = watched_post_filter  # type: ignore[method-assign]  # the same

    def forget(self) -> None:
        """Another attempt begins."""
        self._evaluation, self._answer = {}, None

    def shown(self) -> Json:
        """In the format of the records."""
        if self._answer is None:
            return {}
        plugin, result = self._answer
        status = result.status
        shown: Json = {"code": status.code.kube_name, "message": status.message}
        if not status.is_success:
            shown["plugin"] = status.plugin or plugin
        nothing: Json = {"best": [], "candidates": [], "numPDBViolations": 0, "potentialNodes": []}
        # The other fields are there when they say something.
        found = {name: value for name, value in self._evaluation.items() if name in nothing or value}
        return shown | nothing | {"eligible": False} | found


def _shown_evaluation(found: Evaluation) -> Json:
    shown: Json = {"eligible": not found.ineligible, "ineligibleReason": found.ineligible}
    shown["clearNomination"] = found.clear_nomination
    names = found.statuses.table.take(found.potential).names
    shown["potentialNodes"] = sorted(names)
    candidates: list[Json] = []
    if found.choice is not None:
        choice = found.choice
        candidates = [_shown_candidate(choice, place) for place in range(len(choice.candidates))]
        shown["best"] = sorted(choice.node_name(place) for place in choice.best.tolist())
        nominated = candidates[choice.chosen]
        shown |= {"nominated": nominated["node"], "victims": nominated["victims"]}
        shown["numPDBViolations"] = nominated["numPDBViolations"]
    shown["candidates"] = sorted(candidates, key=lambda one: str(one["node"]))
    others = set(names) - {one["node"] for one in candidates}
    shown["nodeStatuses"] = {
        name: _shown(found.statuses.status_of(name), signed=True) for name in sorted(others)
    }
    return shown


def _shown_candidate(choice: Choice, place: int) -> Json:
    return {
        "node": choice.node_name(place),
        "victims": sorted(pod.key for pod in choice.victims_of(place)),
        "numPDBViolations": int(choice.candidates.violations[place]),
    }


class WatchedAlgorithm(Algorithm):
    """The host's own, which also writes down what it found; between its steps it asks each plugin alone."""

    def __init__(self, watched: Algorithm, *, alone: bool) -> None:
        super().__init__(watched.framework, watched._chooser, watched._percentage)
        self._alone = alone
        self.seen = Seen()

    async def find_feasible(self, cycle: Cycle, nominated: NominatedPods, search: SearchStart) -> Feasible:
        """As the host does it."""
        seen = self.seen
        seen.nodes = cycle.nodes
        if self._alone:
            await self._ask_alone(cycle)
        other = _another(cycle)
        seen.framework = await self.framework.run_pre_filter(other)
        seen.feasible = await super().find_feasible(cycle, nominated, search)
        if seen.framework.status.is_success:
            seen.combined = seen.feasible.statuses
            if seen.feasible.rows.tolist() == [cycle.nodes.position(cycle.pod.nominated_node)]:
                # The search ended at the nominated node; the record has the verdicts on all of them.
                seen.combined = NodeStatuses(cycle.nodes)
                rows = np.arange(len(cycle.nodes))
                await self.framework.run_filter(other, seen.combined, rows, nominated)
        self.framework.end_cycle(other, CycleOutcome.ABORTED)
        return seen.feasible

    async def prioritize(self, cycle: Cycle, feasible: Feasible) -> ScheduleResult | Status:
        """As the host does it. A single feasible node is not scored then, and is scored for the record: in
        records a score that fails ends the attempt, however many nodes are left.
        """
        result = await super().prioritize(cycle, feasible)
        if isinstance(result, Status):
            return result
        scores = result.scores or await self.framework.run_score(cycle, cycle.nodes.take(feasible.rows))
        if isinstance(scores, Status):
            return scores
        self.seen.chosen, self.seen.scores = result, scores
        return result

    async def _ask_alone(self, cycle: Cycle) -> None:
        """Every PreFilter plugin by itself, and every Filter plugin after its own PreFilter, on all nodes."""
        pre_filters = {client.name: client for client in self.framework.plugins_at(ExtensionPoint.PRE_FILTER)}
        filters = {client.name: client for client in self.framework.plugins_at(ExtensionPoint.FILTER)}
        for name in dict.fromkeys([*pre_filters, *filters]):
            context = _another(cycle).context
            if name in pre_filters and not await self._pre_filter(pre_filters[name], context, cycle.nodes):
                continue
            if name in filters:
                verdicts = await filters[name].filter(context, cycle.nodes)
                self.seen.filter[name] = {
                    node: _shown(status, signed=False)
                    for node, status in zip(cycle.nodes.names, verdicts.to_list(), strict=True)
                    if not status.is_success
                }

    async def _pre_filter(self, client: PluginClient, context: CycleContext, nodes: NodeTable) -> bool:
        answer = await client.pre_filter(context, nodes)
        shown = _shown(answer.status, signed=False)
        if answer.status.is_success and answer.eligible is not None:
            shown["nodeNames"] = sorted(answer.eligible)
        self.seen.pre_filter[client.name] = shown
        return answer.status.is_success


def _another(cycle: Cycle) -> Cycle:
    """A cycle beside this one: same pod, same snapshot, nothing remembered."""
    context = cycle.context
    fresh = CycleContext(
        uuid.uuid4().hex,
        context.pod,
        context.profile,
        version=context.version,
        budget_s=context.budget_s,
    )
    return Cycle(fresh, cycle.nodes)


def _shown(status: Status, *, signed: bool) -> Json:
    shown: Json = {"code": status.code.kube_name}
    if signed and status.plugin:
        shown["plugin"] = status.plugin
    if status.code is Code.ERROR:
        shown["error"] = status.message
    elif status.reasons:
        shown["reasons"] = sorted(status.reasons)
    return shown


def _shown_scores(table: ScoreTable, brief: bool) -> Json:
    names = table.nodes.names
    order = sorted(range(len(names)), key=names.__getitem__)
    result: Json = {
        "total": [int(table.total[row]) for row in order],
        "skippedScorePlugins": sorted(table.skipped),
    }
    if not brief:
        result["scores"] = {
            one.plugin: {
                "weight": one.weight,
                "raw": [int(one.raw[row]) for row in order],
                "normalized": [int(one.normalized[row]) for row in order],
            }
            for one in table.plugins
        }
    return result
