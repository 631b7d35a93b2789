"""The four plugins of a soak. Each runs in a process of its own; a file sets its behaviour.

Served by `berth-sdk serve berth_bench.soak.plugins:NAME`. SOAK_MOOD names the file, which holds a value of
`Mood`; without the file a plugin works correctly. SOAK_ASKED names a file whose time is that of the last
call. SOAK_VERSION is the plugin's version.
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
"""`true`: SoakFit rejects the node."""
SLOW_S: Final = 0.05
"""Delay of a slow plugin's answers in seconds: more than a third of the time that a cycle's call has."""
_WAIT_S: Final = 10.0
_HELD: Final = 5
"""SoakGate holds one of this many pods."""


class Mood(StrEnum):
    """The behaviour of a plugin in a soak."""

    HONEST = "honest"
    SLOW = "slow"
    INVALID = "invalid"


def mood() -> Mood:
    """Read the behaviour anew at each call, because the soak changes it while the plugin runs. Sleeps here
    for a slow plugin.
    """
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
    """Filter. Its wrong answer has one node too few, which the SDK turns into an error."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        """Accept nodes that are not closed."""
        if mood() is Mood.INVALID:
            return Verdicts.feasible(len(nodes) - 1)
        return Verdicts.reject_where(nodes.has_label(CLOSED, "true"), Status.unresolvable("node is closed"))


class SoakRank(_Versioned):
    """Score. Its wrong answers are scores of 1000."""

    normalization: ScoreNormalization = ScoreNormalization.NONE

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        """Return arbitrary scores that are constant for each node."""
        top = 1000 if mood() is Mood.INVALID else 100
        scores: NDArray[np.int64] = nodes.slots.astype(np.int64) * 7 % (top + 1)
        return scores


class SoakKeeper(_Versioned):
    """Reserve, PreBind and Unreserve. Its wrong answer is a patch of a kind that it did not declare."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Make a reservation, and write it to the token."""
        mood()
        state.token = node_name.encode()
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo the reservation."""
        mood()

    def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """Return an answer without patches."""
        if mood() is not Mood.INVALID:
            return PreBindResult(SUCCESS)
        patch = ObjectPatch(
            resource="secrets", ref=ObjectRef(name="x", namespace="default"), merge_patch={"data": {}}
        )
        return PreBindResult(SUCCESS, patches=(patch,))


class SoakGate(_Versioned):
    """Permit. It holds some pods, and allows them when the next pod comes. Its wrong behaviour is a decision
    about pods of other plugins, with an unknown cycle.
    """

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._count = 0

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult | Status:
        """Return WAIT for some pods, SUCCESS for the others."""
        found = mood()
        self._count += 1
        for waiting in self.handle.waiting_pods(only_mine=found is not Mood.INVALID):
            if waiting.pod.uid != pod.uid:
                self.handle.allow(waiting)
        return PermitResult.wait(_WAIT_S) if self._count % _HELD == 0 else SUCCESS
