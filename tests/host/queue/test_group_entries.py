"""Pod groups in the queue: the events of members and of group objects, and the end of a group's cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from berth_host.queue.events import QueueEvent, assigned_pod_deleted
from berth_host.queue.group_entries import Aside
from berth_host.queue.interfaces import GateQuestion, HintQuestion
from berth_host.queue.places import Place
from berth_host.queue.queued_group import GroupOutcome, QueuedGroupInfo
from berth_host.queue.registrations import Registration
from berth_sdk.events import ActionType
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, PodGroup
from berth_sdk.status import Status
from support.queue_parts import Plugins, QueueBench, SlowPlugin, a_pod, node_added

G = PodGroup(name="g", uid="uid-group-g", is_gang=True, min_count=2)
KEY = "podgroup/default/g"


def label_changed(pod: Pod) -> QueueEvent:
    return QueueEvent("Pod", ActionType.UPDATE_POD_LABEL, pod, pod)


class GroupBench(QueueBench):
    """A queue with one gate, which is closed for the pods in `closed`, and hints by name of the pod."""

    def __init__(self) -> None:
        self.closed: set[str] = set()
        self.asked: list[str] = []
        self.gated: list[str] = []
        self.helped: set[str] = set()
        any_pod = Registration(resource="Pod", action=int(ActionType.ALL), ask=True)
        node = Registration(resource="Node", action=int(ActionType.ADD), ask=True)
        super().__init__(
            Plugins(
                gates={"Gate": self.gate},
                registrations={"Gate": [any_pod], "Fit": [node]},
                hint=self.hint,
            )
        )

    def gate(self, question: GateQuestion) -> Status:
        name = question.pod.pod.name
        self.gated.append(name)
        return Status.unresolvable(f"{name} waits") if name in self.closed else Status.success()

    def hint(self, question: HintQuestion) -> bool:
        self.asked.append(question.pod.name)
        return question.pod.name in self.helped

    def member(self, name: str, group: str = "g", **fields: object) -> Pod:
        """A new member, a millisecond after the one before."""
        priority = int(fields.pop("priority", 0))  # type: ignore[call-overload]  # an int of the caller
        pod = self.pods.put(a_pod(name, priority, group_key=f"podgroup/default/{group}", **fields))
        self.queue.add(pod)
        self.clock.advance(0.001)
        return pod

    def group(self, group: PodGroup = G) -> None:
        self.queue.add_group(group)
        self.clock.advance(0.001)

    def entry(self, key: str = KEY) -> tuple[str, list[str]] | None:
        """The place of a group's entry and its members."""
        found = self.queue.places.find(key)
        return None if found is None else (found[0].value, [info.pod.name for info in found[1].pods()])

    def aside(self, which: Aside) -> list[str]:
        return [info.pod.name for info in self.queue.groups.aside(which)]

    def give_back(self, popped: QueuedGroupInfo, *names: str, fails: bool = False) -> None:
        for info in popped.pods():
            if info.pod.name in names:
                (self.fail if fails else self.reject)(info, *([] if fails else ["Fit"]))
            else:
                self.queue.done(info.uid)

    def record(self) -> QueuedGroupInfo:
        found = self.queue.places.find(KEY)
        assert found is not None
        assert isinstance(found[1], QueuedGroupInfo)
        return found[1]


@pytest.fixture
def bench() -> Iterator[GroupBench]:
    yield GroupBench()


# --- member pod added ----------------------------------------------------------------------------


def test_member_without_the_object_of_its_group_is_incomplete_and_never_popped(bench: GroupBench) -> None:
    bench.closed = {"a"}
    bench.member("a", nominated_node="n1")
    assert (bench.entry(), bench.aside(Aside.INCOMPLETE), bench.gated) == (None, ["a"], [])
    assert [pod.name for pod in bench.queue.nominated_to("n1")] == ["a"]
    bench.queue.activate([bench.pods.by_key["default/a"]])
    bench.queue.move_all(node_added())
    assert not bench.queue.has_ready
    assert bench.queue.pop() is None


def test_first_member_makes_an_entry_with_the_time_of_the_member(bench: GroupBench) -> None:
    bench.group()
    bench.clock.advance(0.5)
    bench.member("a")
    assert bench.entry() == ("active", ["a"])
    (info,) = bench.record().pods()
    assert bench.record().timestamp_us == info.timestamp_us


