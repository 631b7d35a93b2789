"""Reconcile under the whole host: a new instance hears what is alive before its first cycle.

Rows 9, 10 and 15 of the contract's failure table; the plugin is a script on a real socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from berth_host.attach import retrying
from berth_host.errors.plugins import PluginError
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2, state_pb2
from support.hosts import World, node, pod
from support.scripted_plugin import ScriptedPlugin, decided, descriptor, refuse
from support.waiting import until

POINTS = ("reserve", "permit", "preBind")
TOKEN = b"gpu 3"


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attachments are tried again within a tenth of a second."""
    monkeypatch.setattr(retrying, "FIRST_S", 0.05)
    monkeypatch.setattr(retrying, "MAX_S", 0.1)


def configuration(path: Path) -> str:
    enabled = "".join(f"    {point}: {{enabled: [{{name: Demo}}]}}\n" for point in POINTS)
    deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in (*POINTS, "unreserve"))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins:\n{enabled}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 10s\n"
        f"plugins:\n- name: Demo\n  endpoint: unix://{path}\n  required: true\n"
        f"  points: {{{deadlines}}}\n"
    )


def reserves(_request: Any) -> scheduling_pb2.ReserveResponse:
    ctx = decided()
    ctx.plugin_token = TOKEN
    return scheduling_pb2.ReserveResponse(ctx=ctx)


def waits(_request: Any) -> scheduling_pb2.PermitResponse:
    reply = scheduling_pb2.PermitResponse(ctx=decided(pb.PluginStatus.CODE_WAIT))
    reply.wait_timeout.FromSeconds(300)
    return reply


def knows_nothing(request: state_pb2.ReconcileRequest) -> state_pb2.ReconcileResponse:
    return state_pb2.ReconcileResponse(unknown_cycle_ids=[item.cycle_id for item in request.live])


def plugin() -> ScriptedPlugin:
    made = ScriptedPlugin(descriptor("Demo", "RESERVE", "PERMIT", "PRE_BIND"))
    made.on("Reserve", reserves)
    return made


@dataclass
class Held:
    """One pod that waits at Permit, its plugin just gone. `second` serves at the same place next."""

    world: World
    path: Path
    first: ScriptedPlugin
    second: ScriptedPlugin

    @property
    def cycle_id(self) -> str:
        (request,) = self.first.requests("Reserve")
        return str(request.ctx.cycle_id)

    async def attached(self) -> None:
        await until(lambda: self.world.host.attachments.recoveries == 2)


@asynccontextmanager
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    path = tmp_path / "p.sock"
    first, second = plugin(), plugin()
    first.on("Permit", waits)
    async with (
        first.serving(path),
        World([node("n1"), pod("web")], configuration=configuration(path)) as world,
    ):
        await world.until_waiting(1)
        await until(lambda: len(world.host.binding) == 1 and not world.host.binding.active_count)
        await first.stop()
        # Nobody may answer at the old connection, which would find the new process by itself.
        await until(lambda: not world.host.attachments.attached_places.plugins["Demo"].is_attached)
        yield Held(world, path, first, second)


def scheduling(asked: list[tuple[str, Any]]) -> list[str]:
    """Return the calls of cycles, and Reconcile, in order."""
    names = (
        *(method.name for method in scheduling_pb2.DESCRIPTOR.services_by_name["SchedulingService"].methods),
    )
    return [rpc for rpc, _ in asked if rpc == "Reconcile" or rpc in names]


