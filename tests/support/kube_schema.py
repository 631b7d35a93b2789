"""The Kubernetes client's generated models -> the field table of `berth_sim/cluster/validation/schema.json`.

`python tests/support/kube_schema.py --write` renews the table after the client was moved to a newer release;
`test_schema.py` holds the two together. Status fields are typed as the others; that unknown ones are
let through there is decided by the reader of the table.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

from support.places import ROOT

SCHEMA: Final = ROOT / "host" / "berth_sim" / "cluster" / "validation" / "schema.json"
ROOTS: Final = [
    "Pod",
    "Node",
    "Namespace",
    "Service",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "LimitRange",
    "ResourceQuota",
    "RuntimeClass",
    "ReplicationController",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "PriorityClass",
    "PodDisruptionBudget",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
]
NEWER_ROOTS: Final = ["V1beta1Workload", "V1beta1PodGroup", "V1alpha3CompositePodGroup"]
"""Kinds that have no v1 yet."""
# The models say "string" for quantities; these are the fields that hold them.
QUANTITY_MAPS: Final = {
    "ResourceRequirements": ("limits", "requests"),
    "VolumeResourceRequirements": ("limits", "requests"),
    "PodSpec": ("overhead",),
    "Overhead": ("podFixed",),
    "LimitRangeItem": ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min"),
    "ResourceQuotaSpec": ("hard",),
    "ResourceQuotaStatus": ("hard", "used"),
    "NodeStatus": ("capacity", "allocatable"),
    "PersistentVolumeSpec": ("capacity",),
    "PersistentVolumeClaimStatus": ("capacity", "allocatedResources"),
    "PodStatus": ("allocatedResources",),
    "ContainerStatus": ("allocatedResources",),
    "CapacityRequirements": ("requests",),
}
QUANTITIES: Final = {
    "EmptyDirVolumeSource": ("sizeLimit",),
    "ResourceFieldSelector": ("divisor",),
    "CSIStorageCapacity": ("capacity", "maximumVolumeSize"),
    "DeviceCapacity": ("value",),
    "CapacityRequestPolicy": ("default",),
    "CapacityRequestPolicyRange": ("max", "min", "step"),
    "Counter": ("value",),
}
QUANTITY_LISTS: Final = {"CapacityRequestPolicy": ("validValues",)}
_SIMPLE: Final = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "datetime": "time",
    "object": "any",
}


def _short(model: str) -> str:
    return re.sub(r"V\d(?:(?:alpha|beta)\d)?", "", model, count=1)


def _type(text: str) -> str:
    if match := re.fullmatch(r"[Ll]ist\[(.+)\]", text):
        return f"[{_type(match.group(1))}]"
    if match := re.fullmatch(r"[Dd]ict\[str, (.+)\]", text):
        return f"{{{_type(match.group(1))}}}"
    return _SIMPLE.get(text) or _short(text)


def _fields(name: str, model: Any) -> dict[str, str]:
    fields = {model.attribute_map[key]: _type(text) for key, text in model.openapi_types.items()}
    for field in QUANTITY_MAPS.get(name, ()):
        fields[field] = "{quantity}"
    for field in QUANTITY_LISTS.get(name, ()):
        fields[field] = "[quantity]"
    for field in QUANTITIES.get(name, ()):
        fields[field] = "quantity"
    if name == "ObjectMeta":
        fields["managedFields"] = "any"
    return dict(sorted(fields.items()))


def table_from_client() -> dict[str, dict[str, str]]:
    """Struct name -> field -> type, for everything that the roots reach."""
    from kubernetes.client import models

    table: dict[str, dict[str, str]] = {}
    pending = [*NEWER_ROOTS, *(f"V1{root}" for root in ROOTS)]
    while pending:
        model_name = pending.pop()
        model = getattr(models, model_name, None)
        name = _short(model_name)
        if model is None or name in table:
            continue
        table[name] = _fields(name, model)
        pending += [
            found
            for text in model.openapi_types.values()
            for found in re.findall(r"\w*V\d\w+", text)
            if found != "V1ManagedFieldsEntry"
        ]
    return dict(sorted(table.items()))


def render(table: dict[str, dict[str, str]]) -> str:
    """One struct per line, so that a renewal can be read as a diff."""
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in table.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write the table, or only say whether it is up to date (exit 1: it is not)."""
    text = render(table_from_client())
    if "--write" in arguments:
        SCHEMA.write_text(text)
        return 0
    return 0 if SCHEMA.read_text() == text else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
