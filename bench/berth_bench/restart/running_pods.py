"""Running pods and nodes, many and cheap: the API server stores one of each kind, and etcd gets copies of it.

A copy has other names and another uid, of the same length, so that the stored bytes stay valid. The API
server sees the copies by its own watch of etcd. 25 000 pods take some seconds.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import aiohttp

from berth_bench.versus.api import ApiClient
from berth_bench.versus.objects import Json, namespace, node

NAMESPACE: Final = "running"
_APPS: Final = 60
_ZONES: Final = 10
_OPS: Final = 100
"""The puts of one transaction; etcd takes 128."""
_AT_ONCE: Final = 4
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of the random names that controllers make."""
_NODE: Final = "node-00000"
_ZONE: Final = "zone-0"
_APP: Final = "app-00"
_POD: Final = f"{_APP}-7d4b9c6f58-0000000"
_TOKEN: Final = "kube-api-access-x7k2p"
_SEED: Final = 7


async def fill(api: ApiClient, etcd_url: str, nodes: int, running: int) -> int:
    """Make the nodes, and the pods that run on them, in namespace NAMESPACE. Return the size of a pod's JSON,
    in bytes. Raises ApiError.
    """
    async with aiohttp.ClientSession(etcd_url) as etcd:
        made = await api.create(node(_NODE, "32", **{"topology.kubernetes.io/zone": _ZONE}))
        await _copy(etcd, f"/registry/minions/{_NODE}", made["metadata"]["uid"], node_copies(nodes))
        await api.create(namespace(NAMESPACE))
        await api.create(_pod())
        made = await api.patch("Pod", _POD, {"status": _status()}, namespace=NAMESPACE, subresource="status")
        size = len(await api.text("GET", f"api/v1/namespaces/{NAMESPACE}/pods/{_POD}"))
        copies = pod_copies(nodes, running)
        await _copy(etcd, f"/registry/pods/{NAMESPACE}/{_POD}", made["metadata"]["uid"], copies)
    return size


def node_copies(count: int) -> Iterator[dict[str, str]]:
    """Yield what each node has in place of the texts of the first one."""
    for number in range(count):
        yield {_NODE: _node(number), _ZONE: f"zone-{number % _ZONES}"}


def pod_copies(nodes: int, count: int) -> Iterator[dict[str, str]]:
    """Yield what each pod has in place of the texts of the first one. The pods are spread over the nodes."""
    chance = random.Random(_SEED)
    for number in range(count):
        app = f"app-{number % _APPS:02}"
        token = "kube-api-access-" + "".join(chance.choices(_LETTERS, k=5))
        # The pod's name first, as the application's is a part of it.
        yield {
            _POD: f"{app}-7d4b9c6f58-{number:07}",
            _APP: app,
            _NODE: _node(number % nodes),
            _TOKEN: token,
        }


def _node(number: int) -> str:
    return f"node-{number:05}"


async def _copy(etcd: aiohttp.ClientSession, key: str, uid: str, copies: Iterator[dict[str, str]]) -> None:
    """Put copies of the object at `key`, which is deleted unless one of them has its name. Each copy has a
    uid of its own, and other texts as `copies` says.
    """
    found = await _call(etcd, "range", {"key": _text(key.encode())})
    value = b64decode(found["kvs"][0]["value"])
    await _call(etcd, "deleterange", {"key": _text(key.encode())})
    name = key.rpartition("/")[2]

    def put(changes: dict[str, str]) -> Json:
        made = value.replace(uid.encode(), str(uuid.uuid4()).encode())
        for old, new in changes.items():
            made = made.replace(old.encode(), new.encode())
        if len(made) != len(value):
            raise ValueError(f"a copy of {key} has another length")
        where = key.removesuffix(name) + changes[name]
        return {"requestPut": {"key": _text(where.encode()), "value": _text(made)}}

    rest = map(put, copies)

    async def send() -> None:
        while puts := list(islice(rest, _OPS)):
            await _call(etcd, "txn", {"success": puts})

    await asyncio.gather(*(send() for _ in range(_AT_ONCE)))


async def _call(etcd: aiohttp.ClientSession, what: str, body: Json) -> Json:
    async with etcd.post(f"/v3/kv/{what}", json=body) as answer:
        answer.raise_for_status()
        found: Json = await answer.json()
        return found


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def _pod() -> Json:
    """Return a pod of a Deployment: a container with a probe, environment and mounts."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _POD,
            "namespace": NAMESPACE,
            "labels": {"app": _APP, "pod-template-hash": "7d4b9c6f58", "tier": "web"},
            "annotations": {
                "checksum/config": "6d1f0f5d4c0e5c4b8f3a2e1d0c9b8a7f6e5d4c3b2a190807f6e5d4c3b2a19080",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{_APP}-7d4b9c6f58",
                    "uid": "66666666-7777-4888-8999-aaaaaaaaaaaa",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "nodeName": _NODE,
            "serviceAccountName": "web",
            "containers": [_container("web", "200m", 8080)],
            "volumes": [
                {"name": "config", "configMap": {"name": "web-config"}},
                {"name": "cache", "emptyDir": {}},
                _token_volume(),
            ],
        },
    }


def _container(name: str, cpu: str, port: int) -> Json:
    probe = {"httpGet": {"path": "/healthz", "port": port}, "initialDelaySeconds": 5, "timeoutSeconds": 2}
    return {
        "name": name,
        "image": f"registry.example.com/{name}:v1.14.2",
        "ports": [{"name": name, "containerPort": port}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LOG_LEVEL", "value": "info"},
        ],
        "resources": {
            "requests": {"cpu": cpu, "memory": "128Mi"},
            "limits": {"memory": "256Mi"},
        },
        "readinessProbe": probe,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/web"},
            {"name": _TOKEN, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True},
        ],
    }


def _token_volume() -> Json:
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ]
    return {"name": _TOKEN, "projected": {"sources": sources, "defaultMode": 420}}


def _status() -> Json:
    at = "2026-01-01T00:00:05Z"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds],
        "hostIP": "10.1.2.3",
        "hostIPs": [{"ip": "10.1.2.3"}],
        "podIP": "10.244.3.7",
        "podIPs": [{"ip": "10.244.3.7"}],
        "startTime": at,
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": at}},
                "lastState": {},
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": f"registry.example.com/{name}:v1.14.2",
                "imageID": f"registry.example.com/{name}@sha256:{'0123456789abcdef' * 4}",
                "containerID": f"containerd://{'fedcba9876543210' * 4}",
            }
            for name in ("web",)
        ],
    }
