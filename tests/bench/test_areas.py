"""A small workload for each of scheduler_perf's seven areas, with the ops and templates of its file.

Each runs to its end on the embedded cluster, and every measured pod gets a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench import running
from berth_bench.result import Result
from berth_bench.running import Settings
from berth_bench.scheduler_perf.cases import read_workloads

from .conftest import POD, RESOURCE_CLAIM, Obj, Op, measured, nodes, pods

DRA = "resource.k8s.io/v1"
HOSTNAME = "kubernetes.io/hostname"
START: Op = {"opcode": "startCollectingMetrics", "namespaces": ["own"]}
STOP: Op = {"opcode": "stopCollectingMetrics"}
ATTEMPTED: Op = {"opcode": "barrier", "stageRequirement": "Attempted"}
BARRIER: Op = {"opcode": "barrier"}


def pod(name: str = "", cpu: str = "100m", labels: Mapping[str, str] | None = None, **spec: Any) -> Obj:
    container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    metadata = {"name": f"{name}-{{{{.Index}}}}"} if name else {"generateName": "pod-"}
    own = {"containers": [container], **spec}
    return POD | {"metadata": metadata | {"labels": dict(labels or {})}, "spec": own}


def node(name: str, **more: Any) -> Obj:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "50"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": more,
        "status": {"capacity": capacity},
    }


def affinity(kind: str, **labels: str) -> Obj:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def update(template: str, count: int = 1, **more: Any) -> Op:
    return {"opcode": "updateAny", "templatePath": template, "count": count, "updatePerSecond": 500} | more


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
VOLUME: Obj = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadOnlyMany"],
        "csi": {"driver": "csi.example.com", "volumeHandle": ""},
    },
}
CLAIM: Obj = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
DEVICE_CLASS: Obj = {
    "apiVersion": DRA,
    "kind": "DeviceClass",
    "metadata": {"name": "gpus"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
CLAIM_TEMPLATE: Obj = {
    "apiVersion": DRA,
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": RESOURCE_CLAIM["spec"]},
}
DRIVER: Op = {"opcode": "createResourceDriver", "driverName": "gpu.example.com", "nodes": "gpu-*"}
USES_TEMPLATE: Obj = {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpu"}]}
USES_CLAIM: Obj = {"resourceClaims": [{"name": "g", "resourceClaimName": "claim-{{DivideInt .Index 2}}"}]}

AREAS: Mapping[str, tuple[Sequence[Op], Mapping[str, Obj]]] = {
    "affinity": (
        [
            nodes(4),
            {"opcode": "createNamespaces", "prefix": "set", "count": 2},
            {
                "opcode": "createPodSets",
                "count": 2,
                "namespacePrefix": "set",
                "createPodsOp": pods(1, podTemplatePath="one.yaml"),
            },
            measured(3, podTemplatePath="apart.yaml", namespace="own"),
        ],
        {
            "one.yaml": pod(labels={"app": "x"}),
            "apart.yaml": pod(labels={"app": "z"}, affinity=affinity("podAntiAffinity", app="z")),
        },
    ),
    "misc": (
        [
            nodes(2),
            {
                "opcode": "churn",
                "mode": "recreate",
                "number": 1,
                "intervalMilliseconds": 5,
                "templatePaths": ["node.yaml"],
            },
            pods(4, podTemplatePath="filler.yaml", namespace="filler"),
            pods(1, podTemplatePath="gated.yaml", namespace="filler", skipWaitToCompletion=True),
            measured(2, podTemplatePath="large.yaml"),
            {"opcode": "deletePods", "namespace": "filler", "deletePodsPerSecond": 500},
        ],
        {
            "node.yaml": node("extra") | {"status": {"capacity": {"pods": "0"}}},
            "filler.yaml": pod(cpu="1500m"),
            "gated.yaml": pod(schedulingGates=[{"name": "example.com/wait"}]),
            "large.yaml": pod(cpu="1"),
        },
    ),
    "topology_spreading": (
        [
            nodes(4, labelNodePrepareStrategy={"labelKey": "zone", "labelValues": ["a", "b"]}),
            measured(6, podTemplatePath="spread.yaml"),
        ],
        {"spread.yaml": pod(labels={"app": "web"}, topologySpreadConstraints=[SPREAD])},
    ),
    "volumes": (
        [
            nodes(2, nodeAllocatableStrategy={"csiNodeAllocatable": {"csi.example.com": {"count": 3}}}),
            measured(
                6,
                persistentVolumeTemplatePath="pv.yaml",
                persistentVolumeClaimTemplatePath="pvc.yaml",
            ),
        ],
        {"pv.yaml": VOLUME, "pvc.yaml": CLAIM},
    ),
    "dra": (
        [
            nodes(1),
            nodes(2, nodeTemplatePath="gpu-node.yaml"),
            DRIVER | {"maxClaimsPerNode": 4},
            {"opcode": "createAny", "templatePath": "class.yaml"},
            {"opcode": "createAny", "templatePath": "claim.yaml", "namespace": "init", "count": 2},
            {"opcode": "allocResourceClaims", "namespace": "init"},
            {"opcode": "createAny", "templatePath": "claim.yaml", "namespace": "shared", "count": 2},
            pods(4, podTemplatePath="by-claim.yaml", namespace="shared"),
            {"opcode": "createAny", "templatePath": "template.yaml", "namespace": "own"},
            measured(4, podTemplatePath="by-template.yaml", namespace="own"),
        ],
        {
            "gpu-node.yaml": node("gpu-{{.Index}}"),
            "class.yaml": DEVICE_CLASS,
            "claim.yaml": RESOURCE_CLAIM,
            "template.yaml": CLAIM_TEMPLATE,
            "by-claim.yaml": pod("user", **USES_CLAIM),
            "by-template.yaml": pod(**USES_TEMPLATE),
        },
    ),
    "event_handling": (
        [
            START,
            nodes(1, nodeTemplatePath="closed.yaml"),
            pods(2, podTemplatePath="waiting.yaml", namespace="own", skipWaitToCompletion=True),
            ATTEMPTED,
            update("tolerates.yaml", 2, namespace="own"),
            BARRIER,
            nodes(1, nodeTemplatePath="open.yaml"),
            pods(2, podTemplatePath="blocker.yaml", namespace="blocker"),
            pods(1, podTemplatePath="large.yaml", namespace="own", skipWaitToCompletion=True),
            ATTEMPTED,
            update("smaller.yaml", 2, namespace="blocker", subresources=["resize"]),
            BARRIER,
            nodes(1, nodeTemplatePath="marked.yaml"),
            pods(1, podTemplatePath="picky.yaml", namespace="own", skipWaitToCompletion=True),
            ATTEMPTED,
            update("unmarked.yaml"),
            BARRIER,
            {"opcode": "deletePods", "namespace": "blocker", "skipWaitToCompletion": True},
            STOP,
        ],
        {
            "closed.yaml": node("closed", unschedulable=True),
            "waiting.yaml": pod("waiting"),
            "tolerates.yaml": pod(
                "waiting",
                tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            ),
            "open.yaml": node("open"),
            "blocker.yaml": pod("blocker", cpu="1500m"),
            "smaller.yaml": pod("blocker", cpu="500m", nodeName="open"),
            "large.yaml": pod("large", cpu="2"),
            "marked.yaml": node("marked", taints=[{"key": "a", "effect": "NoSchedule"}]),
            "picky.yaml": pod("picky", cpu="3"),
            "unmarked.yaml": node("marked", taints=[]),
        },
    ),
    "nodedeclaredfeatures": (
        [nodes(2), measured(3, podTemplatePath="sized.yaml")],
        {"sized.yaml": pod(resources={"requests": {"cpu": "200m", "memory": "100Mi"}})},
    ),
}
WORKLOADS: Mapping[str, Obj] = {
    "nodedeclaredfeatures": {
        "featureGates": {"NodeDeclaredFeatures": True},
        "params": {"numNodeDeclaredFeatures": 3},
    },
}


def written(folder: Path, area: str) -> Path:
    ops, templates = AREAS[area]
    for name, template in {"pod.yaml": POD, **templates}.items():
        (folder / name).write_text(yaml.safe_dump(template))
    case = {
        "name": "C",
        "defaultPodTemplatePath": "pod.yaml",
        "workloadTemplate": [*ops],
        "workloads": [{"name": "w", **WORKLOADS.get(area, {})}],
    }
    path = folder / "performance-config.yaml"
    path.write_text(yaml.safe_dump([case], sort_keys=False))
    return path


async def ran(folder: Path, area: str) -> Result:
    (workload,) = read_workloads(written(folder, area))
    return await running.run(workload, Settings())


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("area", AREAS)
async def test_every_measured_pod_gets_a_node(tmp_path: Path, area: str) -> None:
    result = await ran(tmp_path, area)
    assert result.figures.bound == result.figures.pods > 0
    assert [note for note in result.notes if "gate" not in note] == []
