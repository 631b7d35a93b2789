"""Cases about names that Configure did not give, of plugins and profiles, and about the names of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from berth_sdk.conformance.case import BrokenError, case
from berth_sdk.conformance.groups import group_cycle
from berth_sdk.conformance.host import Cycle, Host, skipped
from berth_sdk.conformance.queueing import asked_about, asks_hints, queue_request
from berth_sdk.conformance.scheduling import scenario_node, simulates
from berth_sdk.conformance.stateful import judges_by_state, keeps_state, lacks_state
from berth_sdk.conformance.way import chosen
from berth_sdk.conformance.world import ALL, World
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

UNKNOWN: Final = "NoSuchName"
_REFUSED: Final = grpc.StatusCode.INVALID_ARGUMENT
_OPTIONAL: Final = ("Reconcile", "EndCycles")
"""The calls that a plugin need not offer."""
_WITH_CANDIDATES: Final = {
    "PRE_FILTER": "PreFilter",
    "FILTER": "Filter",
    "PRE_SCORE": "PreScore",
    "SCORE": "Score",
    "NORMALIZE_SCORE": "NormalizeScore",
}
_ON_A_NODE: Final = {
    "RESERVE": ("Reserve",),
    "PERMIT": ("Permit",),
    "PRE_BIND": ("PreBindPreFlight", "PreBind"),
    "BIND": ("Bind",),
}
_OF_GROUPS: Final[dict[str, tuple[str, Callable[[Host], dict[str, Any]]]]] = {
    "PLACEMENT_GENERATE": ("PlacementGenerate", lambda host: {"parent": _placement(host)}),
    "PLACEMENT_SCORE": ("PlacementScore", lambda host: {"placement": _placement(host)}),
    "NORMALIZE_PLACEMENT_SCORE": (
        "NormalizePlacementScore",
        lambda host: {"placements": [_placement(host)], "raw_scores": [1]},
    ),
    "PLACEMENT_FEASIBLE": ("PlacementFeasible", lambda _host: {"remaining": 1}),
    "POD_GROUP_POST_FILTER": ("PodGroupPostFilter", lambda _host: {}),
}


def _placement(host: Host) -> scheduling.PlacementNodes:
    return scheduling.PlacementNodes(nodes=host.candidates())


# --- plugins and profiles -----------------------------------------------------------------------------------


def _of_cycles(host: Host) -> Iterator[tuple[str, Any]]:
    """Yield a request of each call of a cycle that the plugin has."""
    subject = host.subject
    for point, rpc in _WITH_CANDIDATES.items():
        if subject.has(point):
            more: dict[str, Any] = {}
            if rpc == "NormalizeScore":
                more["scores"] = scheduling.Scores(dense=[1] * len(host.world.nodes))
            yield _asked(host.cycle(), rpc, candidates=host.candidates(), **more)
    if simulates(subject):
        scenarios = [scheduling.Scenario(node=scenario_node(host, 0))]
        yield _asked(host.cycle(), "SimulateFilter", scenarios=scenarios)
    if subject.has("POST_FILTER"):
        no_room = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=["Insufficient cpu"])
        group = scheduling.NodeGroup(status=no_room, nodes=host.candidates())
        yield _asked(host.cycle(), "PostFilter", rejected=[group], rejected_by=["NodeResourcesFit"])
    node = host.world.candidates[0]
    for point, rpcs in _ON_A_NODE.items():
        for rpc in rpcs if subject.has(point) else ():
            about = chosen(host, node) if rpc in ("Reserve", "Permit") else {"node_name": node.name}
            yield _asked(host.cycle(), rpc, **about)
    for point, (rpc, fields) in _OF_GROUPS.items():
        if subject.has(point):
            yield _asked(group_cycle(host), rpc, **fields(host))


def _asked(cycle: Cycle, rpc: str, **fields: Any) -> tuple[str, Any]:
    is_bound = rpc in ("PreBindPreFlight", "PreBind", "Bind")
    return rpc, cycle.request(rpc, cycle.context(complete=True, binding=is_bound), **fields)


def _about_the_plugin(host: Host) -> Iterator[tuple[str, Any]]:
    """Yield a request of each call that names the plugin, and belongs to no cycle."""
    subject = host.subject
    named: dict[str, Any] = {"plugin": subject.plugin.name, "attachment_id": host.attachment_id}
    if subject.has("PRE_ENQUEUE"):
        yield "PreEnqueue", queue_request(host, queue_pb2.PreEnqueueRequest, 2)
    if subject.has("QUEUE_SORT"):
        yield "SortKeys", queue_request(host, queue_pb2.SortKeysRequest, 2)
    if asks_hints(subject):
        hints = queue_request(host, queue_pb2.QueueingHintsRequest, 2)
        hints.event.CopyFrom(queue_pb2.ClusterEvent(resource=asked_about(subject), action="add"))
        yield "QueueingHints", hints
    if subject.has("RESERVE", "PERMIT"):
        yield "Reconcile", host.pages([[]])
        yield "Unreserve", scheduling.UnreserveRequest(**named)
    if subject.has("POST_BIND"):
        yield "PostBind", scheduling.PostBindRequest(**named)
    if next(_of_cycles(host), None) is not None:
        yield "EndCycles", scheduling.EndCyclesRequest(**named)


def _refuse(host: Host, rpc: str, request: Any, what: str) -> None:
    """Check that a request about an unknown name is refused."""
    codes = (_REFUSED, grpc.StatusCode.UNIMPLEMENTED) if rpc in _OPTIONAL else (_REFUSED,)
    try:
        host.refused(rpc, request, *codes)
    except BrokenError as err:
        raise BrokenError(f"about a {what} that Configure did not name: {err}") from None


@case(
    "calls.unknown-plugin",
    "core",
    "Every call about a plugin that Configure did not name gets INVALID_ARGUMENT.",
)
def _unknown_plugin(host: Host) -> None:
    asked = 0
    for rpc, request in (*_of_cycles(host), *_about_the_plugin(host)):
        asked += 1
        named = request[0] if isinstance(request, list) else request
        if "ctx" in named.DESCRIPTOR.fields_by_name:
            named = named.ctx
        named.plugin = UNKNOWN
        _refuse(host, rpc, request, "plugin")
    if not asked:
        raise skipped("the plugin has no call that names it")
    host.probe()


@case(
    "calls.unknown-profile",
    "core",
    "Every call of a cycle of a profile that Configure did not name gets INVALID_ARGUMENT.",
)
def _unknown_profile(host: Host) -> None:
    asked = 0
    for rpc, request in _of_cycles(host):
        asked += 1
        request.ctx.profile = UNKNOWN
        _refuse(host, rpc, request, "profile")
    if not asked:
        raise skipped("the plugin has no call of a cycle")
    host.probe()


# --- nodes --------------------------------------------------------------------------------------------------


def _nameless(world: World) -> pb.StateDelta:
    """Add a node, and return a delta that does not say its name."""
    base = world.version
    return world.delta(base, [world.state(world.add(20, "kit-node-late"), ALL - {"name"})])


def _renamed(world: World) -> pb.StateDelta:
    """Change a node, and return a delta that gives its index another name."""
    base = world.version
    world.put_pod(3)
    changed = world.state(world.nodes[3], {"usage"}, pods=[list(world.nodes[3].pods.values())[-1]])
    changed.name = "kit-node-other"
    return world.delta(base, [changed])


def _nameless_in_full(world: World) -> pb.StateDelta:
    """Return the full state of a next version, without the name of a node."""
    world.put_pod(3)
    whole = world.full()
    whole.upserts[-1].name = ""
    return whole


_WRONG: Final[dict[str, Callable[[World], pb.StateDelta]]] = {
    "a new index without a name": _nameless,
    "another name for an index": _renamed,
    "a full state with an index without a name": _nameless_in_full,
}
_LAW: Final = "NodeState.name asks for the answer to a wrong node_count"


@case(
    "syncState.names",
    "stateful",
    "A new index without a name, and another name for an index, get need_full.",
    keeps_state,
)
def _sync_names(host: Host) -> None:
    for what, made in _WRONG.items():
        if not host.try_sync([made(host.world)]).need_full:
            raise BrokenError(f"SyncState takes up {what}; {_LAW}")
        host.sync([host.world.full()])


@case(
    "state.names",
    "stateful",
    "A call whose delta has a new index without a name, or another name for an index, gets MISSING_STATE.",
    judges_by_state,
)
def _call_names(host: Host) -> None:
    for what, made in _WRONG.items():
        try:
            lacks_state(host, made(host.world))
        except BrokenError as err:
            raise BrokenError(f"{what}: {err}; {_LAW}") from None
        host.sync([host.world.full()])
