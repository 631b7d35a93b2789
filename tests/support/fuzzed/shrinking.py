"""Make the steps of a failure fewer and smaller, as long as it still fails: delta debugging.

Source: Zeller, Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002 (ddmin).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from support.fuzzed.objects import Step
from support.fuzzed.trees import smaller

Fails = Callable[[Sequence[Step]], Awaitable[bool]]


async def shrunk(steps: Sequence[Step], fails: Fails, tries: int) -> list[Step]:
    """Return steps that fail too, after at most `tries` calls of `fails`: fewer, then with less in each."""
    found = list(steps)
    left = tries
    pieces = 2
    while len(found) > 1 and left > 0:
        length = -(-len(found) // pieces)
        for at in range(0, len(found), length):
            rest = found[:at] + found[at + length :]
            left -= 1
            if rest and await fails(rest):
                found, pieces = rest, max(2, pieces - 1)
                break
            if left <= 0:
                return found
        else:
            if length == 1:
                break
            pieces = min(len(found), 2 * pieces)
    at = 0
    while at < len(found) and left > 0:
        for body in smaller(found[at].get("body", {})):
            less = [*found[:at], {**found[at], "body": body}, *found[at + 1 :]]
            left -= 1
            if await fails(less):
                found = less
                break
            if left <= 0:
                return found
        else:
            at += 1
    return found
