"""Random lives of pod groups and their members, compared with a slow and simple model of the queue."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from berth_host.queue.events import QueueEvent
from berth_host.queue.group_entries import Aside
from berth_host.queue.interfaces import GateQuestion, QueueConfig
from berth_host.queue.queued_group import GroupOutcome, QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.registrations import Registration
from berth_sdk.events import ActionType
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, PodGroup
from berth_sdk.status import Status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.queue_parts import START_S, Plugins, QueueBench, a_pod
from support.tiers import examples

NAMES = "abcdef"
ROOT = PodGroup(kind=COMPOSITE_POD_GROUP, name="root", uid="uid-root", priority=1)
GROUPS = {
    group.key: group
    for group in (
        ROOT,
        PodGroup(name="g", uid="uid-g"),
        PodGroup(name="x", uid="uid-x", parent_key=ROOT.key),
        PodGroup(name="y", uid="uid-y", parent_key=ROOT.key),
    )
}
LEAVES = sorted(key for key, group in GROUPS.items() if not group.is_composite)
OUTCOMES = st.sampled_from(list(GroupOutcome))
FATES = st.lists(st.sampled_from(["bound", "rejected", "failed", "binding"]), min_size=len(NAMES))


@dataclass
class Member:
    """The model of one member; times in milliseconds."""

    group: str
    priority: int
    arrived_ms: int
    place: str = ""  # incomplete, pending, entry, cycle, binding
    attempts: int = 0
    rejectors: set[str] = field(default_factory=set)


@dataclass
class Entry:
    """The model of one group's entry."""

    arrived_ms: int
    place: str = ""  # active, backoff, pool, cycle
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    members: set[str] = field(default_factory=set)
    gated: bool = False

    @property
    def expiry_s(self) -> int:
        count = self.errors or self.rejections
        return (self.arrived_ms + min(1000 * 2 ** (count - 1), 10_000)) // 1000 if count else 0

    def waits(self, now_ms: int) -> bool:
        return bool(self.errors or self.rejections) and self.expiry_s >= now_ms // 1000


