"""`World`: the small cluster that the kit shows to a plugin, as messages of the contract."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from berth_sdk import chance
from berth_sdk.conformance.case import Subject
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import state_pb2

MODULUS: Final = 2**53
GI: Final = 2**30
ALL: Final = frozenset({"name", "summary", "usage", "object", "pods"})
"""The parts of a new node in a delta."""


@dataclass(frozen=True)
class Resident:
    """A pod that runs on a node. `more`: what it requests besides, by resource name.

    `name` empty: a name made of its uid.
    """

    uid: str
    cpu_milli: int = 100
    memory_bytes: int = GI
    app: str = "kit"
    more: Mapping[str, int] = field(default_factory=dict)
    assumed: bool = False
    name: str = ""
    namespace: str = "default"

    @property
    def requests(self) -> dict[str, int]:
        """The requests of the pod: cpu in milli, memory in bytes."""
        return {"cpu": self.cpu_milli, "memory": self.memory_bytes, **self.more}

    @property
    def summary(self) -> pb.PodSummary:
        """The pod, with all its labels."""
        ref = pb.ObjectRef(namespace=self.namespace, name=self.name or f"{self.uid}-pod", uid=self.uid)
        non_zero = {"cpu": self.cpu_milli, "memory": self.memory_bytes}
        return pb.PodSummary(
            ref=ref, labels={"app": self.app}, requests=self.requests, non_zero_requests=non_zero
        )


@dataclass
class WorldNode:
    """One node. `generation`: of its last change. `pods`: by uid, in their order."""

    index: int
    name: str
    generation: int
    cpu_milli: int = 8000
    memory_bytes: int = 32 * GI
    room: int = 110
    zone: str = "zone-0"
    tainted: bool = False
    more: dict[str, int] = field(default_factory=dict)
    pods: dict[str, Resident] = field(default_factory=dict)

    @property
    def allocatable(self) -> dict[str, int]:
        """The allocatable amounts of the node: cpu in milli, memory in bytes. No key: the node has none."""
        amounts = {"cpu": self.cpu_milli, "memory": self.memory_bytes, "pods": self.room, **self.more}
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def free(self) -> dict[str, int]:
        """The free cpu (milli) and memory (bytes) of the node."""
        held = self.pods.values()
        return {
            "cpu": self.cpu_milli - sum(one.cpu_milli for one in held),
            "memory": self.memory_bytes - sum(one.memory_bytes for one in held),
        }

    @property
    def labels(self) -> dict[str, str]:
        """All labels. Without a zone, the node has no label for it."""
        labels = {"kubernetes.io/hostname": self.name, "topology.kubernetes.io/zone": self.zone}
        return {key: value for key, value in labels.items() if value}


# The indices have gaps, and take three bytes of a bitmap. A plain pod (100m, 1Gi) does not fit on the nodes
# 2 (cpu), 7 (memory) and 8 (pods). The nodes 0, 9 and 17 are empty.
_SHAPES: Final[Mapping[int, tuple[int, int, int]]] = {
    0: (8000, 32, 110),
    1: (8000, 32, 110),
    2: (4000, 16, 110),
    3: (16000, 64, 110),
    7: (8000, 32, 110),
    8: (4000, 16, 1),
    9: (6000, 24, 110),
    17: (12000, 48, 110),
}
"""Cpu in thousandths, memory in GiB and the number of pods of each node, by index."""
_RESIDENTS: Final[Mapping[int, tuple[tuple[int, int], ...]]] = {
    1: ((100, GI),),
    2: ((2500, 4 * GI), (1450, 4 * GI)),
    3: ((5000, 20 * GI), (1500, 4 * GI)),
    7: ((1000, 16 * GI), (500, 16 * GI - 2**20)),
    8: ((500, GI),),
}
"""Cpu in thousandths and memory in bytes of each pod, by the index of its node."""
_MULTIPLES: Final = (4, 8, 2, 8, 4, 2, 1, 4)
"""How many times a node has what the kit's pod requests beside cpu and memory, in the order of the nodes."""


