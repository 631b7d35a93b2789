"""What moved in the snapshot -> `StateDelta` of a call, or the chunks of `SyncState`.

Used by the relay for the first call of a cycle and by the attachment while it syncs. One encoder per
instance: it sends what the instance's plugins declared (the union), and nothing else.
Source: the contract's common.proto (StateDelta, NodeState) and state.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import orjson
from berth_sdk import _wire as wire
from berth_sdk.kube_object import KubeObject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod
from berth_sdk.tables import StateVersion

from berth_host.errors import HostError
from berth_host.model.state_changes import (
    NodeChange,
    ObjectChange,
    Prefixes,
    StateChanges,
    StateSelection,
)

MAX_DELTA_NODES: Final = 500
"""A delta with more nodes travels by SyncState ..."""
MAX_DELTA_BYTES: Final = 256 * 1024
"""... as does one with more bytes."""
CHUNK_BYTES: Final = 16 * 1024
"""A chunk is no larger even where the limit allows it: the loop is free again after each."""
_ENVELOPE_BYTES: Final = 192
"""Room for what surrounds the parts of a chunk: versions, digests, tags."""
_TAG_BYTES: Final = 8


class StateSource(Protocol):
    """Where changes come from: the cache's change log."""

    @property
    def version(self) -> StateVersion:
        """The snapshot's version now."""
        ...

    def changes_since(self, base: StateVersion | None, selection: StateSelection) -> StateChanges | None:
        """What a holder of `base` lacks (None: holds nothing); None: not known, it needs everything."""
        ...


