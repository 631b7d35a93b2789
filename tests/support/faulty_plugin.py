"""A plugin at every point whose process dies, hangs or answers wrongly at the call that a test names.

    python -m support.faulty_plugin --listen unix:PATH        with BERTH_FAULTS naming a folder

In the folder: `armed` (`RPC KIND`, taken away when it fires), `fired` (one line per fault), `journal` (what
the plugin did: reserve, unreserve, bind), `asked` (every call, its cycle and the pod it brought), `release`
(Permit holds no pod any more), `table.json` (the plugin's copy of the nodes, written when a pod called `look`
is filtered).

Kinds: `die` before the call is executed, `die-after` it, `hang` (until nobody waits: then there is the
file `noticed`), `hang-after` it, `late` (executed after the next Unreserve), `invalid`; and for the changes
of nodes and pods that a call brings: `lose`, `twice`, `strange-base`.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from berth_sdk.__main__ import main
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.serve import services
from berth_sdk.serve.services import framed_calls
from berth_sdk.sort_keys import string
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.wire.frames import NUMBERS
from numpy.typing import NDArray

HANG_S = 30.0
FOLDER = Path(os.environ.get("BERTH_FAULTS", "."))
_LOCK = threading.Lock()


class Faulty(Plugin):
    """An honest plugin: its pods' labels say what it does. The faults are the process's."""

    needs: Sequence[Need] = (Need.nodes(), Need.pods())
    answers_early: bool | None = False  # each call of the contract is to be made, and to go wrong
    normalization = ScoreNormalization.RPC
    events: Sequence[EventInterest] | None = (EventInterest("Node", ("update.labels",), Hint.ASK_PLUGIN),)

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        return SUCCESS

    def sort_key(self, pod: QueuedPod) -> bytes:
        return string(pod.pod.name)

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        return True

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        if pod.name == "look":
            write_table(nodes)
        refused = pod.labels.get("faulty") in ("unfit", "nominated") or pod.name == "look"
        if refused and "open" not in pod.labels:
            return Verdicts.all(len(nodes), Status.unschedulable("not yet"))
        return Verdicts.feasible(len(nodes))

    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> PostFilterResult:
        if pod.labels.get("faulty") == "nominated":
            return PostFilterResult(SUCCESS, nominated_node="n0")
        return PostFilterResult(Status.unschedulable("nothing helps"))

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        return None

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return nodes.slots.astype(np.int64)

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        return np.minimum(scores, 100)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        note("reserve", state.cycle_id, pod.uid)
        state.token = b"taken"
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        note("unreserve", state.cycle_id, pod.uid)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        if pod.labels.get("faulty") == "held" and not (FOLDER / "release").exists():
            return PermitResult.wait()
        return SUCCESS

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> PreFlightResult:
        return PreFlightResult(SUCCESS)

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        return PreBindResult(SUCCESS)

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        if pod.labels.get("faulty") == "refused-once" and not refused_before(pod.uid):
            return BindResult(Status.unschedulable("not this time"))
        return BindResult(SUCCESS, host_binds=True)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        return None


def note(what: str, cycle_id: str, uid: str) -> None:
    """One line of the journal; it outlives the process."""
    with (FOLDER / "journal").open("a") as file:
        file.write(f"{what} {cycle_id} {uid}\n")


def refused_before(uid: str) -> bool:
    """Whether Bind refused this pod before; remembered from now on."""
    marks = FOLDER / "refused"
    seen = marks.read_text().split() if marks.exists() else []
    with marks.open("a") as file:
        file.write(f"{uid}\n")
    return uid in seen


def write_table(nodes: NodeTable) -> None:
    """This process's view of every node."""
    table = {
        node.name: [
            node.pod_count,
            dict(sorted(node.requested.items())),
            sorted(pod.uid for pod in node.pods),
        ]
        for node in nodes
    }
    part = FOLDER / "table.part"
    part.write_text(json.dumps(table))
    part.rename(FOLDER / "table.json")


# --- faults ----------------------------------------------------------------------------------------


def _bad_ctx() -> pb.ReplyContext:
    ctx = pb.ReplyContext()
    ctx.status.code = 99  # type: ignore[assignment]  # no code of this contract
    return ctx


