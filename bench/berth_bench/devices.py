"""The ops about devices (DRA): a driver's ResourceSlices, and claims that are allocated before any pod
exists.

Used by `actions`. The scheduler itself allocates each claim, for a temporary pod that is gone before the next
op; scheduler_perf calls the allocator instead, for nodes in random order. Source:
`test/integration/scheduler_perf/dra.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.server import ApiServer

from berth_bench.workload import CreateResourceDriver

CLAIMS: Final = "resource.k8s.io/resourceclaims"
_API: Final = "resource.k8s.io/v1"
Object = dict[str, Any]


def slices_of(op: CreateResourceDriver, server: ApiServer) -> list[Object]:
    """Return one ResourceSlice for each matching node, in the order in which the nodes were created."""
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
    """Return a device. Devices differ only in the NUMA node, so a claim's selectors match the same in every
    run.
    """
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
    """Yield a pod for every claim without an allocation. `namespace` "": all namespaces."""
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
    """Delete a pod and leave its claims allocated, without a user."""
    for entry in pod.get("spec.resourceClaims") or ():
        # Remove the pod from the claim first: the controller deallocates a claim when its last user is
        # deleted.
        ref = ObjectRef(name=entry["resourceClaimName"], namespace=pod.ref.namespace)
        server.patch(CLAIMS, ref, {"status": {"reservedFor": None}}, subresource="status")
    server.delete("pods", pod.ref)
