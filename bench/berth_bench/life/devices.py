"""`Devices`: the devices of nodes in a life, and the ResourceClaims for them.

Called by `world`. The embedded cluster's `ClaimController` makes and ends claims, as on a real cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from berth_host.errors.cluster import ClusterError
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sim.cluster.claim_controller import ClaimController
from berth_sim.cluster.server import ApiServer

from berth_bench.life.storage import USED_WITHIN_S

Json: TypeAlias = dict[str, Any]
CLAIMS: Final = "resource.k8s.io/resourceclaims"
SLICES: Final = "resource.k8s.io/resourceslices"
_API: Final = "resource.k8s.io/v1"
_CLASS: Final = "life"
_TEMPLATE: Final = "one-device"
_DRIVER: Final = "life.berth.io"


class Devices:
    """The devices. A node's pool has the node's name."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._controller = ClaimController(server)
        self._users: dict[str, tuple[float, Sequence[str]]] = {}
        """By claim that pods share: when it was created, and the names of its pods."""
        self._generation = 0

    def begin(self) -> None:
        """Create the class and the template of claims, and start the controller."""
        self._server.create(
            {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": _CLASS}, "spec": {}}
        )
        self._server.create(
            {
                "apiVersion": _API,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": _TEMPLATE, "namespace": "default"},
                "spec": {"spec": _wanted()},
            }
        )
        self._controller.start()

    def end(self) -> None:
        """Stop the controller."""
        self._controller.stop()

    def node_has(self, node: str, count: int) -> None:
        """Publish that a node has so many devices from now on; 0: its slice goes."""
        self._delete(SLICES, ObjectRef(name=node))
        if not count:
            return
        self._generation += 1
        self._server.create(
            {
                "apiVersion": _API,
                "kind": "ResourceSlice",
                "metadata": {"name": node},
                "spec": {
                    "driver": _DRIVER,
                    "nodeName": node,
                    "pool": {"name": node, "generation": self._generation, "resourceSliceCount": 1},
                    "devices": [{"name": f"d{number}"} for number in range(count)],
                },
            }
        )

    def claims_for(self, chance: random.Random, pods: Sequence[str]) -> dict[str, Json]:
        """Draw claims for new pods; return the fields of each pod's spec, by the pod's name.

        Each pod has a claim of its own from a template, or all share one.
        """
        entry: Json = {"name": "device", "resourceClaimTemplateName": _TEMPLATE}
        if chance.random() < 0.3:
            name = f"{pods[0]}-shared"
            self._users[name] = asyncio.get_running_loop().time(), tuple(pods)
            self._server.create(
                {
                    "apiVersion": _API,
                    "kind": "ResourceClaim",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": _wanted(),
                }
            )
            entry = {"name": "device", "resourceClaimName": name}
        return {pod: {"resourceClaims": [entry]} for pod in pods}

    def collect(self) -> None:
        """Delete the shared claims of pods that are gone."""
        pods = {pod.ref.name for pod in self._server.list("pods")}
        new_since_s = asyncio.get_running_loop().time() - USED_WITHIN_S
        for name, (created_s, users) in list(self._users.items()):
            if created_s < new_since_s and pods.isdisjoint(users):
                del self._users[name]
                self._delete(CLAIMS, ObjectRef(name=name, namespace="default"))

    def nodes_of_shared(self) -> set[str]:
        """Return the nodes to which a shared claim ties the pods that use it."""
        return {
            node
            for claim in self._server.list(CLAIMS)
            if claim.ref.name in self._users
            for node, _ in _devices_of(claim)
        }

    def delete_everything(self) -> None:
        """Delete all slices, and the claims that pods share. The controller deletes those of templates."""
        self._users.clear()
        for resource in (SLICES, CLAIMS):
            for item in self._server.list(resource):
                self._delete(resource, item.ref)

    def _delete(self, resource: str, ref: ObjectRef) -> None:
        # The controller may have taken it away.
        with suppress(ClusterError):
            self._server.delete(resource, ObjectRef(name=ref.name, namespace=ref.namespace))


def _wanted() -> Json:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": _CLASS, "count": 1}}]}}


def _devices_of(claim: KubeObject) -> Iterator[tuple[str, str]]:
    """Yield the allocated devices, each as node and name."""
    for result in claim.get("status.allocation.devices.results") or ():
        yield result["pool"], result["device"]


def lacking_claims(server: ApiServer, pod: KubeObject) -> list[str]:
    """Return what is wrong with a bound pod's claims: not allocated on its node, or not reserved for it."""
    made = {
        one["name"]: one.get("resourceClaimName") for one in pod.get("status.resourceClaimStatuses") or ()
    }
    wrong = []
    for entry in pod.get("spec.resourceClaims") or ():
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        claim = server.get(CLAIMS, ObjectRef(name=name, namespace=pod.ref.namespace)) if name else None
        if claim is None:
            wrong.append(f"{entry['name']} does not exist")
            continue
        nodes = {node for node, _ in _devices_of(claim)}
        if nodes != {pod.get("spec.nodeName")}:
            wrong.append(f"{name} is allocated on {', '.join(sorted(nodes)) or 'no node'}")
        elif pod.ref.uid not in {one["uid"] for one in claim.get("status.reservedFor") or ()}:
            wrong.append(f"{name} is not reserved for the pod")
    return wrong


def devices_taken_twice(server: ApiServer) -> list[str]:
    """Return the devices that two claims have."""
    owners: dict[tuple[str, str], str] = {}
    twice = []
    for claim in server.list(CLAIMS):
        for device in _devices_of(claim):
            other = owners.setdefault(device, claim.ref.name)
            if other != claim.ref.name:
                twice.append(f"{'/'.join(device)} ({other} and {claim.ref.name})")
    return twice


def idle_claims(server: ApiServer) -> list[str]:
    """Return the claims that hold devices for nobody, or are reserved for pods that have no node."""
    running = {pod.ref.uid for pod in server.list("pods") if pod.get("spec.nodeName")}
    wrong = []
    for claim in server.list(CLAIMS):
        users = {one["uid"] for one in claim.get("status.reservedFor") or ()}
        if users - running:
            wrong.append(f"{claim.ref.name} is reserved for a pod without a node")
        elif claim.get("status.allocation") and not users:
            wrong.append(f"{claim.ref.name} is allocated for nobody")
    return wrong
