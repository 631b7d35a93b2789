"""`InstanceLink`: one attached instance, its channel, and how far its copy of the snapshot is.

Made by `attach` for each attachment, shared by the transports of all its plugins. An instance holds one
copy, so deltas and syncs belong here; what a call is about belongs to `GrpcTransport`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import grpc
from berth_sdk.clocks import monotonic_s
from berth_sdk.kept.follows import Versioned
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import (
    identity_pb2_grpc,
    state_pb2,
    state_pb2_grpc,
)
from berth_sdk.tables import StateVersion
from berth_sdk.wire import records as wire
from berth_sdk.wire.call_names import metadata_of
from berth_sdk.wire.message_limit import CURE, DEFAULT_BYTES, size_options
from berth_sdk.wire.traces import TRACEPARENT
from google.protobuf.message import DecodeError, Message
from grpc.aio import Metadata

from berth_host.errors.plugins import (
    HostFaultError,
    PluginError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
    RequestTooLargeError,
)
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.loop_slices import LoopSlices
from berth_host.rpc.served.frames import LARGEST_BYTES, FramedConnections
from berth_host.rpc.served.grpc_errors import in_time, plugin_error, readable
from berth_host.rpc.state_codec import StateTooLargeError

R = TypeVar("R")
M = TypeVar("M", bound=Message)
_Send: TypeAlias = Callable[..., Awaitable[bytes]]

Traffic = Callable[[str, str, int, int], None]
"""Called after every request with (plugin, call, bytes sent, bytes received)."""
SYNC_STATE: Final = "SyncState"
UNARY: Final = "unary"

_AROUND_BYTES: Final = 8
"""The most bytes that tag and length of a nested message take."""
CATCH_UP_S: Final = 10.0
"""The most seconds for a synchronisation that a call has begun. The call itself has its own deadline."""


class StateFeed(Protocol):
    """The snapshot and its change log, cut to what one instance's plugins declared."""

    @property
    def version(self) -> StateVersion:
        """The version of the snapshot."""
        ...

    def index_of(self, node_name: str) -> int | None:
        """Return the slot of a node in the snapshot; None for an unknown node."""
        ...

    def node_names(self) -> list[str]:
        """Return the names of all nodes of the snapshot."""
        ...

    def objects(self, resource: str) -> Versioned:
        """Return the objects of a resource in the snapshot."""
        ...

    async def refresh(self) -> None:
        """Bring the snapshot up to date, when no cycle reads it."""
        ...

    def delta(self, base: StateVersion, max_message_bytes: int) -> pb.StateDelta | None:
        """Return the changes from `base` to the snapshot; None if unknown or too large for a call."""
        ...

    def stream(
        self, base: StateVersion | None, max_message_bytes: int
    ) -> tuple[StateVersion, Iterator[state_pb2.SyncStateRequest | None]]:
        """Return (target, chunks) of SyncState; all state if `base` is None or no longer known.

        The chunks have None between two pieces of the work.
        """
        ...


