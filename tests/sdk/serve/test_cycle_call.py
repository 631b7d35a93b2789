"""The parts that every call of a cycle shares: missing state, remembered cycles, tokens and shared values."""

from __future__ import annotations

import gc
import threading
from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk import CycleState, KubeObject, Plugin, Pod, Status
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as spb
from berth_sdk.wire import records as wire
from support.sdk_server import RawHost, Serving

from .conftest import Serve

POD = Pod(name="web", uid="u1", labels={"app": "web"})
NODES = [Node(name=f"n{i}", labels={"pool": "spot" if i % 2 else "steady"}) for i in range(4)]
SPOT = Status.unschedulable("node is a spot node")


class Spotless(Plugin):
    """Rejects spot nodes."""

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status | None:
        return SPOT if node.labels["pool"] == "spot" else None


def rejected_names(verdicts: spb.NodeVerdicts) -> list[str]:
    (group,) = verdicts.rejected
    return [f"n{slot}" for slot in wire.decode_bitmap(group.nodes.bitmap)]


# --- what is missing -------------------------------------------------------------------------------


class Prober(Plugin):
    """Writes in Filter, reads in Reserve; a token if the pod asks for one."""

    calls: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        self.calls.append("filter")
        if pod.labels.get("keep") == "memory":
            state.write("kept", True)
        elif pod.labels.get("keep") == "token":
            state.token = b"kept"

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.calls.append(f"reserve with {state.token!r} and {state.get('kept')}")
        return Status.success()


class NeedsObject(Plugin):
    """Wants the whole pod."""

    needs = (Need.whole_pod(), Need.nodes())

    def filter(self, state: CycleState, pod: Pod, node: Any) -> Status | None:
        return None if pod.object and pod.object.get("spec.hostname") == "here" else SPOT


def reserve(
    host: RawHost, pod: Pod, cycle_id: str, token: bytes = b"", *, complete: bool = True
) -> spb.ReserveResponse:
    context = host.ctx("Prober", pod, cycle_id, complete=complete, plugin_token=token)
    return host.scheduling.Reserve(spb.ReserveRequest(ctx=context, node_name="n0"))


def test_without_the_version_asked_for_nothing_is_executed(serve: Serve) -> None:
    Prober.calls.clear()
    host = serve(Prober).host
    host.attach()
    host.version = pb.StateVersion(epoch=7, generation=3)
    reply = host.filter("Prober", POD)
    assert list(reply.ctx.missing) == [pb.MISSING_STATE]
    assert not reply.ctx.HasField("have")
    host.give_nodes(*NODES, generation=2)
    host.version = pb.StateVersion(epoch=7, generation=3)
    reply = host.filter("Prober", POD)
    assert (list(reply.ctx.missing), reply.ctx.have.generation, Prober.calls) == ([pb.MISSING_STATE], 2, [])


def test_a_call_brings_its_delta_once(serve: Serve) -> None:
    host = serve(Spotless).host
    host.attach()
    host.give_nodes(*NODES)
    node = pb.NodeState(index=0, generation=9, summary=wire.encode_node(NODES[1]))
    delta = pb.StateDelta(
        base=host.version,
        target=pb.StateVersion(epoch=7, generation=2),
        upserts=[node],
        node_count=4,
        generation_sum=18,
    )
    host.version = delta.target
    for cycle_id in ("c1", "c2"):
        reply = host.filter("Spotless", POD, cycle_id, delta=delta)
        assert rejected_names(reply.verdicts) == ["n0", "n1", "n3"]


def test_an_unknown_pod_is_asked_for_and_remembered_for_the_whole_instance(serve: Serve) -> None:
    host = serve(Prober, Spotless).host
    host.attach()
    host.give_nodes(*NODES)
    assert list(host.filter("Prober", POD, complete=False).ctx.missing) == [pb.MISSING_POD]
    assert not host.filter("Prober", POD).ctx.missing
    assert not host.filter("Spotless", POD, complete=False).ctx.missing


def test_a_plugin_that_needs_the_object_asks_for_it(serve: Serve) -> None:
    host = serve(Prober, NeedsObject).host
    host.attach()
    host.give_nodes(*NODES)
    host.filter("Prober", POD)
    assert list(host.filter("NeedsObject", POD, complete=False).ctx.missing) == [pb.MISSING_POD]
    item = KubeObject("v1", "Pod", parsed={"spec": {"hostname": "here"}})
    reply = host.filter("NeedsObject", POD, item=wire.encode_object(item))
    assert not reply.verdicts.rejected


