"""The state of one server process: its plugins, their configuration, its copy of the snapshot and its cycles.

    started -handshake-> introduced -configure(accepted)-> configured -configure(another)-> configured
    configured -configure(refused)-> introduced

The servicers share one `Instance`; `configure` replaces the plugins of the old attachment in one step.
"""

from __future__ import annotations

import hmac
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

import grpc
import numpy as np

from berth_sdk import chance
from berth_sdk.clocks import wall_s
from berth_sdk.errors import PluginArgsError, PluginDefinitionError, UndeclaredError
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.needs import Need
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.runtime.closing import CLOSE_S
from berth_sdk.runtime.descriptor import Descriptor, describe
from berth_sdk.runtime.plugin_runtime import PluginRuntime, make_plugin
from berth_sdk.runtime.profiles import for_all_profiles
from berth_sdk.runtime.raised import raised_text
from berth_sdk.serve.calls import LOG, CallRefusedError, InFlight
from berth_sdk.serve.cycles import CycleBook
from berth_sdk.serve.endings import Endings, MadePlugin
from berth_sdk.serve.handle_client import HandleClient
from berth_sdk.serve.handle_connection import HandleConnection
from berth_sdk.serve.lanes import EventLoopThread
from berth_sdk.serve.served import MAX_BINDING_CALLS, Lanes, ServedPlugin
from berth_sdk.serve.state_copy import LocalCopy
from berth_sdk.tables import NodeColumns, NodeTable
from berth_sdk.wire.certificate import FEATURE as HANDLE_TLS
from berth_sdk.wire.certificate import Certificate
from berth_sdk.wire.frames import FEATURE as FRAMED
from berth_sdk.wire.message_limit import CURE, SERVER_BYTES
from berth_sdk.wire.records import encode_time
from berth_sdk.wire.requests import TRIAL, decode_args
from berth_sdk.wire.results import encode_descriptor

CONTRACT: Final = (1, 0)
_REMEMBERED_ATTACHMENTS: Final = 64
"""The fewest that the contract allows: hosts that do not lead shake hands too, each under its own id."""
_NAMES_KEPT: Final = 50_000
_KNOWN_POINTS: Final = frozenset(point.value for point in ExtensionPoint)
Made: TypeAlias = dict[tuple[str, str], MadePlugin]
"""Instances by plugin name and profile."""


