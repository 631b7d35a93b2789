"""`Calls`: the cycles' calls as requests to the API server, with the bodies that kube-scheduler sends.

The half of `cluster.KubeCluster` that asks; the port documents each call.
Source: kube-scheduler's requests with JSON bodies (recorded, v1.36.2); client-go `kubernetes/typed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from berth_host.errors.cluster import (
    ClusterError,
    ConflictError,
    FieldProblem,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from berth_host.model.patch_type import PatchType
from berth_sdk.kube_object import KubeObject, ObjectRef

from berth_kube.answers import check_done, check_object
from berth_kube.client import KubeClient, path_of
from berth_kube.page_limits import PageLimit
from berth_kube.reading import NoListError, ObjectReader, read_whole_page
from berth_kube.resources import ApiResource, Resources
from berth_kube.session import AnswerTooLargeError

_PAGE_SIZE: Final = 500


class Calls:
    """The calls to one API server.

    `before_sending` is called before each request and raises to stop the request. An answer that is not the
    API server's own, whatever its HTTP status, raises an error whose outcome is unknown.
    """

    def __init__(self, client: KubeClient, resources: Resources, before_sending: Callable[[], None]) -> None:
        self._client = client
        self._resources = resources
        self._before_sending = before_sending

    async def get(self, resource: str, ref: ObjectRef) -> KubeObject | None:
        """Read one object, live."""
        found = await self._resource(resource, ref.name)
        try:
            item = await self._ask("GET", found, ref.namespace, ref.name)
        except NotFoundError:
            return None
        answer = _object(found, item)
        return answer if ref.uid in ("", answer.ref.uid) else None

    async def list(
        self,
        resource: str,
        namespace: str,
        labels: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> list[KubeObject]:
        """Read the objects of a namespace that have all these labels and values of fields, in pages."""
        self._before_sending()
        found = self._resources.known(resource) or await self._resources.resolve(resource)
        limit = PageLimit(_PAGE_SIZE)
        query: dict[str, str] = {}
        for name, wanted in (("labelSelector", labels), ("fieldSelector", fields)):
            if wanted:
                query[name] = ",".join(f"{key}={value}" for key, value in wanted.items())
        items: list[KubeObject] = []
        while True:
            query["limit"] = str(limit.now)
            try:
                answer = await self._client.send(
                    "GET",
                    found.path(namespace or "default"),
                    query=query,
                    resource=resource,
                    key=namespace,
                    before_sending=self._before_sending,
                    most_bytes=limit.most_bytes,
                )
            except AnswerTooLargeError:
                limit.was_too_large()
                continue
            try:
                page = await read_whole_page(ObjectReader(found.kind), answer)
            except NoListError:
                raise UnavailableError(
                    resource, namespace, "the answer is no list of the API server"
                ) from None
            except ValueError as err:
                raise self._client.no_json(err, resource, namespace) from err
            limit.came(len(answer), len(page.items))
            items.extend(_object(found, item) for item in page.items)
            if not page.token:
                return items
            query["continue"] = page.token

    async def bind(self, pod: ObjectRef, node_name: str) -> None:
        """Post a Binding."""
        namespace = pod.namespace or "default"
        metadata = {"name": pod.name, "namespace": namespace}
        if pod.uid:
            metadata["uid"] = pod.uid
        body = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": metadata,
            "target": {"kind": "Node", "name": node_name},
        }
        key = f"{namespace}/{pod.name}"
        try:
            answer = await self._client.send(
                "POST",
                path_of("/api/v1", "pods", namespace, pod.name, "binding"),
                body=orjson.dumps(body),
                resource="pods",
                key=key,
                frequent=True,
                before_sending=self._before_sending,
            )
        except ClusterError as err:
            raise _in_doubt(err) from err
        check_done(answer, "pods", key)

    async def patch(
        self,
        resource: str,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        expected_resource_version: str = "",
    ) -> KubeObject:
        """Send a patch, conditional on `expected_resource_version` if that is not empty."""
        found = await self._resource(resource, ref.name)
        if expected_resource_version:
            metadata = {**(patch.get("metadata") or {}), "resourceVersion": expected_resource_version}
            patch = {**patch, "metadata": metadata}
        item = await self._ask(
            "PATCH",
            found,
            ref.namespace,
            ref.name,
            subresource,
            patch,
            content_type=patch_type.value,
            frequent=True,
        )
        return _object(found, item)

    async def update(self, resource: str, content: Mapping[str, Any], *, subresource: str = "") -> KubeObject:
        """Replace an object (PUT)."""
        metadata = content.get("metadata") or {}
        namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
        found = await self._resource(resource, name)
        body = {"kind": found.kind, "apiVersion": found.api_version, **content}
        return _object(found, await self._ask("PUT", found, namespace, name, subresource, body))

    async def create(self, resource: str, ref: ObjectRef, content: Mapping[str, Any]) -> KubeObject:
        """Create an object; the server completes a name that ends in "-"."""
        found = await self._resource(resource, ref.name)
        metadata = dict(content.get("metadata") or {})
        metadata.pop("name", None)
        metadata["generateName" if ref.name.endswith("-") else "name"] = ref.name
        namespace = (ref.namespace or metadata.get("namespace") or "default") if found.namespaced else ""
        if namespace:
            metadata["namespace"] = namespace
        body = {"kind": found.kind, "apiVersion": found.api_version, **content, "metadata": metadata}
        item = await self._ask("POST", found, namespace, "", "", body, key=ref.key)
        return _object(found, item)

    async def delete(
        self, resource: str, ref: ObjectRef, *, grace_period_s: int | None = None, same_uid: bool = False
    ) -> None:
        """Delete an object; without preconditions, as kube-scheduler does, unless `same_uid`."""
        found = await self._resource(resource, ref.name)
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if same_uid:
            options["preconditions"] = {"uid": ref.uid}
        try:
            answer = await self._client.send(
                "DELETE",
                found.path(ref.namespace or "default", ref.name),
                body=orjson.dumps(options),
                resource=resource,
                key=ref.key,
                before_sending=self._before_sending,
            )
        except ClusterError as err:
            raise _in_doubt(err) from err
        check_done(answer, resource, ref.key, kind=found.kind)

    async def _resource(self, resource: str, name: str) -> ApiResource:
        self._before_sending()
        # Without a name the path would be the collection's, and DELETE would delete every object of it.
        if name in ("", ".", ".."):
            problem = FieldProblem(
                path="metadata.name", problem=f"{name!r} is not a name; give the object's name"
            )
            raise InvalidError(resource, name, [problem])
        return self._resources.known(resource) or await self._resources.resolve(resource)

    async def _ask(
        self,
        method: str,
        resource: ApiResource,
        namespace: str,
        name: str,
        subresource: str = "",
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        key: str = "",
        frequent: bool = False,
    ) -> dict[str, Any]:
        if resource.namespaced and not namespace:
            namespace = "default"
        key = key or (f"{namespace}/{name}" if resource.namespaced else name)
        try:
            answer = await self._client.request(
                method,
                resource.path(namespace, name, subresource),
                body=body,
                content_type=content_type,
                resource=resource.name,
                key=key,
                frequent=frequent,
                before_sending=self._before_sending,
                reader=ObjectReader(resource.kind),
            )
        except ClusterError as err:
            raise _in_doubt(err) from err
        check_object(answer, resource.kind, resource.name, key)
        return answer


def _in_doubt(err: ClusterError) -> ClusterError:
    """Return the error to raise for `err`: what an intermediary says of an object is no fact about it."""
    if err.outcome_known or not isinstance(err, (NotFoundError, ConflictError)):
        return err
    return UnavailableError(err.resource, err.key, err.text, server_message=err.server_message)


def _object(resource: ApiResource, item: dict[str, Any]) -> KubeObject:
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return KubeObject(resource.api_version, resource.kind, parsed=item)
