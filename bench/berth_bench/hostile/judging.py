"""Find the longest list that is admitted. The judge is a function that creates the object and deletes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from berth_bench.hostile.cases import Case, Json

Judge = Callable[[Json], Awaitable[str]]
"""Returns why an object is refused, or "" if it is admitted."""
_REFINED: Final = 3


async def longest(case: Case, nodes: int, most_bytes: int, judge: Judge) -> tuple[int, str]:
    """Return the longest admitted list of a case, and why a longer one was refused.

    `most_bytes`: of the largest object that is tried. The length is 0 if not even one item is admitted, else
    at most an eighth too short; the reason is "" if the first length was admitted.
    """
    size = case.largest(most_bytes)
    reason, refused = await judge(case.make(size, nodes).judged), size
    if not reason:
        return size, ""
    while size := size // 2:
        if not (found := await judge(case.make(size, nodes).judged)):
            break
        reason, refused = found, size
    for _ in range(_REFINED if size else 0):
        between = (size + refused) // 2
        if between in (size, refused):
            break
        if found := await judge(case.make(between, nodes).judged):
            reason, refused = found, between
        else:
            size = between
    return size, reason
