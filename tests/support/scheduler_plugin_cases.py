"""Recorded cases of kubernetes-sigs/scheduler-plugins, decided by berth's plugins of the same names.

A case has nodes, pods and the state of the other sources. `decide` gives the plugin all of it and returns
what the plugin answers, in the form of the recording. A plugin runs here, or is served from another process.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from berth_host.model.resources import kind_of
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError
from berth_sdk.extension_points import ExtensionPoint, ScoreNormalization
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.rfc3339 import format_time
from berth_sdk.runtime.normalization import normalized
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.testing import PluginHost, make_table
from support.asking import Plug
from support.attached import AttachedHost
from support.json_server import serving_json
from support.served import Served, cycle_of, same_rows
from support.waiting import PATIENCE_S

Json = dict[str, Any]
RECORDED_AT_S: Final = 1764331205
"""Unix seconds of the metrics of most cases, which count as new."""
LONG_AGO_S: Final = 3600.0
TOPOLOGIES: Final = "topology.node.k8s.io/noderesourcetopologies"


def plugin_class(name: str) -> type:
    """Return the class of an installed plugin."""
    (entry,) = (one for one in entry_points(group="berth.plugins") if one.name == name)
    found: type = entry.load()
    return found


class Session(Protocol):
    """One instance of a plugin with its cluster."""

    async def filter(self, pod: Pod) -> dict[str, Status]:
        """Run PreFilter and Filter; return the verdict on each node."""
        ...

    async def scores(self, pod: Pod, names: Sequence[str]) -> tuple[list[int], list[int]] | Status:
        """Run PreScore, Score and NormalizeScore; return raw and final scores, or PreScore's status."""
        ...

    async def reserve(self, pod: Pod, node: str) -> None:
        """Assume the pod on a node, and run Reserve."""
        ...

    async def put_pod(self, pod: Pod) -> None:
        """Put a pod on the node that it names."""
        ...

    async def put_object(self, resource: str, item: Json) -> None:
        """Add or replace an object."""
        ...


class Here:
    """Implements `Session` in this process."""

    def __init__(self, host: PluginHost, has_filter: bool) -> None:
        self._host = host
        self._has_filter = has_filter
        self._assumed: set[str] = set()
        self._state = CycleState("cycle")

    def _table(self) -> NodeTable:
        table = self._host.table()
        for slot in table.slots.tolist():
            table.pods.set_node_pods(slot, table.pods.on_node(slot), self._assumed, 2)
        return table

    async def filter(self, pod: Pod) -> dict[str, Status]:
        """Run PreFilter and Filter."""
        nodes, runtime = self._table(), self._host.runtime
        self._state = CycleState("cycle")
        if not self._has_filter:
            return dict.fromkeys(nodes.names, Status.success())
        before = (await _value(runtime.pre_filter(self._state, pod, nodes))).status
        if before.code is Code.SKIP:
            return dict.fromkeys(nodes.names, Status.success())
        if not before.is_success:
            return dict.fromkeys(nodes.names, before)
        verdicts = (await _value(runtime.filter(self._state, pod, nodes))).verdicts.to_list()
        return dict(zip(nodes.names, verdicts, strict=True))

    async def scores(self, pod: Pod, names: Sequence[str]) -> tuple[list[int], list[int]] | Status:
        """Run PreScore, Score and NormalizeScore."""
        table, runtime, state = self._table(), self._host.runtime, self._state
        nodes = table.take([row for row in map(table.position, names) if row is not None])
        status: Status = await _value(runtime.pre_score(state, pod, nodes))
        if not status.is_success:
            return status
        raw = (await _value(runtime.score(state, pod, nodes))).copy()
        how = runtime.descriptor.normalization
        if how is ScoreNormalization.RPC:
            final = await _value(runtime.normalize(state, pod, raw.copy(), nodes))
        else:
            final = normalized(raw, how)
        return raw.tolist(), final.tolist()

    async def reserve(self, pod: Pod, node: str) -> None:
        """Assume the pod on a node, and run Reserve."""
        self._host.put_pod(pod.on_node(node))
        self._assumed.add(pod.uid)
        await _value(self._host.runtime.reserve(CycleState(f"cycle of {pod.uid}"), pod, node))

    async def put_pod(self, pod: Pod) -> None:
        """Put a pod on its node."""
        self._host.put_pod(pod)
        self._assumed.discard(pod.uid)

    async def put_object(self, resource: str, item: Json) -> None:
        """Add or replace an object."""
        self._host.put_object(resource, item)


