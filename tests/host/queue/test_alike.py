"""Alike pods are judged together, and end up as if each was judged by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from berth_host.queue.events import QueueEvent, assigned_pod_deleted
from berth_host.queue.interfaces import DEFERRED, Deferred, GateQuestion, HintQuestion, HintVerdict
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from berth_host.queue.registrations import Registration
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ActionType, ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import Narrowing
from berth_sdk.signature import wishes
from berth_sdk.status import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from support.queue_parts import Plugins, QueueBench, a_pod, node_added
from support.tiers import examples

NAMES = [f"pod-{n}" for n in range(8)]
PLUGINS = ("Fit", "Labels", "Victims", "Plain")
REJECTORS = [("Fit",), ("Fit",), ("Fit", "Victims"), ("Labels",), ("Fit", "Labels"), ("Plain",), ()]
GONE = Registration(resource="Pod", action=int(ActionType.DELETE), ask=True)
LABEL = Registration(resource="Pod", action=int(ActionType.UPDATE_POD_LABEL), ask=True)
NODE = Registration(resource="Node", action=int(ActionType.ADD))
APPS = st.sampled_from(["web", "db"])
SIGNS: dict[str, Callable[[Pod], Hashable]] = {
    "Fit": lambda pod: pod.labels.get("app"),
    "Labels": lambda pod: pod.labels.get("gate"),
    "Victims": lambda pod: (),
    "Plain": wishes,
}
"""What `hint` and the gates below tell pods apart by."""


def hint(question: HintQuestion) -> bool:
    """Return an answer that depends on the pod's wishes, the event, and whether the pod is its object."""
    event, pod = question.event, question.pod
    subject = event.new or event.old
    assert isinstance(subject, Pod)
    if question.plugin == "Victims":
        return False
    if subject.uid == pod.uid:
        return question.plugin == "Labels"
    if question.plugin == "Fit":
        return subject.labels.get("app") == pod.labels.get("app")
    return "gate" in pod.labels


def victims_gate(question: GateQuestion) -> Status:
    return Status.unresolvable("evicting") if question.pod.victims_pending else Status.success()


def label_gate(question: GateQuestion) -> Status:
    return Status.unresolvable("label") if question.pod.pod.labels.get("gate") else Status.success()


def of_app(event: ClusterEvent) -> Collection[Hashable] | None:
    assert isinstance(event.old, Pod)
    app = event.old.labels.get("app")
    return None if app == "any" else [app]


NARROWS = {
    "Fit": Narrowing(lambda pod: [pod.labels.get("app")], of_app),
    "Labels": Narrowing(lambda pod: None if "gate" in pod.labels else (), lambda event: ["a gate"]),
    "Victims": Narrowing(lambda pod: None, lambda event: ()),
}
"""The pods for which `hint` may return True for an event about another pod."""


def bench_with(*sharing: str, narrows: bool = False) -> QueueBench:
    return QueueBench(
        Plugins(
            registrations={"Fit": [GONE], "Labels": [LABEL], "Victims": [GONE], "Plain": [NODE]},
            gates={"Victims": victims_gate, "Labels": label_gate},
            hint=hint,
            signs={name: SIGNS[name] for name in sharing},
            narrows=NARROWS if narrows else {},
        )
    )


@dataclass(frozen=True)
class Waiting:
    """The reasons for which a pod entered the pool."""

    app: str
    priority: int
    rejectors: tuple[str, ...]
    pending: tuple[str, ...]
    evicts: bool


WAITING = st.builds(
    Waiting,
    app=st.sampled_from(["web", "web", "db"]),
    priority=st.sampled_from([0, 0, 1]),
    rejectors=st.sampled_from(REJECTORS),
    pending=st.sampled_from([(), (), (), ("Fit",), ("Labels",)]),
    evicts=st.booleans(),
)
POSITIONS = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("leaves"), APPS),
    st.tuples(st.just("is labelled"), APPS),
    st.tuples(st.just("node comes"), APPS),
    st.tuples(st.just("evictions end"), POSITIONS),
    st.tuples(st.just("nomination is given up"), POSITIONS),
    st.tuples(st.just("is shown on a node"), POSITIONS),
    st.tuples(st.just("is relabelled"), POSITIONS, APPS, st.booleans()),
    st.tuples(st.just("is activated"), POSITIONS),
    st.tuples(st.just("is deleted"), POSITIONS),
    st.tuples(st.just("time passes"), st.sampled_from([1, 12, 301])),
    st.tuples(st.just("is tried again"), st.lists(WAITING, min_size=1, max_size=3)),
)


