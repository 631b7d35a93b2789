"""Licences counted by the contract's words alone: raw messages, NAMES mode, no SDK, no object of the cluster.

    licences = LiteralLicences(2)
    async with licences.serving(path): ...

Reserve takes one of `count` licences for a pod with the label `licensed`. What is taken: the pods that its
copy of the state has on nodes, and the pods of its reservations, each uid once. `memory` outlives a process
that is only cut off from its host; another process has `LiteralLicences(2)` of its own.
"""

from __future__ import annotations

from typing import Any

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, scheduling_pb2, state_pb2
from support.scripted_plugin import ScriptedPlugin, decided, descriptor, lacking

LABEL = "licensed"
_BOUND = pb.CycleEnd.OUTCOME_BOUND


class LiteralLicences(ScriptedPlugin):
    """Attributes: count, reserved (cycle -> uid), held (uids on nodes, as the copy says)."""

    def __init__(self, count: int) -> None:
        need = identity_pb2.DeclaredNeed(
            kind=identity_pb2.DeclaredNeed.KIND_POD_SUMMARY, label_prefixes=[LABEL]
        )
        super().__init__(
            descriptor("Licences", "RESERVE", "POST_BIND", snapshot=False, needs=[need]),
        )
        self.count = count
        self.reserved: dict[str, str] = {}
        self._version: tuple[int, int] | None = None
        self._pods: dict[int, dict[str, bool]] = {}

    @property
    def on_nodes(self) -> set[str]:
        """Pods with a licence that the copy has on nodes, by uid."""
        return {uid for pods in self._pods.values() for uid, licensed in pods.items() if licensed}

    @property
    def taken(self) -> set[str]:
        """The holders of licences."""
        return self.on_nodes | set(self.reserved.values())

    # --- reservations --------------------------------------------------------------------------------

    def _Reserve(self, request: Any) -> scheduling_pb2.ReserveResponse:  # noqa: N802
        ctx = request.ctx
        self._over(ctx.ended)
        if ctx.HasField("delta"):
            self._apply(ctx.delta)
        if self._version != (ctx.version.epoch, ctx.version.generation):
            return scheduling_pb2.ReserveResponse(ctx=lacking(pb.MISSING_STATE, have=self._have()))
        pod = ctx.pod.summary
        if LABEL not in pod.labels:
            return scheduling_pb2.ReserveResponse(ctx=decided())
        if len(self.taken - {pod.ref.uid}) >= self.count:
            refusal = decided(pb.PluginStatus.CODE_UNSCHEDULABLE, f"all {self.count} licences are taken")
            return scheduling_pb2.ReserveResponse(ctx=refusal)
        self.reserved[ctx.cycle_id] = pod.ref.uid
        return scheduling_pb2.ReserveResponse(ctx=decided())

    def _Unreserve(self, request: Any) -> scheduling_pb2.UnreserveResponse:  # noqa: N802
        for item in request.items:
            self.reserved.pop(item.cycle_id, None)
        return scheduling_pb2.UnreserveResponse(done_cycle_ids=[item.cycle_id for item in request.items])

    def _PostBind(self, request: Any) -> scheduling_pb2.PostBindResponse:  # noqa: N802
        for item in request.items:
            self.reserved.pop(item.cycle_id, None)
        return scheduling_pb2.PostBindResponse()

    def _EndCycles(self, request: Any) -> scheduling_pb2.EndCyclesResponse:  # noqa: N802
        self._over(request.ended)
        return scheduling_pb2.EndCyclesResponse()

    def _Reconcile(self, request: Any) -> state_pb2.ReconcileResponse:  # noqa: N802
        # The list is the truth; what is alive can be taken up without a memory of it.
        self.reserved = {item.cycle_id: item.pod.uid for item in request.live}
        return state_pb2.ReconcileResponse()

    def _over(self, ended: Any) -> None:
        for item in ended:
            if item.outcome == _BOUND:
                self.reserved.pop(item.cycle_id, None)

    # --- state ---------------------------------------------------------------------------------------

    def _SyncState(self, chunks: list[Any]) -> state_pb2.SyncStateResponse:  # noqa: N802
        whole = chunks[0].chunk
        for chunk in chunks[1:]:
            whole.upserts.extend(chunk.chunk.upserts)
            whole.removed.extend(chunk.chunk.removed)
        self._apply(whole)
        done = self._version == (whole.target.epoch, whole.target.generation)
        return state_pb2.SyncStateResponse(have=self._have(), need_full=not done)

    def _apply(self, delta: pb.StateDelta) -> None:
        if delta.HasField("base"):
            if self._version != (delta.base.epoch, delta.base.generation):
                return
        else:
            self._pods = {}
        for index in delta.removed:
            self._pods.pop(index, None)
        complete: set[int] = set()
        for node in delta.upserts:
            pods = self._pods.setdefault(node.index, {})
            if node.pods_complete and node.index not in complete:
                pods.clear()
                complete.add(node.index)
            for uid in node.removed_pod_uids:
                pods.pop(uid, None)
            for state in node.pods:
                pods[state.pod.ref.uid] = LABEL in state.pod.labels
        self._version = (delta.target.epoch, delta.target.generation)

    def _have(self) -> pb.StateVersion | None:
        if self._version is None:
            return None
        return pb.StateVersion(epoch=self._version[0], generation=self._version[1])
