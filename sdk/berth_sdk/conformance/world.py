"""`World`: the small cluster that the kit shows to a plugin, as messages of the contract."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from berth_sdk.conformance.case import Subject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import state_pb2

MODULUS: Final = 2**53
GI: Final = 2**30
_INDICES: Final = (0, 1, 2, 3, 7, 8, 9, 17)
"""With gaps, and in three bytes of a bitmap."""


@dataclass
class WorldNode:
    """One node. `generation`: of its last change."""

    index: int
    name: str
    generation: int
    cpu_milli: int = 8000
    pods: list[str] = field(default_factory=list)


class World:
    """The nodes of one epoch, and the deltas between its versions. The copy of a plugin must follow them."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.epoch = random.randrange(1, MODULUS)
        self.generation = 0
        self.nodes: dict[int, WorldNode] = {}
        self.objects: dict[str, int] = {}
        """The generation of each object by its name. The objects are of the first declared resource."""
        for index in _INDICES:
            self.add(index, f"kit-node-{index}")
        self.put_pod(1)

    @property
    def version(self) -> pb.StateVersion:
        """The version now."""
        return pb.StateVersion(epoch=self.epoch, generation=self.generation)

    @property
    def candidates(self) -> list[WorldNode]:
        """All nodes by index."""
        return [node for _, node in sorted(self.nodes.items())]

    def add(self, index: int, name: str) -> None:
        """Add a node."""
        self.generation += 1
        self.nodes[index] = WorldNode(index, name, self.generation)

    def remove(self, index: int) -> None:
        """Remove a node."""
        self.generation += 1
        del self.nodes[index]

    def put_pod(self, index: int) -> None:
        """Put one more pod on a node."""
        self.generation += 1
        node = self.nodes[index]
        node.generation = self.generation
        node.pods.append(f"kit-resident-{index}-{len(node.pods)}")

    def drop_objects(self) -> None:
        """Remove all objects. The next full state shows it."""
        self.generation += 1
        self.objects.clear()

    # --- messages ------------------------------------------------------------------------------------

    def full(self) -> pb.StateDelta:
        """Return the full state."""
        return self._delta(None, self.candidates)

    def change(self, index: int = 0) -> pb.StateDelta:
        """Put a pod on a node, and return the delta."""
        base = self.version
        self.put_pod(index)
        return self._delta(base, [self.nodes[index]], are_new=False)

    def swap(self, index: int, name: str, new_index: int) -> pb.StateDelta:
        """Remove a node and add another one; return the delta."""
        base = self.version
        self.remove(index)
        self.add(new_index, name)
        return self._delta(base, [self.nodes[new_index]], removed=[index])

    def full_with(self, *names: str) -> pb.StateDelta:
        """Return the full state of a next version, with these objects alone."""
        self.drop_objects()
        for name in names:
            self.generation += 1
            self.objects[name] = self.generation
        made = self.full()
        made.objects.extend(self._object(name) for name in names)
        return made

    def change_objects(self, *, added: str, removed: str = "") -> pb.StateDelta:
        """Add or change an object, and remove another one; return the delta."""
        base = self.version
        self.generation += 1
        self.objects[added] = self.generation
        made = [self._object(added)]
        if removed:
            made.append(self._object(removed))
            made[-1].ClearField("object")
            made[-1].removed = True
            del self.objects[removed]
        delta = self._delta(base, [])
        delta.objects.extend(made)
        return delta

    def _object(self, name: str) -> pb.ObjectState:
        resources = [need.resource for need in self.subject.plugin.needs if need.resource]
        metadata = {"namespace": "default", "name": name, "uid": f"uid-kit-{name}"}
        raw = json.dumps({"apiVersion": "v1", "kind": "KitObject", "metadata": metadata, "spec": {}}).encode()
        return pb.ObjectState(
            resource=resources[0],
            generation=self.objects[name],
            ref=pb.ObjectRef(namespace="default", name=name, uid=f"uid-kit-{name}"),
            object=pb.KubeObject(api_version="v1", kind="KitObject", raw=raw),
        )

    def chunks(self, size: int) -> list[pb.StateDelta]:
        """Return the full state in chunks of `size` nodes."""
        whole = self.full()
        made = []
        for start in range(0, len(whole.upserts), size):
            is_last = start + size >= len(whole.upserts)
            chunk = pb.StateDelta(target=whole.target, upserts=whole.upserts[start : start + size])
            if is_last:
                chunk.node_count, chunk.generation_sum = whole.node_count, whole.generation_sum
            made.append(chunk)
        return made

    def _delta(
        self,
        base: pb.StateVersion | None,
        nodes: Iterable[WorldNode],
        *,
        are_new: bool = True,
        removed: Sequence[int] = (),
    ) -> pb.StateDelta:
        return pb.StateDelta(
            base=base,
            target=self.version,
            upserts=[self._state(node, is_new=are_new) for node in nodes],
            removed=removed,
            node_count=len(self.nodes),
            object_count=len(self.objects),
            generation_sum=sum([*(node.generation for node in self.nodes.values()), *self.objects.values()])
            % MODULUS,
        )

    def _state(self, node: WorldNode, *, is_new: bool) -> pb.NodeState:
        kinds, need = self.subject.kinds, identity.DeclaredNeed
        made = pb.NodeState(index=node.index, generation=node.generation, name=node.name if is_new else "")
        if need.KIND_NODE_SUMMARY in kinds:
            if is_new:
                made.summary.CopyFrom(self.summary(node))
            made.usage.CopyFrom(usage(len(node.pods)))
        if need.KIND_NODE_OBJECT in kinds and is_new:
            made.object.CopyFrom(node_object(node))
        if kinds & {need.KIND_POD_SUMMARY, need.KIND_POD_OBJECT}:
            for uid in node.pods:
                made.pods.append(self._resident(uid))
            made.pods_complete = True
        return made

    def summary(self, node: WorldNode) -> pb.NodeSummary:
        """Return what the plugin's needs show of a node."""
        prefixes = [
            prefix
            for need in self.subject.plugin.needs
            if need.kind == identity.DeclaredNeed.KIND_NODE_SUMMARY
            for prefix in need.label_prefixes
        ]
        labels = {key: value for key, value in node_labels(node).items() if key.startswith(tuple(prefixes))}
        return pb.NodeSummary(labels=labels, allocatable=_allocatable(node))

    def _resident(self, uid: str) -> pb.PodState:
        made = pb.PodState(pod=resident(uid))
        if identity.DeclaredNeed.KIND_POD_OBJECT in self.subject.kinds:
            made.object.CopyFrom(pod_object(made.pod, "resident"))
        return made


