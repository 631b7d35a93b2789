"""Random lives of pods, compared with a slow and simple model: one record and one place for each pod."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import GateQuestion, QueueConfig
from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo, pods_of
from berth_host.queue.registrations import Registration
from berth_sdk.events import TARGET_POD, ActionType
from berth_sdk.status import Status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.queue_parts import START_S, Plugins, QueueBench, a_pod, node_added
from support.tiers import examples

NAMES = "abcde"
REJECTORS = st.sets(st.sampled_from(["Node", "Label"]), min_size=1)
PENDING = st.sets(st.sampled_from(["Node", "Label"]))
MAX_IN_POOL_MS = 30_000
HELPED_BY = {"node": "Node", "label": "Label"}


@dataclass
class Model:
    """The model of one pod; times in milliseconds."""

    uid: str
    priority: int
    arrived_ms: int
    place: str = "active"  # or backoff, pool, flight
    flushed_ms: int = 0
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    rejectors: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gated: bool = False
    events: list[str] = field(default_factory=list)  # since the pop

    @property
    def wait_ms(self) -> int:
        count = self.errors or self.rejections
        return min(1000 * 2 ** (count - 1), 10_000) if count else 0

    @property
    def expiry_s(self) -> int:
        return (self.arrived_ms + self.wait_ms) // 1000

    def waits(self, now_ms: int) -> bool:
        return bool(self.wait_ms) and self.expiry_s >= now_ms // 1000

    def help_of(self, event: str) -> int:
        """Return how an event helps a pod: 0 not, 1 after the backoff, 2 at once."""
        if event in ("wildcard", "for another pod"):
            return int(event == "wildcard")
        plugin = HELPED_BY[event]
        if not self.rejectors | self.pending:
            return 1
        return 2 if plugin in self.pending else int(plugin in self.rejectors)


class QueueMachine(RuleBasedStateMachine):
    """`closed`: pods whose gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()
        plugins = Plugins(
            registrations={
                "Node": [Registration(resource="Node", action=int(ActionType.ADD))],
                "Label": [Registration(resource="Pod", action=int(ActionType.UPDATE_POD_LABEL))],
                "Gate": [],
            },
            gates={"Gate": self.gate},
        )
        limits = QueueConfig(pod_max_in_unschedulable_pods_s=MAX_IN_POOL_MS / 1000)
        self.bench = QueueBench(plugins, limits)
        self.queue = self.bench.queue
        self.queue.start()
        self.models: dict[str, Model] = {}
        self.flying: dict[str, QueuedPodInfo] = {}
        self.now_ms = 0
        self.serial = 0
        self.pops = 0

    def gate(self, question: GateQuestion) -> Status:
        closed = question.pod.pod.name in self.closed
        return Status.unresolvable("closed") if closed else Status.success()

    # --- the model's own rules ---------------------------------------------------------------

    def tick(self) -> None:
        """Every step has its own millisecond, so that no two pods are equal."""
        self.advance(1)

    def settle(self, name: str, strength: int) -> None:
        """Move a pod to the place for an answer of this strength."""
        model = self.models[name]
        if not strength:
            model.place = "pool"
        elif name in self.closed:
            model.place, model.gated = "pool", True
            model.rejectors.add("Gate")
        else:
            model.gated = False
            model.place = "backoff" if strength == 1 and model.waits(self.now_ms) else "active"

    def happened(self, event: str) -> None:
        for name, model in self.models.items():
            if model.place == "flight":
                model.events.append(event)
            elif model.place == "pool" and not model.gated and (strength := model.help_of(event)):
                self.settle(name, strength)

    def pass_second(self) -> None:
        for model in self.models.values():
            if model.place == "backoff" and not model.waits(self.now_ms):
                model.place = "active"

    def pass_leftover(self) -> None:
        due = [
            (name, model)
            for name, model in self.models.items()
            if model.place == "pool"
            and self.now_ms - max(model.arrived_ms, model.flushed_ms) > MAX_IN_POOL_MS
        ]
        for name, model in due:
            model.flushed_ms = self.now_ms
            self.settle(name, 1)
        if due:
            for model in self.models.values():
                if model.place == "flight":
                    model.events.append("wildcard")

    # --- steps -------------------------------------------------------------------------------

    @rule(ms=st.one_of(st.integers(1, 2500), st.integers(1, 60_000)))
    def wait(self, ms: int) -> None:
        self.advance(ms)

    @rule(period_ms=st.sampled_from([1000, 30_000]))
    def wait_until_just_before(self, period_ms: int) -> None:
        """The next step, one millisecond later, falls on the boundary itself."""
        self.advance(max(1, period_ms - self.now_ms % period_ms - 1))

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        for second in range(self.now_ms // 1000 + 1, end_ms // 1000 + 1):
            self.now_ms = second * 1000
            self.pass_second()
            if second % 30 == 0:
                self.pass_leftover()
        self.now_ms = end_ms
        self.bench.clock.advance_to(end_ms / 1000)

    @initialize()
    def begin_with_some(self) -> None:
        for name in "abc":
            self.arrive(name, 0, closed=False)

    @precondition(lambda self: len(self.models) < len(NAMES))
    @rule(data=st.data(), priority=st.integers(0, 2), closed=st.booleans())
    def add(self, data: st.DataObject, priority: int, closed: bool) -> None:
        absent = sorted(set(NAMES) - self.models.keys())
        self.arrive(data.draw(st.sampled_from(absent)), priority, closed=closed)

    def arrive(self, name: str, priority: int, *, closed: bool) -> None:
        self.tick()
        self.serial += 1
        (self.closed.add if closed else self.closed.discard)(name)
        uid = f"uid-{self.serial}"
        self.models[name] = Model(uid, priority, self.now_ms)
        self.settle(name, 2)
        self.queue.add(self.bench.pods.put(a_pod(name, priority, uid=uid)))

    @rule()
    def pop(self) -> None:
        self.tick()
        ready = [name for name, model in self.models.items() if model.place == "active"]
        want = min(ready, key=self.rank, default=None)
        if want is None:
            early = [
                name
                for name, model in self.models.items()
                if model.place == "backoff" and model.rejectors | model.pending
            ]
            want = min(early, key=lambda name: (self.models[name].expiry_s, self.rank(name)), default=None)
        info = self.queue.pop()
        assert not isinstance(info, QueuedGroupInfo)
        assert (info.pod.name if info else None) == want
        if info is not None and want is not None:
            model = self.models[want]
            model.place, model.events = "flight", []
            model.attempts += 1
            self.pops += 1
            self.flying[info.uid] = info

    def rank(self, name: str) -> tuple[int, int]:
        model = self.models[name]
        return -model.priority, model.arrived_ms

    @precondition(lambda self: self.queue.has_ready)
    @rule(rejectors=REJECTORS, pending=PENDING, fails=st.booleans())
    def attempt(self, rejectors: set[str], pending: set[str], fails: bool) -> None:
        """Pop and end at once, so that runs get beyond first attempts."""
        before = set(self.flying)
        self.pop()
        for uid in self.flying.keys() - before:
            if fails:
                self.end_in_error(self.flying.pop(uid))
            else:
                self.end_rejected(self.flying.pop(uid), rejectors, pending)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), rejectors=REJECTORS, pending=PENDING)
    def reject(self, data: st.DataObject, rejectors: set[str], pending: set[str]) -> None:
        self.end_rejected(self.one_flying(data), rejectors, pending)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.end_in_error(self.one_flying(data))

    def one_flying(self, data: st.DataObject) -> QueuedPodInfo:
        return self.flying.pop(data.draw(st.sampled_from(sorted(self.flying))))

    def end_rejected(self, info: QueuedPodInfo, rejectors: set[str], pending: set[str]) -> None:
        self.tick()
        model = self.models[info.pod.name]
        model.rejectors, model.pending, model.gated = set(rejectors), set(pending), False
        model.rejections, model.errors, model.arrived_ms = model.rejections + 1, 0, self.now_ms
        strongest = max((model.help_of(event) for event in model.events), default=0)
        self.settle(info.pod.name, strongest)
        info.ungate()
        self.bench.reject(info, *rejectors, pending=sorted(pending))

    def end_in_error(self, info: QueuedPodInfo) -> None:
        self.tick()
        model = self.models[info.pod.name]
        model.rejectors, model.pending, model.gated = set(), set(), False
        model.errors, model.arrived_ms = model.errors + 1, self.now_ms
        self.settle(info.pod.name, 1)
        info.ungate()
        self.bench.fail(info)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        self.tick()
        info = self.one_flying(data)
        del self.models[info.pod.name]
        self.queue.done(info.uid)
        self.queue.delete(info.pod)

    @rule()
    def node_comes(self) -> None:
        self.tick()
        self.happened("node")
        self.queue.move_all(node_added())

    def one_of(self, data: st.DataObject) -> tuple[str, Model]:
        name = data.draw(st.sampled_from(sorted(self.models)))
        return name, self.models[name]

    @precondition(lambda self: self.models)
    @rule(data=st.data(), opens=st.booleans())
    def label(self, data: st.DataObject, opens: bool) -> None:
        """The pod itself is changed; its gate may open with it."""
        name, model = self.one_of(data)
        self.tick()
        if opens:
            self.closed.discard(name)
        if model.place == "flight":
            for other in self.models.values():
                if other.place == "flight":
                    other.events.append("label")
        elif model.place == "pool" and (strength := model.help_of("label")):
            self.settle(name, strength)
        old = self.bench.pods.by_key[f"default/{name}"]
        new = self.bench.pods.put(replace(old, resource_version=f"{old.resource_version}0"))
        self.queue.update(old, new, [QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, old, new)])

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        name, model = self.one_of(data)
        self.tick()
        if model.place == "flight":
            for other in self.models.values():
                if other.place == "flight":
                    other.events.append("wildcard" if other is model else "for another pod")
        elif model.place == "backoff":
            model.place = "active"
        elif model.place == "pool":
            self.settle(name, 2)
        self.queue.activate([self.bench.pods.by_key[f"default/{name}"]])

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """A pod in flight stays there until its attempt ends; the model drops it with its attempt."""
        name, model = self.one_of(data)
        self.tick()
        del self.models[name]
        pod = self.bench.pods.by_key.pop(f"default/{name}")
        self.queue.delete(pod)
        if model.place == "flight":
            del self.flying[model.uid]
            self.queue.done(model.uid)

    # --- what must hold after every step -----------------------------------------------------

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        places = self.queue.places
        found = {
            "active": [info.pod.name for info in pods_of(places.active)],
            "backoff": [
                info.pod.name for info in pods_of((*places.backoff.rejected(), *places.backoff.failed()))
            ],
            "pool": [info.pod.name for info in pods_of(places.pool)],
            "flight": [info.pod.name for info in self.queue.in_flight],
        }
        for place, names in found.items():
            want = [name for name, model in self.models.items() if model.place == place]
            assert sorted(names) == sorted(want), place

    @invariant()
    def orders_are_right(self) -> None:
        active = [info.pod.name for info in pods_of(self.queue.places.active)]
        assert active == sorted(active, key=self.rank)
        for heap in (self.queue.places.backoff.rejected(), self.queue.places.backoff.failed()):
            names = [info.pod.name for info in pods_of(heap)]
            assert names == sorted(names, key=lambda name: (self.models[name].expiry_s, self.rank(name)))

    @invariant()
    def records_agree(self) -> None:
        places = self.queue.places
        backoff = places.backoff
        for info in (
            *places.active,
            *backoff.rejected(),
            *backoff.failed(),
            *places.pool,
            *self.queue.in_flight,
        ):
            model = self.models[info.pod.name]
            assert info.uid == model.uid
            assert (info.attempts, info.unschedulable_count) == (model.attempts, model.rejections)
            assert info.consecutive_errors_count == model.errors
            assert info.timestamp_us == round(START_S * 1e6) + model.arrived_ms * 1000
            assert (info.unschedulable_plugins, info.pending_plugins) == (model.rejectors, model.pending)
            assert info.is_gated == model.gated
        assert self.queue.scheduling_cycle == self.pops

    @invariant()
    def events_in_flight_are_kept_and_trimmed(self) -> None:
        in_flight = self.queue.in_flight
        kept = {info.pod.name: len(in_flight.events_since(info.uid) or ()) for info in in_flight}
        assert kept == {name: len(self.models[name].events) for name in kept}
        assert in_flight.event_count == max(kept.values(), default=0)
        log = in_flight.log()
        assert not log or isinstance(log[0], QueuedPodInfo)

    @invariant()
    def pop_is_announced(self) -> None:
        poppable = any(
            model.place == "active" or (model.place == "backoff" and model.rejectors | model.pending)
            for model in self.models.values()
        )
        assert self.queue.has_ready == poppable


TestQueueMachine = pytest.mark.slow(QueueMachine.TestCase)
TestQueueMachine.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
