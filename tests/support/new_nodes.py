"""Random clusters, and questions about nodes that they lack, which concern every default Filter plugin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from berth_host.app import FrameworkAlone
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.scenarios import Scenario
from support import device_objects as devices
from support import storage

Json = dict[str, Any]
TEMPLATE: Final = "template"
ZONES: Final = ("a", "b")
DRIVER: Final = "csi.example.com"
FEATURE: Final = "RestartAllContainersOnContainerExits"


@dataclass(frozen=True, slots=True)
class Question:
    """A pod, and a node that does not exist, with the pods that would come with it."""

    pod: Pod
    scenario: Scenario


def _metadata(name: str, **labels: str) -> Json:
    return {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}


def node(random: Random, name: str, zones: Sequence[str] = ZONES) -> Node:
    """Return a node in one of the zones, or in none."""
    zone = random.choice((*zones, ""))
    labels = {"kubernetes.io/hostname": name} | (
        {"zone": zone, "topology.kubernetes.io/zone": zone} if zone else {}
    )
    allocatable = {"cpu": random.choice(("1", "4", "8")), "memory": "8Gi", "pods": random.choice(("2", "20"))}
    taints = [{"key": "t", "value": "x", "effect": "NoSchedule"}] if random.random() < 0.15 else []
    return Node.from_object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "spec": {"taints": taints, "unschedulable": random.random() < 0.08},
            "status": {
                "allocatable": allocatable,
                "declaredFeatures": [FEATURE] if random.random() < 0.5 else [],
            },
        }
    )


def _container(random: Random) -> Json:
    made: Json = {"name": "c", "image": "app"}
    if random.random() < 0.7:
        made["resources"] = {"requests": {"cpu": random.choice(("500m", "2", "5"))}}
    if random.random() < 0.5:
        made["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return made


def _affinity_term(random: Random) -> Json:
    key = random.choice(("zone", "kubernetes.io/hostname"))
    return {"labelSelector": {"matchLabels": {"app": random.choice("xy")}}, "topologyKey": key}


def _volumes(random: Random, names: Sequence[str]) -> list[Json]:
    volumes: list[Json] = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(names)
    ]
    if random.random() < 0.2:
        volumes.append({"name": "disk", "gcePersistentDisk": {"pdName": random.choice(("d0", "d1"))}})
    return volumes


def _pod(name: str, random: Random, node_name: str = "", *, claims: Sequence[str] = ()) -> Pod:
    spec: Json = {"containers": [_container(random)], "volumes": _volumes(random, claims)}
    if node_name:
        spec["nodeName"] = node_name
    if random.random() < 0.15:
        key = random.choice(("podAffinity", "podAntiAffinity"))
        spec["affinity"] = {key: {"requiredDuringSchedulingIgnoredDuringExecution": [_affinity_term(random)]}}
    return Pod.from_object(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _metadata(name, app=random.choice("xy")),
            "spec": spec,
        }
    )


def _waiting(random: Random, number: int) -> Pod:
    """Return a pod with one or two demands, so that each plugin is the first to reject now and then."""
    container = {"name": "c", "image": "app"}
    spec: Json = {"containers": [container]}
    for demand in random.sample(range(14), random.choice((1, 1, 2, 3))):
        match demand:
            case 0:
                spec["containers"] = [_container(random)]
            case 1:
                spec["nodeSelector"] = {"zone": random.choice((*ZONES, "new"))}
            case 2:
                spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
            case 3:
                spec["topologySpreadConstraints"] = [
                    {
                        "maxSkew": 1,
                        "topologyKey": random.choice(("zone", "kubernetes.io/hostname")),
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": random.choice("xy")}},
                    }
                ]
            case 4 | 5:
                key = "podAffinity" if demand == 4 else "podAntiAffinity"
                terms = {"requiredDuringSchedulingIgnoredDuringExecution": [_affinity_term(random)]}
                spec.setdefault("affinity", {})[key] = terms
            case 6 | 11 | 12:
                claims = [random.choice(("bound-a", "bound-b", "bound-b", "many-0", "many-0", "free"))]
                spec["volumes"] = _volumes(random, claims)
            case 7 | 13:
                spec["volumes"] = [{"name": "disk", "gcePersistentDisk": {"pdName": "d0"}}]
            case 8:
                spec["resourceClaims"] = [{"name": "c", "resourceClaimName": random.choice(("gpu", "taken"))}]
            case 9:
                spec["containers"] = [
                    {**container, "restartPolicyRules": [{"action": "RestartAllContainers"}]}
                ]
            case _:
                name = random.choice((TEMPLATE, "n0"))
                field = {"key": "metadata.name", "operator": "In", "values": [name]}
                required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
                spec.setdefault("affinity", {})["nodeAffinity"] = {
                    "requiredDuringSchedulingIgnoredDuringExecution": required
                }
    metadata = _metadata(f"web-{number}", app=random.choice("xy"))
    return Pod.from_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def question(random: Random, number: int) -> Question:
    """Return a question. The pods that come with the node use volumes, ports and disks of their own."""
    new = node(random, TEMPLATE, (*ZONES, "new"))
    pods = tuple(
        _pod(f"daemon-{number}-{i}", random, TEMPLATE, claims=[f"many-{i + 1}"])
        for i in range(random.choice((0, 1, 2)))
    )
    return Question(_waiting(random, number), Scenario(node=new, added=pods))


def world(seed: int, alone: FrameworkAlone) -> None:
    """Fill a framework with the cluster of a seed. It has the CSINode and the devices of the new node."""
    random = Random(seed)
    # With 16 nodes the new one makes the columns grow.
    names = [f"n{i}" for i in range(random.choice((1, 3, 5, 16)))]
    for name in names:
        alone.add_node(node(random, name))
    for i in range(random.randrange(10)):
        alone.add_pod(_pod(f"p{i}", random, random.choice(names)))
    many = [f"many-{i}" for i in range(3)]
    items: list[tuple[str, Json]] = [
        ("StorageClass", storage.storage_class()),
        ("StorageClass", storage.storage_class("at-once", mode="Immediate")),
        ("PersistentVolumeClaim", storage.claim("free", cls="at-once")),
        *(("PersistentVolumeClaim", storage.claim(f"bound-{zone}", bound_to=f"pv-{zone}")) for zone in "ab"),
        ("PersistentVolumeClaim", storage.claim("bound-new", bound_to="pv-new")),
        *(("PersistentVolumeClaim", storage.claim(name, bound_to=f"pv-{name}")) for name in many),
        ("PersistentVolume", storage.volume("pv-a", zones=["a"], bound_to="bound-a", phase="Bound")),
        (
            "PersistentVolume",
            storage.volume(
                "pv-b", labels={"topology.kubernetes.io/zone": "b"}, bound_to="bound-b", phase="Bound"
            ),
        ),
        ("PersistentVolume", storage.volume("pv-new", zones=["new"], bound_to="bound-new", phase="Bound")),
        *(
            (
                "PersistentVolume",
                storage.volume(f"pv-{name}", csi=storage.csi(f"h-{name}"), bound_to=name, phase="Bound"),
            )
            for name in many
        ),
        *(("CSINode", storage.csi_node(name, {DRIVER: 1})) for name in (*names, TEMPLATE)),
        ("DeviceClass", devices.device_class()),
        ("ResourceClaim", devices.claim("gpu")),
        ("ResourceClaim", devices.claim("taken", allocated=["n0/d0"])),
        ("ResourceSlice", devices.resource_slice("n0", [devices.device("d0")])),
    ]
    if random.random() < 0.5:
        items.append(("ResourceSlice", devices.resource_slice(TEMPLATE, [devices.device("d0")])))
    for kind, item in items:
        alone.objects.put(kind, KubeObject.of(item))
