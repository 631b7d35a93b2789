"""PreEnqueue: gated pods, and gates that answer late."""

from __future__ import annotations

from dataclasses import replace

from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import Gate, GateQuestion
from berth_host.queue.queued_pod import pods_of
from berth_host.queue.registrations import Registration
from berth_sdk.events import TARGET_POD, ActionType
from berth_sdk.status import Status
from support.queue_parts import NODE_ADD, Plugins, QueueBench, SlowPlugin, a_pod, node_added

GATE_EVENT = Registration(resource="Pod", action=int(ActionType.UPDATE_POD_LABEL))


class Door:
    """A gate that the test opens and closes."""

    def __init__(self, *, closed: bool = True) -> None:
        self.closed = closed
        self.asked: list[str] = []

    def __call__(self, question: GateQuestion) -> Status:
        self.asked.append(question.pod.pod.name)
        return Status.unresolvable("closed") if self.closed else Status.success()


def bench_with(**gates: Gate) -> QueueBench:
    registrations = {"Fit": [NODE_ADD], **{name: [GATE_EVENT] for name in gates}}
    return QueueBench(Plugins(gates=gates, registrations=registrations))


def label_changed(name: str) -> QueueEvent:
    return QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, a_pod(name), a_pod(name))


def update(bench: QueueBench, name: str, action: ActionType = ActionType.UPDATE_POD_LABEL) -> None:
    old = bench.pods.by_key[f"default/{name}"]
    new = bench.pods.put(replace(old, resource_version=old.resource_version + "0"))
    bench.queue.update(old, new, [QueueEvent(TARGET_POD, action, old, new)])


def test_closed_gate_keeps_the_pod_in_the_pool() -> None:
    bench = bench_with(Gate=Door())
    bench.add("a")
    (info,) = pods_of(bench.queue.places.pool)
    assert (bench.active, bench.pool, info.gating_plugin) == ([], ["a"], "Gate")
    assert (info.unschedulable_plugins, info.gating_message) == ({"Gate"}, "closed")
    assert info.initial_attempt_timestamp_us is None
    assert bench.notes.rejected == [("Gate", "default-scheduler")]


def test_no_gate_after_a_closed_one_is_called() -> None:
    first, second = Door(), Door()
    bench = bench_with(First=first, Second=second)
    bench.add("a")
    assert (first.asked, second.asked) == (["a"], [])


def test_gate_that_keeps_the_pod_is_called_first_and_alone_while_it_stays_closed() -> None:
    first, second = Door(closed=False), Door()
    bench = bench_with(First=first, Second=second)
    bench.add("a")
    first.asked.clear()
    update(bench, "a")
    assert (first.asked, second.asked) == ([], ["a", "a"])


def test_update_of_the_pod_that_opens_the_gate_lets_it_in() -> None:
    door = Door()
    bench = bench_with(Gate=door)
    bench.add("a")
    door.closed = False
    update(bench, "a")
    assert (bench.active, bench.pool) == (["a"], [])
    (info,) = bench.queue.places.active
    assert (info.is_gated, info.gating_message) == (False, "")


def test_event_that_the_gate_did_not_register_leaves_a_gated_pod_alone() -> None:
    door = Door()
    bench = bench_with(Gate=door)
    bench.add("a")
    door.closed = False
    bench.queue.move_all(node_added())
    assert bench.pool == ["a"]
    bench.queue.move_all(label_changed("other"))
    assert bench.active == ["a"]


def test_activation_asks_the_gate_again() -> None:
    door = Door()
    bench = bench_with(Gate=door)
    bench.add("a")
    bench.queue.activate([a_pod("a")])
    assert bench.pool == ["a"]
    door.closed = False
    bench.queue.activate([a_pod("a")])
    assert bench.active == ["a"]


def test_gate_is_asked_before_the_backoff_and_not_after_it() -> None:
    door = Door(closed=False)
    bench = bench_with(Gate=door)
    bench.add("a")
    bench.fail(bench.pop())
    assert (door.asked, bench.backing_off) == (["a", "a"], ["a"])
    bench.clock.advance(3)
    bench.queue.flush_backoff()
    assert (door.asked, bench.active) == (["a", "a"], ["a"])


