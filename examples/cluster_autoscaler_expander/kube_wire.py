"""A Pod or a Node in Kubernetes' protobuf -> the same object as in JSON; and the messages of the expander.

The tables have the fields that scheduling reads, with their numbers. Other fields are passed over, so objects
of later releases can be read. Volumes that do not limit where a pod can run are left out, and so is
`priorityClassName`: a pod of a cluster has its number.
Sources of the numbers: `k8s.io/api/core/v1/generated.proto`,
`k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`, both v1.37, and
`cluster-autoscaler/expander/grpcplugin/protos/expander.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Object = dict[str, Any]

# NUMBER: "NAME: TYPE". [TYPE] repeats, {TYPE} is a map by text, and the fields of a field without a name are
# those of the object around it. An "amount" is a Quantity; "bytes" are left as they are.
TABLES: Final[Mapping[str, Mapping[int, str]]] = {
    "BestOptionsRequest": {1: "options: [Option]", 2: "nodeMap: {bytes}", 3: "nodeBytesMap: {bytes}"},
    "BestOptionsResponse": {1: "options: [Option]"},
    "Option": {
        1: "nodeGroupId: text",
        2: "nodeCount: number",
        3: "debug: text",
        4: "pod: [bytes]",
        5: "podBytes: [bytes]",
    },
    "Pod": {1: "metadata: ObjectMeta", 2: "spec: PodSpec"},
    "Node": {1: "metadata: ObjectMeta", 2: "spec: NodeSpec", 3: "status: NodeStatus"},
    "ObjectMeta": {
        1: "name: text",
        2: "generateName: text",
        3: "namespace: text",
        11: "labels: {text}",
        12: "annotations: {text}",
        13: "ownerReferences: [OwnerReference]",
    },
    "OwnerReference": {
        1: "kind: text",
        3: "name: text",
        4: "uid: text",
        5: "apiVersion: text",
        6: "controller: flag",
        7: "blockOwnerDeletion: flag",
    },
    "PodSpec": {
        1: "volumes: [Volume]",
        2: "containers: [Container]",
        7: "nodeSelector: {text}",
        11: "hostNetwork: flag",
        18: "affinity: Affinity",
        19: "schedulerName: text",
        20: "initContainers: [Container]",
        22: "tolerations: [Toleration]",
        25: "priority: number",
        31: "preemptionPolicy: text",
        32: "overhead: {amount}",
        33: "topologySpreadConstraints: [TopologySpreadConstraint]",
        36: "os: Named",
        37: "hostUsers: flag",
        38: "schedulingGates: [Named]",
        39: "resourceClaims: [PodResourceClaim]",
        40: "resources: ResourceRequirements",
        43: "schedulingGroup: PodSchedulingGroup",
    },
    "Named": {1: "name: text"},
    "PodSchedulingGroup": {1: "podGroupName: text"},
    "PodResourceClaim": {1: "name: text", 3: "resourceClaimName: text", 4: "resourceClaimTemplateName: text"},
    "Container": {
        1: "name: text",
        2: "image: text",
        6: "ports: [ContainerPort]",
        8: "resources: ResourceRequirements",
        24: "restartPolicy: text",
        25: "restartPolicyRules: [ContainerRestartRule]",
    },
    "ContainerPort": {
        1: "name: text",
        2: "hostPort: number",
        3: "containerPort: number",
        4: "protocol: text",
        5: "hostIP: text",
    },
    "ContainerRestartRule": {1: "action: text", 2: "exitCodes: ExitCodes"},
    "ExitCodes": {1: "operator: text", 2: "values: [number]"},
    "ResourceRequirements": {1: "limits: {amount}", 2: "requests: {amount}", 3: "claims: [ResourceClaim]"},
    "ResourceClaim": {1: "name: text", 2: "request: text"},
    "Affinity": {
        1: "nodeAffinity: NodeAffinity",
        2: "podAffinity: PodAffinity",
        3: "podAntiAffinity: PodAffinity",
    },
    "NodeAffinity": {
        1: "requiredDuringSchedulingIgnoredDuringExecution: NodeSelector",
        2: "preferredDuringSchedulingIgnoredDuringExecution: [PreferredSchedulingTerm]",
    },
    "NodeSelector": {1: "nodeSelectorTerms: [NodeSelectorTerm]"},
    "NodeSelectorTerm": {1: "matchExpressions: [Requirement]", 2: "matchFields: [Requirement]"},
    "Requirement": {1: "key: text", 2: "operator: text", 3: "values: [text]"},
    "PreferredSchedulingTerm": {1: "weight: number", 2: "preference: NodeSelectorTerm"},
    "PodAffinity": {
        1: "requiredDuringSchedulingIgnoredDuringExecution: [PodAffinityTerm]",
        2: "preferredDuringSchedulingIgnoredDuringExecution: [WeightedPodAffinityTerm]",
    },
    "WeightedPodAffinityTerm": {1: "weight: number", 2: "podAffinityTerm: PodAffinityTerm"},
    "PodAffinityTerm": {
        1: "labelSelector: LabelSelector",
        2: "namespaces: [text]",
        3: "topologyKey: text",
        4: "namespaceSelector: LabelSelector",
        5: "matchLabelKeys: [text]",
        6: "mismatchLabelKeys: [text]",
    },
    "LabelSelector": {1: "matchLabels: {text}", 2: "matchExpressions: [Requirement]"},
    "Toleration": {
        1: "key: text",
        2: "operator: text",
        3: "value: text",
        4: "effect: text",
        5: "tolerationSeconds: number",
    },
    "TopologySpreadConstraint": {
        1: "maxSkew: number",
        2: "topologyKey: text",
        3: "whenUnsatisfiable: text",
        4: "labelSelector: LabelSelector",
        5: "minDomains: number",
        6: "nodeAffinityPolicy: text",
        7: "nodeTaintsPolicy: text",
        8: "matchLabelKeys: [text]",
    },
    "Volume": {1: "name: text", 2: ": VolumeSource"},
    "VolumeSource": {
        3: "gcePersistentDisk: GcePersistentDisk",
        4: "awsElasticBlockStore: VolumeId",
        8: "iscsi: Iscsi",
        10: "persistentVolumeClaim: Claim",
        11: "rbd: Rbd",
        13: "cinder: CinderVolume",
        18: "azureFile: AzureFile",
        20: "vsphereVolume: VsphereVolume",
        22: "azureDisk: AzureDisk",
        24: "portworxVolume: CinderVolume",
        28: "csi: CsiVolume",
        29: "ephemeral: Ephemeral",
    },
    "GcePersistentDisk": {1: "pdName: text", 2: "fsType: text", 3: "partition: number", 4: "readOnly: flag"},
    "VolumeId": {1: "volumeID: text", 2: "fsType: text", 3: "partition: number", 4: "readOnly: flag"},
    "CinderVolume": {1: "volumeID: text", 2: "fsType: text", 3: "readOnly: flag"},
    "Iscsi": {
        1: "targetPortal: text",
        2: "iqn: text",
        3: "lun: number",
        4: "iscsiInterface: text",
        5: "fsType: text",
        6: "readOnly: flag",
        7: "portals: [text]",
    },
    "Claim": {1: "claimName: text", 2: "readOnly: flag"},
    "Rbd": {
        1: "monitors: [text]",
        2: "image: text",
        3: "fsType: text",
        4: "pool: text",
        5: "user: text",
        6: "keyring: text",
        8: "readOnly: flag",
    },
    "AzureFile": {1: "secretName: text", 2: "shareName: text", 3: "readOnly: flag"},
    "VsphereVolume": {1: "volumePath: text", 2: "fsType: text"},
    "AzureDisk": {
        1: "diskName: text",
        2: "diskURI: text",
        3: "cachingMode: text",
        4: "fsType: text",
        5: "readOnly: flag",
        6: "kind: text",
    },
    "CsiVolume": {1: "driver: text", 2: "readOnly: flag", 3: "fsType: text", 4: "volumeAttributes: {text}"},
    "Ephemeral": {1: "volumeClaimTemplate: ClaimTemplate"},
    "ClaimTemplate": {1: "metadata: ObjectMeta", 2: "spec: ClaimSpec"},
    "ClaimSpec": {
        1: "accessModes: [text]",
        2: "resources: ResourceRequirements",
        3: "volumeName: text",
        4: "selector: LabelSelector",
        5: "storageClassName: text",
        6: "volumeMode: text",
    },
    "NodeSpec": {3: "providerID: text", 4: "unschedulable: flag", 5: "taints: [Taint]"},
    "Taint": {1: "key: text", 2: "value: text", 3: "effect: text"},
    "NodeStatus": {
        1: "capacity: {amount}",
        2: "allocatable: {amount}",
        8: "images: [ContainerImage]",
        14: "declaredFeatures: [text]",
    },
    "ContainerImage": {1: "names: [text]", 2: "sizeBytes: number"},
    "Quantity": {1: "string: text"},
}


class WireError(ValueError):
    """The error of bytes that are not the message."""


class _Field(NamedTuple):
    name: str
    kind: str
    is_list: bool
    is_map: bool


def _field(text: str) -> _Field:
    name, _, kind = text.partition(": ")
    return _Field(name.rstrip(":"), kind.strip("[]{}"), kind.startswith("["), kind.startswith("{"))


_FIELDS: Final = {
    message: {number: _field(text) for number, text in fields.items()} for message, fields in TABLES.items()
}


def pod_of(data: bytes) -> Object:
    """Return a Pod as in JSON. Raises WireError."""
    pod = {"apiVersion": "v1", "kind": "Pod", **decode("Pod", data)}
    if volumes := pod.get("spec", {}).get("volumes"):
        pod["spec"]["volumes"] = [volume for volume in volumes if len(volume) > 1]
    return pod


def node_of(data: bytes) -> Object:
    """Return a Node as in JSON. Raises WireError."""
    return {"apiVersion": "v1", "kind": "Node", **decode("Node", data)}


def decode(message: str, data: bytes) -> Object:
    """Return the fields of a message that the tables know, by their JSON names. Raises WireError.

    Empty text of a single field is left out, as JSON leaves it out.
    """
    known = _FIELDS[message]
    found: Object = {}
    for number, raw in _pairs(data):
        field = known.get(number)
        if field is None:
            continue
        name, kind, is_list, is_map = field
        if is_map:
            entry = dict(_pairs(_bytes(raw)))
            key = _value("text", entry.get(1, b""))
            found.setdefault(name, {})[key] = _value(kind, entry.get(2, b""))
        elif is_list:
            found.setdefault(name, []).append(_value(kind, raw))
        elif not name:
            found |= _value(kind, raw)
        elif (value := _value(kind, raw)) != "":
            found[name] = value
    return found


def encode(message: str, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message of these fields. Other fields raise KeyError."""
    numbers = {field.name: (number, field) for number, field in _FIELDS[message].items()}
    parts: list[bytes] = []
    for name, value in content.items():
        number, field = numbers[name]
        if field.is_map:
            for key, one in value.items():
                entry = _written(1, "text", key) + _written(2, field.kind, one)
                parts.append(_written(number, "bytes", entry))
        else:
            parts += [_written(number, field.kind, one) for one in (value if field.is_list else [value])]
    return b"".join(parts)


