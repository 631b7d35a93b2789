"""One place for every choice that the rules leave open: ties between nodes, and starting offsets.

Seeded random in production and simulation, the smallest name in replays, so that a run can be repeated.
kube-scheduler resolves ties by heap layout; nobody may rely on that (docs/decisions.md).
"""

from __future__ import annotations

import random
from typing import Protocol


class Tied(Protocol):
    """Equally good nodes, at least one; a name is made only when it is read."""

    def __len__(self) -> int:
        """The number of nodes."""
        ...

    @property
    def names(self) -> list[str]:
        """Their names, one per row."""
        ...


class Chooser(Protocol):
    """Breaks ties and draws offsets."""

    def pick(self, nodes: Tied) -> int:
        """The row of the chosen one."""
        ...

    def offset(self, count: int) -> int:
        """A starting point in [0, count)."""
        ...


class SeededChooser:
    """Random, the same for the same seed."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self._random = random.Random(self.seed)

    def pick(self, nodes: Tied) -> int:
        """Any one, with equal chances."""
        return self._random.randrange(len(nodes)) if len(nodes) > 1 else 0

    def offset(self, count: int) -> int:
        """Any one, with equal chances."""
        return self._random.randrange(count)


class SmallestName:
    """The first in the order of names; offsets are 0."""

    def pick(self, nodes: Tied) -> int:
        """The row with the smallest name."""
        names = nodes.names
        return min(range(len(names)), key=names.__getitem__)

    def offset(self, count: int) -> int:
        """Always the start."""
        return 0
