"""`Transport`: one plugin of one profile, asked over some way.

Called by the relay alone. A transport makes the calls of the table (`calls`), answers the SDK's result
types and raises `PluginError`s; what the values are worth is checked in `validate`, what a failure means
is decided by the client. There are two: `InProcessTransport` and `GrpcTransport`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, TypeVarTuple

from berth_sdk.extension_points import Answer

from berth_host.rpc.call import Call
from berth_host.rpc.cycle import CycleContext, CycleEnd

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")


class Transport(Protocol):
    """A way to one plugin of one profile."""

    @property
    def is_open(self) -> bool:
        """False once it will never answer again."""
        ...

    def ask(
        self,
        call: Call[*Args, Raw, Any],
        cycle: CycleContext | None,
        args: tuple[*Args],
        deadline_s: float,
    ) -> Answer[Raw]:
        """What the plugin says to a call of the table: at once, or as something to await.

        `cycle`: None for a batch of the queue. `deadline_s`: seconds from now; in process nothing
        interrupts a plain `def`. Raises PluginError, CycleRestartError.
        """
        ...

    def end_cycle(self, cycle: CycleContext, outcome: CycleEnd) -> None:
        """The cycle is over; told with a later call."""
        ...
