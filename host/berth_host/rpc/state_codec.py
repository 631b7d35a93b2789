"""The changes of the snapshot -> `StateDelta` of a call, or the chunks of `SyncState`.

The transport uses it for the first call of a cycle, the attachment while it syncs. Each instance has an
encoder of its own, which sends the union of what the instance's plugins declared, and nothing else.
Source: the contract's common.proto (StateDelta, NodeState) and state.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import orjson
from berth_sdk.kube_object import KubeObject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod
from berth_sdk.selection import Prefixes, StateSelection
from berth_sdk.tables import StateVersion
from berth_sdk.wire import records as wire

from berth_host.model.state_changes import NodeChange, ObjectChange, StateChanges
from berth_host.rpc.state_chunks import ChunkWriter, StateTooLargeError

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
        """The changes since `base` (None: all there is); None: unknown, the holder needs everything."""
        ...


class StateEncoder:
    """`selection`: what the instance's plugins declared. The encoder keeps nothing between two calls."""

    __slots__ = ("_selection",)

    def __init__(self, selection: StateSelection) -> None:
        self._selection = selection

    @property
    def selection(self) -> StateSelection:
        """The parts of the state that are sent."""
        return self._selection

    def delta(self, changes: StateChanges) -> pb.StateDelta:
        """All changes in one message, for a call if `fits_in_call` says so."""
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
        """The same as a stream of messages, each below the limit and made when it is asked for.

        None comes between two pieces of the work. Raises StateTooLargeError for a single piece that no
        chunk can hold.
        """
        return ChunkWriter(self, changes, max_message_bytes).steps()

    # --- pieces --------------------------------------------------------------------------------

    def versions(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Base and target."""
        delta.target.epoch, delta.target.generation = changes.target
        if changes.base is not None:
            delta.base.epoch, delta.base.generation = changes.base

    def digests(self, delta: pb.StateDelta, changes: StateChanges) -> None:
        """Counts and sum."""
        delta.node_count = changes.node_count
        delta.object_count = changes.object_count
        delta.generation_sum = changes.generation_sum

    def bare_node(self, change: NodeChange) -> pb.NodeState:
        """A node without its pods."""
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
        """A pod on a node."""
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
        """An object of another kind."""
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
    """Whether the delta travels with a call; otherwise it travels by SyncState."""
    return len(changes.nodes) <= MAX_DELTA_NODES and delta.ByteSize() <= MAX_DELTA_BYTES


def _kept(values: Mapping[str, str], prefixes: Prefixes) -> Mapping[str, str]:
    if prefixes is None:
        return values
    return {key: value for key, value in values.items() if key.startswith(prefixes)}


def _object(item: KubeObject, dropped: tuple[str, ...]) -> pb.KubeObject:
    if not dropped:
        return wire.encode_object(item)
    # Not `item.parsed`, which would keep the parsed form in memory.
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
