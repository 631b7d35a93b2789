"""Served plugins under the whole host: changes while a plugin is asked, and plugins that die."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest
from berth_host.cluster.watching import Watching
from berth_host.errors.plugins import PluginTimeoutError
from berth_host.errors.state import InvariantError
from berth_host.rpc.served.link import InstanceLink
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.tables import NodeTable
from support.hosts import World, node, pod
from support.plugin_processes import PluginProcess, plugin_process
from support.scripted_plugin import ScriptedPlugin, descriptor
from support.waiting import PATIENCE_S, until


def asking(name: str, endpoint: str, *, points: str = "filter: {deadline: 10s}", more: str = "") -> str:
    """One served plugin at Filter (and Score, where it has it)."""
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}}}\n{more}"
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 30s\n"
        f"plugins:\n- {{name: {name}, endpoint: '{endpoint}', required: true, points: {{{points}}}}}\n"
    )


async def arrival(path: Path) -> None:
    """Wait until the plugin has written the file."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(path.exists):
            await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_events_while_a_served_filter_is_awaited_change_nothing_in_that_cycle(
    tmp_path: Path,
) -> None:
    args = f"  pluginConfig: [{{name: Gatekeeper, args: {{folder: {tmp_path}}}}}]\n"
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:Gatekeeper") as process:
        bound = pod("bound")
        bound["spec"]["nodeName"] = "n1"
        objects = [node("n0"), node("n1"), node("n2"), bound, pod("web")]
        text = asking("Gatekeeper", process.endpoint, more=args)
        async with World(objects, configuration=text) as world:
            await arrival(tmp_path / "arrived")
            host = world.host
            assert host.snapshot.held
            version, names = host.snapshot.version, host.snapshot.nodes.names
            counts = host.snapshot.nodes.pod_count.tolist()
            # A new node, a deleted one, a pod that leaves, and a forgotten reservation, all during the call.
            world.server.create(node("n3"))
            await world.cluster.delete("nodes", ObjectRef(name="n2"))
            await world.cluster.delete("pods", ObjectRef(namespace="default", name="bound"))
            attempt = host.scheduler.in_cycle
            assert attempt is not None
            reserved = attempt.pod.on_node("n0")
            host.cache.assume(reserved)
            host.cache.forget(reserved)
            async with asyncio.timeout(PATIENCE_S):
                while host.cluster.undelivered_count:
                    await asyncio.sleep(0)
            assert host.cache.node_count == 3
            assert host.cache.pod_count == 0
            assert host.snapshot.version == version
            assert host.snapshot.nodes.names == names
            assert host.snapshot.nodes.pod_count.tolist() == counts
            await asyncio.to_thread((tmp_path / "gate").touch)
            await world.settle()
            assert world.node_of("web") in {"n0", "n1"}
            assert host.snapshot.version != version or host.cache.pod_count == 1
        seen = await asyncio.to_thread((tmp_path / "seen").read_text)
        first = seen.splitlines()[0]
        assert first == "web True [('n0', 0), ('n1', 1), ('n2', 0)]"


@pytest.mark.slow
async def test_pod_deleted_while_a_served_filter_is_awaited_ends_its_cycle(tmp_path: Path) -> None:
    args = f"  pluginConfig: [{{name: Gatekeeper, args: {{folder: {tmp_path}}}}}]\n"
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:Gatekeeper") as process:
        text = asking("Gatekeeper", process.endpoint, more=args)
        async with World([node("n0"), pod("web")], configuration=text) as world:
            await arrival(tmp_path / "arrived")
            await world.cluster.delete("pods", ObjectRef(namespace="default", name="web"))
            async with asyncio.timeout(PATIENCE_S):
                while world.host.scheduler.in_cycle is not None:
                    await asyncio.sleep(0)
            await asyncio.to_thread((tmp_path / "gate").touch)
            await world.settle()
            assert world.everything_is_accounted_for()
            assert world.host.cache.pod_count == 0
            # It was this call that was cancelled, and not the loop that made it.
            loop_task = world.host.loop_task
            assert isinstance(loop_task, asyncio.Task)
            assert not loop_task.cancelling()
            world.server.create(pod("next"))
            await world.settle()
            assert world.node_of("next") == "n0"


