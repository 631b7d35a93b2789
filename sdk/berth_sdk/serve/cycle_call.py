"""The work of every call of a cycle, before and after the plugin's method.

`cycle_call` wraps a servicer's method. Before the method runs, the wrapper releases ended cycles, brings the
copy to the request's version, finds the cycle and waits for the plugin's turn. Afterwards the wrapper adds
the token and the published values to the reply. If the pod or the state is missing, the method does not run,
and the reply has `missing`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from berth_sdk.cycle_state import CycleState, GroupState, PlacementState
from berth_sdk.errors import HandleError, PluginAnswerError
from berth_sdk.extension_points import NodeMode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod import Pod
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.serve.calls import CallRefusedError, ask
from berth_sdk.serve.cycles import PluginCycle, Subject, memory_is_lost, token_to_send
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.served import ServedPlugin
from berth_sdk.status import SUCCESS, Status
from berth_sdk.tables import NodeTable, StateVersion
from berth_sdk.wire import records as wire
from berth_sdk.wire.groups import decode_group
from berth_sdk.wire.requests import decode_call_pod
from berth_sdk.wire.results import encode_published
from berth_sdk.wire.status import encode_status

R = TypeVar("R")
Method: TypeAlias = Callable[[Any, Any, grpc.ServicerContext], R]
_BOUND: Final = pb.CycleEnd.OUTCOME_BOUND
_EMPTY: Final = pb.ReplyContext()
_SUCCEEDED: Final = pb.ReplyContext(status=encode_status(SUCCESS))


class CycleCall:
    """One call of one cycle, prepared for the plugin.

    `runtime`: the plugin. `state`: its CycleState. `subject`: the pod or the group of the cycle.
    """

    __slots__ = ("_context", "_method", "instance", "part", "runtime", "served", "state", "subject")

    def __init__(
        self,
        instance: Instance,
        served: ServedPlugin,
        part: PluginCycle,
        method: str,
        context: grpc.ServicerContext,
    ) -> None:
        self.instance = instance
        self.served = served
        self.part = part
        self.runtime: PluginRuntime = served.runtime
        self.state: CycleState = part.state
        self.subject = part.subject
        self._method = method
        self._context = context

    @property
    def mode(self) -> NodeMode:
        """The plugin's way to name nodes."""
        return self.runtime.descriptor.node_mode

    def ask(self, call: Callable[[], Any]) -> Any:
        """Call the plugin. Raises as `calls.ask`."""
        return ask(self.served, self._method, self.instance.loop, self._context, call)

    def reply(self, status: Status | None = None) -> pb.ReplyContext:
        """Return the context of a reply, which the caller copies. `status` None: without a status."""
        if status is SUCCESS:
            return _SUCCEEDED
        return _EMPTY if status is None else pb.ReplyContext(status=encode_status(status))

    def snapshot(self, names: list[str]) -> NodeTable:
        """Return all nodes; for a plugin without a copy, the nodes `names`, with nothing but their names.

        Raises CallRefusedError if there is no copy yet.
        """
        if not self.runtime.descriptor.keeps_state:
            return self.instance.named_nodes(names)
        try:
            return self.instance.copy.nodes()
        except HandleError as err:
            text = f"no snapshot is held and the call names no version: {err}"
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err

    def candidates(self, message: pb.NodeSet) -> NodeTable:
        """Return the nodes of a request. Raises CallRefusedError for nodes that the copy lacks."""
        names = list(message.names)
        nodes = self.snapshot(names)
        if self.runtime.descriptor.node_mode is NodeMode.NAMES:
            return nodes.take(_positions(names, nodes)) if self.runtime.descriptor.keeps_state else nodes
        if message.complement and not message.bitmap and not message.names:
            return nodes
        try:
            chosen = wire.decode_chosen(message, nodes.slots, {})
        except wire.UnknownNodeError as err:
            text = f"node {err.node} is not in the snapshot"
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err
        return nodes.take(chosen)


def _positions(names: list[str], nodes: NodeTable) -> NDArray[np.intp]:
    """Return the positions of the named nodes. Raises CallRefusedError for a node that the copy lacks."""
    positions = [nodes.position(name) for name in names]
    if None in positions:
        text = f"node {names[positions.index(None)]!r} is not in the snapshot"
        raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text)
    return np.asarray(positions, dtype=np.intp)


