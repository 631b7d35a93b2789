"""Cases of the level stateful: the copy of the cluster state, lost cycles, frames, and memory."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Any, Final

import grpc

from berth_sdk.clocks import monotonic_s
from berth_sdk.conformance.case import BrokenError, Subject, case
from berth_sdk.conformance.host import Begun, CallError, Cycle, Host, missing_name, skipped, written
from berth_sdk.conformance.scheduling import bare, judges, pure_call
from berth_sdk.conformance.way import Way
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.wire.frames import (
    CALLS,
    FEATURE,
    NUMBERS,
    Incoming,
    Kind,
    call_frame,
    framed_path,
    read_failure,
)

ROUND: Final = 500
"""Cycles in one round of the case about memory."""
ROUNDS: Final = 14
"""The most rounds, after one to warm up."""
_WINDOW: Final = 4
"""The rounds over which memory must not grow: in fewer, a leak may fill what the process had freed before."""
FRAME_S = 5.0
"""The time for one answer in a frame."""
PAYLOAD: Final = 16 * 1024
"""The bytes that each pod has in the case about memory."""
_AT_ONCE: Final = 16


def keeps_state(subject: Subject) -> bool:
    """Return True if the instance has a copy."""
    return subject.keeps_state


def keeps_objects(subject: Subject) -> bool:
    """Return True if the copy has objects of a resource."""
    return identity.DeclaredNeed.KIND_OBJECT in subject.kinds


def judges_by_state(subject: Subject) -> bool:
    """Return True if a pure call of the plugin names a version of the state."""
    return subject.keeps_state and judges(subject)


def offers_frames(subject: Subject) -> bool:
    """Return True if the instance names the feature "frames"."""
    return FEATURE in subject.hello.features and judges(subject)


# --- SyncState ------------------------------------------------------------------------------------------


@case("syncState.full", "stateful", "The full state brings the copy to its version, also twice.", keeps_state)
def _full(host: Host) -> None:
    host.sync([host.world.full()])
    host.sync([host.world.full()])


@case("syncState.chunks", "stateful", "The full state may come in chunks of any size.", keeps_state)
def _chunks(host: Host) -> None:
    for size in (1, 3):
        host.sync(host.world.chunks(size))
        _answers(host)


@case("syncState.delta", "stateful", "A delta on the copy's version brings it to the next one.", keeps_state)
def _delta(host: Host) -> None:
    host.sync([host.world.change()])
    host.sync([host.world.swap(3, "kit-node-late", 20)])
    _answers(host)


@case("syncState.duplicate", "stateful", "A delta that comes twice is applied once.", keeps_state)
def _duplicate(host: Host) -> None:
    delta = host.world.change()
    for _ in range(3):
        host.sync([delta])


@case("syncState.other-base", "stateful", "A delta on another version gets need_full.", keeps_state)
def _other_base(host: Host) -> None:
    before = host.world.version
    host.world.change()
    answer = host.try_sync([host.world.change()])
    if not answer.need_full:
        raise BrokenError("SyncState applies a delta although its base is not the version of the copy")
    if answer.have != before:
        raise BrokenError(f"SyncState answers have {written(answer.have)}; the copy is at {written(before)}")
    host.sync([host.world.full()])


@case("syncState.wrong-sums", "stateful", "Counts or sums that differ get need_full.", keeps_state)
def _wrong_sums(host: Host) -> None:
    for name in ("node_count", "generation_sum"):
        delta = host.world.change()
        setattr(delta, name, getattr(delta, name) + 1)
        if not host.try_sync([delta]).need_full:
            raise BrokenError(f"SyncState takes up a state whose {name} is wrong")
        host.sync([host.world.full()])


@case("syncState.gap", "stateful", "A gap in the numbers of the chunks gets INVALID_ARGUMENT.", keeps_state)
def _gap(host: Host) -> None:
    chunks = host.world.chunks(3)
    try:
        host.try_sync(chunks, sequence=[0, *range(2, len(chunks) + 1)])
    except CallError as err:
        if err.code is not grpc.StatusCode.INVALID_ARGUMENT:
            raise BrokenError(f"{err}; the contract asks for INVALID_ARGUMENT") from None
    else:
        raise BrokenError("SyncState takes up chunks of which one is missing")
    host.sync([host.world.full()])


@case("syncState.empty", "stateful", "The state may be empty, and nodes may come later.", keeps_state)
def _empty(host: Host) -> None:
    target = pb.StateVersion(epoch=host.world.epoch, generation=host.world.generation + 1)
    host.sync([pb.StateDelta(target=target)])
    host.world.put_pod(0)
    host.world.put_pod(0)
    host.sync([host.world.full()])


@case(
    "syncState.objects",
    "stateful",
    "Objects of a declared resource come, change and go; a full state drops those that it lacks.",
    keeps_objects,
)
def _objects(host: Host) -> None:
    try:
        host.sync([host.world.full_with("a", "b")])
        host.sync([host.world.change_objects(added="c", removed="a")])
        wrong = host.world.change_objects(added="b")
        wrong.object_count += 1
        if not host.try_sync([wrong]).need_full:
            raise BrokenError("SyncState takes up a state whose object_count is wrong")
        host.sync([host.world.full_with("b", "d")])
        host.sync([host.world.full_with("a")])
        host.sync([host.world.change_objects(added="d")])
    except CallError as err:
        if err.code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL):
            raise skipped(
                f"{err}; the kit's objects have metadata alone, and the plugin may need more"
            ) from None
        raise
    finally:
        host.world.drop_objects()
    host.sync([host.world.full()])


# --- the state in calls -----------------------------------------------------------------------------------


@case("state.delta", "stateful", "The delta of a call is applied before the call.", judges_by_state)
def _call_delta(host: Host) -> None:
    _ask_with(host, host.world.change())
    _ask_with(host, host.world.swap(3, "kit-node-late", 20))
    _answers(host)


@case(
    "state.duplicate",
    "stateful",
    "A delta whose target the copy has already is passed over.",
    judges_by_state,
)
def _call_duplicate(host: Host) -> None:
    delta = host.world.change()
    _ask_with(host, delta)
    _ask_with(host, delta)


@case("state.full", "stateful", "A call may bring the full state, also of another epoch.", judges_by_state)
def _call_full(host: Host) -> None:
    host.world.epoch += 1
    _ask_with(host, host.world.full())


@case(
    "state.missing",
    "stateful",
    "A call at a version that the copy lacks gets MISSING_STATE.",
    judges_by_state,
)
def _call_missing(host: Host) -> None:
    before = host.world.version
    host.world.change()
    have = lacks_state(host, None)
    if have != before:
        raise BrokenError(f"the answer says have {written(have)}; the copy is at {written(before)}")
    _ask_with(host, host.world.full())


@case(
    "state.other-base",
    "stateful",
    "A call whose delta is on another version gets MISSING_STATE, and the delta is not applied.",
    judges_by_state,
)
def _call_other_base(host: Host) -> None:
    before = host.world.version
    first = host.world.change()
    second = host.world.change()
    have = lacks_state(host, second)
    if have != before:
        raise BrokenError(f"the answer says have {written(have)}; the copy is at {written(before)}")
    lacks_state(host, second)
    host.sync([first])
    _ask_with(host, second)


@case(
    "state.wrong-sums", "stateful", "A delta with wrong counts or sums gets MISSING_STATE.", judges_by_state
)
def _call_wrong_sums(host: Host) -> None:
    for name in ("node_count", "generation_sum"):
        delta = host.world.change()
        setattr(delta, name, getattr(delta, name) + 1)
        lacks_state(host, delta)
        _ask_with(host, host.world.full())


@case(
    "state.new-epoch",
    "stateful",
    "A host that starts again is not answered by the old state.",
    judges_by_state,
)
def _new_epoch(host: Host) -> None:
    host.world.epoch += 1
    lacks_state(host, None)
    host.sync([host.world.full()])
    _answers(host)


# --- what an instance may lack -----------------------------------------------------------------------------


def _is_snapshot(subject: Subject) -> bool:
    return subject.is_snapshot and judges(subject)


@case(
    "cycle.missing-pod",
    "stateful",
    "A call without the pod, in a cycle that the instance never saw, gets MISSING_POD or the right answer.",
    _is_snapshot,
)
def _missing_pod(host: Host) -> None:
    rpc, cycle = pure_call(host)
    request = cycle.request(rpc, cycle.context(complete=False), candidates=host.candidates())
    answer = host.call(rpc, request)
    cycle.check_cycle(rpc, answer)
    repeated = cycle.request(rpc, cycle.context(complete=True, attempt=1), candidates=host.candidates())
    if not answer.ctx.missing:
        whole = host.call(rpc, repeated)
        if bare(whole) != bare(answer):
            raise BrokenError(
                f"{rpc} answers without the pod, and otherwise than with it: it needs MISSING_POD"
            )
        return
    if pb.MISSING_POD not in answer.ctx.missing:
        found = missing_name(answer.ctx.missing[0])
        raise BrokenError(f"{rpc} answers {found}; what the request lacks is the pod")
    cycle.take(rpc, host.call(rpc, repeated))


@case(
    "cycle.restart",
    "stateful",
    "After a restart in mid cycle, a later call is executed or gets MISSING_CYCLE.",
    judges,
)
def _restart(host: Host) -> None:
    cycle = host.cycle()
    asked = 0
    for point, rpc in (("FILTER", "Filter"), ("SCORE", "Score")):
        if host.subject.has(point):
            asked += 1
            answer = host.call(
                rpc, cycle.request(rpc, cycle.context(complete=True), candidates=host.candidates())
            )
            cycle.check_cycle(rpc, answer)
            wrong = [one for one in answer.ctx.missing if one != pb.MISSING_CYCLE]
            if wrong:
                raise BrokenError(
                    f"{rpc} answers {missing_name(wrong[0])}, although the request brings everything"
                )
    if not asked:
        raise skipped("the plugin has one call in a cycle")


# --- frames ---------------------------------------------------------------------------------------------


@case("frames.answer", "stateful", "A call in a frame gets the answer that it gets over gRPC.", offers_frames)
def _framed(host: Host) -> None:
    rpc, cycle = pure_call(host)
    if rpc not in CALLS:
        raise skipped(f"{rpc} is not sent in frames")
    if not host.target.address.startswith("unix:"):
        raise BrokenError("the instance offers frames, and does not listen at a Unix socket")
    request = cycle.request(rpc, cycle.context(complete=True), candidates=host.candidates())
    wanted = host.call(rpc, request)
    path = framed_path(Path(host.target.address.removeprefix("unix:").removeprefix("//")))
    with _connected(path) as connection:
        for _ in range(3):
            connection.sendall(call_frame(NUMBERS[rpc], request.SerializeToString()))
            kind, call, payload = _frame(connection, FRAME_S * host.target.time_factor)
            if kind is Kind.FAILURE:
                code, text = read_failure(payload)
                raise BrokenError(f"{rpc} in a frame failed with the gRPC code {code}: {text}")
            if kind is not Kind.CALL or call != NUMBERS[rpc]:
                raise BrokenError(
                    f"the answer to {rpc} is a frame of the kind {kind.name} for the call {call}"
                )
            if bare(type(wanted).FromString(payload)) != bare(wanted):
                raise BrokenError(f"{rpc} in a frame gets another answer than over gRPC")


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(FRAME_S)
    try:
        connection.connect(str(path))
    except OSError as err:
        connection.close()
        raise BrokenError(
            f"the instance offers frames, and {path} cannot be reached: {err.strerror}"
        ) from err
    return connection


def _frame(connection: socket.socket, patience_s: float) -> Any:
    """Return the next frame. Raises BrokenError, also for one that is not complete in `patience_s`."""
    incoming = Incoming(4 * 1024 * 1024)
    until = monotonic_s() + patience_s
    try:
        while True:
            connection.settimeout(max(0.001, until - monotonic_s()))
            data = connection.recv(65536)
            if not data:
                raise BrokenError("the instance closed the framed connection in place of an answer")
            if frames := incoming.take(data):
                return frames[0]
    except TimeoutError as err:
        raise BrokenError(f"no answer in a frame in {patience_s:g} s") from err
    except ValueError as err:
        raise BrokenError(f"the instance sent bytes that are no frame: {err}") from err


# --- memory -----------------------------------------------------------------------------------------------


@case(
    "memory.cycles",
    "stateful",
    "The memory of the process does not grow with every cycle that is over.",
    judges,
)
def _memory(host: Host) -> None:
    process = _peer(host)
    ended: list[pb.CycleEnd] = []
    begun = monotonic_s()
    _cycles(host, ended)
    sizes = [_resident_bytes(process)]
    grown = 0
    while len(sizes) <= ROUNDS:
        round_s = (monotonic_s() - begun) / len(sizes)
        if monotonic_s() + 2 * round_s > host.ends_at:
            if len(sizes) > _WINDOW:
                break
            raise skipped(
                f"{ROUND} cycles take {round_s:.3g} s: too slow to judge the memory in {host.limit_s:g} s;"
                " give the kit more time with --time-factor"
            )
        _cycles(host, ended)
        sizes.append(_resident_bytes(process))
        if len(sizes) > _WINDOW:
            grown = sizes[-1] - sizes[-1 - _WINDOW]
            if grown < _WINDOW * ROUND * PAYLOAD // 4:
                return
    raise BrokenError(
        f"the process {process} grows with every cycle, although the cycles are over: in the last {_WINDOW}"
        f" of {len(sizes)} rounds of {ROUND} cycles by {grown // _WINDOW // ROUND} bytes for each, of pods of"
        f" {PAYLOAD} bytes: drop what the plugin keeps for the cycles in CallContext.ended, and limit the"
        " rest"
    )


def _cycles(host: Host, ended: list[pb.CycleEnd]) -> None:
    """Make ROUND cycles, some at the same time, and tell with each which ones are over."""
    for start in range(0, ROUND, _AT_ONCE):
        begun: list[tuple[Cycle, Begun]] = []
        for number in range(start, min(ROUND, start + _AT_ONCE)):
            rpc, cycle = pure_call(host)
            context = cycle.context(complete=True, ended=ended[-_AT_ONCE:] if number == start else [])
            context.pod.summary.annotations["example.com/payload"] = f"{cycle.id}{'x' * PAYLOAD}"
            request = cycle.request(rpc, context, candidates=host.candidates())
            begun.append((cycle, host.begin(rpc, request)))
        ended.clear()
        for cycle, call in begun:
            cycle.take(call.rpc, call.answer())
            ended.append(pb.CycleEnd(cycle_id=cycle.id, outcome=pb.CycleEnd.OUTCOME_UNSCHEDULABLE))


def _peer(host: Host) -> int:
    """Return the process at the other end of a Unix socket. Ends the case where it cannot be known."""
    if not host.target.address.startswith("unix:"):
        raise skipped("the memory of a server is only known at a Unix socket")
    path = host.target.address.removeprefix("unix:").removeprefix("//")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(5.0)
        connection.connect(path)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process: int = struct.unpack("3i", raw)[0]
    if not process or not Path(f"/proc/{process}/statm").exists():
        raise skipped("the process of the server is in another container or on another system")
    return process


def _resident_bytes(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError) as err:
        raise BrokenError(f"the process {process} of the server ended") from err
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- pieces -----------------------------------------------------------------------------------------------


def _answers(host: Host) -> None:
    """Ask about all nodes of the state, and check the answers."""
    if not judges(host.subject):
        return
    way = Way(host)
    way.to_filter()
    if host.subject.has("FILTER") and not way.skips_filter and not way.early_filter:
        way.filter()
    elif host.subject.has("SCORE") and not host.subject.has("FILTER", "PRE_FILTER"):
        if host.subject.has("PRE_SCORE"):
            way.pre_score()
        way.score()


def _ask_with(host: Host, delta: pb.StateDelta) -> None:
    """Make a pure call that brings a delta."""
    rpc, cycle = pure_call(host)
    cycle.ask(rpc, cycle.context(complete=True, delta=delta), candidates=host.candidates())


def lacks_state(host: Host, delta: pb.StateDelta | None) -> pb.StateVersion:
    """Make a pure call that must get MISSING_STATE; return the version that the answer says."""
    rpc, cycle = pure_call(host)
    context = cycle.context(complete=True, delta=delta)
    answer = host.call(rpc, cycle.request(rpc, context, candidates=host.candidates()))
    cycle.check_cycle(rpc, answer)
    if pb.MISSING_STATE not in answer.ctx.missing:
        raise BrokenError(
            f"{rpc} is executed at the version {written(context.version)}, which the copy lacks;"
            " the contract asks for MISSING_STATE"
        )
    have: pb.StateVersion = answer.ctx.have
    return have
