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
from berth_sdk.extension_points import Answer
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
from berth_sdk.runtime.early import PreScored
from berth_sdk.scenarios import Scenarios
from berth_sdk.status import Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.rpc.cycle import CycleContext, CycleEnd, Reserved


class Transport(Protocol):
    """A way to one plugin of one profile. Every method raises PluginError, CycleRestartError, or answers
    what the plugin said: at once, or as something to await. `deadline_s`: seconds from now; in process
    nothing interrupts a plain `def`.
    """

    @property
    def is_open(self) -> bool:
        """False once it will never answer again."""
        ...

    def pre_enqueue(self, pods: Sequence[QueuedPod], deadline_s: float) -> Answer[list[Status]]:
        """One status per pod."""
        ...

    def sort_keys(self, pods: Sequence[QueuedPod], deadline_s: float) -> Answer[list[bytes]]:
        """One key per pod."""
        ...

    def queueing_hints(
        self, event: ClusterEvent, pods: Sequence[Pod], deadline_s: float
    ) -> Answer[list[bool]]:
        """One hint per pod."""
        ...

    def pre_filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Answer[PreFilterResult]:
        """Over all nodes of the snapshot, with verdicts and scores where they come along."""
        ...

    def filter(self, cycle: CycleContext, nodes: NodeTable, deadline_s: float) -> Answer[FilterResult]:
        """Verdicts over the candidates, with scores where they come along."""
        ...

    def simulate_filter(
        self, cycle: CycleContext, scenarios: Scenarios, deadline_s: float
    ) -> Answer[Verdicts]:
        """One verdict per scenario."""
        ...

    def post_filter(
        self, cycle: CycleContext, rejections: NodeRejections, deadline_s: float
    ) -> Answer[PostFilterResult]:
        """No node is left."""
        ...

    def pre_score(
        self, cycle: CycleContext, nodes: NodeTable, deadline_s: float
    ) -> Answer[Status] | Answer[PreScored]:
        """Over the feasible nodes, with their scores where they come along."""
        ...

    def score(
        self, cycle: CycleContext, nodes: NodeTable, deadline_s: float
    ) -> Answer[NDArray[np.int64] | Status]:
        """Raw scores of the feasible nodes."""
        ...

    def normalize_score(
        self, cycle: CycleContext, scores: NDArray[np.int64], nodes: NodeTable, deadline_s: float
    ) -> Answer[NDArray[np.int64] | Status]:
        """The plugin's own second step."""
        ...

    def reserve(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[Reserved]:
        """Whether it is reserved, and what is known of the binding cycle by then."""
        ...

    def unreserve(self, cycle: CycleContext, node_name: str, reason: str, deadline_s: float) -> Answer[None]:
        """Give back what the cycle reserved."""
        ...

    def permit(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[PermitResult | None]:
        """None: the plugin did not decide."""
        ...

    def pre_bind_pre_flight(
        self, cycle: CycleContext, node_name: str, deadline_s: float
    ) -> Answer[PreFlightResult]:
        """Will PreBind do anything?"""
        ...

    def pre_bind(
        self, cycle: CycleContext, node_name: str, patched: Sequence[PatchResult], deadline_s: float
    ) -> Answer[PreBindResult | None]:
        """One round; None: the plugin did not decide."""
        ...

    def bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[BindResult | None]:
        """None: the plugin did not decide."""
        ...

    def post_bind(self, cycle: CycleContext, node_name: str, deadline_s: float) -> Answer[None]:
        """For information."""
        ...

    def end_cycle(self, cycle: CycleContext, outcome: CycleEnd) -> None:
        """The cycle is over; told with a later call."""
        ...
