"""How many mutated messages of a plugin the fuzz makes: 2000 in all, or BERTH_FUZZ_ANSWERS.

Half of them are answers to single calls, a quarter is to attachments, an eighth to hosts that run, and an
eighth are requests on the way back. Beside these, HTTP extenders give a fiftieth as many to each of
their verbs, and 1000 at least.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

ANSWERS: Final = int(os.environ.get("BERTH_FUZZ_ANSWERS", "2000"))


STEPS: Final = ("Handshake", "Configure", "SyncState", "Probe", "Reconcile", "Drain")
"""The calls of attachments; all others of the contract are asked singly."""


PARTS: Final[tuple[Any, ...]] = (0.25, pytest.param(0.75, marks=pytest.mark.long))
"""The parts of a fuzz: `make test` runs the first one, `make test-all` the second one, too."""


def share(of: float, among: int = 1) -> int:
    """`of` all answers, split `among` some; at least one."""
    return max(1, round(ANSWERS * of / among))
