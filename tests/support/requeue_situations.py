"""Clusters on which a pod waits that one default plugin rejects, and the changes that may let it in.

`outcome` makes one change on a whole host, and asks a host that starts after the change where it would put
the pod. The plugin runs in process, or in another process at `endpoint`. Used by `test_requeued_pods` and
`test_missed_requeues`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth_host.plugins.registry import ClassRegistry, points_of_class
from berth_sdk.kube_object import ObjectRef
from support.hosts import World, pod
from support.requeue_objects import (
    DEVICE_CLASSES,
    FEATURE,
    GPU,
    TEAM,
    ZONE,
    ZONES,
    Json,
    asking,
    attachment,
    away,
    capacity,
    claim,
    claim_of_devices,
    claimed,
    controller,
    csi_node,
    declaring,
    disk,
    ending,
    lingering,
    made_for,
    mounting,
    namespace,
    near,
    node,
    on,
    owned_by,
    reachable_from,
    running_with,
    service,
    slice_of,
    spread,
    storage,
    taint_rule,
    term,
    tracking,
    volume,
    waiter,
    with_port,
    with_uid,
)

ALWAYS = {("namespaces", "", "default")}
"""Objects that every cluster has."""


WAITER = ("pods", "default", "waiter")


Key = tuple[str, str, str]
"""(resource, namespace, name)."""


@dataclass(frozen=True, slots=True)
class Situations:
    """The clusters that one plugin is tried on: by key, the objects that may stand there. `updates`: the
    waiting pod before and after an update of its own."""

    plugin: str
    waiters: Sequence[Json]
    objects: Mapping[Key, Sequence[Json]]
    args: str = ""
    updates: Sequence[tuple[Json, Json]] = ()

    @property
    def title(self) -> str:
        return self.plugin + self.args[:9]

    def configuration(self, endpoint: str = "") -> str:
        """Return the text of a configuration. `endpoint`: where the plugin is served; empty: in process."""
        args = f"  pluginConfig: [{{name: {self.plugin}, args: {self.args}}}]\n" if self.args else ""
        return (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
            "- plugins:\n    preBind: {disabled: [{name: '*'}]}\n"
            "    multiPoint:\n      disabled: [{name: '*'}]\n"
            f"      enabled: [{{name: PrioritySort}}, {{name: {self.plugin}}}, {{name: DefaultBinder}}]\n"
            f"{args}{self._served_at(endpoint) if endpoint else ''}"
        )

    def _served_at(self, endpoint: str) -> str:
        # Decisions are compared, not times, and machines may be busy.
        cls = ClassRegistry().find(self.plugin)
        assert cls is not None
        points = {*points_of_class(self.plugin, cls), "queueingHints"}
        deadlines = ", ".join(f"{point}: {{deadline: 10s}}" for point in sorted(points))
        return (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
            "cycleBudget: 60s\nplugins:\n"
            f"- {{name: {self.plugin}, endpoint: '{endpoint}', points: {{{deadlines}}}}}\n"
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


NODES = [node(name, labels) for name in ("n1", "n2") for labels in ZONES]


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
    updates=[
        (waiter(labels={"app": before}, affinity=affinity), waiter(labels={"app": after}, affinity=affinity))
        for before, after in (("web", "x"), ("x", "web"))
        for affinity in ({}, near(term(app="web")))
    ],
)


WEB = {"app": "web", "tier": "x"}
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
            version(on(where, name, labels={"app": app, "rev": "1"}))
            for where, name in (("n1", "first"), ("n1", "second"), ("n2", "third"))
            for app in ("web", "db")
            for version in (lingering, ending)
        ],
    ),
    updates=[
        (
            waiter(labels={"app": "web", "rev": "1"}, topologySpreadConstraints=[constraint]),
            waiter(labels=labels, topologySpreadConstraints=[constraint], **more),
        )
        for constraint, labels, more in (
            (spread(), {"app": "db"}, {}),
            (
                spread(nodeTaintsPolicy="Honor", minDomains=2),
                {"app": "web", "rev": "1"},
                {"tolerations": [{"key": "t", "operator": "Exists"}]},
            ),
        )
    ],
)
OWNERS = ("ReplicaSet", "StatefulSet", "ReplicationController")
DEFAULT_SPREAD = Situations(
    "PodTopologySpread",
    waiters=[waiter(labels=WEB), *(owned_by(kind, "one", waiter(labels=WEB)) for kind in OWNERS)],
    objects=by_key(
        nodes=[node("n1", {"zone": "a"}), node("n2", {"zone": "b"}), node("n2")],
        pods=[
            version(on(where, name, labels=labels))
            for where, name in (("n1", "first"), ("n2", "second"))
            for labels in (WEB, {"app": "db"})
            for version in (lingering, ending)
        ],
        services=[service("front", app="web"), service("front", tier="x"), service("front", app="db")],
        **{
            resource: [controller(kind, "one", app="web"), controller(kind, "one", app="web", tier="x")]
            for resource, kind in zip(
                ("apps__replicasets", "apps__statefulsets", "replicationcontrollers"), OWNERS, strict=True
            )
        },
    ),
    args="{defaultingType: List, defaultConstraints: "
    "[{maxSkew: 1, topologyKey: zone, minDomains: 2, whenUnsatisfiable: DoNotSchedule}]}",
    updates=[
        (
            owned_by("ReplicaSet", "one", waiter(labels=WEB)),
            owned_by("ReplicaSet", "two", waiter(labels=WEB)),
        ),
        (waiter(labels=WEB), waiter(labels={"app": "db"})),
    ],
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
    updates=[(waiter(), waiter(tolerations=[{"key": "t", "operator": "Exists"}]))],
)


CORDONS = Situations(
    "NodeUnschedulable",
    waiters=[waiter()],
    objects=by_key(nodes=[node("n1"), node("n1", unschedulable=True), node("n2", unschedulable=True)]),
    updates=[
        (
            waiter(),
            waiter(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        )
    ],
)
GATES = Situations(
    "SchedulingGates",
    waiters=[waiter(schedulingGates=[{"name": "example.com/one"}])],
    objects=by_key(nodes=[node("n1")]),
    updates=[
        (waiter(schedulingGates=[{"name": name} for name in before]), waiter(schedulingGates=after))
        for before in (("example.com/one",), ("example.com/one", "example.com/two"))
        for after in ([], [{"name": "example.com/one"}])
    ],
)


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
            *(running_with(asking(on("n1", "first"), cpu="1"), actual) for actual in ("1", "3")),
            *(asking(on("n2", "second"), cpu=cpu) for cpu in ("4", "1")),
        ],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES,
    ),
    updates=[(asking(waiter(), cpu="3"), asking(waiter(), cpu="1"))],
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
        storage_k8s_io__volumeattachments=[
            attachment("theirs", "pv-2", "n1"),
            attachment("theirs", "pv-2", "n2"),
            attachment("ours", "pv-1", "n1"),
            attachment("ours", "pv-1", "n2"),
        ],
    ),
)


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


GENERATED = {"name": "g", "resourceClaimName": "mine"}
TEMPLATED = with_uid(waiter(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]))
MADE_FOR_IT = made_for(TEMPLATED, claim_of_devices("mine"))
DEVICES = Situations(
    "DynamicResources",
    waiters=[pod("waiter", resourceClaims=[{"name": "g", "resourceClaimName": "mine"}])],
    objects=by_key(
        nodes=[node("n1")],
        resource_k8s_io__resourceclaims=[
            claim_of_devices("mine"),
            MADE_FOR_IT,
            claim_of_devices("theirs", allocated="d0"),
            claim_of_devices("theirs"),
        ],
        resource_k8s_io__resourceslices=[
            slice_of("s1", "d0"),
            slice_of("s1", "d0", "d1"),
            slice_of("s2", "d1"),
        ],
        resource_k8s_io__deviceclasses=DEVICE_CLASSES,
        resource_k8s_io__devicetaintrules=[taint_rule("broken", "d0"), taint_rule("broken", "d1")],
    ),
    updates=[(TEMPLATED, {**TEMPLATED, "status": {"resourceClaimStatuses": [GENERATED]}})],
)
FEATURES = Situations(
    "NodeDeclaredFeatures",
    waiters=[waiter(hostNetwork=True, hostUsers=False)],
    objects=by_key(nodes=[declaring(), declaring(FEATURE)]),
)


ALL = [
    AFFINITY, SPREAD, DEFAULT_SPREAD, NODE_AFFINITY, TAINTS, CORDONS, GATES, PORTS, FIT, IGNORING,
    RESTRICTIONS, LIMITS, VOLUME_ZONES, BINDING, DEVICES, FEATURES,
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
        ref = ObjectRef(name=name, namespace=where)
        old, new = self.before, self.after
        if old is not None and (new is None or self.replaced):
            world.server.delete(resource, ref)
            if _finalizers(old):
                kept = world.server.get(resource, ref)
                assert kept is not None
                world.server.update(
                    {**kept.parsed, "metadata": {**kept.parsed["metadata"], "finalizers": []}}
                )
        if new is None:
            return
        # A pod brings its namespace along where it is missing.
        if world.server.get(resource, ref) is None:
            world.server.create(new, restore=True)
            return
        if is_ending(new) and not (old and is_ending(old)):
            world.server.delete(resource, ref)
        if resource == "pods":
            world.server.update(new, subresource="resize")
        world.server.update(new)
        if "status" in new or (old and "status" in old):
            world.server.update({**new, "status": new.get("status", {})}, subresource="status")


def is_ending(item: Json) -> bool:
    return "deletionTimestamp" in item["metadata"]


def _finalizers(item: Json) -> Any:
    return item["metadata"].get("finalizers")


def may_update(old: Json, new: Json) -> bool:
    """Return True when an API server takes `new` as an update of the pod `old`."""
    if is_ending(old) and not is_ending(new):
        return False
    if old["metadata"].get("ownerReferences") != new["metadata"].get("ownerReferences"):
        return False
    return _fixed(old) == _fixed(new)


def _fixed(item: Json) -> Json:
    containers = [{**one, "resources": {}} for one in item["spec"]["containers"]]
    return {**item["spec"], "containers": containers}


def start(
    objects: Mapping[Key, Json], waiting: Json, situations: Situations, endpoint: str, emulated_version: str
) -> World:
    """Return a host on these objects, with the waiting pod."""
    world = World(configuration=situations.configuration(endpoint), emulated_version=emulated_version)
    # A pod brings its namespace along where it is missing.
    for key in sorted(objects, key=lambda one: one[0] != "namespaces"):
        world.server.create(objects[key], restore=True)
    world.server.create(waiting, restore=True)
    return world


def node_of_waiter(world: World) -> str:
    resource, where, name = WAITER
    found = world.server.get(resource, ObjectRef(name=name, namespace=where))
    assert found is not None
    return str(found.get("spec.nodeName") or "")


async def outcome(
    situations: Situations,
    waiting: Json,
    before: Mapping[Key, Json],
    step: Step,
    endpoint: str = "",
    *,
    emulated_version: str = "",
) -> tuple[bool, bool, bool]:
    """Return whether the pod is placed before the change, after it, and by a host that starts after it."""
    async with start(before, waiting, situations, endpoint, emulated_version) as world:
        await world.settle()
        if node_of_waiter(world):
            return True, True, True
        step.make(world)
        await world.settle()
        if node_of_waiter(world):
            return False, True, True
    after = {key: item for key, item in before.items() if key != step.key}
    if step.after is not None:
        if step.key == WAITER:
            waiting = step.after
        else:
            after[step.key] = step.after
    async with start(after, waiting, situations, endpoint, emulated_version) as late:
        await late.settle()
        return False, False, bool(node_of_waiter(late))
