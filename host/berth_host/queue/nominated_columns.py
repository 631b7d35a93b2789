"""`NominatedColumns`: the nominated pods as columns, so that a cycle need not loop over them.

Written by the nominator. Read by the scheduler, which holds the columns from the start of a cycle until it
has chosen a node: changes meanwhile go to a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.tables import PodTable
from berth_sdk.tables.read_only import extended
from numpy.typing import NDArray

from berth_host.model.hold import Hold


class NominatedColumns:
    """The nominated pods by node.

    `pods.node_index` is a code: `names[code]` is the node's name. A code is used again after no pod is
    nominated to its node; `take_renamed` returns the codes with a new name. `versions[code]` changes with
    the node's pods, and every change has a version of its own. `room`: the hold whose nominations do not
    count for the pods that it lets in; None: there is none.
    """

    def __init__(self) -> None:
        self.pods = PodTable()
        self.names: list[str] = []
        self.room: Hold | None = None
        self.versions: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self._code_of: dict[str, int] = {}
        self._free: list[int] = []
        self._renamed: set[int] = set()
        self._generation = 0
        self._held = False

    def hold(self) -> PodTable:
        """Return the table, which does not change until `release`."""
        self._held = True
        return self.pods

    def release(self) -> None:
        """Release the table that `hold` returned."""
        self._held = False

    @property
    def generation(self) -> int:
        """A number that changes with every change of the columns."""
        return self._generation

    def take_renamed(self) -> set[int]:
        """Return the codes that got a name since the last call."""
        taken, self._renamed = self._renamed, set()
        return taken

    def set(self, node_name: str, pods: Sequence[Pod]) -> None:
        """Set the pods nominated to a node."""
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
