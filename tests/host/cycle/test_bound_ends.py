"""PostBind, and the end of a bound pod's cycle, come when the snapshot shows the pod, and never earlier."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_bench.life.faulty_cluster import Faults
from berth_host.app.reload import reload
from berth_host.attach import retrying
from berth_host.cluster.port import WatchEvent
from berth_host.config.loading import load_configuration
from berth_host.cycle import bound_ends
from berth_host.cycle.bound_ends import READ_BACK_S, BoundEnds
from berth_host.plugins.registry import ClassRegistry
from berth_host.rpc.served import outbox
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from support.groups import GROUPS, members, pod_group
from support.held_groups import Slow
from support.hosts import World, node, pod
from support.keeps_seats import CLAIMS, SEAT, KeepsSeats
from support.plugin_processes import PluginProcess
from support.scripted_plugin import ScriptedPlugin, decided, descriptor
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

AT_ONCE = Faults(turns=0, reorder=False)
POINTS = ("reserve", "permit", "preBind", "postBind")


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


class Seen:
    """A world whose plugin keeps seats, and what the plugin was asked. `process`: of a served plugin."""

    def __init__(self, world: World, text: str, log: Path, process: PluginProcess | None) -> None:
        self.world = world
        self.text = text
        self.process = process
        self._log = log

    @property
    def calls(self) -> list[list[Any]]:
        """The calls with what belongs to them: a pod and its seat, or the pods of a list."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def of(self, *calls: str) -> list[list[Any]]:
        return [call for call in self.calls if call[0] in calls]

    @property
    def post_bound(self) -> list[str]:
        return [name for _, name in self.of("post_bind")]

    @property
    def ends(self) -> BoundEnds:
        ends = self.world.host.binding.ends
        assert ends is not None
        return ends

    async def bound_unseen(self, name: str, *bare: str) -> None:
        """Let the pod be bound while the watch stands still. `bare`: pods that are created with it."""
        assert self.world.faulty is not None
        gate = self.world.faulty.gate("bind")
        for each in (name, *bare):
            self.world.server.create(pod(each))
        await asyncio.wait_for(gate.arrived.wait(), PATIENCE_S)
        self.world.faulty.stand_still()
        gate.open.set()
        await until(lambda: len(self.ends) == 1)
        assert self.world.node_of(name) == "n0"

    async def stays_held(self, seconds: float = 0.0) -> None:
        """Move the clock, and check that no PostBind came meanwhile."""
        before = self.post_bound
        for _ in range(int(seconds)):
            self.world.clock.advance(1.0)
            await turns()
        await asyncio.sleep(0.05)  # a PostBind that was sent reaches another process
        assert (len(self.ends), self.post_bound) == (1, before)

    async def told(self, name: str) -> None:
        """Wait for the PostBind of a pod."""
        await until(lambda: name in self.post_bound and not len(self.ends))


def added(world: World, name: str, **labels: str) -> WatchEvent:
    """Return the event of a new pod, which the host gets by itself while its watch stands still."""
    return WatchEvent("Pod", None, world.server.create(pod(name, labels=labels)))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def configuration(where: str, log: Path, seats: int) -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: KeepsSeats}}]}}\n" for point in POINTS)
    deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in ("reserve", "permit", "preBind"))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}    filter: {{enabled: [{{name: Slow}}]}}\n"
        f"  pluginConfig:\n  - name: KeepsSeats\n    args: {{log: {log}, seats: {seats}}}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
        f"plugins:\n- name: KeepsSeats\n  {where}\n  required: true\n  points: {{{deadlines}}}\n"
    )


Make = Callable[..., AbstractAsyncContextManager[Seen]]


