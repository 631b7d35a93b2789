"""Which rejected pods an event requeues, and to which place."""

from __future__ import annotations

import pytest
from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import HintQuestion, HintVerdict, QueueConfig
from berth_host.queue.registrations import Registration
from berth_host.rpc.hint_answer import NO_HINT
from berth_sdk.events import ASSIGNED_POD, ActionType
from berth_sdk.selectors import LabelSelector
from support.queue_parts import ASK_NODE_ADD, NODE_ADD, Plugins, QueueBench, SlowPlugin, a_pod, node_added


def never(question: HintQuestion) -> bool:
    return False


def asking(hint: object = never, config: QueueConfig | None = None) -> QueueBench:
    plugins = Plugins(
        registrations={"Fit": [ASK_NODE_ADD], "Ports": [ASK_NODE_ADD], "Name": [NODE_ADD]},
        hint=hint,  # type: ignore[arg-type]  # functions of the tests
    )
    return QueueBench(plugins, config)


def test_event_requeues_the_pods_whose_plugin_registered_for_it() -> None:
    bench = QueueBench()
    bench.parked("a", "Fit")
    bench.parked("b", "Other")
    bench.queue.move_all(node_added())
    assert (bench.backing_off, bench.pool) == (["a"], ["b"])


def test_pods_are_asked_about_in_the_order_in_which_their_plugins_registered() -> None:
    plugins = {f"plugin-{n:02}": [ASK_NODE_ADD] for n in range(20)}
    bench = QueueBench(Plugins(registrations=plugins, hint=never))
    for plugin in reversed(plugins):
        bench.parked(f"pod-of-{plugin}", plugin)
    bench.queue.move_all(node_added())
    assert [plugin for plugin, *_ in bench.notes.hints] == list(plugins)


def test_pod_whose_backoff_is_over_goes_to_active_at_once() -> None:
    bench = QueueBench()
    bench.parked("a", "Fit")
    bench.clock.advance(2)
    bench.queue.move_all(node_added())
    assert bench.active == ["a"]


def test_hint_that_says_no_leaves_the_pod_where_it_is() -> None:
    bench = asking()
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    assert bench.pool == ["a"]
    assert bench.notes.hints == [("Fit", "NodeAdd", "a", HintVerdict.SKIP)]


def test_hint_sees_the_pod_and_the_event() -> None:
    questions: list[HintQuestion] = []

    def hint(question: HintQuestion) -> bool:
        questions.append(question)
        return False

    bench = asking(hint)
    bench.parked("a", "Fit")
    event = node_added()
    bench.queue.move_all(event)
    (question,) = questions
    assert (question.plugin, question.pod.name, question.attempts) == ("Fit", "a", 1)
    assert question.event is event.cluster_event


def test_hint_that_raises_counts_as_yes() -> None:
    def broken(question: HintQuestion) -> bool:
        raise RuntimeError("no")

    bench = asking(broken)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    assert bench.backing_off == ["a"]
    assert bench.notes.raised == [("Fit", "QueueingHint")]
    assert bench.notes.hints == [("Fit", "NodeAdd", "a", HintVerdict.ERROR)]


def test_hint_of_a_call_that_failed_is_an_error_and_counts_as_yes() -> None:
    bench = asking(lambda question: NO_HINT)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    assert bench.backing_off == ["a"]
    assert bench.notes.hints == [("Fit", "NodeAdd", "a", HintVerdict.ERROR)]


def test_only_plugins_that_rejected_the_pod_are_asked() -> None:
    bench = asking()
    bench.parked("a", "Ports")
    bench.queue.move_all(node_added())
    assert [plugin for plugin, *_ in bench.notes.hints] == ["Ports"]


def test_asking_ends_with_the_first_answer_that_decides() -> None:
    bench = asking(lambda question: True)
    bench.parked("a", "Fit", "Ports", "Name")
    bench.queue.move_all(node_added())
    assert len(bench.notes.hints) == 1


def test_every_plugin_is_asked_where_a_record_is_wanted_and_the_pod_moves_the_same() -> None:
    bench = asking(lambda question: True, QueueConfig(ask_every_plugin=True))
    bench.parked("a", "Fit", "Ports", "Name")
    bench.queue.move_all(node_added())
    assert sorted(plugin for plugin, *_ in bench.notes.hints) == ["Fit", "Name", "Ports"]
    assert bench.backing_off == ["a"]


def test_pending_plugin_that_says_yes_skips_the_backoff() -> None:
    bench = asking(lambda question: question.plugin == "Ports")
    bench.add("a")
    bench.reject(bench.pop(), "Fit", pending=("Ports",))
    bench.queue.move_all(node_added())
    assert bench.active == ["a"]


def test_yes_of_another_plugin_does_not_skip_the_backoff_of_a_pending_pod() -> None:
    bench = asking(lambda question: question.plugin == "Fit")
    bench.add("a")
    bench.reject(bench.pop(), "Fit", pending=("Ports",))
    bench.queue.move_all(node_added())
    assert bench.backing_off == ["a"]
    assert sorted(plugin for plugin, *_ in bench.notes.hints) == ["Fit", "Ports"]


