"""`StateCopy`: a served plugin's copy of the host's snapshot, kept up to date by deltas.

The SDK's server applies the state from calls and SyncState, and plugins read the tables. One caller at a time
writes, between cycles. Source: the contract's common.proto (StateDelta) and state.proto.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import grpc

from berth_sdk.errors import BerthError, HandleError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need, NeedKind
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.pod import Pod
from berth_sdk.runtime.declared import NO_SNAPSHOT
from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.tables import NodeColumns, NodeTable, ObjectStore, PodTable, StateVersion
from berth_sdk.wire import records as wire

_MODULUS: Final = 2**53


class Taken(Enum):
    """The outcome of a delta."""

    APPLIED = "applied"
    """The copy was at the base, and is now at the target."""
    HELD = "held"
    """The copy was at the target already: nothing to do."""
    MISSING_STATE = "missing_state"
    """The copy was at another version, or the counts or the sum differ: no call may use the copy."""


class SequenceError(BerthError):
    """The error of a stream with inconsistent chunks, which is an error of the host."""


class _DriftError(Exception):
    """The error of a delta that does not fit the copy, although the copy was at the delta's base."""


class StateCopy:
    """A copy of the host's snapshot. `needs`: the declared needs of all plugins of this process.

    `version`: of the copy; None: there is no copy, or the copy is invalid.
    """

    def __init__(self, needs: Iterable[Need] = ()) -> None:
        self.shape = _Shape.of(needs)
        self._held = _Held(self.shape)
        self.version: StateVersion | None = None

    def select(self, needs: Iterable[Need]) -> None:
        """Hold what `needs` declare from now on. If that is another selection, the copy becomes invalid."""
        shape = _Shape.of(needs)
        if shape != self.shape:
            self.shape, self._held, self.version = shape, _Held(shape), None

    @property
    def nodes(self) -> NodeTable:
        """All nodes of the copy."""
        return NodeTable.of(self._held.columns)

    def objects(self, resource: str) -> ObjectView:
        """Return the objects of a declared resource, always of the copy's version. Raises KeyError."""
        if resource not in self.shape.resources:
            raise KeyError(resource)
        return ObjectView(self, resource)

    def store(self, resource: str) -> ObjectStore:
        """Return the store of a declared resource."""
        return self._held.objects[resource]

    # --- from calls ----------------------------------------------------------------------------

    def accept(self, context: pb.CallContext) -> bool:
        """Apply the delta of a call, if any; return False if the copy is not at the call's version.

        The reply then is MISSING_STATE.
        """
        if context.HasField("delta"):
            self.apply(context.delta)
        if not context.HasField("version"):
            return True
        return self.version == wire.decode_version(context.version)

    def apply(self, delta: pb.StateDelta) -> Taken:
        """Apply one delta, by the three cases of StateDelta.

        A delta without a base is the full state. It replaces the copy, also one at the same version.
        Removes some fields from the summaries of the delta's pods.
        """
        target = wire.decode_version(delta.target)
        if not delta.HasField("base"):
            return self._switch(_Held(self.shape), [delta], target)
        if self.version == target:
            return Taken.HELD
        base = delta.base
        if self.version != (base.epoch, base.generation):
            return Taken.MISSING_STATE
        return self._switch(self._held, [delta], target)

    # --- from SyncState ------------------------------------------------------------------------

    def begin_sync(self) -> SyncStream:
        """Return a new stream of chunks."""
        return SyncStream(self)

    def _apply_chunks(self, chunks: builtins.list[pb.StateDelta]) -> Taken:
        target = wire.decode_version(chunks[-1].target)
        if not chunks[0].HasField("base"):
            return self._switch(_Held(self.shape), chunks, target)
        if self.version == target:
            return Taken.HELD
        if self.version is None or self.version != wire.decode_version(chunks[0].base):
            return Taken.MISSING_STATE
        return self._switch(self._held, chunks, target)

    def _switch(self, held: _Held, chunks: builtins.list[pb.StateDelta], target: StateVersion) -> Taken:
        try:
            held.apply(chunks)
        except _DriftError:
            # The state is partly changed, so only a full state can replace it.
            if held is self._held:
                self.version = None
            return Taken.MISSING_STATE
        self._held = held
        self.version = target
        return Taken.APPLIED


