"""The expander's reading of Pods and Nodes in protobuf, as a real API server writes them."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, Final

import kube_wire
import pytest
from berth_bench.versus.real_servers import ADMIN, RealServers
from google.protobuf.any_pb2 import Any as Envelope

MAGIC: Final = b"k8s\x00"
RUNTIMES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
PODS: Final = "/api/v1/namespaces/default/pods"
SELECTOR: Final = {
    "matchLabels": {"app": "web", "empty": ""},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
}
TERM: Final = {
    "labelSelector": SELECTOR,
    "namespaces": ["default", "other"],
    "topologyKey": "zone",
    "namespaceSelector": {},
    "matchLabelKeys": ["version"],
    "mismatchLabelKeys": ["shard"],
}
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
APART: Final = {REQUIRED: [TERM], PREFERRED: [{"weight": 7, "podAffinityTerm": TERM}]}
NODES: Final = {
    "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["c"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
}
CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "volumeName": "pv",
    "selector": SELECTOR,
    "storageClassName": "fast",
    "volumeMode": "Block",
}
VOLUMES: Final = [
    {"name": "v0", "gcePersistentDisk": {"pdName": "d", "fsType": "ext4", "partition": 1, "readOnly": True}},
    {
        "name": "v1",
        "awsElasticBlockStore": {"volumeID": "d", "fsType": "ext4", "partition": 1, "readOnly": True},
    },
    {
        "name": "v2",
        "iscsi": {
            "targetPortal": "1.2.3.4:3260",
            "iqn": "iqn.2026-01.com.example:d",
            "lun": 3,
            "iscsiInterface": "default",
            "fsType": "ext4",
            "readOnly": True,
            "portals": ["1.2.3.5:3260"],
        },
    },
    {"name": "v3", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    {
        "name": "v4",
        "rbd": {
            "monitors": ["m1", "m2"],
            "image": "i",
            "fsType": "ext4",
            "pool": "p",
            "user": "u",
            "keyring": "/k",
            "readOnly": True,
        },
    },
    {"name": "v5", "cinder": {"volumeID": "d", "fsType": "ext4", "readOnly": True}},
    {"name": "v6", "azureFile": {"secretName": "s", "shareName": "f", "readOnly": True}},
    {"name": "v7", "vsphereVolume": {"volumePath": "/p", "fsType": "ext4"}},
    {
        "name": "v8",
        "azureDisk": {
            "diskName": "d",
            "diskURI": "https://example.com/d.vhd",
            "cachingMode": "None",
            "fsType": "ext4",
            "readOnly": True,
            "kind": "Shared",
        },
    },
    {"name": "v9", "portworxVolume": {"volumeID": "d", "fsType": "ext4", "readOnly": True}},
    {"name": "v10", "csi": {"driver": "d", "readOnly": True, "fsType": "x", "volumeAttributes": {"a": "b"}}},
    {
        "name": "v11",
        "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM}},
    },
]
PORT: Final = {"name": "p", "hostPort": 80, "containerPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"}
FULL: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "full",
        "generateName": "full-",
        "namespace": "default",
        "labels": {"app": "web", "empty": ""},
        "annotations": {"note": "\u00fc"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": "u-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "spec": {
        "volumes": VOLUMES,
        "containers": [
            {
                "name": "c",
                "image": "app",
                "ports": [PORT],
                "resources": {
                    "limits": {"cpu": "1500m", "example.com/gpu": "1"},
                    "requests": {"cpu": "250m", "memory": "1Gi", "example.com/gpu": "1"},
                    "claims": [{"name": "device", "request": "r"}],
                },
            }
        ],
        "initContainers": [{"name": "i", "image": "init", "restartPolicy": "Always"}],
        "nodeSelector": {"zone": "a"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [NODES]},
                PREFERRED: [{"weight": 5, "preference": NODES}],
            },
            "podAffinity": APART,
            "podAntiAffinity": APART,
        },
        "schedulerName": "berth",
        "tolerations": [
            {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": -1}
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": SELECTOR,
                "minDomains": 3,
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "Honor",
                "matchLabelKeys": ["version"],
            }
        ],
        "os": {"name": "linux"},
        "schedulingGates": [{"name": "example.com/wait"}],
        "resourceClaims": [
            {"name": "device", "resourceClaimName": "one"},
            {"name": "made", "resourceClaimTemplateName": "two"},
        ],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
    },
}
RULE: Final = {"action": "Restart", "exitCodes": {"operator": "In", "values": [3, 4]}}
OTHERS: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "others", "namespace": "default"},
    "spec": {
        "containers": [
            {"name": "c", "image": "a", "restartPolicy": "Never", "restartPolicyRules": [RULE]},
        ],
        "hostNetwork": True,
        "hostUsers": True,
        "runtimeClassName": "sandbox",
        "overhead": {"cpu": "100m"},
        "priorityClassName": "high",
        "priority": 1000,
        "preemptionPolicy": "Never",
        "schedulingGroup": {"podGroupName": "train"},
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    },
}
NODE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"zone": "a"}},
    "spec": {
        "providerID": "cloud://n1",
        "unschedulable": True,
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    },
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "example.com/gpu": "2"},
        "allocatable": {"cpu": "3920m", "memory": "7Gi", "pods": "110", "example.com/gpu": "2"},
        "images": [{"names": ["app:v1", "app@sha256:0"], "sizeBytes": 5_000_000_000}],
        "declaredFeatures": ["FeatureA", "FeatureB"],
    },
}


def stored(servers: RealServers, path: str) -> bytes:
    """Return an object in protobuf, without the envelope."""
    headers = {
        "Accept": "application/vnd.kubernetes.protobuf",
        "Authorization": f"Bearer {servers.tokens[ADMIN]}",
    }
    request = urllib.request.Request(servers.url + path, headers=headers)
    trusted = ssl.create_default_context(cafile=str(servers.ca_file))
    with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
        data: bytes = answer.read()
    assert data.startswith(MAGIC)
    # Kubernetes' envelope has the object at the number at which that of protobuf has it.
    content: bytes = Envelope.FromString(data.removeprefix(MAGIC)).value
    return content


def lacking(found: Any, wanted: Any, path: str = "") -> list[str]:
    """Return the paths of `wanted` at which `found` has something else. It may have more: the defaults."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return [path]
        return [one for name in wanted for one in lacking(found.get(name), wanted[name], f"{path}.{name}")]
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) < len(wanted):
            return [path]
        pairs = zip(found, wanted, strict=False)
        return [one for at, pair in enumerate(pairs) for one in lacking(*pair, f"{path}[{at}]")]
    return [] if found == wanted else [f"{path}: {found!r}"]


