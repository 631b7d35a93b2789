"""`AttachSeams`: what attachments need of the host that runs them. Filled by `app`, and by tests."""

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
    """Before there is a cluster."""


def _raise(err: InvariantError) -> None:
    """Without a host to end."""
    raise err


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachSeams:
    """What attachments need of the host. `grants` None: no plugin gets the way back. `traffic`: is told of
    every message. `declare`: is told of the plugins of an instance before it gets the state, and returns
    when what they need of the cluster is in it; may raise LostError. `holder`: the place of another
    attachment that holds this instance, empty if none does. `order`: numbers attached instances. `broken`:
    hears that the host cannot be trusted any more.
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
        """Whether there is a way back for plugins behind TLS."""
        return self.grants is not None and self.grants.over_tls

    def revoke(self, attachment_id: str, plugin: str = "") -> None:
        """End an attachment's way back, or that of one of its plugins."""
        if self.grants is not None:
            self.grants.revoke(attachment_id, plugin)
