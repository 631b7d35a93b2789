"""The steps of pods from Reserve to PostBind, and the order of the queue: `PluginHost` and the real host
agree.

Each scenario runs on both. The calls of all plugins in order, the pods at Permit, the outcomes of decisions
and the ends of the pods must be equal.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest
from berth_sdk import (
    BindResult,
    CycleState,
    Handle,
    PermitResult,
    Plugin,
    Pod,
    PreBindResult,
    PreFlightResult,
    QueuedPod,
    Status,
    WaitingPod,
)
from berth_sdk.errors import PluginAnswerError
from berth_sdk.testing import Attempt, PluginHost, make_node, make_pod
from support.hosts import World, node, pod

Answers = Mapping[str, Mapping[str, Any]]
NO = Status.unschedulable("no room")
BROKEN = Status.error("out of order")
WAIT = PermitResult.wait(30)
TURNS = 300
"""The turns of the event loop after which the host waits only for time to pass."""


class ScriptedPlugin(Plugin):
    """Records every call and returns the scenario's answer; SUCCESS where the scenario has none."""

    events = ()
    answers: Mapping[str, Any]
    log: list[str]
    made: dict[str, ScriptedPlugin]

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.made[type(self).__name__] = self

    def _answer(self, point: str, state: CycleState, pod: Pod) -> Any:
        self.log.append(f"{type(self).__name__}.{point} {pod.name}")
        answer = self.answers.get(point, Status.success())
        if isinstance(answer, Mapping):
            answer = answer.get(pod.name, Status.success())
        if isinstance(answer, list):
            answer = answer.pop(0)
        return answer(self, state, pod) if callable(answer) else answer

    def decide(self, what: str, waiting: WaitingPod, *more: str) -> None:
        line = len(self.log)
        self.log.append("")  # before whatever the decision sets going
        decision = getattr(self.handle, what)(waiting, *more)
        self.log[line] = f"{type(self).__name__} {what} {waiting.pod.name} {more}: {decision.name}"


def by_pod(log: list[str]) -> dict[str, list[str]]:
    return {name: [line for line in log if re.search(rf"\b{name}\b", line)] for name in "pqr"}


def asked(point: str) -> Callable[..., Any]:
    def call(self: ScriptedPlugin, state: CycleState, pod: Pod, *_: Any) -> Any:
        return self._answer(point, state, pod)

    if point == "pre_bind":
        return lambda self, state, pod, node_name, patched: call(self, state, pod)
    return lambda self, state, pod, node_name: call(self, state, pod)


def classes(plugins: Answers, log: list[str], made: dict[str, ScriptedPlugin]) -> list[type]:
    found = []
    for name, answers in plugins.items():
        fresh = {k: list(v) if isinstance(v, list) else v for k, v in answers.items()}
        points = {point: asked(point) for point in (*answers, "reserve", "unreserve", "post_bind")}
        found.append(type(name, (ScriptedPlugin,), {**points, "answers": fresh, "log": log, "made": made}))
    return found


# --- what a scenario may do ------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    name: str


@dataclass(frozen=True)
class Pass:
    seconds: float


@dataclass(frozen=True)
class Decide:
    by: str
    what: str
    name: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cancel:
    by: str
    name: str


@dataclass(frozen=True)
class Remove:
    name: str


Step = Place | Pass | Decide | Cancel | Remove


class Driver(Protocol):
    """A host: the test host or the real one."""

    log: list[str]
    made: dict[str, ScriptedPlugin]

    async def place(self, name: str) -> None: ...
    async def advance(self, seconds: float) -> None: ...
    async def remove(self, name: str) -> None: ...
    async def quiet(self) -> None: ...
    def now_s(self) -> float: ...
    def pod(self, name: str) -> Pod: ...


async def play(driver: Driver, steps: Sequence[Step]) -> None:
    seen: dict[str, WaitingPod] = {}
    for step in steps:
        first = next(iter(driver.made.values()))
        match step:
            case Place(name):
                await driver.place(name)
            case Pass(seconds):
                await driver.advance(seconds)
            case Remove(name):
                await driver.remove(name)
            case Decide(by, what, name, more):
                driver.made[by].decide(what, seen[name], *more)
            case Cancel(by, name):
                line = len(driver.log)
                driver.log.append("")
                got = driver.made[by].handle.cancel_binding(driver.pod(name), "given up")
                driver.log[line] = f"cancel {name}: {got.name}"
        await driver.quiet()
        waiting = first.handle.waiting_pods()
        for one in waiting:
            seen.setdefault(one.pod.name, one)
            rest_s = round(one.deadline_s - driver.now_s(), 6)
            driver.log.append(f"waits: {one.pod.name} {one.node_name} {sorted(one.pending_plugins)} {rest_s}")


