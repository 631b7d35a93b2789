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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from berth_host.cluster.port import WatchEvent, WatchHandler
from berth_host.errors.cluster import ClusterError, ForbiddenError, GoneError, NotFoundError, UnavailableError
from berth_host.log import get_logger
from berth_host.model.resources import COSCHEDULING_GROUPS, RESOURCE_OF_GATE
from berth_sdk import chance
from berth_sdk.json.objects import finish, has_opaque
from berth_sdk.json.reader import read_deep_json
from berth_sdk.kube_object import LAST_APPLIED, KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.slices import Work

from berth_kube.answers import error_of_status
from berth_kube.client import KubeClient, Stream
from berth_kube.delivery import Delivery
from berth_kube.late_order import LateOrder
from berth_kube.late_reading import LateObject, LateReader, Reading
from berth_kube.limiter import request_backoff
from berth_kube.page_limits import PageLimit
from berth_kube.reading import (
    INLINE_BYTES,
    FoundLine,
    FoundObject,
    NoListError,
    ObjectReader,
    Page,
    read_page,
)
from berth_kube.resources import ApiResource, Resources
from berth_kube.session import AnswerTooLargeError


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
        self.resource = resource
        """The resource in the API version that its objects come in."""
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
                self._handler(WatchEvent(self.resource.watch_kind, old, None))
                old = None
        self._known[key] = now
        self._handler(WatchEvent(self.resource.watch_kind, old, self._object(item, metadata)))

    def shows(self, ref: ObjectRef) -> bool:
        """Return True if this version of the object was handed over."""
        return self._known.get(ref.key) == (ref.uid, ref.resource_version)

    def remove(self, item: Any) -> None:
        """Hand over the deletion of an object. Raises NoObjectError."""
        metadata = _metadata(item)
        self._remove(_key(metadata), metadata.get("uid") or "", lambda: self._object(item, metadata))

    def remove_unread(self, ref: ObjectRef) -> None:
        """Hand over the deletion of an object of which only the identity was read."""
        self._remove(ref.key, ref.uid, lambda: self._remembered(ref.key, (ref.uid, ref.resource_version)))

    def remove_replaced(self, ref: ObjectRef) -> None:
        """Hand over the deletion of an earlier object whose name another object has now."""
        known = self._known.get(ref.key)
        if known is not None and known[0] != ref.uid:
            self._remove(ref.key, known[0], lambda: self._remembered(ref.key, known))

    def _remove(self, key: str, uid: str, last: Callable[[], KubeObject]) -> None:
        known = self._known.get(key)
        if known is None or known[0] != uid:
            return
        del self._known[key]
        self._handler(WatchEvent(self.resource.watch_kind, last(), None))

    def keep_only(self, keys: set[str]) -> None:
        """Hand over the deletion of every object whose key a complete list does not contain."""
        for key in [key for key in self._known if key not in keys]:
            known = self._known.pop(key)
            self._handler(WatchEvent(self.resource.watch_kind, self._remembered(key, known), None))

    def _object(self, item: Mapping[str, Any], metadata: dict[str, Any]) -> KubeObject:
        if not self._keeps.managed_fields:
            # Where the key is written with spaces or escapes, it was not cut out of the bytes.
            metadata.pop("managedFields", None)
        if self._drops_last_applied:
            annotations = metadata.get("annotations")
            if annotations and LAST_APPLIED in annotations:
                del annotations[LAST_APPLIED]
        resource = self.resource
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
        resource = self.resource
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
"""Objects per answer of a list, at most."""
LARGE_PAGE_BYTES: Final = 2**20
"""The size of a page from which on its objects are handed over before the next page is read."""
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
AGAIN_TIMEOUT_S: Final = 10.0
"""The limit for reading one object again, in seconds; others wait to be read meanwhile."""
QUIET_S: Final = 0.1
"""Seconds without a line after which a watch that was opened anew has sent all changes of before. The API
server sends these right after the headers.
"""
FIRST_LATE_S: Final = 10.0
"""The longest wait of the first list, in seconds, for its objects that are read late."""
_KINDS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
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
        late: LateReader,
        handler: WatchHandler,
        *,
        times: WatchTimes | None = None,
        keeps: Keeps | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._keeps = keeps or Keeps()
        self._client = client
        self._resources = resources
        self._delivery = delivery
        self._late = LateOrder(late)
        self._handler = handler
        self._times = times if times is not None else WatchTimes()
        # Seeded at random: hosts that lost one server must not reconnect at the same time.
        self._rng = rng if rng is not None else chance.generator()
        self._backoff = request_backoff(self._rng)
        self._version = ""
        self._stream: Stream | None = None
        self._opened_count = 0
        self._reopens = asyncio.Event()
        """Set to open the watch anew, at once."""
        self._heard = asyncio.Event()
        """Set when a watch was opened, when bytes of it came, and after a list."""
        self._is_large = False
        self._fault: ClusterError | None = None
        self._skips_at: str | None = None
        self._reader: ObjectReader | None = None
        self._deep: set[str] = set()
        """The objects that were said to be read late."""
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
                if isinstance(err, NotFoundError) and self._resources.forget(self.name):
                    self._version = ""
                self._note(err)
            except Exception as err:  # An unexpected error must not end the loop.
                self._note(UnavailableError(self.name, "", f"{type(err).__name__}: {err}"))
                log.error("watch.failed", resource=self.name, exc_info=True)
            self.reconnect_count += 1
            wait_s = self._backoff.next_s()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._reopens.wait()
            self._reopens.clear()

    async def catch_up(self) -> None:
        """Return when all changes that the API server has now are handed over. Raises ClusterError.

        The version of a read made now says how far that is. A resource without recent changes never gets
        to that version by its lines, and a connection may be slow or dead. Therefore the watch is opened
        anew where it stands: the API server then sends all missing changes at once, and nothing after them
        for QUIET_S.
        """
        try:
            resource = await self._resources.resolve(self.name)
            wanted = await self._version_now(resource)
        except NotFoundError:
            return  # a resource that is not served has no changes
        if not self._has(wanted):
            opened_before = self._opened_count
            self._reopens.set()
            self._close()
            while not self._has(wanted):
                self._heard.clear()
                try:
                    async with asyncio.timeout(QUIET_S):
                        await self._heard.wait()
                except TimeoutError:
                    if self._opened_count != opened_before and self._stream is not None:
                        break
        await self._delivery.settled()
        await self._late.settled(FIRST_LATE_S)

    async def _version_now(self, resource: ApiResource) -> str:
        """Read the current resource version. The API server then has all changes up to it for watches."""
        answer = await self._client.send(
            "GET",
            resource.path(),
            query={"limit": "1"},
            timeout_s=LIST_TIMEOUT_S,
            resource=self.name,
            limited=False,
        )
        return (await self._page(answer)).version

    def _has(self, version: str) -> bool:
        """Return True if all changes up to a version were received. Versions are ever larger numbers."""
        if version.isdecimal() and self._version.isdecimal():
            return int(self._version) >= int(version)
        return self._version == version

    # --- listing ---------------------------------------------------------------------------------

    async def _list(self) -> None:
        try:
            resource = await self._resources.resolve(self.name)
            if self.view is None:
                self.view = View(resource, self._handler, self._keeps)
                self._reader = ObjectReader(resource.kind, keeps_managed_fields=self._keeps.managed_fields)
            self.view.resource = resource
            self._late.begin_list()
            try:
                seen, version = await self._pages(resource, self.view, self._times.page_size)
            except GoneError:
                # The list's version expired before the last page was read: read all in one page, unless that
                # would be too large. Then the list begins again, with pages.
                most = self._times.page_size if self._is_large else 0
                seen, version = await self._pages(resource, self.view, most)
        except NotFoundError as err:
            # A resource that is not served has no objects; it may be served later.
            unserved = _unserved(self.name, self._resources.described(self.name), err)
            self.unserved = unserved if unserved is not err else None
            self.synced.set()
            raise unserved from err
        await self._delivery.put(self.view.keep_only, [seen])
        await self._delivery.settled()
        self._deep &= seen
        if not self.synced.is_set():
            await self._late.settled(FIRST_LATE_S)
        self._version = version
        self._well()
        self.synced.set()
        self._heard.set()

    async def _pages(self, resource: ApiResource, view: View, page_size: int) -> tuple[set[str], str]:
        """Hand over all objects of a list; return their keys and the list's resource version."""
        seen: set[str] = set()

        def show(item: Any) -> Iterator[None] | None:
            return self._hand_over(view, item, "", seen)

        token = ""
        limit = PageLimit(page_size) if page_size else None
        asking: asyncio.Task[bytes] | None = None
        try:
            while True:
                if asking is None:
                    asking = self._ask_for_page(resource, limit, token)
                try:
                    answer = await asking
                except AnswerTooLargeError:
                    asking = None
                    if limit is not None:
                        limit.was_too_large()
                    continue
                except GoneError:
                    self._is_large = limit is not None and limit.was_lowered
                    raise
                page = await self._page(answer)
                size_bytes = len(answer)
                token, version = page.token, page.version
                del answer
                asking = None
                if limit is not None:
                    limit.came(size_bytes, len(page.items) + len(page.late))
                    if token and not limit.was_lowered:
                        # The server makes the next page while the objects of this one are handed over. Large
                        # objects are never held for two pages.
                        asking = self._ask_for_page(resource, limit, token)
                for one in page.late:
                    seen.add(one.ref.key)
                    self._read_late(one)
                await self._delivery.put(show, page.items)
                if size_bytes >= LARGE_PAGE_BYTES:
                    # The next page is read when the objects of this one are no longer held as JSON.
                    del page
                    await self._delivery.settled()
                if not token:
                    return seen, version
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    def _ask_for_page(
        self, resource: ApiResource, limit: PageLimit | None, token: str
    ) -> asyncio.Task[bytes]:
        """Ask for one page of the list. `token`: of the page before, "" for the first page."""
        query = _selection(resource)
        if limit is not None:
            query["limit"] = str(limit.now)
        if token:
            query["continue"] = token
        return asyncio.get_running_loop().create_task(
            self._client.send(
                "GET",
                resource.path(),
                query=query,
                timeout_s=LIST_TIMEOUT_S,
                resource=self.name,
                limited=False,
                most_bytes=0 if limit is None else limit.most_bytes,
            ),
            name=f"list {self.name}",
        )

    async def _page(self, answer: bytes) -> Page:
        assert self._reader is not None
        try:
            return await read_page(self._reader, answer)
        except NoListError:
            raise UnavailableError(self.name, "", f"{self._client.host} answered no list") from None
        except ValueError as err:
            raise UnavailableError(self.name, "", f"{self._client.host} answered no JSON: {err}") from err

    # --- watching --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        resource = await self._resources.resolve(self.name)
        query = {
            **_selection(resource),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(self._rng.randint(self._times.min_watch_s, self._times.max_watch_s)),
        }
        self._fault = None
        self._reopens.clear()
        began_s = asyncio.get_running_loop().time()
        try:
            async with self._client.stream(
                resource.path(), query=query, idle_s=self._times.idle_s, resource=self.name
            ) as stream:
                if self._reopens.is_set():
                    return  # this one was asked for before
                self._stream = stream
                self._opened_count += 1
                self._heard.set()
                self._recovered()
                rest = b""
                while chunk := await stream.chunk():
                    self._heard.set()
                    *lines, rest = (rest + chunk).split(b"\n")
                    await self._delivery.put(self._line, lines)
                    if any(_ERROR_MARK in line[:40] for line in lines):
                        break
                    if self._fault is not None:
                        break
                    await self._late.reader.has_room()
        except ClusterError as err:
            # Where a line ended the watch, or the informer did, the lost connection follows from that.
            if self._fault is None and not self._reopens.is_set():
                self._fault = err
        finally:
            self._stream = None
            if asyncio.get_running_loop().time() - began_s > STEADY_S:
                self._backoff.reset()
            # The next watch starts at the version of the last line handled, so all lines must be handled.
            await self._delivery.settled()
        if self._fault is not None:
            raise self._fault

    def _line(self, line: bytes) -> Iterator[None] | None:
        """Handle one line of the watch. Returns the rest of the work for an object with long lists."""
        if self._fault is not None or not line:
            return None
        event = self._reader.line(line) if self._reader is not None else None
        if event is None:
            self._scan(line)
            return None
        try:
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                self._fault = _fault_of(self.name, item)
                return None
            version = str(item["metadata"]["resourceVersion"])
            if kind not in _KINDS:
                raise ValueError(f"unknown type of event: {kind!r}")
            # Set before the handler runs: an object for which the handler raises must not be sent again.
            self._version = version
        except (ValueError, KeyError, TypeError) as err:
            self._unreadable(str(err))
            return None
        self._well()
        turn = self._late.next_turn()
        view = self.view
        if view is None or kind == "BOOKMARK":
            return None
        try:
            if not self._late.is_idle:
                self._late.note(turn, _key(_metadata(item)))
            if kind == "DELETED":
                self._deep.discard(_key(_metadata(item)))
                view.remove(item)
                return None
        except NoObjectError as err:
            self._broken(version, str(err))
            return None
        return self._hand_over(view, item, version)

    def _hand_over(
        self, view: View, item: Any, version: str, seen: set[str] | None = None
    ) -> Iterator[None] | None:
        """Hand over an object, or return the work that does it after reading the long lists of a pod."""
        work = Pod.long_parts(item) if self.name == "pods" else None
        if work is not None:
            return self._read_and_show(work, view, item, version, seen)
        self._show_now(view, item, version, seen)
        return None

    def _read_and_show(
        self, work: Work[Any], view: View, item: Any, version: str, seen: set[str] | None
    ) -> Iterator[None]:
        # What is read is kept for as long as somebody uses it: until the handler has made the pod of it.
        read = yield from work
        self._show_now(view, item, version, seen)
        del read

    def _show_now(self, view: View, item: Any, version: str, seen: set[str] | None) -> None:
        try:
            view.show(item, seen)
        except NoObjectError as err:
            self._broken(version, str(err))

    # --- what the quick parser refuses -----------------------------------------------------------

    def _scan(self, line: bytes) -> None:
        """Find the object in a line: a short one now, a long one beside everything else."""
        assert self._reader is not None
        steps, size_bytes = self._reader.scanned_line(line), len(line)
        done = partial(self._scanned, self._late.next_turn(), size_bytes)
        if size_bytes > INLINE_BYTES:
            self._late.scan(steps, size_bytes, done)
            return
        try:
            found = finish(steps)
        except ValueError as err:
            found = err
        done(found)

    def _scanned(self, turn: int, size_bytes: int, found: FoundLine | ValueError) -> None:
        """Handle a line whose object was found. `turn`: the line's place among the lines."""
        is_last = self._late.is_last(turn)
        if self._fault is not None and is_last:
            return  # the line comes again
        if isinstance(found, ValueError):
            self._unreadable(str(found), comes_again=is_last)
            return
        item = found.item
        if found.type == "ERROR":
            if self._fault is None:
                self._fault = _fault_of(self.name, _status_in(item))
                self._close()
            return
        if found.type not in _KINDS or item is None or not item.ref.resource_version:
            self._unreadable("no type of event, or no object with a version", comes_again=is_last)
            return
        if is_last and self._version:
            self._version = item.ref.resource_version
        if self._fault is None:
            self._well()
        view = self.view
        if view is None or found.type == "BOOKMARK" or self._late.is_overtaken(turn, item.ref.key):
            return
        if not item.ref.name:
            self._broken(item.ref.resource_version, "an object without a name")
            return
        self._late.note(turn, item.ref.key)
        if found.type == "DELETED":
            self._deep.discard(item.ref.key)
            view.remove_unread(item.ref)
        else:
            self._read_found(item, turn)

    def _read_found(self, item: FoundObject, turn: int) -> None:
        """Show an object that the quick parser reads without its managedFields; read any other late."""
        assert self._reader is not None
        if len(item.content) <= INLINE_BYTES or not has_opaque(self._reader.kind, item.content):
            parsed = finish(self._reader.parsed(item.content))
            if parsed is not None:
                self._show(item.ref, parsed)
                return
        self._read_late(item, turn)

    def _read_late(self, item: FoundObject, turn: int | None = None) -> None:
        """Queue the reading of an object, unless its version is known. `turn`: None for one of a list."""
        assert self._reader is not None
        if self.view is not None and self.view.shows(item.ref):
            return
        if turn is None:
            turn = self._late.next_turn()
            self._late.note(turn, item.ref.key)
        ref, size_bytes = item.ref, len(item.content)
        if self.view is not None:
            self.view.remove_replaced(ref)
        if ref.key not in self._deep:
            self._deep.add(ref.key)
            log.info("watch.object_is_deep", kind=self.name, object=ref.key, size_bytes=size_bytes)
        self._late.read(
            LateObject(
                key=(self.name, ref.key),
                namespace=ref.namespace,
                size_bytes=size_bytes,
                steps=self._reader.read(item.content),
                again=partial(self._again, ref),
                is_wanted=lambda: not self._late.is_overtaken(turn, ref.key),
            ),
            partial(self._was_read, ref, size_bytes, turn),
        )

    async def _again(self, ref: ObjectRef) -> Reading:
        """Ask for an object whose bytes were not held, as it is now. Raises ClusterError.

        Lists it, as the right to list is there.
        """
        assert self._reader is not None
        resource = await self._resources.resolve(self.name)
        selectors = list(_selection(resource).values())
        answer = await self._client.send(
            "GET",
            resource.path(ref.namespace),
            query={"fieldSelector": ",".join([*selectors, f"metadata.name={ref.name}"])},
            timeout_s=AGAIN_TIMEOUT_S,
            resource=self.name,
            key=ref.key,
            limited=False,
        )
        return self._reader.only_item(answer)

    def _was_read(self, ref: ObjectRef, size_bytes: int, turn: int, item: Any) -> None:
        if item is None or self._late.is_overtaken(turn, ref.key):
            return  # the deletion, or a later state, comes by itself
        if isinstance(item, ValueError):
            self._broken(ref.resource_version, f"{size_bytes} bytes that are no JSON: {item}", ref.key)
            return
        self._show(ref, item)

    def _show(self, ref: ObjectRef, item: Any) -> None:
        if self.view is None:
            return
        try:
            self.view.show(item)
        except NoObjectError as err:
            self._broken(ref.resource_version, str(err), ref.key)

    def _unreadable(self, error: str, *, comes_again: bool = True) -> None:
        """Reconnect once to get the line again, in case the connection damaged it; the next time list anew,
        as the line may have been about any object. `comes_again`: False if later lines were handled.
        """
        self._broken(self._version, error)
        if not comes_again:
            self._version = ""
        if not comes_again or self._skips_at == self._version:
            self._fault = GoneError(self.name, "", f"a line of the watch is not an event: {error}")
        else:
            self._skips_at = self._version
            self._fault = _BrokenLineError(self.name, "", f"a line of the watch is not an event: {error}")
        self._close()

    def _close(self) -> None:
        """End the watch, so that its fault is seen."""
        if self._stream is not None:
            self._stream.close()

    # --- how it goes -------------------------------------------------------------------------------

    def _broken(self, version: str, error: str, key: str = "") -> None:
        self.broken_count += 1
        log.error("watch.object_refused", kind=self.name, object=key, version=version, error=error)

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
            resource = self._resources.described(self.name)
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
    if name == COSCHEDULING_GROUPS:
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
    older = "".join(f" (an older one: {version}=true)" for version in resource.older_versions)
    return NotFoundError(
        name,
        "",
        f"the API server does not serve it, and the feature gate {gate} of this scheduler needs it: start"
        f" kube-apiserver with --feature-gates={gate}=true and"
        f" --runtime-config={resource.api_version}=true{older}, or turn off {gate} here",
    )


def _selection(resource: ApiResource) -> dict[str, str]:
    return {"fieldSelector": resource.field_selector} if resource.field_selector else {}


def _fault_of(name: str, item: Mapping[str, Any]) -> ClusterError:
    """Return the error of a watch's ERROR event, whose object is a Status."""
    code = item.get("code")
    return error_of_status(code if isinstance(code, int) else 500, item, name, "")


def _status_in(item: FoundObject | None) -> Mapping[str, Any]:
    try:
        status = read_deep_json(item.content) if item is not None else {}
    except ValueError:
        status = {}
    return status if isinstance(status, dict) else {}
