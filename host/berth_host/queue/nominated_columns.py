"""Nominated pods as columns, kept up to date by the nominator: a cycle must not walk over all of them.

Read by the scheduler at the start of a cycle, which holds them until it has chosen a node: later changes go
to a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import PodTable
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray


class NominatedColumns:
    """`pods.node_index` is a code: `names[code]` is the node. A code is free again when no pod is nominated
    to its node; `take_renamed` says which codes have got a name since it was called last. `versions[code]`
    moves whenever the node's pods do, and no two changes, of whichever node, have the same.
    """

    def __init__(self) -> None:
        self.pods = PodTable()
        self.names: list[str] = []
        self.versions: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self._code_of: dict[str, int] = {}
        self._free: list[int] = []
        self._renamed: set[int] = set()
        self._generation = 0
        self._held = False

    def hold(self) -> PodTable:
        """The table as it is now; it stays so until `release`."""
        self._held = True
        return self.pods

    def release(self) -> None:
        """The table that `hold` gave is not read any more."""
        self._held = False

    def take_renamed(self) -> set[int]:
        """Codes that were given a name since the last call."""
        taken, self._renamed = self._renamed, set()
        return taken

    def set(self, node_name: str, pods: Sequence[Pod]) -> None:
        """The pods nominated to a node are `pods` now."""
        if self._held:
            self.pods, self._held = self._copy(), False
        code = self._code_of.get(node_name)
        if code is None:
            if not pods:
                return
            code = self._free.pop() if self._free else len(self.names)
            if code == len(self.names):
                self.names.append(node_name)
                if code == len(self.versions):
                    self.versions = extended(self.versions, code)
            self.names[code] = node_name
            self._code_of[node_name] = code
            self._renamed.add(code)
        self._generation += 1
        self.versions[code] = self._generation
        self.pods.set_node_pods(code, pods, (), self._generation)
        if not pods:
            del self._code_of[node_name]
            self._free.append(code)

    def _copy(self) -> PodTable:
        copy = PodTable()
        for code in self._code_of.values():
            copy.set_node_pods(code, self.pods.pods_of(code), (), self._generation)
        return copy
