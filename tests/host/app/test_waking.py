"""A change that lets a plugin's Filter accept a waiting pod wakes the pod: event, handlers, queue and hint.

One change is made to a cluster on which a pod waits, rejected by one plugin that is the only one to filter.
The judge is a host that starts after the change: where that host places the pod, so must the one that waited.
Nothing but the event can wake the pod: the flush of the unschedulable pods is off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from berth_sdk.kube_object import ObjectRef
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.hosts import World, pod

Json = dict[str, Any]
ALWAYS = {("namespaces", "", "default")}
"""Objects that every cluster has."""
WAITER = ("pods", "default", "waiter")
Key = tuple[str, str, str]
"""(resource, namespace, name)."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Situations:
    """The clusters that one plugin is tried on: by key, the objects that may stand there."""

    plugin: str
    waiters: Sequence[Json]
    objects: Mapping[Key, Sequence[Json]]
    args: str = ""

    @property
    def configuration(self) -> str:
        args = f"  pluginConfig: [{{name: {self.plugin}, args: {self.args}}}]\n" if self.args else ""
        return (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins:\n    preBind: {disabled: [{name: '*'}]}\n"
            "    multiPoint:\n      disabled: [{name: '*'}]\n"
            f"      enabled: [{{name: PrioritySort}}, {{name: {self.plugin}}}, {{name: DefaultBinder}}]\n"
            f"{args}"
        )


def key_of(resource: str, item: Json) -> Key:
    return resource, item["metadata"].get("namespace", ""), item["metadata"]["name"]


def by_key(**resources: Sequence[Json]) -> dict[Key, list[Json]]:
    """`resource` (`storage_k8s_io__csinodes` for a group) -> objects; those of one name are its versions."""
    found: dict[Key, list[Json]] = {}
    for resource, items in resources.items():
        group, _, plural = resource.rpartition("__")
        spelled = f"{group.replace('_', '.')}/{plural}" if group else plural
        for item in items:
            found.setdefault(key_of(spelled, item), []).append(item)
    return found


def node(name: str, labels: Mapping[str, str] = {}, **more: Any) -> Json:  # read only
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", **more.pop("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": more,
        "status": {"allocatable": allocatable},
    }


