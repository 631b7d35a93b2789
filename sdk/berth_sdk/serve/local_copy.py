"""The copy of the snapshot that the server's threads share: `StateCopy` behind a lock.

The host changes it only between scheduling cycles. But calls of the binding cycle read objects at any time,
from their own threads.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterable

import grpc

from berth_sdk.errors import HandleError
from berth_sdk.handle import ObjectReader
from berth_sdk.kube_object import KubeObject
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.runtime.declared import NO_SNAPSHOT
from berth_sdk.serve.calls import CallRefusedError
from berth_sdk.serve.state_copy import SequenceError, StateCopy
from berth_sdk.tables import NodeTable, StateVersion


class LocalCopy:
    """One copy per process: the union of its plugins' needs."""

    def __init__(self, needs: Iterable[Need]) -> None:
        self._lock = threading.Lock()
        self._copy = StateCopy(needs)

    @property
    def version(self) -> StateVersion | None:
        """The version held; None: no version."""
        return self._copy.version

    def bring_to(self, delta: pb.StateDelta | None) -> StateVersion | None:
        """Apply the state that a call carries; returns the version held then."""
        if delta is not None:
            with self._lock:
                self._copy.apply(delta)
        return self._copy.version

    def synchronise(self, chunks: Iterable[state_pb2.SyncStateRequest]) -> state_pb2.SyncStateResponse:
        """Take a stream of chunks, all or nothing. Raises CallRefusedError for chunks that do not fit."""
        stream = self._copy.begin_sync()
        try:
            for chunk in chunks:
                with self._lock:
                    stream.add(chunk)
        except SequenceError as err:
            raise CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(err)) from err
        return stream.response()

    def nodes(self) -> NodeTable:
        """Every node of the version held. Raises HandleError before the first synchronisation."""
        if self._copy.version is None:
            raise HandleError(NO_SNAPSHOT)
        return self._copy.nodes

    def objects(self, resource: str) -> ObjectReader:
        """The objects of a declared resource, as they are at each read."""
        return _LockedReader(self._copy.objects(resource), self._lock)


class _LockedReader:
    """A reader that never meets a delta half way."""

    def __init__(self, reader: ObjectReader, lock: threading.Lock) -> None:
        self._reader = reader
        self._lock = lock

    @property
    def version(self) -> int:
        """Moves with any change of the objects."""
        with self._lock:
            return self._reader.version

    def get(self, name: str, namespace: str = "") -> KubeObject | None:
        """One object, or None."""
        with self._lock:
            return self._reader.get(name, namespace)

    def moved_since(self, version: int) -> builtins.list[tuple[str, str]] | None:
        """The changes after `version`; None: everything may have changed."""
        with self._lock:
            return self._reader.moved_since(version)

    def list(self, namespace: str | None = None) -> builtins.list[KubeObject]:
        """All objects, or one namespace's, by key."""
        with self._lock:
            return self._reader.list(namespace)
