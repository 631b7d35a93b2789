"""Write state.json: deltas in order, and the copy that a plugin has after each.

    python proto/write_vectors.py state

The expected copies come from `Copy` below, which follows the comments of StateDelta and NodeState in
common.proto, and SyncState in state.proto, without the code of host or SDK. `tests/contract/test_vectors.py`
compares the SDK's copy with it, and fails if the file is not what this script writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2, state_pb2
from vectors.writing import written

EPOCH: Final = 7
MODULUS: Final = 2**53
CLAIMS: Final = "persistentvolumeclaims"
Kind = identity_pb2.DeclaredNeed


class DriftError(Exception):
    """The error of a delta that does not fit the copy."""


class Copy:
    """The copy of an instance, in plain dictionaries."""

    def __init__(self) -> None:
        self.version: dict[str, int] | None = None
        self.nodes: dict[int, dict[str, Any]] = {}
        self.objects: dict[tuple[str, str, str], int] = {}

    def take(self, deltas: Sequence[pb.StateDelta]) -> str:
        """Apply the chunks of one delta; return "applied", "held" or "missing"."""
        full = not deltas[0].HasField("base")
        target = _version(deltas[0].target)
        if self.version == target and not full:
            return "held"
        if not full and self.version != _version(deltas[0].base):
            return "missing"
        fresh = Copy() if full else self
        try:
            fresh.apply(deltas)
        except DriftError:
            if not full:
                self.version = None  # the copy is partly changed: only a full state can replace it
            return "missing"
        self.nodes, self.objects, self.version = fresh.nodes, fresh.objects, target
        return "applied"

    def apply(self, deltas: Sequence[pb.StateDelta]) -> None:
        """Change the copy. Raises DriftError if the counts or the sum differ afterwards."""
        for delta in deltas:
            for index in delta.removed:
                self.nodes.pop(index, None)
        seen: set[int] = set()
        for delta in deltas:
            for state in delta.upserts:
                self._put_node(state, is_continued=state.index in seen)
                seen.add(state.index)
            for item in delta.objects:
                key = (item.resource, item.ref.namespace, item.ref.name)
                if item.removed:
                    self.objects.pop(key, None)
                else:
                    self.objects[key] = item.generation
        last = deltas[-1]
        if (last.node_count, last.object_count, last.generation_sum) != self.digests():
            raise DriftError

    def _put_node(self, state: pb.NodeState, *, is_continued: bool) -> None:
        node = self.nodes.get(state.index)
        if node is None:
            if not state.name:
                raise DriftError
            empty: dict[str, Any] = {"allocatable": {}, "labels": {}, "requested": {}}
            node = {"index": state.index, "name": state.name, **empty, "pod_count": 0, "pods": []}
            self.nodes[state.index] = node
        node["generation"] = state.generation
        if state.HasField("summary"):
            node["allocatable"] = dict(sorted(state.summary.allocatable.items()))
            node["labels"] = dict(sorted(state.summary.labels.items()))
        if state.HasField("usage"):
            node["requested"] = dict(sorted(state.usage.requested.items()))
            node["pod_count"] = state.usage.pod_count
        sent = [entry.pod.ref.uid for entry in state.pods]
        leave = {*sent, *state.removed_pod_uids}
        held = [] if state.pods_complete and not is_continued else node["pods"]
        # A pod that is not listed keeps its place; the listed pods take the free places, in their order.
        coming = iter(sent)
        here = [uid if uid not in leave else next(coming, None) for uid in held]
        node["pods"] = [uid for uid in here if uid is not None] + list(coming)

    def digests(self) -> tuple[int, int, int]:
        """Return node_count, object_count and generation_sum."""
        generations = [node["generation"] for node in self.nodes.values()] + list(self.objects.values())
        return len(self.nodes), len(self.objects), sum(generations) % MODULUS

    def document(self) -> dict[str, Any] | None:
        """Return the copy as the vectors hold it; None: no version, so nothing may be read."""
        if self.version is None:
            return None
        node_count, object_count, generation_sum = self.digests()
        keys = ("index", "name", "generation", "allocatable", "labels", "requested", "pod_count", "pods")
        return {
            "version": self.version,
            "node_count": node_count,
            "object_count": object_count,
            "generation_sum": generation_sum,
            "nodes": [{key: node[key] for key in keys} for _, node in sorted(self.nodes.items())],
            "objects": [
                {"resource": key[0], "namespace": key[1], "name": key[2], "generation": generation}
                for key, generation in sorted(self.objects.items())
            ],
        }


def document() -> dict[str, Any]:
    """Return the content of state.json."""
    return {"source": "common.proto and state.proto; written by proto/write_vectors.py", "cases": _cases()}


def _cases() -> list[dict[str, Any]]:
    full, step = _full(), _step()
    removal = _delta(6, 7, _node(2, 7, "n2", cpu=1000), removed=[0], sums=(2, 0, 5 + 7))
    rows: list[tuple[str, list[pb.StateDelta | list[state_pb2.SyncStateRequest]]]] = [
        ("a full state, then a delta", [full, step]),
        ("a delta that comes twice is applied once", [full, step, step]),
        ("a node goes, another one comes", [full, step, removal]),
        ("a delta without a copy: missing", [step]),
        ("a delta on another base changes nothing", [full, _delta(4, 6, sums=(2, 0, 7)), step]),
        ("another epoch is another version", [full, _delta(5, 6, _node(0, 6), sums=(2, 0, 11), epoch=8)]),
        ("a full state of another epoch replaces everything", [full, _new_epoch()]),
        ("a lost delta: missing, then the full state", [full, removal, _full_of_seven()]),
        ("node_count differs", [full, _delta(5, 6, _node(0, 6), sums=(3, 0, 11)), full]),
        ("generation_sum differs", [full, _delta(5, 6, _node(0, 6), sums=(2, 0, 12)), full]),
        ("object_count differs", [full, _delta(5, 6, _node(0, 6), sums=(2, 1, 11)), full]),
        ("an index that was never named", [full, _delta(5, 6, _node(9, 6), sums=(3, 0, 13)), full]),
        ("the sum is taken modulo 2^53", [_large_sum()]),
        ("the empty snapshot", [_delta(None, 1, sums=(0, 0, 0))]),
        ("a freed index is used again", [full, step, removal, _reused()]),
        ("a full state in a call replaces a copy at the same version", [full, _full_again()]),
        ("a summary leaves the usage, and the usage the summary", _parts()),
        ("pods: order, removal, replacement", _pods()),
        ("objects of a declared resource", _objects()),
        ("a full state drops the objects that it lacks", _objects_of_full_states()),
        ("SyncState drops the objects that a full state lacks", _objects_of_full_streams()),
        ("SyncState in three chunks", [_chunks()]),
        ("SyncState with one node in several pieces", [_pieces()]),
        ("SyncState with a delta", [full, _sync(step)]),
        ("SyncState with a delta on another base: need_full", [full, _sync(removal)]),
        ("SyncState with wrong sums: need_full", [full, _sync(_delta(None, 9, _node(0, 9, "x")))]),
        ("a full SyncState replaces a copy at the same version", [full, _sync(full)]),
    ]
    return [{"name": name, "steps": _steps(steps)} for name, steps in rows]


def _steps(steps: Sequence[pb.StateDelta | list[state_pb2.SyncStateRequest]]) -> list[dict[str, Any]]:
    copy, found = Copy(), []
    for step in steps:
        if isinstance(step, pb.StateDelta):
            outcome = copy.take([step])
            row: dict[str, Any] = {"in": "call", "delta": written(step)}
        else:
            outcome = copy.take([request.chunk for request in step])
            answer = state_pb2.SyncStateResponse(need_full=outcome == "missing")
            if copy.version is not None:
                answer.have.CopyFrom(pb.StateVersion(**copy.version))
            row = {"in": "sync", "chunks": [written(item) for item in step], "answer": written(answer)}
        found.append({**row, "outcome": outcome, "copy": copy.document()})
    return found


# --- the deltas -------------------------------------------------------------------------------------


def _version(message: pb.StateVersion) -> dict[str, int]:
    return {"epoch": message.epoch, "generation": message.generation}


def _delta(
    base: int | None,
    target: int,
    *upserts: pb.NodeState,
    sums: tuple[int, int, int] = (0, 0, 0),
    epoch: int = EPOCH,
    removed: Sequence[int] = (),
    objects: Sequence[pb.ObjectState] = (),
) -> pb.StateDelta:
    """Return a delta. `sums`: node_count, object_count, generation_sum."""
    made = pb.StateDelta(
        target=pb.StateVersion(epoch=epoch, generation=target),
        upserts=upserts,
        removed=removed,
        objects=objects,
        node_count=sums[0],
        object_count=sums[1],
        generation_sum=sums[2],
    )
    if base is not None:
        made.base.CopyFrom(pb.StateVersion(epoch=epoch, generation=base))
    return made


def _node(
    index: int, generation: int, name: str = "", *, cpu: int | None = None, used: int | None = None
) -> pb.NodeState:
    made = pb.NodeState(index=index, generation=generation, name=name)
    if cpu is not None:
        made.summary.CopyFrom(
            pb.NodeSummary(allocatable={"cpu": cpu, "memory": 2**34, "pods": 110}, labels={"zone": "a"})
        )
    if used is not None:
        made.usage.CopyFrom(
            pb.NodeUsage(requested={"cpu": used}, non_zero_requested={"cpu": used}, pod_count=1)
        )
    return made


def _full() -> pb.StateDelta:
    return _delta(None, 5, _node(0, 2, "n0", cpu=4000, used=0), _node(1, 5, "n1", cpu=8000), sums=(2, 0, 7))


def _step() -> pb.StateDelta:
    return _delta(5, 6, _node(0, 6, used=300), sums=(2, 0, 11))


def _new_epoch() -> pb.StateDelta:
    return _delta(None, 1, _node(0, 1, "other", cpu=1000), sums=(1, 0, 1), epoch=8)


def _full_of_seven() -> pb.StateDelta:
    return _delta(None, 7, _node(1, 5, "n1", cpu=8000), _node(2, 7, "n2", cpu=1000), sums=(2, 0, 12))


def _reused() -> pb.StateDelta:
    return _delta(7, 8, _node(0, 8, "n3", cpu=500), sums=(3, 0, 5 + 7 + 8))


def _full_again() -> pb.StateDelta:
    return _delta(None, 5, _node(1, 4, "n1", cpu=2000), sums=(1, 0, 4))


def _parts() -> list[pb.StateDelta | list[state_pb2.SyncStateRequest]]:
    """Return deltas that bring one part of a node each: what is unset stays, what is set and empty is 0."""
    no_summary = pb.NodeState(index=0, generation=4, summary=pb.NodeSummary())
    no_usage = pb.NodeState(index=0, generation=5, usage=pb.NodeUsage())
    return [
        _delta(None, 1, _node(0, 1, "n0", cpu=4000, used=300), sums=(1, 0, 1)),
        _delta(1, 2, _node(0, 2, cpu=6000), sums=(1, 0, 2)),
        _delta(2, 3, _node(0, 3), sums=(1, 0, 3)),
        _delta(3, 4, no_summary, sums=(1, 0, 4)),
        _delta(4, 5, no_usage, sums=(1, 0, 5)),
    ]


def _large_sum() -> pb.StateDelta:
    large = MODULUS - 1
    return _delta(
        None, large, _node(0, large, "n0", cpu=1), _node(1, large - 1, "n1", cpu=1), sums=(2, 0, MODULUS - 3)
    )


def _pod(uid: str, cpu: int = 100) -> pb.PodState:
    ref = pb.ObjectRef(namespace="default", name=uid, uid=uid)
    return pb.PodState(pod=pb.PodSummary(ref=ref, requests={"cpu": cpu}))


def _with_pods(
    node: pb.NodeState, *uids: str, gone: Sequence[str] = (), complete: bool = False
) -> pb.NodeState:
    node.pods.extend(_pod(uid) for uid in uids)
    node.removed_pod_uids.extend(gone)
    node.pods_complete = complete
    return node


def _pods() -> list[pb.StateDelta | list[state_pb2.SyncStateRequest]]:
    return [
        _delta(None, 1, _with_pods(_node(0, 1, "n0", cpu=4000), "a", "b", "c"), sums=(1, 0, 1)),
        _delta(1, 2, _with_pods(_node(0, 2), "d"), sums=(1, 0, 2)),
        _delta(2, 3, _with_pods(_node(0, 3), "d", gone=["b"]), sums=(1, 0, 3)),
        _delta(3, 4, _with_pods(_node(0, 4), "e", "a"), sums=(1, 0, 4)),
        _delta(4, 5, _with_pods(_node(0, 5), "f", "d", complete=True), sums=(1, 0, 5)),
        _delta(5, 6, _with_pods(_node(0, 6), complete=True), sums=(1, 0, 6)),
    ]


def _object(name: str, generation: int, *, removed: bool = False) -> pb.ObjectState:
    made = pb.ObjectState(
        resource=CLAIMS,
        generation=generation,
        ref=pb.ObjectRef(namespace="default", name=name, uid=f"uid-{name}"),
        removed=removed,
    )
    if not removed:
        raw = b'{"metadata":{"namespace":"default","name":"%s"}}' % name.encode()
        made.object.CopyFrom(pb.KubeObject(api_version="v1", kind="PersistentVolumeClaim", raw=raw))
    return made


def _objects() -> list[pb.StateDelta | list[state_pb2.SyncStateRequest]]:
    both = [_object("x", 2), _object("y", 3)]
    return [
        _delta(None, 3, _node(0, 1, "n0", cpu=1), sums=(1, 2, 6), objects=both),
        _delta(3, 4, sums=(1, 2, 8), objects=[_object("x", 4)]),
        _delta(4, 5, sums=(1, 1, 5), objects=[_object("y", 5, removed=True)]),
    ]


def _objects_of_full_states() -> list[pb.StateDelta | list[state_pb2.SyncStateRequest]]:
    node = _node(0, 1, "n0", cpu=1)
    return [
        _delta(None, 3, node, sums=(1, 2, 6), objects=[_object("x", 2), _object("y", 3)]),
        _delta(None, 4, node, sums=(1, 2, 8), objects=[_object("y", 3), _object("z", 4)]),
        _delta(4, 5, sums=(1, 2, 9), objects=[_object("y", 5, removed=True), _object("x", 4)]),
        _delta(None, 6, node, sums=(1, 0, 1)),
    ]


def _objects_of_full_streams() -> list[pb.StateDelta | list[state_pb2.SyncStateRequest]]:
    node = _node(0, 1, "n0", cpu=1)
    first = [
        _delta(None, 3, node, objects=[_object("x", 2)]),
        _delta(None, 3, sums=(1, 2, 6), objects=[_object("y", 3)]),
    ]
    second = [
        _delta(None, 4, objects=[_object("z", 4)]),
        _delta(None, 4, node, sums=(1, 1, 5)),
    ]
    return [_sync(*first), _sync(*second), _sync(_delta(None, 5, node, sums=(1, 0, 1)))]


def _sync(*deltas: pb.StateDelta) -> list[state_pb2.SyncStateRequest]:
    return [
        state_pb2.SyncStateRequest(chunk=delta, sequence=i, last=i == len(deltas) - 1, attachment_id="a-1")
        for i, delta in enumerate(deltas)
    ]


def _chunks() -> list[state_pb2.SyncStateRequest]:
    return _sync(
        _delta(None, 3, _node(0, 1, "n0", cpu=1000)),
        _delta(None, 3, _node(1, 2, "n1", cpu=2000)),
        _delta(None, 3, _node(2, 3, "n2", cpu=3000), sums=(3, 0, 6)),
    )


def _pieces() -> list[state_pb2.SyncStateRequest]:
    return _sync(
        _delta(None, 2, _with_pods(_node(0, 2, "n0", cpu=1000), "a", "b", complete=True)),
        _delta(None, 2, _with_pods(_node(0, 2), "c", complete=True)),
        _delta(None, 2, _with_pods(_node(0, 2), "d", complete=True), _node(1, 1, "n1"), sums=(2, 0, 3)),
    )
