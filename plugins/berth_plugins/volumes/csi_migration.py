"""In-tree volumes -> the CSI volumes that replace them: driver, handle and topology.

Used by NodeVolumeLimits, which counts by driver, and by VolumeBinding, which compares topology.

Source: `staging/src/k8s.io/csi-translation-lib/` and the plugins' `isCSIMigrationOn`, v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_sdk.errors import BerthError
from berth_sdk.node_selectors import NodeSelector, NodeSelectorTerm
from berth_sdk.selectors import LabelSelector, Operator, Requirement
from berth_sdk.slices import Work

from berth_plugins.volumes.records import Volume

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
_ZONE_DELIMITER: Final = "__"
_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")


class TranslationError(BerthError):
    """A volume has no CSI form."""


@dataclass(frozen=True, slots=True)
class InTree:
    """One in-tree plugin. `driver`: the CSI driver that replaces it. `handle_field`: the source's field that
    names the volume. `topology_key`: the driver's label of nodes; empty: none.

    `is_on`: pods' volumes count against the driver's limit, and topology is translated. For the other plugins
    only their migration is known.
    """

    name: str
    driver: str
    handle_field: str
    topology_key: str = ""
    is_on: bool = True


IN_TREE: Final[Mapping[str, InTree]] = {
    "gcePersistentDisk": InTree(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName", "topology.gke.io/zone"
    ),
    "awsElasticBlockStore": InTree(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID", "topology.ebs.csi.aws.com/zone"
    ),
    "cinder": InTree(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "volumeID",
        "topology.cinder.csi.openstack.org/zone",
    ),
    "azureDisk": InTree("kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
    "portworxVolume": InTree("kubernetes.io/portworx-volume", "pxd.portworx.com", "volumeID"),
    "azureFile": InTree("kubernetes.io/azure-file", "file.csi.azure.com", "shareName", is_on=False),
    "vsphereVolume": InTree(
        "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "volumePath", is_on=False
    ),
}
"""The in-tree plugins by the field of a volume that names its source."""
BY_PLUGIN: Final[Mapping[str, InTree]] = {one.name: one for one in IN_TREE.values()}


def inline_handle(source: str, details: Mapping[str, Any]) -> str:
    """Return the CSI volume handle of a volume in a pod's spec. Raises TranslationError."""
    name = str(details.get(IN_TREE[source].handle_field) or "")
    if source == "awsElasticBlockStore":
        return _ebs_volume(name)
    if source == "gcePersistentDisk":
        return _gce_disk("zones", _UNSPECIFIED, name)
    return name


def volume_handle(volume: Volume) -> str:
    """Return the CSI volume handle of an in-tree PersistentVolume. Raises TranslationError."""
    if volume.source != "gcePersistentDisk":
        return inline_handle(volume.source, volume.details)
    name = str(volume.details.get("pdName") or "")
    label = volume.labels.get(BETA_ZONE) or volume.labels.get(ZONE) or ""
    zones = label.split(_ZONE_DELIMITER)
    if len(zones) > 1:
        return _gce_disk("regions", _gce_region(zones), name)
    return _gce_disk("zones", zones[0] or _UNSPECIFIED, name)


def csi_affinity(volume: Volume) -> Work[NodeSelector | None]:
    """Return the node affinity of an in-tree volume in its CSI form: its zones by the driver's own label.

    Yields after each term. Raises TranslationError for a volume that cannot be translated.
    """
    volume_handle(volume)
    affinity = yield from volume.affinity.read()
    key = IN_TREE[volume.source].topology_key
    if not key:
        return affinity
    zone, region = _topology_labels(volume, affinity)
    if affinity is not None and _has_values(affinity, zone):
        affinity = yield from _renamed(affinity, zone, key)
    elif zone in volume.labels:
        zones = frozenset(filter(None, (one.strip() for one in volume.labels[zone].split(_ZONE_DELIMITER))))
        if zones:
            affinity = yield from _narrowed(affinity, Requirement(key, Operator.IN, zones))
    if affinity is not None and region == BETA_REGION and _has_values(affinity, region):
        affinity = yield from _renamed(affinity, region, REGION)
    return affinity


def _topology_labels(volume: Volume, affinity: NodeSelector | None) -> tuple[str, str]:
    """Return (zone, region): the current names, unless the volume uses only the older ones."""
    keys = _keys(affinity) if affinity is not None else frozenset()
    for found in (keys, volume.labels):
        if ZONE in found:
            return ZONE, REGION
        if BETA_ZONE in found:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _keys(affinity: NodeSelector) -> frozenset[str]:
    return frozenset(one.key for term in affinity.terms for one in term.labels.requirements or ())


def _has_values(affinity: NodeSelector, key: str) -> bool:
    return any(
        one.key == key and one.values for term in affinity.terms for one in term.labels.requirements or ()
    )


def _renamed(affinity: NodeSelector, old: str, new: str) -> Work[NodeSelector]:
    terms = []
    for term in affinity.terms:
        requirements = term.labels.requirements or ()
        renamed = tuple(replace(one, key=new) if one.key == old else one for one in requirements)
        terms.append(NodeSelectorTerm(LabelSelector(renamed), term.fields))
        yield
    return NodeSelector(tuple(terms), affinity.errors)


def _narrowed(affinity: NodeSelector | None, requirement: Requirement) -> Work[NodeSelector]:
    if affinity is None or not (affinity.terms or affinity.errors):
        return NodeSelector((NodeSelectorTerm(LabelSelector((requirement,))),))
    terms = []
    for term in affinity.terms:
        narrowed = LabelSelector((*(term.labels.requirements or ()), requirement))
        terms.append(NodeSelectorTerm(narrowed, term.fields))
        yield
    return NodeSelector(tuple(terms), affinity.errors)


def _gce_disk(where: str, place: str, name: str) -> str:
    return f"projects/{_UNSPECIFIED}/{where}/{place}/disks/{name}"


def _gce_region(zones: list[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, expected:"
                f" {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise TranslationError(
            "failed to get region from zones: multiple or no regions gotten from zones, got:"
            f" {sorted(regions)}"
        )
    return regions.pop()


def _ebs_volume(name: str) -> str:
    """Return the id of `aws://<zone>/<id>` and `aws:///<id>`; any other name is an id."""
    if not name.startswith("aws://"):
        return name
    path = name.removeprefix("aws://").partition("/")[2].strip("/")
    if not _EBS_VOLUME.fullmatch(path):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({name})"
        )
    return path