class SyncStream:
    """The chunks of one SyncState call, which are kept until the chunk with `last`."""

    def __init__(self, copy: StateCopy) -> None:
        self._copy = copy
        self._chunks: list[pb.StateDelta] = []
        self._outcome: Taken | None = None

    def add(self, request: state_pb2.SyncStateRequest) -> None:
        """Add a chunk. The last chunk brings the copy to the target. Raises SequenceError."""
        if self._outcome is not None:
            raise SequenceError("a chunk came after the last one")
        if request.sequence != len(self._chunks):
            raise SequenceError(f"chunk {request.sequence} came where {len(self._chunks)} was due")
        if self._chunks and _ends_of(request.chunk) != _ends_of(self._chunks[0]):
            raise SequenceError(f"chunk {request.sequence} is of another delta than the first")
        self._chunks.append(request.chunk)
        if request.last:
            self._outcome = self._copy._apply_chunks(self._chunks)
            self._chunks = []

    def response(self) -> state_pb2.SyncStateResponse:
        """Return the copy's version. A stream without a last chunk has changed nothing."""
        response = state_pb2.SyncStateResponse(need_full=self._outcome is Taken.MISSING_STATE)
        if self._copy.version is not None:
            response.have.CopyFrom(wire.encode_version(self._copy.version))
        return response


def _ends_of(chunk: pb.StateDelta) -> tuple[bool, pb.StateVersion, pb.StateVersion]:
    """Return the versions before and after a delta; an unset base is another one than an empty one."""
    return chunk.HasField("base"), chunk.base, chunk.target


