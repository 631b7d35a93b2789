"""Requests of the host -> honest answers of a plugin that is at every point, each time others.

    answers = HonestAnswers(random.Random(1), on_nodes={"n0": [ref]})
    reply = answers.to("Filter", request)

It knows the nodes n0, n1, ... in the order of their slots, and which pods of low priority run on them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, queue_pb2, scheduling_pb2, state_pb2
from berth_sdk.runtime.descriptor import EARLY
from berth_sdk.runtime.group_runtime import FeasibleSteps
from berth_sdk.wire.frames import FEATURE
from berth_sdk.wire.records import encode_bitmap

NAME = "Demo"
INSTANCE = "honest-1"
_CODE = pb.PluginStatus
_REJECTING = (_CODE.CODE_UNSCHEDULABLE, _CODE.CODE_UNSCHEDULABLE_AND_UNRESOLVABLE, _CODE.CODE_PENDING)


class HonestAnswers:
    """`names`: the plugin names nodes (NAMES mode). `keeps_out`: how often it rejects, 0..1."""

    def __init__(
        self,
        rng: random.Random,
        on_nodes: Mapping[str, Sequence[pb.ObjectRef]],
        *,
        names: bool = False,
        normalization: ScoreNormalization = ScoreNormalization.PLUGIN,
        keeps_out: float = 0.5,
    ) -> None:
        self._rng = rng
        self._on_nodes = on_nodes
        self._nodes = list(on_nodes)
        self._names = names
        self._normalization = normalization
        self._keeps_out = keeps_out

    def to(self, rpc: str, request: Any) -> Any:
        """Return the answer to a call; `request`: the list of them, where they are a stream."""
        reply = getattr(self, f"_{rpc}")(request)
        if hasattr(reply, "ctx"):
            reply.ctx.cycle_id = request.ctx.cycle_id
            if self._maybe():
                reply.ctx.plugin_token = b"token"
            if self._maybe(0.2):
                reply.ctx.publish.add(key=f"{NAME}/key", value=b"value")
        return reply

    # --- pieces ------------------------------------------------------------------------------------

    def _maybe(self, share: float = 0.5) -> bool:
        return self._rng.random() < share

    def _says_no(self) -> bool:
        return self._rng.random() < self._keeps_out

    def _status(self, *codes: Any) -> pb.PluginStatus:
        code = self._rng.choice(codes) if codes and self._says_no() else _CODE.CODE_SUCCESS
        return pb.PluginStatus(code=code, reasons=[] if code == _CODE.CODE_SUCCESS else ["not today"])

    def _ctx(self, *codes: Any) -> pb.ReplyContext:
        return pb.ReplyContext(status=self._status(*codes))

    def _candidates(self, request: Any) -> list[int]:
        """Slots; of a request by name the places in it."""
        return self._listed(request.candidates)

    def _listed(self, asked: pb.NodeSet) -> list[int]:
        if asked.names:
            return [self._nodes.index(name) for name in asked.names]
        if asked.complement:
            return list(range(len(self._nodes)))
        return [i for i in range(8 * len(asked.bitmap)) if asked.bitmap[i // 8] >> i % 8 & 1]

    def _set(self, slots: Sequence[int]) -> pb.NodeSet:
        if self._names:
            return pb.NodeSet(names=[self._nodes[slot] for slot in slots])
        return pb.NodeSet(bitmap=encode_bitmap(slots))

    def _verdicts(self, slots: list[int]) -> scheduling_pb2.NodeVerdicts:
        rejected = [slot for slot in slots if self._says_no()]
        half = self._rng.randint(0, len(rejected))
        return scheduling_pb2.NodeVerdicts(
            rejected=[
                scheduling_pb2.NodeGroup(
                    status=pb.PluginStatus(code=self._rng.choice(_REJECTING), reasons=["full"]),
                    nodes=self._set(part),
                )
                for part in (rejected[:half], rejected[half:])
                if part
            ]
        )

    def _scores(self, slots: list[int]) -> scheduling_pb2.Scores:
        scores = [self._rng.randint(0, 100) for _ in slots]
        if self._names and self._maybe():
            named = zip(slots, scores, strict=True)
            return scheduling_pb2.Scores(
                named=[
                    scheduling_pb2.NamedScore(node=self._nodes[slot], score=score) for slot, score in named
                ]
            )
        if self._maybe():
            return scheduling_pb2.Scores(small=bytes(scores))
        return scheduling_pb2.Scores(dense=scores)

    def _patches(self, request: Any) -> list[scheduling_pb2.ObjectPatch]:
        refs = [request.ctx.pod.summary.ref] if request.ctx.HasField("pod") else []
        return [
            scheduling_pb2.ObjectPatch(
                resource="pods", ref=ref, merge_patch_json=b'{"metadata": {"annotations": {"demo": "1"}}}'
            )
            for ref in refs
        ]

    # --- introductions and state -------------------------------------------------------------------

    def _Handshake(self, _request: Any) -> identity_pb2.HandshakeResponse:  # noqa: N802
        reply = identity_pb2.HandshakeResponse(
            supported=[identity_pb2.ContractVersion(major=1, minor=self._rng.randrange(2))],
            plugins=[self._plugin()],
            instance_id=INSTANCE,
            features=[FEATURE] if self._maybe() else [],
        )
        reply.started_at.FromSeconds(1_700_000_000)
        return reply

    def _plugin(self) -> identity_pb2.PluginDescriptor:
        message = identity_pb2.PluginDescriptor(
            name=NAME,
            version="1.0",
            points=range(1, 19),  # type: ignore[arg-type]  # the numbers of the enum
            node_mode=self._rng.choice([identity_pb2.NODE_MODE_NAMES, identity_pb2.NODE_MODE_SNAPSHOT]),
            needs=[identity_pb2.DeclaredNeed(kind=identity_pb2.DeclaredNeed.KIND_NODE_SUMMARY)],
            normalization=self._rng.randrange(7),  # type: ignore[arg-type]  # likewise
            max_concurrency=self._rng.randrange(9),
            events=[
                identity_pb2.EventInterest(resource="Node", actions=["update.labels"], label_selector="a=b")
            ],
            reads_shared=["Other/key"],
        )
        if self._maybe():
            message.needs.add(kind=identity_pb2.DeclaredNeed.KIND_OBJECT, resource="services")
        if self._maybe():
            message.sign_fields.fields.append(identity_pb2.POD_FIELD_LABELS)
        message.deadlines.add(point=identity_pb2.EXTENSION_POINT_FILTER).deadline.FromMilliseconds(200)
        return message

    def _Configure(self, _request: Any) -> identity_pb2.ConfigureResponse:  # noqa: N802
        return identity_pb2.ConfigureResponse(warnings=["mind the gap"] if self._maybe() else [])

    def _Probe(self, _request: Any) -> identity_pb2.ProbeResponse:  # noqa: N802
        return identity_pb2.ProbeResponse(ready=True, instance_id=INSTANCE, in_flight=self._rng.randrange(4))

    def _Drain(self, _request: Any) -> identity_pb2.DrainResponse:  # noqa: N802
        return identity_pb2.DrainResponse(open_cycles=self._rng.randrange(4))

    def _SyncState(self, chunks: Sequence[Any]) -> state_pb2.SyncStateResponse:  # noqa: N802
        return state_pb2.SyncStateResponse(have=chunks[-1].chunk.target)

    def _Reconcile(self, pages: Sequence[Any]) -> state_pb2.ReconcileResponse:  # noqa: N802
        live = [item.cycle_id for page in pages for item in page.live]
        return state_pb2.ReconcileResponse(unknown_cycle_ids=[one for one in live if self._maybe()])

    # --- the queue -----------------------------------------------------------------------------------

    def _PreEnqueue(self, request: Any) -> queue_pb2.PreEnqueueResponse:  # noqa: N802
        return queue_pb2.PreEnqueueResponse(statuses=[self._status(*_REJECTING) for _ in request.pods])

    def _SortKeys(self, request: Any) -> queue_pb2.SortKeysResponse:  # noqa: N802
        return queue_pb2.SortKeysResponse(keys=[pod.summary.ref.name.encode()[:9] for pod in request.pods])

    def _QueueingHints(self, request: Any) -> queue_pb2.QueueingHintsResponse:  # noqa: N802
        return queue_pb2.QueueingHintsResponse(queue=[not self._says_no() for _ in request.pods])

    # --- the scheduling cycle ------------------------------------------------------------------------

    def _PreFilter(self, request: Any) -> scheduling_pb2.PreFilterResponse:  # noqa: N802
        slots = self._candidates(request)
        reply = scheduling_pb2.PreFilterResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE, _CODE.CODE_SKIP))
        if self._says_no():
            reply.eligible.CopyFrom(self._set(slots[1:]))
        if self._maybe():
            reply.early_filter.CopyFrom(self._verdicts(slots))
        if self._maybe() and self._normalization in EARLY:
            reply.early_scores.CopyFrom(self._scores(slots))
        elif self._maybe():
            reply.skip_score = True
        return reply

    def _Filter(self, request: Any) -> scheduling_pb2.FilterResponse:  # noqa: N802
        slots = self._candidates(request)
        reply = scheduling_pb2.FilterResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE))
        reply.verdicts.CopyFrom(self._verdicts(slots))
        if self._maybe() and self._normalization in EARLY:
            reply.early_scores.CopyFrom(self._scores(slots))
        elif self._maybe():
            reply.skip_score = True
        return reply

    def _SimulateFilter(self, request: Any) -> scheduling_pb2.SimulateFilterResponse:  # noqa: N802
        statuses = [self._status(*_REJECTING) for _ in request.scenarios]
        return scheduling_pb2.SimulateFilterResponse(ctx=self._ctx(), statuses=statuses)

    def _PostFilter(self, request: Any) -> scheduling_pb2.PostFilterResponse:  # noqa: N802
        reply = scheduling_pb2.PostFilterResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE))
        if reply.ctx.status.code != _CODE.CODE_SUCCESS:
            return reply
        if self._maybe(0.2):
            reply.clear_nomination = True
            return reply
        reply.nominated_node = self._rng.choice(self._nodes)
        victims = self._on_nodes[reply.nominated_node]
        reply.victims.extend(victims[: self._rng.randint(0, len(victims))])
        if self._maybe():
            reply.patches.extend(self._patches(request))
        return reply

    def _PlacementGenerate(  # noqa: N802
        self, request: Any
    ) -> scheduling_pb2.PlacementGenerateResponse:
        reply = scheduling_pb2.PlacementGenerateResponse(ctx=self._ctx(*_REJECTING))
        slots = self._listed(request.parent.nodes)
        for number in range(0 if self._says_no() else self._rng.randint(1, 4)):
            least = 0 if self._says_no() else min(1, len(slots))
            chosen = sorted(self._rng.sample(slots, self._rng.randint(least, len(slots))))
            reply.placements.add(name=f"zone-{number}", nodes=self._set(chosen))
        return reply

    def _PlacementScore(self, _request: Any) -> scheduling_pb2.PlacementScoreResponse:  # noqa: N802
        return scheduling_pb2.PlacementScoreResponse(ctx=self._ctx(), score=self._rng.randint(-5, 1000))

    def _NormalizePlacementScore(  # noqa: N802
        self, request: Any
    ) -> scheduling_pb2.NormalizePlacementScoreResponse:
        scores = [self._rng.randint(0, 100) for _ in request.placements]
        return scheduling_pb2.NormalizePlacementScoreResponse(ctx=self._ctx(), scores=scores)

    def _PlacementFeasible(  # noqa: N802
        self, request: Any
    ) -> scheduling_pb2.PlacementFeasibleResponse:
        left = len(FeasibleSteps(request.scheduled, request.remaining, request.max_failures))
        reply = scheduling_pb2.PlacementFeasibleResponse(ctx=self._ctx())
        while left:
            count = self._rng.randint(1, left)
            status = self._status(_CODE.CODE_WAIT, _CODE.CODE_UNSCHEDULABLE)
            if status.reasons:
                status.reasons[0] = "{scheduled} of them"
            reply.runs.add(count=count, status=status)
            left -= count
        return reply

    def _PodGroupPostFilter(  # noqa: N802
        self, request: Any
    ) -> scheduling_pb2.PodGroupPostFilterResponse:
        reply = scheduling_pb2.PodGroupPostFilterResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE))
        if reply.ctx.status.code == _CODE.CODE_SUCCESS:
            for pod in request.ctx.group.pods:
                if self._maybe():
                    node = self._rng.choice(self._nodes)
                    reply.nominations.add(pod=pod.summary.ref, node_name=node)
            victims = [ref for refs in self._on_nodes.values() for ref in refs]
            reply.victims.extend(victims[: self._rng.randint(0, len(victims))])
        return reply

    def _PreScore(self, request: Any) -> scheduling_pb2.PreScoreResponse:  # noqa: N802
        reply = scheduling_pb2.PreScoreResponse(ctx=self._ctx(_CODE.CODE_SKIP))
        if self._maybe() and reply.ctx.status.code == _CODE.CODE_SUCCESS:
            reply.early_scores.CopyFrom(self._scores(self._candidates(request)))
        return reply

    def _Score(self, request: Any) -> scheduling_pb2.ScoreResponse:  # noqa: N802
        return scheduling_pb2.ScoreResponse(ctx=self._ctx(), scores=self._scores(self._candidates(request)))

    def _NormalizeScore(self, request: Any) -> scheduling_pb2.NormalizeScoreResponse:  # noqa: N802
        scores = self._scores(self._candidates(request))
        return scheduling_pb2.NormalizeScoreResponse(ctx=self._ctx(), scores=scores)

    # --- the chosen node -----------------------------------------------------------------------------

    def _Reserve(self, request: Any) -> scheduling_pb2.ReserveResponse:  # noqa: N802
        reply = scheduling_pb2.ReserveResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE))
        if self._maybe():
            reply.early_pre_flight.CopyFrom(self._PreBindPreFlight(request))
        if self._maybe():
            reply.early_pre_bind.CopyFrom(self._PreBind(request))
        return reply

    def _Permit(self, _request: Any) -> scheduling_pb2.PermitResponse:  # noqa: N802
        reply = scheduling_pb2.PermitResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE, _CODE.CODE_WAIT))
        if self._maybe():
            reply.wait_timeout.FromSeconds(self._rng.randint(0, 30))
        return reply

    def _PreBindPreFlight(self, _request: Any) -> scheduling_pb2.PreBindPreFlightResponse:  # noqa: N802
        ctx = self._ctx(_CODE.CODE_SKIP)
        return scheduling_pb2.PreBindPreFlightResponse(ctx=ctx, allow_parallel=self._maybe())

    def _PreBind(self, request: Any) -> scheduling_pb2.PreBindResponse:  # noqa: N802
        reply = scheduling_pb2.PreBindResponse(ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE))
        # It asks for one more round at most.
        if self._maybe(0.3) and not getattr(request, "round", 0):
            reply.patches.extend(self._patches(request))
            reply.done_when_applied = self._maybe()
        elif self._maybe(0.3) and not getattr(request, "round", 0):
            reply.ask_again_after.FromMilliseconds(10)
        return reply

    def _Bind(self, _request: Any) -> scheduling_pb2.BindResponse:  # noqa: N802
        return scheduling_pb2.BindResponse(
            ctx=self._ctx(_CODE.CODE_UNSCHEDULABLE, _CODE.CODE_SKIP), host_binds=True
        )

    def _Unreserve(self, request: Any) -> scheduling_pb2.UnreserveResponse:  # noqa: N802
        return scheduling_pb2.UnreserveResponse(done_cycle_ids=[item.cycle_id for item in request.items])

    def _PostBind(self, _request: Any) -> scheduling_pb2.PostBindResponse:  # noqa: N802
        return scheduling_pb2.PostBindResponse()

    def _EndCycles(self, _request: Any) -> scheduling_pb2.EndCyclesResponse:  # noqa: N802
        return scheduling_pb2.EndCyclesResponse()
