"""`shrunk`: makes a life that breaks a law short, with as few kinds of acts as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from berth_bench.life.life import Result

TRIES: Final = 7
"""The halvings of the time between days that break the law and fewer days that do not."""

Live = Callable[[float, frozenset[str]], Result]
"""Runs a life of the same seed, for so many days, without these kinds of acts."""


def shrunk(failing: Result, kinds: Iterable[str], run: Live) -> Result:
    """Return a life of the same seed that breaks the same law, in fewer days and with fewer kinds of acts.

    `kinds`: all kinds. A life without a kind has all other acts at the same times, and a life of fewer days
    begins as the longer one does.
    """
    best = _of_fewer_days(failing, run)
    for kind in kinds:
        if kind not in best.without:
            best = _better(best, run(best.days, frozenset({*best.without, kind})))
    return _of_fewer_days(best, run)


def _of_fewer_days(best: Result, run: Live) -> Result:
    keeps_law_days = 0.0
    # The law may have been broken long before the last day.
    tried = min(best.days, best.hours / 24)
    for _ in range(TRIES):
        if tried < best.days:
            found = _better(best, run(tried, frozenset(best.without)))
            if found is best:
                keeps_law_days = tried
            best = found
        tried = (keeps_law_days + best.days) / 2
    return best


def _better(best: Result, tried: Result) -> Result:
    return tried if tried.law == best.law else best