def test_gate_that_closes_after_an_error_makes_it_a_rejection() -> None:
    door = Door(closed=False)
    bench = bench_with(Gate=door)
    bench.add("a")
    info = bench.pop()
    door.closed = True
    bench.fail(info)
    assert (bench.pool, info.unschedulable_plugins) == (["a"], {"Gate"})


def test_gate_that_raises_counts_as_closed() -> None:
    def broken(question: GateQuestion) -> Status:
        raise RuntimeError("no")

    bench = bench_with(Gate=broken)
    bench.add("a")
    assert bench.pool == ["a"]
    assert bench.notes.raised == [("Gate", "PreEnqueue")]


def test_gate_gets_whether_victims_are_evicted_for_the_pod() -> None:
    def gate(question: GateQuestion) -> Status:
        return Status.unresolvable("busy") if question.pod.victims_pending else Status.success()

    bench = bench_with(Gate=gate)
    bench.evicting.add("uid-a")
    bench.add("a", "b")
    assert (bench.pool, bench.active) == (["a"], ["b"])


# --- gates that answer late ------------------------------------------------------------------------


def test_pod_is_gated_until_a_served_gate_answers() -> None:
    slow, door = SlowPlugin(), Door(closed=False)
    bench = bench_with(Slow=slow.gate, Here=door)
    bench.add("a")
    assert (bench.pool, bench.active, door.asked) == (["a"], [], [])
    assert bench.queue.places.gates.open_count == 1
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    assert (bench.pool, bench.active, door.asked) == ([], ["a"], ["a"])
    assert len(slow.gate_questions) == 1


def test_history_calls_a_pod_gated_only_after_a_served_gate_closed() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a", "b")
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    bench.queue.gate_answered(slow.gate_questions[1], Status.unschedulable("not yet"))
    known = {info.pod.name: info for info in (*bench.queue.places.active, *bench.queue.places.pool)}
    told = {name: [entry[1:] for entry in info.history] for name, info in known.items()}
    assert told == {"a": [("active", "UnscheduledPodAdd")], "b": [("gated", "Slow")]}


def test_served_gate_that_closes_keeps_the_pod_as_rejected_by_its_plugin() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.unresolvable("no", "never"))
    (info,) = pods_of(bench.queue.places.pool)
    assert (info.gating_plugin, info.unschedulable_plugins) == ("Slow", {"Slow"})
    assert info.gating_message == "no, never"
    update(bench, "a")
    assert (info.gating_plugin, info.gating_message) == ("Slow", "")
    bench.queue.gate_answered(slow.gate_questions[1], Status.success())
    assert bench.active == ["a"]


def test_answer_about_an_older_version_of_the_pod_does_not_count() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    update(bench, "a", ActionType.UPDATE)
    old, new = slow.gate_questions
    bench.queue.gate_answered(old, Status.success())
    assert bench.pool == ["a"]
    bench.queue.gate_answered(new, Status.success())
    assert bench.active == ["a"]


def test_after_an_error_the_same_question_may_be_answered_again() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    (question,) = slow.gate_questions
    bench.queue.gate_answered(question, Status.error("not reached"))
    assert bench.pool == ["a"]
    bench.queue.gate_answered(question, Status.success())
    assert bench.active == ["a"]


def test_only_the_newest_question_about_a_pod_stays_open_after_an_error() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    (question,) = slow.gate_questions
    assert bench.queue.gate_answered(question, Status.error("not reached"))
    stranger = GateQuestion(question.plugin, question.pod)
    assert not bench.queue.gate_answered(stranger, Status.error("not reached"))
    assert bench.queue.gate_answered(question, Status.error("not reached"))
    assert not bench.queue.gate_answered(question, Status.success())
    assert bench.active == ["a"]


def test_recovered_gate_is_asked_anew() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.error("not reached"))
    bench.queue.plugin_recovered("Slow")
    bench.queue.gate_answered(slow.gate_questions[1], Status.success())
    assert bench.active == ["a"]


def test_events_call_no_gate_anew_while_its_answer_is_awaited() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a", "b")
    for _ in range(5):
        bench.queue.move_all(label_changed("other"))
    assert len(slow.gate_questions) == 2
    of_a, of_b = slow.gate_questions
    bench.queue.gate_answered(of_a, Status.success())
    assert (bench.active, len(slow.gate_questions)) == (["a"], 2)
    # What the plugin said of b may be older than the events: once more, for all five.
    bench.queue.gate_answered(of_b, Status.unresolvable("closed"))
    assert (bench.pool, len(slow.gate_questions)) == (["b"], 3)
    bench.queue.gate_answered(slow.gate_questions[2], Status.unresolvable("closed"))
    assert (bench.pool, len(slow.gate_questions)) == (["b"], 3)
    bench.queue.move_all(label_changed("other"))
    bench.queue.gate_answered(slow.gate_questions[3], Status.success())
    assert bench.active == ["a", "b"]


