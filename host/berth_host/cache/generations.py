"""`Generations`: the counter that orders all changes of nodes, pods and other objects.

Shared by `Cache` and `ObjectStores`, so that "newer than snapshot G" means the same for all of them.
Source: kube-scheduler `framework/types.go` (nextGeneration), v1.36.
"""

from __future__ import annotations


class Generations:
    """A strictly increasing counter; `last` is 0 before the first number."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """Return a new generation for a change."""
        self.last += 1
        return self.last
