"""A recorded script of pod groups -> a host driven by hand -> what the host did, in the recording's form.

Used by `parity/replay_podgroups.py`. Nothing here decides: operations become watch events and attempts,
states become records. `parity/golden_podgroups/README.md` describes both.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from berth_host.app import Host, HostOptions
from berth_host.cluster.port import WatchEvent
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.cycle.attempt import Attempt, Failure
from berth_host.cycle.chooser import SmallestName
from berth_host.plugins.registry import ClassRegistry
from berth_host.queue.group_entries import Aside
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedEntity, QueuedPodInfo
from berth_sdk.status import Status
from support.decision_configuration import served_at
from support.scripted_api import ScriptedApi, conditions_of, terminating
from support.scripted_extenders import ScriptedExtenders

Json = dict[str, Any]
START_S: Final = 1_767_225_600  # 2026-01-01T00:00:00Z
PROFILE: Final = "default-scheduler"
_POLL_S: Final = 0.0005
_QUIET_TURNS: Final = 8
"""The turns of the event loop without work under way after which nothing is expected any more."""
_ATTACHED_WITHIN_S: Final = 60.0
INCOMING: Final = ("scheduler_queue_incoming_entities_total", "scheduler_queue_incoming_pods_total")
METRICS: Final = (
    "scheduler_pending_pods",
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_queue_incoming_entities_total",
    "scheduler_queue_incoming_pods_total",
    "scheduler_queued_entities",
    "scheduler_schedule_attempts_total",
    "scheduler_unschedulable_pods",
    "scheduler_workload_preemption_attempts_total",
    "scheduler_preemption_attempts_total",
    "scheduler_generated_placements_total",
)


class ScriptClock:
    """Whole milliseconds since the start of a script; timers fire at exactly their time."""

    def __init__(self) -> None:
        self.at_ms = 0
        self._timers: list[tuple[int, int, list[Callable[[], None]]]] = []
        self._sequence = itertools.count()

    def now_s(self) -> float:
        """Return the time in Unix seconds."""
        return START_S + self.at_ms / 1000

    def monotonic_s(self) -> float:
        """Return the seconds since the start."""
        return self.at_ms / 1000

    def call_at(self, when_s: float, callback: Callable[[], None]) -> _ScriptTimer:
        """Call back at a time of `monotonic_s`."""
        pending = [callback]
        heapq.heappush(self._timers, (round(when_s * 1000), next(self._sequence), pending))
        return _ScriptTimer(pending)

    def next_ms(self, until_ms: int) -> int | None:
        """Return when the next timer fires; None if none fires until then."""
        due = self._timers[0][0] if self._timers else None
        return due if due is not None and due <= until_ms else None

    def fire(self) -> None:
        """Go to the next timer and fire it."""
        due_ms, _, pending = heapq.heappop(self._timers)
        self.at_ms = max(self.at_ms, due_ms)
        for callback in pending:
            callback()

    def since_start_ms(self, moment_us: int) -> int:
        """Return the milliseconds of a time since the start."""
        return moment_us // 1000 - START_S * 1000


class _ScriptTimer:
    def __init__(self, pending: list[Callable[[], None]]) -> None:
        self._pending = pending

    def cancel(self) -> None:
        self._pending.clear()


class ScriptedHost:
    """A host with the default profile, and one method for each operation of a script."""

    def __init__(
        self,
        configuration: LoadedConfiguration,
        clock: ScriptClock,
        api: ScriptedApi,
        extenders: ScriptedExtenders,
        endpoint: str,
    ) -> None:
        self.clock = clock
        self.api = api
        self.extenders = extenders
        options = HostOptions(clock=self.clock, chooser=SmallestName())
        self.host = Host(configuration, self.api, options)
        self.queue = self.host.queue
        self._served = bool(endpoint)
        self._failures: list[Json] = []
        handle = self.host.failures.handle

        def recorded(queued: QueuedPodInfo, failure: Failure) -> None:
            self._failures.append(_failure(queued, failure))
            handle(queued, failure)

        self.host.failures.handle = recorded  # type: ignore[method-assign]  # overheard, and passed on
        self._start_binding = self.host.binding.start
        self._to_bind: list[Attempt] = []
        """The attempts whose binding cycle begins at the end of the scheduling cycle, as recorded."""
        self.host.binding.start = self._later  # type: ignore[method-assign]  # started later
        self._between_cycles = asyncio.Event()
        self._between_cycles.set()
        self._wait_for_decision = self.host.waiting_pods.wait
        self.host.waiting_pods.wait = self._wait_out_cycle  # type: ignore[method-assign]  # ended later

    async def _wait_out_cycle(self, uid: str) -> Status:
        """Let a wait at Permit that ends in a cycle go on at the end of the cycle, as recorded.

        In process the cycle has ended before the waiting task runs; a served Permit takes its time.
        """
        entry = self.host.waiting_pods._entries.get(uid)  # noqa: SLF001  # no one else needs it
        if entry is not None and not entry.is_open and entry.outcome is None:
            entry.waiter = asyncio.get_running_loop().create_future()
            await entry.waiter
        await self._between_cycles.wait()
        return await self._wait_for_decision(uid)

    def _later(self, attempt: Attempt) -> None:
        self._to_bind.append(attempt)

    async def begin(self, initial: Iterable[Json]) -> None:
        """Attach the plugins and hand over the objects that exist before the script."""
        await self.host.connect()
        clients = self.host.scheduler.profiles[PROFILE].framework.clients
        async with asyncio.timeout(_ATTACHED_WITHIN_S):
            while not all(client.available for client in clients):
                await asyncio.sleep(0.01)
        for item in initial:
            self._watched(self.api.put(item["kind"], item["object"]))
        self.queue.start()
        await self._settle()

    async def end(self) -> Json:
        """Stop the host, and return the final state."""
        final = await self._final()
        self.api.resume()
        await self.host.stop()
        return final

    async def run(self, op: Json) -> Json:
        """Do one operation, and return its entry."""
        self._failures, self.api.calls, self.api.events = [], {}, []
        self.extenders.calls = []
        while self.clock.next_ms(op["at"]) is not None:
            self.clock.fire()
            await self._settle()
        self.clock.at_ms = op["at"]
        entry = await self._apply(op)
        await self._settle()
        for event in self.api.take_events():
            self._watched(event)
            await self._settle()
        entry["state"] = self._state()
        entry["failures"] = self._failures
        entry["apiCalls"] = self.api.calls
        entry["k8sEvents"] = sorted(self.api.events, key=lambda event: str(event["regarding"]))
        entry["extenderCalls"] = self.extenders.calls
        entry = {key: value for key, value in entry.items() if value or key == "state"}
        return self.extenders.masked(entry)

    # --- operations --------------------------------------------------------------------------------

    async def _apply(self, op: Json) -> Json:
        entry = getattr(self, f"_{op['op']}")(op)
        return dict(entry if isinstance(entry, dict) else await entry or {})

    async def _wait(self, op: Json) -> None:
        return

    async def _create(self, op: Json) -> None:
        self._watched(self.api.put(op["kind"], op["object"]))

    async def _update(self, op: Json) -> None:
        item, metadata = op["object"], op["object"]["metadata"]
        known = self.api.find(op["kind"], metadata.get("namespace", ""), metadata["name"])
        if known is not None and op["kind"] != "Node":
            item = {**item, "status": known.get("status", {})}
            if node_name := known.get("spec", {}).get("nodeName"):
                item["spec"] = {**item["spec"], "nodeName": node_name}
            if leaves := known["metadata"].get("deletionTimestamp"):
                item["metadata"] = {**metadata, "deletionTimestamp": leaves}
        self._watched(self.api.put(op["kind"], item))

    async def _delete(self, op: Json) -> Json:
        event = self.api.remove(op["kind"], op.get("namespace", ""), op["name"])
        if event is None:
            return {"missing": True}
        self._watched(event)
        return {}

    async def _terminate(self, op: Json) -> Json:
        found = self.api.find("Pod", op["namespace"], op["name"])
        if found is None:
            return {"missing": True}
        self._watched(self.api.put("Pod", terminating(found, self.clock)))
        return {}

    async def _finishDeletes(self, op: Json) -> Json:  # noqa: N802  # the operation's own name
        gone = [
            pod["metadata"] for pod in self.api.of_kind("Pod") if pod["metadata"].get("deletionTimestamp")
        ]
        for metadata in sorted(gone, key=lambda one: (one["name"], one["namespace"])):
            event = self.api.remove("Pod", metadata["namespace"], metadata["name"])
            if event is not None:
                self._watched(event)
                await self._settle()
        return {"deleted": [f"{one['namespace']}/{one['name']}" for one in gone]}

    async def _cycle(self, op: Json) -> Json:
        """Make one attempt to its end, then let its binding cycles and its preemption run."""
        source = "activeQ" if len(self.queue.places.active) else "backoffQ"
        popped = self.queue.pop() if self.queue.has_ready else None
        if popped is None:
            return {"idle": True}
        entry: Json = {"popped": self._entry(popped), "poppedFrom": source}
        for change in op.get("during", ()):
            await self._apply(change)
            await self._settle()
        self.api.failing_binds = set(op.get("failBind", ()))
        self.api.hold()
        self._between_cycles.clear()
        if isinstance(popped, QueuedPodInfo):
            await self.host.scheduler.pods.schedule_one(popped)
        else:
            await cast("Any", self.host.scheduler).groups.schedule_group(popped)
        while self.host.wiring.busy:
            await asyncio.sleep(_POLL_S)
        entry["afterCycle"] = self._state()
        self._between_cycles.set()
        self.api.resume()
        for attempt in self._to_bind:
            self._start_binding(attempt)
        self._to_bind.clear()
        return {key: value for key, value in entry.items() if value}

    def _watched(self, event: WatchEvent) -> None:
        self.host.handlers.take_over(event)

    # --- quiet -------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until nothing is under way."""
        quiet = 0
        while quiet < _QUIET_TURNS:
            quiet = 0 if self._is_moving() else quiet + 1
            # Answers from another process take their time; in process the next turn of the loop has all.
            await asyncio.sleep(_POLL_S if self._served else 0)

    def _is_moving(self) -> bool:
        host = self.host
        return bool(
            host.wiring.busy
            or host.binding.active_count
            or host.status.pending_count
            or host.group_status.pending_count
            or len(host.evictions)
        )

    # --- states ------------------------------------------------------------------------------------

    def _state(self) -> Json:
        places, groups = self.queue.places, self.queue.groups
        state = {
            "activeQ": [self._entry(info) for info in places.active],
            "backoffQ": [
                *(self._entry(info, kind="normal") for info in places.backoff.rejected()),
                # Of those whose backoff ends at the same time, the recording has the smallest name first.
                *sorted(
                    (self._entry(info, kind="error") for info in places.backoff.failed()),
                    key=lambda entry: (entry["expiresMs"], _name_of(entry)),
                ),
            ],
            "unschedulable": [self._entry(info) for info in sorted(places.pool, key=lambda info: info.key)],
            "incomplete": self._members(groups.aside(Aside.INCOMPLETE)),
            "pending": self._members(groups.aside(Aside.PENDING)),
            "inFlight": sorted(info.key for info in self.queue.in_flight),
            "waitingOnPermit": self._waiting_pods(),
            "nominated": {
                node: [pod.key for pod in pods] for node, pods in self.queue.nominated_pods().items()
            },
        }
        return {key: value for key, value in state.items() if value}

    def _waiting_pods(self) -> list[str]:
        pods = [one.pod for one in (*self._to_bind, *self.host.binding.attempts())]
        return sorted(pod.key for pod in pods if self.host.waiting_pods.is_waiting(pod.uid))

    def _members(self, infos: Iterable[QueuedPodInfo]) -> list[Json]:
        return [self._entry(info) for info in sorted(infos, key=lambda info: info.key)]

    def _entry(self, info: QueuedEntity, kind: str = "") -> Json:
        entry: Json = {
            "kind": kind,
            "expiresMs": 0,
            "unschedulableCount": info.unschedulable_count,
            "consecutiveErrorsCount": info.consecutive_errors_count,
            "gatedBy": info.gating_plugin,
        }
        if kind and info.backoff_expiration_us is not None:
            entry["expiresMs"] = self.clock.since_start_ms(info.backoff_expiration_us)
        if isinstance(info, QueuedPodInfo):
            entry["unschedulablePlugins"] = sorted(info.unschedulable_plugins)
            entry["pendingPlugins"] = sorted(info.pending_plugins)
        shown = {key: value for key, value in entry.items() if value}
        shown |= {"attempts": info.attempts, "timestampMs": self.clock.since_start_ms(info.timestamp_us)}
        if isinstance(info, QueuedGroupInfo):
            name = "compositePodGroup" if info.group.is_composite else "podGroup"
            shown[name] = f"{info.group.namespace}/{info.group.name}"
            shown["pods"] = [self._entry(member) for member in info.members]
        else:
            shown["pod"] = info.key
        return shown

    async def _final(self) -> Json:
        pods = {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": _without_empty(
                {
                    "node": pod["spec"].get("nodeName"),
                    "nominatedNodeName": pod.get("status", {}).get("nominatedNodeName"),
                    "terminating": bool(pod["metadata"].get("deletionTimestamp")),
                    "conditions": conditions_of(pod),
                }
            )
            for pod in self.api.of_kind("Pod")
        }
        groups = {
            field: {
                f"{group['metadata']['namespace']}/{group['metadata']['name']}": conditions_of(group)
                for group in self.api.of_kind(kind)
            }
            for field, kind in (("podGroups", "PodGroup"), ("compositePodGroups", "CompositePodGroup"))
        }
        final = _without_empty({"pods": pods, **groups, "metrics": self._metrics()})
        return self.extenders.masked(final)

    def _metrics(self) -> Json:
        shown: Json = {}
        for source in self.host.metrics.sources:
            metric = source.collect()
            for sample in () if metric is None else metric.samples:
                if sample.name in METRICS and sample.value:
                    labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                    shown.setdefault(sample.name, {})[labels] = int(sample.value)
        return shown


