"""One scheduling attempt inside a framework: the relay's context, and which plugins opted out.

Source: kube-scheduler `framework/cycle_state.go` (SkipFilterPlugins, SkipScorePlugins, ...), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch
from berth_sdk.tables import NodeTable

from berth_host.framework.nominated import NOBODY, NominatedPods
from berth_host.model.node_statuses import NodeStatuses
from berth_host.rpc.client import PluginClient
from berth_host.rpc.cycle import CycleContext

POD_DELETED: Final[str] = "the pod was deleted"


class KeptAnswers(Protocol):
    """The kept answers that hold for one cycle's pod, as far as code outside of `kept` reads them.

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
    kept: KeptAnswers | None = None
    """The kept answers about equal pods; None: there are none."""
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

    between_rounds: dict[str, asyncio.Future[None] | None] = field(default_factory=dict)
    """By plugin, each PreBind that has answered a round and awaits the next one: the future that ends its
    pause, None while its patches are applied."""

    def tell_pod_deleted(self) -> bool:
        """Have every PreBind plugin between two rounds asked a last time, now: it may say what it makes of
        the deletion. Return False where no plugin is between two rounds.
        """
        if not self.between_rounds:
            return False
        self.context.note_pod_deleted()
        for pause in self.between_rounds.values():
            if pause is not None and not pause.done():
                pause.set_result(None)
        return True

    @property
    def pod(self) -> Pod:
        """The pod of this attempt."""
        return self.context.pod