class Pretended:
    def __init__(self, plugins: Answers) -> None:
        self.log = list[str]()
        self.made = dict[str, ScriptedPlugin]()
        first, *others = classes(plugins, self.log, self.made)
        self.host = PluginHost(first, nodes=[make_node("n1")], beside=others)
        self.attempts: dict[str, Attempt] = {}
        self.removed: set[str] = set()

    async def place(self, name: str) -> None:
        self.attempts[name] = self.host.attempt(make_pod(name))
        self.attempts[name].place("n1")

    async def advance(self, seconds: float) -> None:
        self.host.advance(seconds)

    async def remove(self, name: str) -> None:
        self.removed.add(name)
        self.host.remove_pod(self.attempts[name].pod)

    async def quiet(self) -> None:
        pass

    def now_s(self) -> float:
        return self.host.clock.now_s

    def pod(self, name: str) -> Pod:
        return self.attempts[name].pod

    def ends(self) -> dict[str, str]:
        """Return by pod: bound, or the message."""
        ends = {}
        for name, attempt in self.attempts.items():
            assert attempt.outcome is not None
            if name not in self.removed:
                ends[name] = "bound" if attempt.outcome.is_success else attempt.outcome.message
        return ends


class Real:
    def __init__(self, plugins: Answers) -> None:
        self.log = list[str]()
        self.made = dict[str, ScriptedPlugin]()
        enabled = "".join(f"      - name: {name}\n" for name in plugins)
        binders = "".join(f"      - name: {name}\n" for name in plugins if "bind" in plugins[name])
        configuration = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "profiles:\n- plugins:\n"
            f"    multiPoint:\n      enabled:\n{enabled}"
            f"    bind:\n      disabled:\n      - name: '*'\n"
            f"      enabled:\n{binders}      - name: DefaultBinder\n"
        )
        found = classes(plugins, self.log, self.made)
        self.world = World([node("n1")], found, configuration=configuration)
        self.names: list[str] = []

    async def place(self, name: str) -> None:
        self.names.append(name)
        self.world.server.create(pod(name))

    async def advance(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    async def remove(self, name: str) -> None:
        found = self.world.pod(name)
        assert found is not None
        self.world.server.delete("pods", found.ref)
        self.names.remove(name)

    async def quiet(self) -> None:
        binding = self.world.host.binding
        for _ in range(TURNS):
            await asyncio.sleep(0)
            while binding.active_count or len(
                binding.ends or ()
            ):  # plugins at work in threads, or not told yet
                await asyncio.sleep(0)

    def now_s(self) -> float:
        return self.world.clock.now_s()

    def pod(self, name: str) -> Pod:
        found = self.world.pod(name)
        assert found is not None
        return Pod.from_object(found.parsed)

    def ends(self) -> dict[str, str]:
        return {
            name: "bound" if self.world.node_of(name) else self.world.message_of(name) for name in self.names
        }


# --- the scenarios ---------------------------------------------------------------------------------


def early(what: str, *more: str) -> Callable[[ScriptedPlugin, CycleState, Pod], PermitResult]:
    """Return a Permit that decides about its own pod before it returns WAIT."""

    def permit(self: ScriptedPlugin, state: CycleState, pod: Pod) -> PermitResult:
        waiting = WaitingPod(
            pod=pod, cycle_id=state.cycle_id, node_name="n1", pending_plugins=(), deadline_s=0.0
        )
        self.decide(what, waiting, *more)
        return WAIT

    return permit


def seen_deleted(last: Status) -> Callable[[ScriptedPlugin, CycleState, Pod], PreBindResult]:
    """Return a PreBind that waits until the pod is deleted, and then returns `last`."""

    def pre_bind(self: ScriptedPlugin, state: CycleState, pod: Pod) -> PreBindResult:
        if not state.pod_deleted:
            return PreBindResult(Status.success(), ask_again_after_s=2.0)
        self.log.append(f"{type(self).__name__} sees that {pod.name} was deleted")
        return PreBindResult(last)

    return pre_bind


def ends_all(what: str, *more: str) -> Callable[[ScriptedPlugin, CycleState, Pod], Status]:
    """Return a call that decides about every pod at Permit."""

    def point(self: ScriptedPlugin, state: CycleState, pod: Pod) -> Status:
        for waiting in self.handle.waiting_pods():
            self.decide(what, waiting, *more)
        return Status.success()

    return point


def calls(answers: Mapping[str, Any]) -> Answers:
    """Return the answers of three plugins; `answers` are the second one's."""
    return {"A": {"permit": Status.success(), "pre_bind": Status.success()}, "B": answers, "C": {}}


SKIPS: Mapping[str, Any] = {
    "reserve": Status.skip(),
    "pre_bind": BROKEN,
    "pre_bind_pre_flight": BROKEN,
}
HELD: Answers = {"A": {"permit": WAIT}, "B": {"permit": {"p": PermitResult.wait(9)}}, "C": {}}
SCENARIOS: dict[str, tuple[Answers, list[Step]]] = {
    "all is well": (calls({"permit": Status.success(), "pre_bind": Status.success()}), [Place("p")]),
    "reserve rejects": (calls({"reserve": NO}), [Place("p")]),
    "reserve fails": (calls({"reserve": BROKEN}), [Place("p")]),
    "reserve skips": (calls({**SKIPS, "permit": Status.success()}), [Place("p")]),
    "reserve skips and permit rejects": (calls({**SKIPS, "permit": NO}), [Place("p")]),
    "reserve skips and another plugin fails": (
        {"A": {**SKIPS, "unreserve": None}, "B": {"reserve": Status.success(), "pre_bind": BROKEN}},
        [Place("p")],
    ),
    "reserve skips and permit waits": (
        {"A": {**SKIPS, "permit": WAIT}},
        [Place("p"), Decide("A", "allow", "p")],
    ),
    "reserve skips and the wait is rejected": (
        {"A": {**SKIPS, "permit": WAIT}},
        [Place("p"), Decide("A", "reject", "p", ("no",))],
    ),
    "permit rejects": (calls({"permit": NO}), [Place("p")]),
    "permit fails": (calls({"permit": BROKEN}), [Place("p")]),
    "pre-flight fails": (
        calls({"pre_bind": Status.success(), "pre_bind_pre_flight": BROKEN}),
        [Place("p")],
    ),
    "pre-flight skips": (
        calls({"pre_bind": BROKEN, "pre_bind_pre_flight": PreFlightResult(Status.skip())}),
        [Place("p")],
    ),
    "pre-bind rejects": (calls({"pre_bind": NO}), [Place("p")]),
    "pre-bind fails": (calls({"pre_bind": BROKEN}), [Place("p")]),
    "bind rejects": (calls({"bind": NO}), [Place("p")]),
    "bind fails": (calls({"bind": BROKEN}), [Place("p")]),
    "bind is left to the host": (
        calls({"bind": BindResult(Status.success(), host_binds=True)}),
        [Place("p")],
    ),
    "every bind plugin skips": (calls({"bind": Status.skip()}), [Place("p")]),
    "the first wait times out": (HELD, [Place("p"), Pass(8.5), Pass(1)]),
    "a pod waits no longer than 15 minutes": (
        {"A": {"permit": PermitResult.wait(5000)}},
        [Place("p"), Pass(899), Pass(1)],
    ),
    "a wait without a time is 15 minutes": (
        {"A": {"permit": PermitResult.wait()}},
        [Place("p"), Pass(899.5), Pass(0.5)],
    ),
    "every holder must allow": (
        HELD,
        [Place("p"), Decide("A", "allow", "p"), Decide("A", "allow", "p"), Decide("B", "allow", "p")],
    ),
    "a wait that was allowed does not time out": (
        HELD,
        [Place("p"), Decide("B", "allow", "p"), Pass(20), Decide("A", "allow", "p")],
    ),
    "one plugin ends the wait of another": (
        HELD,
        [Place("p"), Decide("C", "allow", "p", ("A",)), Decide("C", "allow", "p", ("B",))],
    ),
    "a plugin that does not hold the pod": (HELD, [Place("p"), Decide("C", "allow", "p")]),
    "nobody waits for a bound pod": (
        HELD,
        [Place("q"), Decide("A", "allow", "q"), Decide("A", "allow", "q"), Decide("C", "reject", "q", ("",))],
    ),
    "reject ends all waits": (HELD, [Place("p"), Decide("C", "reject", "p", ("not now",))]),
    "a second allow of one plugin does not end the wait of another": (
        HELD,
        [Place("p"), Decide("A", "allow", "p"), Place("q"), Decide("A", "allow", "p")],
    ),
    "allowed early": ({"A": {"permit": early("allow")}, "B": {}}, [Place("p")]),
    "allowed early by another": (
        {"A": {"permit": WAIT}, "B": {"permit": early("allow", "A")}},
        [Place("p"), Decide("B", "allow", "p")],
    ),
    "rejected early": ({"A": {"permit": early("reject", "changed my mind")}, "B": {}}, [Place("p")]),
    "a pod lets the others go": (
        {
            "A": {"permit": {"p": WAIT, "q": WAIT, "r": ends_all("allow")}},
            "B": {"pre_bind": Status.success()},
        },
        [Place("p"), Place("q"), Place("r")],
    ),
    "unreserve sends the others back": (
        {"A": {"permit": WAIT, "unreserve": ends_all("reject", "lost a member")}, "B": {}},
        [Place("p"), Place("q"), Decide("A", "reject", "p", ("gone",))],
    ),
    "pre-bind is asked again in time": (
        {"A": {"pre_bind": [PreBindResult(Status.success(), ask_again_after_s=2.0), Status.success()]}},
        [Place("p"), Pass(1.5), Pass(0.5)],
    ),
    "pre-bind asks for a time that is over": (
        {"A": {"pre_bind": [PreBindResult(Status.success(), ask_again_after_s=-2.0), Status.success()]}},
        [Place("p"), Pass(0.5)],
    ),
    "a wait at Permit that is over before it began": (
        calls({"permit": PermitResult.wait(-5)}),
        [Place("p"), Pass(0.5)],
    ),
    "pre-bind asks for more time than its deadline": (
        {"A": {"pre_bind": PreBindResult(Status.success(), ask_again_after_s=25.0)}},
        [Place("p"), Pass(20), Pass(20), Pass(30)],
    ),
    "a pod is deleted between two rounds of pre-bind, and the plugin says so": (
        {"A": {"pre_bind": seen_deleted(BROKEN)}, "B": {}},
        [Place("p"), Remove("p"), Pass(9)],
    ),
    "a pod is deleted between two rounds of pre-bind, and the plugin does not see it": (
        {"A": {"pre_bind": seen_deleted(Status.success())}, "B": {}},
        [Place("p"), Remove("p"), Pass(9)],
    ),
    "a binding is cancelled": (
        {"A": {"pre_bind": PreBindResult(Status.success(), ask_again_after_s=2.0)}, "B": {}},
        [Place("p"), Cancel("B", "p")],
    ),
    "a binding that waits at Permit is not in PreBind": (HELD, [Place("p"), Cancel("B", "p"), Pass(9)]),
    "a pod that waits is deleted": (HELD, [Place("p"), Remove("p"), Decide("A", "allow", "p")]),
}


@pytest.mark.parametrize("after_s", [0.0, -1.0])
async def test_endless_pre_bind_without_delay_raises_with_what_to_do(after_s: float) -> None:
    pretended = Pretended({"A": {"pre_bind": PreBindResult(Status.success(), ask_again_after_s=after_s)}})
    with pytest.raises(PluginAnswerError, match=r"A\.pre_bind asked 64 times .*: set `ask_again_after_s`"):
        await pretended.place("p")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_plugin_host_and_real_host_make_the_same_calls(name: str) -> None:
    plugins, steps = SCENARIOS[name]
    pretended, real = Pretended(plugins), Real(plugins)
    await play(pretended, steps)
    async with real.world:
        await play(real, steps)
        ends = real.ends()
        log = list(real.log)
    if sum(isinstance(step, Place) for step in steps) == 1:
        assert pretended.log == log
    # Bindings of several pods run beside each other.
    assert by_pod(pretended.log) == by_pod(log)
    got = pretended.ends()
    assert got.keys() == ends.keys()
    for pod_name, end in got.items():
        assert end == ends[pod_name] if end == "bound" else end in ends[pod_name]


# --- the queue -------------------------------------------------------------------------------------


class ByRank(Plugin):
    """Equal keys for equal ranks; a pod without a rank has no key."""

    def sort_key(self, pod: QueuedPod) -> bytes:
        return pod.pod.labels.get("rank", "").encode()


class ByComparison(Plugin):
    """The same order as a comparison; a pod without a rank comes first."""

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        return first.pod.labels.get("rank", "") < second.pod.labels.get("rank", "")


class WithoutOrder(Plugin):
    """Leaves the order to the host."""

    def sort_key(self, pod: QueuedPod) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("sorts", "want"), [(ByRank, "cebdfa"), (ByComparison, "afcebd"), (WithoutOrder, "fbcade")]
)
async def test_plugin_host_orders_the_queue_as_the_real_host(sorts: type[Plugin], want: str) -> None:
    given = {"a": ("", 0), "b": ("2", 5), "c": ("1", 5), "d": ("2", 0), "e": ("1", 0), "f": ("", 9)}
    labels = {name: {"rank": rank} if rank else {} for name, (rank, _) in given.items()}
    host = PluginHost(sorts)
    pods = [make_pod(name, labels=labels[name], priority=priority) for name, (_, priority) in given.items()]
    assert "".join(item.name for item in host.order(pods)) == want

    log: list[str] = []
    notes, *_ = classes({"Notes": {}}, log, {})
    configuration = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n"
        f"    queueSort: {{disabled: [{{name: '*'}}], enabled: [{{name: {sorts.__name__}}}]}}\n"
        "    reserve: {enabled: [{name: Notes}]}\n"
    )
    objects = [
        pod(name, labels=labels[name], priority=priority, cpu="1m") for name, (_, priority) in given.items()
    ]
    async with World([node("n1"), *objects], [sorts, notes], configuration=configuration) as world:
        await world.settle()
    assert "".join(line[-1] for line in log if ".reserve" in line) == want
