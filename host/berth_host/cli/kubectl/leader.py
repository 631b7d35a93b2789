"""A cluster -> the pod of the berth scheduler that leads, found by its Lease.

The host labels its Lease, so neither the release's name nor the namespace has to be known. A holder's
identity is its host name, `_` and a UUID, and a pod's host name is its own, or its node's where it uses the
node's network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote

from berth_host.cli.kubectl.asking import UNREACHABLE, AskError
from berth_host.cluster.kube.lease_record import API_VERSION, LABEL, LeaseRecord, label_value
from berth_host.errors.cluster import ClusterError

SELECTOR: Final = "app.kubernetes.io/name=berth"
_LEASES: Final = f"/apis/{API_VERSION}"
_NAMED: Final = "name the scheduler with --lease NAMESPACE/NAME, or with --server https://HOST:10259"
_HOST_NAME_LENGTH: Final = 63


class ApiClient(Protocol):
    """`cluster.kube.client.KubeClient`, as far as it is needed here."""

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Raises ClusterError."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    """A Lease. `holder` "": nobody holds it."""

    namespace: str
    name: str
    holder: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


async def leader_pod(client: ApiClient, lease: str, selector: str) -> tuple[str, str]:
    """Return the namespace and the name of the leader's pod.

    `lease`: `NAMESPACE/NAME`, or "" for the Lease with berth's label. `selector`: labels of the pods, for a
    scheduler without a Lease and for pods in another namespace than their Lease. Raises AskError where there
    is no such pod, or more than one may be meant.
    """
    try:
        held = await _named(client, lease) if lease else await _labelled(client)
        found = await (_only_pod(client, selector) if held is None else _holder_of(held, client, selector))
    except ClusterError as err:
        raise AskError(f"the scheduler's pod cannot be looked up: {err}; {_NAMED}", UNREACHABLE) from err
    return found


async def _holder_of(lease: _Held, client: ApiClient, selector: str) -> tuple[str, str]:
    """Return the pod that holds the Lease. A node's name says nothing of a pod without the labels.

    The pods beside the Lease are asked for first: users may not have the right to list those elsewhere.
    """
    host_name = lease.holder.rpartition("_")[0] or lease.holder
    beside = f"/api/v1/namespaces/{quote(lease.namespace, safe='')}/pods"
    found = _by_name(host_name, await _pods(client, beside))
    for path in (beside, "/api/v1/pods"):
        if not found:
            pods = await _pods(client, path, selector)
            found = _by_name(host_name, pods) or _by_node(host_name, pods)
    if not found:
        raise AskError(
            f"{lease.holder} holds the Lease {lease}, but no pod of that name is in its namespace or has the"
            f" label {selector}: it may run outside the cluster; give --server https://HOST:10259, or"
            " the labels of its pod with --selector"
        )
    return _name(found[0])


async def _named(client: ApiClient, lease: str) -> _Held:
    namespace, _, name = lease.partition("/")
    path = f"{_LEASES}/namespaces/{quote(namespace, safe='')}/leases/{quote(name, safe='')}"
    found = await client.request("GET", path)
    return _led(_Held(namespace, name, LeaseRecord.of(found).holder))


async def _labelled(client: ApiClient) -> _Held | None:
    """Return the Lease with berth's label; None where there is none. Raises AskError where several are held.

    A release that was taken away leaves its Lease behind, without a holder: it does not count beside others.
    One that kube-scheduler took over does not count at all.
    """
    answer = await client.request("GET", f"{_LEASES}/leases", query={"labelSelector": LABEL})
    found = [
        _Held(item["metadata"]["namespace"], item["metadata"]["name"], LeaseRecord.of(item).holder)
        for item in answer.get("items") or []
        if LeaseRecord.of(item).holder == "" or _is_berths(item)
    ]
    if not found:
        return None
    held = [one for one in found if one.holder]
    if len(held) > 1:
        listed = ", ".join(f"{one} (held by {one.holder})" for one in held)
        raise AskError(
            f"{len(held)} Leases have the label {LABEL}: {listed}; choose one with --lease NAMESPACE/NAME"
        )
    return held[0] if held else _led(found[0])


def _is_berths(lease: Mapping[str, Any]) -> bool:
    label = (lease["metadata"].get("labels") or {}).get(LABEL)
    return bool(label == label_value(LeaseRecord.of(lease).holder))


def _led(lease: _Held) -> _Held:
    if not lease.holder:
        raise AskError(f"no scheduler holds the Lease {lease}: none leads now; see their logs")
    return lease


async def _only_pod(client: ApiClient, selector: str) -> tuple[str, str]:
    """Return the only running pod with the labels: a scheduler without leader election has no Lease."""
    pods = [pod for pod in await _pods(client, "/api/v1/pods", selector) if _runs(pod)]
    if not pods:
        raise AskError(
            f"no berth scheduler holds a Lease with the label {LABEL}, and no pod runs with the label"
            f" {selector}: {_NAMED}"
        )
    if len(pods) > 1:
        raise AskError(
            f"{len(pods)} pods run with the label {selector}, and no Lease with the label {LABEL}"
            f" says which leads: {_NAMED}"
        )
    return _name(pods[0])


async def _pods(client: ApiClient, path: str, selector: str = "") -> list[Mapping[str, Any]]:
    query = {"labelSelector": selector} if selector else {}
    return list((await client.request("GET", path, query=query)).get("items") or [])


def _by_name(host_name: str, pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [pod for pod in pods if host_name in _host_names(pod)]


def _by_node(host_name: str, pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    specs = [(pod, pod.get("spec") or {}) for pod in pods if _runs(pod)]
    return [pod for pod, spec in specs if spec.get("hostNetwork") and spec.get("nodeName") == host_name]


def _host_names(pod: Mapping[str, Any]) -> tuple[str, ...]:
    own = (pod.get("spec") or {}).get("hostname")
    name = _name(pod)[1]
    return (name, name[:_HOST_NAME_LENGTH].rstrip("-."), *([own] if own else []))


def _name(pod: Mapping[str, Any]) -> tuple[str, str]:
    meta = pod["metadata"]
    return meta["namespace"], meta["name"]


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"