def cycle_call(
    method: str, response_type: Callable[..., Any]
) -> Callable[[Callable[[Any, Any, CycleCall], R]], Method[R]]:
    """Return a decorator for a function that serves `method` of a plugin.

    The function gets the request and a `CycleCall`. `response_type`: of a reply with `missing`.
    """

    def decorate(answer: Callable[[Any, Any, CycleCall], R]) -> Method[R]:
        @functools.wraps(answer)
        def call(self: Any, request: Any, context: grpc.ServicerContext) -> R:
            instance: Instance = self.instance
            ctx: pb.CallContext = request.ctx
            instance.admit(ctx.attachment_id)
            served = instance.served(ctx.plugin, ctx.profile)
            for ended in ctx.ended:
                bound = ended.outcome == _BOUND
                served.early.ended(bound=bound)
                instance.cycles.end(served.name, ended.cycle_id, bound=bound)
            part, missing = _prepared(instance, served, ctx, method)
            if part is None:
                return response_type(ctx=missing)  # type: ignore[no-any-return]  # the plain message
            cycle = CycleCall(instance, served, part, method, context)
            with served.turn(method, context):
                return _completed(answer(self, request, cycle), part, ctx)

        return call

    return decorate


def _prepared(
    instance: Instance, served: ServedPlugin, ctx: pb.CallContext, method: str
) -> tuple[PluginCycle | None, pb.ReplyContext | None]:
    """Return the plugin's part of the cycle and None; or None and a context that names the missing state."""
    missing: list[pb.Missing.ValueType] = []
    have: StateVersion | None = None
    if ctx.HasField("version"):
        version = ctx.version
        held = instance.copy.bring_to(ctx.delta if ctx.HasField("delta") else None)
        if held != (version.epoch, version.generation):
            missing.append(pb.MISSING_STATE)
            have = held
    cycle_id = ctx.cycle_id
    token = ctx.plugin_token
    state_class, owner_id = CycleState, ""
    sent: Subject | None
    if ctx.HasField("group"):
        state_class = GroupState
        sent = decode_group(ctx.group) if ctx.group.complete else None
        if ctx.parents and not ctx.parents[0].placement:
            state_class, owner_id = PlacementState, ctx.parents[0].cycle_id
    else:
        try:
            sent = decode_call_pod(ctx)
        except ValueError as err:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err
    if ctx.continues:
        instance.cycles.go_on(served.name, ctx.continues, cycle_id)
    known, subject = instance.cycles.look(served.name, cycle_id, sent, owner_id)
    # A Reserve after its Unreserve is refused, whatever the process has kept of the cycle.
    is_refused = method == "reserve" and instance.cycles.is_undone(served.name, cycle_id)
    if not is_refused and (
        memory_is_lost(known, token)
        or any(
            memory_is_lost(instance.cycles.find(served.name, parent.cycle_id), parent.plugin_token)
            for parent in ctx.parents
        )
    ):
        missing.append(pb.MISSING_CYCLE)
    if not is_refused and (
        subject is None
        or (served.runtime.descriptor.wants_whole_pod and isinstance(subject, Pod) and subject.object is None)
    ):
        missing.append(pb.MISSING_POD)
    if missing:
        reply = pb.ReplyContext(missing=missing, cycle_id=cycle_id)
        if have is not None:
            reply.have.CopyFrom(wire.encode_version(have))
        return None, reply
    part = known
    if part is None or part.served is not served or part.subject is not subject:
        part = instance.cycles.open(served, cycle_id, subject, state_class)
    if known is None and token:
        part.state.token = token
    if ctx.parents:
        _join(instance, served, part.state, ctx)
    for entry in ctx.shared:
        if entry.deleted:
            part.shared.values.pop(entry.key, None)
        else:
            part.shared.values[entry.key] = entry.value
    return part, None


def _join(instance: Instance, served: ServedPlugin, state: CycleState, ctx: pb.CallContext) -> None:
    """Connect the state of a cycle with those of the cycles that it belongs to, which are made if unknown."""
    for parent in ctx.parents:
        known = instance.cycles.find(served.name, parent.cycle_id)
        if known is None:
            state_class = PlacementState if parent.placement else GroupState
            known = instance.cycles.open(served, parent.cycle_id, None, state_class)
            known.state.token = parent.plugin_token or None
        state.parent = known.state
        state = known.state


def _completed(reply: R, part: PluginCycle, ctx: pb.CallContext) -> R:
    """Return the reply with the plugin's tokens and published values. `ctx`: of the call."""
    message: Any = reply
    name = part.served.name
    message.ctx.cycle_id = part.state.cycle_id
    try:
        token = token_to_send(name, part.state, ctx.plugin_token)
        above = part.state.parent
        for parent in ctx.parents:
            if above is None:
                break
            new = token_to_send(name, above, parent.plugin_token)
            if new is not None:
                message.ctx.parents.add(cycle_id=parent.cycle_id, plugin_token=new)
            above = above.parent
    except PluginAnswerError as err:
        raise CallRefusedError(grpc.StatusCode.INTERNAL, str(err)) from err
    if token is not None:
        message.ctx.plugin_token = token
    published = encode_published(part.state)
    if published:
        message.ctx.publish.extend(published)
    return reply
