"""`Transport`: one plugin of one profile, asked over some way.

Called by `PluginClient` alone. A transport answers the SDK's result types and raises `PluginError`s; what
the values are worth is checked in `validate`, what a failure means is decided by the client. There are
two: `InProcessTransport` and `GrpcTransport`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    FilterResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.rpc.cycle import CycleContext, Outcome


class Transport(Protocol):
    """A way to one plugin of one profile. Every method raises PluginError, CycleRestartError, or answers
    what the plugin said. `deadline_s`: seconds from now; in process nothing interrupts a plain `def`.
    """

    @property
    def is_open(self) -> bool:
        """False once it will never answer again."""
        ...

    async def pre_enqueue(self, pods: Sequence[QueuedPod], deadline_s: float) -> list[Status]:
        """One status per pod."""
        ...

    async def sort_keys(self, pods: Sequence[QueuedPod], deadline_s: float) -> list[bytes]:
        """One key per pod."""
        ...

    async def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod], deadline_s: float) -> list[bool]:
        """One hint per pod."""
        ...

    async def pre_filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> PreFilterResult:
        """Over all nodes of the snapshot."""
        ...

    async def filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> FilterResult:
        """Verdicts over the candidates, with scores where they come along."""
        ...

    async def simulate_filter(self, cycle: CycleContext, scenarios: Scenarios, deadline_s: float) -> Verdicts:
        """One verdict per scenario."""
        ...

    async def post_filter(
        self, cycle: CycleContext, rejections: NodeRejections, deadline_s: float
    ) -> PostFilterResult:
        """No node is left."""
        ...

    async def pre_score(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Status:
        """Over the feasible nodes."""
        ...

    async def score(
        self, cycle: CycleContext, nodes: NodeTable, deadline_s: float
    ) -> NDArray[np.int64] | Status:
        """Raw scores of the feasible nodes."""
        ...

    async def normalize_score(
        self, cycle: CycleContext, scores: NDArray[np.int64], nodes: NodeTable, deadline_s: float
    ) -> NDArray[np.int64] | Status:
        """The plugin's own second step."""
        ...

    async def reserve(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Status | None:
        """None: the plugin did not decide."""
        ...

    async def unreserve(self, cycle: CycleContext, node_name: str, reason: str, deadline_s: float) -> None:
        """Give back what the cycle reserved."""
        ...

    async def permit(self, cycle: CycleContext, node_name: str, deadline_s: float) -> PermitResult | None:
        """None: the plugin did not decide."""
        ...

    async def pre_bind_pre_flight(
        self, cycle: CycleContext, node_name: str, deadline_s: float
    ) -> PreFlightResult:
        """Will PreBind do anything?"""
        ...

    async def pre_bind(
        self, cycle: CycleContext, node_name: str, patched: Sequence[PatchResult], deadline_s: float
    ) -> PreBindResult | None:
        """One round; None: the plugin did not decide."""
        ...

    async def bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> BindResult | None:
        """None: the plugin did not decide."""
        ...

    async def post_bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> None:
        """For information."""
        ...

    def end_cycle(self, cycle: CycleContext, outcome: Outcome) -> None:
        """The cycle is over; told with a later call."""
        ...
