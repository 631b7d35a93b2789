"""`Result`: the account of one soak. Made by `world`, printed by the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

MAX_GROWTH_PERCENT: Final = 5.0
GROWTH_FROM_MINUTES: Final = 10.0
"""A shorter run is too short to tell growth from the filling of caches."""
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
    """`pending`: pods without a node at the end, some time after everything was well again; `lost_pods`:
    those of them that a node has room for, and pods that went by themselves. `kills`: misfortunes by kind.
    `memory_growth_percent` None: too short to tell. `calls_lost_in_swaps` and `misplaced_pods`, which were
    bound to nodes that a required plugin refuses, are printed where they are a problem.
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
        """In the order of the fields."""
        hidden = ("calls_lost_in_swaps", "misplaced_pods")
        return {name: value for name, value in asdict(self).items() if name not in hidden}

    def problems(self) -> list[str]:
        """What must not be; empty for a clean run."""
        found = [f"{name}: {count}" for name in ZERO if (count := getattr(self, name))]
        growth = self.memory_growth_percent
        if growth is not None and growth >= MAX_GROWTH_PERCENT:
            found.append(f"memory_growth_percent: {growth:.1f}, from {MAX_GROWTH_PERCENT:g} on it is a leak")
        if self.calls_lost_in_swaps:
            count = self.calls_lost_in_swaps
            found.append(f"calls that found no instance while a newer one took over: {count}")
        if count := self.misplaced_pods:
            found.append(f"pods on nodes that a required plugin refuses: {count}")
        if not self.bound:
            found.append("no pod was bound")
        return found