class There:
    """Implements `Session` over the wire."""

    def __init__(self, host: AttachedHost) -> None:
        self._host = host
        self._cycle = cycle_of(host, Pod(name="none"))

    async def filter(self, pod: Pod) -> dict[str, Status]:
        """Run PreFilter and Filter."""
        client, nodes = self._host.client, self._host.nodes
        self._cycle = cycle_of(self._host, pod)
        if ExtensionPoint.FILTER not in client.points:
            return dict.fromkeys(nodes.names, Status.success())
        if ExtensionPoint.PRE_FILTER in client.points:
            before = _attached((await client.pre_filter(self._cycle, nodes)).status)
            if before.code is Code.SKIP:
                return dict.fromkeys(nodes.names, Status.success())
            if not before.is_success:
                return dict.fromkeys(nodes.names, before)
        verdicts = [_attached(one) for one in (await client.filter(self._cycle, nodes)).to_list()]
        return dict(zip(nodes.names, verdicts, strict=True))

    async def scores(self, pod: Pod, names: Sequence[str]) -> tuple[list[int], list[int]] | Status:
        """Run PreScore, Score and NormalizeScore."""
        client, table = self._host.client, self._host.nodes
        nodes = same_rows(table.take([row for row in map(table.position, names) if row is not None]), table)
        if ExtensionPoint.PRE_SCORE in client.points:
            status = await client.pre_score(self._cycle, nodes)
            if not status.is_success:
                return status
        outcome = await client.score(self._cycle, nodes)
        assert outcome.status.is_success, outcome.status.message
        return outcome.raw.tolist(), outcome.normalized.tolist()

    async def reserve(self, pod: Pod, node: str) -> None:
        """Assume the pod on a node, and run Reserve."""
        self._host.state.cache.assume(pod.on_node(node))
        await self._host.state.refresh()
        if ExtensionPoint.RESERVE in self._host.client.points:
            await self._host.client.reserve(cycle_of(self._host, pod), node)

    async def put_pod(self, pod: Pod) -> None:
        """Put a pod on its node."""
        self._host.state.put(pod, pod.node_name)

    async def put_object(self, resource: str, item: Json) -> None:
        """Add or replace an object."""
        self._host.state.objects.put(kind_of(resource), KubeObject.of(item))
        await self._host.state.refresh()


async def decide(case: Json, endpoint: str = "") -> Json:
    """Return the answer to a case: `configError`, `filter` and `scores`, as in the recordings.

    `endpoint`: where the plugin is served; "": here.
    """
    cls = plugin_class(case["plugin"])
    later_s = int(time.time()) - RECORDED_AT_S
    with _watcher(case, later_s) as address:
        args = {**(case.get("args") or {}), **({"watcherAddress": address} if address else {})}
        try:
            async with _session(case, cls, args, later_s, endpoint) as session:
                return await _answer(case, session)
        except PluginArgsError:
            return {"configError": True, "filter": {}, "scores": None}