class StateTooLargeError(HostError):
    """One piece of state alone exceeds the message size that was agreed. Attribute: what."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        self.what = what
        super().__init__(
            f"{what} takes {size_bytes} bytes, and a message may have {limit_bytes}:"
            " raise max_message_bytes, or drop fields in the plugin's state_needs"
        )


class StateEncoder:
    """`selection`: what the instance's plugins declared. Keeps nothing between two calls."""

    __slots__ = ("_selection",)

    def __init__(self, selection: StateSelection) -> None:
        self._selection = selection

    @property
    def selection(self) -> StateSelection:
        """What is sent."""
        return self._selection

    def delta(self, changes: StateChanges) -> pb.StateDelta:
        """All changes in one message: for a call when `fits_in_call` says so."""
        delta = pb.StateDelta()
        self._set_versions(delta, changes)
        self._set_digests(delta, changes)
        delta.removed.extend(changes.removed)
        delta.upserts.extend(self._node(change, changes) for change in changes.nodes)
        delta.objects.extend(self._object(change) for change in changes.objects)
        return delta

    def chunks(self, changes: StateChanges, max_message_bytes: int) -> Iterator[state_pb2.SyncStateRequest]:
        """The same as a stream of messages, each below the limit, made one at a time as they are asked for.

        Raises StateTooLargeError for a single object that no chunk can hold.
        """
        budget = min(max_message_bytes, CHUNK_BYTES) - _ENVELOPE_BYTES
        limit = max_message_bytes - _ENVELOPE_BYTES
        request, used = self._request(changes, 0), 0
        for part in self._parts(changes, budget, limit):
            size = part.ByteSize() + _TAG_BYTES
            # Two pieces of one node never fit together, so an index stands once in a chunk.
            if used and used + size > budget:
                yield request
                request, used = self._request(changes, request.sequence + 1), 0
            used += size
            if isinstance(part, pb.NodeState):
                request.chunk.upserts.append(part)
            elif isinstance(part, pb.ObjectState):
                request.chunk.objects.append(part)
            else:
                request.chunk.removed.extend(part.removed)
        self._set_digests(request.chunk, changes)
        request.last = True
        yield request

    # --- pieces --------------------------------------------------------------------------------

    def _parts(
        self, changes: StateChanges, budget: int, limit: int
    ) -> Iterator[pb.NodeState | pb.ObjectState | pb.StateDelta]:
        # At most five bytes per index; removals come before the upserts that may use their indices anew.
        step = max(1, budget // 6)
        for start in range(0, len(changes.removed), step):
            yield pb.StateDelta(removed=changes.removed[start : start + step])
        for node in changes.nodes:
            state = self._node(node, changes)
            if state.ByteSize() + _TAG_BYTES <= budget:
                yield state
            else:
                yield from _split(state, node.node.name, budget, limit)
        for item in changes.objects:
            piece = self._object(item)
            _check_size(f"{item.resource} {item.ref.key}", piece.ByteSize() + _TAG_BYTES, limit)
            yield piece

    def _set_versions(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        delta.target.CopyFrom(wire.encode_version(changes.target))
        if changes.base is not None:
            delta.base.CopyFrom(wire.encode_version(changes.base))

    def _set_digests(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        delta.node_count = changes.node_count
        delta.object_count = changes.object_count
        delta.generation_sum = changes.generation_sum

    def _request(self, changes: StateChanges, sequence: int) -> state_pb2.SyncStateRequest:
        request = state_pb2.SyncStateRequest(full=changes.base is None, sequence=sequence)
        self._set_versions(request.chunk, changes)
        return request

    def _node(self, change: NodeChange, changes: StateChanges) -> pb.NodeState:
        wanted = self._selection
        state = pb.NodeState(
            index=change.index,
            generation=change.generation,
            name=change.node.name if change.is_new else "",
            removed_pod_uids=change.removed_pods,
            pods_complete=change.pods_complete,
        )
        node = change.node
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
        if change.pods:
            state.pods.extend(self._pod(pod, pod.uid in changes.assumed) for pod in change.pods)
        return state

    def _pod(self, pod: Pod, assumed: bool) -> pb.PodState:
        wanted = self._selection
        state = pb.PodState(
            pod=wire.encode_pod(
                pod,
                labels=_kept(pod.labels, wanted.pod_labels),
                annotations=_kept(pod.annotations, wanted.pod_annotations),
                in_state=True,
            ),
            assumed=assumed,
        )
        if wanted.pod_object is not None and pod.object is not None:
            state.object.CopyFrom(_object(pod.object, wanted.pod_object))
        return state

    def _object(self, change: ObjectChange) -> pb.ObjectState:
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


def fits_in_call(changes: StateChanges, delta: pb.StateDelta) -> bool:
    """Whether the delta may ride on a call; else it goes by SyncState."""
    return len(changes.nodes) <= MAX_DELTA_NODES and delta.ByteSize() <= MAX_DELTA_BYTES


def _split(state: pb.NodeState, name: str, budget: int, limit: int) -> Iterator[pb.NodeState]:
    """One node in several pieces: itself without pods, then its pods, as many at a time as fit."""
    pods = list(state.pods)
    del state.pods[:]
    _check_size(f"node {name}", state.ByteSize() + _TAG_BYTES, limit)
    yield state
    piece, used = pb.NodeState(index=state.index, generation=state.generation), 2 * _TAG_BYTES
    for pod in pods:
        size = pod.ByteSize() + _TAG_BYTES
        _check_size(f"pod {pod.pod.ref.namespace}/{pod.pod.ref.name}", size + 2 * _TAG_BYTES, limit)
        if piece.pods and used + size > budget:
            yield piece
            piece, used = pb.NodeState(index=state.index, generation=state.generation), 2 * _TAG_BYTES
        piece.pods.append(pod)
        used += size
    if piece.pods:
        yield piece


def _check_size(what: str, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise StateTooLargeError(what, size_bytes, limit_bytes)


def _kept(values: Mapping[str, str], prefixes: Prefixes) -> Mapping[str, str]:
    if prefixes is None:
        return values
    return {key: value for key, value in values.items() if key.startswith(prefixes)}


def _object(item: KubeObject, dropped: tuple[str, ...]) -> pb.KubeObject:
    if not dropped:
        return wire.encode_object(item)
    # Parsed anew, not through `item.parsed`, which would keep the parsed form alive.
    parsed = orjson.loads(item.raw)
    for path in dropped:
        _drop(parsed, path.split("."))
    return wire.encode_object(KubeObject(item.api_version, item.kind, raw=orjson.dumps(parsed)))


def _drop(value: Any, path: list[str]) -> None:
    """Remove the field at `path`; a list on the way stands for each of its elements."""
    if isinstance(value, list):
        for element in value:
            _drop(element, path)
    elif isinstance(value, dict):
        if len(path) == 1:
            value.pop(path[0], None)
        elif path[0] in value:
            _drop(value[path[0]], path[1:])