class Instance:
    """The state of a process that serves plugins."""

    def __init__(
        self,
        classes: Mapping[str, type],
        credential: str = "",
        certificate: Certificate | None = None,
        max_message_bytes: int = SERVER_BYTES,
    ) -> None:
        """Read the descriptors of `classes`, given by plugin name. Raises PluginDefinitionError.

        `credential`: the secret that a host has to name; empty: none. `certificate`: of this process; None:
        without TLS. `max_message_bytes`: the largest message that this process receives.
        """
        self.instance_id = chance.token_hex(16)
        self.started_at_s = wall_s()
        self.framed = False
        """True if the server accepts calls in frames, on a socket beside gRPC's."""
        self.classes = dict(classes)
        self.descriptors = {name: _servable(cls, name) for name, cls in classes.items()}
        self.cycles = CycleBook()
        self.copy = LocalCopy(_needs_of(self.descriptors))
        self.loop = EventLoopThread()
        self.in_flight = InFlight()
        self.connection = HandleConnection(certificate)
        self._lock = threading.Lock()
        self._configuring = threading.Lock()
        """Held while Configure makes plugins, which may take long. Handshake and `stop` do not wait then."""
        self._credential = credential.encode()
        self._attachment_id = ""
        self.introduced: deque[str] = deque(maxlen=_REMEMBERED_ATTACHMENTS)
        self._served: dict[tuple[str, str], ServedPlugin] = {}
        # A plugin's reservations outlive the attachment. Reconcile names the live ones.
        self._made: Made = {}
        self._tried: Made = {}
        """The plugins made in the last trial."""
        self.endings = Endings(self.cycles, self.loop)
        room = threading.BoundedSemaphore(MAX_BINDING_CALLS)
        self._lanes = {name: Lanes(room) for name in classes}
        self._receives_bytes = max_message_bytes
        self._max_message_bytes = 0
        """The limit of the attachment, for both directions; 0: none is configured."""
        self._stopping = False
        self._named = NodeTable(NodeColumns())
        """The nodes that calls in NAMES mode named so far, at most about _NAMES_KEPT."""

    # --- attaching -----------------------------------------------------------------------------

    def handshake(self, request: identity_pb2.HandshakeRequest) -> identity_pb2.HandshakeResponse:
        """Return what this process is and serves. The host accepts or refuses the process with Configure.

        Raises CallRefusedError for a host without the right secret.
        """
        if self._credential and not hmac.compare_digest(request.credential.encode(), self._credential):
            LOG.warning(
                "refused a host that %s", "has another credential" if request.credential else "has none"
            )
            text = "the credential is not the one that this plugin expects"
            raise CallRefusedError(grpc.StatusCode.UNAUTHENTICATED, text)
        with self._lock:
            if request.attachment_id in self.introduced:
                self.introduced.remove(request.attachment_id)  # it becomes the latest
            self.introduced.append(request.attachment_id)
        return identity_pb2.HandshakeResponse(
            supported=[identity_pb2.ContractVersion(major=CONTRACT[0], minor=CONTRACT[1])],
            features=self._features(),
            plugins=[encode_descriptor(descriptor) for descriptor in self.descriptors.values()],
            instance_id=self.instance_id,
            started_at=encode_time(self.started_at_s),
            max_message_bytes=self._receives_bytes,
        )

    def configure(self, request: identity_pb2.ConfigureRequest) -> identity_pb2.ConfigureResponse:
        """Make the plugins of a new attachment. In a trial, make them without using them.

        The response has the error if a plugin refuses its arguments. Raises CallRefusedError.
        """
        self._check_introduced(request)
        if not request.accepted:
            LOG.warning("the host refused this instance: %s", request.reason)
            if request.attachment_id == self._attachment_id:
                self._end_attachment()
            return identity_pb2.ConfigureResponse()
        self._check(request)
        with self._configuring:
            if request.trial:
                return self._try(request)
            before = self.connection.endpoint, self.connection.limit_bytes
            # The plugins may call the host from their constructors.
            self.connection.use(
                request.handle if request.HasField("handle") else None, request.max_message_bytes
            )
            warnings: list[str] = []
            try:
                made, in_use = self._made_all(request)
            except (PluginArgsError, CallRefusedError) as err:
                # The existing attachment, if any, continues.
                self.connection.use(*before)
                if isinstance(err, CallRefusedError):
                    raise
                return identity_pb2.ConfigureResponse(error=str(err))
            with self._lock:
                self._check_serving(made)
                replaced = {*self._made.values(), *self._tried.values()}
                self._made, self._tried = made, {}
                self.copy.select(_needs_of(self.descriptors | in_use))
                self._attachment_id = request.attachment_id
                self._served = served = {
                    (item.name, item.profile): self._as_served(item, warnings) for item in request.plugins
                }
                self._max_message_bytes = request.max_message_bytes
                self._retire_unused(replaced)
        for warning in warnings:
            LOG.warning("%s", warning)
        LOG.info("configured: %s", ", ".join(f"{name} in {profile}" for name, profile in served))
        return identity_pb2.ConfigureResponse(
            warnings=warnings,
            plugins=[
                encode_descriptor(found) for name, found in in_use.items() if found != self.descriptors[name]
            ],
        )

    def stop(self, close_s: float = CLOSE_S) -> None:
        """End the attachment and the connection to the host, close the plugins, and end the loop thread. No
        call may follow. `close_s`: seconds that the plugins get for `close`.
        """
        with self._lock:
            self._stopping = True
            instances = {*self._made.values(), *self._tried.values()}
            self._made, self._tried = {}, {}
        self._end_attachment()
        self.endings.close_all(instances, close_s)
        self.loop.stop()

    @property
    def is_ready(self) -> bool:
        """True if the host may send cycles."""
        return bool(self._served) and not self._stopping

    # --- serving -------------------------------------------------------------------------------

    def admit(self, attachment_id: str) -> None:
        """Raise CallRefusedError for a call of a host that is not attached (any more)."""
        if attachment_id != self._attachment_id:
            if not self._attachment_id:
                raise _not_configured()
            text = "this instance is attached to a host under another attachment_id"
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, text)

    def admit_probe(self, attachment_id: str) -> None:
        """Check a Probe as `admit` does; before Configure, any host may probe. Raises CallRefusedError."""
        if self._attachment_id:
            self.admit(attachment_id)

    def served(self, plugin: str, profile: str) -> ServedPlugin:
        """Return the plugin in a profile. Raises CallRefusedError."""
        found = self._served.get((plugin, profile))
        if found is None:
            raise self._unknown(plugin, f" in profile {profile!r}")
        return found

    def profiles_of(self, plugin: str) -> dict[str, ServedPlugin]:
        """Return the plugin by profile. Raises CallRefusedError if the plugin is in no profile."""
        found = {profile: served for (name, profile), served in self._served.items() if name == plugin}
        if not found:
            raise self._unknown(plugin, "")
        return found

    def named_nodes(self, names: list[str]) -> NodeTable:
        """Return a table of nodes with only their names, for NAMES mode.

        A row is made once for each name, as that takes far longer than the rest of a call.
        """
        known = self._named
        slots = known.slots_of(names)
        if -1 in slots:
            kept = known.names if len(known) + len(names) <= _NAMES_KEPT else []
            columns = NodeColumns()
            # New columns, as another thread may read the old ones.
            for name in dict.fromkeys([*kept, *names]):
                columns.add(Node(name=name))
            known = self._named = NodeTable(columns)
            slots = known.slots_of(names)
        return known.take(np.array(slots, dtype=np.intp))

    def check_size(self, answer: bytes) -> None:
        """Raise CallRefusedError for an answer over the agreed size."""
        limit = self._max_message_bytes
        if limit and len(answer) > limit:
            raise CallRefusedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answer has {len(answer)} bytes, and {limit} are the limit: answer less, or {CURE}",
            )

    # --- plumbing ------------------------------------------------------------------------------

    def _try(self, request: identity_pb2.ConfigureRequest) -> identity_pb2.ConfigureResponse:
        """Make the plugins as `configure` does, and keep them for a Configure with the same arguments.

        The plugins in use stay in use.
        """
        before, self._tried = self._tried, {}
        self._retire_unused(before.values())
        try:
            made, _ = self._made_all(request)
        except PluginArgsError as err:
            return identity_pb2.ConfigureResponse(error=str(err))
        with self._lock:
            self._check_serving(made)
            self._tried = made
        return identity_pb2.ConfigureResponse()

    def _check_serving(self, made: Made) -> None:
        """Close the plugins of a Configure that `stop` has overtaken, and raise CallRefusedError then."""
        if self._stopping:
            self.connection.use(None)
            self.endings.retire(made.values())
            raise CallRefusedError(grpc.StatusCode.UNAVAILABLE, "this instance stops")

    def _made_all(self, request: identity_pb2.ConfigureRequest) -> tuple[Made, dict[str, Descriptor]]:
        """Return the plugins of a request, and what they declare, by name.

        Raises PluginArgsError and CallRefusedError, after it has closed the plugins that it had made.
        """
        made: Made = {}
        try:
            for item in request.plugins:
                made[item.name, item.profile] = self._made_or_refused(item)
            return made, _in_use(made)
        except BaseException:
            self._retire_unused(made.values())
            raise

    def _made_or_refused(self, item: identity_pb2.PluginArgs) -> MadePlugin:
        try:
            return self._make(item)
        except PluginArgsError as err:
            text = f"{item.name} in profile {item.profile} refuses its arguments: {err}"
            LOG.error("%s", text)
            raise PluginArgsError(text) from err
        except (PluginDefinitionError, UndeclaredError) as err:
            text = f"{item.name} in profile {item.profile} cannot be used with these arguments: {err}"
            LOG.error("%s", text)
            raise PluginArgsError(text) from err

    def _retire_unused(self, instances: Iterable[MadePlugin]) -> None:
        """Close those of the instances that are neither in use nor tried, once they are idle."""
        kept = {*self._made.values(), *self._tried.values()}
        self.endings.retire(one for one in instances if one not in kept)

    def _features(self) -> list[str]:
        also = {FRAMED: self.framed, HANDLE_TLS: self.connection.has_tls}
        return [TRIAL, *(feature for feature, has in also.items() if has)]

    def _check_introduced(self, request: identity_pb2.ConfigureRequest) -> None:
        if request.attachment_id not in self.introduced:
            text = (
                f"the attachment_id {request.attachment_id[:64]!r} is none of the last"
                f" {_REMEMBERED_ATTACHMENTS} that a Handshake named: shake hands again"
            )
            raise CallRefusedError(grpc.StatusCode.PERMISSION_DENIED, text)

    def _check(self, request: identity_pb2.ConfigureRequest) -> None:
        if request.contract.major != CONTRACT[0]:
            raise _fault(
                f"contract {request.contract.major}.{request.contract.minor} was selected,"
                f" this instance speaks {CONTRACT[0]}.{CONTRACT[1]}"
            )
        if not request.max_message_bytes:
            raise _fault("no limit for messages was set")
        for item in request.plugins:
            if item.name not in self.classes:
                raise _fault(f"plugin {item.name!r} is not served here: {', '.join(self.classes)} are")

    def _make(self, item: identity_pb2.PluginArgs) -> MadePlugin:
        """Return the plugin for these arguments: the existing one, that of a trial, or a new one.

        Raises PluginArgsError and CallRefusedError.
        """
        args = item.args.SerializeToString(deterministic=True)
        for known in (self._made, self._tried):
            old = known.get((item.name, item.profile))
            if old is not None and old.args == args:
                return old
        forget = partial(self._forget, item.name)
        handle = HandleClient(self.descriptors[item.name], self.connection, self.copy, forget)
        try:
            plugin = make_plugin(self.classes[item.name], decode_args(item.args), handle, item.name)
            runtime = PluginRuntime(plugin, name=item.name, handle=handle)
        except (PluginArgsError, PluginDefinitionError, UndeclaredError, KeyboardInterrupt):
            raise
        except BaseException as err:
            LOG.exception("%s could not be made", item.name)
            text = f"{item.name}.__init__ raised {raised_text(err)}"
            raise CallRefusedError(grpc.StatusCode.INTERNAL, text) from err
        handle.describes(runtime.descriptor)
        return MadePlugin(args, runtime)

    def _forget(self, plugin: str) -> None:
        """Drop the kept answers of the plugin, in every profile."""
        for (name, _), made in list(self._made.items()):
            if name == plugin:
                made.runtime.follows.forget()

    def _as_served(self, item: identity_pb2.PluginArgs, warnings: list[str]) -> ServedPlugin:
        made = self._made[item.name, item.profile]
        runtime = made.runtime
        enabled = frozenset(ExtensionPoint(point) for point in item.enabled if point in _KNOWN_POINTS)
        for point in sorted(enabled - set(runtime.descriptor.points)):
            warnings.append(f"{item.name} is enabled at {point.config_name} and does not take part in it")
        lanes = self._lanes[item.name]
        lanes.limit(item.max_concurrency or runtime.descriptor.max_concurrency)
        return ServedPlugin(made, lanes, profile=item.profile, enabled=enabled)

    def _end_attachment(self) -> None:
        with self._lock:
            self._served = {}
            self._attachment_id = ""
        self.connection.use(None)

    def _unknown(self, plugin: str, where: str) -> CallRefusedError:
        if not self._served:
            return _not_configured()
        return _fault(f"plugin {plugin!r} is not configured here{where}")