def test_event_of_the_gate_counts_for_a_pod_that_another_plugin_rejected() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    bench.reject(bench.pop(), "Fit")
    bench.queue.move_all(node_added())
    # The gate opens while its older answer is under way.
    bench.queue.move_all(label_changed("other"))
    bench.queue.gate_answered(slow.gate_questions[1], Status.unresolvable("closed"))
    assert len(slow.gate_questions) == 3
    bench.queue.gate_answered(slow.gate_questions[2], Status.success())
    assert (bench.pool, bench.backing_off) == ([], ["a"])


def test_event_of_another_plugin_calls_no_gate_anew() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    bench.reject(bench.pop(), "Fit")
    for _ in range(3):
        bench.queue.move_all(node_added())
    bench.queue.gate_answered(slow.gate_questions[1], Status.unresolvable("closed"))
    assert (bench.pool, len(slow.gate_questions)) == (["a"], 2)


def test_events_during_an_answer_let_a_pending_pod_skip_its_backoff() -> None:
    slow = SlowPlugin()
    bench = QueueBench(
        Plugins(gates={"Slow": slow.gate}, registrations={"Fit": [NODE_ADD], "Slow": [NODE_ADD]})
    )
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    bench.reject(bench.pop(), pending=["Fit"])
    for _ in range(3):
        bench.queue.move_all(node_added())
    bench.queue.gate_answered(slow.gate_questions[1], Status.unresolvable("closed"))
    bench.queue.gate_answered(slow.gate_questions[2], Status.success())
    assert (bench.active, bench.backing_off) == (["a"], [])


def test_late_hints_call_no_gate_anew_while_its_answer_is_awaited() -> None:
    gate, hints = SlowPlugin(), SlowPlugin()
    registrations = {"Slow": [replace(GATE_EVENT, ask=True)]}
    bench = QueueBench(Plugins(gates={"Slow": gate.gate}, hint=hints.hint, registrations=registrations))
    bench.add("a")
    bench.queue.gate_answered(gate.gate_questions[0], Status.unresolvable("closed"))
    for _ in range(4):
        bench.queue.move_all(label_changed("other"))
    for question in hints.hint_questions:
        bench.queue.hint_answered(question, answer=True)
    assert len(gate.gate_questions) == 2
    # Three of the events may be newer than the answer.
    bench.queue.gate_answered(gate.gate_questions[1], Status.unresolvable("closed"))
    assert (bench.pool, len(gate.gate_questions)) == (["a"], 3)
    bench.queue.gate_answered(gate.gate_questions[2], Status.unresolvable("closed"))
    assert (bench.pool, len(gate.gate_questions)) == (["a"], 3)
    bench.queue.move_all(label_changed("other"))
    bench.queue.hint_answered(hints.hint_questions[-1], answer=True)
    bench.queue.gate_answered(gate.gate_questions[3], Status.success())
    assert bench.active == ["a"]


def test_event_after_an_error_calls_the_gate_anew() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.error("not reached"))
    bench.queue.move_all(label_changed("other"))
    assert len(slow.gate_questions) == 2
    bench.queue.gate_answered(slow.gate_questions[1], Status.success())
    assert bench.active == ["a"]


def test_answer_for_a_deleted_pod_brings_nothing_back() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.delete(a_pod("a"))
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    assert (bench.active, bench.pool, bench.queue.places.gates.open_count) == ([], [], 0)


def test_late_gate_lets_a_failed_pod_go_on_into_its_backoff() -> None:
    slow = SlowPlugin()
    bench = bench_with(Slow=slow.gate)
    bench.add("a")
    bench.queue.gate_answered(slow.gate_questions[0], Status.success())
    bench.fail(bench.pop())
    assert (bench.pool, bench.backing_off) == (["a"], [])
    bench.queue.gate_answered(slow.gate_questions[1], Status.success())
    assert (bench.pool, bench.backing_off) == ([], ["a"])