_FAR = pb.NodeSet(bitmap=b"\xff" * 64)
INVALID: dict[str, Callable[[Any], Any]] = {
    "Handshake": lambda _: identity_pb2.HandshakeResponse(
        supported=[identity_pb2.ContractVersion(major=9)], instance_id="invalid"
    ),
    "Configure": lambda _: identity_pb2.ConfigureResponse(error="no reason at all"),
    "Probe": lambda _: identity_pb2.ProbeResponse(ready=True, instance_id="somebody else"),
    "Drain": lambda _: identity_pb2.DrainResponse(open_cycles=4_000_000_000),
    "Reconcile": lambda _: state_pb2.ReconcileResponse(unknown_cycle_ids=["another"]),
    "SyncState": lambda _: state_pb2.SyncStateResponse(have=pb.StateVersion(epoch=1, generation=1)),
    "PreEnqueue": lambda _: queue_pb2.PreEnqueueResponse(),
    "SortKeys": lambda request: queue_pb2.SortKeysResponse(keys=[b"x" * 300] * len(request.pods)),
    "QueueingHints": lambda _: queue_pb2.QueueingHintsResponse(queue=[False] * 99),
    "PreFilter": lambda _: scheduling_pb2.PreFilterResponse(eligible=_FAR),
    "Filter": lambda _: scheduling_pb2.FilterResponse(
        verdicts=scheduling_pb2.NodeVerdicts(rejected=[scheduling_pb2.NodeGroup(nodes=_FAR)])
    ),
    "SimulateFilter": lambda _: scheduling_pb2.SimulateFilterResponse(statuses=[pb.PluginStatus()] * 99),
    "PostFilter": lambda _: scheduling_pb2.PostFilterResponse(
        ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)),
        nominated_node="n0",
        victims=[pb.ObjectRef(name="nobody", uid="nobody")],
    ),
    "PreScore": lambda _: scheduling_pb2.PreScoreResponse(ctx=_bad_ctx()),
    "Score": lambda _: scheduling_pb2.ScoreResponse(scores=scheduling_pb2.Scores(dense=[1] * 99)),
    "NormalizeScore": lambda request: scheduling_pb2.NormalizeScoreResponse(
        scores=scheduling_pb2.Scores(dense=[1000] * len(request.scores.dense))
    ),
    "Reserve": lambda _: scheduling_pb2.ReserveResponse(),
    "Unreserve": lambda _: scheduling_pb2.UnreserveResponse(done_cycle_ids=["another"]),
    "Permit": lambda _: scheduling_pb2.PermitResponse(),
    "PreBindPreFlight": lambda _: scheduling_pb2.PreBindPreFlightResponse(ctx=_bad_ctx()),
    "PreBind": lambda _: scheduling_pb2.PreBindResponse(
        ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)),
        patches=[scheduling_pb2.ObjectPatch(resource="secrets", ref=pb.ObjectRef(name="x"))],
    ),
    "Bind": lambda _: scheduling_pb2.BindResponse(
        ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS))
    ),
    "PlacementGenerate": lambda _: scheduling_pb2.PlacementGenerateResponse(
        placements=[scheduling_pb2.PlacementNodes(name="twice")] * 2
    ),
    "PlacementScore": lambda _: scheduling_pb2.PlacementScoreResponse(score=101),
    "NormalizePlacementScore": lambda request: scheduling_pb2.NormalizePlacementScoreResponse(
        scores=[50] * (len(request.placements) + 1)
    ),
    "PlacementFeasible": lambda _: scheduling_pb2.PlacementFeasibleResponse(
        runs=[scheduling_pb2.FeasibleRun(count=1)]
    ),
    "PodGroupPostFilter": lambda _: scheduling_pb2.PodGroupPostFilterResponse(
        ctx=pb.ReplyContext(status=pb.PluginStatus(code=pb.PluginStatus.CODE_SUCCESS)),
        victims=[pb.ObjectRef(name="nobody", uid="nobody")],
    ),
    "PostBind": lambda _: None,
    "EndCycles": lambda _: None,
}
"""The invalid answer in the place of each answer; None: a gRPC error, where an answer says nothing anyway."""


FRAMED: dict[int, tuple[str, Any]] = {
    number: (rpc, getattr(scheduling_pb2, f"{rpc}Request")) for rpc, number in NUMBERS.items()
}