def _configuration(
    script: Json, emulated_version: str, endpoint: str, extenders: Sequence[Json]
) -> LoadedConfiguration:
    preemption = {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 100}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": PROFILE, "pluginConfig": [preemption]}],
        "extenders": list(extenders),
        **(script.get("config") or {}),
    }
    text = json.dumps(document)
    if endpoint:
        text = f"---\n{text}\n---\n{served_at(endpoint)}"
    return load_configuration(
        text,
        source=str(script.get("name", "script")),
        registered=ClassRegistry().points(),
        feature_gates=script.get("featureGates") or {},
        emulated_version=emulated_version,
    )


def _failure(queued: QueuedPodInfo, failure: Failure) -> Json:
    shown: Json = {
        "pod": queued.key,
        "code": failure.status.code.kube_name,
        "message": failure.status.message if failure.by_group else failure.message,
        # The recorder shows the plugins of a pod's own failure alone.
        "unschedulablePlugins": [] if failure.by_group else sorted(failure.unschedulable_plugins),
        "pendingPlugins": sorted(failure.pending_plugins),
    }
    nominate = "keep" if failure.nominated is None else {"node": failure.nominated}
    return _without_empty(shown) | {"nominate": nominate}


def _name_of(entry: Json) -> str:
    return str(entry.get("podGroup") or entry.get("compositePodGroup") or entry.get("pod"))