class Life:
    """A queue that gets the same calls as another one."""

    def __init__(self, sharing: tuple[str, ...], *, narrows: bool = False) -> None:
        self.bench = bench_with(*sharing, narrows=narrows)

    def park(self, pods: list[Waiting]) -> None:
        for name, how in zip(NAMES, pods, strict=False):
            self.bench.add(name, labels={"app": how.app}, priority=how.priority)
            self.try_one(how)

    def try_one(self, how: Waiting) -> None:
        info = self.bench.queue.pop()
        if not isinstance(info, QueuedPodInfo):
            return
        info.gating_plugin, info.gating_plugin_events = "", ()
        if how.evicts:
            self.bench.evicting.add(info.uid)
        self.bench.reject(info, *how.rejectors, pending=how.pending)
        self.bench.clock.advance(0.001)

    def step(self, what: str, *details: Any) -> None:
        queue, pods = self.bench.queue, self.bench.pods.by_key
        match what, details:
            case "leaves", (app,):
                queue.move_all(assigned_pod_deleted(a_pod("other", labels={"app": app}, node_name="n1")))
            case "is labelled", (app,):
                other = a_pod("other", labels={"app": app}, node_name="n1")
                queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.UPDATE_POD_LABEL, other, other))
            case "node comes", _:
                queue.move_all(node_added())
            case "time passes", (seconds,):
                self.bench.clock.advance(seconds)
                queue.flush_backoff()
                queue.flush_leftover()
            case "is tried again", (ways,):
                self.bench.clock.advance(12)
                queue.flush_backoff()
                for how in ways:
                    self.try_one(how)
            case _, (position, *more):
                pod = pods.get(f"default/{NAMES[position]}")
                if pod is not None:
                    self.about(pod, what, *more)

    def about(self, pod: Pod, what: str, *details: Any) -> None:
        queue, pods = self.bench.queue, self.bench.pods
        match what:
            case "evictions end":
                self.bench.evicting.discard(pod.uid)
            case "nomination is given up":
                queue.move_all(assigned_pod_deleted(pod), lambda other: other.priority <= pod.priority)
            case "is shown on a node":
                queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.UPDATE_POD_LABEL, pod, pod))
                queue.move_all(assigned_pod_deleted(pod))
            case "is relabelled":
                app, gated = details
                labels = {"app": app} | ({"gate": "closed"} if gated else {})
                new = pods.put(replace(pod, labels=labels, resource_version=f"{pod.resource_version}0"))
                event = QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, pod, new)
                queue.update(pod, new, [event])
            case "is activated":
                queue.activate([pod])
            case "is deleted":
                queue.delete(pods.by_key.pop(pod.key))


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    sharing=st.sampled_from([PLUGINS, PLUGINS, ("Fit", "Victims"), ("Labels",)]),
    pods=st.lists(WAITING, min_size=2, max_size=8),
    steps=st.lists(STEPS, min_size=1, max_size=12),
)
def test_alike_pods_end_up_as_if_each_was_judged_by_itself(
    sharing: tuple[str, ...], pods: list[Waiting], steps: list[tuple[Any, ...]]
) -> None:
    alone, together = Life(()), Life(sharing)
    for life in (alone, together):
        life.park(pods)
    for step in steps:
        for life in (alone, together):
            life.step(*step)
        assert together.bench.active == alone.bench.active
        assert together.bench.backing_off == alone.bench.backing_off
        assert _records(together.bench) == _records(alone.bench)
        for name in ("hints", "entered", "rejected", "events"):
            reported = Counter(getattr(together.bench.notes, name))
            assert reported == Counter(getattr(alone.bench.notes, name)), name


