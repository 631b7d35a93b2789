"""Random lives of pods whose gates answer late: at the end no pod is kept by a gate that has opened."""

from __future__ import annotations

from dataclasses import replace

from berth_host.queue.events import QueueEvent
from berth_host.queue.interfaces import DEFERRED, Deferred, Gate, GateQuestion
from berth_host.queue.queued_pod import pods_of
from berth_host.queue.registrations import Registration
from berth_sdk.events import TARGET_POD, ActionType
from berth_sdk.node import Node
from berth_sdk.status import Status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.queue_parts import NODE_ADD, Plugins, QueueBench, SlowPlugin, a_pod, node_added
from support.tiers import examples

GATES = ("First", "Second")
NAMES = "abc"


class LateGates(RuleBasedStateMachine):
    """Two served gates in a row; the plugin of the first one also gives hints, which come late.

    `open`: the gates that let pods in; each opens with an event of its own. A gate answers what was true when
    it was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: set[str] = set(GATES)
        self.asked: list[tuple[GateQuestion, bool]] = []
        self.hints = SlowPlugin()
        plugins = Plugins(
            gates={name: self.gate(name) for name in GATES},
            registrations={
                "Fit": [NODE_ADD],
                "First": [Registration(resource="Pod", action=int(ActionType.UPDATE_POD_LABEL), ask=True)],
                "Second": [Registration(resource="Node", action=int(ActionType.DELETE))],
            },
        )
        self.bench = QueueBench(replace(plugins, hint=self.hints.hint))
        self.queue = self.bench.queue
        self.serial = 0

    def gate(self, name: str) -> Gate:
        def ask(question: GateQuestion) -> Deferred:
            self.asked.append((question, name in self.open))
            return DEFERRED

        return ask

    def tell(self, name: str) -> None:
        if name == "First":
            other = a_pod("other")
            self.queue.move_all(QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, other, other))
        else:
            self.queue.move_all(QueueEvent("Node", ActionType.DELETE, old=Node(name="n1")))

    def answer(self, at: int) -> None:
        question, lets_in = self.asked.pop(at)
        status = Status.success() if lets_in else Status.unresolvable("closed")
        assert not self.queue.gate_answered(question, status)

    # --- what happens ------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def pod_comes_or_goes(self, name: str) -> None:
        """A pod that comes back has another uid."""
        old = self.bench.pods.by_key.pop(f"default/{name}", None)
        self.serial += 1
        if old is None:
            self.bench.add(name, uid=f"uid-{self.serial}")
        else:
            self.queue.delete(old)
            self.queue.done(old.uid)

    @rule(name=st.sampled_from(GATES))
    def gate_turns(self, name: str) -> None:
        if name in self.open:
            self.open.discard(name)
        else:
            self.open.add(name)
            self.tell(name)

    @rule(name=st.sampled_from(GATES))
    def event_comes(self, name: str) -> None:
        self.tell(name)

    @rule()
    def node_comes(self) -> None:
        self.queue.move_all(node_added())

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def plugin_answers(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.integers(0, len(self.asked) - 1)))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def plugin_fails(self, data: st.DataObject) -> None:
        """A question that is still open is asked again, as `PluginQuestions` does."""
        question, _ = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        if self.queue.gate_answered(question, Status.error("not reached")):
            self.asked.append((question, question.plugin in self.open))

    @rule(name=st.sampled_from(GATES))
    def plugin_recovers(self, name: str) -> None:
        self.queue.plugin_recovered(name)

    @rule(name=st.sampled_from(NAMES))
    def plugin_activates(self, name: str) -> None:
        self.queue.activate_named([f"default/{name}"])

    @rule(name=st.sampled_from(NAMES))
    def pod_changes(self, name: str) -> None:
        old = self.bench.pods.by_key.get(f"default/{name}")
        if old is not None:
            new = self.bench.pods.put(replace(old, resource_version=f"{old.resource_version}0"))
            self.queue.update(old, new, [QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, old, new)])

    @initialize()
    def pods_were_rejected(self) -> None:
        for name in NAMES:
            self.pod_comes_or_goes(name)
        self.answer_all()
        while self.queue.has_ready:
            self.attempt_fails(rejected=True)

    @precondition(lambda self: self.queue.has_ready)
    @rule(rejected=st.booleans())
    def attempt_fails(self, rejected: bool) -> None:
        info = self.bench.pop()
        info.ungate()
        if rejected:
            self.bench.reject(info, "Fit")
        else:
            self.bench.fail(info)

    @rule(seconds=st.sampled_from([1, 20]))
    def time_passes(self, seconds: int) -> None:
        self.bench.clock.advance(seconds)
        self.queue.flush_backoff()

    # --- what must hold ----------------------------------------------------------------------

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        held = [*pods_of(self.queue.places), *self.queue.in_flight]
        assert sorted(info.uid for info in held) == sorted(pod.uid for pod in self.bench.pods.by_key.values())

    @precondition(lambda self: self.hints.hint_questions)
    @rule()
    def hint_comes(self) -> None:
        self.queue.hint_answered(self.hints.hint_questions.pop(0), answer=True)

    @rule()
    def answer_all(self) -> None:
        for _ in range(1000):
            if self.hints.hint_questions:
                self.hint_comes()
            elif self.asked:
                self.answer(0)
            else:
                break

    def teardown(self) -> None:
        self.answer_all()
        assert (self.asked, self.queue.places.gates.open_count) == ([], 0)
        kept = {info.gating_plugin for info in pods_of(self.queue.places.pool) if info.gating_plugin}
        assert not kept & self.open


TestLateGates = LateGates.TestCase
TestLateGates.settings = settings(max_examples=examples(400), stateful_step_count=12, deadline=None)
