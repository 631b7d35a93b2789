"""The contract's replies -> raw answers: the column `decode` of `rpc.calls`.

A reply that cannot be read at all is a PluginProtocolError: node sets that are no subset, scores of the
wrong length, strings that name no node. So is one with a list that is longer than any good answer: two
million empty entries fit into one message, and reading them would hold the host's loop for seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import numpy as np
import orjson
from berth_sdk.extension_points import NodeMode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import queue_pb2, scheduling_pb2
from berth_sdk.results import (
    BindResult,
    FilterResult,
    ObjectPatch,
    PatchAction,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
)
from berth_sdk.runtime.early import PreScored
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.wire import records as wire
from berth_sdk.wire.scores import RepeatedScores, Scored, decode_aligned
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from berth_host.errors.plugins import PluginProtocolError
from berth_host.rpc.cycle import Reserved
from berth_host.rpc.served.statuses import decode_status
from berth_host.rpc.validate import MAX_PATCHES

MAX_LISTED: Final = 20_000
"""Entries of a list, of whatever kind: more pods than any request asks about, and more than a node holds."""
SURPLUS: Final = 256
"""Beyond the candidates: reasons may hold for none of them, and a few too many have better words."""


@dataclass(slots=True, eq=False)
class ReplyReader:
    """Reads one reply of the call `rpc`. `nodes`: the candidates of the request by ascending slot, where it
    had some; `back`: the way from there to the order that they were given in, None: the same; `count`: of
    the scenarios; `last`: for scores like those of the reply before.
    """

    plugin: str
    rpc: str
    mode: NodeMode
    nodes: NodeTable | None = None
    last: RepeatedScores = field(default_factory=RepeatedScores)
    back: NDArray[np.intp] | None = None
    count: int = 0

    # --- parts of every reply ------------------------------------------------------------------------

    def status(self, ctx: pb.ReplyContext, unset: Code = Code.SUCCESS) -> Status:
        """The status of the reply; `unset`: the reading of no code."""
        return decode_status(ctx.status, self.plugin, unset)

    def decision(self, ctx: pb.ReplyContext) -> Status | None:
        """The status where one is due; None: no code was set."""
        if ctx.status.code == pb.Status.CODE_UNSPECIFIED:
            return None
        return self.status(ctx)

    def statuses(self, messages: Sequence[pb.Status]) -> list[Status]:
        """Aligned statuses; no code: SUCCESS."""
        return [decode_status(message, self.plugin, Code.SUCCESS) for message in messages]

    # --- the queue ---------------------------------------------------------------------------------------

    def pre_enqueue(self, reply: queue_pb2.PreEnqueueResponse) -> list[Status]:
        """One status per pod."""
        self._bound(len(reply.statuses), MAX_LISTED, "statuses")
        return self.statuses(reply.statuses)

    def sort_keys(self, reply: queue_pb2.SortKeysResponse) -> list[bytes]:
        """One key per pod."""
        return list(reply.keys)

    def queueing_hints(self, reply: queue_pb2.QueueingHintsResponse) -> list[bool]:
        """One hint per pod."""
        return list(reply.queue)

    # --- the scheduling cycle --------------------------------------------------------------------------

    def pre_filter(self, scored: Scored[scheduling_pb2.PreFilterResponse]) -> PreFilterResult:
        """The eligible nodes, by bitmap or names, and the early answers of Filter and Score."""
        reply = scored.message
        eligible = self._eligible(reply.eligible) if reply.HasField("eligible") else None
        status = self.status(reply.ctx)
        if not status.is_success and status.code is not Code.SKIP:
            return PreFilterResult(status, eligible)
        early = self.verdicts(reply.early_filter) if reply.HasField("early_filter") else None
        scores = None if scored.scores is None else self.scores(scored.scores)
        return PreFilterResult(status, eligible, early, scores, reply.skip_score)

    def filter(self, scored: Scored[scheduling_pb2.FilterResponse]) -> FilterResult:
        """A status other than SUCCESS holds for all candidates."""
        reply = scored.message
        status = self.status(reply.ctx)
        if not status.is_success:
            return FilterResult(Verdicts.all(len(self._candidates), status), skip_score=reply.skip_score)
        scores = None if scored.scores is None else self.scores(scored.scores)
        return FilterResult(self.verdicts(reply.verdicts), scores, reply.skip_score)

    def verdicts(self, message: scheduling_pb2.NodeVerdicts) -> Verdicts:
        """Groups by reason -> one verdict per candidate; unmentioned candidates pass."""
        groups: NDArray[np.int32] | None = None
        statuses = [SUCCESS]
        self._bound(len(message.rejected), len(self._candidates) + SURPLUS, "groups of verdicts")
        for group in message.rejected:
            members = self._members(group.nodes)
            if groups is not None and groups[members].any():
                self._violation("listed a node in two groups of verdicts")
            status = decode_status(group.status, self.plugin, Code.UNSCHEDULABLE)
            if status.is_success:
                self._violation("listed nodes as rejected and gave them SUCCESS")
            if groups is None:
                groups = members.astype(np.int32)
            else:
                groups[members] = len(statuses)
            statuses.append(status)
        if groups is None:
            return Verdicts.feasible(len(self._candidates))
        verdicts = Verdicts(groups, tuple(statuses))
        return verdicts if self.back is None else verdicts.take(self.back)

    def pre_score(self, scored: Scored[scheduling_pb2.PreScoreResponse]) -> PreScored:
        """The status, and with SUCCESS the scores that came along."""
        status = self.status(scored.message.ctx)
        early = scored.scores if status.is_success else None
        return PreScored(status, None if early is None else self.scores(early))

    def score(
        self, scored: Scored[scheduling_pb2.ScoreResponse] | Scored[scheduling_pb2.NormalizeScoreResponse]
    ) -> NDArray[np.int64] | Status:
        """One score per candidate; a Status is an error that the plugin itself reports."""
        status = self.status(scored.message.ctx)
        return self.scores(scored.scores or b"") if status.is_success else status

    def simulate_filter(self, reply: scheduling_pb2.SimulateFilterResponse) -> Verdicts:
        """One verdict per scenario."""
        status, count = self.status(reply.ctx), self.count
        if not status.is_success:
            return Verdicts.all(count, status)
        if len(reply.statuses) != count:
            self._violation(f"answered {len(reply.statuses)} statuses for {count}")
        return Verdicts.of(self.statuses(reply.statuses))

    def post_filter(self, reply: scheduling_pb2.PostFilterResponse) -> PostFilterResult:
        """No code reads as no help."""
        self._bound(len(reply.victims), MAX_LISTED, "victims")
        self._bound(len(reply.patches), MAX_PATCHES, "patches")
        return PostFilterResult(
            self.status(reply.ctx, Code.UNSCHEDULABLE),
            reply.nominated_node,
            reply.clear_nomination,
            tuple(wire.decode_ref(victim) for victim in reply.victims),
            tuple(self._patch(patch) for patch in reply.patches),
        )

    def scores(self, raw: bytes) -> NDArray[np.int64]:
        """`raw`: a `Scores` message. int64[n] in the order that the candidates were given in; scores of the
        wrong length are left for `validate` to refuse.
        """
        scores, back = self._ascending_scores(raw), self.back
        return scores if back is None or len(scores) != len(back) else scores[back]

    def _ascending_scores(self, raw: bytes) -> NDArray[np.int64]:
        try:
            return self.last.decode(raw)
        except ValueError:
            pass  # named scores, or others that are not written in one piece
        try:
            message = scheduling_pb2.Scores.FromString(raw)
        except DecodeError as err:
            self._violation(f"answered scores that cannot be read ({err})")
        if bool(message.named) + bool(message.dense) + bool(message.small) > 1:
            self._violation("answered scores in two forms at once")
        if not message.named:
            message.DiscardUnknownFields()  # of a newer contract: the reader of whole columns knows none
            return decode_aligned(message.SerializeToString())
        if self.mode is NodeMode.SNAPSHOT:
            self._violation("answered scores by name, which only a plugin in NAMES mode may")
        self._bound(len(message.named), len(self._candidates) + SURPLUS, "scores")
        by_name = {entry.node: entry.score for entry in message.named}
        if len(by_name) != len(message.named):
            self._violation("scored a node twice")
        names = self._candidates.names
        missing = next((name for name in names if name not in by_name), None)
        if missing is not None or len(by_name) != len(names):
            self._violation(
                f"left node {missing!r} without a score"
                if missing is not None
                else "scored nodes that are no candidates"
            )
        return np.fromiter((by_name[name] for name in names), dtype=np.int64, count=len(names))

    # --- the chosen node -------------------------------------------------------------------------------

    def reserve(self, reply: scheduling_pb2.ReserveResponse) -> Reserved:
        """The early answer to PreBind is left to be read when it is due."""
        early = reply.early_pre_bind if reply.HasField("early_pre_bind") else None
        return Reserved(
            self.decision(reply.ctx),
            self.pre_flight(reply.early_pre_flight) if reply.HasField("early_pre_flight") else None,
            None if early is None else lambda: replace(self, rpc="PreBind").pre_bind(early),
        )

    def permit(self, reply: scheduling_pb2.PermitResponse) -> PermitResult | None:
        """None: no code."""
        status = self.decision(reply.ctx)
        if status is None:
            return None
        wait = reply.wait_timeout
        wait_s = wait.seconds + wait.nanos / 1e9 if reply.HasField("wait_timeout") else None
        return PermitResult(status, wait_s)

    def pre_flight(self, reply: scheduling_pb2.PreBindPreFlightResponse) -> PreFlightResult:
        """No code reads as SUCCESS."""
        return PreFlightResult(self.status(reply.ctx), reply.allow_parallel)

    def pre_bind(self, reply: scheduling_pb2.PreBindResponse) -> PreBindResult | None:
        """None: no code. Patches and the time to ask again count with SUCCESS alone."""
        status = self.decision(reply.ctx)
        if status is None or not status.is_success:
            return None if status is None else PreBindResult(status)
        self._bound(len(reply.patches), MAX_PATCHES, "patches")
        after = reply.ask_again_after
        return PreBindResult(
            status,
            tuple(self._patch(patch) for patch in reply.patches),
            after.seconds + after.nanos / 1e9 if reply.HasField("ask_again_after") else None,
            reply.done_when_applied,
        )

    def bind(self, reply: scheduling_pb2.BindResponse) -> BindResult | None:
        """None: no code."""
        status = self.decision(reply.ctx)
        return None if status is None else BindResult(status, reply.host_binds)

    # --- pieces ------------------------------------------------------------------------------------------

    def _bound(self, count: int, limit: int, what: str) -> None:
        if count > limit:
            self._violation(f"answered {count} {what}; {limit} is the limit")

    @property
    def _candidates(self) -> NodeTable:
        if self.nodes is None:
            self._violation("answered about nodes and was asked about none")
        return self.nodes

    def _members(self, message: pb.NodeSet) -> NDArray[np.bool_]:
        """bool[n]: which candidates are in a set that must be a subset of them."""
        nodes = self._candidates
        if self.mode is NodeMode.NAMES:
            members = np.zeros(len(nodes), dtype=np.bool_)
            members[self._named_positions(message, nodes)] = True
        elif message.names:
            self._violation("named nodes although it chose bitmaps (SNAPSHOT mode)")
        else:
            members = self._marked(message.bitmap, nodes.slots)
        return ~members if message.complement else members

    def _marked(self, bitmap: bytes, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """bool[n]: whether the bit of each of the ascending `rows` is set; no other bit may be."""
        size = int(rows[-1]) + 1 if len(rows) else 0
        bits = wire.mask_of(bitmap, size)
        # Beyond the last candidate there may be zeros to fill up bytes, and nothing else.
        strange = 8 * len(bitmap) > size and int.from_bytes(bitmap, "little") >> size != 0
        if size != len(rows):
            listed = np.count_nonzero(bits)
            bits = bits[rows]
            strange = strange or np.count_nonzero(bits) != listed
        if strange:
            self._violation("answered about a node that is not among the candidates")
        return bits

    def _named_positions(self, message: pb.NodeSet, nodes: NodeTable) -> NDArray[np.intp]:
        if message.bitmap:
            self._violation("answered a bitmap although it chose names (NAMES mode)")
        position_of = {name: i for i, name in enumerate(nodes.names)}
        unknown = next((name for name in message.names if name not in position_of), None)
        if unknown is not None:
            self._violation(f"answered about node {unknown!r}, which is not among the candidates")
        positions = np.fromiter((position_of[name] for name in message.names), dtype=np.intp)
        if len(np.unique(positions)) != len(positions):
            self._violation("listed a node twice")
        return positions

    def _eligible(self, message: pb.NodeSet) -> frozenset[str]:
        """Names, which need not be known; a complement is of the candidates."""
        nodes = self._candidates
        names = set(message.names)
        if len(names) != len(message.names):
            self._violation("listed a node twice")
        if message.bitmap:
            listed = wire.decode_bitmap(message.bitmap)
            positions = np.searchsorted(nodes.slots, listed)
            known = positions < len(nodes)
            known[known] = nodes.slots[positions[known]] == listed[known]
            if not known.all():
                self._violation("answered about a node that is not among the candidates")
            names.update(nodes.take(positions).names)
        return frozenset(set(nodes.names) - names if message.complement else names)

    def _patch(self, message: scheduling_pb2.ObjectPatch) -> ObjectPatch:
        try:
            body: Any = orjson.loads(message.merge_patch_json)
        except ValueError as err:
            self._violation(f"answered a patch that is not JSON ({err})")
        if not isinstance(body, Mapping):
            self._violation("answered a patch that is not a JSON object")
        return ObjectPatch(
            resource=message.resource,
            ref=wire.decode_ref(message.ref),
            merge_patch=body,
            expected_resource_version=message.expected_resource_version,
            subresource=message.subresource,
            action=self._action(message.action),
        )

    def _action(self, number: int) -> PatchAction:
        if number == scheduling_pb2.ObjectPatch.ACTION_UNSPECIFIED:
            return PatchAction.MERGE
        try:
            return PatchAction(number)
        except ValueError:
            self._violation(f"answered a patch with the unknown action {number}")

    def _violation(self, detail: str) -> NoReturn:
        raise PluginProtocolError(self.plugin, self.rpc, detail)
