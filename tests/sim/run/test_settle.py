"""A simulation waits for plugins in other processes in real time, and moves its own time by timers alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_host.model.clock import ManualClock
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import PermitResult
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Status
from berth_sdk.tables import NodeView
from berth_sim.run import settle
from support.hosts import World, node, pod
from support.waiting import PATIENCE_S, until

HELD_S = 0.5


class DecidesLater(Plugin):
    """Holds every pod called `late...` for 30 s, and lets it through after `delay_s` of real time."""

    delay_s: ClassVar[float] = 0.0
    never: ClassVar[bool] = False

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Wait, and start the timer of the decision."""
        if not pod.name.startswith("late"):
            return Status.success()
        if not self.never:
            threading.Timer(self.delay_s, self._let_through).start()
        return PermitResult.wait(30.0)

    def _let_through(self) -> None:
        for waiting in self.handle.waiting_pods(only_mine=True):
            self.handle.allow(waiting)


class HoldsForAWhile(Plugin):
    """Holds pods called `held...` for half a second of the host's time; says when pods are bound."""

    clock: ClassVar[ManualClock]
    start_s: ClassVar[float] = 0.0
    bound: ClassVar[list[tuple[str, float]]] = []

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Wait the first time; the pod is rejected when that time is over, and tried again."""
        held = pod.name.startswith("held") and self.clock.monotonic_s() == self.start_s
        return PermitResult.wait(HELD_S) if held else Status.success()

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: object) -> Status:
        """Note the pod and the time of the host. PostBind may come after the next pod's Binding."""
        self.bound.append((f"{pod.name} {node_name}", self.clock.monotonic_s() - self.start_s))
        return Status.success()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, an answer of a moment takes longer than the run waits for one."""
    monkeypatch.setattr(settle, "STEP_S", PATIENCE_S)
    monkeypatch.setattr(settle, "DECISION_S", PATIENCE_S)


@pytest.fixture
def text(tmp_path: Path) -> Iterator[str]:
    """Yield a served plugin that decides in real time, and an in-process one with the host's clock."""
    HoldsForAWhile.bound.clear()
    DecidesLater.never = False
    path = tmp_path / "p.sock"
    with PluginServer({"DecidesLater": DecidesLater}) as server:
        server.listen(f"unix:{path}")
        yield (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins: {multiPoint: {enabled: [{name: DecidesLater}, {name: HoldsForAWhile}]}}\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins:\n- {{name: DecidesLater, endpoint: 'unix://{path}'}}\n"
            f"- {{name: HoldsForAWhile, inProcess: '{__name__}:HoldsForAWhile'}}\n"
        )


async def bound_in(text: str, *names: str) -> list[tuple[str, float]]:
    """Which pods are bound, where, and when on the host's clock."""
    world = World([node("n0", cpu="1"), node("n1", cpu="1")], configuration=text)
    HoldsForAWhile.clock, HoldsForAWhile.start_s = world.clock, world.clock.monotonic_s()
    async with world:
        for name in names:
            world.server.create(pod(name, cpu="600m"))
        await world.settle()
        assert world.everything_is_accounted_for()
    return HoldsForAWhile.bound


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.9])
async def test_no_placement_depends_on_how_long_a_decision_takes(text: str, delay_s: float) -> None:
    DecidesLater.delay_s = delay_s
    bound = await bound_in(text, "held", "late", "next")
    # `held` leaves n0 when its half second is over, and `next` takes it; the decision about `late` is older.
    assert bound[0] == ("late n1", 0.0)
    (name, second_s), *rest = bound[1:]
    assert (name, rest) == ("next n0", [])
    assert second_s == pytest.approx(HELD_S)


async def test_clock_stands_still_between_a_decision_and_its_binding_cycle(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DecidesLater, "never", True)
    looks = vars(settle.Settling)["_stays_quiet"].__func__

    async def decided_in_the_turn_of_the_last_look(moves: Callable[[], bool]) -> bool:
        is_quiet = await looks(moves)
        for waiting in world.host.waiting_pods.list("DecidesLater") if is_quiet else ():
            world.host.waiting_pods.allow("DecidesLater", waiting.pod.uid, waiting.cycle_id)
        return is_quiet and not moves()

    monkeypatch.setattr(settle.Settling, "_stays_quiet", staticmethod(decided_in_the_turn_of_the_last_look))
    world = World([node("n0", cpu="1"), node("n1", cpu="1")], configuration=text)
    HoldsForAWhile.clock, HoldsForAWhile.start_s = world.clock, world.clock.monotonic_s()
    async with world:
        for name in ("held", "late"):
            world.server.create(pod(name, cpu="600m"))
        await world.settle()
    assert HoldsForAWhile.bound[0] == ("late n1", 0.0)