class GroupMachine(RuleBasedStateMachine):
    """`closed`: members whose gate is closed. `seen`: the group objects that the queue has."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[str] = set()
        labels = Registration(resource="Pod", action=int(ActionType.UPDATE_POD_LABEL))
        nodes = Registration(resource="Node", action=int(ActionType.ADD))
        plugins = Plugins(gates={"Gate": self.gate}, registrations={"Gate": [labels], "Fit": [nodes]})
        self.bench = QueueBench(plugins, QueueConfig(pod_max_in_unschedulable_pods_s=1e9))
        self.queue = self.bench.queue
        self.queue.start()
        self.members: dict[str, Member] = {}
        self.entries: dict[str, Entry] = {}
        self.seen: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.infos: dict[str, QueuedPodInfo] = {}
        self.cycle: tuple[str, QueuedGroupInfo] | None = None
        self.tried: set[str] = set()
        self.now_ms = 0
        self.serial = 0

    def gate(self, question: GateQuestion) -> Status:
        closed = question.pod.pod.name in self.closed
        return Status.unresolvable("closed") if closed else Status.success()

    # --- the model's own rules ---------------------------------------------------------------

    def root_of(self, key: str) -> str:
        """Return the key of the root; "" while an object is missing."""
        parent = GROUPS[key].parent_key
        return "" if key not in self.seen else self.root_of(parent) if parent else key

    def order(self, name: str) -> tuple[object, ...]:
        member = self.members[name]
        return member.group, -member.priority, -member.attempts, member.arrived_ms, name

    def put(self, name: str) -> None:
        """Place a member that is in no store."""
        member = self.members[name]
        root = self.root_of(member.group)
        if not root:
            member.place = "incomplete"
        elif root in self.entries and self.entries[root].place == "cycle":
            member.place = "pending"
        else:
            member.place = "entry"
            entry = self.entries.get(root)
            if entry is None:
                entry = self.entries[root] = Entry(member.arrived_ms, "active")
            entry.members.add(name)
            self.put_back(entry)

    def put_back(self, entry: Entry) -> None:
        if entry.place != "pool":
            self.enter(entry, after_backoff=entry.place == "backoff")

    def enter(self, entry: Entry, *, after_backoff: bool) -> None:
        gated = entry.members & self.closed
        for name in gated:
            self.members[name].rejectors.add("Gate")
        if gated:
            entry.place, entry.gated = "pool", True
        else:
            entry.gated = False
            entry.place = "backoff" if after_backoff and entry.waits(self.now_ms) else "active"

    def happened(self, plugin: str) -> None:
        """Apply an event of the gate's plugin to the gated groups; no other plugin's event helps them."""
        for entry in self.entries.values():
            if entry.place == "pool" and plugin == "Gate" and self.may_help(entry):
                self.enter(entry, after_backoff=True)

    def may_help(self, entry: Entry) -> bool:
        sets = [self.members[name].rejectors for name in entry.members]
        return any(not rejectors or "Gate" in rejectors for rejectors in sets)

    def take_out(self, name: str) -> None:
        """Take a member out of its entry."""
        for key, entry in list(self.entries.items()):
            if name in entry.members and entry.place != "cycle":
                entry.members.remove(name)
                if not entry.members:
                    del self.entries[key]

    # --- steps -------------------------------------------------------------------------------

    @rule(ms=st.integers(1, 4000))
    def wait(self, ms: int) -> None:
        self.advance(ms)

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        for second in range(self.now_ms // 1000 + 1, end_ms // 1000 + 1):
            self.now_ms = second * 1000
            for entry in self.entries.values():
                if entry.place == "backoff" and not entry.waits(self.now_ms):
                    entry.place = "active"
        self.now_ms = end_ms
        self.bench.clock.advance_to(end_ms / 1000)

    def tick(self) -> None:
        """Every step has its own millisecond, so that no two members are equal."""
        self.advance(1)

    @initialize()
    def begin_with_a_group(self) -> None:
        self.put_object(LEAVES[0])
        for name in "ab":
            self.arrive(name, LEAVES[0], 0, closed=False)

    @precondition(lambda self: len(self.members) < len(NAMES))
    @rule(data=st.data(), key=st.sampled_from(LEAVES), priority=st.integers(0, 1), closed=st.booleans())
    def add(self, data: st.DataObject, key: str, priority: int, closed: bool) -> None:
        absent = sorted(set(NAMES) - self.members.keys())
        self.arrive(data.draw(st.sampled_from(absent)), key, priority, closed=closed)

    def arrive(self, name: str, key: str, priority: int, *, closed: bool) -> None:
        self.tick()
        self.serial += 1
        (self.closed.add if closed else self.closed.discard)(name)
        self.members[name] = Member(key, priority, self.now_ms)
        self.put(name)
        pod = a_pod(name, priority, uid=f"uid-{self.serial}", group_key=key)
        self.pods[name] = self.bench.pods.put(pod)
        self.queue.add(pod)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.tick()
        name = data.draw(st.sampled_from(sorted(self.members)))
        member, pod = self.members[name], self.pods[name]
        del self.bench.pods.by_key[pod.key]
        if member.place in ("cycle", "binding"):
            # The failure handler, or the end of the binding, finds the pod gone.
            self.queue.delete(pod)
            self.queue.done(pod.uid)
            self.infos.pop(name, None)
            del self.members[name]
            return
        root = self.root_of(member.group)
        self.take_out(name)
        del self.members[name]
        if member.place == "entry" and root in self.entries:
            self.put_back(self.entries[root])
        self.queue.delete(pod)

    @rule(key=st.sampled_from(sorted(GROUPS)))
    def change_object(self, key: str) -> None:
        if key in self.seen:
            self.drop_object(key)
        else:
            self.put_object(key)

    def put_object(self, key: str) -> None:
        self.tick()
        self.seen.add(key)
        released = [name for name, member in self.members.items() if member.place == "incomplete"]
        for name in sorted(
            (one for one in released if self.root_of(self.members[one].group)), key=self.order
        ):
            self.put(name)
        self.queue.add_group(GROUPS[key])

    def drop_object(self, key: str) -> None:
        self.tick()
        self.seen.discard(key)
        for name, member in self.members.items():
            if member.place in ("entry", "pending") and not self.root_of(member.group):
                if member.place == "entry":
                    self.take_out(name)
                member.place = "incomplete"
        root = GROUPS[key].parent_key or key
        entry = self.entries.get(root)
        if entry is not None and entry.place != "cycle" and GROUPS[key].parent_key:
            self.lost_members(entry, key)
        self.queue.delete_group(GROUPS[key])

    def lost_members(self, entry: Entry, key: str) -> None:
        """The gates are called again only if the entry had members of the group that is gone."""
        if any(member.group == key for member in self.members.values()):
            held = [info.pod.group_key for info in self.record(ROOT.key)]
            if key in held:
                self.put_back(entry)

    def record(self, key: str) -> list[QueuedPodInfo]:
        found = self.queue.places.find(key)
        return [] if found is None else list(found[1].pods())

    @rule(data=st.data())
    def turn_gate(self, data: st.DataObject) -> None:
        if self.members:
            name = data.draw(st.sampled_from(sorted(self.members)))
            (self.closed.discard if name in self.closed else self.closed.add)(name)

    @rule(plugin=st.sampled_from(["Gate", "Fit"]))
    def event(self, plugin: str) -> None:
        self.tick()
        self.happened(plugin)
        if plugin == "Gate":
            self.queue.move_all(QueueEvent("Pod", ActionType.UPDATE_POD_LABEL))
        else:
            self.queue.move_all(QueueEvent("Node", ActionType.ADD))

    @precondition(lambda self: self.members)
    @rule(data=st.data(), label=st.integers(0, 9))
    def update(self, data: st.DataObject, label: int) -> None:
        self.tick()
        name = data.draw(st.sampled_from(sorted(self.members)))
        old = self.pods[name]
        new = self.pods[name] = self.bench.pods.put(replace(old, labels={"x": str(label)}))
        member = self.members[name]
        entry = self.entries.get(self.root_of(member.group))
        if member.place == "entry" and entry is not None and entry.place == "pool" and self.may_help(entry):
            self.enter(entry, after_backoff=True)
        self.queue.update(old, new, [QueueEvent("Pod", ActionType.UPDATE_POD_LABEL, old, new)])

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        self.tick()
        name = data.draw(st.sampled_from(sorted(self.members)))
        entry = self.entries.get(self.root_of(self.members[name].group))
        if entry is not None and entry.place == "pool":
            self.enter(entry, after_backoff=False)
        elif entry is not None and entry.place == "backoff":
            entry.place = "active"
        self.queue.activate([self.pods[name]])

    @precondition(lambda self: self.cycle is None)
    @rule()
    def pop(self) -> None:
        self.tick()
        ready = [key for key, entry in self.entries.items() if entry.place == "active"]
        want = min(ready, key=self.rank, default=None)
        popped = self.queue.pop()
        assert not isinstance(popped, QueuedPodInfo)
        assert (popped.key if popped else None) == want
        if popped is None or want is None:
            return
        entry = self.entries[want]
        entry.place = "cycle"
        entry.attempts += 1
        assert [info.pod.name for info in popped.pods()] == sorted(entry.members, key=self.order)
        for info in popped.pods():
            member = self.members[info.pod.name]
            member.place, member.attempts = "cycle", member.attempts + 1
            self.infos[info.pod.name] = info
        self.tried = {self.infos[name].uid for name in entry.members}
        self.cycle = want, popped

    def rank(self, key: str) -> tuple[int, int]:
        return -GROUPS[key].priority, self.entries[key].arrived_ms

    @precondition(lambda self: self.cycle is not None)
    @rule(fates=FATES, outcome=OUTCOMES)
    def end(self, fates: list[str], outcome: GroupOutcome) -> None:
        self.end_cycle(fates, outcome)

    def end_cycle(self, fates: list[str], outcome: GroupOutcome) -> None:
        self.tick()
        assert self.cycle is not None
        key, popped = self.cycle
        for info, fate in zip(popped.pods(), fates, strict=False):
            name = info.pod.name
            if self.infos.get(name) is info:
                self.end_member(name, fate)
        self.cycle = None
        entry = self.entries.pop(key)
        left = {
            name
            for name, member in self.members.items()
            if member.place == "pending" and self.root_of(member.group) == key
        }
        if left:
            self.entries[key] = entry
            self.end_entry(entry, left, outcome)
        self.queue.group_attempted(popped, outcome)

    def end_entry(self, entry: Entry, left: set[str], outcome: GroupOutcome) -> None:
        entry.members = left
        for name in left:
            self.members[name].place = "entry"
        if outcome is GroupOutcome.SUCCESS:
            entry.rejections = entry.errors = 0
            if not any(self.pods[name].uid in self.tried for name in left):
                entry.arrived_ms = self.now_ms
        elif outcome is GroupOutcome.REJECTED:
            entry.rejections, entry.errors, entry.arrived_ms = entry.rejections + 1, 0, self.now_ms
        else:
            entry.errors, entry.arrived_ms = entry.errors + 1, self.now_ms
        self.enter(entry, after_backoff=outcome is not GroupOutcome.SUCCESS)

    def end_member(self, name: str, fate: str) -> None:
        member, info = self.members[name], self.infos[name]
        if fate == "binding":
            member.place = "binding"
            return
        del self.infos[name]
        if fate == "bound":
            del self.members[name]
            del self.bench.pods.by_key[info.key]
            self.queue.done(info.uid)
            return
        member.rejectors = {"Fit"} if fate == "rejected" else set()
        member.arrived_ms = self.now_ms
        self.put(name)
        info.ungate()
        info.replace_pod(self.pods[name])
        (self.bench.fail if fate == "failed" else lambda one: self.bench.reject(one, "Fit"))(info)

    @precondition(lambda self: self.cycle is None)
    @rule(fate=st.sampled_from(["failed", "rejected"]))
    def attempt(self, fate: str) -> None:
        """Pop and end at once without a place for anyone, so that runs get beyond first attempts."""
        if not self.queue.has_ready:
            self.advance(11_000)  # the longest backoff is over
        self.pop()
        if self.cycle is None:
            return
        rejected = fate == "rejected"
        self.end_cycle([fate] * len(NAMES), GroupOutcome.REJECTED if rejected else GroupOutcome.ERROR)

    @rule(data=st.data(), fate=st.sampled_from(["bound", "failed", "rejected"]))
    def end_binding(self, data: st.DataObject, fate: str) -> None:
        binding = sorted(name for name, member in self.members.items() if member.place == "binding")
        if binding:
            self.tick()
            self.end_member(data.draw(st.sampled_from(binding)), fate)

    # --- what must hold after every step -----------------------------------------------------

    @invariant()
    def every_member_is_in_one_place(self) -> None:
        groups = self.queue.groups
        found = {
            "incomplete": [info.pod.name for info in groups.aside(Aside.INCOMPLETE)],
            "pending": [info.pod.name for info in groups.aside(Aside.PENDING)],
            "entry": [info.pod.name for entity in self.queue.places for info in entity.pods()],
            "flight": [info.pod.name for info in self.queue.in_flight],
        }
        for place, names in found.items():
            places = ("cycle", "binding") if place == "flight" else (place,)
            want = [name for name, member in self.members.items() if member.place in places]
            assert sorted(names) == sorted(want), place

    @invariant()
    def entries_agree(self) -> None:
        places = self.queue.places
        assert not list(places.backoff.rejected())
        found = {
            "active": [entity.key for entity in places.active],
            "backoff": [entity.key for entity in places.backoff.failed()],
            "pool": [entity.key for entity in places.pool],
        }
        for place, keys in found.items():
            want = [key for key, entry in self.entries.items() if entry.place == place]
            assert sorted(keys) == sorted(want), place
        assert found["active"] == sorted(found["active"], key=self.rank)

    @invariant()
    def records_agree(self) -> None:
        for entity in self.queue.places:
            entry = self.entries[entity.key]
            names = [info.pod.name for info in entity.pods()]
            assert names == sorted(entry.members, key=self.order)
            assert (entity.attempts, entity.unschedulable_count, entity.consecutive_errors_count) == (
                entry.attempts,
                entry.rejections,
                entry.errors,
            )
            assert entity.timestamp_us == round(START_S * 1e6) + entry.arrived_ms * 1000
            assert entity.is_gated is (entry.place == "pool")
            for info in entity.pods():
                member = self.members[info.pod.name]
                assert (info.pod, info.attempts) == (self.pods[info.pod.name], member.attempts)
                assert info.unschedulable_plugins == member.rejectors

    @invariant()
    def queue_says_whether_a_group_is_ready(self) -> None:
        assert self.queue.has_ready is any(entry.place == "active" for entry in self.entries.values())


TestGroupMachine = pytest.mark.slow(GroupMachine.TestCase)
TestGroupMachine.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