async def _answer(case: Json, session: Session) -> Json:
    for item in case.get("reserved", ()):
        await session.reserve(Pod.from_object(item["pod"]), item["node"])
    for item in case.get("foreignPods", ()):
        foreign = copy.deepcopy(item["pod"])
        foreign["spec"] |= {"schedulerName": "another-scheduler", "nodeName": item["node"]}
        await session.put_pod(Pod.from_object(foreign))
    for earlier in case.get("earlierAttempts", ()):
        await session.filter(Pod.from_object(earlier))
    for item in case.get("postBound", ()):
        await session.put_pod(Pod.from_object(item["pod"]).on_node(item["node"]))
    for topology in case.get("updatedNodeResourceTopologies", ()):
        await session.put_object(TOPOLOGIES, _of_case(topology, case))
    pod = Pod.from_object(case["pod"])
    verdicts = await session.filter(pod)
    passed = [name for name, status in verdicts.items() if status.is_success]
    scores: Json | None = {"nodes": passed, "raw": [], "normalized": []}
    if passed:
        found = await session.scores(pod, passed)
        ends_s = time.monotonic() + PATIENCE_S
        while _waits_for_metrics(found) and time.monotonic() < ends_s:
            await asyncio.sleep(0.05)
            await session.filter(pod)
            found = await session.scores(pod, passed)
        if isinstance(found, Status):
            assert found.code is Code.SKIP, found
            found = ([0] * len(passed), [0] * len(passed))
        scores = {"nodes": passed, "raw": found[0], "normalized": found[1]}
    rejected = {
        name: {"code": status.code.kube_name, "reasons": sorted(status.reasons)}
        for name, status in verdicts.items()
        if not status.is_success
    }
    return {"configError": False, "filter": rejected, "scores": scores}


@asynccontextmanager
async def _session(case: Json, cls: type, args: Json, later_s: int, endpoint: str) -> AsyncIterator[Session]:
    nodes = [Node.from_object(item) for item in case["nodes"]]
    pods = [_started(item, case, later_s) for item in case.get("pods", ())]
    needed = {need.resource for need in getattr(cls, "needs", ()) if need.resource}
    topologies = [_of_case(item, case) for item in case.get("nodeResourceTopologies", ())]
    objects = {TOPOLOGIES: topologies} if topologies else {}
    objects = {resource: items for resource, items in objects.items() if resource in needed}
    if endpoint:
        plug = Plug(cls, args, objects)
        async with Served(endpoint).attached(plug, make_table(nodes, pods)) as attached:
            yield There(attached)
        return
    host = PluginHost(cls, args, nodes=nodes, pods=pods, objects=objects)
    try:
        yield Here(host, hasattr(cls, "filter") or hasattr(cls, "filter_nodes"))
    finally:
        host.close()


def _of_case(item: Json, case: Json) -> Json:
    """Return an object with a uid of its own: a served plugin that is attached again keeps its memory."""
    return {**item, "metadata": {**item["metadata"], "uid": f"{case['name']}/{item['metadata']['name']}"}}


def _started(item: Json, case: Json, later_s: int) -> Pod:
    """Return a pod that runs since the scheduler saw it on its node; without such a time, since long ago."""
    bound: Mapping[str, float] = case.get("boundAt") or {}
    key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
    at_s = bound[key] + later_s if key in bound else time.time() - LONG_AGO_S
    item = copy.deepcopy(item)
    item.setdefault("status", {})["startTime"] = format_time(at_s)
    return Pod.from_object(item)


@contextmanager
def _watcher(case: Json, later_s: int) -> Iterator[str]:
    """Serve the metrics of a case, moved to the present, as load-watcher does; yield the address."""
    if "metrics" not in case:
        yield ""
        return
    metrics = copy.deepcopy(case["metrics"])
    window = metrics.get("window") or {}
    for part, key in ((metrics, "timestamp"), (window, "start"), (window, "end")):
        if part.get(key):
            part[key] = part[key] + later_s
    with serving_json({"/watcher": (case.get("metricsHttpStatus", 200), metrics)}) as server:
        yield server.address


def _waits_for_metrics(found: object) -> bool:
    """Return True if the server of the metrics did not answer in time, as on a busy machine."""
    return (
        isinstance(found, Status)
        and found.message.startswith("no metrics yet")
        and "answered with status" not in found.message
    )


def _attached(status: Status) -> Status:
    """Return the status. Raises PluginArgsError for a plugin that refused its arguments."""
    if "refuses its arguments" in status.message:
        raise PluginArgsError(status.message)
    assert status.code is not Code.ERROR, status.message
    return status


async def _value(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
