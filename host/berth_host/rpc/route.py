"""`Route`: the way from a client to its plugin. `ClientSettings`: the operator's settings for the plugin.

`LocalRoute` is the route to an in-process plugin. `attach.routes` has the route to a served plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attempt.call_record import CycleRecord
from berth_host.config.berth.points import PointPolicy
from berth_host.model.declared_scope import FindObject
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.transport import Transport


class Route(Protocol):
    """The way from a client to its plugin, which may change."""

    @property
    def transport(self) -> Transport | None:
        """The way to the active instance; None while there is none."""
        ...

    def for_cycle(self, cycle: CycleRecord) -> Transport | None:
        """Return the way to the instance for a new cycle, which stays with that instance."""
        ...

    def for_batch(self, point: ExtensionPoint) -> Transport | None:
        """Return the way to the instance for a call that belongs to no cycle."""
        ...

    def cycle_ended(self, cycle: CycleRecord) -> None:
        """Note the end of a cycle for which `for_cycle` was called."""
        ...

    def forget(self, asking: str) -> None:
        """Drop the kept answers of the plugin in all its instances.

        `asking`: the attachment of the instance that asks for this and has dropped its own kept answers.
        Empty: an in-process plugin.
        """
        ...

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the instance; before the first instance, a descriptor from the configuration."""
        ...

    @property
    def absence(self) -> str:
        """Why there is no transport, as the end of a sentence (`is not attached: ...`)."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRoute:
    """The route to an in-process plugin."""

    transport: InProcessTransport

    def for_cycle(self, cycle: CycleRecord) -> InProcessTransport:
        """Return the transport of the in-process plugin."""
        return self.transport

    def for_batch(self, point: ExtensionPoint) -> InProcessTransport:
        """Return the transport of the in-process plugin."""
        return self.transport

    def cycle_ended(self, cycle: CycleRecord) -> None:
        """Do nothing: an in-process plugin is never on trial."""

    def forget(self, asking: str) -> None:
        """Drop the kept answers of the plugin."""
        self.transport.runtime.follows.forget()

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the class."""
        return self.transport.descriptor

    @property
    def absence(self) -> str:
        """Empty: the plugin is never absent."""
        return ""


def _finds_nothing(_kind: str, _name: str, _namespace: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The operator's settings for one plugin. `points`: by point (`preBind`).

    `required` False: the cycle goes on without a call that cannot be made.
    `scope`: returns True if the plugin is called about a pod. None: about every pod.
    `scope_reads_namespaces`: the scope selects pods by the labels of their namespaces. `left_to_it`: returns
    True for a pod that wants a resource which only this plugin counts. None: there is no such resource.
    `find`: looks up the claims of pods, for a scope that the plugin declares.
    """

    points: Mapping[str, PointPolicy] = field(default_factory=dict)
    required: bool = True
    scope: Callable[[Pod], bool] | None = None
    scope_reads_namespaces: bool = False
    left_to_it: Callable[[Pod], bool] | None = None
    find: FindObject = _finds_nothing
