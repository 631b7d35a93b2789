"""The changes of the snapshot -> `StateDelta` of a call, or the chunks of `SyncState`.

The transport uses the encoder for the first call of a cycle, the attachment during SyncState. Each instance
has its own encoder, which sends only what the instance's plugins declared.
Source: the contract's common.proto (StateDelta, NodeState) and state.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import orjson
from berth_sdk.json.objects import finish, object_steps
from berth_sdk.kube_object import KubeObject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod
from berth_sdk.selection import Prefixes, StateSelection
from berth_sdk.tables import StateVersion
from berth_sdk.wire import records as wire
from berth_sdk.wire.message_limit import CURE

from berth_host.errors import HostError
from berth_host.model.compact_json import json_bytes
from berth_host.model.state_changes import NodeChange, ObjectChange, StateChanges

__all__ = ["StateEncoder", "StateSource", "StateTooLargeError", "fits_in_call"]

MAX_DELTA_NODES: Final = 500
"""A delta with more nodes than this travels by SyncState."""
MAX_DELTA_BYTES: Final = 256 * 1024
"""A delta with more bytes than this travels by SyncState."""


class StateSource(Protocol):
    """The source of changes: the cache's change log."""

    @property
    def version(self) -> StateVersion:
        """The current version of the snapshot."""
        ...

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """Return the changes since `base` (None: everything); None if `base` is no longer known.

        After None, the instance needs everything.
        """
        ...


