"""Does the operations of a recorded scenario on a real API server, and empties the cluster after it.

Operations: create, patch, delete, bind, sleep (README of the recordings).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any, Final

from berth_bench.versus.api import KINDS, ApiClient, ApiError, path_of

Json = dict[str, Any]
_KEPT: Final = frozenset({"Namespace"})
_KEPT_PRIORITIES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_WIPE_S: Final = 30.0
POLICY_S: Final = 10.0


async def play(api: ApiClient, operations: Iterable[Json]) -> None:
    """Do the operations, one after the other. Raises ApiError, and ValueError for an unknown operation."""
    for operation in operations:
        await _play_one(api, operation)


async def _play_one(api: ApiClient, operation: Json) -> None:
    match operation:
        case {"create": content}:
            made = await _created(api, content)
            await _with_status(api, content, made)
        case {"patch": name, "kind": kind, "body": body, **more}:
            subresource = str(more.get("subresource", ""))
            await api.patch(kind, name, body, namespace=_namespace(more), subresource=subresource)
        case {"delete": name, "kind": kind, **more}:
            grace_s = more.get("gracePeriodSeconds")
            await api.delete(kind, name, namespace=_namespace(more), grace_period_s=grace_s)
        case {"bind": pod, "node": node, **more}:
            await api.bind(pod, node, _namespace(more))
        case {"sleep": seconds}:
            await asyncio.sleep(float(seconds))
        case _:
            raise ValueError(f"unknown operation: {sorted(operation)}")


async def _created(api: ApiClient, content: Json) -> Json:
    """Create an object, with retries until admission has seen a PriorityClass that was created just
    before.

    A namespace that an earlier scenario created is used again: `wipe` keeps namespaces.
    """
    ends_s = time.monotonic() + POLICY_S
    while True:
        try:
            return await api.create(content)
        except ApiError as err:
            if content["kind"] in _KEPT and err.status == 409:
                return await api.patch(content["kind"], content["metadata"]["name"], content)
            if "no PriorityClass with name" not in err.message or time.monotonic() > ends_s:
                raise
        await asyncio.sleep(0.05)  # the server does not report when it has


async def _with_status(api: ApiClient, content: Json, made: Json) -> None:
    """Write the status that the API server dropped at creation, as a controller does."""
    status = content.get("status")
    if status and not (made.get("status") or {}).items() >= status.items():
        name, namespace = content["metadata"]["name"], content["metadata"].get("namespace", "default")
        body = {"status": status}
        await api.patch(content["kind"], name, body, namespace=namespace, subresource="status")


async def settle_policies(api: ApiClient, setup: Iterable[Json]) -> None:
    """Wait until the admission policy of a scenario refuses requests, some time after its creation.

    The recorded policy refuses Bindings of a pod `p1`, which a dry run of such a Binding shows.
    """
    if not any(item.get("create", {}).get("kind") == "ValidatingAdmissionPolicyBinding" for item in setup):
        return
    probe = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p1"},
        "target": {"kind": "Node", "name": "n1"},
    }
    path = f"{path_of('Pod', 'p1')}/binding?dryRun=All"
    ends_s = time.monotonic() + POLICY_S
    while time.monotonic() < ends_s:  # the server does not say when it is ready
        try:
            await api.request("POST", path, probe)
        except ApiError as err:
            if "ValidatingAdmissionPolicy" in err.message:
                return
        await asyncio.sleep(0.1)
    raise TimeoutError("the admission policy does not take effect")


async def wipe(api: ApiClient, made: Iterable[Json] = ()) -> None:
    """Delete every object of KINDS, and the objects of other kinds in the operations `made`, with
    finalizers.
    """
    ends_s = time.monotonic() + _WIPE_S
    for operation in made:
        content = operation.get("create") or {}
        if content and content["kind"] not in KINDS:
            await _delete(api, content["kind"], content["metadata"])
    while await _wipe_once(api):
        if time.monotonic() > ends_s:
            raise TimeoutError("the cluster does not become empty")
        await asyncio.sleep(0.05)


async def _wipe_once(api: ApiClient) -> int:
    """Delete all objects; return their number."""
    counts = await asyncio.gather(*(_wipe_kind(api, kind) for kind in KINDS if kind not in _KEPT))
    return sum(counts)


async def _wipe_kind(api: ApiClient, kind: str) -> int:
    items, _ = await api.all_of(kind)
    items = [item for item in items if item["metadata"]["name"] not in _KEPT_PRIORITIES]
    for item in items:
        await _delete(api, kind, item["metadata"])
    return len(items)


async def _delete(api: ApiClient, kind: str, metadata: Json) -> None:
    name, namespace = metadata["name"], metadata.get("namespace", "default")
    with contextlib.suppress(ApiError, ValueError):  # already deleted, or never created
        if metadata.get("finalizers"):
            await api.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
        await api.delete(kind, name, namespace=namespace, grace_period_s=0)


def _namespace(operation: Json) -> str:
    return str(operation.get("namespace", "default"))
