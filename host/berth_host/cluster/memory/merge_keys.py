"""The lists that a strategic merge patch merges, and their merge keys; other lists are replaced.

Read by `strategic_merge`. A list is named by its path without list indices.
Source: the patchStrategy and patchMergeKey of k8s.io/api `core/v1`, `apps/v1`, `batch/v1`, `policy/v1`,
`storage/v1`, `resource/v1` and apimachinery `meta/v1`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Path = tuple[str, ...]
SCALARS: Final = ""
"""The merge key of a list of plain values, which is merged as an ordered set."""

_METADATA: Final[Mapping[str, str]] = {"finalizers": SCALARS, "ownerReferences": "uid"}
_CONTAINER: Final[Mapping[str, str]] = {
    "env": "name",
    "ports": "containerPort",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
_CONTAINERS: Final = ("containers", "ephemeralContainers", "initContainers")
_POD_SPEC: Final[Mapping[str, str]] = {
    **dict.fromkeys(_CONTAINERS, "name"),
    **{f"{containers}.{name}": key for containers in _CONTAINERS for name, key in _CONTAINER.items()},
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumes": "name",
    **{f"volumes.ephemeral.volumeClaimTemplate.metadata.{name}": key for name, key in _METADATA.items()},
}
_EVERYWHERE: Final[Mapping[str, str]] = {f"metadata.{name}": key for name, key in _METADATA.items()}
_CONDITIONS: Final[Mapping[str, str]] = {"status.conditions": "type"}
_TEMPLATE: Final[Mapping[str, str]] = {
    **{f"spec.template.metadata.{name}": key for name, key in _METADATA.items()},
    **{f"spec.template.spec.{name}": key for name, key in _POD_SPEC.items()},
    **_CONDITIONS,
}
_OF_KIND: Final[Mapping[str, Mapping[str, str]]] = {
    "Pod": {
        **{f"spec.{name}": key for name, key in _POD_SPEC.items()},
        **_CONDITIONS,
        "status.hostIPs": "ip",
        "status.podIPs": "ip",
        "status.resourceClaimStatuses": "name",
    },
    "Node": {**_CONDITIONS, "spec.podCIDRs": SCALARS, "status.addresses": "type"},
    "Namespace": _CONDITIONS,
    "Service": {**_CONDITIONS, "spec.ports": "port"},
    "PersistentVolumeClaim": _CONDITIONS,
    "ReplicationController": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "PodDisruptionBudget": _CONDITIONS,
    "CSINode": {"spec.drivers": "name"},
    "ResourceClaim": {"status.reservedFor": "uid"},
}


def _paths(kind: str) -> Mapping[Path, str]:
    table = {**_EVERYWHERE, **_OF_KIND.get(kind, {})}
    return {tuple(path.split(".")): key for path, key in table.items()}


_BY_KIND: Final[Mapping[str, Mapping[Path, str]]] = {kind: _paths(kind) for kind in _OF_KIND}
_OTHER: Final[Mapping[Path, str]] = _paths("")


def merge_keys(kind: str) -> Mapping[Path, str]:
    """Return the merge key, or SCALARS, of each merged list of a kind, by path."""
    return _BY_KIND.get(kind, _OTHER)
