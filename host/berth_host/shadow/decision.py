"""`Decision`: what the shadow decided about a pod, kept until the real scheduler's outcome, and why not
another node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from berth_sdk.pod import Pod
from numpy.typing import NDArray

from berth_host.explain.diagnosis import Rejection
from berth_host.framework.score_table import ScoreTable
from berth_host.queue.queued_pod import QueuedPodInfo

NOT_EVALUATED: Final = "the shadow did not evaluate this node"


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """The reason for another outcome. `plugin`: "" if no plugin made it. `is_tie`: both nodes scored the
    same.
    """

    plugin: str
    reason: str
    is_tie: bool = False


class KeptScores:
    """A copy of a score table, as the tables of equal pods are changed in place. `size`: bytes."""

    __slots__ = ("_plugins", "_slots", "_total", "size")

    def __init__(self, table: ScoreTable) -> None:
        # Normalized scores are 0..100.
        self._plugins = [
            (one.plugin, one.weight, one.normalized.astype(np.int16)) for one in table.plugins if one.weight
        ]
        self._slots: NDArray[np.int32] = table.nodes.slots.astype(np.int32)
        self._total = table.total.copy()
        self.size = sum(scores.nbytes for _, _, scores in self._plugins)
        self.size += self._slots.nbytes + self._total.nbytes

    def compare(self, chosen: int, other: int) -> Difference | None:
        """Say which plugin preferred slot `chosen` to slot `other`; None if one of them was not scored."""
        rows = [
            int(found[0]) for slot in (chosen, other) if len(found := np.flatnonzero(self._slots == slot))
        ]
        if len(rows) != 2:
            return None
        ours, theirs = rows
        totals = int(self._total[ours]), int(self._total[theirs])
        if totals[0] == totals[1]:
            return Difference("", f"both nodes score {totals[0]}", is_tie=True)
        gains = []
        for plugin, weight, scores in self._plugins:
            first, second = int(scores[ours]), int(scores[theirs])
            gains.append((weight * (first - second), plugin, first, second))
        gain, plugin, first, second = max(gains, default=(0, "", 0, 0))
        text = f"totals {totals[0]} and {totals[1]}"
        if gain <= 0:
            return Difference("", f"{text}, by the scores of extenders")
        return Difference(plugin, f"{text}; {plugin} scores the two nodes {first} and {second}")


@dataclass(slots=True, eq=False, kw_only=True)
class Decision:
    """One decision. `node_name`: the chosen node; "": none fits.

    - `nominated_node`, `victims`: the preemption that the shadow would begin; victims as `namespace/name`.
    - `rejections`: the nodes that plugins rejected, as slots; `names`: the node in each slot.
    - `narrowed`: the plugins that left only some nodes at PreFilter, with these nodes.
    - `cause`: the plugin with which the attempt failed, and its reason.
    - `queued`: the pod's entry, to put it back into the queue.
    - `decided_s`: seconds of the attempt; `seen_at_s`: when the pod first entered activeQ, in Unix seconds.
    - `is_assumed`: the shadow's cache counts the pod on `node_name`. `is_reported`: the real scheduler has
      reported the pod as unschedulable, and the decision was counted.
    """

    pod: Pod
    queued: QueuedPodInfo
    filters: frozenset[str]
    node_name: str = ""
    nominated_node: str = ""
    victims: Sequence[str] = ()
    rejections: Sequence[Rejection] = ()
    names: NDArray[np.object_] | None = None
    narrowed: Sequence[tuple[str, Collection[str]]] = ()
    cause: tuple[str, str] = ("", "")
    scores: KeptScores | None = None
    decided_s: float = 0.0
    seen_at_s: float | None = None
    is_assumed: bool = False
    is_reported: bool = False
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def target(self) -> str:
        """The node where the pod would go, perhaps after evictions; "" if there is none."""
        return self.node_name or self.nominated_node

    def why_not(self, node_name: str) -> Difference:
        """Return why the shadow did not choose this node."""
        slot = self._slot(node_name)
        if slot is not None:
            for item in self.rejections:
                if slot in item.slots():
                    return Difference(item.status.plugin, ", ".join(item.status.reasons))
        for plugin, eligible in self.narrowed:
            if node_name not in eligible:
                return Difference(plugin, "PreFilter left the node out")
        if self.nominated_node:
            return Difference(self.cause[0], f"the shadow would evict {len(self.victims)} pods elsewhere")
        if not self.node_name:
            return Difference(*self.cause)
        chosen = self._slot(self.node_name)
        if self.scores is not None and slot is not None and chosen is not None:
            found = self.scores.compare(chosen, slot)
            if found is not None:
                return found
        return Difference("", NOT_EVALUATED)

    def cancel_timer(self) -> None:
        """Stop the timer of the assumed placement."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _slot(self, node_name: str) -> int | None:
        return None if self.names is None else _SLOTS.of(self.names, node_name)


class _SlotsByName:
    """The slots of the names that were asked about last. All decisions between two changes of the nodes share
    one array of names. A search in it for each pod took more than a tenth of the CPU of a shadow.
    """

    def __init__(self) -> None:
        self._names: NDArray[np.object_] | None = None
        self._slots: dict[str, int] = {}

    def of(self, names: NDArray[np.object_], node_name: str) -> int | None:
        """Return the slot of a node; None for an unknown node."""
        if names is not self._names:
            self._slots = {name: slot for slot, name in enumerate(names.tolist()) if name is not None}
            self._names = names
        return self._slots.get(node_name)


_SLOTS: Final = _SlotsByName()