def test_selector_of_a_registration_is_looked_at_before_the_hint() -> None:
    selector = LabelSelector.parse("app=web")
    wanted = Registration(resource="Pod", action=int(ActionType.ADD), selector=selector)
    bench = QueueBench(Plugins(registrations={"Affinity": [wanted]}))
    bench.parked("a", "Affinity")
    bench.queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.ADD, new=a_pod("db", labels={"app": "db"})))
    assert bench.pool == ["a"]
    bench.queue.move_all(QueueEvent(ASSIGNED_POD, ActionType.ADD, new=a_pod("web", labels={"app": "web"})))
    assert bench.backing_off == ["a"]


# --- events while the pod is in flight ----------------------------------------------------------------


def test_event_during_the_attempt_counts_when_the_pod_comes_back() -> None:
    bench = QueueBench()
    bench.add("a")
    info = bench.pop()
    bench.queue.move_all(node_added())
    bench.reject(info, "Fit")
    assert bench.backing_off == ["a"]


def test_event_before_the_pop_does_not_count() -> None:
    bench = QueueBench()
    bench.add("a", "b")
    bench.pop()
    bench.queue.move_all(node_added())
    bench.reject(bench.pop(), "Fit")
    assert bench.pool == ["b"]


def test_pod_that_failed_with_an_error_backs_off_whatever_happened() -> None:
    bench = QueueBench()
    bench.add("a")
    bench.fail(bench.pop())
    (info,) = bench.queue.places.backoff.failed()
    assert (info.consecutive_errors_count, info.unschedulable_count) == (1, 0)


def test_pod_that_was_marked_done_before_it_was_rejected_is_not_parked() -> None:
    bench = QueueBench()
    bench.add("a")
    info = bench.pop()
    bench.queue.done(info.uid)
    bench.reject(info, "Fit")
    assert bench.backing_off == ["a"]


# --- plugins elsewhere ---------------------------------------------------------------------------------


@pytest.fixture
def slow() -> SlowPlugin:
    return SlowPlugin()


def test_pod_stays_in_the_pool_until_a_served_hint_arrives(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    assert bench.pool == ["a"]
    bench.queue.hint_answered(slow.hint_questions[0], True)
    assert bench.backing_off == ["a"]
    assert bench.notes.entered[-1] == ("backoff", "NodeAdd")


def test_served_hint_that_failed_is_recorded_as_an_error_and_counts_as_yes(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    bench.queue.hint_answered(slow.hint_questions[0], NO_HINT)
    assert bench.backing_off == ["a"]
    assert bench.notes.hints == [
        ("Fit", "NodeAdd", "a", HintVerdict.DEFERRED),
        ("Fit", "NodeAdd", "a", HintVerdict.ERROR),
    ]


def test_served_hint_that_says_no_changes_nothing(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    bench.queue.hint_answered(slow.hint_questions[0], False)
    assert bench.pool == ["a"]


def test_pod_that_comes_back_is_unschedulable_until_a_served_hint_arrives(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.add("a")
    info = bench.pop()
    bench.queue.move_all(node_added())
    bench.reject(info, "Fit")
    assert bench.pool == ["a"]
    bench.queue.hint_answered(slow.hint_questions[0], True)
    assert bench.backing_off == ["a"]


def test_served_hint_from_before_another_attempt_does_not_count(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    bench.queue.activate([a_pod("a")])
    bench.reject(bench.pop(), "Fit")
    bench.queue.hint_answered(slow.hint_questions[0], True)
    assert bench.pool == ["a"]


def test_served_hint_about_a_pod_of_the_same_name_does_not_count(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.parked("a", "Fit")
    bench.queue.move_all(node_added())
    bench.queue.delete(a_pod("a"))
    bench.parked("a", "Fit", uid="uid-2")
    bench.queue.hint_answered(slow.hint_questions[0], True)
    assert bench.pool == ["a"]


def test_late_yes_of_a_pending_plugin_takes_the_pod_out_of_its_backoff(slow: SlowPlugin) -> None:
    bench = QueueBench(Plugins(registrations={"Name": [NODE_ADD], "Slow": [ASK_NODE_ADD]}, hint=slow.hint))
    bench.add("a")
    bench.reject(bench.pop(), "Name", pending=("Slow",))
    bench.queue.move_all(node_added())
    assert bench.backing_off == ["a"]
    bench.queue.hint_answered(slow.hint_questions[0], True)
    assert bench.active == ["a"]


def test_questions_about_one_event_carry_the_same_event(slow: SlowPlugin) -> None:
    bench = asking(slow.hint)
    bench.parked("a", "Fit")
    bench.parked("b", "Fit")
    bench.queue.move_all(node_added())
    first, second = slow.hint_questions
    assert first.event is second.event
