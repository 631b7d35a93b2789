"""`Storage`: the storage classes, claims and volumes of a life.

Called by `world`. The embedded cluster's `VolumeController` provisions and binds, as on a real cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from berth_host.errors.cluster import ClusterError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.server import ApiServer
from berth_sim.cluster.volume_controller import VolumeController

Json: TypeAlias = dict[str, Any]
CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
USED_WITHIN_S: Final = 300.0
"""Seconds within which the pods of a new claim exist; a claim without pods is deleted later."""
_CLASSES: Final = {
    "later": ("life.berth.io", "WaitForFirstConsumer"),
    "at-once": ("life.berth.io", "Immediate"),
    "made-before": ("kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
}
"""By the class's name: its provisioner, and when it binds."""
_MADE_BEFORE: Final = "made-before"
_FREE: Final = 1
"""Volumes of the class `made-before` that each zone has for new claims."""


class Storage:
    """The storage. It is scarce until `make_room`: the class `made-before` has few volumes."""

    def __init__(self, server: ApiServer, zone_label: str, zones: Sequence[str]) -> None:
        """`zone_label`: of the nodes. `zones`: its values."""
        self._server = server
        self._zone_label = zone_label
        self._zones = zones
        self._controller = VolumeController(server)
        self._late: list[Json] = []
        """Claims that are created after their pods."""
        self._users: dict[str, tuple[float, Sequence[str]]] = {}
        """By claim: when it was drawn, and the names of its pods."""
        self._count = 0

    def begin(self) -> None:
        """Create the classes and the first volumes, and start the controller."""
        for name, (provisioner, mode) in _CLASSES.items():
            self._server.create(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": name},
                    "provisioner": provisioner,
                    "volumeBindingMode": mode,
                }
            )
        self._controller.start()
        self._top_up(_FREE)

    def end(self) -> None:
        """Stop the controller."""
        self._controller.stop()

    def claims_for(self, chance: random.Random, pods: Sequence[str]) -> dict[str, Json]:
        """Draw claims for new pods; return the fields of each pod's spec, by the pod's name.

        Each pod has a claim of its own, or all share one. Some claims are created after their pods.
        """
        storage_class = chance.choice(tuple(_CLASSES))
        is_shared = chance.random() < 0.3
        specs: dict[str, Json] = {}
        for pod in pods:
            name = f"{pods[0] if is_shared else pod}-data"
            if name not in self._users:
                users = tuple(pods) if is_shared else (pod,)
                self._users[name] = asyncio.get_running_loop().time(), users
                claim = _claim(name, storage_class)
                if chance.random() < 0.2:
                    self._late.append(claim)
                else:
                    self._server.create(claim)
            volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
            specs[pod] = {"volumes": [volume]}
        return specs

    def collect(self) -> None:
        """Create what is late; delete the claims of pods that are gone, and the volumes of such claims."""
        for claim in self._late:
            self._server.create(claim)
        self._late.clear()
        pods = {pod.ref.name for pod in self._server.list("pods")}
        new_since_s = asyncio.get_running_loop().time() - USED_WITHIN_S
        for name, (drawn_s, users) in list(self._users.items()):
            if drawn_s < new_since_s and pods.isdisjoint(users):
                del self._users[name]
                self._delete(CLAIMS, ObjectRef(name=name, namespace="default"))
        self._reclaim()
        self._top_up(_FREE)

    def make_room(self) -> None:
        """Create a volume in each zone for every claim that has none yet."""
        self.collect()
        self._top_up(sum(not claim.get("spec.volumeName") for claim in self._server.list(CLAIMS)))

    def delete_everything(self) -> None:
        """Delete all claims and volumes."""
        self._late.clear()
        self._users.clear()
        for claim in self._server.list(CLAIMS):
            self._delete(CLAIMS, claim.ref)
        for volume in self._server.list(VOLUMES):
            self._delete(VOLUMES, volume.ref)

    def _reclaim(self) -> None:
        uids = {claim.ref.uid for claim in self._server.list(CLAIMS)}
        for volume in self._server.list(VOLUMES):
            if volume.get("spec.claimRef") and volume.get("spec.claimRef.uid") not in uids:
                self._delete(VOLUMES, volume.ref)

    def _top_up(self, wanted: int) -> None:
        """Create volumes of the class `made-before`, so that each zone has so many without a claim."""
        free = Counter(
            volume.get("metadata.labels.zone")
            for volume in self._server.list(VOLUMES)
            if not volume.get("spec.claimRef")
        )
        for zone in self._zones:
            for _ in range(wanted - free[zone]):
                self._count += 1
                self._server.create(self._volume(f"volume-{self._count}", zone))

    def _volume(self, name: str, zone: str) -> Json:
        here = {"key": self._zone_label, "operator": "In", "values": [zone]}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"zone": zone}},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": _MADE_BEFORE,
                "csi": {"driver": "life.berth.io", "volumeHandle": name},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }

    def _delete(self, resource: str, ref: ObjectRef) -> None:
        # The controller may have taken it away.
        with suppress(ClusterError):
            self._server.delete(resource, ObjectRef(name=ref.name, namespace=ref.namespace))


def _claim(name: str, storage_class: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": storage_class,
        },
    }


def unbound_volumes(server: ApiServer, pod: KubeObject) -> list[str]:
    """Return the pod's claims that are not bound to a volume which is bound to them."""
    wrong = []
    for one in pod.get("spec.volumes") or ():
        name = (one.get("persistentVolumeClaim") or {}).get("claimName")
        if not name:
            continue
        claim = server.get(CLAIMS, ObjectRef(name=name, namespace=pod.ref.namespace))
        named = claim.get("spec.volumeName") if claim is not None else ""
        volume = server.get(VOLUMES, ObjectRef(name=named)) if named else None
        if claim is None or volume is None or volume.get("spec.claimRef.uid") != claim.ref.uid:
            wrong.append(name)
    return wrong


def half_bound_volumes(server: ApiServer) -> list[str]:
    """Return the volumes that name a claim which does not name them."""
    claims = {claim.ref.uid: claim.get("spec.volumeName") for claim in server.list(CLAIMS)}
    return [
        volume.ref.name
        for volume in server.list(VOLUMES)
        if volume.get("spec.claimRef") and claims.get(volume.get("spec.claimRef.uid")) != volume.ref.name
    ]