class World:
    """The nodes of one epoch, and the deltas between its versions. The copy of a plugin must follow them.

    `like`: the kit's pod; the nodes have what it requests beside cpu and memory, and one lacks it.
    """

    def __init__(self, subject: Subject, like: pb.PodSummary | None = None) -> None:
        self.subject = subject
        self.epoch = 1 + chance.below(MODULUS - 2**40 - 1)
        self.generation = 0
        self.nodes: dict[int, WorldNode] = {}
        self.objects: dict[str, int] = {}
        """The generation of each object by its name. The objects are of the first declared resource."""
        self.more = {} if like is None else _beside_cpu_and_memory(like)
        self._residents = 0  # not itertools.count, which Python 3.14 does not copy
        for place, index in enumerate(_SHAPES):
            self.add(index, f"kit-node-{index}")
            cpu, memory, room = _SHAPES[index]
            node = self.nodes[index]
            node.cpu_milli, node.memory_bytes, node.room = cpu, memory * GI, room
            node.more = {name: amount * _MULTIPLES[place] for name, amount in self.more.items()}
            for cpu, memory in _RESIDENTS.get(index, ()):
                self.put_pod(index, cpu, memory)
        if self.more:  # the last one that is there is taken
            self.nodes[9].more.clear()

    @property
    def version(self) -> pb.StateVersion:
        """The version now."""
        return pb.StateVersion(epoch=self.epoch, generation=self.generation)

    @property
    def candidates(self) -> list[WorldNode]:
        """All nodes by index."""
        return [node for _, node in sorted(self.nodes.items())]

    def add(self, index: int, name: str) -> WorldNode:
        """Add a node."""
        self.generation += 1
        made = self.nodes[index] = WorldNode(index, name, self.generation, zone=f"zone-{index % 2}")
        return made

    def remove(self, index: int) -> None:
        """Remove a node."""
        self.generation += 1
        del self.nodes[index]

    def put_pod(self, index: int, cpu_milli: int = 100, memory_bytes: int = GI) -> Resident:
        """Put one more pod on a node."""
        made = Resident(f"kit-resident-{index}-{self._residents}", cpu_milli, memory_bytes)
        self._residents += 1
        self.put(index, made)
        return made

    def put(self, index: int, pod: Resident) -> None:
        """Put a pod on a node, or another version of a pod that is there."""
        self._changed(index).pods[pod.uid] = pod

    def take_pod(self, index: int, uid: str) -> None:
        """Take a pod off a node."""
        del self._changed(index).pods[uid]

    def _changed(self, index: int) -> WorldNode:
        self.generation += 1
        node = self.nodes[index]
        node.generation = self.generation
        return node

    def drop_objects(self) -> None:
        """Remove all objects. The next full state shows it."""
        self.generation += 1
        self.objects.clear()

    # --- messages ------------------------------------------------------------------------------------

    def full(self) -> pb.StateDelta:
        """Return the full state."""
        return self.delta(None, [self.state(node) for node in self.candidates])

    def change(self, index: int = 0, cpu_milli: int = 100, memory_bytes: int = GI) -> pb.StateDelta:
        """Put a pod on a node, and return the delta: the new pod, and what the node's pods use."""
        base = self.version
        pod = self.put_pod(index, cpu_milli, memory_bytes)
        return self.delta(base, [self.state(self.nodes[index], {"usage"}, pods=[pod])])

    def leave(self, index: int, uid: str) -> pb.StateDelta:
        """Take a pod off a node, and return the delta."""
        base = self.version
        self.take_pod(index, uid)
        return self.delta(base, [self.state(self.nodes[index], {"usage"}, removed=[uid])])

    def edit(self, index: int, uid: str, cpu_milli: int, memory_bytes: int) -> pb.StateDelta:
        """Change what a pod on a node requests, and return the delta."""
        base = self.version
        pod = replace(self.nodes[index].pods[uid], cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        self.put(index, pod)
        return self.delta(base, [self.state(self.nodes[index], {"usage"}, pods=[pod])])

    def resize(self, index: int, **fields: Any) -> pb.StateDelta:
        """Change fields of a node, and return the delta, which says nothing about its pods."""
        base = self.version
        node = self._changed(index)
        for name, value in fields.items():
            setattr(node, name, value)
        return self.delta(base, [self.state(node, {"summary", "object"})])

    def replace_pods(self, index: int, *pods: Resident) -> pb.StateDelta:
        """Replace all pods of a node, and return the delta, which says that its list is complete."""
        base = self.version
        node = self._changed(index)
        node.pods = {pod.uid: pod for pod in pods}
        return self.delta(base, [self.state(node, {"usage", "pods"})])

    def swap(self, index: int, name: str, new_index: int) -> pb.StateDelta:
        """Remove a node and add another one; return the delta."""
        base = self.version
        self.remove(index)
        return self.delta(base, [self.state(self.add(new_index, name))], removed=[index])

    def drop(self, index: int) -> pb.StateDelta:
        """Remove a node, and return the delta."""
        base = self.version
        self.remove(index)
        return self.delta(base, [], removed=[index])

    def come(self, index: int, name: str, **fields: Any) -> pb.StateDelta:
        """Add a node, and return the delta."""
        base = self.version
        node = self.add(index, name)
        for key, value in fields.items():
            setattr(node, key, value)
        return self.delta(base, [self.state(node)])

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
        delta = self.delta(base, [])
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
        return in_chunks(self.full(), size)

    def delta(
        self, base: pb.StateVersion | None, nodes: Sequence[pb.NodeState], *, removed: Sequence[int] = ()
    ) -> pb.StateDelta:
        """Return a delta to the version now. `base` None: these are all nodes."""
        return pb.StateDelta(
            base=base,
            target=self.version,
            upserts=nodes,
            removed=removed,
            node_count=len(self.nodes),
            object_count=len(self.objects),
            generation_sum=sum([*(node.generation for node in self.nodes.values()), *self.objects.values()])
            % MODULUS,
        )

    def state(
        self,
        node: WorldNode,
        parts: Collection[str] = ALL,
        *,
        pods: Sequence[Resident] | None = None,
        removed: Sequence[str] = (),
    ) -> pb.NodeState:
        """Return a node with these parts, those that the plugin declared.

        `pods`: the pods that changed, in place of the part "pods", which is all of them. `removed`: uids.
        """
        kinds, need = self.subject.kinds, identity.DeclaredNeed
        made = pb.NodeState(index=node.index, generation=node.generation)
        if "name" in parts:
            made.name = node.name
        if need.KIND_NODE_SUMMARY in kinds:
            if "summary" in parts:
                made.summary.CopyFrom(self.summary(node))
            if "usage" in parts:
                made.usage.CopyFrom(usage(node.pods.values()))
        if need.KIND_NODE_OBJECT in kinds and "object" in parts:
            made.object.CopyFrom(node_object(node))
        if kinds & {need.KIND_POD_SUMMARY, need.KIND_POD_OBJECT}:
            made.pods_complete = "pods" in parts
            sent = node.pods.values() if "pods" in parts else pods or ()
            made.pods.extend(self.resident(pod, node.name) for pod in sent)
            made.removed_pod_uids.extend(removed)
        return made

    def summary(self, node: WorldNode) -> pb.NodeSummary:
        """Return what the plugin's needs show of a node."""
        prefixes = self._prefixes(identity.DeclaredNeed.KIND_NODE_SUMMARY)
        labels = {key: value for key, value in node.labels.items() if key.startswith(prefixes)}
        taints = [pb.Taint(key="kit.example.com/taint", effect="NoSchedule")] if node.tainted else []
        return pb.NodeSummary(labels=labels, allocatable=node.allocatable, taints=taints)

    def resident(self, pod: Resident, node_name: str) -> pb.PodState:
        """Return a pod of a node as the plugin's needs show it."""
        made = pb.PodState(pod=pod.summary, assumed=pod.assumed)
        prefixes = self._prefixes(identity.DeclaredNeed.KIND_POD_SUMMARY)
        for key in [key for key in made.pod.labels if not key.startswith(prefixes)]:
            del made.pod.labels[key]
        if identity.DeclaredNeed.KIND_POD_OBJECT in self.subject.kinds:
            made.object.CopyFrom(pod_object(pod.summary, "resident", node_name=node_name))
        return made

    def _prefixes(self, kind: identity.DeclaredNeed.Kind.ValueType) -> tuple[str, ...]:
        """Return the prefixes of the labels that the plugin asks for."""
        needs = (need for need in self.subject.plugin.needs if need.kind == kind)
        return tuple(prefix for need in needs for prefix in need.label_prefixes)


def in_chunks(whole: pb.StateDelta, size: int) -> list[pb.StateDelta]:
    """Return a delta in chunks of `size` nodes. The last one has the counts and the sum."""
    made = []
    for start in range(0, len(whole.upserts), size):
        chunk = pb.StateDelta(target=whole.target, upserts=whole.upserts[start : start + size])
        if whole.HasField("base"):
            chunk.base.CopyFrom(whole.base)
        if start == 0:
            chunk.removed.extend(whole.removed)
        made.append(chunk)
    last = made[-1]
    last.node_count, last.generation_sum = whole.node_count, whole.generation_sum
    last.object_count = whole.object_count
    return made


def in_pieces(state: pb.NodeState) -> list[pb.NodeState]:
    """Return a node with its pods one after the other, as the host writes a node with many pods."""
    first = pb.NodeState()
    first.CopyFrom(state)
    del first.pods[1:]
    more = [
        pb.NodeState(index=state.index, generation=state.generation, pods=[pod]) for pod in state.pods[1:]
    ]
    return [first, *more]


def usage(pods: Iterable[Resident]) -> pb.NodeUsage:
    """Return what these pods use together."""
    held = list(pods)
    requested: dict[str, int] = {}
    for pod in held:
        for name, amount in pod.requests.items():
            requested[name] = requested.get(name, 0) + amount
    non_zero = {name: amount for name, amount in requested.items() if name in ("cpu", "memory")}
    return pb.NodeUsage(requested=requested, non_zero_requested=non_zero, pod_count=len(held))


def _beside_cpu_and_memory(pod: pb.PodSummary) -> dict[str, int]:
    return {name: amount for name, amount in pod.requests.items() if name not in ("cpu", "memory") and amount}


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


def pod_object(
    pod: pb.PodSummary, kind: str, manifest: str = "", *, node_name: str = "", sized: bool = False
) -> pb.KubeObject:
    """Return a core/v1 Pod for a summary. `manifest`: its spec and metadata, as JSON.

    `sized`: one container requests what the summary says, whatever the manifest says.
    """
    body = json.loads(manifest) if manifest else {"spec": {"containers": [_CONTAINER]}}
    metadata = {**body.get("metadata", {}), "namespace": pod.ref.namespace, "name": pod.ref.name}
    metadata["uid"] = pod.ref.uid
    metadata.setdefault("labels", dict(pod.labels))
    raw = {**body, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    if kind == "resident":
        raw["spec"] = {**raw["spec"], "nodeName": node_name}
    if kind == "resident" or sized:
        raw["spec"] = _sized(raw["spec"], pod)
    return pb.KubeObject(api_version="v1", kind="Pod", raw=json.dumps(raw).encode())


_CONTAINER: Final = {
    "name": "kit",
    "image": "example.com/kit:1",
    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
}


def _sized(spec: dict[str, Any], pod: pb.PodSummary) -> dict[str, Any]:
    """Return a spec whose one container requests what the pod's summary says."""
    amounts = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in pod.requests.items()}
    container = {**(spec.get("containers") or [_CONTAINER])[0], "resources": {"requests": amounts}}
    kept = {
        key: value for key, value in spec.items() if key not in ("initContainers", "overhead", "resources")
    }
    return {**kept, "containers": [container]}


def node_object(node: WorldNode) -> pb.KubeObject:
    """Return the core/v1 Node."""
    amounts = {
        name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in node.allocatable.items()
    }
    taints = [{"key": "kit.example.com/taint", "effect": "NoSchedule"}]
    raw = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": f"uid-{node.name}", "labels": node.labels},
        "spec": {"taints": taints} if node.tainted else {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    return pb.KubeObject(api_version="v1", kind="Node", raw=json.dumps(raw).encode())


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
