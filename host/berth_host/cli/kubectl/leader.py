"""A cluster -> the pod of the berth scheduler that leads, found by its Lease and by labels.

A holder's identity is its host name, `_` and a UUID, and a pod's host name is its own, or its node's where it
uses the node's network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from berth_host.cli.kubectl.asking import UNREACHABLE, AskError
from berth_host.errors.cluster import ClusterError, NotFoundError

LEASE: Final = "berth-scheduler"
SELECTOR: Final = "app.kubernetes.io/name=berth"
_NAMED: Final = "name the scheduler with --lease NAMESPACE/NAME, or with --server https://HOST:10259"
_HOST_NAME_LENGTH: Final = 63


class ApiClient(Protocol):
    """`cluster.kube.client.KubeClient`, as far as it is needed here."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Raises ClusterError."""
        ...


async def leader_pod(client: ApiClient, lease: str, selector: str) -> tuple[str, str]:
    """(namespace, name). `lease`: `NAMESPACE/NAME`, or "" for the Lease beside the labelled pods.

    Raises AskError where there is none, or it cannot be told which.
    """
    try:
        if lease:
            namespace, _, name = lease.partition("/")
            holder = await _holder(client, namespace, name)
            pods = await _pods(client, f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", {})
            return _pod_of(holder, lease, pods)
        pods = [pod for pod in await _pods(client, "/api/v1/pods", {"labelSelector": selector}) if _runs(pod)]
        if not pods:
            raise AskError(f"no pod runs with the label {selector}: {_NAMED}")
        return await _leading(client, pods, selector)
    except ClusterError as err:
        raise AskError(f"the scheduler's pod cannot be looked up: {err}; {_NAMED}", UNREACHABLE) from err


async def _leading(client: ApiClient, pods: Sequence[Mapping[str, Any]], selector: str) -> tuple[str, str]:
    for namespace in dict.fromkeys(_name(pod)[0] for pod in pods):
        try:
            holder = await _holder(client, namespace, LEASE)
        except NotFoundError:
            continue
        return _pod_of(holder, f"{namespace}/{LEASE}", pods)
    if len(pods) > 1:
        raise AskError(
            f"{len(pods)} pods run with the label {selector}, and no Lease {LEASE} says which leads: {_NAMED}"
        )
    return _name(pods[0])


async def _holder(client: ApiClient, namespace: str, name: str) -> str:
    path = (
        f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases/{quote(name, safe='')}"
    )
    lease = await client.request("GET", path)
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    if not holder:
        raise AskError(f"nobody holds the Lease {namespace}/{name}: no scheduler leads now; see their logs")
    return str(holder)


async def _pods(client: ApiClient, path: str, query: Mapping[str, str]) -> list[Mapping[str, Any]]:
    return list((await client.request("GET", path, query=query)).get("items") or [])


def _pod_of(holder: str, lease: str, pods: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    host_name = holder.rpartition("_")[0] or holder
    by_name = [pod for pod in pods if host_name in _host_names(pod)]
    by_node = [
        pod
        for pod in pods
        if (pod.get("spec") or {}).get("hostNetwork") and pod["spec"].get("nodeName") == host_name
    ]
    found = by_name or [pod for pod in by_node if _runs(pod)]
    if not found:
        raise AskError(
            f"{holder} holds the Lease {lease}, and no pod there is that: it may run outside the cluster;"
            " name it with --server https://HOST:10259"
        )
    return _name(found[0])


def _host_names(pod: Mapping[str, Any]) -> tuple[str, ...]:
    own = (pod.get("spec") or {}).get("hostname")
    name = _name(pod)[1]
    return (name, name[:_HOST_NAME_LENGTH].rstrip("-."), *([own] if own else []))


def _name(pod: Mapping[str, Any]) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta["namespace"], meta["name"]


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"
