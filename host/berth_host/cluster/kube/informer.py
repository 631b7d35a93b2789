"""`Informer`: lists one resource and then watches it, and reconnects as often as needed.

Started by `cluster.KubeCluster`, one per resource. Its changes go through `delivery` into a
`View`, which keeps the objects as they were last handed over, and finds the changes to hand over.

    listing -all handed over-> watching -connection ends-> watching (from the last resource version)
    watching -410, too old-> listing (unchanged objects are not handed over)

Source: client-go `tools/cache/reflector.go`, v1.36.

A `View` keeps uid and resource version of every object. A version that was handed over is
skipped. If an object was replaced by another one of the same name, a delete is handed over first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from berth_sdk.kube_object import LAST_APPLIED, KubeObject

from berth_host.cluster.coscheduling import POD_GROUPS
from berth_host.cluster.kube.answers import error_of_status
from berth_host.cluster.kube.backoff import Backoff
from berth_host.cluster.kube.client import KubeClient, Stream
from berth_host.cluster.kube.delivery import Delivery
from berth_host.cluster.kube.resources import ApiResource, Resources
from berth_host.cluster.port import WatchEvent, WatchHandler
from berth_host.cluster.watching import RESOURCE_OF_GATE
from berth_host.errors.cluster import ClusterError, ForbiddenError, GoneError, NotFoundError, UnavailableError
from berth_host.log import get_logger


class NoObjectError(Exception):
    """The received value is not a Kubernetes object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeps:
    """The metadata of a resource that is kept although berth does not read it, because it is sent on."""

    managed_fields: bool = False
    last_applied: bool = False


class View:
    """The view of one resource. `handler` is called for each change, in the order of the calls."""

    def __init__(self, resource: ApiResource, handler: WatchHandler, keeps: Keeps) -> None:
        self._resource = resource
        self._keeps = keeps
        self._handler = handler
        self._known: dict[str, tuple[str, str]] = {}
        # Other kinds may be written back whole (PUT), so no annotation of theirs may be left out.
        self._drops_last_applied = resource.name in ("pods", "nodes") and not keeps.last_applied

    def __len__(self) -> int:
        return len(self._known)

    @property
    def versions(self) -> Mapping[str, tuple[str, str]]:
        """Uid and resource version by key."""
        return self._known

    def show(self, item: Any, seen: set[str] | None = None) -> None:
        """Hand over an object if it is new or changed; add its key to `seen`. Raises NoObjectError."""
        metadata = _metadata(item)
        key = _key(metadata)
        if seen is not None:
            seen.add(key)
        now = (metadata.get("uid") or "", metadata.get("resourceVersion") or "")
        known = self._known.get(key)
        if known == now:
            return
        old: KubeObject | None = None
        if known is not None:
            old = self._remembered(key, known)
            if known[0] != now[0]:
                del self._known[key]
                self._handler(WatchEvent(self._resource.watch_kind, old, None))
                old = None
        self._known[key] = now
        self._handler(WatchEvent(self._resource.watch_kind, old, self._object(item, metadata)))

    def remove(self, item: Any) -> None:
        """Hand over the deletion of an object. Raises NoObjectError."""
        metadata = _metadata(item)
        key = _key(metadata)
        known = self._known.get(key)
        if known is None or known[0] != (metadata.get("uid") or ""):
            return
        del self._known[key]
        self._handler(WatchEvent(self._resource.watch_kind, self._object(item, metadata), None))

    def keep_only(self, keys: set[str]) -> None:
        """Hand over the deletion of every object whose key a complete list does not contain."""
        for key in [key for key in self._known if key not in keys]:
            known = self._known.pop(key)
            self._handler(WatchEvent(self._resource.watch_kind, self._remembered(key, known), None))

    def _object(self, item: Mapping[str, Any], metadata: dict[str, Any]) -> KubeObject:
        if not self._keeps.managed_fields:
            metadata.pop("managedFields", None)
        if self._drops_last_applied:
            annotations = metadata.get("annotations")
            if annotations and LAST_APPLIED in annotations:
                del annotations[LAST_APPLIED]
        resource = self._resource
        # The items of a list do not contain their kind.
        parsed = item
        if "kind" not in item:
            parsed = {"kind": resource.kind, "apiVersion": resource.api_version, **item}
        return KubeObject(resource.api_version, resource.kind, parsed=parsed)

    def _remembered(self, key: str, known: tuple[str, str]) -> KubeObject:
        """Return an object of which only the identity was kept."""
        namespace, _, name = key.rpartition("/")
        metadata = {"name": name, "uid": known[0], "resourceVersion": known[1]}
        if namespace:
            metadata["namespace"] = namespace
        resource = self._resource
        parsed = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return KubeObject(resource.api_version, resource.kind, parsed=parsed)


