"""PersistentVolumeClaims, PersistentVolumes and StorageClasses -> the records that the volume plugins read.

Quantities are exact, in billionths.

Source: core/v1 and storage/v1 types; component-helpers `storage/volume/{helpers,pv_helpers}.go` and
`storage/ephemeral/ephemeral.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from berth_sdk.errors import SelectorError
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.pod import Pod
from berth_sdk.pod_volume import EPHEMERAL, PERSISTENT_VOLUME_CLAIM, PodVolume
from berth_sdk.quantity import nano_value, wrapped_value
from berth_sdk.scenarios import Scenarios
from berth_sdk.selectors import LabelSelector, Operator, Requirement
from berth_sdk.slices import Work

from berth_plugins.objects.records import Late, Records

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
CLASSES: Final = "storage.k8s.io/storageclasses"
CSI_NODES: Final = "storage.k8s.io/csinodes"
ATTACHMENTS: Final = "storage.k8s.io/volumeattachments"
CSI_DRIVERS: Final = "storage.k8s.io/csidrivers"
CSI_CAPACITIES: Final = "storage.k8s.io/csistoragecapacities"

CLAIM_EVENT: Final = "PersistentVolumeClaim"
VOLUME_EVENT: Final = "PersistentVolume"
CLASS_EVENT: Final = "storage.k8s.io/StorageClass"
CSI_NODE_EVENT: Final = "storage.k8s.io/CSINode"
ATTACHMENT_EVENT: Final = "storage.k8s.io/VolumeAttachment"
CSI_DRIVER_EVENT: Final = "storage.k8s.io/CSIDriver"
CSI_CAPACITY_EVENT: Final = "storage.k8s.io/CSIStorageCapacity"

# The plugins read only identity and volumes of the pods on nodes.
POD_FIELDS_TO_DROP: Final = (
    "spec.affinity",
    "spec.containers",
    "spec.initContainers",
    "spec.ephemeralContainers",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "status",
    "metadata.annotations",
    "metadata.labels",
)

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_FILESYSTEM: Final = "Filesystem"
_STORAGE: Final = "storage"
_NOWHERE: Final = ""
_EVERY_NODE: Final[Late[NodeSelector | None]] = Late.known(None)


@dataclass(frozen=True, slots=True)
class Selection:
    """The volumes that a claim can get, by their labels. `selector` None: all. `error`: why the selector
    cannot be read.
    """

    selector: LabelSelector | None = None
    error: str = ""


_ANY_VOLUME: Final = Late.known(Selection())


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim. `requested_nano` None: it requests no storage. `selected_node` None: it has no
    such annotation. `owner_uid`: its controller. `selection`: the volumes that it can get.
    `requested_wrapped`: its bytes as kube-scheduler before 1.38 counts them (`wrapped_value`).
    """

    ref: ObjectRef
    class_name: str = ""
    volume_name: str = ""
    bind_completed: bool = False
    selected_node: str | None = None
    requested_nano: int | None = None
    requested_wrapped: int = 0
    access_modes: frozenset[str] = frozenset()
    volume_mode: str = _FILESYSTEM
    selection: Late[Selection]
    attributes_class: str = ""
    phase: str = ""
    deleting: bool = False
    owner_uid: str = ""
    has_annotations: bool = False

    @property
    def is_fully_bound(self) -> bool:
        """True if the claim names its volume, and the controller has finished."""
        return bool(self.volume_name) and self.bind_completed

    @staticmethod
    def of(item: KubeObject) -> Claim:
        """Read a claim. Raises ObjectError or QuantityError."""
        raw = item.parsed
        metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        requests = (spec.get("resources") or {}).get("requests") or {}
        selector = spec.get("selector")
        return Claim(
            ref=item.ref,
            class_name=_class_name(annotations, spec),
            volume_name=spec.get("volumeName") or "",
            bind_completed=BIND_COMPLETED in annotations,
            selected_node=annotations.get(SELECTED_NODE),
            requested_nano=nano_value(requests[_STORAGE]) if _STORAGE in requests else None,
            requested_wrapped=wrapped_value(requests.get(_STORAGE, 0)),
            access_modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=spec.get("volumeMode") or _FILESYSTEM,
            selection=_ANY_VOLUME if selector is None else Late(lambda: _selection(selector)),
            attributes_class=spec.get("volumeAttributesClassName") or "",
            phase=(raw.get("status") or {}).get("phase") or "",
            deleting=metadata.get("deletionTimestamp") is not None,
            owner_uid=_controller_uid(metadata),
            has_annotations=bool(annotations),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """The claim that a volume is for."""

    namespace: str
    name: str
    uid: str

    def means(self, claim: Claim) -> bool:
        """Return True if the reference is to this claim, by name, and by uid if given."""
        ref = claim.ref
        return (self.namespace, self.name) == (ref.namespace, ref.name) and self.uid in ("", ref.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolume. `affinity`: the nodes that can use it, None: all. `source`, `details`: where its
    data is. `capacity_wrapped`: its bytes as kube-scheduler before 1.38 counts them (`wrapped_value`).
    """

    ref: ObjectRef
    class_name: str = ""
    capacity_nano: int = 0
    capacity_wrapped: int = 0
    access_modes: frozenset[str] = frozenset()
    volume_mode: str = _FILESYSTEM
    attributes_class: str = ""
    claim_ref: ClaimRef | None = None
    bound_by_controller: bool = False
    phase: str = ""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: Late[NodeSelector | None]
    source: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(item: KubeObject) -> Volume:
        """Read a volume. Raises ObjectError or QuantityError."""
        raw = item.parsed
        metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        claim = spec.get("claimRef")
        required = (spec.get("nodeAffinity") or {}).get("required")
        capacity = (spec.get("capacity") or {}).get(_STORAGE) or 0
        source = next((name for name in _VOLUME_SOURCES if spec.get(name) is not None), "")
        return Volume(
            ref=item.ref,
            class_name=_class_name(annotations, spec),
            capacity_nano=nano_value(capacity),
            capacity_wrapped=wrapped_value(capacity),
            access_modes=frozenset(spec.get("accessModes") or ()),
            volume_mode=spec.get("volumeMode") or _FILESYSTEM,
            attributes_class=spec.get("volumeAttributesClassName") or "",
            claim_ref=None
            if claim is None
            else ClaimRef(
                namespace=claim.get("namespace") or "",
                name=claim.get("name") or "",
                uid=claim.get("uid") or "",
            ),
            bound_by_controller=BOUND_BY_CONTROLLER in annotations,
            phase=(raw.get("status") or {}).get("phase") or "",
            deleting=metadata.get("deletionTimestamp") is not None,
            labels=metadata.get("labels") or {},
            affinity=_EVERY_NODE if required is None else Late(lambda: volume_affinity(required)),
            source=source,
            details=spec.get(source) or {},
        )

    def claimed_by(self, claim: Claim) -> bool:
        """Return True if the volume is bound to or reserved for this claim."""
        return self.claim_ref is not None and self.claim_ref.means(claim)

    def reserved_for(self, claim: Claim) -> Volume:
        """Return the volume as it will be once it names the claim."""
        ref = ClaimRef(namespace=claim.ref.namespace, name=claim.ref.name, uid=claim.ref.uid)
        bound = self.bound_by_controller or not self.claimed_by(claim)
        return replace(self, claim_ref=ref, bound_by_controller=bound)


_VOLUME_SOURCES: Final = (
    "csi",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "cinder",
    "azureDisk",
    "azureFile",
    "vsphereVolume",
    "portworxVolume",
)
"""The sources that belong to one driver, or can be translated to one. Other sources are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """A StorageClass. `binding_mode` None: it was never set. `topologies`: selectors of nodes, one of which
    must match. None: volumes can be provisioned for every node.
    """

    name: str
    provisioner: str = ""
    binding_mode: str | None = None
    topologies: Late[tuple[LabelSelector, ...]] | None = None

    @staticmethod
    def of(item: KubeObject) -> StorageClass:
        """Read a class."""
        raw = item.parsed
        terms = raw.get("allowedTopologies") or ()
        return StorageClass(
            name=item.ref.name,
            provisioner=raw.get("provisioner") or "",
            binding_mode=raw.get("volumeBindingMode"),
            topologies=Late(lambda: _topologies(terms)) if terms else None,
        )

    @property
    def delays_binding(self) -> bool:
        """True if claims wait for the pod that uses them."""
        return self.binding_mode == WAIT_FOR_FIRST_CONSUMER


class Stores:
    """The records that several of the plugins read."""

    def __init__(self, handle: Handle) -> None:
        self.claims = Records(handle, CLAIMS, Claim.of)
        self.volumes = Records(handle, VOLUMES, Volume.of)
        self.classes = Records(handle, CLASSES, StorageClass.of)


def claim_volumes(pod: Pod, *, ephemeral: bool = True) -> list[PodVolume]:
    """Return the pod's volumes that use a claim. Without `ephemeral`: only those that name one."""
    wanted = (PERSISTENT_VOLUME_CLAIM, EPHEMERAL) if ephemeral else (PERSISTENT_VOLUME_CLAIM,)
    return [volume for volume in pod.volumes if volume.source in wanted]


def not_owned(pod: Pod, claim: Claim) -> str:
    """Return why a claim was not made for the pod's ephemeral volume. Empty: it was."""
    if claim.owner_uid and claim.owner_uid == pod.uid:
        return ""
    return f"PVC {claim.ref.key} was not created for pod {pod.key} (pod is not owner)"


def claim_not_found(name: str) -> str:
    """Return the API server's text for a missing claim."""
    return f'persistentvolumeclaim "{name}" not found'


def rows_with_storage(scenarios: Scenarios) -> list[int]:
    """Return the scenarios in which a pod with storage is removed or added. The others change nothing."""
    concerned = np.zeros(len(scenarios), dtype=np.bool_)
    for changes in (scenarios.removed, scenarios.added):
        codes, values = changes.table.encoded("berth/hasStorage", _has_storage)
        concerned |= changes.total(values.where(bool).take(codes).astype(np.int64)) > 0
    return np.flatnonzero(concerned).tolist()


def _has_storage(pod: Pod) -> bool | None:
    return bool(pod.volumes) or None


def names_claim(pod: Pod, item: KubeObject, *, ephemeral: bool) -> bool:
    """Return True if one of the pod's volumes is this claim: the hint of several plugins."""
    ref = item.ref
    return ref.namespace == pod.namespace and any(
        volume.claim == ref.name for volume in claim_volumes(pod, ephemeral=ephemeral)
    )


def volume_affinity(required: Mapping[str, Any]) -> Work[NodeSelector | None]:
    """Return the nodes that can reach a volume. Yields after each condition.

    Terms about names are decided here: a volume's affinity matches labels alone, as if nodes had no name.
    """
    selector = yield from NodeSelector.read(required)
    terms = []
    for term in selector.terms:
        if not term.fields:
            terms.append(term)
        elif all(one.matches(_NOWHERE) for one in term.fields):
            terms.append(replace(term, fields=()))
        yield
    return NodeSelector(tuple(terms), selector.errors)


def _class_name(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> str:
    if _BETA_CLASS in annotations:
        return annotations[_BETA_CLASS]
    return spec.get("storageClassName") or ""


def _selection(raw: Mapping[str, Any]) -> Work[Selection]:
    try:
        return Selection((yield from LabelSelector.read(raw, "selector")))
    except SelectorError as err:
        return Selection(error=str(err))


def _controller_uid(metadata: Mapping[str, Any]) -> str:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def _topologies(terms: Sequence[Mapping[str, Any]]) -> Work[tuple[LabelSelector, ...]]:
    """Return the selectors of the terms. Terms without expressions, and unreadable terms, match no node.

    Yields after each expression.
    """
    selectors: list[LabelSelector] = []
    for term in terms:
        requirements: list[Requirement] = []
        try:
            for one in term.get("matchLabelExpressions") or ():
                yield
                inside = {**one, "operator": Operator.IN.value}
                requirements.append(Requirement.of(inside, "allowedTopologies"))
        except SelectorError:
            continue
        if requirements:
            selectors.append(LabelSelector(tuple(requirements)))
    return tuple(selectors)