class Faults(grpc.ServerInterceptor):
    """Stands before every call of the server."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        rpc = details.method.rpartition("/")[2]
        if handler is None or rpc not in INVALID:
            return handler
        make, inner = (
            (grpc.stream_unary_rpc_method_handler, handler.stream_unary)
            if handler.request_streaming
            else (grpc.unary_unary_rpc_method_handler, handler.unary_unary)
        )
        return make(
            functools.partial(_call, rpc, inner),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def _lose(request: Any) -> None:
    request.ctx.ClearField("delta")


def _strange_base(request: Any) -> None:
    request.ctx.delta.base.generation += 1_000_000


GARBLED: dict[str, Callable[[Any], None]] = {"lose": _lose, "strange-base": _strange_base}


def _call(rpc: str, inner: Any, request: Any, context: Any) -> Any:
    _note_call(rpc, request)
    kind = _fires(rpc)
    if kind == "die":
        _die()
    if kind == "hang":
        _hang(context)
    if kind == "invalid":
        invalid = INVALID[rpc](request)
        if invalid is None:
            context.abort(grpc.StatusCode.DATA_LOSS, "an invalid answer")
        if hasattr(request, "ctx"):
            invalid.ctx.cycle_id = request.ctx.cycle_id  # what is invalid is in the answer
        return invalid.SerializeToString()
    if kind in GARBLED:
        GARBLED[kind](request)
    if kind == "twice":
        inner(request, context)
    if kind == "late":
        _overtaken()
    reply = inner(request, context)
    if kind == "late":
        note("late", request.ctx.cycle_id, "-")
    if kind == "die-after":
        _die()
    if kind == "hang-after":
        _hang(context)
    return reply


def _note_call(rpc: str, request: Any) -> None:
    ctx = getattr(request, "ctx", None)
    cycle = [] if ctx is None else [ctx.cycle_id]
    pods = getattr(request, "pods", ()) if ctx is None else [ctx.pod]
    with (FOLDER / "asked").open("a") as file:
        file.write(" ".join([rpc, *cycle, *(item.summary.ref.name for item in pods)]) + "\n")


def _carried(service: Any, servicer: Any) -> dict[int, Any]:
    """Return the same for the calls in frames."""
    return {
        number: functools.partial(_honest_or_not, *FRAMED[number], answer)
        for number, answer in framed_calls(service, servicer).items()
    }


def _honest_or_not(rpc: str, request_type: Any, answer: Any, raw: bytes, context: Any) -> Any:
    def inner(request: Any, context: Any) -> Any:
        return answer(request.SerializeToString(), context)

    return _call(rpc, inner, request_type.FromString(raw), context)


def _fires(rpc: str) -> str:
    """Return the fault that is armed for this call, taken away; empty for none."""
    armed = FOLDER / "armed"
    with _LOCK:
        try:
            wanted, kind = armed.read_text().split()
        except (OSError, ValueError):
            return ""
        if wanted != rpc:
            return ""
        armed.unlink()
        with (FOLDER / "fired").open("a") as file:
            file.write(f"{rpc} {kind}\n")
        return kind


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(HANG_S)


def _overtaken() -> None:
    """Wait until an Unreserve has come, and was answered."""
    journal = FOLDER / "asked"
    ends_s = time.monotonic() + HANG_S
    while "Unreserve" not in journal.read_text().split() and time.monotonic() < ends_s:
        time.sleep(0.01)
    time.sleep(0.2)


def _hang(context: Any) -> None:
    ends_s = time.monotonic() + HANG_S
    while context.is_active() and time.monotonic() < ends_s:
        time.sleep(0.01)
    if time.monotonic() < ends_s:
        (FOLDER / "noticed").touch()
    context.abort(grpc.StatusCode.CANCELLED, "hung until nobody waited any more")


def serve(arguments: Sequence[str], plugin: str = "support.faulty_plugin:Faulty") -> int:
    """`berth-sdk serve` of a plugin (`module:Class`), with the faults before every call."""
    plain = grpc.server

    def with_faults(*args: Any, **more: Any) -> grpc.Server:
        more["interceptors"] = [Faults()]
        return plain(*args, **more)

    grpc.server = with_faults
    services.framed_calls = _carried
    return main(["serve", plugin, *arguments])


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
