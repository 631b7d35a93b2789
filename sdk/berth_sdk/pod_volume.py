"""A pod's volumes -> the volumes that matter to scheduling: claims, and disks named in the pod itself.

Read by `Pod.volumes`. Config maps, secrets, projected tokens and the like do not limit where a pod can run
and are left out.

Source: core/v1 VolumeSource; component-helpers `storage/ephemeral/ephemeral.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

PERSISTENT_VOLUME_CLAIM: Final = "persistentVolumeClaim"
EPHEMERAL: Final = "ephemeral"
SOURCES: Final = (
    PERSISTENT_VOLUME_CLAIM,
    EPHEMERAL,
    "csi",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cinder",
    "iscsi",
    "portworxVolume",
    "rbd",
    "vsphereVolume",
)
"""The fields of a volume that name storage. For a volume with several of them, the first counts."""
_KNOWN: Final = frozenset(SOURCES)


@dataclass(frozen=True, slots=True)
class PodVolume:
    """One volume. `source`: the field that names the storage. `details`: the value of that field. `claim`:
    the name of the claim, for a claim or a generic ephemeral volume; else empty.
    """

    name: str
    source: str
    details: Mapping[str, Any]
    claim: str = ""

    @property
    def has_claim(self) -> bool:
        """True if the volume uses a PersistentVolumeClaim: one that the pod names, or one made for the
        pod.
        """
        return self.source in (PERSISTENT_VOLUME_CLAIM, EPHEMERAL)


def volumes_of(spec: Mapping[str, Any], pod_name: str) -> tuple[PodVolume, ...]:
    """Return the volumes of a pod's spec that name storage, in order."""
    found: list[PodVolume] = []
    for raw in spec.get("volumes") or ():
        if _KNOWN.isdisjoint(raw):
            continue
        name = raw.get("name") or ""
        for source in SOURCES:
            details = raw.get(source)
            if details is not None:
                found.append(PodVolume(name, source, details, _claim(source, details, pod_name, name)))
    return tuple(found)


def _claim(source: str, details: Mapping[str, Any], pod_name: str, volume_name: str) -> str:
    if source == PERSISTENT_VOLUME_CLAIM:
        return details.get("claimName") or ""
    return f"{pod_name}-{volume_name}" if source == EPHEMERAL else ""
