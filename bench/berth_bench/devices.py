"""The ops about devices (DRA): a driver's ResourceSlices, and claims that are allocated before any pod came.

Used by `actions`. The scheduler itself allocates claims, for a pod of each, and the pods are gone before
the next op; scheduler_perf calls the allocator, node after node at random.
Source: `test/integration/scheduler_perf/dra.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from berth_host.cluster.memory.server import ApiServer
from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_bench.workload import CreateResourceDriver

CLAIMS: Final = "resource.k8s.io/resourceclaims"
_API: Final = "resource.k8s.io/v1"
Object = dict[str, Any]


def slices_of(op: CreateResourceDriver, server: ApiServer) -> list[Object]:
    """One ResourceSlice for each node that fits, in the order of the nodes' creation."""
    names = [node.ref.name for node in server.list("nodes")]
    return [_slice(op, name) for name in names if fnmatchcase(name, op.nodes)]


def _slice(op: CreateResourceDriver, node: str) -> Object:
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": op.driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": [_device(index) for index in range(op.devices_per_node)],
        },
    }


def _device(index: int) -> Object:
    """Alike in all but the NUMA node: what a claim's selectors may ask for is the same in every run."""
    return {
        "name": f"instance-{index}",
        "attributes": {
            "model": {"string": "A100"},
            "family": {"string": "GPU"},
            "driverVersion": {"version": "1.2.3"},
            "dra.example.com/numa": {"int": index},
        },
        "capacity": {"memory": {"value": "1Gi"}},
    }


def users_of_claims(server: ApiServer, namespace: str) -> Iterator[Object]:
    """A pod for every claim that has no allocation yet. `namespace` "": of everywhere."""
    for claim in server.list(CLAIMS, namespace or None):
        if claim.get("status.allocation") is None:
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"generateName": "claim-", "namespace": claim.ref.namespace},
                "spec": {
                    "containers": [{"name": "user", "resources": {"claims": [{"name": "own"}]}}],
                    "resourceClaims": [{"name": "own", "resourceClaimName": claim.ref.name}],
                },
            }


def release(server: ApiServer, pod: KubeObject) -> None:
    """Delete a pod and leave its claims allocated, for nobody."""
    for entry in pod.get("spec.resourceClaims") or ():
        # Without a consumer before the pod goes: with its last one a claim would give the devices back.
        ref = ObjectRef(name=entry["resourceClaimName"], namespace=pod.ref.namespace)
        server.patch(CLAIMS, ref, {"status": {"reservedFor": None}}, subresource="status")
    server.delete("pods", pod.ref)
