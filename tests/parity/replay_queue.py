"""Replay recorded scripts of the queue through the host's own event handlers, failure handler and queue.

    python tests/parity/replay_queue.py [--emulated-version VERSION] [--actual FILE] DIR

Reads every `*.jsonl` and `*.jsonl.gz` of the folder. Prints one JSON line with the number of records, how
many are identical, and the first difference; exits 0 only if all are identical. `--actual` also writes the
host's state after each operation, in the form of the recording.

The two steps are independent: `actual_of` translates a script's operations and never reads the expected
states; `first_difference` compares, every field exactly, `hints` as a multiset. This program makes no
decisions: operations become calls, states become records.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import heapq
import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from unittest import mock

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_host.app import Host, HostOptions
from berth_host.cluster.port import ClusterPort, EventRecord, WatchEvent
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.cycle.attempt import Failure
from berth_host.explain.fit_error import NO_NODES
from berth_host.log import configure
from berth_host.queue import plugin_calls
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import HintVerdict, QueueObserver
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from support.emulated_version import OLDEST, add_option

Record: TypeAlias = dict[str, Any]
START_S = 1_767_225_600  # 2026-01-01T00:00:00Z
DEFAULT_CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
_VERDICTS = {HintVerdict.QUEUE: "Queue", HintVerdict.SKIP: "Skip", HintVerdict.ERROR: "Error"}


class DivergedError(Exception):
    """The script refers to something that did not happen here: the host's state differed before."""


class ScriptClock:
    """Whole milliseconds since the start of a script; timers fire at exactly their time."""

    def __init__(self, start_offset_ms: int) -> None:
        self.start_ms = START_S * 1000 + start_offset_ms
        self.at_ms = 0
        self._timers: list[tuple[int, int, list[Callable[[], None]]]] = []
        self._sequence = itertools.count()

    def now_s(self) -> float:
        return (self.start_ms + self.at_ms) / 1000

    def monotonic_s(self) -> float:
        return self.at_ms / 1000

    def call_at(self, when_s: float, callback: Callable[[], None]) -> _ScriptTimer:
        pending = [callback]
        heapq.heappush(self._timers, (round(when_s * 1000), next(self._sequence), pending))
        return _ScriptTimer(pending)

    def advance_to(self, at_ms: int) -> None:
        while self._timers and self._timers[0][0] <= at_ms:
            due_ms, _, pending = heapq.heappop(self._timers)
            self.at_ms = max(self.at_ms, due_ms)
            for callback in pending:
                callback()
        self.at_ms = at_ms

    def since_start_ms(self, moment_us: int) -> int:
        return moment_us // 1000 - self.start_ms


class _ScriptTimer:
    def __init__(self, pending: list[Callable[[], None]]) -> None:
        self._pending = pending

    def cancel(self) -> None:
        self._pending.clear()


