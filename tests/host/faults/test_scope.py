"""The scope that a plugin declares: a pod outside costs no call and fails nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_host.cli.rendering.why import pod_answer_text
from berth_host.explain.make_pod_answer import pod_answer
from berth_sdk.kube_object import ObjectRef
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2
from support import one_plugin
from support.faults import RawPlugin, attached, configuration, held, in_time, running
from support.hosts import World, node, pod
from support.scripted_plugin import descriptor
from support.storage import claim

pytestmark = pytest.mark.slow

GPU = {"kind": "gpu"}
WAIT = pb.PluginStatus.CODE_WAIT
OWN = ObjectRef(namespace="kube-system", name="berth-0", uid="uid-berth")


def scope(*selectors: str) -> identity_pb2.PodScope:
    return identity_pb2.PodScope(terms=[identity_pb2.PodScopeTerm(label_selector=one) for one in selectors])


def raw(folder: Path, *points: str, scoped: identity_pb2.PodScope | None = None) -> RawPlugin:
    """Return a plugin; two in one folder listen at the same socket."""
    return RawPlugin(folder, descriptor("Raw", *points, scope=scoped))


def pods_of(plugin: RawPlugin, rpc: str) -> list[str]:
    return [request.ctx.pod.summary.ref.name for request in plugin.requests(rpc)]


@pytest.mark.long
@pytest.mark.parametrize("way", one_plugin.WAYS)
async def test_pod_outside_the_scope_of_the_class_is_never_asked_about(tmp_path: Path, way: str) -> None:
    objects = [node("n0"), pod("plain", labels={"gated": "1"}), pod("gpu", labels=GPU)]
    async with one_plugin.running("support.gpu_only:GpuOnly", way, tmp_path) as where:
        text = one_plugin.configuration("GpuOnly", "multiPoint", where).replace(
            "{multiPoint: {deadline: 10s}}", "{filter: {deadline: 10s}, preEnqueue: {deadline: 10s}}"
        )
        async with World(objects, configuration=text) as world:
            await world.settle()
            assert world.node_of("plain") == "n0"
            assert not world.node_of("gpu")
            assert "no GPU" in world.message_of("gpu")
            # Its labels take the pod out of the scope: then nothing holds it back.
            world.server.patch(
                "pods", ObjectRef(namespace="default", name="gpu"), {"metadata": {"labels": {"kind": "cpu"}}}
            )
            world.clock.advance(20)
            await in_time(lambda: world.node_of("gpu"))


@pytest.mark.parametrize(
    "way", [one_plugin.WAYS[0], pytest.param(one_plugin.WAYS[1], marks=pytest.mark.long)]
)
async def test_pod_leaves_the_scope_when_its_claim_turns_out_to_be_of_another_class(
    tmp_path: Path, way: str
) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    objects = [node("n0"), *(pod(name, volumes=[volume]) for name in ("first", "second"))]
    name = "FastVolumesOnly"
    async with one_plugin.running(f"support.gpu_only:{name}", way, tmp_path) as where:
        text = one_plugin.configuration(name, "preEnqueue", where)
        async with World(objects, configuration=text) as world:
            await world.settle()
            # A claim that the host does not know counts as one of the class.
            assert not world.message_of("first"), "its gate is closed"
            world.server.create(claim("data", cls="slow"))
            await world.settle()
            for each in ("first", "second"):
                assert "unbound immediate PersistentVolumeClaims" in world.message_of(each)


async def test_pods_outside_do_not_fail_while_the_plugin_is_gone_and_those_inside_do(tmp_path: Path) -> None:
    plugin = raw(tmp_path, "FILTER", "RESERVE", scoped=scope("kind=gpu"))
    text = configuration(plugin, Raw="filter reserve")
    async with World([node("n0"), pod("first")], configuration=text) as world:
        await world.settle()
        assert 'plugin "Raw" is not attached' in world.message_of("first"), "every pod is inside at first"
        async with running(plugin):
            await in_time(lambda: world.node_of("first"))
            world.server.create(pod("gpu-1", labels=GPU))
            await in_time(lambda: world.node_of("gpu-1"))
            await plugin.kill()
            await in_time(lambda: not attached(world, "Raw"))
            for number in range(20):
                world.server.create(pod(f"plain-{number}"))
            world.server.create(pod("gpu-2", labels=GPU))
            await in_time(lambda: all(world.node_of(f"plain-{number}") for number in range(20)))
            await in_time(lambda: world.message_of("gpu-2"))
            assert not world.node_of("gpu-2")
            assert 'plugin "Raw" is not attached' in world.message_of("gpu-2")
            said = await pod_answer(world.host, "default/plain-0")
            assert said is not None
            assert "\n  not called, as the pod is outside the scope: Raw\n" in pod_answer_text(said)
            said = await pod_answer(world.host, "default/gpu-2")
            assert said is not None
            assert "outside the scope" not in pod_answer_text(said)
            await plugin.start()
            await in_time(lambda: world.node_of("gpu-2"))
        assert pods_of(plugin, "Reserve") == ["gpu-1", "gpu-2"]
        assert pods_of(plugin, "Filter") == ["gpu-1", "gpu-2"]


@pytest.mark.long
async def test_scope_that_a_new_instance_narrows_is_an_event_and_frees_the_pods_that_waited(
    tmp_path: Path,
) -> None:
    wide, narrow = raw(tmp_path, "FILTER"), raw(tmp_path, "FILTER", scoped=scope("kind=gpu"))
    text = configuration(wide, Raw="filter")
    wide.on(
        "Filter",
        scheduling_pb2.FilterResponse(
            ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE))
        ),
    )
    async with World([node("n0"), pod("plain")], configuration=text, own_pod=OWN) as world:
        async with running(wide):
            await in_time(lambda: world.message_of("plain") and attached(world, "Raw"))
            await world.settle()
            assert not world.node_of("plain")
        async with running(narrow):
            await in_time(lambda: attached(world, "Raw"))
            world.clock.advance(20)
            await in_time(lambda: world.node_of("plain"))
            event = world.server.events.latest("PluginScopeChanged", OWN.key)
            assert event is not None
            assert event.note.endswith(
                " concerns label selector kind=gpu; the one before concerned every pod"
            )


async def test_pod_that_left_the_scope_in_mid_cycle_is_reconciled_and_given_back(tmp_path: Path) -> None:
    plugin = raw(tmp_path, "RESERVE", "PERMIT", scoped=scope("kind=gpu"))
    waits = scheduling_pb2.PermitResponse(ctx=pb.ReplyContext(status=pb.PluginStatus(code=WAIT)))
    waits.wait_timeout.FromSeconds(600)
    plugin.on("Permit", waits)
    text = configuration(plugin, Raw="reserve permit")
    async with World([node("n0")], configuration=text) as world, running(plugin):
        await in_time(lambda: attached(world, "Raw"))
        world.server.create(pod("gpu", labels=GPU))
        await held(world)
        (waiting,) = world.host.waiting_pods.list()
        gpu = ObjectRef(namespace="default", name="gpu")
        world.server.patch("pods", gpu, {"metadata": {"labels": {"kind": "cpu"}}})

        def has_left() -> bool:
            found = world.host.objects.pod("default/gpu")
            return found is not None and found.labels["kind"] == "cpu"

        await in_time(has_left)
        await plugin.restart()
        await in_time(lambda: attached(world, "Raw"))
        (listed,) = plugin.requests("Reconcile")[-1].live
        assert listed.cycle_id == waiting.cycle_id
        assert listed.waiting_on_permit
        await world.cluster.delete("pods", gpu)
        await in_time(lambda: plugin.requests("Unreserve"))
        assert [item.cycle_id for item in plugin.requests("Unreserve")[0].items] == [waiting.cycle_id]