def namespace(name: str, **labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def waiter(**more: Any) -> Json:
    return pod("waiter", **more)


def on(where: str, name: str, **more: Any) -> Json:
    return pod(name, nodeName=where, **more)


def term(key: str = "zone", namespaces: Json | None = None, **labels: str) -> Json:
    found: Json = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return found if namespaces is None else {**found, "namespaceSelector": namespaces}


def near(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def away(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


ZONES: Sequence[Mapping[str, str]] = (
    {"zone": "a"},
    {"zone": "b"},
    {},
    {"zone": "a", "deck": "one", "disk": "ssd"},
)
NODES = [node(name, labels) for name in ("n1", "n2") for labels in ZONES]
TEAM = {"matchLabels": {"team": "blue"}}
NAMESPACES = [namespace("other", team="blue"), namespace("other", team="red"), namespace("other")]
OWN_NAMESPACES = [namespace("default", team="blue"), namespace("default")]

AFFINITY = Situations(
    "InterPodAffinity",
    waiters=[
        waiter(labels={"app": "web"}, affinity=affinity)
        for affinity in (
            {},
            near(term(app="db")),
            near(term(app="web")),
            near(term(app="db"), term("deck", app="db")),
            near(term(namespaces=TEAM, app="db")),
            near(term(namespaces=TEAM, app="web")),
            away(term(app="db"), term("deck", app="web")),
            away(term(namespaces=TEAM, app="db")),
        )
    ],
    objects=by_key(
        nodes=NODES,
        namespaces=[*NAMESPACES, *OWN_NAMESPACES],
        pods=[
            *(on("n1", "first", labels={"app": app}) for app in ("db", "web", "none")),
            *(
                on("n2", "second", labels={"app": "db"}, affinity=affinity)
                for affinity in (
                    {},
                    away(term(app="web"), term("deck", app="none")),
                    away(term(namespaces=TEAM, app="web")),
                )
            ),
            *(on("n1", "third", namespace="other", labels={"app": app}) for app in ("db", "web")),
        ],
    ),
)


def spread(**more: Any) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


SPREAD = Situations(
    "PodTopologySpread",
    waiters=[
        waiter(labels={"app": "web", "rev": "1"}, topologySpreadConstraints=[constraint], **more)
        for constraint in (
            spread(),
            spread(minDomains=2),
            spread(nodeTaintsPolicy="Honor"),
            spread(matchLabelKeys=["rev"]),
        )
        for more in ({}, {"nodeSelector": {"disk": "ssd"}})
    ],
    objects=by_key(
        nodes=[
            *(node("n1", {"zone": "a", "disk": disk}) for disk in ("ssd", "hdd")),
            *(node("n2", {"zone": "b", **more}) for more in ({}, {"disk": "ssd"})),
            node("n2", {}),
            node("n2", {"zone": "b", "disk": "ssd"}, taints=[{"key": "t", "effect": "NoSchedule"}]),
        ],
        pods=[
            on(where, name, labels={"app": app, "rev": "1"})
            for where, name in (("n1", "first"), ("n1", "second"), ("n2", "third"))
            for app in ("web", "db")
        ],
    ),
)
NODE_AFFINITY = Situations(
    "NodeAffinity",
    waiters=[waiter(), waiter(nodeSelector={"disk": "ssd"}), waiter(nodeSelector={"zone": "a"})],
    objects=by_key(nodes=NODES),
    args="{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
    "[{matchExpressions: [{key: deck, operator: Exists}]}]}}}",
)
TAINTS = Situations(
    "TaintToleration",
    waiters=[waiter(), waiter(tolerations=[{"key": "t", "operator": "Exists"}])],
    objects=by_key(
        nodes=[
            node("n1", taints=[{"key": key, "effect": effect} for key in keys])
            for keys in ("", "t", "u", "tu")
            for effect in ("NoSchedule", "NoExecute")
        ]
    ),
)
CORDONS = Situations(
    "NodeUnschedulable",
    waiters=[waiter()],
    objects=by_key(nodes=[node("n1"), node("n1", unschedulable=True), node("n2", unschedulable=True)]),
)


def with_port(item: Json, port: int) -> Json:
    item["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return item


PORTS = Situations(
    "NodePorts",
    waiters=[with_port(waiter(), 80)],
    objects=by_key(
        nodes=[node("n1"), node("n2")],
        pods=[
            *(with_port(on("n1", "first", namespace=where), 80) for where in ("default", "other")),
            with_port(on("n2", "second"), 80),
            with_port(on("n2", "third"), 81),
        ],
    ),
)


def asking(item: Json, **requests: str) -> Json:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in requests.items()}
    item["spec"]["containers"][0]["resources"] = {"requests": named, "limits": named}
    return item


GPU = "example.com/gpu"
DEVICE_CLASSES = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": spec,
    }
    for spec in ({"extendedResourceName": GPU}, {})
]
FIT = Situations(
    "NodeResourcesFit",
    waiters=[asking(waiter(), cpu="3"), asking(waiter(), cpu="1", example_com__gpu="1")],
    objects=by_key(
        nodes=[
            node(name, allocatable=allocatable)
            for name in ("n1", "n2")
            for allocatable in (
                {},
                {"cpu": "2"},
                {"pods": "0"},
                {GPU: "0"},
                {GPU: "2"},
                {GPU: "2", "cpu": "0"},
            )
        ],
        pods=[
            *(asking(on("n1", "first"), cpu=cpu) for cpu in ("1", "2")),
            asking(on("n2", "second"), cpu="4"),
        ],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES,
    ),
)
IGNORING = Situations(
    "NodeResourcesFit",
    waiters=[asking(waiter(), cpu="3", example_com__gpu="1")],
    objects=by_key(
        nodes=[node("n1", allocatable={"cpu": cpu}) for cpu in ("2", "4")]
        + [node("n2"), node("n2", allocatable={"cpu": "1"})],
    ),
    args="{ignoredResources: [example.com/gpu]}",
)


def mounting(item: Json, *volumes: Json) -> Json:
    item["spec"]["volumes"] = [{"name": f"v{i}", **one} for i, one in enumerate(volumes)]
    return item


def disk(name: str = "pd-1") -> Json:
    return {"gcePersistentDisk": {"pdName": name}}


def claimed(name: str = "c1") -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def claim(
    name: str, volume: str = "", *, cls: str = "slow", mode: str = "ReadWriteOnce", **meta: Any
) -> Json:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    spec: Json = {
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": cls,
        **({"volumeName": volume} if volume else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations, **meta},
        "spec": spec,
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, labels: Mapping[str, str] = {}, **spec: Any) -> Json:  # read only
    source = spec or {"csi": {"driver": "csi.example.com", "volumeHandle": name}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "storageClassName": "slow",
            **source,
        },
    }


