"""`Route`: where a client finds its plugin; `ClientSettings`: how the plugin is to be treated there.

`LocalRoute` is the way into the host itself; `attach.routes` has the one to a plugin elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.config.berth.points import PointPolicy
from berth_host.rpc.cycle import Cycle
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.transport import Transport


class Route(Protocol):
    """The way from a client to its plugin, which may change."""

    @property
    def transport(self) -> Transport | None:
        """The way to the active instance; None while there is none."""
        ...

    def for_cycle(self, cycle: Cycle) -> Transport | None:
        """Return the way to the instance for a cycle that begins; the cycle stays with that instance."""
        ...

    def for_batch(self, point: ExtensionPoint) -> Transport | None:
        """Return the way to the instance for a call that belongs to no cycle."""
        ...

    def cycle_ended(self, cycle: Cycle) -> None:
        """Note the end of a cycle that `for_cycle` was asked about."""
        ...

    def forget(self, asking: str) -> None:
        """Drop what is kept of the plugin's answers, wherever it is kept. `asking`: the attachment of the
        instance that wants this, and drops its own by itself; empty: the plugin is in the host.
        """
        ...

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the instance; before the first instance, as the configuration tells it."""
        ...

    @property
    def absence(self) -> str:
        """Why there is no transport, as the end of a sentence (`is not attached: ...`)."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRoute:
    """The route to an in-process plugin."""

    transport: InProcessTransport

    def for_cycle(self, cycle: Cycle) -> InProcessTransport:
        """Return the one way that there is."""
        return self.transport

    def for_batch(self, point: ExtensionPoint) -> InProcessTransport:
        """Return the one way that there is."""
        return self.transport

    def cycle_ended(self, cycle: Cycle) -> None:
        """Note nothing: a class is never on trial."""

    def forget(self, asking: str) -> None:
        """Drop what the class, and the framework, keep of its answers."""
        self.transport.runtime.follows.forget()

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the class."""
        return self.transport.descriptor

    @property
    def absence(self) -> str:
        """Empty: the plugin is never absent."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How the host treats one plugin. `points`: the operator's choices by point (`preBind`).

    `required` False: a call that cannot be made is left out.
    `scope`: whether the plugin is asked about a pod at all; None: about every pod.
    """

    points: Mapping[str, PointPolicy] = field(default_factory=dict)
    required: bool = True
    scope: Callable[[Pod], bool] | None = None