async def test_wait_of_a_plugin_that_does_not_decide_ends_when_its_time_is_over(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "DECISION_S", 0.1)
    DecidesLater.never = True
    world = World([node("n0")], configuration=text)
    HoldsForAWhile.clock, HoldsForAWhile.start_s = world.clock, world.clock.monotonic_s()
    async with world:
        world.server.create(pod("late"))
        began_s = world.clock.monotonic_s()
        await world.settle()
        assert world.node_of("late") == ""
        said = world.message_of("late")
        assert "rejected due to timeout after waiting 30s at plugin DecidesLater" in said
        # Whole timers: the waits, and the backoffs between the tries.
        assert (world.clock.monotonic_s() - began_s) % 1 == pytest.approx(0.0, abs=1e-6)


class HoldsUntilPostBind(Plugin):
    """Has room for one pod, until a slow PostBind about it has ended."""

    needs = (Need.nodes(),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.held: set[str] = set()

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject every node while a pod is held."""
        return Status.unschedulable("held") if self.held else Status.success()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Hold."""
        self.held.add(pod.uid)
        return Status.success()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Let go, after a while of real time."""
        threading.Event().wait(0.05)
        self.held.discard(pod.uid)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Let go."""
        self.held.discard(pod.uid)


@pytest.mark.parametrize("in_steps", [True, False])
async def test_served_post_bind_ends_before_the_next_step(tmp_path: Path, in_steps: bool) -> None:
    with PluginServer({"HoldsUntilPostBind": HoldsUntilPostBind}) as server:
        server.listen(f"unix:{tmp_path}/p.sock")
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins: {multiPoint: {enabled: [{name: HoldsUntilPostBind}]}}\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins:\n- {{name: HoldsUntilPostBind, endpoint: 'unix://{tmp_path}/p.sock'}}\n"
        )
        async with World([node("n0")], configuration=text) as world:
            if in_steps:
                world.server.create(pod("a"))
                world.server.create(pod("b"))
                await settle.Settling(world.host, world.clock, lambda: False).run()
            else:
                for name in ("a", "b"):
                    world.server.create(pod(name))
                    await world.settle()
            assert [world.node_of(name) for name in ("a", "b")] == ["n0", "n0"]
            assert world.host.queue.scheduling_cycle == 2, "one attempt each"


class NeverEnds(Plugin):
    """Its PostBind ends when `let_go` is set."""

    needs = (Need.nodes(),)
    let_go: ClassVar[threading.Event] = threading.Event()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Hang."""
        self.let_go.wait(60.0)


async def test_post_bind_that_hangs_holds_up_one_step_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle, "STEP_S", 0.05)
    NeverEnds.let_go.clear()
    with PluginServer({"NeverEnds": NeverEnds}) as server:
        server.listen(f"unix:{tmp_path}/p.sock")
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins: {multiPoint: {enabled: [{name: NeverEnds}]}}\n"
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
            f"plugins:\n- {{name: NeverEnds, endpoint: 'unix://{tmp_path}/p.sock'}}\n"
        )
        async with World([node("n0")], configuration=text) as world:
            settling, parts = settle.Settling(world.host, world.clock, lambda: False), vars(settle.Settling)
            try:
                world.server.create(pod("a"))
                await until(lambda: world.host.attachments.delivering)
                await until(lambda: not world.host.binding.active_count)
                assert parts["_step_moves"](settling)
                await parts["_step_is_over"](settling)
                assert world.host.attachments.delivering
                assert not parts["_step_moves"](settling)
                NeverEnds.let_go.set()
                await until(lambda: not world.host.attachments.delivering)
                assert not parts["_step_moves"](settling)
                NeverEnds.let_go.clear()
                world.host.scheduler.before_pop = None
                world.server.create(pod("b"))
                await until(lambda: world.host.attachments.delivering)
                assert parts["_step_moves"](settling)
            finally:
                NeverEnds.let_go.set()
                world.host.scheduler.before_pop = None