class ObjectView:
    """A `handle.ObjectReader` over the version that the copy has at each call."""

    __slots__ = ("_copy", "_resource")

    def __init__(self, copy: StateCopy, resource: str) -> None:
        self._copy = copy
        self._resource = resource

    @property
    def version(self) -> int:
        """A number that grows with any change of the objects."""
        return self._copy.store(self._resource).version

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """Return one object, or None."""
        return self._copy.store(self._resource).get(name, namespace)

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """Return the changed objects since `version`; None: unknown, or the copy was replaced."""
        return self._copy.store(self._resource).moved_since(version)

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """Return all objects, or those of one namespace, by namespace and name."""
        return self._copy.store(self._resource).list(namespace)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parts that a copy has."""

    pods: bool
    summaries: bool
    resources: frozenset[str]

    @classmethod
    def of(cls, needs: Iterable[Need]) -> _Shape:
        """Return the parts that plugins declared."""
        needs = tuple(needs)
        kinds = {need.kind for need in needs}
        return cls(
            pods=bool(kinds & {NeedKind.POD_SUMMARY, NeedKind.POD_OBJECT}),
            summaries=NeedKind.NODE_SUMMARY in kinds,
            resources=frozenset(need.resource for need in needs if need.kind is NeedKind.OBJECT),
        )


class _Held:
    """The tables and stores of a copy, which are changed in place."""

    __slots__ = ("_shape", "columns", "objects", "pods")

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        self.columns = NodeColumns()
        self.pods = PodTable() if shape.pods else None
        self.columns.pods = self.pods
        self.objects = {resource: ObjectStore() for resource in shape.resources}

    def apply(self, chunks: builtins.list[pb.StateDelta]) -> None:
        """Apply the chunks of one delta. Raises _DriftError if the delta or its digests do not fit."""
        self.columns.begin_update()
        for chunk in chunks:
            if chunk.removed:
                self._remove_nodes(chunk.removed)
        for node in _joined(chunks):
            self._put_node(node)
        for chunk in chunks:
            if chunk.objects:
                for item in chunk.objects:
                    self._put_object(item)
        last = chunks[-1]
        if self._digests() != (last.node_count, last.object_count, last.generation_sum):
            raise _DriftError

    def _digests(self) -> tuple[int, int, int]:
        count, total = 0, self.columns.generation_sum
        for store in self.objects.values():
            count += len(store)
            total += store.generation_sum
        return len(self.columns.index_of), count, total % _MODULUS

    # --- nodes -------------------------------------------------------------------------------

    def _remove_nodes(self, slots: Iterable[int]) -> None:
        for slot in slots:
            if slot < self.columns.capacity:
                self.columns.remove(slot)

    def _put_node(self, state: pb.NodeState) -> None:
        columns, slot, name = self.columns, state.index, state.name
        old = columns.nodes[slot] if slot < columns.capacity else None
        if old is None and not name:
            raise _DriftError  # an index that was never introduced
        if old is not None and name and name != old.name:
            raise _DriftError  # an index given away before its removal was sent
        if old is not None and not state.HasField("summary") and not state.HasField("object"):
            node = old
        else:
            node = self._node(old, state)
        if old is None:
            if node.name in columns.index_of:
                raise _DriftError
            columns.add(node, slot)
        elif node is not old:
            columns.set_node(slot, node)
        usage = wire.decode_usage(state.usage) if state.HasField("usage") else None
        if self.pods is not None:
            self._put_pods(self.pods, node.name, state)
        columns.touch(slot, state.generation, usage)

    def _node(self, old: Node | None, state: pb.NodeState) -> Node:
        item = wire.decode_object(state.object) if state.HasField("object") else None
        name = old.name if old else state.name
        if state.HasField("summary"):
            known = item if item is not None or old is None else old.object
            return wire.decode_node(name, state.summary, item=known)
        if item is not None:
            if not self._shape.summaries:
                return Node.from_object(item)
            return replace(old or Node(name=name), object=item)
        return old or Node(name=name)

    def _put_pods(self, table: PodTable, node_name: str, state: pb.NodeState) -> None:
        entries, removed, complete = state.pods, state.removed_pod_uids, state.pods_complete
        if not (entries or removed or complete):
            return
        index = state.index
        sent: list[Pod] = []
        leave = set(removed)
        assumed: set[str] = set()
        for entry in entries:
            item = wire.decode_object(entry.object) if entry.HasField("object") else None
            pod = wire.take_pod(entry.pod, node_name=node_name, item=item)
            sent.append(pod)
            leave.add(pod.uid)
            if entry.assumed:
                assumed.add(pod.uid)
        held: Sequence[Pod] = () if complete else table.pods_of(index)
        # Pods that are not sent keep their places, and sent pods take the free places. So the order is the
        # same as in the host.
        coming = iter(sent)
        here: list[Pod] = []
        for pod in held:
            if pod.uid not in leave:
                here.append(pod)
                if table.is_assumed(pod.uid):
                    assumed.add(pod.uid)
            elif (arrived := next(coming, None)) is not None:
                here.append(arrived)
        here.extend(coming)
        table.set_node_pods(index, here, assumed, state.generation)

    # --- objects -----------------------------------------------------------------------------

    def _put_object(self, state: pb.ObjectState) -> None:
        store = self.objects.get(state.resource)
        if store is None:
            raise _DriftError
        ref = wire.decode_ref(state.ref)
        if state.removed:
            store.remove(ref.namespace, ref.name, state.generation)
        else:
            store.put(ref, wire.decode_object(state.object), state.generation)


def _joined(chunks: Iterable[pb.StateDelta]) -> Iterator[pb.NodeState]:
    """Yield the nodes of the chunks, each as a whole.

    A node with too many pods for one chunk comes in consecutive pieces. The places of its pods are known only
    with all pieces.
    """
    node: pb.NodeState | None = None
    index = -1
    for chunk in chunks:
        for state in chunk.upserts:
            if state.index == index and node is not None:
                pieces, node = node, pb.NodeState()
                node.CopyFrom(pieces)
                node.MergeFrom(state)
                continue
            if node is not None:
                yield node
            node, index = state, state.index
    if node is not None:
        yield node


class LocalCopy:
    """The copy that the threads of a server share: a `StateCopy` with a lock, one per process.

    The host changes the copy only between scheduling cycles, but calls of the binding cycle read objects at
    any time, from their own threads.
    """

    def __init__(self, needs: Iterable[Need]) -> None:
        self._lock = threading.Lock()
        self._copy = StateCopy(needs)

    def select(self, needs: Iterable[Need]) -> None:
        """Hold what `needs` declare from now on; see `StateCopy.select`."""
        with self._lock:
            self._copy.select(needs)

    @property
    def version(self) -> StateVersion | None:
        """The version of the copy; None: no version."""
        return self._copy.version

    def bring_to(self, delta: pb.StateDelta | None) -> StateVersion | None:
        """Apply the delta of a call, if any; return the version of the copy afterwards."""
        if delta is not None:
            with self._lock:
                self._copy.apply(delta)
        return self._copy.version

    def synchronise(self, chunks: Iterable[state_pb2.SyncStateRequest]) -> state_pb2.SyncStateResponse:
        """Apply a stream of chunks, as a whole. Raises CallRefusedError for inconsistent chunks."""
        stream = self._copy.begin_sync()
        try:
            for chunk in chunks:
                with self._lock:
                    stream.add(chunk)
        except SequenceError as err:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err
        return stream.response()

    def nodes(self) -> NodeTable:
        """Return all nodes of the copy. Raises HandleError before the first synchronisation."""
        if self._copy.version is None:
            raise HandleError(NO_SNAPSHOT)
        return self._copy.nodes

    def objects(self, resource: str) -> ObjectReader:
        """Return a reader of the objects of a declared resource, which reads the current objects."""
        return _LockedReader(self._copy.objects(resource), self._lock)


class _LockedReader:
    """A reader that never reads a partly applied delta."""

    def __init__(self, reader: ObjectReader, lock: threading.Lock) -> None:
        self._reader = reader
        self._lock = lock

    @property
    def version(self) -> int:
        """A number that grows with any change of the objects."""
        with self._lock:
            return self._reader.version

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """Return one object, or None."""
        with self._lock:
            return self._reader.get(name, namespace)

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """Return the changed objects since `version`; None: any object may have changed."""
        with self._lock:
            return self._reader.moved_since(version)

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """Return all objects, or those of one namespace, by namespace and name."""
        with self._lock:
            return self._reader.list(namespace)
