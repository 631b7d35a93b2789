"""The contract's replies -> raw answers: what the host reads, value by value.

`READERS` has one reader for each kind of value, whatever reply it is in; `CallCodec` puts them together.

A reply that cannot be read at all is a PluginProtocolError: node sets that are no subset, scores of the
wrong length, strings that name no node. A list that is longer than any good answer raises the same error: two
million empty entries fit into one message, and reading them would block the host's loop for seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
import orjson
from berth_sdk.extension_points import NodeMode
from berth_sdk.json.objects import finish, object_steps
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2
from berth_sdk.pod_group import Placement
from berth_sdk.results import (
    ObjectPatch,
    PatchAction,
)
from berth_sdk.runtime.group_runtime import FeasibleRun
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.codec import Convert, Layout
from berth_sdk.wire.groups import decode_assignments
from berth_sdk.wire.scores import RepeatedScores, decode_aligned
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.served.statuses import decode_status

SURPLUS: Final = 256
"""Allowed groups beyond the number of candidates: groups may be empty, and other checks have better
messages.
"""


@dataclass(slots=True, eq=False)
class ReplyReader:
    """Reads one reply of the call `rpc`. `nodes`: the candidates of the request by ascending slot, where it
    had some. `back`: the positions that bring them into the order of the call; None: it is the same order.
    `count`: the number of scenarios. `last`: the scores of the reply before, if they are equal. `codes`: logs
    unknown status codes.
    """

    plugin: str
    rpc: str
    mode: NodeMode
    nodes: NodeTable | None = None
    last: RepeatedScores = field(default_factory=RepeatedScores)
    back: NDArray[np.intp] | None = None
    count: int = 0
    codes: CodeLog = field(default_factory=CodeLog)

    # --- parts of every reply ------------------------------------------------------------------------

    def status(self, ctx: pb.ReplyContext, unset: Code = Code.SUCCESS) -> Status:
        """Return the status of the reply. `unset`: the code where the reply has no status."""
        if ctx.HasField("status"):
            return self.read(ctx.status)
        return SUCCESS if unset is Code.SUCCESS else Status(unset, (), self.plugin)

    def read(self, message: pb.PluginStatus) -> Status:
        """Return a status, which has a code."""
        return decode_status(message, (self.plugin, self.rpc), self.codes)

    def decided(self, ctx: pb.ReplyContext, unset: Code | None) -> Status | None:
        """Return the status of the reply.

        `unset`: the code where the reply has no status. None: a decision is due; the result is None if there
        is none.
        """
        if unset is None:
            return self.read(ctx.status) if ctx.HasField("status") else None
        return self.status(ctx, unset)

    # --- nodes and scores -----------------------------------------------------------------------------

    def verdicts(self, message: scheduling_pb2.NodeVerdicts) -> Verdicts:
        """Return one verdict per candidate from groups by reason; candidates in no group pass."""
        groups: NDArray[np.int32] | None = None
        statuses = [SUCCESS]
        self.bound(len(message.rejected), len(self.candidates) + SURPLUS, "groups of verdicts")
        for group in message.rejected:
            members = self._members(group.nodes)
            if groups is not None and groups[members].any():
                self.violation("listed a node in two groups of verdicts")
            status = self.read(group.status)
            if status.is_success:
                self.violation("listed nodes as rejected and gave them SUCCESS")
            if groups is None:
                groups = members.astype(np.int32)
            else:
                groups[members] = len(statuses)
            statuses.append(status)
        if groups is None:
            return Verdicts.feasible(len(self.candidates))
        verdicts = Verdicts(groups, tuple(statuses))
        return verdicts if self.back is None else verdicts.take(self.back)

    def scores(self, raw: bytes) -> NDArray[np.int64]:
        """Return int64[n] from a `Scores` message, in the order of the request's candidates.

        `validate` refuses scores of the wrong length.
        """
        scores, back = self._ascending_scores(raw), self.back
        return scores if back is None or len(scores) != len(back) else scores[back]

    def _ascending_scores(self, raw: bytes) -> NDArray[np.int64]:
        try:
            return self.last.decode(raw)
        except ValueError:
            pass  # named scores, or scores that are not one block of bytes
        try:
            message = scheduling_pb2.Scores.FromString(raw)
        except DecodeError as err:
            self.violation(f"answered scores that cannot be read ({err})")
        if bool(message.named) + bool(message.dense) + bool(message.small) > 1:
            self.violation("answered scores in two forms at once")
        if not message.named:
            message.DiscardUnknownFields()  # of a newer contract: the reader of whole columns knows none
            return decode_aligned(message.SerializeToString())
        if self.mode is NodeMode.SNAPSHOT:
            self.violation("answered scores by name, which only a plugin in NAMES mode may")
        self.bound(len(message.named), len(self.candidates) + SURPLUS, "scores")
        names = self.candidates.names
        named = [entry.node for entry in message.named]
        scores = np.fromiter((entry.score for entry in message.named), dtype=np.int64, count=len(named))
        if named == names:  # in the order of the request
            return scores
        by_name = dict(zip(named, scores.tolist(), strict=True))
        if len(by_name) != len(named):
            self.violation("scored a node twice")
        missing = next((name for name in names if name not in by_name), None)
        if missing is not None or len(by_name) != len(names):
            self.violation(
                f"left node {missing!r} without a score"
                if missing is not None
                else "scored nodes that are no candidates"
            )
        return np.fromiter((by_name[name] for name in names), dtype=np.int64, count=len(names))

    def placement(self, message: scheduling_pb2.PlacementNodes) -> Placement:
        """Return a placement whose nodes are some of the request's."""
        return Placement(message.name, self.candidates.take(self._members(message.nodes)))

    # --- pieces ------------------------------------------------------------------------------------------

    def bound(self, count: int, limit: int, what: str) -> None:
        """Refuse a list that is longer than any good answer. Raises PluginProtocolError."""
        if count > limit:
            self.violation(f"answered {count} {what}; {limit} is the limit")

    @property
    def candidates(self) -> NodeTable:
        """The nodes of the request, by ascending slot. Raises PluginProtocolError."""
        if self.nodes is None:
            self.violation("answered about nodes and was asked about none")
        return self.nodes

    def _members(self, message: pb.NodeSet) -> NDArray[np.bool_]:
        """Return bool[n]: which candidates are in a set that must be a subset of them."""
        nodes = self.candidates
        if self.mode is NodeMode.NAMES:
            members = np.zeros(len(nodes), dtype=np.bool_)
            members[self._named_positions(message, nodes)] = True
            if np.count_nonzero(members) != len(message.names):
                self.violation("listed a node twice")
        elif message.names:
            self.violation("named nodes although it chose bitmaps (SNAPSHOT mode)")
        else:
            members = self._marked(message.bitmap, nodes.slots)
        return ~members if message.complement else members

    def _marked(self, bitmap: bytes, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool[n]: whether the bit of each of the ascending `rows` is set; no other bit may be."""
        size = int(rows[-1]) + 1 if len(rows) else 0
        bits = wire.mask_of(bitmap, size)
        # Beyond the last candidate there may be zeros to fill up bytes, and nothing else.
        strange = 8 * len(bitmap) > size and int.from_bytes(bitmap, "little") >> size != 0
        if size != len(rows):
            listed = np.count_nonzero(bits)
            bits = bits[rows]
            strange = strange or np.count_nonzero(bits) != listed
        if strange:
            self.violation("answered about a node that is not among the candidates")
        return bits

    def _named_positions(self, message: pb.NodeSet, nodes: NodeTable) -> NDArray[np.intp]:
        if message.bitmap:
            self.violation("answered a bitmap although it chose names (NAMES mode)")
        slots = np.array(nodes.slots_of(message.names), dtype=np.intp)
        positions: NDArray[np.intp] = nodes.slots.searchsorted(slots)
        strange = slots < 0
        if len(nodes):
            strange |= nodes.slots.take(positions, mode="clip") != slots
        if strange.any() or (len(slots) and not len(nodes)):
            unknown = message.names[int(strange.argmax())]
            self.violation(f"answered about node {unknown!r}, which is not among the candidates")
        return positions

    def eligible(self, message: pb.NodeSet) -> frozenset[str]:
        """Return the names in a set; they need not be known. A complement is of the candidates."""
        nodes = self.candidates
        names = set(message.names)
        if names and message.bitmap:
            self.violation("listed nodes both by a bitmap and by names: use one of them")
        if len(names) != len(message.names):
            self.violation("listed a node twice")
        if message.bitmap:
            listed = wire.decode_bitmap(message.bitmap)
            positions = np.searchsorted(nodes.slots, listed)
            known = positions < len(nodes)
            known[known] = nodes.slots[positions[known]] == listed[known]
            if not known.all():
                self.violation("answered about a node that is not among the candidates")
            names.update(nodes.take(positions).names)
        return frozenset(set(nodes.names) - names if message.complement else names)

    def patch_body(self, raw: bytes) -> Mapping[str, Any]:
        """Return a merge patch."""
        try:
            # A claim's opaque parameters are written as they came.
            body: Any = finish(object_steps("ResourceClaim", raw, orjson.loads, only_decode=True))
        except ValueError as err:
            self.violation(f"answered a patch that is not JSON ({err})")
        if not isinstance(body, Mapping):
            self.violation("answered a patch that is not a JSON object")
        return body

    def violation(self, detail: str) -> NoReturn:
        """Raise PluginProtocolError."""
        raise PluginProtocolError(self.plugin, self.rpc, detail)


_PATCH: Final = Layout(ObjectPatch, scheduling_pb2.ObjectPatch)


def patch_action(number: int) -> PatchAction:
    """Return what a patch does with its object; unset: it merges."""
    if number == scheduling_pb2.ObjectPatch.ACTION_UNSPECIFIED:
        return PatchAction.MERGE
    try:
        return PatchAction(number)
    except ValueError:
        return PatchAction.UNKNOWN


def _patch(reader: ReplyReader, message: scheduling_pb2.ObjectPatch) -> ObjectPatch:
    """Return a patch. The body of an unknown action is not read: only a host that knows the action knows what
    the body may be.
    """
    if patch_action(message.action) is PatchAction.UNKNOWN:
        known = scheduling_pb2.ObjectPatch()
        known.CopyFrom(message)
        known.merge_patch_json = b"{}"
        message = known
    return ObjectPatch(**_PATCH.decode(READERS, reader, message))


READERS: Final[Mapping[str, Convert]] = {
    "NodeSet": ReplyReader.eligible,
    "NodeVerdicts": ReplyReader.verdicts,
    "PluginStatus": ReplyReader.read,
    "ObjectRef": lambda _reader, message: wire.decode_ref(message),
    "ObjectPatch": _patch,
    "Action": lambda _reader, number: patch_action(number),
    "json": ReplyReader.patch_body,
    "Duration": lambda _reader, message: message.seconds + message.nanos / 1e9,
    "PlacementNodes": ReplyReader.placement,
    "PlacementAssignment": lambda _reader, message: decode_assignments([message], {})[0],
    "FeasibleRun": lambda reader, message: FeasibleRun(
        message.count, reader.read(message.status) if message.HasField("status") else SUCCESS
    ),
}
"""The reader of each kind of value, for all replies."""
