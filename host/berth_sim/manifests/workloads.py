"""Makes the objects that the controllers of a workload would create: pods, and the objects between.

Called by `loading.load` for Deployments, ReplicaSets, ReplicationControllers, StatefulSets and Jobs, after
all manifests are read. As for the real controllers, existing pods and ReplicaSets of the workload count. Pods
are named `<workload>-<ordinal>`, from 0.
Source: `pkg/controller/{deployment,replicaset,statefulset,job}`, v1.36, and the labels those set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

Object = Mapping[str, Any]
WORKLOADS: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job")
# Letters and digits that Kubernetes uses for generated suffixes: no vowels, none that look alike.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH: Final = 10


def replica_set_of(deployment: Object) -> dict[str, Any]:
    """Return the ReplicaSet of a Deployment's template. The Deployment must be stored (have a uid)."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    suffix = _hash(template)
    labels = _labels(template) | {"pod-template-hash": suffix}
    selector = spec.get("selector") or {}
    match_labels = (selector.get("matchLabels") or {}) | {"pod-template-hash": suffix}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{suffix}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [_reference(deployment)],
        },
        "spec": {
            "replicas": _replica_count(spec),
            "selector": selector | {"matchLabels": match_labels},
            "template": template | {"metadata": (template.get("metadata") or {}) | {"labels": labels}},
        },
    }


def pods_of(
    workload: Object, name: str, there: Collection[str] = (), succeeded_count: int = 0
) -> list[dict[str, Any]]:
    """Return the pods that `workload`, which must be stored, lacks; they are named `<name>-<ordinal>`.

    `there`: the names of its existing pods. `succeeded_count`: the number of finished pods of a Job.
    """
    kind = workload["kind"]
    spec = workload["spec"]
    wanted = _job_pod_count(workload, succeeded_count) if kind == "Job" else _replica_count(spec)
    ordinal = ((spec.get("ordinals") or {}).get("start") or 0) if kind == "StatefulSet" else 0
    made: list[dict[str, Any]] = []
    while len(made) < wanted - len(there):
        pod_name = f"{name}-{ordinal}"
        if pod_name not in there:
            made.append(_pod(workload, pod_name, ordinal))
        ordinal += 1
    return made


def moved(obj: Object) -> Object:
    """Return a pod without its node, if its controller would make it anew elsewhere; else the object itself.

    Pods of DaemonSets, static pods, pods without a controller and pods that are being deleted stay.
    """
    metadata, spec = obj.get("metadata"), obj.get("spec")
    if obj["kind"] != "Pod" or not isinstance(metadata, dict) or not isinstance(spec, dict):
        return obj
    owners = metadata.get("ownerReferences") or ()
    controllers = {str(one.get("kind")) for one in owners if isinstance(one, dict) and one.get("controller")}
    if (
        not spec.get("nodeName")
        or not controllers - {"DaemonSet", "Node"}
        or metadata.get("deletionTimestamp")
    ):
        return obj
    free = {key: value for key, value in spec.items() if key != "nodeName"}
    return {**{key: value for key, value in obj.items() if key != "status"}, "spec": free}


def claims_of(stateful_set: Object, pod_names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the claims of a StatefulSet's pods, named `<template>-<pod>`."""
    spec = stateful_set["spec"]
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": f"{template['metadata']['name']}-{pod_name}",
                "namespace": stateful_set["metadata"]["namespace"],
                "labels": _labels(template) | labels,
            },
            "spec": template["spec"],
        }
        for pod_name in pod_names
        for template in spec.get("volumeClaimTemplates") or ()
    ]


def _replica_count(spec: Object) -> int:
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def _job_pod_count(job: Object, succeeded_count: int) -> int:
    spec = job["spec"]
    over = any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in (job.get("status") or {}).get("conditions") or ()
    )
    if over or spec.get("suspend"):
        return 0
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    at_once = 1 if parallelism is None else int(parallelism)
    return at_once if completions is None else min(at_once, max(0, int(completions) - succeeded_count))


def _pod(workload: Object, pod_name: str, ordinal: int) -> dict[str, Any]:
    template = workload["spec"]["template"]
    template_metadata = template.get("metadata") or {}
    labels = _labels(template) | _extra_labels(workload, pod_name, ordinal)
    metadata: dict[str, Any] = {
        "name": pod_name,
        "namespace": workload["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [_reference(workload)],
    }
    annotations = dict(template_metadata.get("annotations") or {})
    if (index := labels.get("batch.kubernetes.io/job-completion-index")) is not None:
        annotations["batch.kubernetes.io/job-completion-index"] = index
    if annotations:
        metadata["annotations"] = annotations
    spec = dict(template.get("spec") or {})
    if workload["kind"] == "StatefulSet":
        _add_claimed_volumes(workload, spec, pod_name)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _extra_labels(workload: Object, pod_name: str, ordinal: int) -> dict[str, str]:
    metadata = workload["metadata"]
    if workload["kind"] == "StatefulSet":
        return {
            "apps.kubernetes.io/pod-index": str(ordinal),
            "statefulset.kubernetes.io/pod-name": pod_name,
            "controller-revision-hash": f"{metadata['name']}-{_hash(workload['spec']['template'])}",
        }
    if workload["kind"] != "Job":
        return {}
    extra = {
        "batch.kubernetes.io/controller-uid": metadata["uid"],
        "batch.kubernetes.io/job-name": metadata["name"],
        "controller-uid": metadata["uid"],
        "job-name": metadata["name"],
    }
    if workload["spec"].get("completionMode") == "Indexed":
        extra["batch.kubernetes.io/job-completion-index"] = str(ordinal)
    return extra


def _add_claimed_volumes(stateful_set: Object, spec: dict[str, Any], pod_name: str) -> None:
    claimed = {
        template["metadata"]["name"]: {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{template['metadata']['name']}-{pod_name}"},
        }
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ()
    }
    if claimed:
        others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claimed]
        spec["volumes"] = [*claimed.values(), *others]


def _reference(owner: Object) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _labels(template: Object) -> dict[str, str]:
    return dict((template.get("metadata") or {}).get("labels") or {})


def _hash(template: Any) -> str:
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH_LENGTH])