class Recorder(QueueObserver):
    """Records what reaches the queue during one operation."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.hints: list[Record] = []

    def event_received(self, event: QueueEvent, *, own_update: bool) -> None:
        self.events.append(f"self:{event.label}" if own_update else event.label)

    def hint_given(
        self, plugin: str, label: str, pods: Collection[QueuedPodInfo], verdict: HintVerdict
    ) -> None:
        self.hints.extend(
            {"event": label, "hint": _VERDICTS[verdict], "plugin": plugin, "pod": info.key} for info in pods
        )


_FLUSHED_WITHIN_S: Final = 10.0


class DeafCluster:
    """Accepts every write and shows no effect: a script itself defines the changes of its cluster."""

    answers_at_once = True

    async def patch(self, resource: str, ref: ObjectRef, *details: object, **options: object) -> KubeObject:
        return KubeObject.of({"metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}})

    def record_event(self, pod: Pod, *details: object) -> None:
        return

    def create_event(self, event: EventRecord) -> None:
        return


class ScriptedHost:
    """A host with the default profile, and one method per operation of a script."""

    def __init__(self, config: Record, emulated_version: str) -> None:
        self.clock = ScriptClock(config.get("startOffsetMs", 0))
        self.recorder = Recorder()
        options = HostOptions(
            clock=self.clock,
            max_in_pool_s=config.get("podMaxInUnschedulablePodsSeconds", 300),
            queue_observer=self.recorder,
            ask_every_plugin=True,
        )
        configuration = _configuration(config, emulated_version)
        self.host = Host(configuration, cast(ClusterPort, DeafCluster()), options)
        self.queue = self.host.queue
        self.objects: dict[tuple[str, str, str], KubeObject] = {}
        self.popped: dict[tuple[str, str], QueuedPodInfo] = {}
        self.assumed: dict[str, Pod] = {}

    # --- operations --------------------------------------------------------------------------

    def watch(self, kind: str, new: Record | None, key: tuple[str, str]) -> None:
        old = self.objects.pop((kind, *key), None)
        shown = None if new is None else KubeObject(new.get("apiVersion", ""), kind, parsed=new)
        if shown is not None:
            self.objects[(kind, *key)] = shown
        # Scripts repeat versions, which kube-scheduler treats as changes.
        self.host.handlers.take_over(WatchEvent(kind, old, shown))

    def create(self, op: Record) -> None:
        metadata = op["object"]["metadata"]
        self.watch(op["kind"], op["object"], (metadata.get("namespace", ""), metadata["name"]))

    update = create

    def delete(self, op: Record) -> None:
        self.watch(op["kind"], None, (op.get("namespace", ""), op["name"]))

    def pop(self, op: Record) -> Record:
        source = "activeQ" if len(self.queue.places.active) else "backoffQ"
        info = self.queue.pop() if self.queue.has_ready else None
        if not isinstance(info, QueuedPodInfo):
            return {}
        self.popped.pop((info.key, info.uid), None)
        self.popped[info.key, info.uid] = info  # the latest pop is last
        return {"popped": self.in_flight_entry(info), "poppedFrom": source}

    def fail(self, op: Record) -> None:
        self.host.failures.handle(self.attempt(op), _rejection(op, op.get("nominate")))

    def error(self, op: Record) -> None:
        status = Status.unresolvable(NO_NODES) if op.get("noNodes") else Status.error("scripted")
        self.host.failures.handle(self.attempt(op), Failure(status=status))

    def assume(self, op: Record) -> None:
        info = self.attempt(op)
        self.assumed[info.uid] = info.pod.on_node(op["node"])
        self.host.cache.assume(self.assumed[info.uid])
        self.queue.delete_nomination(info.pod)

    def done(self, op: Record) -> None:
        self.queue.done(self.attempt(op).uid)

    def bindError(self, op: Record) -> None:  # noqa: N802  # the operation's own name
        info = self.attempt(op)
        failure = Failure(status=Status.error("scripted"))
        self.host.failures.handle_binding_failure(info, self.assumed[info.uid], failure)

    def permitReject(self, op: Record) -> None:  # noqa: N802  # the operation's own name
        info = self.attempt(op)
        self.host.failures.handle_binding_failure(info, self.assumed[info.uid], _rejection(op, ""))

    def activate(self, op: Record) -> None:
        self.queue.activate(self.known_pods(op["pods"]))

    def nominate(self, op: Record) -> None:
        for pod in self.known_pods([op["pod"]]):
            self.queue.nominate(pod, op["node"])

    def unnominate(self, op: Record) -> None:
        for pod in self.known_pods([op["pod"]]):
            self.queue.delete_nomination(pod)

    def preempting(self, op: Record) -> None:
        """Evictions run outside the queue, which only holds back the pods."""
        preempting = self.host.evictions.preempting
        for pod in self.known_pods([op["pod"]]):
            if op["phase"] == "start":
                preempting.begin(pod.uid)
            elif op["phase"] == "lastVictim":
                for victim in self.known_pods([op["victim"]]):
                    preempting.last(pod.uid, victim)
            else:
                preempting.end(pod.uid)

    def flushBackoff(self, op: Record) -> None:  # noqa: N802  # the operation's own name
        self.queue.flush_backoff()

    def flushUnschedulable(self, op: Record) -> None:  # noqa: N802  # the operation's own name
        self.queue.flush_leftover()

    def wait(self, op: Record) -> None:
        return

    def attempt(self, op: Record) -> QueuedPodInfo:
        """Return the popped pod of an operation: the latest of its name, unless the operation has a uid."""
        found = [
            info for (key, uid), info in self.popped.items() if key == op["pod"] and uid == op.get("uid", uid)
        ]
        if not found:
            raise DivergedError(f"{op['pod']} was never popped")
        return found[-1]

    def known_pods(self, keys: Iterable[str]) -> Iterator[Pod]:
        for key in keys:
            pod = self.host.objects.pod(key)
            if pod is None:
                attempts = [info for (name, _), info in self.popped.items() if name == key]
                pod = attempts[-1].pod if attempts else None
            if pod is not None:
                yield pod

    # --- states ------------------------------------------------------------------------------

    def state(self) -> Record:
        places, in_flight = self.queue.places, self.queue.in_flight
        pool = sorted(pods_of(places.pool), key=lambda info: info.key)
        result: Record = {
            "schedulingCycle": self.queue.scheduling_cycle,
            "activeQ": [self.entry(info) for info in pods_of(places.active)],
            "backoffQ": [
                *(self.waiting_entry(info, "normal") for info in pods_of(places.backoff.rejected())),
                *(self.waiting_entry(info, "error") for info in pods_of(places.backoff.failed())),
            ],
            "unschedulable": [self.waiting_entry(info, "") for info in pool],
            "inFlight": [self.in_flight_entry(info) for info in in_flight],
            "nominated": {
                node: [pod.key for pod in pods] for node, pods in self.queue.nominated_pods().items()
            },
        }
        if in_flight.event_count:
            result["inFlightLog"] = [
                f"pod:{item.key}" if isinstance(item, QueuedPodInfo) else f"event:{item.label}"
                for item in in_flight.log()
            ]
        return result | _without_empty({"events": self.recorder.events, "hints": self.recorder.hints})

    def entry(self, info: QueuedPodInfo) -> Record:
        first_us = info.initial_attempt_timestamp_us
        result: Record = {
            "pod": info.key,
            "attempts": info.attempts,
            "unschedulableCount": info.unschedulable_count,
            "consecutiveErrorsCount": info.consecutive_errors_count,
            "timestampMs": self.clock.since_start_ms(info.timestamp_us),
        }
        return result | _without_empty(
            {
                "initialAttemptMs": 0 if first_us is None else self.clock.since_start_ms(first_us),
                "flushed": info.was_flushed_from_unschedulable,
            }
        )

    def in_flight_entry(self, info: QueuedPodInfo) -> Record:
        return self.entry(info) | {"uid": info.uid}

    def waiting_entry(self, info: QueuedPodInfo, kind: str) -> Record:
        expires_us = info.backoff_expiration_us if kind else None
        return self.entry(info) | _without_empty(
            {
                "kind": kind,
                "expiresMs": 0 if expires_us is None else self.clock.since_start_ms(expires_us),
                "gatedBy": info.gating_plugin,
                "unschedulablePlugins": sorted(info.unschedulable_plugins),
                "pendingPlugins": sorted(info.pending_plugins),
            }
        )


@cache
def _default_configuration(emulated_version: str) -> LoadedConfiguration:
    return load_configuration(DEFAULT_CONFIGURATION, source="default", emulated_version=emulated_version)


def _configuration(config: Record, emulated_version: str) -> LoadedConfiguration:
    default = _default_configuration(emulated_version)
    limits = replace(
        default.scheduler,
        pod_initial_backoff_s=config.get("podInitialBackoffSeconds", 1),
        pod_max_backoff_s=config.get("podMaxBackoffSeconds", 10),
    )
    return replace(default, scheduler=limits)


def _rejection(op: Record, nominated: str | None) -> Failure:
    return Failure(
        status=Status.unschedulable("scripted"),
        nominated=nominated,
        unschedulable_plugins=frozenset(op.get("unschedulablePlugins", ())),
        pending_plugins=frozenset(op.get("pendingPlugins", ())),
    )


def _without_empty(fields: Record) -> Record:
    return {name: value for name, value in fields.items() if value}


async def actual_of(script: Record, emulated_version: str = OLDEST) -> list[Record]:
    """Return the host's states for a script, one per operation."""
    # A script is one turn of the event loop: no hint waits for a later one, however slow the machine is.
    with mock.patch.object(plugin_calls, "TURN_S", math.inf):
        return await _states_of(script, script.get("config") or {}, emulated_version)


