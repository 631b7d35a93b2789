"""`AttachSeams`: the host's services for attachments. Filled by `app`, and by tests."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attach.configure import HandleGrants
from berth_host.attach.feed import HostState
from berth_host.attach.reconciling import LiveCycles, NothingAlive
from berth_host.attach.routes import AttachListener
from berth_host.errors.state import InvariantError
from berth_host.rpc.served.link import Traffic

Declare: TypeAlias = Callable[[Sequence[Descriptor]], Awaitable[None]]


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