def _not_configured() -> CallRefusedError:
    # The process restarted and the host's connection did not notice; the host's Probe reports it.
    return CallRefusedError(grpc.StatusCode.UNAVAILABLE, "this instance is not configured yet")


def _fault(text: str) -> CallRefusedError:
    return CallRefusedError(grpc.StatusCode.INVALID_ARGUMENT, text)


def _needs_of(descriptors: Mapping[str, Descriptor]) -> Iterator[Need]:
    return (need for descriptor in descriptors.values() for need in descriptor.needs)


def _in_use(made: Made) -> dict[str, Descriptor]:
    """Return what the plugins of an attachment declare, by name, each for all of its profiles.

    Raises PluginArgsError where the arguments of two profiles make the plugin contradict itself.
    """
    by_profile: dict[str, dict[str, Descriptor]] = {}
    for (name, profile), one in made.items():
        by_profile.setdefault(name, {})[profile] = one.runtime.descriptor
    return {name: for_all_profiles(found) for name, found in by_profile.items()}


def _servable(cls: type, name: str) -> Descriptor:
    descriptor = describe(cls, name)
    if descriptor.less_only:
        raise PluginDefinitionError(
            f"{name} orders the queue with `less`, which works in process only: write `sort_key` as well"
            " (berth_sdk.sort_keys) to serve it"
        )
    return descriptor
