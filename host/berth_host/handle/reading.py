"""`StateReader`: parts of the snapshot at one moment as chunks of `ReadStateResponse`.

Made by `HandleService` when a call begins. The change log hands out a capture of records that never change
(arrays of references, copied at once), so the cycles go on while it is encoded piece by piece.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

from berth_sdk.errors import UndeclaredError
from berth_sdk.needs import Need, NeedKind
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import handle_pb2, identity_pb2
from berth_sdk.selection import StateSelection
from berth_sdk.wire import records as wire
from berth_sdk.wire.message_limit import MAX_BYTES

from berth_host.attach.state_feed import HostState
from berth_host.errors.state import InvariantError
from berth_host.handle.backend import UnknownNodesError
from berth_host.rpc.loop_slices import LoopSlices
from berth_host.rpc.state_codec import StateEncoder


def readable(
    plugin: str, asked: Iterable[identity_pb2.DeclaredNeed], declared: Sequence[Need]
) -> Sequence[Need]:
    """Return the needs that a read of `plugin` is about: those that it asks for, or where it asks for none
    those that it declared. Nodes and pods are for every plugin; of other objects the host also holds what
    others declared, which may be secrets.

    Raises ValueError for a need that cannot be read, UndeclaredError for an object that is not declared.
    """
    needs = [wire.decode_need(need) for need in asked]
    own = {need.resource for need in declared if need.kind is NeedKind.OBJECT}
    for need in needs:
        if need.kind is NeedKind.OBJECT and need.resource not in own:
            resource = need.resource
            raise UndeclaredError(f"objects of {resource!r}", f"Need.objects({resource!r})", plugin)
    return needs or declared


class StateReader:
    """One read of the snapshot as of its construction. `version`: the version read."""

    def __init__(self, state: HostState, needs: Iterable[Need], nodes: pb.NodeSet | None) -> None:
        """`nodes` None: all. Raises UnknownNodesError."""
        selection = StateSelection.of(needs)
        changes = state.changes_since(None, selection)
        if changes is None:
            raise InvariantError("the change log cannot say what the whole state is")
        self.version = changes.target
        self._changes = changes
        self._encoder = StateEncoder(selection)
        self._wanted = None if nodes is None else _slots(nodes, state)

    async def chunks(self) -> AsyncGenerator[handle_pb2.ReadStateResponse, None]:
        """Yield nodes and objects, each of them whole in one chunk."""
        version = wire.encode_version(self.version)
        held: pb.NodeState | None = None
        pace = LoopSlices()
        for part in self._encoder.chunks(self._changes, MAX_BYTES):
            if part is None:
                await pace.step()
                continue
            response = handle_pb2.ReadStateResponse(version=version, objects=part.chunk.objects)
            # A node with many pods comes in pieces: the last of a part waits for the next part.
            for node in self._chosen(part.chunk.upserts):
                if held is not None and held.index == node.index:
                    held.pods.extend(node.pods)
                    continue
                if held is not None:
                    response.nodes.append(held)
                held = node
            if part.last and held is not None:
                response.nodes.append(held)
            if response.nodes or response.objects or part.last:
                yield response
            await pace.rest()

    def _chosen(self, nodes: Iterable[pb.NodeState]) -> Iterator[pb.NodeState]:
        return (node for node in nodes if self._wanted is None or node.index in self._wanted)


def _slots(nodes: pb.NodeSet, state: HostState) -> frozenset[int]:
    """Return the slots of a set. Raises UnknownNodesError."""
    listed = set(wire.decode_bitmap(nodes.bitmap).tolist())
    for name in nodes.names:
        slot = state.index_of(name)
        if slot is None:
            raise UnknownNodesError(f"node {name!r} is not in the snapshot")
        listed.add(slot)
    everything = {slot for name in state.node_names() if (slot := state.index_of(name)) is not None}
    if not listed <= everything:
        raise UnknownNodesError(f"no node has the index {min(listed - everything)}")
    return frozenset(everything - listed if nodes.complement else listed)
