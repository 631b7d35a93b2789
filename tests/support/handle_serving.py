"""HandleService over its real socket, before a host that writes down what it was asked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from berth_host.attach.interfaces import WayBack
from berth_host.handle.backend import NoOpenCallError, QuestionUnderWayError, UnknownNodesError
from berth_host.handle.calls import HandleSeams, ReadScenarios
from berth_host.handle.server import HandleServer
from berth_sdk.errors import HandleError
from berth_sdk.extension_points import ExtensionPoint, NodeMode
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import handle_pb2, handle_pb2_grpc
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment
from berth_sdk.results import (
    Cancellation,
    Decision,
    NodeScores,
    NominatedPod,
    Nomination,
    PluginNodeScores,
    PodGroupPostFilterResult,
    PostFilterResult,
    Trial,
    WaitingPod,
)
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_node, make_pod
from berth_sdk.testing.groups import GroupBook
from support.attached import ClusterState

WAITING = WaitingPod(
    pod=make_pod("held", uid="uid-held", labels={"a": "b"}),
    cycle_id="cycle-7",
    node_name="n1",
    pending_plugins=("Demo",),
    deadline_s=1234.5,
)
DESCRIPTORS = {
    "Demo": Descriptor(
        name="Demo", points=(ExtensionPoint.PERMIT,), needs=(Need.nodes(), Need.objects("configmaps"))
    ),
    "Sorter": Descriptor(name="Sorter", points=(ExtensionPoint.QUEUE_SORT,)),
    "ByNames": Descriptor(name="ByNames", points=(ExtensionPoint.POST_FILTER,), node_mode=NodeMode.NAMES),
}


class Backend:
    """A host that writes down what it was asked. `decisions`: what it answers, in order."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.asked: list[tuple[Any, ...]] = []
        self.decisions = list(Decision)
        self.events_left = 1000
        self.nominated: list[NominatedPod] = []
        self.groups = GroupBook()

    def pod_groups(self) -> GroupBook:
        self.asked.append(("pod_groups",))
        return self.groups

    def waiting_pods(self, plugin: str, only_mine: bool) -> list[WaitingPod]:
        self.asked.append(("waiting_pods", plugin, only_mine))
        return [WAITING]

    def allow(self, plugin: str, uid: str, cycle_id: str, holder: str) -> Decision:
        self.asked.append(("allow", plugin, uid, cycle_id, holder))
        return self.decisions.pop(0)

    def reject(self, plugin: str, uid: str, cycle_id: str, message: str) -> Decision:
        self.asked.append(("reject", plugin, uid, cycle_id, message))
        return self.decisions.pop(0)

    def cancel_binding(self, plugin: str, uid: str, cycle_id: str, message: str) -> Cancellation:
        self.asked.append(("cancel", plugin, uid, cycle_id, message))
        return Cancellation[uid]

    def objects(self, resource: str) -> ObjectReader:
        raise HandleError(resource)

    def snapshot(self) -> NodeTable:
        return self.state.nodes

    async def evaluate_preemption(
        self, plugin: str, cycle_id: str, percentage: int, absolute: int
    ) -> PostFilterResult:
        if cycle_id != "open":
            raise NoOpenCallError(cycle_id)
        self.asked.append(("preempt", plugin, percentage, absolute))
        victim = ObjectRef(namespace="default", name="low", uid="low-uid")
        return PostFilterResult(SUCCESS, "n1", victims=(victim,))

    async def run_scores(self, plugin: str, cycle_id: str, node_names: Sequence[str]) -> NodeScores:
        errors = {"busy": QuestionUnderWayError, "nowhere": UnknownNodesError, "open": None}
        error = errors.get(cycle_id, NoOpenCallError)
        if error is not None:
            raise error(f"it is {cycle_id}")
        self.asked.append(("scores", plugin, *node_names))
        if not node_names:
            return NodeScores(Status.error("no scores"))
        scores = np.arange(len(node_names), dtype=np.int64)
        return NodeScores(SUCCESS, tuple(node_names), 2 * scores - 1, (PluginNodeScores("Other", 2, scores),))

    def nominated_pods(self, plugin: str, node_names: Iterable[str] | None) -> list[NominatedPod]:
        self.asked.append(("nominated", plugin, None if node_names is None else list(node_names)))
        return self.nominated

    def nominate(self, plugin: str, uid: str, node_name: str | None) -> Nomination:
        self.asked.append(("nominate", plugin, uid, node_name))
        return Nomination[uid]

    def requeue(
        self, plugin: str, uids: Iterable[str] | None, reason: str, skip_backoff: bool, asking: str = ""
    ) -> int:
        self.asked.append(("requeue", plugin, None if uids is None else list(uids), reason, skip_backoff))
        return 2

    async def run_filters(self, plugin: str, cycle_id: str, scenarios: Sequence[Scenario]) -> list[Status]:
        return await Filters(self.state).run_filters(plugin, cycle_id, lambda _: list(scenarios))

    def invalidate_sort_keys(self, plugin: str, uids: Iterable[str] | None) -> None:
        self.asked.append(("invalidate", plugin, None if uids is None else list(uids)))

    def record_event(
        self, plugin: str, regarding: ObjectRef, type: str, reason: str, action: str, note: str
    ) -> bool:
        self.asked.append(("event", plugin, regarding.name, type, reason, action, note))
        self.events_left -= 1
        return self.events_left >= 0