def worlds(folder: Path, *, is_served: bool) -> Make:
    """Return a function that makes a host with the plugin, in process or served, and one node."""
    Slow.reset("")

    @asynccontextmanager
    async def made(
        *objects: Mapping[str, Any],
        seats: int = 1,
        gates: Mapping[str, bool] | None = None,
        edit: Callable[[str], str] = str,
    ) -> AsyncIterator[Seen]:
        log = folder / "calls"
        log.touch()
        process = None
        where = f"inProcess: {KeepsSeats.__module__}:KeepsSeats"
        if is_served:
            process = PluginProcess(folder / "p.sock", "support.keeps_seats:KeepsSeats")
            await process.start()
            where = f"endpoint: {process.endpoint}"
        text = edit(configuration(where, log, seats))
        try:
            everything = [node("n0"), *objects]
            world = World(everything, [Slow], configuration=text, faults=AT_ONCE, gates=gates)
            async with world:
                yield Seen(world, text, log, process)
        finally:
            if process is not None:
                await process.kill()

    return made


@pytest.fixture(params=["in process", pytest.param("served", marks=pytest.mark.long)])
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return `worlds` of both kinds."""
    return worlds(tmp_path, is_served=request.param == "served")


@pytest.fixture
def served(tmp_path: Path) -> Make:
    """Return `worlds` with the plugin in a process of its own."""
    return worlds(tmp_path, is_served=True)


# --- when it comes ---------------------------------------------------------------------------------


async def test_post_bind_of_the_last_pod_comes_with_its_event_and_needs_no_next_pod(seen: Make) -> None:
    async with seen() as case:
        await case.bound_unseen("web")
        await case.stays_held()
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await case.told("web")


async def test_watch_that_is_cut_for_a_minute_lets_no_seat_be_given_twice(seen: Make) -> None:
    async with seen() as case:
        await case.bound_unseen("web", "next")
        await until(lambda: ["refuse", "next"] in case.calls)
        await case.stays_held(60)
        assert case.world.host.post_bind_ages() == {"KeepsSeats": 60.0}
        assert case.world.host.reservations().get("KeepsSeats", 1) == 1
        assert case.world.faulty is not None
        # It was read back every ten seconds, and it is there.
        assert case.world.faulty.calls.count(("get", "default/web")) == 60 / READ_BACK_S
        case.world.faulty.revive()
        await case.told("web")
        await case.world.settle()
        assert case.of("reserve") == [["reserve", "web", 0]]
        assert case.world.host.post_bind_ages() == {}


async def test_read_back_that_rounding_makes_due_a_moment_early_comes_once(seen: Make) -> None:
    since_s = 6.641
    assert (since_s + READ_BACK_S) - since_s < READ_BACK_S
    async with seen() as case:
        case.world.clock.advance(since_s)
        await case.bound_unseen("web")
        await case.stays_held(READ_BACK_S)
        assert case.world.faulty is not None
        assert case.world.faulty.calls.count(("get", "default/web")) == 1
        case.world.faulty.revive()
        await case.told("web")


def deleted(world: World) -> None:
    world.server.delete("pods", ObjectRef(name="web", namespace="default"), grace_period_s=0)


def finished(world: World) -> None:
    ref = ObjectRef(name="web", namespace="default")
    world.server.patch("pods", ref, {"status": {"phase": "Succeeded"}}, subresource="status")


def made_again(world: World) -> None:
    deleted(world)
    world.server.create(pod("web", schedulerName="another"))


@pytest.mark.parametrize("gone", [deleted, finished, made_again])
async def test_pod_that_is_gone_before_its_event_is_read_back(
    seen: Make, gone: Callable[[World], None]
) -> None:
    async with seen() as case:
        await case.bound_unseen("web")
        gone(case.world)
        await case.stays_held(READ_BACK_S - 1)
        case.world.clock.advance(1.0)
        await case.told("web")


@pytest.mark.parametrize("gone", [deleted, finished, made_again])
async def test_watch_shows_that_the_pod_is_gone(seen: Make, gone: Callable[[World], None]) -> None:
    async with seen() as case:
        await case.bound_unseen("web")
        gone(case.world)
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await case.told("web")
        assert case.world.faulty.calls.count(("get", "default/web")) == 0


async def test_end_waits_for_the_cycle_that_reads_an_older_snapshot(seen: Make) -> None:
    async with seen(seats=2) as case:
        await case.bound_unseen("web")
        Slow.reset("slow")
        assert case.world.faulty is not None
        # The cycle of the next pod begins before the event of the first one.
        case.world.host.handle_event(added(case.world, "slow"))
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        case.world.faulty.revive()
        await until(lambda: not case.ends.awaited)
        await case.stays_held()
        Slow.go_on.set()
        await case.told("web")
        await case.world.settle()
        assert case.of("reserve") == [["reserve", "web", 0], ["reserve", "slow", 1]]


async def test_end_waits_for_the_cycle_of_a_group(seen: Make) -> None:
    async with seen(seats=4, gates=GROUPS) as case:
        await case.bound_unseen("web")
        Slow.reset("g-1")
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await case.told("web")
        gate = case.world.faulty.gate("bind", after=True)
        case.world.server.create(pod("last"))
        await asyncio.wait_for(gate.arrived.wait(), PATIENCE_S)
        case.world.server.create(pod_group("g", least=2))
        for one in members("g", 2):
            case.world.server.create(one)
        await asyncio.wait_for(Slow.reached.wait(), PATIENCE_S)
        # The event came before the answer to the Binding, and before the cycle of the group or after it.
        gate.open.set()
        await turns()
        if len(case.ends):
            await case.stays_held()
        Slow.go_on.set()
        await case.told("last")
        await case.world.settle()
        found = [case.world.pod(name) for name in ("web", "last", "g-0", "g-1")]
        assert len({one.get("metadata.annotations")[SEAT] for one in found if one is not None}) == 4


async def test_permit_that_waits_for_another_pods_post_bind_gets_it(seen: Make) -> None:
    async with seen(seats=2) as case:
        await case.bound_unseen("web")
        case.world.host.handle_event(added(case.world, "second", after="web"))
        await case.world.until_waiting(1)
        await case.stays_held()
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await until(lambda: case.post_bound == ["web", "second"])


CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {},
}


class WithoutClaims:
    """Keeps the events of claims from a host until `release`."""

    def __init__(self, world: World) -> None:
        self._feed = world.host.feed
        self._handle = self._feed.to
        self.held_back: list[WatchEvent] = []
        self._feed.to = self._take

    def _take(self, event: WatchEvent) -> None:
        if event.kind == "ResourceClaim":
            self.held_back.append(event)
        else:
            self._handle(event)

    def release(self) -> None:
        self._feed.to = self._handle
        for event in self.held_back:
            self._handle(event)


async def test_end_waits_for_the_version_of_each_patched_object(seen: Make) -> None:
    async with seen(CLAIM) as case:
        claims = WithoutClaims(case.world)
        case.world.server.create(pod("web", labels={"claim": "c"}))
        await until(lambda: len(case.ends) == 1 and len(claims.held_back) == 1)
        await until(lambda: case.world.host.objects.pod("default/web").node_name == "n0")  # type: ignore[union-attr]
        assert list(case.ends.awaited) == [("ResourceClaim", "default/c")]
        await case.stays_held(2 * READ_BACK_S)
        assert case.world.host.objects.of_resource(CLAIMS).get("c", "default") is not None
        claims.release()
        await case.told("web")


@pytest.mark.parametrize("gone", [deleted, finished])
async def test_pod_that_waits_for_a_seat_gets_that_of_a_pod_that_was_gone_before_its_post_bind(
    seen: Make, gone: Callable[[World], None]
) -> None:
    async with seen(CLAIM) as case:
        claims = WithoutClaims(case.world)
        case.world.server.create(pod("web", labels={"claim": "c"}))
        await until(lambda: len(case.ends) == 1)
        await until(lambda: case.world.host.objects.pod("default/web").node_name == "n0")  # type: ignore[union-attr]
        case.world.server.create(pod("next"))
        await until(lambda: bool(case.of("refuse")))
        case.world.clock.advance(20.0)  # what the Binding requeued
        await asyncio.sleep(0.1)
        refused = len(case.of("refuse"))
        gone(case.world)
        await until(lambda: case.world.host.objects.pod("default/web") is None)
        case.world.clock.advance(20.0)
        await until(lambda: len(case.of("refuse")) > refused)
        claims.release()
        await case.told("web")
        case.world.clock.advance(20.0)
        await until(lambda: case.world.node_of("next") == "n0")


async def test_end_that_says_bound_waits_as_post_bind_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "IDLE_END_S", 0.05)
    plugin = ScriptedPlugin(descriptor("KeepsSeats", "RESERVE"))
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    reserve: {enabled: [{name: KeepsSeats}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
        f"plugins:\n- {{name: KeepsSeats, endpoint: 'unix://{tmp_path}/p.sock', required: true,"
        " points: {reserve: {deadline: 10s}}}\n"
    )
    async with (
        plugin.serving(tmp_path / "p.sock"),
        World([node("n0")], configuration=text, faults=AT_ONCE) as world,
    ):
        case = Seen(world, text, tmp_path / "calls", None)
        await case.bound_unseen("web")
        world.host.handle_event(added(world, "next"))
        await until(lambda: len(plugin.requests("Reserve")) == 2 and len(case.ends) == 2)
        await asyncio.sleep(0.2)
        first, second = plugin.requests("Reserve")
        assert (list(second.ctx.ended), plugin.requests("EndCycles")) == ([], [])
        assert world.faulty is not None
        world.faulty.revive()
        await until(lambda: bool(plugin.requests("EndCycles")))
        ended = [one for request in plugin.requests("EndCycles") for one in request.ended]
        assert [one.cycle_id for one in ended] == [first.ctx.cycle_id, second.ctx.cycle_id]
        assert {one.outcome for one in ended} == {pb.CycleEnd.OUTCOME_BOUND}
        assert len(case.ends) == 0


async def test_seat_of_a_pod_that_was_read_back_as_gone_is_free_when_the_plugin_has_been_told(
    tmp_path: Path,
) -> None:
    """The host requeues `next` before the plugin has the PostBind, and again once the plugin has it."""
    plugin = ScriptedPlugin(descriptor("KeepsSeats", "RESERVE", "POST_BIND"))
    tried_again = asyncio.Event()
    is_free = False

    def reserve(_: Any) -> scheduling_pb2.ReserveResponse:
        if len(plugin.requests("Reserve")) == 3:
            tried_again.set()
        has_seat = is_free or len(plugin.requests("Reserve")) == 1
        said = decided() if has_seat else decided(pb.PluginStatus.CODE_UNSCHEDULABLE, "no seat")
        return scheduling_pb2.ReserveResponse(ctx=said)

    async def give_back(request: Any) -> Any:
        nonlocal is_free
        await tried_again.wait()
        is_free = True
        return plugin.unscripted("PostBind")(request)

    plugin.on("Reserve", reserve)
    plugin.on("PostBind", give_back)
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins:\n    reserve: {enabled: [{name: KeepsSeats}]}\n"
        "    postBind: {enabled: [{name: KeepsSeats}]}\n"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
        f"plugins:\n- {{name: KeepsSeats, endpoint: 'unix://{tmp_path}/p.sock', required: true,"
        " points: {reserve: {deadline: 10s}}}\n"
    )
    async with (
        plugin.serving(tmp_path / "p.sock"),
        World([node("n0")], configuration=text, faults=AT_ONCE) as world,
    ):
        case = Seen(world, text, tmp_path / "calls", None)
        await case.bound_unseen("web")
        world.host.handle_event(added(world, "next"))
        await until(lambda: "no seat" in world.message_of("next"))
        world.server.delete("pods", ObjectRef(namespace="default", name="web"), grace_period_s=0)
        world.clock.advance(READ_BACK_S)
        await until(lambda: is_free)
        for _ in range(100):  # 10 s: the longest backoff
            world.clock.advance(0.1)
            await turns()
        await until(lambda: world.node_of("next") == "n0")


# --- what else may end in between --------------------------------------------------------------------


async def test_restart_of_the_plugin_gets_the_reservation_in_its_list_and_post_bind_later(
    served: Make,
) -> None:
    async with served() as case:
        await case.bound_unseen("web")
        assert case.process is not None
        await case.process.kill()
        await case.process.start()
        await until(lambda: case.of("reconcile")[1:] == [["reconcile", "web"]])
        await until(lambda: case.world.host.attachments.recoveries == 2)
        case.world.host.handle_event(added(case.world, "next"))
        await until(lambda: case.of("refuse") == [["refuse", "next"]])
        await case.stays_held()
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await case.told("web")


async def test_reloaded_host_lists_what_was_held_and_tells_it(seen: Make) -> None:
    async with seen() as case:
        await case.bound_unseen("web")
        registered = ClassRegistry({"Slow": Slow}).points()
        loaded = load_configuration(case.text, source="new.yaml", registered=registered)
        case.world.host = await reload(case.world.host, loaded)
        assert case.of("reconcile")[-1] == ["reconcile", "web"]
        case.world.host.handle_event(added(case.world, "next"))
        await until(lambda: case.of("refuse") == [["refuse", "next"]])
        await case.stays_held()
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await case.told("web")
        assert case.of("reserve") == [["reserve", "web", 0]]


async def test_plugin_that_never_comes_keeps_no_end_from_the_other_plugins_of_a_reloaded_host(
    seen: Make, tmp_path: Path
) -> None:
    def with_gone(text: str) -> str:
        gone = f"- name: Gone\n  endpoint: unix://{tmp_path}/gone.sock\n  required: false\n"
        return text.replace("postBind: {enabled: [", "postBind: {enabled: [{name: Gone}, ") + gone

    async with seen(edit=with_gone) as case:
        await case.bound_unseen("web")
        registered = ClassRegistry({"Slow": Slow}).points()
        loaded = load_configuration(case.text, source="new.yaml", registered=registered)
        case.world.host = await reload(case.world.host, loaded)
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await until(lambda: not case.ends.awaited)
        await case.stays_held(bound_ends.ABSENT_S - 1)
        case.world.clock.advance(2)
        await case.told("web")


@pytest.mark.parametrize("lost", [False, True])
async def test_stopping_host_sends_nothing_early_and_the_next_one_lists_nothing(
    seen: Make, lost: bool
) -> None:
    async with seen() as case:
        await case.bound_unseen("web")
        await (case.world.host.abandon() if lost else case.world.host.stop())
        await asyncio.sleep(0.05)
        assert (case.post_bound, case.of("unreserve")) == ([], [])
        registered = ClassRegistry({"Slow": Slow}).points()
        loaded = load_configuration(case.text, source="new.yaml", registered=registered)
        case.world.host = type(case.world.host)(loaded, case.world.cluster, case.world.host.options)
        case.world.server.create(pod("next"))
        await case.world.host.connect(stands_by=True)
        assert case.world.host.objects.pod("default/web").node_name == "n0"  # type: ignore[union-attr]
        await case.world.host.lead()
        await case.world.settle()
        assert case.of("reconcile")[-1] == ["reconcile"]
        # The seat is taken: the snapshot of the next host shows the annotation.
        assert case.of("reserve") == [["reserve", "web", 0]]
        assert case.of("refuse")[0] == ["refuse", "next"]


async def test_oldest_end_of_too_many_is_dropped_counted_and_left_out_of_a_new_list(
    seen: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_ends, "MOST_HELD", 2)
    async with seen(seats=3) as case:
        await case.bound_unseen("p0")
        for name in ("p1", "p2"):
            case.world.host.handle_event(added(case.world, name))
        await until(lambda: case.world.host.post_binds_dropped() == {"KeepsSeats": 1})
        case.world.clock.advance(0.0)
        await until(lambda: case.of("reconcile")[-1] == ["reconcile", "p1", "p2"])
        assert case.world.faulty is not None
        case.world.faulty.revive()
        await until(lambda: not len(case.ends) and sorted(case.post_bound) == ["p1", "p2"])


async def test_host_without_such_plugins_holds_nothing() -> None:
    async with World([node("n0")], faults=AT_ONCE) as world:
        faulty, ends = world.faulty, world.host.binding.ends
        assert faulty is not None and ends is not None
        gate = faulty.gate("bind")
        world.server.create(pod("web"))
        await gate.arrived.wait()
        faulty.stand_still()
        gate.open.set()
        await until(lambda: not len(world.host.binding))
        assert world.node_of("web") == "n0"
        assert (len(ends), dict(ends.awaited)) == (0, {})