def test_member_joins_the_entry_in_active_and_the_gates_are_called_for_all(bench: GroupBench) -> None:
    bench.group()
    bench.member("a")
    bench.gated.clear()
    bench.closed = {"b"}
    bench.member("b")
    assert (bench.entry(), bench.gated) == (("unschedulable", ["a", "b"]), ["a", "b"])


def test_member_joins_the_entry_in_backoff_and_stays_behind_its_backoff(bench: GroupBench) -> None:
    rejected_group(bench, "a")
    bench.member("b")
    assert bench.entry() == ("backoff", ["a", "b"])
    assert bench.queue.pop() is None


def test_member_joins_a_gated_entry_without_a_call_of_its_gates(bench: GroupBench) -> None:
    bench.group()
    bench.closed = {"a"}
    bench.member("a")
    bench.gated.clear()
    bench.member("b")
    assert (bench.entry(), bench.gated) == (("unschedulable", ["a", "b"]), [])


def test_member_that_comes_during_the_cycle_of_its_group_is_pending(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    bench.member("b")
    assert (bench.entry(), bench.aside(Aside.PENDING)) == (None, ["b"])
    assert bench.queue.pop() is None
    bench.give_back(popped)
    bench.queue.group_attempted(popped, GroupOutcome.SUCCESS)
    assert (bench.entry(), bench.aside(Aside.PENDING)) == (("active", ["b"]), [])


# --- group objects -------------------------------------------------------------------------------


def test_object_of_the_group_releases_its_members_in_member_order(bench: GroupBench) -> None:
    for name, priority in (("late", 0), ("first", 0), ("high", 5)):
        bench.member(name, priority=priority)
    bench.member("other", group="h")
    bench.group()
    assert bench.entry() == ("active", ["high", "late", "first"])
    assert bench.aside(Aside.INCOMPLETE) == ["other"]
    assert bench.record().timestamp_us == bench.record().pods()[0].timestamp_us


def test_new_version_of_the_object_replaces_the_one_in_the_entry(bench: GroupBench) -> None:
    bench.group()
    bench.member("a")
    newer = replace(G, min_count=1, generation=2)
    bench.queue.update_group(G, newer)
    assert bench.record().group is newer


def test_group_without_its_object_waits_for_it_again(bench: GroupBench) -> None:
    bench.group()
    bench.member("a")
    bench.member("b")
    bench.queue.delete_group(G)
    assert (bench.entry(), bench.aside(Aside.INCOMPLETE)) == (None, ["a", "b"])
    bench.group()
    assert bench.entry() == ("active", ["a", "b"])


def test_group_deleted_in_its_cycle_gets_its_members_back_as_incomplete(bench: GroupBench) -> None:
    popped = popped_group(bench, "a", "b")
    bench.member("c")
    bench.queue.delete_group(G)
    bench.give_back(popped, "a", "b")
    bench.queue.group_attempted(popped, GroupOutcome.REJECTED)
    assert (bench.entry(), bench.aside(Aside.INCOMPLETE)) == (None, ["c", "a", "b"])
    assert bench.aside(Aside.PENDING) == []


def test_group_recreated_in_its_cycle_keeps_its_members_until_the_end(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    again = replace(G, uid="uid-new")
    bench.queue.delete_group(G)
    bench.queue.add_group(again)
    bench.give_back(popped, "a")
    assert bench.aside(Aside.PENDING) == ["a"]
    bench.queue.group_attempted(popped, GroupOutcome.ERROR)
    assert bench.entry() == ("backoff", ["a"])
    assert bench.record().group is again


def test_composite_group_is_one_entry_with_the_members_of_all_leaf_groups(bench: GroupBench) -> None:
    root = PodGroup(kind=COMPOSITE_POD_GROUP, name="root", uid="uid-root")
    leaves = [PodGroup(name=name, uid=name, parent_key=root.key) for name in ("x", "y")]
    bench.member("y0", group="y")
    bench.member("x0", group="x")
    for leaf in leaves:
        bench.group(leaf)
    assert bench.aside(Aside.INCOMPLETE) == ["y0", "x0"]
    bench.group(root)
    assert bench.entry(root.key) == ("active", ["x0", "y0"])
    bench.queue.delete_group(leaves[0])
    assert (bench.entry(root.key), bench.aside(Aside.INCOMPLETE)) == (("active", ["y0"]), ["x0"])
    bench.queue.delete_group(root)
    assert (bench.entry(root.key), bench.aside(Aside.INCOMPLETE)) == (None, ["x0", "y0"])


# --- member updated or deleted -------------------------------------------------------------------


def test_update_of_a_member_in_flight_is_remembered(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    pod = popped.pods()[0].pod
    newer = replace(pod, labels={"x": "1"})
    bench.queue.update(pod, newer, [label_changed(newer)])
    assert bench.queue.in_flight.event_count == 1
    assert bench.entry() is None


@pytest.mark.parametrize("where", ["incomplete", "pending", "active"])
def test_update_of_a_member_is_stored_where_the_member_is(bench: GroupBench, where: str) -> None:
    if where == "pending":
        popped_group(bench, "first")
    elif where == "active":
        bench.group()
    pod = bench.member("a")
    newer = replace(pod, labels={"x": "1"})
    bench.queue.update(pod, newer, [label_changed(newer)])
    held = bench.queue.find(newer)
    assert held is not None
    assert (held.place.value, held.info.pod) == (where, newer)


def test_update_of_a_member_is_judged_for_all_members_of_a_gated_group(bench: GroupBench) -> None:
    bench.group()
    bench.closed = {"a", "b"}
    bench.member("a")
    bench.member("b")
    bench.queue.activate([bench.pods.by_key["default/b"]])
    bench.asked.clear()
    bench.closed, bench.helped = set(), {"b"}
    pod = bench.pods.by_key["default/a"]
    bench.queue.update(pod, replace(pod, labels={"x": "1"}), [label_changed(pod)])
    assert (bench.asked, bench.entry()) == (["a", "b"], ("active", ["a", "b"]))


@pytest.mark.parametrize("where", ["incomplete", "pending", "active", "backoff", "unschedulable"])
def test_deleted_member_leaves_and_an_empty_entry_disappears(bench: GroupBench, where: str) -> None:
    if where == "backoff":
        rejected_group(bench, "a")
        pod = bench.pods.by_key["default/a"]
    else:
        if where == "pending":
            popped_group(bench, "first")
        elif where != "incomplete":
            bench.group()
        bench.closed = {"a"} if where == "unschedulable" else set()
        pod = bench.member("a")
    held = bench.queue.find(pod)
    assert held is not None
    assert held.place.value == where
    bench.queue.delete(pod)
    assert (bench.queue.find(pod), bench.entry(), bench.aside(Aside.INCOMPLETE)) == (None, None, [])


def test_group_stays_in_its_place_when_it_loses_a_member(bench: GroupBench) -> None:
    bench.group()
    bench.member("a")
    gone = bench.member("b")
    bench.gated.clear()
    bench.queue.delete(gone)
    assert (bench.entry(), bench.gated) == (("active", ["a"]), ["a"])


def test_activation_of_a_member_activates_its_group(bench: GroupBench) -> None:
    rejected_group(bench, "a", "b")
    bench.queue.activate([bench.pods.by_key["default/b"]])
    assert bench.entry() == ("active", ["a", "b"])


# --- PreEnqueue and events -----------------------------------------------------------------------


def test_one_closed_gate_keeps_the_whole_group_out(bench: GroupBench) -> None:
    bench.group()
    bench.member("a")
    bench.member("c")
    bench.closed = {"a", "b"}
    bench.member("b")
    entry = bench.record()
    assert (entry.gating_plugin, entry.gating_message) == ("Gate", "b waits")
    assert [info.gating_plugin for info in entry.pods()] == ["Gate", "", "Gate"]
    assert [info.unschedulable_plugins for info in entry.pods()] == [{"Gate"}, set(), {"Gate"}]


def test_late_answers_gate_each_member_by_its_own_plugin() -> None:
    slow, last = SlowPlugin(), SlowPlugin()
    bench = QueueBench(Plugins(gates={"Slow": slow.gate, "Last": last.gate}))
    bench.queue.add_group(G)
    for name in "abc":
        bench.queue.add(bench.pods.put(a_pod(name, group_key=KEY)))
    slow.gate_questions.clear()
    bench.queue.activate([bench.pods.by_key["default/a"]])
    of_a, of_b, of_c = slow.gate_questions
    bench.queue.gate_answered(of_c, Status.unresolvable("c waits"))
    bench.queue.gate_answered(of_a, Status.success())
    assert last.gate_questions == []
    bench.queue.gate_answered(of_b, Status.success())
    asked = [question.pod.pod.name for question in last.gate_questions]
    assert (asked, len(slow.gate_questions)) == (["a", "b"], 3)
    bench.queue.gate_answered(last.gate_questions[0], Status.unresolvable("a waits"))
    bench.queue.gate_answered(last.gate_questions[1], Status.success())
    found = bench.queue.places.find(KEY)
    assert found is not None
    assert (found[0], found[1].gating_plugin) == (Place.POOL, "Slow")
    assert {info.pod.name: (info.gating_plugin, info.unschedulable_plugins) for info in found[1].pods()} == {
        "a": ("Last", {"Last"}),
        "b": ("", set()),
        "c": ("Slow", {"Slow"}),
    }
    assert bench.queue.places.gates.open_count == 0


def test_members_that_join_while_a_gate_is_awaited_are_asked_about_only_if_it_opens() -> None:
    def released() -> tuple[QueueBench, SlowPlugin]:
        slow = SlowPlugin()
        bench = QueueBench(Plugins(gates={"Slow": slow.gate}))
        for name in "abc":
            bench.queue.add(bench.pods.put(a_pod(name, group_key=KEY)))
        bench.queue.add_group(G)
        return bench, slow

    bench, slow = released()
    bench.queue.gate_answered(slow.gate_questions[-1], Status.unresolvable("a waits"))
    assert {question.pod.pod.name for question in slow.gate_questions} == {"a"}
    assert {info.pod.name: info.gating_plugin for info in bench.queue.pods()} == {
        "a": "Slow",
        "b": "",
        "c": "",
    }
    bench, slow = released()
    for name in "abc":
        assert (bench.active, slow.gate_questions[-1].pod.pod.name) == ([], name)
        bench.queue.gate_answered(slow.gate_questions[-1], Status.success())
    assert bench.active == ["a", "b", "c"]


def test_answers_of_a_served_gate_stand_when_a_member_leaves() -> None:
    slow = SlowPlugin()
    bench = QueueBench(Plugins(gates={"Slow": slow.gate}, served=frozenset({"Slow"})))
    bench.queue.add_group(G)
    a, b = (bench.pods.put(a_pod(name, group_key=KEY)) for name in "ab")
    for pod in (a, b):
        bench.queue.add(pod)
        for question in slow.gate_questions:
            bench.queue.gate_answered(question, Status.success())
    assert bench.active == ["a", "b"]
    asked = len(slow.gate_questions)
    bench.queue.delete(a)
    assert (bench.active, len(slow.gate_questions)) == (["b"], asked)


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_event_counts_for_a_group_that_is_gated_only_later(*, several: bool) -> None:
    slow, late = SlowPlugin(), SlowPlugin()
    asked: list[str] = []

    def hint(question: HintQuestion) -> bool:
        asked.append(question.plugin)
        return True

    node = Registration(resource="Node", action=int(ActionType.ADD), ask=True)
    gates = {"Slow": slow.gate, "Late": late.gate}
    bench = QueueBench(Plugins(gates=gates, registrations={"Late": [node]}, hint=hint))
    bench.queue.add_group(G)
    bench.queue.add(bench.pods.put(a_pod("a", group_key=KEY)))
    for _ in range(2 if several else 1):
        bench.queue.move_all(node_added())
    bench.queue.gate_answered(slow.gate_questions[-1], Status.success())
    bench.queue.gate_answered(late.gate_questions[-1], Status.unresolvable("too early"))
    assert (asked, len(late.gate_questions)) == ([] if several else ["Late"], 2)
    bench.queue.gate_answered(late.gate_questions[-1], Status.success())
    bench.queue.gate_answered(slow.gate_questions[-1], Status.success())
    assert bench.active == ["a"]


def test_event_does_not_send_a_group_into_backoff_whose_gates_have_not_answered() -> None:
    slow = SlowPlugin()
    any_pod = Registration(resource="Pod", action=int(ActionType.ALL))
    bench = QueueBench(Plugins(gates={"Slow": slow.gate}, registrations={"Slow": [any_pod]}))
    bench.queue.add_group(G)
    bench.queue.add(bench.pods.put(a_pod("a", group_key=KEY)))
    bench.queue.gate_answered(slow.gate_questions[-1], Status.success())
    popped = bench.pop_group()
    bench.reject(popped.members[0], "Fit")
    bench.queue.group_attempted(popped, GroupOutcome.REJECTED)
    bench.queue.gate_answered(slow.gate_questions[-1], Status.success())
    assert bench.backing_off == ["a"]
    bench.queue.activate([bench.pods.by_key["default/a"]])
    assert bench.active == ["a"]
    bench.queue.add(bench.pods.put(a_pod("b", group_key=KEY)))
    assert bench.pool == ["a", "b"]
    bench.queue.move_all(label_changed(a_pod("stranger")))
    for question in slow.gate_questions[-2:]:
        bench.queue.gate_answered(question, Status.success())
    assert (bench.active, bench.backing_off) == (["a", "b"], [])


def test_event_that_the_hint_of_a_member_accepts_opens_the_gate(bench: GroupBench) -> None:
    bench.group()
    bench.closed = {"a", "b"}
    bench.member("a")
    bench.member("b")
    bench.queue.move_all(node_added())
    assert bench.entry() == ("unschedulable", ["a", "b"])
    bench.closed.clear()
    event = assigned_pod_deleted(a_pod("other"))
    # `b` was added to the gated group: no plugin rejected it, so that any event of the gate's plugin helps.
    bench.queue.move_all(event)
    assert bench.entry() == ("active", ["a", "b"])


def test_rejected_group_waits_for_its_backoff_and_for_no_event(bench: GroupBench) -> None:
    rejected_group(bench, "a", "b")
    bench.helped = {"a", "b"}
    bench.queue.move_all(node_added())
    assert (bench.entry(), bench.asked) == (("backoff", ["a", "b"]), [])
    assert not bench.queue.has_ready
    bench.clock.advance(2.1)
    bench.queue.flush_backoff()
    assert bench.entry() == ("active", ["a", "b"])


# --- after a cycle -------------------------------------------------------------------------------


def popped_group(bench: GroupBench, *names: str) -> QueuedGroupInfo:
    """Return a group that was popped with these members."""
    bench.group()
    for name in names:
        bench.member(name)
    return bench.pop_group()


def rejected_group(bench: GroupBench, *names: str) -> None:
    """A group whose cycle rejected all its members."""
    popped = popped_group(bench, *names)
    bench.give_back(popped, *names)
    bench.queue.group_attempted(popped, GroupOutcome.REJECTED)


def test_pop_counts_attempts_and_puts_all_members_in_flight(bench: GroupBench) -> None:
    popped = popped_group(bench, "a", "b")
    assert (popped.attempts, [info.attempts for info in popped.pods()]) == (1, [1, 1])
    assert (bench.in_flight, bench.queue.scheduling_cycle) == (["a", "b"], 1)


def test_group_without_members_left_is_gone_after_its_cycle(bench: GroupBench) -> None:
    popped = popped_group(bench, "a", "b")
    bench.give_back(popped)
    bench.queue.group_attempted(popped, GroupOutcome.SUCCESS)
    assert (bench.entry(), bench.in_flight, list(bench.queue.pods())) == (None, [], [])


def test_rejected_group_backs_off_among_the_errors(bench: GroupBench) -> None:
    popped = popped_group(bench, "a", "b")
    bench.clock.advance(0.2)
    bench.give_back(popped, "a", "b")
    assert bench.aside(Aside.PENDING) == ["a", "b"]
    bench.queue.group_attempted(popped, GroupOutcome.REJECTED)
    entry = bench.record()
    assert (entry.unschedulable_count, entry.consecutive_errors_count, entry.attempts) == (1, 0, 1)
    assert [(info.unschedulable_count, info.unschedulable_plugins) for info in entry.pods()] == [
        (1, {"Fit"})
    ] * 2
    assert entry.timestamp_us == entry.pods()[0].timestamp_us > popped.timestamp_us
    assert list(bench.queue.places.backoff.failed()) == [entry]


def test_failed_group_counts_an_error(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    bench.give_back(popped, "a", fails=True)
    bench.queue.group_attempted(popped, GroupOutcome.ERROR)
    entry = bench.record()
    assert (entry.unschedulable_count, entry.consecutive_errors_count) == (0, 1)
    assert bench.entry() == ("backoff", ["a"])


def test_rejection_ends_the_series_of_errors(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    for outcome in (GroupOutcome.ERROR, GroupOutcome.ERROR, GroupOutcome.REJECTED):
        bench.give_back(popped, "a", fails=outcome is GroupOutcome.ERROR)
        bench.queue.group_attempted(popped, outcome)
        bench.queue.activate([bench.pods.by_key["default/a"]])
        popped = bench.pop_group()
    assert (popped.unschedulable_count, popped.consecutive_errors_count, popped.attempts) == (1, 0, 4)


def test_members_left_after_a_success_are_tried_at_once_in_the_place_of_the_group(bench: GroupBench) -> None:
    rejected_group(bench, "a", "b")
    bench.clock.advance(2.1)
    bench.queue.flush_backoff()
    popped = bench.pop_group()
    bench.give_back(popped, "b")
    bench.queue.group_attempted(popped, GroupOutcome.SUCCESS)
    entry = bench.record()
    assert bench.entry() == ("active", ["b"])
    assert (entry.unschedulable_count, entry.timestamp_us) == (0, popped.timestamp_us)


def test_new_members_after_a_success_get_the_time_of_the_end(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    bench.member("b")
    bench.give_back(popped)
    bench.queue.group_attempted(popped, GroupOutcome.SUCCESS)
    assert bench.record().timestamp_us > popped.timestamp_us


def test_group_is_gated_after_its_cycle_if_a_gate_is_closed(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    bench.closed = {"a"}
    bench.give_back(popped, "a")
    bench.queue.group_attempted(popped, GroupOutcome.REJECTED)
    assert bench.entry() == ("unschedulable", ["a"])


def test_member_whose_bind_failed_after_the_cycle_is_tried_without_backoff(bench: GroupBench) -> None:
    popped = popped_group(bench, "a", "b")
    first, second = popped.pods()
    bench.queue.done(second.uid)
    bench.queue.group_attempted(popped, GroupOutcome.SUCCESS)
    bench.clock.advance(0.5)
    bench.fail(first)
    assert bench.entry() == ("active", ["a"])
    assert bench.record().timestamp_us == first.timestamp_us > popped.timestamp_us
    assert first.consecutive_errors_count == 1


def test_gated_group_is_flushed_as_one_entity(bench: GroupBench) -> None:
    bench.group()
    bench.closed = {"a"}
    bench.member("a")
    bench.member("b")
    bench.clock.advance(301)
    bench.closed.clear()
    assert bench.queue.flush_leftover() == 1
    assert bench.entry() == ("active", ["a", "b"])
    assert [info.was_flushed_from_unschedulable for info in bench.record().pods()] == [True, True]


def test_groups_and_pods_are_sorted_together_by_priority_and_time(bench: GroupBench) -> None:
    bench.add("first")
    bench.queue.add_group(replace(G, priority=3))
    bench.member("a", priority=9)
    bench.add("high", priority=5)
    assert [bench.pop_name() for _ in range(3)] == ["high", "a", "first"]


def test_counts_have_entities_by_type_and_members_beside_the_entries(bench: GroupBench) -> None:
    popped_group(bench, "a")
    bench.member("pending")
    bench.member("incomplete", group="h")
    bench.queue.add_group(PodGroup(name="i", uid="i"))
    bench.member("x", group="i")
    bench.member("y", group="i")
    bench.add("pod")
    pods = bench.queue.counts.pods()
    assert (pods["active"], pods["incomplete"], pods["pending"]) == (3, 1, 1)
    assert bench.queue.counts.entities() == {("active", "podgroup"): 1, ("active", "pod"): 1}


def test_group_that_failed_because_of_a_plugin_is_tried_when_the_plugin_recovers(bench: GroupBench) -> None:
    popped = popped_group(bench, "a")
    bench.fail(popped.pods()[0], "Remote")
    bench.queue.group_attempted(popped, GroupOutcome.ERROR)
    assert bench.entry() == ("backoff", ["a"])
    assert bench.queue.plugin_recovered("Remote") == 1
    assert bench.entry() == ("active", ["a"])


def test_place_of_a_member_is_that_of_its_group(bench: GroupBench) -> None:
    rejected_group(bench, "a")
    held = bench.queue.find(bench.pods.by_key["default/a"])
    assert held is not None
    assert (held.place, held.entity) == (Place.BACKOFF, bench.record())
