"""One scheduling attempt inside a framework: the relay's context, and which plugins opted out.

Source: kube-scheduler `framework/cycle_state.go` (SkipFilterPlugins, SkipScorePlugins, ...), v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch
from berth_sdk.tables import NodeTable

from berth_host.framework.nominated import NOBODY, NominatedPods
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import CycleContext


class RecalledAnswers(Protocol):
    """The recalled answers for one cycle's pod, as far as others than the recall look at them.

    `known`: the same object for equal pods while their answers are kept; None for the first pod of its kind.
    `merged`: the plugins whose answers are put together in it.
    """

    @property
    def known(self) -> object | None:
        """See above."""
        ...

    @property
    def merged(self) -> frozenset[str]:
        """See above."""
        ...


@dataclass(slots=True, eq=False)
class Cycle:
    """`nodes` is the snapshot of this cycle, all of it; it stands still until Permit has returned."""

    context: CycleContext
    nodes: NodeTable
    recalled: RecalledAnswers | None = None
    """The recalled answers about equal pods; None: there are none."""
    skip: frozenset[str] = frozenset()
    """Plugins that have nothing to do with this pod, to the end of the cycle."""
    skip_filter: frozenset[str] = frozenset()
    skip_score: set[str] = field(default_factory=set)
    skip_pre_bind: set[str] = field(default_factory=set)
    parallel_pre_bind: set[str] = field(default_factory=set)
    nominated: NominatedPods = NOBODY
    """Pods promised a node that count for this one."""
    statuses: NodeStatuses | None = None
    """Why no node fits, once that is known."""
    changes: list[tuple[PluginClient, Sequence[ObjectPatch]]] = field(default_factory=list)
    """The changes that PostFilter plugins ask for; applied when the cycle is over."""
    pre_scored_s: float = 0.0
    """When PreScore was over (`time.perf_counter`)."""
    idle: bool = False
    """The binding cycle waits for time to pass, or for a decision on Permit, and for nothing else."""

    @property
    def pod(self) -> Pod:
        """The pod of this attempt."""
        return self.context.pod
