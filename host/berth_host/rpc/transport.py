"""`Transport`: the way to one plugin of one profile.

Only the relay calls a transport. A transport makes the calls of the table (`calls`), returns the SDK's result
types and raises `PluginError`s. `validate` checks the values, and the relay applies the failure policy.
There are two transports: `InProcessTransport` and `GrpcTransport`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, TypeVarTuple

from berth_sdk.extension_points import Answer
from berth_sdk.kept.follows import Follows
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import CycleEnd
from berth_host.rpc.call import Call
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.failure_record import FailureRecord

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")


class Transport(Protocol):
    """A way to one plugin of one profile. `codes`: logs the codes of its answers that are read as ERROR."""

    codes: CodeLog

    @property
    def is_open(self) -> bool:
        """False once the transport will never answer again."""
        ...

    async def is_lost(self, within_s: float) -> bool:
        """Return True if it is known, `within_s` after a failed call, that no answer will ever come."""
        ...

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the plugin, as its instance declares it."""
        ...

    @property
    def follows(self) -> Follows:
        """The inputs of the plugin's kept answers, for as long as this is the way to the plugin."""
        ...

    @property
    def conduct(self) -> FailureRecord | None:
        """The conduct record of the instance; None: an in-process plugin, which is always called."""
        ...

    def ask(
        self,
        call: Call[*Args, Raw, Any],
        cycle: CycleRecord | None,
        args: tuple[*Args],
        deadline_s: float,
    ) -> Answer[Raw]:
        """Return the plugin's answer to a call of the table, or an awaitable of it.

        `cycle`: None for a batch of the queue. `deadline_s`: seconds from now; in process a
        plain `def` is not interrupted. Raises PluginError, CycleRestartError.
        """
        ...

    def end_cycle(self, cycle: CycleRecord, outcome: CycleEnd) -> None:
        """Note the end of the cycle; a later call informs the plugin."""
        ...