async def _states_of(script: Record, config: Record, emulated_version: str) -> list[Record]:
    scripted = ScriptedHost(config, emulated_version)
    for item in script.get("initial") or ():
        scripted.create(item)
    if config.get("flush", "auto") == "auto":
        scripted.queue.start()
    states = []
    for op in script["ops"]:
        scripted.recorder.events, scripted.recorder.hints = [], []
        scripted.clock.advance_to(op["at"])
        try:
            extra = getattr(scripted, op["op"])(op) or {}
        except DivergedError as err:
            states.append({"diverged": str(err)})
            break
        states.append(scripted.state() | extra)
    scripted.queue.stop()
    await scripted.host.status.flush(_FLUSHED_WITHIN_S)
    return states


async def all_actual(scripts: Sequence[Record], emulated_version: str = OLDEST) -> list[list[Record]]:
    """Return the states of every script, one after the other."""
    return [await _actual_or_problem(script, emulated_version) for script in scripts]


async def _actual_or_problem(script: Record, emulated_version: str) -> list[Record]:
    try:
        return await actual_of(script, emulated_version)
    except Exception as err:  # noqa: BLE001 (the loop over scripts goes on: this one is not identical)
        return [{"problem": f"{type(err).__name__}: {err}"}]


def first_difference(name: str, expected: Sequence[Record], actual: Sequence[Record]) -> Record | None:
    """Compare the recorded states with the host's; return None if all fields are equal."""
    for index, (wanted, got) in enumerate(zip(expected, actual, strict=False)):
        for field in sorted(wanted.keys() | got.keys()):
            if _comparable(field, wanted.get(field)) != _comparable(field, got.get(field)):
                return {
                    "name": name,
                    "operation": index,
                    "field": field,
                    "expected": wanted.get(field),
                    "actual": got.get(field),
                }
    if len(expected) != len(actual):
        return {"name": name, "operations": {"expected": len(expected), "actual": len(actual)}}
    return None


