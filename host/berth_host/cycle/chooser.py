"""Chooses between equally good nodes, and draws starting offsets.

Production and simulation use seeded random numbers, replays the smallest name, so that a run can be repeated.
kube-scheduler breaks ties by heap layout, which is no guarantee (docs/decisions.md).
"""

from __future__ import annotations

import random
from typing import Protocol


class Tied(Protocol):
    """Equally good nodes, at least one. A name is made only when it is read."""

    def __len__(self) -> int:
        """Return the number of nodes."""
        ...

    @property
    def names(self) -> list[str]:
        """The names of the nodes, one per row."""
        ...


class Chooser(Protocol):
    """Breaks ties and draws offsets."""

    def pick(self, nodes: Tied) -> int:
        """Return the row of the chosen node."""
        ...

    def offset(self, count: int) -> int:
        """Return a starting point in [0, count)."""
        ...

    def order(self, count: int) -> list[int]:
        """Return the order in which `count` equal things are tried of which not all need be tried."""
        ...

    def of_placement(self, name: str) -> Chooser:
        """Return the chooser for a trial of a group in one placement of several: what it picks does not
        depend on which other placements were tried.
        """
        ...


class SeededChooser:
    """A chooser by random numbers, the same for the same seed."""

    def __init__(self, seed: int | str | None = None) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self._random = random.Random(self.seed)

    def pick(self, nodes: Tied) -> int:
        """Return a random row."""
        return self._random.randrange(len(nodes)) if len(nodes) > 1 else 0

    def offset(self, count: int) -> int:
        """Return a random number in [0, count)."""
        return self._random.randrange(count)

    def order(self, count: int) -> list[int]:
        """Return a random order."""
        return self._random.sample(range(count), count)

    def of_placement(self, name: str) -> SeededChooser:
        """Return a chooser with a seed of the placement's own."""
        return SeededChooser(f"{self.seed}/{name}")


class SmallestName:
    """A chooser of the smallest name. All offsets are 0, and all orders stay as they are."""

    def pick(self, nodes: Tied) -> int:
        """Return the row with the smallest name."""
        names = nodes.names
        return min(range(len(names)), key=names.__getitem__)

    def offset(self, count: int) -> int:
        """Return 0."""
        return 0

    def order(self, count: int) -> list[int]:
        """Return the order as it is."""
        return list(range(count))

    def of_placement(self, name: str) -> SmallestName:
        """Return the same chooser."""
        return self
