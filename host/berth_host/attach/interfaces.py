"""`AttachSeams`: the host's services for attachments, with their types. Filled by `host_attachments` and
tests.

A host without served plugins imports this module as well, so this module must not import gRPC.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from berth_sdk.kube_object import ObjectRef
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.wire.message_limit import DEFAULT_BYTES

from berth_host.attach.state import PlaceChange, ScopeChange, Swap
from berth_host.attach.state_feed import HostState
from berth_host.attempt.cycle import Cycle
from berth_host.errors import HostError
from berth_host.errors.state import InvariantError

if TYPE_CHECKING:  # brings gRPC
    from berth_host.rpc.served.link import Traffic

Declare: TypeAlias = Callable[[Sequence[Descriptor]], Awaitable[None]]


class LostError(HostError):
    """The instance cannot be reached, or another one answers in its place."""


class AttachListener(Protocol):
    """The receiver of attached and lost plugins, called on the event loop. Its methods must not raise."""

    def attached(self, plugin: str) -> None:
        """Take that a plugin can be called again; pods that failed because of the plugin may be retried."""
        ...

    def lost(self, plugin: str, reason: str) -> None:
        """Take that a plugin has no instance any more."""
        ...

    def post_bound(self, plugin: str, pod: ObjectRef) -> None:
        """Take that an instance has acknowledged the PostBind of a pod."""
        ...

    def swapped(self, swap: Swap) -> None:
        """Take that another instance of a plugin gets the calls."""
        ...

    def scope_changed(self, change: ScopeChange) -> None:
        """Take that a new instance of a plugin declares another scope."""
        ...

    def place_changed(self, change: PlaceChange) -> None:
        """Take that a place has entered a lasting state."""
        ...


@dataclass(frozen=True, slots=True)
class LiveCycle:
    """A cycle with a reservation or a wait of one plugin. `permit_deadline_s`: a wait's end, Unix seconds."""

    cycle: Cycle
    permit_deadline_s: float | None = None


class LiveCycles(Protocol):
    """The running cycles (`cycle.running_attempts.CyclesUnderWay`)."""

    def live(self, plugin: str) -> list[LiveCycle]:
        """Return the cycles in which the plugin has a reservation, or keeps the pod waiting at Permit."""
        ...

    def bound(self, plugin: str) -> list[LiveCycle]:
        """Return the cycles in which the plugin has a reservation for a bound pod, and was not told so."""
        ...

    def lost(self, plugin: str, cycles: Sequence[LiveCycle]) -> None:
        """End these cycles, which the plugin does not know, at their next step; their pods are retried."""
        ...


class NothingAlive:
    """`LiveCycles` without a host: there are no cycles."""

    def live(self, plugin: str) -> list[LiveCycle]:
        """Return no cycles."""
        return []

    def bound(self, plugin: str) -> list[LiveCycle]:
        """Return no cycles."""
        return []

    def lost(self, plugin: str, cycles: Sequence[LiveCycle]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """The address and the token for an attachment's calls to HandleService.

    `server_name`: the name in the host's certificate; empty for plaintext on this machine.
    """

    target: str
    token: str = field(repr=False)
    server_name: str = ""


class HandleGrants(Protocol):
    """The grants of the way back. Implemented by `handle`, composed by `app`."""

    @property
    def over_tls(self) -> bool:
        """True if plugins behind TLS can get a way back."""
        ...

    async def grant(
        self,
        attachment_id: str,
        plugins: frozenset[str],
        *,
        loopback_tcp: bool = False,
        tls_name: str = "",
        max_message_bytes: int = DEFAULT_BYTES,
    ) -> WayBack:
        """Grant the way back to one attachment.

        `loopback_tcp`: the plugins are reached over loopback TCP, and cannot open Unix sockets. `tls_name`:
        the name in the certificate of plugins behind TLS. `max_message_bytes`: the largest message in either
        direction. Raises DialError if the host cannot serve the way
        back now.
        """
        ...

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        """Revoke the attachment's token, or its use by one plugin."""
        ...


async def _declare_nothing(descriptors: Sequence[Descriptor]) -> None:
    """Do nothing; for attachments without a cluster."""


def _raise(err: InvariantError) -> None:
    """Raise the error; for attachments without a host."""
    raise err


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachSeams:
    """The host's services for attachments.

    `grants`: permissions for HandleService; None disables the way back. `traffic`: called for every message.
    `declare`: called with an instance's plugins before the state is sent; returns when the host watches the
    objects that they need; may raise LostError. `holder`: returns the place of another attachment that holds
    this instance, empty for none. `order`: numbers the attached instances. `broken`: called with an internal
    error after which the host must stop.
    """

    state: HostState
    listener: AttachListener
    cycles: LiveCycles = field(default_factory=NothingAlive)
    grants: HandleGrants | None = None
    host_version: str = "unknown"
    traffic: Traffic = lambda plugin, call, sent, received: None
    declare: Declare = _declare_nothing
    holder: Callable[[str, object], str] = lambda instance_id, asking: ""
    order: Iterator[int] = field(default_factory=itertools.count)
    broken: Callable[[InvariantError], None] = _raise

    @property
    def handle_over_tls(self) -> bool:
        """True if plugins behind TLS can get a way back."""
        return self.grants is not None and self.grants.over_tls

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        """Revoke an attachment's way back, or that of one of its plugins."""
        if self.grants is not None:
            self.grants.revoke(attachment_id, plugin)
