"""One counter that orders every change of the cluster's state: nodes, the pods on them, other objects.

Shared by `Cache` and `ObjectStores`, so that "newer than snapshot G" means the same for all of them.
Source: kube-scheduler `framework/types.go` (nextGeneration), v1.36.
"""

from __future__ import annotations


class Generations:
    """Strictly increasing numbers; `last` is 0 before the first."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """The generation of a change that happens now."""
        self.last += 1
        return self.last