@pytest.mark.parametrize(
    ("keep", "want", "seen"),
    [
        pytest.param("nothing", [], "reserve with None and None", id="nothing was left in memory"),
        pytest.param("memory", [pb.MISSING_CYCLE], None, id="memory is lost"),
        pytest.param("token", [], "reserve with b'kept' and None", id="the token suffices"),
    ],
)
def test_another_process_goes_on_with_a_cycle_unless_memory_was_lost(
    tmp_path: Any, serve: Serve, keep: str, want: list[int], seen: str | None
) -> None:
    pod = Pod(name="web", uid="u1", labels={"keep": keep})
    host = serve(Prober).host
    host.attach()
    host.give_nodes(*NODES)
    token = host.filter("Prober", pod).ctx.plugin_token
    assert reserve(host, pod, "c1", token, complete=False).ctx.status.code == pb.PluginStatus.CODE_SUCCESS
    with Serving(tmp_path, Prober, name="second") as second:
        second.host.attach()
        second.host.give_nodes(*NODES)
        Prober.calls.clear()
        reply = reserve(second.host, pod, "c1", token)
        assert list(reply.ctx.missing) == want
        assert Prober.calls == ([seen] if seen else [])


# --- tokens, shared keys, ends ---------------------------------------------------------------------


class Publisher(Plugin):
    """Publishes in Filter, takes back in Reserve; reads what another published."""

    reads_shared = ("Other/price",)
    seen: ClassVar[list[bytes | None]] = []

    def filter(self, state: CycleState, pod: Pod, node: Any) -> None:
        state.publish("zone", b"a")
        self._look(state)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        state.unpublish("zone")
        self._look(state)
        return Status.success()

    def _look(self, state: CycleState) -> None:
        try:
            self.seen.append(state.read_shared("Other/price"))
        except KeyError:
            self.seen.append(None)


def test_published_and_shared_values_travel(serve: Serve) -> None:
    Publisher.seen.clear()
    host = serve(Publisher).host
    host.attach()
    host.give_nodes(NODES[0])
    entry = pb.CycleStateEntry(key="Other/price", value=b"7")
    first = host.filter("Publisher", POD, shared=[entry])
    assert [(item.key, item.value, item.deleted) for item in first.ctx.publish] == [
        ("Publisher/zone", b"a", False)
    ]
    gone = pb.CycleStateEntry(key="Other/price", deleted=True)
    second = host.scheduling.Reserve(
        spb.ReserveRequest(ctx=host.ctx("Publisher", POD, shared=[gone]), node_name="n0")
    )
    assert [(item.key, item.deleted) for item in second.ctx.publish] == [("Publisher/zone", True)]
    assert Publisher.seen == [b"7", None]


def test_ended_cycles_are_forgotten(serve: Serve) -> None:
    serving = serve(Prober)
    host = serving.host
    host.attach()
    host.give_nodes(NODES[0])
    for i in range(5):
        ended = [pb.CycleEnd(cycle_id=f"c{i - 1}")]
        host.filter("Prober", POD, f"c{i}", ended=ended)
    assert len(serving.server.instance.cycles) == 1
    host.scheduling.EndCycles(spb.EndCyclesRequest(plugin="Prober", ended=[pb.CycleEnd(cycle_id="c4")]))
    assert len(serving.server.instance.cycles) == 0


@pytest.mark.slow
def test_two_thousand_cycles_leave_nothing_behind(serve: Serve) -> None:
    serving = serve(Prober)
    host = serving.host
    host.attach()
    host.give_nodes(NODES[0])
    instance = serving.server.instance
    pod = Pod(name="web", uid="u1", labels={"keep": "memory"})
    sizes = set()
    for i in range(2000):
        if i == 500:
            gc.collect()
            objects, threads = len(gc.get_objects()), threading.active_count()
        host.filter("Prober", pod, f"c{i}", ended=[pb.CycleEnd(cycle_id=f"c{i - 1}")])
        sizes.add((len(instance.cycles), instance.cycles.undone_count, len(instance.introduced)))
    gc.collect()
    assert max(sizes) == (1, 0, 1)
    # The pool of threads may still grow to its limit, as it does slowly on Python 3.12.
    assert len(gc.get_objects()) - objects < 500 + 25 * (threading.active_count() - threads)


def test_cycle_of_no_pod_and_no_group_is_refused_in_plain_words(serve: Serve) -> None:
    host = serve(Prober).host
    host.attach()
    host.give_nodes(*NODES)
    context = host.ctx("Prober", POD)
    context.ClearField("pod")
    with pytest.raises(grpc.RpcError, match="a call about neither a pod nor a group"):
        host.scheduling.Filter(spb.FilterRequest(ctx=context))