class StateEncoder:
    """The encoder of one instance, without state. `selection`: what the instance's plugins declared."""

    __slots__ = ("_selection",)

    def __init__(self, selection: StateSelection) -> None:
        self._selection = selection

    @property
    def selection(self) -> StateSelection:
        """The parts of the state that are sent."""
        return self._selection

    def delta(self, changes: StateChanges) -> pb.StateDelta:
        """Return all changes in one message. A call may carry the message if `fits_in_call` returns True."""
        delta = pb.StateDelta()
        self.versions(delta, changes)
        self.digests(delta, changes)
        if changes.removed:
            delta.removed.extend(changes.removed)
        for change in changes.nodes:
            state = self.bare_node(change)
            if change.pods:
                state.pods.extend(self.pod(pod, changes) for pod in change.pods)
            delta.upserts.append(state)
        if changes.objects:
            delta.objects.extend(self.object(change) for change in changes.objects)
        return delta

    def chunks(
        self, changes: StateChanges, max_message_bytes: int
    ) -> Iterator[state_pb2.SyncStateRequest | None]:
        """Return the changes as a stream of messages, each below the limit and made when it is read.

        The stream has None between two pieces of the work. Raises StateTooLargeError for a single piece that
        no chunk can hold.
        """
        return ChunkWriter(self, changes, max_message_bytes).steps()

    # --- pieces --------------------------------------------------------------------------------

    def versions(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Write the base and target versions."""
        delta.target.epoch, delta.target.generation = changes.target
        if changes.base is not None:
            delta.base.epoch, delta.base.generation = changes.base

    def digests(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Write the counts and the sum of generations."""
        delta.node_count = changes.node_count
        delta.object_count = changes.object_count
        delta.generation_sum = changes.generation_sum

    def bare_node(self, change: NodeChange) -> pb.NodeState:
        """Return a node without its pods."""
        wanted = self._selection
        state = pb.NodeState(index=change.index, generation=change.generation)
        node = change.node
        if change.is_new:
            state.name = node.name
        if change.removed_pods:
            state.removed_pod_uids.extend(change.removed_pods)
        if change.pods_complete:
            state.pods_complete = True
        if change.summary and wanted.node_summary:
            state.summary.CopyFrom(
                wire.encode_node(
                    node,
                    labels=_kept(node.labels, wanted.node_labels),
                    annotations=_kept(node.annotations, wanted.node_annotations),
                    images=wanted.images,
                )
            )
        if change.usage is not None and wanted.node_summary:
            state.usage.CopyFrom(wire.encode_usage(change.usage))
        if change.object and wanted.node_object is not None and node.object is not None:
            state.object.CopyFrom(_object(node.object, wanted.node_object))
        return state

    def pod(self, pod: Pod, changes: StateChanges) -> pb.PodState:
        """Return a pod on a node."""
        wanted = self._selection
        state = pb.PodState(
            pod=wire.encode_pod(
                pod,
                labels=_kept(pod.labels, wanted.pod_labels),
                annotations=_kept(pod.annotations, wanted.pod_annotations),
                in_state=True,
            ),
            assumed=pod.uid in changes.assumed,
        )
        if wanted.pod_object is not None and pod.object is not None:
            state.object.CopyFrom(_object(pod.object, wanted.pod_object))
        return state

    def object(self, change: ObjectChange) -> pb.ObjectState:
        """Return an object of another kind."""
        state = pb.ObjectState(
            resource=change.resource,
            generation=change.generation,
            ref=wire.encode_ref(change.ref),
            removed=change.object is None,
        )
        if change.object is not None:
            dropped = dict(self._selection.resources).get(change.resource, ())
            state.object.CopyFrom(_object(change.object, dropped))
        return state


def fits_in_call(changes: StateChanges, delta: pb.StateDelta, max_message_bytes: int) -> bool:
    """Return True if a call may carry the delta; otherwise SyncState sends the changes.

    A quarter of a message is for the delta: the call has pod, nodes and shared values as well.
    """
    limit_bytes = min(MAX_DELTA_BYTES, max_message_bytes // 4)
    return len(changes.nodes) <= MAX_DELTA_NODES and delta.ByteSize() <= limit_bytes


def _kept(values: Mapping[str, str], prefixes: Prefixes) -> Mapping[str, str]:
    if prefixes is None:
        return values
    return {key: value for key, value in values.items() if key.startswith(prefixes)}


def _object(item: KubeObject, dropped: tuple[str, ...]) -> pb.KubeObject:
    if not dropped:
        return wire.encode_object(item)
    # Not `item.parsed`, which would keep the parsed form in memory.
    parsed = finish(object_steps(item.kind, item.raw, orjson.loads))
    for path in dropped:
        _drop(parsed, path.split("."))
    return wire.encode_object(KubeObject(item.api_version, item.kind, raw=json_bytes(parsed)))


def _drop(value: Any, path: list[str]) -> None:
    """Remove the field at `path`. In a list on the path, remove the field of each element."""
    if isinstance(value, list):
        for element in value:
            _drop(element, path)
    elif isinstance(value, dict):
        if len(path) == 1:
            value.pop(path[0], None)
        elif path[0] in value:
            _drop(value[path[0]], path[1:])


CHUNK_BYTES: Final = 16 * 1024
"""The largest chunk, even if the agreed limit is higher: a chunk is serialised and sent in one step."""
_ENVELOPE_BYTES: Final = 192
"""The room in a chunk for everything else: versions, digests, tags."""
_TAG_BYTES: Final = 8


class StateTooLargeError(HostError):
    """A single piece of state exceeds the agreed message size. Attribute: what."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.what = what
        super().__init__(
            f"{what} takes {size_bytes} bytes, and a message may have {limit_bytes}: {CURE},"
            " or drop fields in the plugin's needs"
        )


class PartEncoder(Protocol):
    """The writer of the parts of a delta."""

    def versions(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Write the base and target versions."""
        ...

    def digests(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Write the counts and the sum of generations."""
        ...

    def bare_node(self, change: NodeChange) -> pb.NodeState:
        """Return a node without its pods."""
        ...

    def pod(self, pod: Pod, changes: StateChanges) -> pb.PodState:
        """Return a pod on a node."""
        ...

    def object(self, change: ObjectChange) -> pb.ObjectState:
        """Return an object of another kind."""
        ...


class ChunkWriter:
    """The writer of one stream of chunks. A node whose pods do not fit continues in the next chunk, by
    index.
    """

    def __init__(self, encoder: PartEncoder, changes: StateChanges, max_message_bytes: int) -> None:
        self._encoder = encoder
        self._changes = changes
        self._budget = min(max_message_bytes, CHUNK_BYTES) - _ENVELOPE_BYTES
        self._limit = max_message_bytes - _ENVELOPE_BYTES
        self._sequence = 0
        self._request = self._begun()
        self._used = 0

    def steps(self) -> Iterator[state_pb2.SyncStateRequest | None]:
        """Yield the chunks, each below the limit, and None after each small piece of work, for other tasks.

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
        """Make room for a piece; return the chunk that this completed, or None."""
        full = None
        if self._used and self._used + size > self._budget:
            full = self._request
            self._sequence += 1
            self._request = self._begun()
            self._used = 0
        self._used += size
        return full

    def _begun(self) -> state_pb2.SyncStateRequest:
        request = state_pb2.SyncStateRequest(sequence=self._sequence)
        self._encoder.versions(request.chunk, self._changes)
        return request

    def _check(self, what: str, size_bytes: int) -> None:
        if size_bytes > self._limit:
            raise StateTooLargeError(what, size_bytes, self._limit)
