"""All objects of a cluster that scheduling reads, listed once: for a comparison of configurations.

Called by `berth_sim.commands.compare`. Nothing is watched and nothing is written. The kinds are listed one
after the other, the nodes last, so that a pod and the node that it has just got are both there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from berth_host.errors.cluster import ForbiddenError, NotFoundError, UnreadableClusterError
from berth_host.model.compact_json import compact_json
from berth_host.model.resources import COSCHEDULING_GROUPS
from berth_sdk.json.objects import finish, object_steps

from berth_kube.client import KubeClient
from berth_kube.connection import Connection
from berth_kube.page_limits import PageLimit
from berth_kube.reading import ObjectReader, read_whole_page
from berth_kube.resources import PENDING_OR_RUNNING, ApiResource, Resources, built_in
from berth_kube.session import AnswerTooLargeError

_PAGE_SIZE: Final = 500
_NODES: Final = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCopy:
    """The objects of one cluster. `server`: the URL of its API server. `content`: the kind and the JSON of
    each.

    Finished pods are left out.
    """

    server: str
    content: Sequence[tuple[str, bytes]] = field(repr=False)

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects, parsed anew at each call."""
        return [finish(object_steps(kind, raw, orjson.loads)) for kind, raw in self.content]


async def copy_cluster(connection: Connection) -> ClusterCopy:
    """List all kinds that the API server serves.

    Raises ClientConfigError, UnreadableClusterError with every kind that the user may not list, and other
    ClusterErrors.
    """
    client = await KubeClient.open(connection)
    try:
        content: list[tuple[str, bytes]] = []
        refused: list[ForbiddenError] = []
        for found in await _resources(client):
            try:
                content += [(found.kind, compact_json(item)) async for item in _listed(client, found)]
            except NotFoundError:
                continue  # not served by this API server, or switched off
            except ForbiddenError as err:
                refused.append(err)
        if refused:
            raise UnreadableClusterError(client.host, [err.resource for err in refused], str(refused[0]))
        return ClusterCopy(server=client.host, content=content)
    finally:
        await client.close()


async def _resources(client: KubeClient) -> Sequence[ApiResource]:
    """Return what to list, the nodes last."""
    resources = Resources(client)
    found: list[ApiResource] = []
    several = [one.name for one in built_in() if resources.known(one.name) is None]
    for name in (COSCHEDULING_GROUPS, *several):
        with suppress(NotFoundError, ForbiddenError):
            found.append(await resources.resolve(name))
    found += (one for one in built_in() if one.name not in several)
    return sorted(found, key=lambda one: one.name == _NODES)


async def _listed(client: KubeClient, found: ApiResource) -> AsyncIterator[dict[str, Any]]:
    limit = PageLimit(_PAGE_SIZE)
    query: dict[str, str] = {}
    if found.field_selector == PENDING_OR_RUNNING:
        query["fieldSelector"] = found.field_selector
    reader = ObjectReader(found.kind)
    while True:
        query["limit"] = str(limit.now)
        try:
            answer = await client.send(
                "GET", found.path(), query=query, resource=found.name, most_bytes=limit.most_bytes
            )
        except AnswerTooLargeError:
            limit.was_too_large()
            continue
        try:
            page = await read_whole_page(reader, answer)
        except ValueError as err:
            raise client.no_json(err, found.name, "") from err
        limit.came(len(answer), len(page.items))
        for item in page.items:
            item["metadata"].pop("managedFields", None)
            yield {**item, "apiVersion": found.api_version, "kind": found.kind}
        if not page.token:
            return
        query["continue"] = page.token