def _metadata(item: Any) -> dict[str, Any]:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise NoObjectError("an object without a name")
    return metadata


def _key(metadata: Mapping[str, Any]) -> str:
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


log = get_logger()

PAGE_SIZE: Final = 500
"""Objects per answer of a list."""
LIST_TIMEOUT_S: Final = 60.0
MIN_WATCH_S: Final = 300
"""The shortest watch, in seconds. The server ends each watch after a random time between this and
MAX_WATCH_S, so that watches spread over the API servers.
"""
MAX_WATCH_S: Final = 600
IDLE_S: Final = 150.0
"""Seconds of silence after which a connection counts as lost; the server sends a bookmark every minute."""
STEADY_S: Final = 5.0
"""Seconds after which a watch counts as successful: the backoff before the next watch starts again."""
_ERROR_MARK: Final = b'"type":"ERROR"'


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTimes:
    """The durations of a watch and of its silence, in seconds, and the page size of a list."""

    min_watch_s: int = MIN_WATCH_S
    max_watch_s: int = MAX_WATCH_S
    idle_s: float = IDLE_S
    page_size: int = PAGE_SIZE


class _BrokenLineError(UnavailableError):
    """A line of a watch that is not a watch event."""


class Informer:
    """The list and watch of one resource.

    Counts: reconnect_count, relist_count, broken_count (lines and objects that could not be read).
    """

    def __init__(
        self,
        name: str,
        client: KubeClient,
        resources: Resources,
        delivery: Delivery,
        handler: WatchHandler,
        *,
        times: WatchTimes | None = None,
        keeps: Keeps | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.name = name
        self._keeps = keeps or Keeps()
        self._client = client
        self._resources = resources
        self._delivery = delivery
        self._handler = handler
        self._times = times if times is not None else WatchTimes()
        # Seeded at random: hosts that lost one server must not reconnect at the same time.
        self._chance = chance if chance is not None else random.Random()
        self._backoff = Backoff(self._chance)
        self._version = ""
        self._stream: Stream | None = None
        self._fault: ClusterError | None = None
        self._skips_at: str | None = None
        self.view: View | None = None
        self.synced = asyncio.Event()
        self.problem = ""
        """The reason why the view is not up to date; empty while it is."""
        self.unserved: NotFoundError | None = None
        """Set where the API server does not serve a resource that a feature gate of the host needs."""
        self.reconnect_count = 0
        self.relist_count = 0
        self.broken_count = 0

    async def run(self) -> None:
        """Keep the view up to date until cancelled. Never returns, never raises an error."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except GoneError as err:
                self._version = ""
                self.relist_count += 1
                log.info("watch.expired", resource=self.name, error=str(err))
            except ClusterError as err:
                self._note(err)
            except Exception as err:  # An unexpected error must not end the loop.
                self._note(UnavailableError(self.name, "", f"{type(err).__name__}: {err}"))
                log.error("watch.failed", resource=self.name, exc_info=True)
            self.reconnect_count += 1
            await asyncio.sleep(self._backoff.next_s())

    # --- listing ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        try:
            resource = await self._resources.resolve(self.name)
            if self.view is None:
                self.view = View(resource, self._handler, self._keeps)
            try:
                seen, version = await self._pages(resource, self.view, self._times.page_size)
            except GoneError:
                # The list's version expired before the last page was read: read all in one page.
                seen, version = await self._pages(resource, self.view, 0)
        except NotFoundError as err:
            # A resource that is not served has no objects; it may be served later.
            unserved = _unserved(self.name, self._resources.known(self.name), err)
            self.unserved = unserved if unserved is not err else None
            self.synced.set()
            raise unserved from err
        await self._delivery.put(self.view.keep_only, [seen])
        await self._delivery.settled()
        self._version = version
        self._well()
        self.synced.set()

    async def _pages(self, resource: ApiResource, view: View, page_size: int) -> tuple[set[str], str]:
        """Hand over all objects of a list; return their keys and the list's resource version."""
        seen: set[str] = set()

        def show(item: Any) -> None:
            try:
                view.show(item, seen)
            except NoObjectError as err:
                self._broken("", str(err))

        token = ""
        while True:
            query = _selection(resource)
            if page_size:
                query["limit"] = str(page_size)
            if token:
                query["continue"] = token
            page = await self._client.request(
                "GET",
                resource.path(),
                query=query,
                timeout_s=LIST_TIMEOUT_S,
                resource=self.name,
                limited=False,
            )
            metadata = page.get("metadata")
            if not isinstance(metadata, dict) or not isinstance(page.get("items") or [], list):
                raise UnavailableError(self.name, "", f"{self._client.host} answered no list")
            await self._delivery.put(show, page.get("items") or ())
            token = metadata.get("continue") or ""
            if not token:
                return seen, str(metadata.get("resourceVersion") or "")

    # --- watching --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        resource = await self._resources.resolve(self.name)
        query = {
            **_selection(resource),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(self._chance.randint(self._times.min_watch_s, self._times.max_watch_s)),
        }
        self._fault = None
        began_s = asyncio.get_running_loop().time()
        try:
            async with self._client.stream(
                resource.path(), query=query, idle_s=self._times.idle_s, resource=self.name
            ) as stream:
                self._stream = stream
                self._recovered()
                rest = b""
                while chunk := await stream.chunk():
                    *lines, rest = (rest + chunk).split(b"\n")
                    await self._delivery.put(self._line, lines)
                    if any(_ERROR_MARK in line[:40] for line in lines):
                        break
                    if self._fault is not None:
                        break
        finally:
            self._stream = None
            if asyncio.get_running_loop().time() - began_s > STEADY_S:
                self._backoff.reset()
            # The next watch starts at the version of the last line handled, so all lines must be handled.
            await self._delivery.settled()
        if self._fault is not None:
            raise self._fault

    def _line(self, line: bytes) -> None:
        """Handle one line of the watch."""
        if self._fault is not None or not line:
            return
        try:
            event = orjson.loads(line)
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                self._fault = _fault_of(self.name, item)
                return
            version = str(item["metadata"]["resourceVersion"])
            if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
                raise ValueError(f"unknown type of event: {kind!r}")
            # Set before the handler runs: an object for which the handler raises must not be sent again.
            self._version = version
        except (ValueError, KeyError, TypeError) as err:
            self._unreadable(str(err))
            return
        self._well()
        view = self.view
        if view is None or kind == "BOOKMARK":
            return
        try:
            if kind == "DELETED":
                view.remove(item)
            else:
                view.show(item)
        except NoObjectError as err:
            self._broken(version, str(err))

    def _unreadable(self, error: str) -> None:
        """Reconnect once to get the line again, in case the connection damaged it; the next time skip it."""
        self._broken(self._version, error)
        if self._skips_at == self._version:
            return
        self._skips_at = self._version
        self._fault = _BrokenLineError(self.name, "", f"a line of the watch is not an event: {error}")
        if self._stream is not None:
            self._stream.close()

    # --- how it goes -------------------------------------------------------------------------------

    def _broken(self, version: str, error: str) -> None:
        self.broken_count += 1
        log.error("watch.object_refused", kind=self.name, object="", version=version, error=error)

    def _well(self) -> None:
        """Reset the backoff and clear the problem, after an answer that could be read."""
        self._backoff.reset()
        self._recovered()

    def _recovered(self) -> None:
        if self.problem:
            self.problem = ""
            log.info("watch.recovered", resource=self.name)

    def _note(self, err: ClusterError) -> None:
        text = err.server_message or err.text
        if isinstance(err, ForbiddenError):
            resource = self._resources.known(self.name)
            group = resource.group if resource is not None else ""
            plural = resource.plural if resource is not None else self.name
            text = (
                f"{text}; grant it: in a ClusterRole of this user, apiGroups: [{group!r}],"
                f" resources: [{plural!r}], verbs: ['list', 'watch']"
            )
        if text != self.problem:
            log.warning("watch.failed", resource=self.name, error=text)
        self.problem = text


_GATE_OF: Final = {resource: gate for gate, resource in RESOURCE_OF_GATE.items()}
"""The feature gates of resources that API servers serve only on request."""


def _unserved(name: str, resource: ApiResource | None, err: NotFoundError) -> NotFoundError:
    """Return the error with the cure, for a resource that a feature gate of the host needs."""
    if name == POD_GROUPS:
        return NotFoundError(
            name,
            "",
            "the API server does not serve it, and the plugin Coscheduling of this scheduler needs it:"
            " install scheduler-plugins' CustomResourceDefinition podgroups.scheduling.x-k8s.io, or take the"
            " plugin out of the profile",
        )
    gate = _GATE_OF.get(name)
    if gate is None or resource is None:
        return err
    return NotFoundError(
        name,
        "",
        f"the API server does not serve it, and the feature gate {gate} of this scheduler needs it: start"
        f" kube-apiserver with --feature-gates={gate}=true and"
        f" --runtime-config={resource.api_version}=true, or turn off {gate} here",
    )


def _selection(resource: ApiResource) -> dict[str, str]:
    return {"fieldSelector": resource.field_selector} if resource.field_selector else {}


def _fault_of(name: str, item: Mapping[str, Any]) -> ClusterError:
    """Return the error of a watch's ERROR event, whose object is a Status."""
    code = item.get("code")
    return error_of_status(code if isinstance(code, int) else 500, item, name, "")