def storage(kind: str, name: str, **more: Any) -> Json:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": metadata, **more}


def csi_node(name: str, *limits: int | None) -> Json:
    drivers: list[Json] = [
        {
            "name": "csi.example.com",
            "nodeID": name,
            **({} if limit is None else {"allocatable": {"count": limit}}),
        }
        for limit in limits
    ]
    return storage("CSINode", name, spec={"drivers": drivers})


RESTRICTIONS = Situations(
    "VolumeRestrictions",
    waiters=[mounting(waiter(), disk()), mounting(waiter(), claimed())],
    objects=by_key(
        nodes=[node("n1"), node("n2")],
        pods=[
            mounting(on("n1", "first"), disk()),
            mounting(on("n1", "first"), claimed()),
            mounting(on("n1", "second", namespace="other"), disk()),
            mounting(on("n2", "third"), disk()),
        ],
        persistentvolumeclaims=[claim("c1", "pv-1", mode="ReadWriteOncePod")],
    ),
)
LIMITS = Situations(
    "NodeVolumeLimits",
    waiters=[mounting(waiter(), claimed())],
    objects=by_key(
        nodes=[node("n1"), node("n2")],
        pods=[
            mounting(on("n1", "first"), claimed("c2")),
            mounting(on("n1", "second"), claimed("c1")),
            mounting(on("n2", "third"), claimed("c2")),
        ],
        persistentvolumeclaims=[
            claim("c1", "pv-1"),
            claim("c2", "pv-2"),
            claim("c2", "pv-3"),
        ],
        persistentvolumes=[
            *(volume(f"pv-{i}") for i in (1, 2, 3)),
            volume("pv-3", hostPath={"path": "/data"}),
        ],
        storage_k8s_io__storageclasses=[storage("StorageClass", "slow", provisioner="csi.example.com")],
        storage_k8s_io__csinodes=[
            csi_node(name, *limits) for name in ("n1", "n2") for limits in ((1,), (2,), (None,), ())
        ],
    ),
)
ZONE = "topology.kubernetes.io/zone"
VOLUME_ZONES = Situations(
    "VolumeZone",
    waiters=[mounting(waiter(), claimed())],
    objects=by_key(
        nodes=[node(name, labels) for name in ("n1", "n2") for labels in ({ZONE: "a"}, {ZONE: "b"})],
        persistentvolumeclaims=[claim("c1", "pv-1"), claim("c1", "pv-2")],
        persistentvolumes=[volume(name, {ZONE: zone}) for name in ("pv-1", "pv-2") for zone in "ab"],
        storage_k8s_io__storageclasses=[
            storage("StorageClass", "slow", provisioner="x", volumeBindingMode="WaitForFirstConsumer")
        ],
    ),
)


def tracking(name: str, *, tracks: bool) -> Json:
    return storage("CSIDriver", name, spec={"storageCapacity": tracks})


def capacity(size: str, **labels: str) -> Json:
    metadata = {"namespace": "default"}
    return storage(
        "CSIStorageCapacity",
        "room",
        metadata=metadata,
        storageClassName="slow",
        capacity=size,
        nodeTopology={"matchLabels": labels},
    )


def reachable_from(zone: str) -> Json:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {
        "csi": {"driver": "csi.example.com", "volumeHandle": "h"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }


BINDING = Situations(
    "VolumeBinding",
    waiters=[mounting(waiter(), claimed())],
    objects=by_key(
        nodes=[node(name, {"zone": zone}) for name in ("n1", "n2") for zone in "ab"],
        persistentvolumeclaims=[claim("c1"), claim("c1", "pv-1")],
        persistentvolumes=[volume("pv-1", **reachable_from(zone)) for zone in "abc"],
        storage_k8s_io__storageclasses=[
            storage(
                "StorageClass",
                "slow",
                provisioner="csi.example.com",
                volumeBindingMode="WaitForFirstConsumer",
                **more,
            )
            for more in (
                {},
                {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["c"]}]}]},
            )
        ],
        storage_k8s_io__csidrivers=[tracking("csi.example.com", tracks=tracks) for tracks in (True, False)],
        storage_k8s_io__csistoragecapacities=[
            capacity(size, zone=zone) for size in ("1Mi", "5Gi") for zone in "ab"
        ],
    ),
)


