"""The verdicts of the volume plugins on one node, written as plainly as can be, for comparison.

Works on manifests. Written from kube-scheduler 1.36's rules, apart from the plugins: node by node, pod by
pod, volume by volume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth_sdk.quantity import nano_value
from support.storage import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    CSI_CAPACITIES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
)

Json = Mapping[str, Any]
Verdict = tuple[str, tuple[str, ...]] | None
UNRESOLVABLE = "UnschedulableAndUnresolvable"
ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


@dataclass
class Cluster:
    """Nodes and pods on them by node name, and objects by resource and key."""

    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, list[Json]] = field(default_factory=dict)
    objects: dict[str, dict[tuple[str, str], Json]] = field(default_factory=dict)

    def get(self, resource: str, name: str, namespace: str = "") -> Json | None:
        return self.objects.get(resource, {}).get((namespace, name))

    def all(self, resource: str) -> list[Json]:
        return [item for _, item in sorted(self.objects.get(resource, {}).items())]


def labels_of(node: Json) -> Mapping[str, str]:
    return dict(node["metadata"].get("labels") or {})


def name_of(item: Json) -> str:
    return str(item["metadata"]["name"])


def claim_names(pod: Json) -> list[str]:
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    ]


def not_found(name: str) -> Verdict:
    return UNRESOLVABLE, (f'persistentvolumeclaim "{name}" not found',)


# --- VolumeRestrictions ----------------------------------------------------------------------------


def restrictions(cluster: Cluster, pod: Json, node: str, on_node: Sequence[Json], less: int = 0) -> Verdict:
    """`on_node`: the pods that the node has (or would have); `less`: how many uses of claims have gone."""
    alone = set()
    for name in claim_names(pod):
        claim = cluster.get(CLAIMS, name, "default")
        if claim is None:
            return not_found(name)
        if "ReadWriteOncePod" in claim["spec"]["accessModes"]:
            alone.add(name)
    used = {name for pods in cluster.pods.values() for other in pods for name in claim_names(other)}
    for volume in pod["spec"].get("volumes") or ():
        mine = volume.get("gcePersistentDisk")
        for other in on_node:
            for theirs in (one.get("gcePersistentDisk") for one in other["spec"].get("volumes") or ()):
                same = mine and theirs and mine["pdName"] == theirs["pdName"]
                if same and not (mine.get("readOnly") and theirs.get("readOnly")):
                    return "Unschedulable", ("node(s) had no available disk",)
    if len(alone & used) - less > 0:
        return "Unschedulable", (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already"
            " in-use by another pod",
        )
    return None


def uses_of(cluster: Cluster, pod: Json, pods: Sequence[Json]) -> int:
    """How many volumes of `pods` are claims of `pod` for one pod alone."""
    alone = {
        name
        for name in claim_names(pod)
        if (claim := cluster.get(CLAIMS, name, "default")) is not None
        and "ReadWriteOncePod" in claim["spec"]["accessModes"]
    }
    return sum(name in alone for other in pods for name in claim_names(other))


# --- NodeVolumeLimits ------------------------------------------------------------------------------


def _unique(cluster: Cluster, name: str) -> tuple[str, str] | None:
    claim = cluster.get(CLAIMS, name, "default")
    assert claim is not None
    volume = cluster.get(VOLUMES, claim["spec"].get("volumeName", ""))
    if volume is not None:
        source = volume["spec"].get("csi")
        if source:
            return source["driver"], source["volumeHandle"]
        if "gcePersistentDisk" in volume["spec"]:
            zone = (volume["metadata"].get("labels") or {}).get(ZONES[0], "UNSPECIFIED")
            if "__" in zone:
                return None  # the region of such zones cannot be told from their names
            disk = volume["spec"]["gcePersistentDisk"]["pdName"]
            return "pd.csi.storage.gke.io", f"projects/UNSPECIFIED/zones/{zone}/disks/{disk}"
        return None
    storage_class = cluster.get(CLASSES, claim["spec"].get("storageClassName") or "")
    return None if storage_class is None else (storage_class["provisioner"], f"new-{name}")


def limits(cluster: Cluster, pod: Json, node: str, on_node: Sequence[Json]) -> Verdict:
    new: set[tuple[str, str]] = set()
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            name = volume["persistentVolumeClaim"]["claimName"]
            if cluster.get(CLAIMS, name, "default") is None:
                text = f'looking up PVC default/{name}: persistentvolumeclaim "{name}" not found'
                return UNRESOLVABLE, (text,)
            found = _unique(cluster, name)
        else:
            found = _inline(volume)
        new |= {found} if found else set()
    csi_node = cluster.get(CSI_NODES, node)
    if not new or csi_node is None:
        return None
    attached = set()
    for other in on_node:
        for volume in other["spec"].get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                found = _unique(cluster, name) if cluster.get(CLAIMS, name, "default") else None
            else:
                found = _inline(volume)
            attached |= {found} if found else set()
    new -= attached
    for one in cluster.all(ATTACHMENTS):
        volume = cluster.get(VOLUMES, one["spec"]["source"]["persistentVolumeName"])
        if one["spec"]["nodeName"] == node and volume is not None and "csi" in volume["spec"]:
            attached.add((one["spec"]["attacher"], volume["spec"]["csi"]["volumeHandle"]))
    for driver in csi_node["spec"]["drivers"]:
        count = driver.get("allocatable", {}).get("count")
        more = sum(one[0] == driver["name"] for one in new)
        if count is not None and more and more + sum(one[0] == driver["name"] for one in attached) > count:
            return "Unschedulable", ("node(s) exceed max volume count",)
    return None


def _inline(volume: Json) -> tuple[str, str] | None:
    disk = volume.get("gcePersistentDisk")
    if disk is None:
        return None
    return "pd.csi.storage.gke.io", f"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{disk['pdName']}"


# --- VolumeZone ------------------------------------------------------------------------------------


def zone(cluster: Cluster, pod: Json, node: str, on_node: Sequence[Json]) -> Verdict:
    wanted: list[tuple[str, set[str]]] = []
    for name in claim_names(pod):
        claim = cluster.get(CLAIMS, name, "default")
        if claim is None:
            return not_found(name)
        volume_name = claim["spec"].get("volumeName")
        if not volume_name:
            problem = _zone_of_unbound(cluster, claim)
            if problem:
                return UNRESOLVABLE, (problem,)
            continue
        volume = cluster.get(VOLUMES, volume_name)
        if volume is None:
            return UNRESOLVABLE, (f'persistentvolume "{volume_name}" not found',)
        labels = volume["metadata"].get("labels") or {}
        wanted += [(key, set(labels[key].split("__"))) for key in ZONES if key in labels]
    here = labels_of(cluster.nodes[node])
    if not any(key in here for key in ZONES) or all(here.get(key) in values for key, values in wanted):
        return None
    return UNRESOLVABLE, ("node(s) had no available volume zone",)


def _zone_of_unbound(cluster: Cluster, claim: Json) -> str:
    name = claim["spec"].get("storageClassName") or ""
    if not name:
        return "PersistentVolumeClaim had no pv name and storageClass name"
    storage_class = cluster.get(CLASSES, name)
    if storage_class is None:
        return f'storageclass.storage.k8s.io "{name}" not found'
    delayed = storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
    return "" if delayed else "PersistentVolume had no name"


# --- VolumeBinding ---------------------------------------------------------------------------------


def binding(cluster: Cluster, pod: Json, node: str, on_node: Sequence[Json]) -> Verdict:
    bound: list[Json] = []
    waiting: list[Json] = []
    for name in claim_names(pod):
        claim = cluster.get(CLAIMS, name, "default")
        if claim is None:
            return not_found(name)
    for name in claim_names(pod):
        claim = cluster.get(CLAIMS, name, "default")
        assert claim is not None
        annotations = claim["metadata"].get("annotations") or {}
        storage_class = cluster.get(CLASSES, claim["spec"].get("storageClassName") or "")
        delayed = storage_class is not None and storage_class["volumeBindingMode"] == "WaitForFirstConsumer"
        if claim["spec"].get("volumeName") and "pv.kubernetes.io/bind-completed" in annotations:
            bound.append(claim)
        elif delayed and not claim["spec"].get("volumeName"):
            waiting.append(claim)
        else:
            return UNRESOLVABLE, ("pod has unbound immediate PersistentVolumeClaims",)
    labels = labels_of(cluster.nodes[node])
    reasons = [_bound_reason(cluster, bound, labels), *_waiting_reasons(cluster, waiting, labels, node)]
    order = ("didn't match", "didn't find", "did not have", "unavailable")
    shown = sorted(
        (one for one in reasons if one), key=lambda one: [word in one for word in order].index(True)
    )
    return (UNRESOLVABLE, tuple(shown)) if shown else None


def _bound_reason(cluster: Cluster, claims: Sequence[Json], labels: Mapping[str, str]) -> str:
    for claim in claims:
        volume = cluster.get(VOLUMES, claim["spec"]["volumeName"])
        if volume is None:
            return "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
        if not _reaches(volume, labels):
            return "node(s) didn't match PersistentVolume's node affinity"
    return ""


def _reaches(volume: Json, labels: Mapping[str, str]) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is None:
        return True
    return any(
        all(labels.get(one["key"]) in one["values"] for one in term["matchExpressions"])
        for term in affinity["required"]["nodeSelectorTerms"]
    )


def _size(amounts: Json | None) -> int:
    return nano_value((amounts or {}).get("storage", 0))


def _requested(claim: Json) -> int:
    return _size((claim["spec"].get("resources") or {}).get("requests"))


def _waiting_reasons(
    cluster: Cluster, claims: Sequence[Json], labels: Mapping[str, str], node: str
) -> list[str]:
    no_match = "node(s) didn't find available persistent volumes to bind"
    provision: list[Json] = []
    match: list[Json] = []
    for claim in claims:
        selected = (claim["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
        if selected is not None and selected != node:
            return [no_match]
        (match if selected is None else provision).append(claim)
    chosen: set[str] = set()
    for claim in sorted(match, key=_requested):
        volume = _match(cluster, claim, labels, chosen)
        if volume is None:
            provision.append(claim)
        else:
            chosen.add(name_of(volume))
    for claim in provision:
        storage_class = cluster.get(CLASSES, claim["spec"]["storageClassName"])
        assert storage_class is not None
        if storage_class["provisioner"] == "kubernetes.io/no-provisioner":
            return [no_match]
        terms = storage_class.get("allowedTopologies") or []
        if terms and not any(
            all(labels.get(one["key"]) in one["values"] for one in term["matchLabelExpressions"])
            for term in terms
        ):
            return [no_match]
        if not _has_room(cluster, claim, storage_class, labels):
            return ["node(s) did not have enough free storage"]
    return []


def _match(cluster: Cluster, claim: Json, labels: Mapping[str, str], chosen: set[str]) -> Json | None:
    spec = claim["spec"]
    in_order = sorted(
        cluster.all(VOLUMES), key=lambda volume: (_size(volume["spec"]["capacity"]), name_of(volume))
    )
    smallest: Json | None = None
    for volume in in_order:
        its = volume["spec"]
        ref = its.get("claimRef")
        own = ref is not None and ref["name"] == name_of(claim) and ref["namespace"] == "default"
        if (
            name_of(volume) in chosen
            or its.get("storageClassName") != spec.get("storageClassName")
            or (ref is not None and not own)
            or _size(its["capacity"]) < _requested(claim)
            or its.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem")
        ):
            continue
        if own:
            return volume if _reaches(volume, labels) else None
        fits = volume["status"]["phase"] == "Available" and _reaches(volume, labels)
        if fits and set(spec["accessModes"]) <= set(its["accessModes"]) and smallest is None:
            smallest = volume
    return smallest


def _has_room(cluster: Cluster, claim: Json, storage_class: Json, labels: Mapping[str, str]) -> bool:
    driver = cluster.get(CSI_DRIVERS, storage_class["provisioner"])
    if driver is None or not driver["spec"].get("storageCapacity"):
        return True
    return any(
        one["storageClassName"] == name_of(storage_class)
        and _size({"storage": one.get("maximumVolumeSize", one.get("capacity", 0))}) >= _requested(claim)
        and all(
            labels.get(key) == value for key, value in (one["nodeTopology"].get("matchLabels") or {}).items()
        )
        for one in cluster.all(CSI_CAPACITIES)
    )