def usage(pods: int) -> pb.NodeUsage:
    """Return the usage of a node with that many pods of the kit."""
    amounts = {"cpu": 100 * pods, "memory": GI * pods} if pods else {}
    return pb.NodeUsage(requested=amounts, non_zero_requested=amounts, pod_count=pods)


def resident(uid: str) -> pb.PodSummary:
    """Return a pod that runs on a node."""
    amounts = {"cpu": 100, "memory": GI}
    ref = pb.ObjectRef(namespace="default", name=uid, uid=uid)
    return pb.PodSummary(ref=ref, requests=amounts, non_zero_requests=amounts)


def incoming(name: str, like: pb.PodSummary | None = None) -> pb.PodSummary:
    """Return a pod to schedule, complete. `like`: everything but its name is as in this one."""
    made = pb.PodSummary()
    if like is None:
        amounts = {"cpu": 100, "memory": GI}
        made.MergeFrom(
            pb.PodSummary(
                labels={"app": "kit"},
                requests=amounts,
                non_zero_requests=amounts,
                priority=100,
                scheduler_name="default-scheduler",
            )
        )
        made.created_at.FromSeconds(1_763_638_000)
    else:
        made.CopyFrom(like)
    namespace = made.ref.namespace or "default"
    made.ref.CopyFrom(pb.ObjectRef(namespace=namespace, name=name, uid=f"uid-{name}"))
    return made


def pod_object(pod: pb.PodSummary, kind: str, manifest: str = "") -> pb.KubeObject:
    """Return a core/v1 Pod for a summary. `manifest`: its spec and metadata, as JSON."""
    body = json.loads(manifest) if manifest else {"spec": {"containers": [_CONTAINER]}}
    metadata = {**body.get("metadata", {}), "namespace": pod.ref.namespace, "name": pod.ref.name}
    metadata["uid"] = pod.ref.uid
    metadata.setdefault("labels", dict(pod.labels))
    raw = {**body, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    if kind == "resident":
        raw["spec"] = {**raw["spec"], "nodeName": "kit-node-1"}
    return pb.KubeObject(api_version="v1", kind="Pod", raw=json.dumps(raw).encode())


_CONTAINER: Final = {
    "name": "kit",
    "image": "example.com/kit:1",
    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
}


def node_labels(node: WorldNode) -> dict[str, str]:
    """Return all labels of a node."""
    return {
        "kubernetes.io/hostname": node.name,
        "topology.kubernetes.io/zone": f"zone-{node.index % 2}",
    }


def node_object(node: WorldNode) -> pb.KubeObject:
    """Return the core/v1 Node."""
    amounts = {"cpu": f"{node.cpu_milli}m", "memory": "32Gi", "pods": "110"}
    raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": f"uid-{node.name}", "labels": node_labels(node)},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    return pb.KubeObject(api_version="v1", kind="Node", raw=json.dumps(raw).encode())


def _allocatable(node: WorldNode) -> dict[str, int]:
    return {"cpu": node.cpu_milli, "memory": 32 * GI, "pods": 110}


def stream(
    deltas: Sequence[pb.StateDelta], attachment_id: str, *, sequence: Sequence[int] = ()
) -> list[state_pb2.SyncStateRequest]:
    """Return the chunks of one SyncState. `sequence`: the numbers of the chunks; empty: 0, 1, 2, ..."""
    numbers = sequence or range(len(deltas))
    return [
        state_pb2.SyncStateRequest(
            chunk=delta, sequence=number, last=delta is deltas[-1], attachment_id=attachment_id
        )
        for number, delta in zip(numbers, deltas, strict=True)
    ]
