"""`VolumeController`: the volume controllers of the embedded cluster.

Run by `berth simulate` and `why`, and by tests. Without this controller a claim never gets a volume. It is
the PersistentVolume controller, the ephemeral volume controller, and the provisioner of every StorageClass.
Provisioning always succeeds: the usage of a CSIStorageCapacity is not counted.

    a pod with a generic ephemeral volume       gets the claim for it
    a volume without a claim                    becomes Available
    a claim whose class binds at once           gets the smallest free volume, else a new one
    a claim with a selected node                gets a new volume that this node can reach
    a volume that names a claim (PreBind)       the two are bound

Source: `pkg/controller/volume/{persistentvolume/pv_controller,ephemeral/controller}.go`, v1.36.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_host.cluster.port import WatchEvent
from berth_host.errors.cluster import ClusterError
from berth_host.log import get_logger
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.quantity import nano_value
from berth_sdk.selectors import LabelSelector

from berth_sim.cluster.server import ApiServer

log = get_logger()

PODS: Final = "pods"
CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
_RESOURCES: Final = {"Pod": PODS, "PersistentVolume": VOLUMES, "PersistentVolumeClaim": CLAIMS}
_CLASSES: Final = "storage.k8s.io/storageclasses"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ZONE: Final = "topology.kubernetes.io/zone"
Json = dict[str, Any]


class VolumeController:
    """The controller, started within an event loop.

    It acts in a later turn of the loop after a change, never inside the change.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._pending: deque[tuple[str, ObjectRef]] = deque()
        self._turn_is_due = False
        self._unsubscribe: Callable[[], None] | None = None
        self._look_at = {
            PODS: self._look_at_pod,
            VOLUMES: self._look_at_volume,
            CLAIMS: self._look_at_claim,
        }

    def start(self) -> None:
        """Handle all existing objects, and every change from now on."""
        self._unsubscribe = self._server.store.subscribe(self._see)
        for resource in (PODS, VOLUMES, CLAIMS):
            self._pending.extend((resource, item.ref) for item in self._server.list(resource))
        self._turn()

    @property
    def is_idle(self) -> bool:
        """True if every change seen so far is handled."""
        return not self._pending and not self._turn_is_due

    def stop(self) -> None:
        """Stop binding and creating volumes."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._unsubscribe = None
        self._pending.clear()

    def _see(self, event: WatchEvent) -> None:
        resource = _RESOURCES.get(event.kind)
        # A pod's volumes never change, so a pod is handled only when it is created.
        if event.new is None or resource is None or (resource == PODS and event.old is not None):
            return
        self._pending.append((resource, event.new.ref))
        if not self._turn_is_due:
            self._turn_is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        for _ in range(len(self._pending)):
            if not self._pending:
                return
            resource, ref = self._pending.popleft()
            item = self._server.get(resource, ref)
            if item is None:
                continue
            try:
                self._look_at[resource](item)
            except ClusterError as err:
                log.warning("volume.not_bound", object=ref.key, error=str(err))

    def _look_at_pod(self, pod: KubeObject) -> None:
        for volume in pod.get("spec.volumes", []):
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            name = f"{pod.ref.name}-{volume.get('name')}"
            ref = ObjectRef(name=name, namespace=pod.ref.namespace)
            if template is not None and self._server.get(CLAIMS, ref) is None:
                self._server.create(_ephemeral_claim(pod, name, template))

    # --- volumes -----------------------------------------------------------------------------------

    def _look_at_volume(self, volume: KubeObject) -> None:
        claim_ref = volume.get("spec.claimRef")
        if claim_ref is None:
            if volume.get("status.phase") not in ("Available", "Released", "Failed"):
                self._say_phase(VOLUMES, volume.ref, "Available")
            return
        ref = ObjectRef(name=claim_ref.get("name") or "", namespace=claim_ref.get("namespace") or "")
        claim = self._server.get(CLAIMS, ref)
        if claim is not None and claim_ref.get("uid") in (None, "", claim.ref.uid):
            self._bind(volume, claim)

    def _bind(self, volume: KubeObject, claim: KubeObject) -> None:
        named = claim.get("spec.volumeName", "")
        if named not in ("", volume.ref.name):
            return
        self._write(VOLUMES, volume, _claim_reference(claim), _BY_CONTROLLER)
        self._write(CLAIMS, claim, {"spec": {"volumeName": volume.ref.name}}, _BIND_COMPLETED)
        for resource, ref in ((VOLUMES, volume.ref), (CLAIMS, claim.ref)):
            self._say_phase(resource, ref, "Bound")

    # --- claims ------------------------------------------------------------------------------------

    def _look_at_claim(self, claim: KubeObject) -> None:
        named = claim.get("spec.volumeName", "")
        if named:
            volume = self._server.get(VOLUMES, ObjectRef(name=named))
            if volume is not None and claim.get("metadata.annotations", {}).get(_BIND_COMPLETED) is None:
                self._bind(volume, claim)
            return
        class_name = claim.get("spec.storageClassName", "")
        found = self._server.get(_CLASSES, ObjectRef(name=class_name)) if class_name else None
        node_name = claim.get("metadata.annotations", {}).get(_SELECTED_NODE)
        waits = found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"
        if waits and node_name is None:
            return
        volume = None if waits else self._free_volume(claim, class_name)
        if (
            volume is None
            and found is not None
            and found.get("provisioner") not in (None, "", _NO_PROVISIONER)
        ):
            node = self._server.get("nodes", ObjectRef(name=node_name)) if node_name else None
            volume = self._server.create(_new_volume(claim, found, node))
        if volume is not None:
            self._bind(volume, claim)

    def _free_volume(self, claim: KubeObject, class_name: str) -> KubeObject | None:
        wanted = nano_value(claim.get("spec.resources.requests.storage", 0))
        raw = claim.get("spec.selector")
        selector = None if raw is None else LabelSelector.of(raw)
        modes = set(claim.get("spec.accessModes", []))
        free = [
            volume
            for volume in self._server.list(VOLUMES)
            if volume.get("spec.claimRef") is None
            and volume.get("metadata.deletionTimestamp") is None
            and volume.get("spec.storageClassName", "") == class_name
            and _size(volume) >= wanted
            and modes <= set(volume.get("spec.accessModes", []))
            and volume.get("spec.volumeMode", "Filesystem") == claim.get("spec.volumeMode", "Filesystem")
            and (selector is None or selector.matches(volume.get("metadata.labels", {})))
        ]
        return min(free, key=lambda volume: (_size(volume), volume.ref.name), default=None)

    # --- writing -----------------------------------------------------------------------------------

    def _write(self, resource: str, item: KubeObject, change: Json, annotation: str) -> None:
        patch = {**change, "metadata": {"annotations": {annotation: "yes"}}}
        self._server.patch(resource, item.ref, patch)

    def _say_phase(self, resource: str, ref: ObjectRef, phase: str) -> None:
        self._server.patch(resource, ref, {"status": {"phase": phase}}, subresource="status")


def _size(volume: KubeObject) -> int:
    return nano_value(volume.get("spec.capacity.storage", 0))


def _claim_reference(claim: KubeObject) -> Json:
    ref = claim.ref
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": ref.namespace}
    return {"spec": {"claimRef": {**reference, "name": ref.name, "uid": ref.uid}}}


def _ephemeral_claim(pod: KubeObject, name: str, template: Mapping[str, Any]) -> Json:
    """Return the claim, owned by the pod, of one ephemeral volume of the pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.ref.name, "uid": pod.ref.uid, "controller": True}
    metadata = {**(template.get("metadata") or {}), "name": name, "namespace": pod.ref.namespace}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": template.get("spec") or {},
    }