@dataclass(frozen=True, slots=True)
class Method(Generic[R]):
    """One call of the contract. `path`: `/berth.plugin.v1.SchedulingService/Filter`; `read`: bytes -> its
    reply; `number`: in frames; None for a call that never travels in them.
    """

    path: str
    read: Callable[[bytes], R]
    number: int | None = None

    @property
    def name(self) -> str:
        """The name in traces: `berth.plugin.v1.SchedulingService/Filter`."""
        return self.path.removeprefix("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkIdentity:
    """The instance at the other end. `max_message_bytes`: the agreed limit, in either direction.
    `started_at_s`: Unix seconds, from its handshake.
    """

    instance_id: str
    attachment_id: str
    endpoint: str
    max_message_bytes: int = DEFAULT_BYTES
    started_at_s: float = 0.0


class InstanceLink:
    """open -closed by the attachment-> closed. `held`: the version that the instance confirmed last."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        identity: LinkIdentity,
        feed: StateFeed | None,
        on_trouble: Callable[[], None],
        traffic: Traffic = lambda plugin, call, sent, received: None,
        *,
        frames: FramedConnections | None = None,
    ) -> None:
        """`feed` None: no plugin of the instance keeps state. `on_trouble`: makes the attachment check it.
        `frames`: carries the calls of scheduling cycles; None: they are unary gRPC calls.
        """
        self.identity = identity
        self.feed = feed
        self.is_open = True
        self.held: StateVersion | None = None
        self.sending: StateVersion | None = None
        self.wants_full = False
        self._keeps_stale = False
        self.synced_bytes = 0
        self.on_drift: Callable[[], None] = lambda: None
        """Called when the instance has dropped a copy that it had confirmed."""
        self.codes = CodeLog()
        self.calls_open = 0
        self.calls_made = 0
        self.pre_binds_open = 0
        self.state = state_pb2_grpc.StateServiceStub(channel)
        self.identity_stub = identity_pb2_grpc.IdentityServiceStub(channel)
        self._channel = channel
        self._senders: dict[str, _Send] = {}
        self._metadata: dict[str, Metadata] = {}
        self._frames = frames
        self._on_trouble = on_trouble
        self._traffic = traffic
        self._syncing = asyncio.Lock()
        self._catching_up: asyncio.Future[None] | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._looked_at = asyncio.Event()
        self._looked_at.set()

    def close(self) -> None:
        """Close the link: no call will be answered any more."""
        self.is_open = False
        self._looked_at.set()
        if self._frames is not None:
            self._frames.close()
        if self._catching_up is not None:
            self._catching_up.cancel()

    async def quiet(self, timeout_s: float) -> None:
        """Wait until no call is open, `timeout_s` at most; then close the framed connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
                if self._frames is not None:
                    self._frames.end()

    def looked_at(self) -> None:
        """Record that the attachment has checked the instance after a failure, and keeps it."""
        self._looked_at.set()

    async def is_lost(self, within_s: float) -> bool:
        """Return True if the instance is gone, by the check that the attachment makes when a call did not
        reach it. False: the instance is there, or the check takes longer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._looked_at.wait()
        return not self.is_open

    @property
    def carrier(self) -> str:
        """The carrier of the calls of scheduling cycles: `framed` or `unary`."""
        return UNARY if self._frames is None else self._frames.name

    # --- calls ---------------------------------------------------------------------------------------

    def in_runs(self, messages: Iterable[M]) -> list[list[M]]:
        """Return the messages in runs of at most half the agreed size, each for a request of its own.

        At least one run; a message that is larger stands alone.
        """
        limit_bytes = self.identity.max_message_bytes // 2
        runs: list[list[M]] = [[]]
        size = 0
        for message in messages:
            more = message.ByteSize() + _AROUND_BYTES
            if runs[-1] and size + more > limit_bytes:
                runs.append([])
                size = 0
            runs[-1].append(message)
            size += more
        return runs

    async def ask(
        self,
        method: Method[R],
        request: Message,
        asked: tuple[str, str],
        deadline_s: float,
        traceparent: str = "",
        carrier: Any = None,
    ) -> R:
        """Make one RPC and return the reply, in frames if the call may and the plugin's connection is idle,
        else as a unary call. Raises PluginError.

        `asked`: plugin and call, for the error. `traceparent`: metadata of a traced call; empty: none.
        `carrier`: the request, or its context, whose field `delta` may have changes of the state. They go
        ahead of a request that they make too large. None: the request has none.
        """
        plugin, call = asked
        if not self.is_open:
            raise PluginUnavailableError(plugin, call, "lost its instance")
        raw = request.SerializeToString()
        limit_bytes = self.identity.max_message_bytes
        if len(raw) > limit_bytes and carrier is not None and carrier.HasField("delta"):
            ends_s = monotonic_s() + deadline_s
            await self.sync(asked, ends_s)
            carrier.ClearField("delta")
            raw = request.SerializeToString()
            deadline_s = max(ends_s - monotonic_s(), 0.0)
        if len(raw) > limit_bytes:
            raise RequestTooLargeError(
                plugin,
                call,
                f"was not asked: the request has {len(raw)} bytes, and {limit_bytes} are the limit: {CURE}",
            )
        self.calls_open += 1
        self._quiet.clear()
        self.calls_made += 1
        received = 0
        left_s, number = deadline_s, method.number
        answer: bytes | None = None
        try:
            if self._frames is not None and number is not None and len(raw) <= LARGEST_BYTES:
                connection = self._frames.free(plugin)
                if connection is not None:
                    ends_s = monotonic_s() + deadline_s
                    answer = await connection.ask(number, raw, deadline_s)
                    if answer is None and not self.is_open:  # it ended meanwhile, and the channel with it
                        raise PluginUnavailableError(plugin, call, "lost its instance")
                    left_s = max(ends_s - monotonic_s(), 0.0)
            if answer is None:
                call_of = self._sender(method.path)
                metadata = self._metadata_of(plugin, traceparent)
                answer = await in_time(call_of(raw, timeout=left_s, metadata=metadata), left_s)
            received = len(answer)
            if received > limit_bytes:
                raise PluginProtocolError(plugin, call, f"answered {_over(received, limit_bytes)}")
            return method.read(answer)
        except DecodeError as err:
            raise PluginProtocolError(plugin, call, f"answered what is no reply to it ({err})") from err
        except grpc.aio.AioRpcError as err:
            raise self._failure(err, asked, deadline_s) from err
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The call was cancelled, but not the task that waits for it.
            raise PluginUnavailableError(plugin, call, "was cut off") from None
        finally:
            self._traffic(plugin, call, len(raw), received)
            self.calls_open -= 1
            if not self.calls_open:
                self._quiet.set()

    def _metadata_of(self, plugin: str, traceparent: str = "") -> Metadata:
        """Return the metadata of a call about a plugin. `traceparent`: of a traced call; empty: none."""
        metadata = self._metadata.get(plugin)
        if metadata is None:
            metadata = self._metadata[plugin] = Metadata(*metadata_of(self.identity.attachment_id, plugin))
        return Metadata(*metadata, (TRACEPARENT, traceparent)) if traceparent else metadata

    def _sender(self, path: str) -> _Send:
        send = self._senders.get(path)
        if send is None:
            send = self._senders[path] = self._channel.unary_unary(path)
        return send

    # --- the copy of the snapshot --------------------------------------------------------------------

    def drop_kept(self) -> None:
        """Send the instance a new copy before its next call: the kept answers of its plugins end with the old
        copy.
        """
        self._keeps_stale = True

    async def delta_for_call(self, asked: tuple[str, str], ends_s: float) -> pb.StateDelta | None:
        """Return the delta for the next call, after which the instance's copy equals the snapshot.

        None: nothing to carry. A delta that is too large for a call is sent before it. Raises PluginError.
        """
        feed, limit_bytes = self.feed, self.identity.max_message_bytes
        if self._keeps_stale:
            self._keeps_stale = False
            self.held, self.wants_full = None, True
        while feed is not None and self.held != feed.version:
            # A second delta from the same base would race with the first, and the instance would refuse one
            # of them. Everything takes longer than a call may wait.
            on_its_way = self.sending is not None and not self.wants_full
            delta = None if self.held is None or on_its_way else feed.delta(self.held, limit_bytes)
            if delta is not None:
                return delta
            await self._catch_up(asked, ends_s)
        return None

    async def _catch_up(self, asked: tuple[str, str], ends_s: float) -> None:
        """Wait for a synchronisation that outlives this call: a cluster that takes longer than one call's
        deadline would never be synchronised otherwise.
        """
        task = self._catching_up
        if task is None or task.done():
            task = asyncio.ensure_future(self.sync(asked, monotonic_s() + CATCH_UP_S))
            task.add_done_callback(_observe)
            self._catching_up = task
        left_s = max(ends_s - monotonic_s(), 0.0)
        await asyncio.wait({task}, timeout=left_s)
        if not task.done():
            raise PluginTimeoutError(*asked, left_s)
        if task.cancelled():
            raise PluginUnavailableError(*asked, "lost its instance")
        task.result()

    async def sync(self, asked: tuple[str, str], ends_s: float, *, full: bool = False) -> None:
        """Call SyncState until the instance holds the snapshot's version. `ends_s`: monotonic seconds."""
        feed = self.feed
        if feed is None:
            return
        left_s = ends_s - monotonic_s()
        try:
            async with asyncio.timeout(max(left_s, 0.0)):
                await self._syncing.acquire()
        except TimeoutError as err:
            raise PluginTimeoutError(*asked, max(left_s, 0.0)) from err
        try:
            full = full or self.wants_full
            if not full and self.held == feed.version:
                return
            base = None if full else self.held
            done, have = await self._stream(feed, base, asked, ends_s)
            if not done and base is not None and have not in (None, base):
                # A call under way has updated the copy meanwhile: continue from that version.
                base = have
                done, have = await self._stream(feed, base, asked, ends_s)
            if not done and base is not None:
                self.told(have)
                self.wants_full = True
                done, have = await self._stream(feed, None, asked, ends_s)
            if not done:
                raise PluginProtocolError(*asked, "refused a full synchronisation")
            self.wants_full = False
        finally:
            self._syncing.release()

    async def _stream(
        self, feed: StateFeed, base: StateVersion | None, asked: tuple[str, str], ends_s: float
    ) -> tuple[bool, StateVersion | None]:
        """Make one SyncState; return whether it was taken, and the version that the instance reports."""
        if not self.is_open:
            raise PluginUnavailableError(*asked, "lost its instance")  # gRPC raises no call error for this
        left_s = ends_s - monotonic_s()
        if left_s <= 0:
            raise PluginTimeoutError(*asked, 0.0)
        target, chunks = feed.stream(base, self.identity.max_message_bytes)
        self.sending = target
        sent = 0
        too_large: HostFaultError | None = None

        async def requests() -> AsyncIterator[state_pb2.SyncStateRequest]:
            nonlocal sent, too_large
            pace = LoopSlices()  # encoding a large cluster must not hold the loop
            try:
                for chunk in chunks:
                    if chunk is None:
                        await pace.step()
                        continue
                    chunk.attachment_id = self.identity.attachment_id
                    sent += chunk.ByteSize()
                    await pace.rest()
                    yield chunk
            except StateTooLargeError as err:
                too_large = HostFaultError(*asked, f"was not sent the state: {err}")
                raise  # gRPC then cancels the call

        try:
            answer = await in_time(
                self.state.SyncState(requests(), timeout=left_s, metadata=self._metadata_of("")), left_s
            )
        except grpc.aio.AioRpcError as err:
            raise self._failure(err, asked, left_s) from err
        except asyncio.CancelledError:
            if too_large is None:
                raise
            raise too_large from None
        finally:
            self.synced_bytes += sent
            self._traffic(asked[0], SYNC_STATE, sent, 0)
            self.sending = None
        reply = readable(answer, *asked)
        have = wire.decode_version(reply.have) if reply.HasField("have") else None
        taken = not reply.need_full and have == target
        if taken and base is None:
            self.held = target  # also if a call had updated the copy further
        elif taken:
            self.confirm(target)
        return taken, have

    async def reconcile(
        self,
        pages: Sequence[state_pb2.ReconcileRequest],
        asked: tuple[str, str],
        deadline_s: float,
        traceparent: str = "",
    ) -> state_pb2.ReconcileResponse:
        """Send the list of live reservations and waits, page by page. Raises PluginError.

        `traceparent`: metadata of a traced call; empty: none.
        """
        if not self.is_open:
            raise PluginUnavailableError(*asked, "lost its instance")

        async def requests() -> AsyncIterator[state_pb2.ReconcileRequest]:
            pace = LoopSlices()
            for page in pages:
                await pace.rest()
                yield page

        self.calls_made += 1
        metadata = self._metadata_of(asked[0], traceparent)
        try:
            reply = await in_time(
                self.state.Reconcile(requests(), timeout=deadline_s, metadata=metadata), deadline_s
            )
            return readable(reply, *asked)
        except grpc.aio.AioRpcError as err:
            raise self._failure(err, asked, deadline_s) from err
        finally:
            self._traffic(*asked, sum(page.ByteSize() for page in pages), 0)

    def _failure(self, err: grpc.aio.AioRpcError, asked: tuple[str, str], deadline_s: float) -> PluginError:
        """Return the error for the caller; have the attachment check an instance that cannot be reached."""
        failure = plugin_error(err, *asked, deadline_s)
        if isinstance(failure, PluginUnavailableError):
            if self.is_open:
                self._looked_at.clear()
            self._on_trouble()
        return failure

    def confirm(self, version: StateVersion) -> None:
        """Record that the instance holds `version` or a later one: answers may overtake each other."""
        held = self.held
        if held is None or held.epoch != version.epoch or held.generation < version.generation:
            self.held = version

    @property
    def oldest(self) -> StateVersion | None:
        """The oldest version that the instance may hold or is about to get. None: the instance has no
        copy.
        """
        return self.held or self.sending

    def told(self, have: StateVersion | None) -> None:
        """Record the version that the instance reports. None: the instance has no copy."""
        dropped = have is None and self.held is not None
        self.held = have
        if have is None:
            self.wants_full = True
        if dropped:
            self.on_drift()


def _observe(task: asyncio.Future[None]) -> None:
    """Read the outcome of a synchronisation whose waiting call may be gone; the next call tries again and
    reports the error.
    """
    if not task.cancelled():
        task.exception()


def _over(size_bytes: int, limit_bytes: int) -> str:
    return f"{size_bytes} bytes, and {limit_bytes} are the limit: answer less, or {CURE}"


def channel_options(max_message_bytes: int = DEFAULT_BYTES) -> list[tuple[str, Any]]:
    """Return the options of a channel: one connection per attachment, no hidden retries, bounded messages."""
    return [
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        *size_options(max_message_bytes),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Despite its name, the limit for one attempt to connect; busy cores need more than 0.1 s.
        ("grpc.min_reconnect_backoff_ms", 5000),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
