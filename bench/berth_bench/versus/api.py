"""A small client of an API server: JSON in, JSON out, one method per verb.

It creates, watches and deletes the objects of `berth bench versus` and of tests (nodes, pods, volumes).
Schedulers have clients of their own.
"""

from __future__ import annotations

import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import aiohttp
from yarl import URL

Json: TypeAlias = dict[str, Any]
_REQUEST_S: Final = 60.0


class ApiError(Exception):
    """The server answered with status 400 or above. Attributes: status, message."""

    def __init__(self, status: int, message: str, request: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"{request}: {status} {message}")


@dataclass(frozen=True, slots=True)
class Kind:
    """The place of the objects of one kind. `group_version`: `api/v1`, `apis/policy/v1`."""

    group_version: str
    resource: str
    namespaced: bool = True


KINDS: Final[Mapping[str, Kind]] = {
    "Pod": Kind("api/v1", "pods"),
    "Node": Kind("api/v1", "nodes", namespaced=False),
    "Namespace": Kind("api/v1", "namespaces", namespaced=False),
    "ServiceAccount": Kind("api/v1", "serviceaccounts"),
    "PersistentVolume": Kind("api/v1", "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": Kind("api/v1", "persistentvolumeclaims"),
    "PriorityClass": Kind("apis/scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
    "StorageClass": Kind("apis/storage.k8s.io/v1", "storageclasses", namespaced=False),
    "CSIDriver": Kind("apis/storage.k8s.io/v1", "csidrivers", namespaced=False),
    "CSINode": Kind("apis/storage.k8s.io/v1", "csinodes", namespaced=False),
    "PodDisruptionBudget": Kind("apis/policy/v1", "poddisruptionbudgets"),
    "DeviceClass": Kind("apis/resource.k8s.io/v1", "deviceclasses", namespaced=False),
    "ResourceSlice": Kind("apis/resource.k8s.io/v1", "resourceslices", namespaced=False),
    "ResourceClaim": Kind("apis/resource.k8s.io/v1", "resourceclaims"),
    "ResourceClaimTemplate": Kind("apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    "ValidatingAdmissionPolicy": Kind(
        "apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
    ),
    "ValidatingAdmissionPolicyBinding": Kind(
        "apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
    ),
    "Lease": Kind("apis/coordination.k8s.io/v1", "leases"),
    "Event": Kind("apis/events.k8s.io/v1", "events"),
}


POD_GROUP: Final = Kind("apis/scheduling.k8s.io/v1beta1", "podgroups")
"""The place of PodGroups, which an API server serves with `real_servers.pod_group_flags` alone."""


class ApiClient:
    """A connection pool to one API server, for one user. Close it after use."""

    def __init__(self, url: str, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        """`tls`: None trusts any server, which is for an own server on loopback."""
        self._url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=tls or False, limit=64),
            timeout=aiohttp.ClientTimeout(total=_REQUEST_S),
        )
        self._served: Mapping[str, Kind] | None = None

    async def place_of(self, kind: str) -> Kind:
        """Return the place of a kind's objects: from KINDS or POD_GROUP, else from discovery.

        Raises ApiError, and ValueError for a kind that the server does not serve.
        """
        known = POD_GROUP if kind == "PodGroup" else KINDS.get(kind)
        if known is not None:
            return known
        if self._served is None:
            self._served = await self._discovered()
        if kind not in self._served:
            raise ValueError(f"the API server serves no kind {kind}")
        return self._served[kind]

    async def path(self, kind: str, name: str, namespace: str) -> str:
        """Return the path of an object, or of its collection if `name` is empty. Raises as `place_of`."""
        return path_at(await self.place_of(kind), name, namespace)

    async def _discovered(self) -> dict[str, Kind]:
        """Read every kind of every group, in the version that the server prefers. The first group counts."""
        groups = (await self.request("GET", "apis"))["groups"]
        versions = ["api/v1", *(f"apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        served: dict[str, Kind] = {}
        for version in versions:
            for item in (await self.request("GET", version))["resources"]:
                if "/" not in item["name"] and "create" in item["verbs"]:
                    served.setdefault(item["kind"], Kind(version, item["name"], item["namespaced"]))
        return served

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def request(
        self, verb: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Json:
        """Make one request. Raises ApiError. `path` has no leading slash. `body`: a value, or JSON text."""
        text = await self.text(verb, path, body, content_type)
        return dict(json.loads(text)) if text else {}

    async def text(
        self, verb: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> str:
        """Make one request as `request` does, and return the answer unparsed."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        # aiohttp warns of a body of more than 1 MiB that is not read as a file is.
        body = None if data is None else io.BytesIO(data)
        async with self._session.request(verb, f"{self._url}/{path}", data=body, headers=headers) as answer:
            text = await answer.text(errors="replace")
            if answer.status >= 400:
                raise ApiError(answer.status, _message(text), f"{verb} {path}")
            return text

    async def get(self, kind: str, name: str, namespace: str = "default") -> Json | None:
        """Return one object, or None."""
        try:
            return await self.request("GET", await self.path(kind, name, namespace))
        except ApiError as err:
            if err.status == 404:
                return None
            raise

    async def all_of(self, kind: str, namespace: str = "") -> tuple[list[Json], str]:
        """Return all current objects, and the resource version to watch from."""
        answer = await self.request("GET", await self.path(kind, "", namespace))
        return list(answer.get("items") or ()), str(answer["metadata"]["resourceVersion"])

    async def create(self, content: Json) -> Json:
        """Create an object, in namespace `default` unless it names another."""
        namespace = content["metadata"].get("namespace", "default")
        return await self.request("POST", await self.path(content["kind"], "", namespace), content)

    async def patch(
        self, kind: str, name: str, body: Json, *, namespace: str = "default", subresource: str = ""
    ) -> Json:
        """Send a JSON merge patch."""
        path = await self.path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        return await self.request("PATCH", path, body, "application/merge-patch+json")

    async def bind(self, pod: str, node: str, namespace: str = "default") -> Json:
        """Post a Binding."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace},
            "target": {"kind": "Node", "name": node},
        }
        return await self.request("POST", f"{path_of('Pod', pod, namespace)}/binding", body)

    async def delete(
        self, kind: str, name: str, *, namespace: str = "default", grace_period_s: int | None = None
    ) -> None:
        """Delete one object; a missing object is not an error."""
        query = "" if grace_period_s is None else f"?gracePeriodSeconds={grace_period_s}"
        try:
            await self.request("DELETE", await self.path(kind, name, namespace) + query)
        except ApiError as err:
            if err.status != 404:
                raise

    async def delete_all(self, kind: str, namespace: str = "default") -> None:
        """Delete all objects of a kind (in one namespace) at once."""
        await self.request("DELETE", f"{await self.path(kind, '', namespace)}?gracePeriodSeconds=0")

    async def watch(
        self, kind: str, resource_version: str, namespace: str = ""
    ) -> AsyncIterator[tuple[str, Json]]:
        """Yield (`ADDED`, object) and so on, until the server ends the stream."""
        async for line in self.watch_lines(kind, resource_version, namespace=namespace):
            change = json.loads(line)
            yield change["type"], change["object"]

    async def watch_lines(
        self, kind: str, resource_version: str, field_selector: str = "", *, namespace: str = ""
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a watch unparsed, one JSON text per change."""
        path = f"{await self.path(kind, '', namespace)}?watch=1&resourceVersion={resource_version}"
        if field_selector:
            path += f"&fieldSelector={quote(field_selector)}"
        timeout = aiohttp.ClientTimeout(total=None)
        url = URL(f"{self._url}/{path}", encoded=True)
        async with self._session.get(url, timeout=timeout) as answer:
            try:
                rest = b""
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line
            finally:
                # Closing TLS in the middle of a stream would take longer than the loop may live.
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()


def _message(text: str) -> str:
    """Return the message of an answer with an error: that of its Status, or all of it."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return text.strip()
    return str(parsed.get("message", "")) if isinstance(parsed, dict) else ""


def path_of(kind: str, name: str = "", namespace: str = "default") -> str:
    """Return the path of an object, or of its collection; without `namespace` that of all namespaces."""
    return path_at(KINDS[kind], name, namespace)


def path_at(place: Kind, name: str = "", namespace: str = "default") -> str:
    """Return the path of an object of the kind at `place`, or of its collection, as `path_of`."""
    scope = f"namespaces/{namespace}/" if place.namespaced and namespace else ""
    return f"{place.group_version}/{scope}{place.resource}" + (f"/{name}" if name else "")