def names_in(value: Any) -> Iterator[str]:
    """Yield the names of all fields."""
    if isinstance(value, Mapping):
        yield from value
        for one in value.values():
            yield from names_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from names_in(one)


@pytest.fixture
def servers_with_objects(empty_pod_group_servers: RealServers) -> Iterator[RealServers]:
    """Yield an API server that has the objects, and the classes that they need."""
    servers = empty_pod_group_servers
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandbox"}}
    servers.create(RUNTIMES, {**runtime, "handler": "h", "overhead": {"podFixed": {"cpu": "100m"}}})
    classed: dict[str, Any] = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
    }
    classed |= {"value": 1000, "preemptionPolicy": "Never"}
    servers.create("/apis/scheduling.k8s.io/v1/priorityclasses", classed)
    servers.create("/api/v1/nodes", NODE)
    for pod in (FULL, OTHERS):
        servers.create(PODS, pod)
    yield servers
    servers.request("DELETE", f"{RUNTIMES}/sandbox")


@pytest.mark.long
def test_objects_of_the_api_server_are_read_field_by_field(servers_with_objects: RealServers) -> None:
    servers = servers_with_objects
    full = kube_wire.pod_of(stored(servers, f"{PODS}/full"))
    others = kube_wire.pod_of(stored(servers, f"{PODS}/others"))
    node = kube_wire.node_of(stored(servers, "/api/v1/nodes/n1"))
    assert lacking(full, FULL) == []
    assert lacking(node, NODE) == []
    spec = others["spec"]
    left_out = {"priorityClassName", "runtimeClassName", "volumes"}
    known = {name: value for name, value in OTHERS["spec"].items() if name not in left_out}
    assert lacking(spec, known) == []
    assert spec["volumes"] == []
    assert not left_out - {"volumes"} & set(spec)
    # Every field of the tables is checked here.
    messages = {"BestOptionsRequest", "BestOptionsResponse", "Option", "Quantity"}
    fields = [
        text for name, table in kube_wire.TABLES.items() if name not in messages for text in table.values()
    ]
    seen = {name for item in (full, others, node) for name in names_in(item)}
    assert {text.partition(":")[0] for text in fields} - seen == {""}