def claim_of_devices(name: str, *, allocated: str = "") -> Json:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    status: Json = {}
    if allocated:
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": allocated}
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
        **status,
    }


def slice_of(name: str, *devices: str) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": one} for one in devices],
        },
    }


DEVICES = Situations(
    "DynamicResources",
    waiters=[pod("waiter", resourceClaims=[{"name": "g", "resourceClaimName": "mine"}])],
    objects=by_key(
        nodes=[node("n1")],
        resource_k8s_io__resourceclaims=[
            claim_of_devices("mine"),
            claim_of_devices("theirs", allocated="d0"),
            claim_of_devices("theirs"),
        ],
        resource_k8s_io__resourceslices=[
            slice_of("s1", "d0"),
            slice_of("s1", "d0", "d1"),
            slice_of("s2", "d1"),
        ],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES,
    ),
)
FEATURE = "UserNamespacesHostNetworkSupport"


def declaring(*features: str) -> Json:
    found = node("n1")
    found["status"]["declaredFeatures"] = list(features)
    return found


FEATURES = Situations(
    "NodeDeclaredFeatures",
    waiters=[waiter(hostNetwork=True, hostUsers=False)],
    objects=by_key(nodes=[declaring(), declaring(FEATURE)]),
)
ALL = [
    AFFINITY, SPREAD, NODE_AFFINITY, TAINTS, CORDONS, PORTS, FIT, IGNORING, RESTRICTIONS, LIMITS,
    VOLUME_ZONES, BINDING, DEVICES, FEATURES,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """The one change: `after` None: a deletion; `before` None: a creation. `replaced`: both in turn."""

    key: Key
    before: Json | None
    after: Json | None
    replaced: bool = False

    def make(self, world: World) -> None:
        resource, where, name = self.key
        if self.before is not None and (self.after is None or self.replaced):
            world.server.delete(resource, ObjectRef(name=name, namespace=where))
        if self.after is None:
            return
        if self.before is None or self.replaced:
            world.server.create(self.after, restore=True)
            return
        world.server.update(self.after)
        if "status" in self.after or "status" in self.before:
            world.server.update({**self.after, "status": self.after.get("status", {})}, subresource="status")


def start(objects: Mapping[Key, Json], waiting: Json, situations: Situations) -> World:
    """A host on these objects, with the waiting pod."""
    world = World(configuration=situations.configuration)
    # A pod brings its namespace along where it is missing.
    for key in sorted(objects, key=lambda one: one[0] != "namespaces"):
        world.server.create(objects[key], restore=True)
    world.server.create(waiting)
    return world


def node_of_waiter(world: World) -> str:
    resource, where, name = WAITER
    found = world.server.get(resource, ObjectRef(name=name, namespace=where))
    assert found is not None
    return str(found.get("spec.nodeName") or "")


async def outcome(
    situations: Situations, waiting: Json, before: Mapping[Key, Json], step: Step
) -> tuple[bool, bool, bool]:
    """(placed before the change, placed after it, placed by a host that starts after it)."""
    async with start(before, waiting, situations) as world:
        await world.settle()
        if node_of_waiter(world):
            return True, True, True
        step.make(world)
        await world.settle()
        if node_of_waiter(world):
            return False, True, True
    after = {key: item for key, item in before.items() if key != step.key}
    if step.after is not None:
        after[step.key] = step.after
    async with start(after, waiting, situations) as late:
        await late.settle()
        return False, False, bool(node_of_waiter(late))


@st.composite
def changes(draw: st.DrawFn, situations: Situations) -> tuple[Json, dict[Key, Json], Step]:
    before: dict[Key, Json] = {}
    for key, versions in situations.objects.items():
        item = draw(st.sampled_from(versions if key in ALWAYS else (None, *versions)))
        if item is not None:
            before[key] = item
    key = draw(st.sampled_from(sorted(situations.objects)))
    was = before.get(key)
    others: list[Json | None] = [item for item in situations.objects[key] if item is not was]
    if key not in ALWAYS:
        others = [item for item in (None, *others) if item is not was]
    after = draw(st.sampled_from(others))
    replaced = was is not None and after is not None and key not in ALWAYS
    replaced = replaced and (key[0] == "pods" or draw(st.booleans()))
    return draw(st.sampled_from(situations.waiters)), before, Step(key, was, after, replaced)


@pytest.mark.parametrize("situations", ALL, ids=lambda one: one.plugin + one.args[:9])
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
async def test_a_change_that_lets_the_pod_in_wakes_it(situations: Situations, data: st.DataObject) -> None:
    waiting, before, step = data.draw(changes(situations))
    was_placed, woken, expected = await outcome(situations, waiting, before, step)
    if not was_placed:
        assert woken == expected, step


# --- the changes that kube-scheduler 1.36 misses -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Missed:
    """One change, and the cluster before it."""

    situations: Situations
    waiting: Json
    before: Mapping[Key, Json]
    step: Step


def missed(situations: Situations, waiting: Json, change: Step, **before: Sequence[Json]) -> Missed:
    found = {key: items[0] for key, items in by_key(**before).items()}
    return Missed(situations, waiting, found, Step(change.key, found.get(change.key), change.after))


def gone(resource: str, item: Json) -> Step:
    return Step(key_of(resource, item), None, None)


def comes(resource: str, item: Json) -> Step:
    return Step(key_of(resource, item), None, item)


LISTENER = waiter(labels={"app": "web"})
BLOCKER = on("n1", "blocker", labels={"app": "db"})
ANGRY = on("n1", "angry", labels={"app": "x"}, affinity=away(term(app="web"), term("deck", app="y")))
STRANGER = on("n1", "stranger", namespace="other", labels={"app": "db"})
SHIP = node("n1", {"zone": "a"})
BLUE, RED = namespace("other", team="blue"), namespace("other", team="red")
TEAM_AWAY = waiter(affinity=away(term(namespaces=TEAM, app="db")))
TEAM_NEAR = waiter(affinity=near(term(namespaces=TEAM, app="db")))
DELAYED = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
MISSED = {
    "one of two terms": missed(
        AFFINITY,
        waiter(affinity=away(term(app="db"), term(app="loud"))),
        gone("pods", BLOCKER),
        nodes=[SHIP],
        pods=[BLOCKER],
    ),
    "one of two terms of a pod that runs": missed(
        AFFINITY, LISTENER, gone("pods", ANGRY), nodes=[SHIP], pods=[ANGRY]
    ),
    "a new node beside one with such a pod": missed(
        AFFINITY, LISTENER, comes("nodes", node("n2", {"zone": "b"})), nodes=[SHIP], pods=[ANGRY]
    ),
    "a node moves away from such a pod": missed(
        AFFINITY,
        LISTENER,
        comes("nodes", node("n2", {"zone": "b"})),
        nodes=[SHIP, node("n2", {"zone": "a"})],
        pods=[ANGRY],
    ),
    "a node goes with such a pod": missed(
        AFFINITY, LISTENER, gone("nodes", SHIP), nodes=[SHIP, node("n2", {"zone": "a"})], pods=[ANGRY]
    ),
    "the last pod of the group goes": missed(
        AFFINITY,
        waiter(labels={"app": "db"}, affinity=near(term("deck", app="db"), term(app="db"))),
        gone("pods", BLOCKER),
        nodes=[node("n1", {"deck": "one"}), node("n2", {"deck": "two", "zone": "b"})],
        pods=[BLOCKER],
    ),
    "a namespace is relabelled, anti-affinity": missed(
        AFFINITY, TEAM_AWAY, comes("namespaces", RED), nodes=[SHIP], namespaces=[BLUE], pods=[STRANGER]
    ),
    "a namespace is relabelled, affinity": missed(
        AFFINITY, TEAM_NEAR, comes("namespaces", BLUE), nodes=[SHIP], namespaces=[RED], pods=[STRANGER]
    ),
    "the pod's namespace is relabelled": missed(
        AFFINITY,
        LISTENER,
        comes("namespaces", namespace("default")),
        nodes=[SHIP],
        namespaces=[namespace("default", team="blue")],
        pods=[on("n1", "angry", affinity=away(term(namespaces=TEAM, app="web")))],
    ),
    "a pod comes to a selected namespace": missed(
        AFFINITY, TEAM_NEAR, comes("pods", STRANGER), nodes=[SHIP], namespaces=[BLUE]
    ),
    "an empty domain leaves the pod's selection": missed(
        SPREAD,
        waiter(
            labels={"app": "web"},
            topologySpreadConstraints=[
                spread(),
                spread(topologyKey="deck", labelSelector={"matchLabels": {"app": "noise"}}),
            ],
            nodeSelector={"disk": "ssd"},
        ),
        comes("nodes", node("n2", {"zone": "b", "deck": "two"})),
        nodes=[
            node("n1", {"zone": "a", "deck": "one", "disk": "ssd"}),
            node("n2", {"zone": "b", "deck": "two", "disk": "ssd"}),
        ],
        pods=[
            on("n1", "first", labels={"app": "web"}),
            on("n2", "second", labels={"app": "noise"}),
            on("n2", "third", labels={"app": "noise"}),
        ],
    ),
    "a node joins the enforced affinity": missed(
        NODE_AFFINITY, waiter(), comes("nodes", node("n1", {"deck": "one"})), nodes=[node("n1")]
    ),
    "a node with ignored resources": missed(
        IGNORING,
        asking(waiter(), cpu="3", example_com__gpu="1"),
        comes("nodes", node("n2")),
        nodes=[node("n1", allocatable={"cpu": "1"})],
    ),
    "a node whose resource devices stand for": missed(
        FIT,
        asking(waiter(), cpu="3", example_com__gpu="1"),
        comes("nodes", node("n2")),
        nodes=[node("n1", allocatable={"cpu": "1"})],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES[:1],
    ),
    "a disk of another namespace": missed(
        RESTRICTIONS,
        mounting(waiter(), disk()),
        gone("pods", on("n1", "first", namespace="other")),
        nodes=[node("n1")],
        pods=[mounting(on("n1", "first", namespace="other"), disk())],
    ),
    "a node goes with the pod that has the claim": missed(
        RESTRICTIONS,
        mounting(waiter(), claimed()),
        gone("nodes", node("n1")),
        nodes=[node("n1"), node("n2")],
        pods=[mounting(on("n1", "first"), claimed())],
        persistentvolumeclaims=[claim("c1", "pv-1", mode="ReadWriteOncePod")],
    ),
    **{
        f"a limit of volumes no longer holds: {name}": missed(
            LIMITS,
            mounting(waiter(), claimed()),
            change,
            nodes=[node("n1")],
            pods=[mounting(on("n1", "first"), claimed("c2"))],
            persistentvolumeclaims=[claim("c1", "pv-1"), claim("c2", "pv-2")],
            persistentvolumes=[volume("pv-1"), volume("pv-2")],
            storage_k8s_io__csinodes=[csi_node("n1", 1)],
        )
        for name, change in {
            "unlimited": comes("storage.k8s.io/csinodes", csi_node("n1", None)),
            "deleted": gone("storage.k8s.io/csinodes", csi_node("n1", 1)),
            "a new node": comes("nodes", node("n2")),
            "the volume is there": comes("pods", mounting(on("n1", "second"), claimed())),
        }.items()
    },
    **{
        f"a driver no longer counts its room: {name}": missed(
            BINDING,
            mounting(waiter(), claimed()),
            change,
            nodes=[node("n1", {"zone": "a"})],
            persistentvolumeclaims=[claim("c1")],
            storage_k8s_io__storageclasses=[storage("StorageClass", "slow", **DELAYED)],
            storage_k8s_io__csidrivers=[tracking("csi.example.com", tracks=True)],
        )
        for name, change in {
            "updated": comes("storage.k8s.io/csidrivers", tracking("csi.example.com", tracks=False)),
            "deleted": gone("storage.k8s.io/csidrivers", tracking("csi.example.com", tracks=True)),
        }.items()
    },
    "a claim goes with its devices": missed(
        DEVICES,
        DEVICES.waiters[0],
        gone("resource.k8s.io/resourceclaims", claim_of_devices("theirs")),
        nodes=[node("n1")],
        resource_k8s_io__resourceclaims=[
            claim_of_devices("mine"),
            claim_of_devices("theirs", allocated="d0"),
        ],
        resource_k8s_io__resourceslices=[slice_of("s1", "d0")],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES[1:],
    ),
}


@pytest.mark.parametrize("name", MISSED)
async def test_a_change_that_version_1_36_misses_wakes_the_pod(name: str) -> None:
    case = MISSED[name]
    was_placed, woken, expected = await outcome(case.situations, case.waiting, case.before, case.step)
    assert (was_placed, woken, expected) == (False, True, True)