def _new_volume(claim: KubeObject, storage_class: KubeObject, node: KubeObject | None) -> Json:
    """Return a volume of the claim's size.

    The volume can be used in the topology of the chosen node: by the keys of the class's allowedTopologies,
    else by its zone.
    """
    provisioner = storage_class.get("provisioner")
    name = f"pvc-{claim.ref.uid}"
    spec: Json = {
        "accessModes": claim.get("spec.accessModes", []),
        "capacity": {"storage": claim.get("spec.resources.requests.storage", "0")},
        "csi": {"driver": provisioner, "volumeHandle": name},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class.ref.name,
        "volumeMode": claim.get("spec.volumeMode", "Filesystem"),
        **_claim_reference(claim)["spec"],
    }
    if attributes := claim.get("spec.volumeAttributesClassName"):
        spec["volumeAttributesClassName"] = attributes
    labels: Mapping[str, str] = {} if node is None else node.get("metadata.labels", {})
    terms = storage_class.get("allowedTopologies", [])
    keys = {one["key"] for term in terms for one in term.get("matchLabelExpressions") or ()} or {_ZONE}
    where = [{"key": key, "operator": "In", "values": [labels[key]]} for key in sorted(keys) if key in labels]
    if where:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": where}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {_PROVISIONED_BY: provisioner}},
        "spec": spec,
    }
