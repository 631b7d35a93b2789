"""The four plugins of a soak. Each runs in a process of its own; a file says how it behaves.

Served by `berth-sdk serve berth_bench.soak.plugins:NAME` with SOAK_MOOD naming the file, which holds
a word of `Mood`. Without the file a plugin is honest. SOAK_ASKED names a file whose time is that of the last
call, SOAK_VERSION is the plugin's version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin, ScoreNormalization
from berth_sdk.handle import Handle
from berth_sdk.kube_object import ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.results import ObjectPatch, PatchResult, PermitResult, PreBindResult
from berth_sdk.status import SUCCESS, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

MOOD: Final = "SOAK_MOOD"
ASKED: Final = "SOAK_ASKED"
VERSION: Final = "SOAK_VERSION"
CLOSED: Final = "soak.berth.io/closed"
"""`true`: a node of which SoakFit wants no pod."""
SLOW_S: Final = 0.05
"""By so much a slow plugin's answers are late: more than a third of the time that a cycle's call has."""
_WAIT_S: Final = 10.0
_HELD: Final = 5
"""SoakGate holds one pod of so many."""


class Mood(StrEnum):
    """How a plugin behaves."""

    HONEST = "honest"
    SLOW = "slow"
    LYING = "lying"


def mood() -> Mood:
    """Read anew at each call: the soak writes it while the plugin runs. A slow plugin sleeps here."""
    if asked := os.environ.get(ASKED):
        Path(asked).touch()
    try:
        found = Mood(Path(os.environ[MOOD]).read_text())
    except (KeyError, OSError, ValueError):
        return Mood.HONEST
    if found is Mood.SLOW:
        time.sleep(SLOW_S)
    return found


class _Versioned(Plugin):
    version: ClassVar[str] = os.environ.get(VERSION, "1")


class SoakFit(_Versioned):
    """Filter. It lies by an answer for one node too few, which the SDK turns into an error."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Nodes that are not closed."""
        if mood() is Mood.LYING:
            return Verdicts.feasible(len(nodes) - 1)
        return Verdicts.reject_where(nodes.has_label(CLOSED, "true"), Status.unresolvable("node is closed"))


class SoakRank(_Versioned):
    """Score. It lies by scores of 1000."""

    normalization: ClassVar[ScoreNormalization] = ScoreNormalization.NONE

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Anything, but for each node the same."""
        top = 1000 if mood() is Mood.LYING else 100
        scores: NDArray[np.int64] = nodes.slots.astype(np.int64) * 7 % (top + 1)
        return scores


class SoakKeeper(_Versioned):
    """Reserve, PreBind and Unreserve. It lies by a patch of a kind that it never declared."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Take something, and remember in the token what was taken."""
        mood()
        state.token = node_name.encode()
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Give it back."""
        mood()

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """Nothing more to do."""
        if mood() is not Mood.LYING:
            return PreBindResult(SUCCESS)
        patch = ObjectPatch(
            resource="secrets", ref=ObjectRef(name="x", namespace="default"), merge_patch={"data": {}}
        )
        return PreBindResult(SUCCESS, patches=(patch,))


class SoakGate(_Versioned):
    """Permit: it holds some pods, and lets those that it held go when the next pod comes. It lies by
    deciding about pods of others, with a cycle that never was.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._count = 0

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """WAIT for some, SUCCESS for the others."""
        found = mood()
        self._count += 1
        for waiting in self.handle.waiting_pods(only_mine=found is not Mood.LYING):
            if waiting.pod.uid != pod.uid:
                self.handle.allow(waiting)
        return PermitResult.wait(_WAIT_S) if self._count % _HELD == 0 else SUCCESS