def _records(bench: QueueBench) -> dict[str, tuple[object, ...]]:
    return {
        info.pod.name: (
            info.attempts,
            info.gating_plugin,
            sorted(info.unschedulable_plugins),
            sorted(info.pending_plugins),
            info.timestamp_us,
            info.was_flushed_from_unschedulable,
        )
        for info in pods_of(bench.queue.places.pool)
    }


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(pods=st.lists(WAITING, min_size=2, max_size=8), steps=st.lists(STEPS, min_size=1, max_size=12))
def test_the_same_pods_move_when_plugins_name_the_pods_that_an_event_helps(
    pods: list[Waiting], steps: list[tuple[Any, ...]]
) -> None:
    asked, named = Life(PLUGINS), Life(PLUGINS, narrows=True)
    for life in (asked, named):
        life.park(pods)
    for step in steps:
        for life in (asked, named):
            life.step(*step)
        assert named.bench.active == asked.bench.active
        assert named.bench.backing_off == asked.bench.backing_off
        assert _records(named.bench) == _records(asked.bench)
        assert named.bench.pool == asked.bench.pool
        for name in ("entered", "rejected", "events"):
            assert getattr(named.bench.notes, name) == getattr(asked.bench.notes, name), name
        skipped = Counter(asked.bench.notes.hints) - Counter(named.bench.notes.hints)
        assert {verdict for *_, verdict in skipped} <= {HintVerdict.SKIP}


class Counting:
    """A plugin that counts its calls."""

    def __init__(self, *, later: bool = False) -> None:
        self.asked: list[str] = []
        self.later = later

    def hint(self, question: HintQuestion) -> bool | Deferred:
        self.asked.append(question.pod.name)
        return DEFERRED if self.later else True

    def gate(self, question: GateQuestion) -> Status:
        self.asked.append(question.pod.pod.name)
        return victims_gate(question)


def waiting(bench: QueueBench, *names: str, evicting: bool = False) -> list[QueuedPodInfo]:
    if evicting:
        for name in names:
            bench.evicting.add(f"uid-{name}")
    bench.add(*names)
    if evicting:
        return list(pods_of(bench.queue.places.pool))
    infos = [bench.pop() for _ in names]
    for info in infos:
        bench.reject(info, "Fit")
    return infos


def test_one_of_many_equal_pods_is_judged() -> None:
    counting = Counting()
    plugins = Plugins(registrations={"Fit": [GONE]}, hint=counting.hint, signs={"Fit": SIGNS["Fit"]})
    bench = QueueBench(plugins)
    waiting(bench, *NAMES)
    bench.queue.move_all(assigned_pod_deleted(a_pod("gone", node_name="n1")))
    assert len(counting.asked) == 1
    assert (len(bench.backing_off), bench.pool) == (len(NAMES), [])


def test_each_alike_pod_is_judged_if_the_answer_comes_later() -> None:
    counting = Counting(later=True)
    bench = QueueBench(
        Plugins(registrations={"Fit": [GONE]}, hint=counting.hint, signs={"Fit": SIGNS["Fit"]})
    )
    waiting(bench, *NAMES)
    bench.queue.move_all(assigned_pod_deleted(a_pod("gone", node_name="n1")))
    assert set(counting.asked) == set(NAMES)
    assert len(bench.pool) == len(NAMES)


@pytest.mark.parametrize("freed", [0, 1, 3])
def test_gate_that_stays_closed_is_asked_about_one_pod(freed: int) -> None:
    counting = Counting()
    bench = QueueBench(
        Plugins(
            registrations={"Fit": [GONE], "Victims": [GONE]},
            gates={"Victims": counting.gate},
            signs={name: SIGNS[name] for name in ("Fit", "Victims")},
        )
    )
    waiting(bench, *NAMES, evicting=True)
    for name in NAMES[:freed]:
        bench.evicting.discard(f"uid-{name}")
    counting.asked.clear()
    bench.queue.move_all(assigned_pod_deleted(a_pod("gone", node_name="n1")))
    assert bench.active == NAMES[:freed]
    # Those that are let go: one for all of them, then each on its way in.
    assert len(counting.asked) == 1 + (freed + 1 if freed else 0)