async def test_row_10_a_wait_goes_on_with_the_new_instance(tmp_path: Path) -> None:
    async with held(tmp_path) as case, case.second.serving(case.path):
        await case.attached()
        (request,) = case.second.requests("Reconcile")
        (live,) = request.live
        assert request.plugin == "Demo"
        assert request.host_epoch == case.world.host.snapshot.version.epoch
        assert (live.cycle_id, live.node_name, live.plugin_token) == (case.cycle_id, "n1", TOKEN)
        assert (live.pod.name, live.pod.namespace) == ("web", "default")
        assert live.waiting_on_permit
        assert live.permit_deadline.ToSeconds() == int(case.world.clock.now_s()) + 300
        (waiting,) = case.world.host.waiting_pods.list("Demo")
        case.world.host.waiting_pods.allow("Demo", waiting.pod.uid, waiting.cycle_id)
        await case.world.settle()
        assert case.world.node_of("web") == "n1"
        (bind,) = case.second.requests("PreBind")
        assert (bind.ctx.cycle_id, bind.ctx.plugin_token) == (case.cycle_id, TOKEN)
        assert bind.ctx.pod.summary.scheduler_name, "a new instance gets the whole pod"
        assert not case.second.requests("Unreserve")
        assert not case.second.requests("Reserve")


async def test_row_9_reservation_that_the_new_instance_does_not_know_is_given_back_and_tried_again(
    tmp_path: Path,
) -> None:
    async with held(tmp_path) as case:
        case.second.on("Reconcile", knows_nothing)
        async with case.second.serving(case.path):
            await case.attached()
            await case.world.settle()
            assert case.world.node_of("web") == "n1"
            (again,) = case.second.requests("Reserve")
            assert again.ctx.cycle_id != case.cycle_id
            items = [item for request in case.second.requests("Unreserve") for item in request.items]
            assert {(item.cycle_id, item.plugin_token) for item in items} == {(case.cycle_id, TOKEN)}
            assert "knows nothing of this reservation" in items[0].reason


async def test_pod_with_a_lost_reservation_is_not_bound_without_further_calls(
    tmp_path: Path,
) -> None:
    async with held(tmp_path) as case:
        case.second.on("Reconcile", knows_nothing)
        case.world.host.waiting_pods.preempt = lambda *_: False  # type: ignore[method-assign]  # it waits on
        async with case.second.serving(case.path):
            await case.attached()
            (waiting,) = case.world.host.waiting_pods.list("Demo")
            case.world.host.waiting_pods.allow("Demo", waiting.pod.uid, waiting.cycle_id)
            await case.world.settle()
            assert [request.ctx.cycle_id for request in case.second.requests("PreBind")] != [case.cycle_id]
            assert case.world.node_of("web") == "n1"


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(refuse(grpc.StatusCode.INTERNAL), id="breaks"),
        pytest.param(refuse(grpc.StatusCode.RESOURCE_EXHAUSTED), id="has no room"),
        pytest.param(
            lambda _: state_pb2.ReconcileResponse(unknown_cycle_ids=["another"]), id="names a stranger"
        ),
    ],
)
async def test_instance_gets_no_cycle_before_its_answer_to_reconcile(tmp_path: Path, wrong: Any) -> None:
    async with held(tmp_path) as case:
        for _ in range(2):
            case.second.once("Reconcile", wrong)
        case.world.server.create(pod("next"))
        async with case.second.serving(case.path):
            await case.attached()
            (waiting,) = case.world.host.waiting_pods.list("Demo")
            case.world.host.waiting_pods.allow("Demo", waiting.pod.uid, waiting.cycle_id)
            await case.world.settle()
            assert scheduling(case.second.asked)[:3] == ["Reconcile"] * 3
            assert case.world.node_of("web") == case.world.node_of("next") == "n1"


async def test_instance_without_reconcile_is_attached_and_not_called_again(tmp_path: Path) -> None:
    async with held(tmp_path) as case:
        case.second.on("Reconcile", refuse(grpc.StatusCode.UNIMPLEMENTED))
        async with case.second.serving(case.path):
            await case.attached()
            (waiting,) = case.world.host.waiting_pods.list("Demo")
            case.world.host.waiting_pods.allow("Demo", waiting.pod.uid, waiting.cycle_id)
            await case.world.settle()
            assert case.world.node_of("web") == "n1"
            assert len(case.second.requests("Reconcile")) == 1
            (again,) = case.second.requests("Reserve")
            assert again.ctx.cycle_id != case.cycle_id, "what it held is of no use to another instance"


