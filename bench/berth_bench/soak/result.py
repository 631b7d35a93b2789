"""`Result`: the account of one soak. Made by `world`, printed by the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from berth_bench.soak.growth import LIMITS_PERCENT, Growth

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
    faults by kind. `growth`: of objects, blocks and bytes over the second half, empty if the run was too
    short; `memory_growth_percent`: of resident memory, which nothing is judged by, None then.
    `calls_lost_in_swaps` and `misplaced_pods` (bound to nodes that a required plugin rejects) are printed
    only if they are a problem. `leaking_types`: named only with a leak.
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
    growth: Mapping[str, Growth]
    memory_growth_percent: float | None
    calls_lost_in_swaps: int = 0
    misplaced_pods: int = 0
    leaking_types: Sequence[tuple[str, int]] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the fields, in their order."""
        hidden = ("calls_lost_in_swaps", "misplaced_pods", "leaking_types")
        shown = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in hidden}
        return {**shown, "growth": {name: one.as_json() for name, one in self.growth.items()}}

    def problems(self) -> list[str]:
        """Return the problems; empty for a clean run."""
        found = [f"{name}: {count}" for name in ZERO if (count := getattr(self, name))]
        leaks = [name for name, one in self.growth.items() if one.is_leak(LIMITS_PERCENT[name])]
        for name in leaks:
            one = self.growth[name]
            found.append(
                f"{name} grew by {one.percent:.2f} % (error {one.error:.2f}) in the second half, to its end:"
                f" {LIMITS_PERCENT[name]:g} % or more, without the error, is a leak"
            )
        if leaks and self.leaking_types:
            most = ", ".join(f"{count} {name}" for name, count in self.leaking_types)
            found.append(f"the types that grew most: {most}")
        if self.calls_lost_in_swaps:
            count = self.calls_lost_in_swaps
            found.append(f"calls that found no instance while a newer one took over: {count}")
        if count := self.misplaced_pods:
            found.append(f"pods on nodes that a required plugin rejects: {count}")
        if not self.bound:
            found.append("no pod was bound")
        return found
