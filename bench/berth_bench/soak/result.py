"""`Result`: the account of one soak. Made by `world`, printed by the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

MAX_GROWTH_PERCENT: Final = 5.0
GROWTH_FROM_MINUTES: Final = 10.0
"""In a shorter run, growth cannot be distinguished from the filling of caches."""
ZERO: Final = (
    "lost_pods",
    "over_committed_nodes",
    "leaked_reservations",
    "double_binds",
    "leaked_tasks",
    "leaked_fds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result. `pending`: pods without a node at the end, some time after everything was repaired;
    `lost_pods`: those of them that a node has room for, and pods that disappeared by themselves. `kills`:
    faults by kind. `memory_growth_percent` None: the run was too short. `calls_lost_in_swaps` and
    `misplaced_pods` (bound to nodes that a required plugin rejects) are printed only if they are a problem.
    """

    seed: int
    minutes: float
    pods_created: int
    bound: int
    pending: int
    kills: Mapping[str, int]
    lost_pods: int
    over_committed_nodes: int
    leaked_reservations: int
    double_binds: int
    leaked_tasks: int
    leaked_fds: int
    memory_growth_percent: float | None
    calls_lost_in_swaps: int = 0
    misplaced_pods: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields, in their order."""
        hidden = ("calls_lost_in_swaps", "misplaced_pods")
        return {name: value for name, value in asdict(self).items() if name not in hidden}

    def problems(self) -> list[str]:
        """Return the problems; empty for a clean run."""
        found = [f"{name}: {count}" for name in ZERO if (count := getattr(self, name))]
        growth = self.memory_growth_percent
        if growth is not None and growth >= MAX_GROWTH_PERCENT:
            found.append(f"memory_growth_percent: {growth:.1f}; {MAX_GROWTH_PERCENT:g} or more is a leak")
        if self.calls_lost_in_swaps:
            count = self.calls_lost_in_swaps
            found.append(f"calls that found no instance while a newer one took over: {count}")
        if count := self.misplaced_pods:
            found.append(f"pods on nodes that a required plugin rejects: {count}")
        if not self.bound:
            found.append("no pod was bound")
        return found
