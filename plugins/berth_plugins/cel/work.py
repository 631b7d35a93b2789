"""The work of one evaluation that its cost leaves out.

Upstream counts one step for joining two lists, or for comparing two values, whatever they hold. Names for
values (`cel.bind`) let 1 KiB of source double a list forty times. Such an expression takes memory or time
without end in kube-scheduler. Here it ends as one that costs too much.
"""

from __future__ import annotations

import threading
from typing import Final

from berth_plugins.cel.errors import CostError
from berth_plugins.cel.pieces import count

MAX_STEPS: Final = 200_000
"""The steps that one evaluation may take: a step for each element that is copied, compared or written."""
CHARACTERS_PER_STEP: Final = 10
COST_TEXT: Final = "operation cancelled: actual cost limit exceeded"


class _Left(threading.local):
    steps = MAX_STEPS


_left: Final = _Left()


def begin() -> None:
    """Begin an evaluation in this thread."""
    _left.steps = MAX_STEPS


def spend(steps: int) -> None:
    """Count steps before they are taken. Raises CostError if they are too many."""
    left = _left.steps - steps
    if left < 0:
        raise CostError(COST_TEXT)
    _left.steps = left
    count(steps)


def spend_on_text(length: int) -> None:
    """Count a text of so many characters before it is made. Raises CostError."""
    if length > CHARACTERS_PER_STEP:
        spend(length // CHARACTERS_PER_STEP)