# --- protobuf's encoding ---------------------------------------------------------------------------------


def _value(kind: str, raw: int | bytes) -> Any:
    if kind in ("number", "flag"):
        if not isinstance(raw, int):
            raise WireError("a number is encoded as bytes")
        return bool(raw) if kind == "flag" else raw - (1 << 64) if raw >> 63 else raw
    data = _bytes(raw)
    if kind == "bytes":
        return data
    if kind == "text":
        try:
            return data.decode()
        except UnicodeDecodeError as err:
            raise WireError(f"a text is not UTF-8: {err}") from err
    if kind == "amount":
        return decode("Quantity", data).get("string", "0")
    return decode(kind, data)


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise WireError("a message is encoded as a number")
    return raw


def _pairs(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field: bytes where its length is given, otherwise a number."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, way = key >> 3, key & 7
        if way == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if way == 2:
            size, at = _varint(data, at)
        elif way in (1, 5):
            size = 8 if way == 1 else 4
        else:
            raise WireError(f"field {number} is encoded in the unknown way {way}")
        if at + size > end:
            raise WireError(f"field {number} ends after the message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, where it ends)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise WireError("the message ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise WireError("a number is longer than 64 bits")


def _written(number: int, kind: str, value: Any) -> bytes:
    if kind in ("number", "flag"):
        return _varint_of(number << 3) + _varint_of(int(value) & (1 << 64) - 1)
    data: bytes
    if kind == "text":
        data = value.encode()
    elif kind == "amount":
        data = encode("Quantity", {"string": value})
    elif kind == "bytes":
        data = value
    else:
        data = encode(kind, value)
    return _varint_of(number << 3 | 2) + _varint_of(len(data)) + data


def _varint_of(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