def _without_empty(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value}


async def actual_of(script: Json, emulated_version: str, endpoint: str = "") -> Json:
    """Return what the host does in a script, in the form of `expected`, which is not read."""
    clock = ScriptClock()
    api = ScriptedApi(clock)
    extenders = ScriptedExtenders(script.get("extenders") or (), api)
    try:
        configuration = _configuration(script, emulated_version, endpoint, await extenders.begin())
        host = ScriptedHost(configuration, clock, api, extenders, endpoint)
        await host.begin(script.get("initial") or ())
        try:
            ops = [await host.run(op) for op in script["ops"]]
        except BaseException:
            host.api.resume()
            await host.host.stop()
            raise
        return {"ops": ops, "final": await host.end()}
    finally:
        await extenders.end()


def first_difference(expected: Json, actual: Json, *, served: bool = False) -> Json | None:
    """Return the first field that differs; None if the host did what was recorded.

    A recorded patch is compared by the status that it leaves (`after`). `served`: the plugins answered from
    another process. An entry then waits in the unschedulable set for the answers of its gates, which the
    counters of incoming entries show; these counters are not compared.
    """
    for index, (wanted, got) in enumerate(zip(expected["ops"], actual["ops"], strict=False)):
        for field in sorted(wanted.keys() | got.keys()):
            one, other = _comparable(field, wanted.get(field)), got.get(field)
            if one != other:
                return {"operation": index, "field": field, "expected": one, "actual": other}
    if len(expected["ops"]) != len(actual["ops"]):
        return {"operations": {"expected": len(expected["ops"]), "actual": len(actual["ops"])}}
    for field in ("pods", "podGroups", "compositePodGroups", "metrics"):
        one, other = expected["final"].get(field) or {}, actual["final"].get(field) or {}
        if field == "compositePodGroups" and field not in expected["final"]:
            continue  # 1.37's recordings have no such field
        if served:
            one, other = ({k: v for k, v in each.items() if k not in INCOMING} for each in (one, other))
        if one != other:
            return {"final": field, "expected": one, "actual": other}
    return None


def _comparable(field: str, value: Any) -> Any:
    if field != "apiCalls" or value is None:
        return value
    return {
        key: [{name: part for name, part in call.items() if name != "patch"} for call in calls]
        for key, calls in value.items()
    }