async def test_plugin_without_reserve_and_permit_gets_no_reconcile(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    demo = ScriptedPlugin(descriptor("Demo", "FILTER"))
    text = configuration(path).replace("    reserve:", "    filter: {enabled: [{name: Demo}]}\n    reserve:")
    async with demo.serving(path), World([node("n1")], configuration=text):
        assert not demo.requests("Reconcile")


async def test_reconcile_of_the_first_attachment_lists_no_reservation(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    demo = plugin()
    async with (
        demo.serving(path),
        World([node("n1"), pod("web")], configuration=configuration(path)) as world,
    ):
        await world.settle()
        (request,) = demo.requests("Reconcile")
        assert not request.live
        assert scheduling(demo.asked)[0] == "Reconcile"


@pytest.mark.slow
@pytest.mark.long
async def test_reconcile_list_that_is_larger_than_a_message_is_sent_in_pages(tmp_path: Path) -> None:
    """As a unary call it was over the agreed size, sent again for ever, and kept the plugin out."""
    path = tmp_path / "p.sock"
    first, second = plugin(), plugin()
    token = b"t" * 4096
    first.on("Permit", waits)
    first.on("Reserve", lambda _: scheduling_pb2.ReserveResponse(ctx=with_token(token)))
    count = 1300
    objects = [node("n1", pods="9999", cpu="999"), *(pod(f"p{i}") for i in range(count))]
    async with (
        first.serving(path),
        World(objects, configuration=configuration(path)) as world,
    ):
        await until(lambda: len(world.host.waiting_pods) == count and not world.host.binding.active_count)
        await first.stop()
        await until(lambda: not world.host.attachments.attached_places.plugins["Demo"].is_attached)
        async with second.serving(path):
            await until(lambda: world.host.attachments.recoveries == 2)
            (request,) = second.requests("Reconcile")
            (pages,) = second.pages
            assert pages == 3
            assert len({item.cycle_id for item in request.live}) == count
            assert request.ByteSize() > 5 * 1024 * 1024
            for waiting in world.host.waiting_pods.list("Demo"):
                world.host.waiting_pods.allow("Demo", waiting.pod.uid, waiting.cycle_id)
            await until(lambda: all(world.node_of(f"p{i}") for i in range(count)))


def with_token(token: bytes) -> pb.ReplyContext:
    ctx = decided()
    ctx.plugin_token = token
    return ctx


async def test_standby_host_that_leads_sends_its_epoch_and_its_full_state(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    demo = plugin()
    async with demo.serving(path):
        world = World([node("n1"), pod("web")], configuration=configuration(path))
        await world.host.connect()
        try:
            (first,) = demo.requests("Reconcile")
            await world.host.lead()
            await world.settle()
            _, second = demo.requests("Reconcile")
            assert (len(first.live), len(second.live)) == (0, 0)
            assert first.host_epoch != second.host_epoch == world.host.snapshot.epoch
            assert world.node_of("web") == "n1"
        finally:
            await world.host.stop()


async def test_in_process_reconcile_lists_nothing_before_the_first_cycle() -> None:
    told: list[Any] = []

    class Prober:
        def reconcile(self, live: Any) -> None:
            told.append(list(live))

        def reserve(self, state: Any, pod: Any, node_name: str) -> Any:
            from berth_sdk.status import SUCCESS

            told.append(pod.name)
            return SUCCESS

    async with World([node("n1"), pod("web")], [Prober]) as world:
        await world.settle()
        assert told == [[], "web"]


async def test_in_process_a_plugin_that_cannot_reconcile_ends_the_start() -> None:
    class Broken:
        async def reconcile(self, live: Any) -> None:
            await asyncio.sleep(0)
            raise LookupError("no price list")

        def permit(self, state: Any, pod: Any, node_name: str) -> None: ...

    world = World([node("n1")], [Broken])
    with pytest.raises(
        PluginError, match='plugin "Broken" failed at Reconcile: LookupError: no price list at '
    ):
        await world.host.start()
    await world.host.stop()