def _comparable(field: str, value: Any) -> Any:
    if field != "hints":
        return value
    return Counter(json.dumps(hint, sort_keys=True) for hint in value or ())


def read_records(folder: Path) -> Iterator[Record]:
    """Yield all scripts of a folder, by file name and line."""
    for file in sorted(folder.iterdir()):
        if file.name.endswith((".jsonl", ".jsonl.gz")):
            data = file.read_bytes()
            text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
            yield from (json.loads(line) for line in text.split("\n") if line.strip())


def replay(folder: Path, actual_file: Path | None = None, emulated_version: str = OLDEST) -> Record:
    """Replay a folder; return the printed line."""
    records = list(read_records(folder))
    scripts = [{key: value for key, value in record.items() if key != "expected"} for record in records]
    actual = asyncio.run(all_actual(scripts, emulated_version))
    if actual_file is not None:
        shown = ({"name": r["name"], "expected": a} for r, a in zip(records, actual, strict=True))
        actual_file.write_text("".join(f"{json.dumps(line)}\n" for line in shown), encoding="utf-8")
    differences = [
        difference
        for record, states in zip(records, actual, strict=True)
        if (difference := first_difference(record["name"], record.get("expected", ()), states))
    ]
    return {
        "records": len(records),
        "identical": len(records) - len(differences),
        "first_difference": differences[0] if differences else None,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Replay recorded scripts of the scheduling queue.")
    add_option(parser)
    parser.add_argument("--actual", type=Path, metavar="FILE", help="write what the host did, one line each")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder with *.jsonl or *.jsonl.gz")
    given = parser.parse_args(argv)
    configure("ERROR")  # to standard error, because standard output has the one line
    result = replay(given.folder, given.actual, given.emulated_version)
    print(json.dumps(result))
    return 0 if result["records"] and result["identical"] == result["records"] else 1


if __name__ == "__main__":
    sys.exit(main())
