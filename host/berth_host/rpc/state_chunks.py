"""`StateChanges` -> the chunks of SyncState, made piece by piece: a cluster is too large for one step.

`StateEncoder` calls it, and knows how to write each part. Source: the contract's state.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod

from berth_host.errors import HostError
from berth_host.model.state_changes import NodeChange, ObjectChange, StateChanges

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""The largest message in either direction, as Configure tells it: gRPC's own default."""
CHUNK_BYTES: Final = 16 * 1024
"""The largest chunk, whatever the agreed limit: a chunk is serialised and sent in one step."""
_ENVELOPE_BYTES: Final = 192
"""Room in a chunk for all that is no part: versions, digests, tags."""
_TAG_BYTES: Final = 8


class StateTooLargeError(HostError):
    """A single piece of state exceeds the agreed message size. Attribute: what."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.what = what
        super().__init__(
            f"{what} takes {size_bytes} bytes, and a message may have {limit_bytes}:"
            " raise max_message_bytes, or drop fields in the plugin's needs"
        )


class PartEncoder(Protocol):
    """Writes the parts of a delta."""

    def versions(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Base and target."""
        ...

    def digests(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Counts and sum."""
        ...

    def bare_node(self, change: NodeChange) -> pb.NodeState:
        """A node without its pods."""
        ...

    def pod(self, pod: Pod, changes: StateChanges) -> pb.PodState:
        """A pod on a node."""
        ...

    def object(self, change: ObjectChange) -> pb.ObjectState:
        """An object of another kind."""
        ...


class ChunkWriter:
    """One stream of chunks. A node whose pods do not fit continues in the next chunk, by its index."""

    def __init__(self, encoder: PartEncoder, changes: StateChanges, max_message_bytes: int) -> None:
        self._encoder = encoder
        self._changes = changes
        self._budget = min(max_message_bytes, CHUNK_BYTES) - _ENVELOPE_BYTES
        self._limit = max_message_bytes - _ENVELOPE_BYTES
        self._sequence = 0
        self._request = self._begun()
        self._used = 0

    def steps(self) -> Iterator[state_pb2.SyncStateRequest | None]:
        """The chunks, each below the limit. None after each small piece of work, so that other tasks can run.

        Raises StateTooLargeError for a single piece that no chunk can hold.
        """
        # An index takes at most five bytes. Removals come first, since upserts may use their indices again.
        step = max(1, self._budget // 6)
        removed = self._changes.removed
        for start in range(0, len(removed), step):
            some = removed[start : start + step]
            yield self._room(6 * len(some))
            self._request.chunk.removed.extend(some)
        for node in self._changes.nodes:
            yield from self._node(node)
        for item in self._changes.objects:
            piece = self._encoder.object(item)
            size = piece.ByteSize() + _TAG_BYTES
            self._check(f"{item.resource} {item.ref.key}", size)
            yield self._room(size)
            self._request.chunk.objects.append(piece)
        self._encoder.digests(self._request.chunk, self._changes)
        self._request.last = True
        yield self._request

    def _node(self, change: NodeChange) -> Iterator[state_pb2.SyncStateRequest | None]:
        bare = self._encoder.bare_node(change)
        size = bare.ByteSize() + _TAG_BYTES
        self._check(f"node {change.node.name}", size)
        yield self._room(size)
        upserts = self._request.chunk.upserts
        upserts.append(bare)
        for pod in change.pods:
            piece = self._encoder.pod(pod, self._changes)
            size = piece.ByteSize() + _TAG_BYTES
            self._check(f"pod {pod.key}", size + 2 * _TAG_BYTES)
            full = self._room(size)
            yield full
            if full is not None:
                upserts = self._request.chunk.upserts
                upserts.add(index=change.index, generation=change.generation)
                self._used += 2 * _TAG_BYTES
            upserts[-1].pods.append(piece)

    def _room(self, size: int) -> state_pb2.SyncStateRequest | None:
        """Make room for a piece; answers the chunk that this completed, if any."""
        full = None
        if self._used and self._used + size > self._budget:
            full = self._request
            self._sequence += 1
            self._request = self._begun()
            self._used = 0
        self._used += size
        return full

    def _begun(self) -> state_pb2.SyncStateRequest:
        request = state_pb2.SyncStateRequest(full=self._changes.base is None, sequence=self._sequence)
        self._encoder.versions(request.chunk, self._changes)
        return request

    def _check(self, what: str, size_bytes: int) -> None:
        if size_bytes > self._limit:
            raise StateTooLargeError(what, size_bytes, self._limit)