LOW = ObjectRef(namespace="default", name="low", uid="low-uid")


class Filters:
    """The other plugins: they reject whatever would have more than one pod added."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    async def run_filters(self, plugin: str, cycle_id: str, read: ReadScenarios) -> list[Status]:
        if cycle_id != "open":
            raise NoOpenCallError(cycle_id)
        return [
            SUCCESS if len(item.added) < 2 else Status.unschedulable(f"{item.node_name} is full")
            for item in read(self._state.nodes)
        ]

    async def try_pod_group(self, plugin: str, cycle_id: str, removed: Sequence[ObjectRef]) -> Trial:
        """The group fits without two pods, and its member `worker` is then on n1."""
        if cycle_id != "open":
            raise NoOpenCallError(cycle_id)
        if len(removed) < 2:
            return Trial(Status.unschedulable(f"{len(removed)} pods are too few"))
        return Trial(SUCCESS, (Assignment(Pod(name="worker", uid="uid-worker"), "n1"),))

    async def preempt_for_pod_group(self, plugin: str, cycle_id: str) -> PodGroupPostFilterResult:
        """The group fits in the place of the pod `low`; its member `worker` is then on n1."""
        trial = await self.try_pod_group(plugin, cycle_id, [LOW, LOW])
        return PodGroupPostFilterResult(trial.status, trial.assignments, (LOW,))


class Serving:
    """A server, and a caller of it."""

    def __init__(self, server: HandleServer, granted: WayBack, backend: Backend, state: ClusterState) -> None:
        self.server = server
        self.granted = granted
        self.backend = backend
        self.state = state
        self.target, self.token = granted.target, granted.token
        self.channel = grpc.aio.insecure_channel(self.target)
        self.stub = handle_pb2_grpc.HandleServiceStub(self.channel)

    async def call(self, rpc: str, request: Any, token: str | None = None) -> Any:
        """One call with the token. Returns the answer, or the list of its chunks."""
        secret = self.token if token is None else token
        metadata = (("authorization", f"Bearer {secret}"),) if secret else ()
        call = getattr(self.stub, rpc)(request, metadata=metadata, timeout=60)
        if isinstance(call, grpc.aio.UnaryStreamCall):
            return [chunk async for chunk in call]
        return await call

    async def refused(self, rpc: str, request: Any, token: str | None = None) -> tuple[grpc.StatusCode, str]:
        """Return the code and text of a call that is refused."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(rpc, request, token)
        return caught.value.code(), caught.value.details() or ""


@asynccontextmanager
async def serving(
    node_count: int = 3, *, tcp: bool = False, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Serving]:
    state = ClusterState()
    state.add_nodes(make_node(f"n{i}") for i in range(node_count))
    backend = Backend(state)
    seams = HandleSeams(
        backend=backend, state=state, filters=Filters(state), descriptor_of=DESCRIPTORS.get, clock=clock
    )
    server = HandleServer(seams, tcp=tcp)
    await server.start()
    granted = await server.grant("attachment-1", frozenset(DESCRIPTORS))
    made = Serving(server, granted, backend, state)
    try:
        yield made
    finally:
        await made.channel.close()
        await server.stop()


def open_call(host: Serving, **fields: Any) -> Any:
    """Return a read under way."""
    return host.stub.ReadState(
        handle_pb2.ReadStateRequest(plugin="Demo", **fields),
        metadata=(("authorization", f"Bearer {host.token}"),),
        timeout=60,
    )


async def open_read(host: Serving, **fields: Any) -> AsyncIterator[handle_pb2.ReadStateResponse]:
    """Its chunks, as they are asked for."""
    async for chunk in open_call(host, **fields):
        yield chunk


async def read(host: Serving, **fields: Any) -> list[handle_pb2.ReadStateResponse]:
    return [chunk async for chunk in open_read(host, **fields)]


def open_list(host: Serving, **fields: Any) -> Any:
    """Return a list under way."""
    return host.stub.ListNominatedPods(
        handle_pb2.ListNominatedPodsRequest(plugin="Demo", **fields),
        metadata=(("authorization", f"Bearer {host.token}"),),
        timeout=60,
    )
