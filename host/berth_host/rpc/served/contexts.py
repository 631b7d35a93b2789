"""`CallContext` out, `ReplyContext` in: the envelope around every call of a cycle.

Each request carries the pod, complete or by reference, the delta, the token, shared keys and ended cycles;
the reply brings a new token and published values. Called by `GrpcTransport`, once per attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.extension_points import NodeMode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire import records as wire
from berth_sdk.wire.groups import encode_group

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import CycleEnd
from berth_host.errors.plugins import CycleRestartError, PluginProtocolError, PluginRaisedError
from berth_host.rpc.call import AnyCall
from berth_host.rpc.served.link import InstanceLink
from berth_host.rpc.validate import MAX_TOKEN_BYTES

MAX_SHARED_KEY_BYTES: Final = 256
MAX_SHARED_VALUE_BYTES: Final = 64 * 1024
_REPAIRABLE: Final = frozenset({pb.MISSING_STATE, pb.MISSING_POD})
_OUTCOMES: Final = {
    CycleEnd.BOUND: pb.CycleEnd.OUTCOME_BOUND,
    CycleEnd.UNSCHEDULABLE: pb.CycleEnd.OUTCOME_UNSCHEDULABLE,
    CycleEnd.ABORTED: pb.CycleEnd.OUTCOME_ABORTED,
}


@dataclass(slots=True, eq=False)
class _Told:
    """The data that one instance has about one cycle. `shared`: the values that were sent, per plugin."""

    pod: bool = False
    pod_object: bool = False
    shared: dict[str, dict[str, bytes]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Envelope:
    """A context to send, and what the instance has once it has received the context."""

    message: pb.CallContext
    told: _Told
    shared: dict[str, bytes]
    version_sent: bool
    ended: list[tuple[str, CycleEnd]]


class ContextWriter:
    """Writes the contexts of one plugin in one profile at one instance."""

    def __init__(self, link: InstanceLink, descriptor: Descriptor, profile: str) -> None:
        self._link = link
        self._descriptor = descriptor
        self._plugin = descriptor.name
        self._profile = profile
        self._names = descriptor.node_mode is NodeMode.NAMES
        self._keeps_state = descriptor.keeps_state

    async def write(
        self,
        message: pb.CallContext,
        cycle: CycleRecord,
        call: AnyCall,
        ends_s: float,
        ended: list[tuple[str, CycleEnd]],
        *,
        repaired: bool,
    ) -> Envelope:
        """Fill the context of one attempt. State that is too large for a call is sent ahead of it.

        `message`: empty, in its request, so that nothing is copied. `ended`: earlier cycles that are over.
        Raises PluginError.
        """
        told = cycle.wire.setdefault(self._link.identity.attachment_id, _Told())
        state = cycle.state(self._plugin)
        again = repaired or cycle.part(self._plugin).is_repeating
        message.cycle_id = cycle.cycle_id
        message.plugin = self._plugin
        message.attachment_id = self._link.identity.attachment_id
        message.profile = self._profile
        if again:
            message.attempt = 1
        if state.token:
            message.plugin_token = state.token
        if ended:
            message.ended.extend(encode_ended(ended))
        if cycle.continues:
            message.continues = cycle.continues
        if cycle.parent is not None and call.budgeted:
            # In the binding cycle the group's cycle is over. The state of the pod holds on to those above it.
            self._write_parents(message, cycle)
        if type(cycle.subject) is GroupView:
            complete = self._write_group(message, cycle)
        else:
            complete = self._write_pod(message, cycle, told)
        shared = self._write_shared(message, cycle, told, complete=complete)
        versioned = call.budgeted and self._keeps_state and self._link.feed is not None
        if versioned:
            delta = await self._link.delta_for_call((self._plugin, call.rpc), ends_s)
            if delta is not None:
                message.delta.CopyFrom(delta)
            feed = self._link.feed
            if feed is not None:
                message.version.epoch, message.version.generation = feed.version
        return Envelope(message, told, shared, versioned, ended)

    def _write_pod(self, message: pb.CallContext, cycle: CycleRecord, told: _Told) -> bool:
        """Write the pod: complete in the first call to the instance and always in NAMES mode, else by
        reference.
        """
        pod: Pod = cycle.subject
        wants_object = self._descriptor.wants_whole_pod and pod.object is not None
        complete = self._names or not told.pod or (wants_object and not told.pod_object)
        sent = message.pod
        sent.complete = complete
        if not complete:
            sent.summary.ref.CopyFrom(wire.encode_ref(pod.ref))
            return False
        summary = cycle.wire.get("pod")
        if summary is None:
            summary = cycle.wire["pod"] = wire.encode_pod(pod)
        sent.summary.CopyFrom(summary)
        if wants_object and pod.object is not None:
            sent.object.CopyFrom(wire.encode_object(pod.object))
        return True

    def _write_group(self, message: pb.CallContext, cycle: CycleRecord) -> bool:
        """Write the group: complete in the first call to the instance and always in NAMES mode, else by
        reference.
        """
        wire_of, group = cycle.owner.wire, cycle.subject
        told = wire_of.setdefault(self._link.identity.attachment_id, _Told())
        whole = self._descriptor.wants_whole_pod
        if not (self._names or not told.pod or (whole and not told.pod_object)):
            message.group.summary.ref.CopyFrom(wire.encode_ref(group.group.ref))
            return False
        key = "group with objects" if whole else "group"
        encoded = wire_of.get(key)
        if encoded is None:
            encoded = wire_of[key] = encode_group(group, whole=whole)
        message.group.CopyFrom(encoded)
        return True

    def _write_parents(self, message: pb.CallContext, cycle: CycleRecord) -> None:
        record = cycle.parent
        while record is not None:
            message.parents.add(
                cycle_id=record.cycle_id,
                placement=record.is_placement,
                plugin_token=record.state(self._plugin).token or b"",
            )
            record = record.parent

    def _write_shared(
        self, message: pb.CallContext, cycle: CycleRecord, told: _Told, *, complete: bool
    ) -> dict[str, bytes]:
        values = cycle.shared.values
        current = {key: values[key] for key in self._descriptor.reads_shared if key in values}
        known = {} if complete else told.shared.get(self._plugin, {})
        if current or known:
            for key, value in current.items():
                if known.get(key) != value:
                    message.shared.add(key=key, value=value)
            for key in known:
                if key not in current:
                    message.shared.add(key=key, deleted=True)
        return current

    # --- the reply -------------------------------------------------------------------------------------

    def received(self, cycle: CycleRecord, envelope: Envelope) -> None:
        """Record that the instance executed the call, and so has everything in the context."""
        message, told = envelope.message, envelope.told
        if message.HasField("group"):
            if message.group.complete:
                group_told = cycle.owner.wire[self._link.identity.attachment_id]
                group_told.pod = True
                group_told.pod_object = group_told.pod_object or self._descriptor.wants_whole_pod
        else:
            pod = message.pod
            if pod.complete:
                told.pod = True
                told.pod_object = told.pod_object or pod.HasField("object")
        told.shared[self._plugin] = envelope.shared
        if envelope.version_sent:
            self._link.confirm(wire.decode_version(message.version))

    def read(self, cycle: CycleRecord, call: AnyCall, reply: pb.ReplyContext) -> None:
        """Take over the token and the published values of a reply. Raises PluginProtocolError."""
        if reply.HasField("plugin_token"):
            self._take_token(cycle, call, reply.plugin_token)
        for parent in reply.parents:
            record = cycle.parent
            while record is not None and record.cycle_id != parent.cycle_id:
                record = record.parent
            if record is None:
                raise PluginProtocolError(
                    self._plugin,
                    call.rpc,
                    f"set a token of the cycle {parent.cycle_id[:64]!r}, to which this one does not belong",
                )
            self._take_token(record, call, parent.plugin_token)
        for entry in reply.publish:
            self._publish(cycle, call, entry)

    def _take_token(self, cycle: CycleRecord, call: AnyCall, token: bytes) -> None:
        if len(token) > MAX_TOKEN_BYTES:
            raise PluginProtocolError(
                self._plugin,
                call.rpc,
                f"set a cycle token of {len(token)} bytes; {MAX_TOKEN_BYTES} is the limit",
            )
        cycle.state(self._plugin).token = token or None

    def _publish(self, cycle: CycleRecord, call: AnyCall, entry: pb.CycleStateEntry) -> None:
        if not entry.key.startswith(f"{self._plugin}/"):
            raise PluginProtocolError(
                self._plugin, call.rpc, f"published the key {entry.key[:64]!r}, which is not its own"
            )
        if len(entry.key.encode()) > MAX_SHARED_KEY_BYTES or len(entry.value) > MAX_SHARED_VALUE_BYTES:
            raise PluginProtocolError(
                self._plugin, call.rpc, f"published {len(entry.value)} bytes under {entry.key[:64]!r}"
            )
        if entry.deleted:
            cycle.shared.values.pop(entry.key, None)
        else:
            cycle.shared.values[entry.key] = entry.value

    def repair(self, cycle: CycleRecord, call: AnyCall, reply: pb.ReplyContext) -> None:
        """Note what the instance lacks, after a call that was not executed for this, for the repeated call.

        Raises CycleRestartError if only a new cycle helps and a restart is still possible.
        """
        missing = set(reply.missing)
        if missing - _REPAIRABLE:
            if not cycle.may_restart:
                raise PluginRaisedError(self._plugin, call.rpc, "lost what this cycle had left with it")
            raise CycleRestartError(self._plugin, "it lost what this cycle had left with it")
        if pb.MISSING_POD in missing:
            cycle.wire[self._link.identity.attachment_id] = _Told()
            cycle.owner.wire[self._link.identity.attachment_id] = _Told()
        if pb.MISSING_STATE in missing:
            have = wire.decode_version(reply.have) if reply.HasField("have") else None
            self._link.told(have)


def encode_ended(ended: Sequence[tuple[str, CycleEnd]]) -> list[pb.CycleEnd]:
    """Return the ends of cycles as messages."""
    return [pb.CycleEnd(cycle_id=cycle_id, outcome=_OUTCOMES[outcome]) for cycle_id, outcome in ended]
