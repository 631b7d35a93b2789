"""The pods, nodes and objects of `kept_world`: for every default plugin some that concern it, in few forms.

`OBJECTS`: by kind and name, the forms that an object may take; None: it is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.testing import make_pod
from hypothesis import strategies as st
from support import device_objects, storage

Json = Mapping[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web"}}
GPU = "example.com/gpu"
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}

NODES: Sequence[Json] = (
    {"labels": {ZONE: "a", "zone": "a"}},
    {"labels": {ZONE: "b", "zone": "b"}, "taints": ["t=1:NoSchedule"]},
    {"labels": {ZONE: "b"}, "cpu": 2, "images": {"web:v1": 900 << 20}, "features": ["Fast"]},
    {"labels": {ZONE: "a"}, "unschedulable": True},
    {"taints": ["u=1:PreferNoSchedule"], "pods": 2, "allocatable": {GPU: 1}},
)
_SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": WEB}
_HARD = {**_SPREAD, "whenUnsatisfiable": "DoNotSchedule"}


def _spread(*constraints: Json) -> Json:
    return {"topologySpreadConstraints": list(constraints)}


def _affinity(kind: str, *, preferred: bool = False, **term: Any) -> Json:
    one = {"topologyKey": HOST, "labelSelector": WEB, **term}
    if preferred:
        weighted = [{"weight": 5, "podAffinityTerm": one}]
        return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [one]}}}


def _claim(name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


SPECS: Mapping[str, Json] = {
    "plain": {},
    "hard spread": _spread(_HARD),
    "soft spread": _spread({**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}),
    "spread by key": _spread({**_HARD, "matchLabelKeys": ["own"]}),
    "spread on nodes that it tolerates": _spread({**_HARD, "nodeTaintsPolicy": "Honor"}),
    "anti": _affinity("podAntiAffinity"),
    "rather apart": _affinity("podAntiAffinity", preferred=True),
    "near": _affinity("podAffinity", topologyKey=ZONE),
    "anti of a team": _affinity("podAntiAffinity", namespaceSelector={"matchLabels": {"team": "x"}}),
    "rather near a team": _affinity(
        "podAffinity", preferred=True, topologyKey=ZONE, namespaceSelector={"matchLabels": {"team": "x"}}
    ),
    "zone a": {"nodeSelector": {ZONE: "a"}},
    "named": {"nodeName": "n1"},
    "claim": _claim("data"),
    "lost claim": _claim("gone"),
    "device": {"resourceClaims": [{"name": "d", "resourceClaimName": "c"}]},
}
LABELS: Sequence[Mapping[str, str]] = ({}, {"app": "web"}, {"app": "db"})
FIELDS: Sequence[Json] = (
    {"cpu": "500m"},
    {"cpu": 2, "memory": "1Gi"},
    {"cpu": "500m", "tolerations": ["t"], "images": ["web:v1"]},
    {"host_ports": [80], "priority": 7},
    {"cpu": "500m", "meta": {"ownerReferences": [REPLICA_SET]}},
    {"cpu": "500m", "requests": {GPU: 1}},
    {"cpu": 1, "namespace": "far"},
)
NAMES: Sequence[str] = [f"p{number}" for number in range(6)]


def pod(name: str, spec: str = "plain", **fields: Any) -> Pod:
    """Return a pod whose uid is its name, with one of `SPECS`; it asks for half a CPU and has the label app:
    web.
    """
    given = {"cpu": "500m", "labels": {"app": "web"}, **fields}
    return make_pod(name, uid=name, spec=dict(SPECS[spec]), **given)


PODS: st.SearchStrategy[Pod] = st.builds(
    lambda name, spec, labels, fields: pod(name, spec, **{**fields, "labels": {**labels, "own": name}}),
    st.sampled_from(NAMES),
    st.sampled_from(sorted(SPECS)),
    st.sampled_from(LABELS),
    st.sampled_from(FIELDS),
)


def _of(api_version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _namespace(name: str, **labels: str) -> Json:
    return _of("v1", "Namespace", name, metadata={"labels": labels})


def _service(app: str) -> Json:
    return _of("v1", "Service", "s", "default", spec={"selector": {"app": app}})


def _replica_set(app: str) -> Json:
    selector = {"matchLabels": {"app": app}}
    return _of("apps/v1", "ReplicaSet", "rs", "default", spec={"selector": selector})


OBJECTS: Mapping[tuple[str, str], Sequence[Json | None]] = {
    ("Namespace", "default"): (_namespace("default", team="x"), _namespace("default", team="y"), None),
    ("Namespace", "far"): (_namespace("far", team="x"), _namespace("far"), None),
    ("Service", "s"): (_service("web"), _service("db"), None),
    ("ReplicaSet", "rs"): (_replica_set("web"), _replica_set("db"), None),
    ("PersistentVolumeClaim", "data"): (storage.claim("data"), storage.claim("data", bound_to="v"), None),
    ("PersistentVolume", "v"): (
        storage.volume("v", zones=("a",), bound_to="data", csi=storage.csi("v")),
        storage.volume("v", zones=("b",), csi=storage.csi("v")),
        storage.volume("v", labels={ZONE: "a"}, bound_to="data", csi=storage.csi("v")),
        None,
    ),
    ("StorageClass", "slow"): (
        storage.storage_class(),
        storage.storage_class(zones=("b",)),
        storage.storage_class(mode="Immediate"),
        None,
    ),
    ("CSINode", "n0"): (
        storage.csi_node("n0", {"csi.example.com": 0}),
        storage.csi_node("n0", {"csi.example.com": 9}),
        None,
    ),
    ("DeviceClass", "gpu"): (
        device_objects.device_class(),
        device_objects.device_class(extendedResourceName=GPU),
        None,
    ),
    ("ResourceSlice", "n0"): (
        device_objects.resource_slice("n0", [device_objects.device("d0")]),
        device_objects.resource_slice("n0", []),
        None,
    ),
    ("ResourceClaim", "c"): (
        device_objects.claim("c"),
        device_objects.claim("c", allocated=["n0/d0"]),
        None,
    ),
}


def kube_object(raw: Json) -> KubeObject:
    """Return the record of a manifest."""
    return KubeObject(raw["apiVersion"], raw["kind"], parsed=raw)
