"""`StateVersion`: the version of a state of the host's snapshot."""

from __future__ import annotations

from typing import NamedTuple


class StateVersion(NamedTuple):
    """A version. `epoch`: one run of the host, never 0. `generation`: grows with each change, 0: empty.

    Versions of different epochs cannot be compared.
    """

    epoch: int
    generation: int

    def __str__(self) -> str:
        return f"{self.epoch}/{self.generation}"