@pytest.mark.slow
async def test_plugin_that_names_nodes_learns_of_pods_that_are_bound_and_deleted(tmp_path: Path) -> None:
    licensed = [pod(f"p{i}", labels={"licensed": "yes"}) for i in range(3)]
    async with plugin_process(tmp_path / "p.sock", "support.licences:Licences") as process:
        text = asking("Licences", process.endpoint)
        async with World([node("n0"), node("n1"), *licensed], configuration=text) as world:
            await world.settle()
            placed = [name for name in ("p0", "p1", "p2") if world.node_of(name)]
            assert len(placed) == 2
            (left,) = {"p0", "p1", "p2"} - set(placed)
            assert "2 licences are taken" in world.message_of(left)
            await world.cluster.delete("pods", ObjectRef(namespace="default", name=placed[0]))
            await world.settle()
            assert world.node_of(left)


class Diary(Plugin):
    """Notes in the host when a pod's cycle begins and when it is bound: both on the loop, not in a thread."""

    pages: ClassVar[list[str]] = []

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        self.pages.append(f"begin {pod.name}")

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.pages.append(f"bound {pod.name}")


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.prompt_cluster
@pytest.mark.parametrize("how", ["asked", "not asked", "fails at once"])
async def test_pod_is_bound_while_a_served_plugin_is_asked_about_the_next_one(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Diary.pages.clear()
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:Steady") as process:
        patient = "deadline: 10s, policy: Ignore"
        text = asking("Steady", process.endpoint, points=f"filter: {{{patient}}}, score: {{{patient}}}")
        text = text.replace("[{name: Steady}]", "[{name: Diary}, {name: Steady}]")
        if how == "not asked":  # no pod of these is its business
            text = text.replace("required: true", "required: true, scope: {resources: [example.com/gpu]}")
        elif how == "fails at once":

            async def fail(
                self: object, method: object, request: object, asked: tuple[str, str], *_: object
            ) -> None:
                raise PluginTimeoutError(*asked, 0.0)

            monkeypatch.setattr(InstanceLink, "ask", fail)
        objects = [node("n0"), *(pod(f"p{i}") for i in range(10))]
        async with World(objects, [Diary], configuration=text) as world:
            await world.settle()
    pages = Diary.pages
    assert len(pages) == 20
    for i in range(9):
        if how == "asked":
            assert pages.index(f"begin p{i + 1}") < pages.index(f"bound p{i}")
    # Whether anybody is waited for or not, those before get their share of the loop.
    assert pages.index("bound p0") < pages.index("begin p5")


@pytest.mark.slow
async def test_killed_plugin_is_attached_again_and_every_pod_is_placed(tmp_path: Path) -> None:
    process = PluginProcess(tmp_path / "p.sock", "support.gatekeeper:Steady")
    await process.start()
    objects = [*(node(f"n{i}") for i in range(20)), *(pod(f"p{i:03}") for i in range(200))]
    text = asking("Steady", process.endpoint, points="filter: {deadline: 10s}, score: {deadline: 10s}")
    try:
        async with World(objects, configuration=text) as world:
            async with asyncio.timeout(PATIENCE_S):
                while world.host.binding.bound_count < 50:
                    await asyncio.sleep(0)
            await process.kill()
            await process.start()
            await world.settle()
            assert {world.node_of(f"p{i:03}") for i in range(200)} <= {f"n{i}" for i in range(20)}
            assert world.everything_is_accounted_for()
            assert world.host.attachments.recoveries == 2
    finally:
        await process.kill()


async def test_filter_and_score_cost_one_round_trip_per_pod(tmp_path: Path) -> None:
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:Steady") as process:
        text = asking("Steady", process.endpoint, points="filter: {deadline: 10s}, score: {deadline: 10s}")
        objects = [node("n0"), node("n1"), node("bad", labels={"bad": "yes"})]
        objects += [pod(f"p{i}") for i in range(10)]
        async with World(objects, configuration=text) as world:
            await world.settle()
            assert {world.node_of(f"p{i}") for i in range(10)} == {"n0", "n1"}
            stats = world.host.plugin_stats()["Steady"]
            assert stats.of("Filter").calls == 10
            assert world.host.attachments.attached_places.places[0].link is not None
            assert world.host.attachments.attached_places.places[0].link.calls_made == 10


async def test_bytes_are_counted_per_call_in_both_directions(tmp_path: Path) -> None:
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:Steady") as process:
        objects = [node("n0"), node("n1"), *(pod(f"p{i}") for i in range(5))]
        async with World(objects, configuration=asking("Steady", process.endpoint)) as world:
            await world.settle()
            figures = dict(world.host.plugin_stats()["Steady"].items())
            assert (figures["Filter"].calls, figures["Filter"].messages) == (5, 5)
            assert figures["Filter"].bytes_sent > 5 * 20
            assert figures["Filter"].bytes_received > 5
            assert figures["SyncState"].bytes_sent > 0
            in_process = dict(world.host.plugin_stats()["NodeResourcesFit"].items())["Filter"]
            assert (in_process.messages, in_process.bytes_sent) == (0, 0)


async def test_absent_optional_plugin_with_a_deadline_is_left_out(tmp_path: Path) -> None:
    text = asking("Steady", f"unix://{tmp_path}/nobody.sock", points="filter: {deadline: 100ms}")
    optional = text.replace("required: true", "required: false")
    async with World([node("n0"), pod("web")], configuration=optional) as world:
        await world.settle()
        assert world.node_of("web") == "n0"
        event = world.server.events.latest("PluginLeftOut", "default/web")
        assert event is not None
        assert event.note.startswith('placed without plugin "Steady" at ')
        assert event.note.endswith("(required: false)")


async def test_plugin_that_is_absent_holds_the_pods_by_default(tmp_path: Path) -> None:
    text = asking("Steady", f"unix://{tmp_path}/nobody.sock", points="filter: {deadline: 100ms}")
    by_default = text.replace("required: true, ", "")
    async with World([node("n0"), pod("web")], configuration=by_default) as world:
        await world.settle()
        assert world.node_of("web") == ""
        # Of a plugin that was never there nobody knows that it has no PreEnqueue.
        found = world.host.queue.places.find("default/web")
        assert found is not None
        assert 'plugin "Steady" is not attached' in found[1].gating_message


async def test_policy_chosen_by_name_holds_for_an_absent_optional_plugin_too(tmp_path: Path) -> None:
    text = asking("Steady", f"unix://{tmp_path}/nobody.sock", points="filter: {policy: Fail}")
    optional = text.replace("required: true", "required: false")
    async with World([node("n0"), pod("web")], configuration=optional) as world:
        await world.settle()
        assert world.node_of("web") == ""
        assert 'plugin "Steady"' in world.message_of("web")


@pytest.mark.long
@pytest.mark.slow
async def test_stop_between_reserve_and_the_end_of_permit_gives_the_reservation_back(tmp_path: Path) -> None:
    args = f"  pluginConfig: [{{name: Holdfast, args: {{folder: {tmp_path}}}}}]\n"
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:Holdfast") as process:
        points = "reserve: {deadline: 10s}, permit: {deadline: 10s}"
        text = asking("Holdfast", process.endpoint, points=points, more=args)
        async with World([node("n0"), pod("web")], configuration=text) as world:
            await arrival(tmp_path / "arrived")
            stopping = asyncio.ensure_future(world.host.stop())
            await until(lambda: world.host.scheduler.is_stopping)
            await asyncio.to_thread((tmp_path / "gate").touch)
            await stopping
        assert world.host.cache.pod_count == 0
        assert (tmp_path / "calls").read_text().split() == ["reserve", "unreserve"]


@pytest.mark.slow
async def test_served_pre_enqueue_has_the_object_of_the_event_in_its_copy(tmp_path: Path) -> None:
    async with plugin_process(tmp_path / "p.sock", "support.gatekeeper:ClaimKeeper") as process:
        text = asking("ClaimKeeper", process.endpoint, points="preEnqueue: {deadline: 10s}")
        async with World([node("n0"), pod("web")], configuration=text) as world:
            await world.settle()
            assert world.node_of("web") == ""
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "web"}}
            world.server.create({**claim, "spec": spec})
            await world.settle()
            assert world.node_of("web") == "n0"


async def test_invariant_that_breaks_while_a_plugin_is_attached_ends_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def contradict(self: Watching, descriptors: object) -> None:
        raise InvariantError("two and two are five")

    monkeypatch.setattr(Watching, "declare", contradict)
    plugin = ScriptedPlugin(descriptor("Steady", "FILTER"))
    path = tmp_path / "p.sock"
    async with (
        plugin.serving(path),
        World([node("n0")], configuration=asking("Steady", f"unix://{path}")) as world,
    ):
        async with asyncio.timeout(PATIENCE_S):
            failure = await world.host.wait_failed()
        assert str(failure) == "two and two are five"
