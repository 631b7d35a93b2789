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
    """`pending`: pods without a node when the load ended; `lost_pods`: those that still had none when
    everything was well again. `kills`: misfortunes by kind. `memory_growth_percent` None: too short to tell.
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

    def as_json(self) -> dict[str, Any]:
        """In the order of the fields."""
        return asdict(self)

    def problems(self) -> list[str]:
        """What must not be; empty for a clean run."""
        found = [f"{name}: {count}" for name in ZERO if (count := getattr(self, name))]
        growth = self.memory_growth_percent
        if growth is not None and growth >= MAX_GROWTH_PERCENT:
            found.append(f"memory_growth_percent: {growth:.1f}, from {MAX_GROWTH_PERCENT:g} on it is a leak")
        if not self.bound:
            found.append("no pod was bound")
        return found
