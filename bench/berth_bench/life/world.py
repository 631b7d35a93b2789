"""`World`: what users and machines do in a life: pods, groups and nodes come and go.

Made by `life`. Each kind of act is a task with a generator of its own, so that one kind does not change the
times of another.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_host.errors.cluster import ClusterError, ForbiddenError
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_bench.life import hosts
from berth_bench.life.devices import Devices
from berth_bench.life.guard import FORBIDDEN, PLUGIN
from berth_bench.life.hosts import Act
from berth_bench.life.stage import Stage
from berth_bench.life.storage import Storage
from berth_bench.versus import objects

ZONES: Final = ("a", "b", "c")
ZONE: Final = "topology.kubernetes.io/zone"
PRIORITIES: Final = {"low": 0, "middle": 100, "high": 1000}
_CPUS_MILLI: Final = (100, 250, 500, 1000, 2000)
_NODE_CPUS: Final = (2, 4, 8)
_TIERS: Final = ("front", "middle", "back")
"""A label of pods, by which a budget protects the pods of many bursts."""
_GROUPS: Final = "scheduling.k8s.io/podgroups"
_QUOTA: Final = "life"
_MOST_NODES: Final = 20
_MOST_GANG: Final = 6
_MOST_BUDGETS: Final = 8
_MOST_MORE_PODS: Final = 20
_COLLECTED_S: Final = 20.0
"""Seconds between two looks of the pod garbage collector for pods on nodes that no longer exist."""
_FORBIDDEN_SHARE: Final = 0.2
"""Of the nodes, in a life with a guard."""
_SPARE_CPU: Final = 64
_SPARE_EACH: Final = 2
"""Nodes for each zone that come when the world is calm, with room for every pod."""
_SPARE_DEVICES: Final = 30

KINDS: Final = (
    "pods",
    "gang",
    "leave",
    "node",
    "taint",
    "resize",
    "devices",
    "budget",
    "quota",
    *hosts.KINDS,
    PLUGIN,
)
"""The kinds of acts: of the world, of the hosts, and of the served plugin."""


@dataclass(slots=True)
class Gang:
    """A group of pods.

    `least`: its minCount. `members`: the names of all that it is to have. `is_in_one_zone`: the members must
    have nodes of the same zone. `ever_bound`: the members that had a node at some time. `is_short`: a member
    was deleted before it had a node, or the keeper rejected a member.
    """

    least: int
    members: Sequence[str]
    cpu_milli: int
    priority: str
    is_in_one_zone: bool = False
    is_leaving: bool = False
    is_short: bool = False
    ever_bound: set[str] = field(default_factory=set)
    partial_since_s: float | None = None


class World:
    """The world. `acts`: the number of acts so far, by kind. `gangs`: by the group's name."""

    def __init__(
        self,
        stage: Stage,
        chance: random.Random,
        without: Collection[str] = (),
    ) -> None:
        """`without`: kinds of acts that do not happen."""
        self.acts: Counter[str] = Counter()
        self.gangs: dict[str, Gang] = {}
        self._server = stage.server
        self._weights = stage.weights
        self._chance = chance
        self._trace = stage.trace
        self.leaves: Callable[[str], None] = lambda name: None
        """Called with a pod's name before the world deletes the pod."""
        self._without = without
        self._count = 0
        self.storage = Storage(self._server, ZONE, ZONES)
        self.devices = Devices(self._server)

    def begin(self) -> None:
        """Create what exists before the host."""
        for name, value in PRIORITIES.items():
            self._create(
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                }
            )
        self.storage.begin()
        self.devices.begin()
        self._add_nodes()

    def begin_again(self, chance: random.Random) -> None:
        """Begin anew after `delete_everything`, with the names of the first begin."""
        self._chance, self._count = chance, 0
        self._add_nodes()

    def _add_nodes(self) -> None:
        for _ in range(self._weights.nodes):
            self._add_node(self._chance)

    def end(self) -> None:
        """Stop the controllers."""
        self.storage.end()
        self.devices.end()

    async def run(self, of_hosts: Sequence[Act]) -> None:
        """Act until cancelled. `of_hosts`: what happens to the hosts meanwhile."""
        weights = self._weights
        acts = (
            Act("pods", weights.pods_gap_s, self._pods_come),
            Act("gang", weights.gang_gap_s, self._gang_comes),
            Act("leave", weights.leave_gap_s, self._pod_leaves),
            Act("node", weights.node_gap_s, self._nodes_change),
            Act("taint", weights.taint_gap_s, self._taints_change),
            Act("resize", weights.resize_gap_s, self._node_is_resized),
            Act("devices", weights.devices_gap_s, self._devices_change),
            Act("budget", weights.budget_gap_s, self._budget_comes),
            Act("quota", weights.quota_gap_s, self._quota_changes),
            *of_hosts,
        )
        async with asyncio.TaskGroup() as group:
            for act in acts:
                # Drawn also for a kind that is left out: the others then act at the same times.
                own = random.Random(self._chance.random())
                if act.name not in self._without:
                    group.create_task(self._repeat(act, own))
            group.create_task(self._collect_garbage())

    def repair(self) -> None:
        """Complete the gangs, and act no more."""
        self._trace.add("world calm")
        self._delete("resourcequotas", ObjectRef(name=_QUOTA, namespace="default"))
        for name, gang in self.gangs.items():
            if gang.is_leaving:
                self._delete_gang(name)
        self.complete_gangs()
        self.collect_once()

    def make_room(self) -> None:
        """Add nodes with room for every pod, and grow the nodes to which pods are tied by a shared claim."""
        self._trace.add("world has room")
        self.storage.make_room()
        for zone in ZONES:
            for number in range(_SPARE_EACH):
                name = self._name(f"spare-{zone}{number}")
                self._create(_node(name, f"{_SPARE_CPU}", zone))
                self.devices.node_has(name, _SPARE_DEVICES)
        for name in sorted(self.devices.nodes_of_shared()):
            ref = ObjectRef(name=name)
            if self._server.get("nodes", ref) is not None:
                self._server.patch("nodes", ref, {"spec": {"taints": None, "unschedulable": None}})
                self._resize(ref, f"{_SPARE_CPU}")

    def delete_everything(self) -> None:
        """Delete all gangs, pods, claims, volumes, devices, budgets and nodes."""
        self._trace.add("world empty")
        for name, gang in self.gangs.items():
            if not gang.is_leaving:
                self._delete_gang(name)
        for pod in self._server.list("pods"):
            self._delete_pod(pod.ref.name)
        for resource in ("policy/poddisruptionbudgets", "nodes"):
            for item in self._server.list(resource):
                self._delete(resource, item.ref)
        self.storage.delete_everything()
        self.devices.delete_everything()
        self.gangs.clear()

    def complete_gangs(self) -> None:
        """Create the groups and the members that gangs lack, as a controller does."""
        running = {
            pod.ref.name for pod in self._server.list("pods") if pod.get("status.phase") != "Succeeded"
        }
        for name, gang in self.gangs.items():
            if gang.is_leaving:
                continue
            if self._server.get(_GROUPS, ObjectRef(name=name, namespace="default")) is None:
                self._create_group(name, gang)
            missing = [member for member in gang.members if member not in running]
            new = [self._name(f"{name}-again") for _ in missing]
            gang.members = [member for member in gang.members if member in running] + new
            for member in new:
                self._create_member(name, gang, member)

    def collect_once(self) -> None:
        """Delete the pods on nodes that no longer exist, and the claims of pods that no longer exist."""
        nodes = {node.ref.name for node in self._server.list("nodes")}
        for pod in self._server.list("pods"):
            if pod.get("spec.nodeName") and pod.get("spec.nodeName") not in nodes:
                self._delete_pod(pod.ref.name)
        self.storage.collect()
        self.devices.collect()

    async def _repeat(self, act: Act, chance: random.Random) -> None:
        while True:
            await asyncio.sleep(chance.expovariate(1 / act.gap_s))
            self.acts[act.name] += 1
            await act.do(chance)

    async def _collect_garbage(self) -> None:
        while True:
            await asyncio.sleep(_COLLECTED_S)
            self.collect_once()

    # --- pods ----------------------------------------------------------------------------------------

    async def _pods_come(self, chance: random.Random) -> None:
        if len(self._server.list("pods")) >= self._weights.most_pods:
            return
        count = chance.randint(1, self._weights.burst)
        cpu_milli = chance.choice(_CPUS_MILLI)
        names = [self._name("pod") for _ in range(count)]
        app = self._name("app")
        labels = {"app": app, "tier": chance.choice(_TIERS)}
        more = self._drawn_spec(chance, app)
        claims: dict[str, dict[str, Any]] = {}
        drawn = chance.random()
        if drawn < self._weights.claim_share:
            claims = self.devices.claims_for(chance, names)
        elif drawn < self._weights.claim_share + self._weights.volume_share:
            claims = self.storage.claims_for(chance, names)
        if claims:
            # A pod with a claim is tied to a place already, where no other constraint may keep it away.
            more = {"priorityClassName": more["priorityClassName"]}
        for name in names:
            made = objects.pod(name, f"{cpu_milli}m", **more, **claims.get(name, {}))
            made["metadata"]["labels"] = dict(labels)
            self._create_pod(made)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.expovariate(1.0))

    def _drawn_spec(self, chance: random.Random, app: str) -> dict[str, Any]:
        """Return fields of a burst's pods that limit where they can run. `app`: their label."""
        spec: dict[str, Any] = {"priorityClassName": chance.choice(tuple(PRIORITIES))}
        selector = {"matchLabels": {"app": app}}
        match chance.randrange(6):
            case 0:
                spec["nodeSelector"] = {ZONE: chance.choice(ZONES)}
            case 1:
                constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
                spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": selector}]
            case 2:
                term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
                weighted = [{"weight": 10, "podAffinityTerm": term}]
                anti = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
                spec["affinity"] = {"podAntiAffinity": anti}
        return spec

    async def _pod_leaves(self, chance: random.Random) -> None:
        """Delete a pod, bound or not; or let it succeed, or delete a whole gang."""
        pods = self._server.list("pods")
        if not pods:
            return
        pod = chance.choice(pods)
        group = pod.get("spec.schedulingGroup.podGroupName")
        if group and chance.random() < 0.7:
            self._delete_gang(group)
        elif pod.get("spec.nodeName") and chance.random() < 0.3:
            status = {"status": {"phase": "Succeeded"}}
            self._server.patch("pods", pod.ref, status, patch_type=PatchType.MERGE, subresource="status")
        else:
            if group and not pod.get("spec.nodeName"):
                self.gangs[group].is_short = True
            self._delete_pod(pod.ref.name)

    async def _budget_comes(self, chance: random.Random) -> None:
        """Protect the pods of an app or of a tier with a budget; delete a budget where there are many."""
        budgets = self._server.list("policy/poddisruptionbudgets")
        pods = [pod for pod in self._server.list("pods") if pod.get("metadata.labels.app")]
        if len(budgets) >= _MOST_BUDGETS:
            self._delete("policy/poddisruptionbudgets", chance.choice(budgets).ref)
        if not pods:
            return
        label = chance.choice(("app", "tier"))
        selected = {label: chance.choice(pods).get(f"metadata.labels.{label}")}
        name = self._name("budget")
        self._create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": selected}},
            }
        )
        status = {"status": {"disruptionsAllowed": chance.choice((0, 0, 1, 2)), "observedGeneration": 1}}
        ref = ObjectRef(name=name, namespace="default")
        self._server.patch("policy/poddisruptionbudgets", ref, status, subresource="status")

    async def _quota_changes(self, chance: random.Random) -> None:
        """Limit how many more pods the namespace may have; or end the limit."""
        ref = ObjectRef(name=_QUOTA, namespace="default")
        if self._server.get("resourcequotas", ref) is not None:
            self._delete("resourcequotas", ref)
            return
        # The embedded API server counts the pods that come after the quota.
        hard = {"pods": str(chance.randint(1, _MOST_MORE_PODS))}
        metadata = {"name": _QUOTA, "namespace": "default"}
        self._create(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        )

    # --- gangs ---------------------------------------------------------------------------------------

    async def _gang_comes(self, chance: random.Random) -> None:
        if len(self._server.list("pods")) >= self._weights.most_pods:
            return
        name = self._name("gang")
        least = chance.randint(2, _MOST_GANG)
        count = least + chance.choice((0, 0, 1))
        gang = Gang(
            least,
            [f"{name}-{number}" for number in range(count)],
            chance.choice(_CPUS_MILLI),
            chance.choice(tuple(PRIORITIES)),
            is_in_one_zone=chance.random() < self._weights.topology_share,
        )
        self.gangs[name] = gang
        group_first = chance.random() < 0.8
        if group_first:
            self._create_group(name, gang)
        for member in gang.members:
            if gang.is_leaving:
                return
            self._create_member(name, gang, member)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.expovariate(0.5))
        if not group_first and not gang.is_leaving:
            self._create_group(name, gang)

    def _create_group(self, name: str, gang: Gang) -> None:
        group = objects.pod_group(name, gang.least)
        group["spec"]["priorityClassName"] = gang.priority
        if gang.is_in_one_zone:
            group["spec"]["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
        self._create(group)

    def _create_member(self, name: str, gang: Gang, member: str) -> None:
        self._create_pod(
            objects.pod(
                member,
                f"{gang.cpu_milli}m",
                priorityClassName=gang.priority,
                schedulingGroup={"podGroupName": name},
            )
        )

    def _delete_gang(self, name: str) -> None:
        self.gangs[name].is_leaving = True
        for pod in self._server.list("pods"):
            if pod.get("spec.schedulingGroup.podGroupName") == name:
                self._delete_pod(pod.ref.name)
        self._delete(_GROUPS, ObjectRef(name=name, namespace="default"))

    # --- nodes ---------------------------------------------------------------------------------------

    async def _nodes_change(self, chance: random.Random) -> None:
        nodes = self._server.list("nodes")
        if not nodes or (len(nodes) < _MOST_NODES and chance.random() < 0.5):
            self._add_node(chance)
        else:
            ref = chance.choice(nodes).ref
            self._delete("nodes", ref)
            self.devices.node_has(ref.name, 0)

    def _add_node(self, chance: random.Random) -> None:
        cpu = str(chance.choice(_NODE_CPUS))
        is_forbidden = self._weights.served is not None and chance.random() < _FORBIDDEN_SHARE
        name = self._name(FORBIDDEN if is_forbidden else "node")
        self._create(_node(name, cpu, chance.choice(ZONES)))
        self.devices.node_has(name, chance.randint(0, self._weights.most_devices))

    async def _devices_change(self, chance: random.Random) -> None:
        """Publish a node's devices anew: more or fewer than before."""
        if nodes := self._server.list("nodes"):
            name = chance.choice(nodes).ref.name
            self.devices.node_has(name, chance.randint(0, self._weights.most_devices))

    async def _taints_change(self, chance: random.Random) -> None:
        nodes = self._server.list("nodes")
        if not nodes:
            return
        node = chance.choice(nodes)
        spec: dict[str, Any] = {"taints": None, "unschedulable": None}
        if not node.get("spec.taints") and not node.get("spec.unschedulable"):
            taint = {"key": "life.berth.io/closed", "effect": "NoSchedule"}
            spec = {"taints": [taint]} if chance.random() < 0.5 else {"unschedulable": True}
        self._server.patch("nodes", node.ref, {"spec": spec})

    async def _node_is_resized(self, chance: random.Random) -> None:
        nodes = self._server.list("nodes")
        if nodes:
            cpu = str(chance.choice(_NODE_CPUS))
            self._resize(chance.choice(nodes).ref, cpu)

    def _resize(self, ref: ObjectRef, cpu: str) -> None:
        amounts = {"capacity": {"cpu": cpu}, "allocatable": {"cpu": cpu}}
        self._server.patch("nodes", ref, {"status": amounts}, subresource="status")

    # --- objects -------------------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _create(self, made: Mapping[str, Any]) -> KubeObject:
        return self._server.create(made)

    def _create_pod(self, made: Mapping[str, Any]) -> None:
        try:
            self._create(made)
        except ForbiddenError:
            # Of a quota. A gang gets its members again once nothing fails any more.
            self._trace.add(f"refused {made['metadata']['name']}")

    def _delete_pod(self, name: str) -> None:
        self.leaves(name)
        self._delete("pods", ObjectRef(name=name, namespace="default"))

    def _delete(self, resource: str, ref: ObjectRef) -> None:
        try:
            self._server.delete(resource, ObjectRef(name=ref.name, namespace=ref.namespace))
        except ClusterError:
            return  # it is gone, as the host has preempted it, or the group was not created yet


def _node(name: str, cpu: str, zone: str) -> dict[str, Any]:
    return objects.node(name, cpu, **{ZONE: zone})
