"""A row of `berth bench hostile`: what one case cost, and the verdict. Made by `real` and `embedded`.

CPU seconds are those of the scheduler's process, from the creation of a pod until the pod has an answer and
the process is idle again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

MOST_TIMES: Final = 3.0
"""The most CPU of an attempt, as a multiple of kube-scheduler's."""
ALWAYS_ALLOWED_S: Final = 0.2
"""CPU seconds that an attempt may take however little kube-scheduler takes."""
MOST_HOLD_S: Final = 0.25
"""CPU seconds for which one step may hold the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a run. `most_bytes`: of the largest object that is tried, as JSON."""

    nodes: int
    most_bytes: int


class Answer(StrEnum):
    """The answer of a scheduler about a pod."""

    BOUND = "bound"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    NONE = "no answer"
    ENDED = "the process ended"

    @property
    def is_missing(self) -> bool:
        """True if the pod got no answer."""
        return self in (Answer.NONE, Answer.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One pod: the CPU seconds that it cost, and the answer."""

    cpu_s: float
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The costs of one scheduler. `attempt`: of the case's pod. `following`: of a plain pod after it, while
    the objects of the case and its pod exist.
    """

    attempt: Attempt
    following: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case. `size`: the length of the list, the depth, or the number of pods of a crowd; `size_bytes`: of
    the object as JSON, 0 if every size was refused. `limited_by`: why a longer list was refused; "": none was
    tried. `kube` None: there is no kube-scheduler. `hold_s`: the longest step of berth's event loop, in the
    coroutine `held_by`.
    """

    case: str
    nodes: int
    size: int
    size_bytes: int
    limited_by: str = ""
    kube: Side | None = None
    berth: Side | None = None
    hold_s: float = 0.0
    held_by: str = ""

    @property
    def ratio(self) -> float | None:
        """The CPU of berth's attempt divided by kube-scheduler's; None if either is not known."""
        if self.berth is None or self.kube is None:
            return None
        return _ratio(self.berth.attempt, self.kube.attempt)

    @property
    def following_ratio(self) -> float | None:
        """The CPU of berth's attempt for the plain pod after it, by kube-scheduler's; None: unknown."""
        if self.berth is None or self.kube is None:
            return None
        return _ratio(self.berth.following, self.kube.following)

    @property
    def problems(self) -> list[str]:
        """The limits that berth did not keep."""
        return list(self._problems())

    @property
    def verdict(self) -> str:
        """`ok`, `refused` if no size is admitted, `not compared` without kube-scheduler, or the problems."""
        if self.berth is None:
            return "refused"
        if problems := self.problems:
            return "; ".join(problems)
        costs = (self.berth.attempt.cpu_s, self.berth.following.cpu_s)
        return "ok" if self.kube is not None or max(costs) <= ALWAYS_ALLOWED_S else "not compared"

    def _problems(self) -> Iterator[str]:
        if self.berth is None:
            return
        for name in ("attempt", "following"):
            own: Attempt = getattr(self.berth, name)
            other: Attempt | None = None if self.kube is None else getattr(self.kube, name)
            if own.answer.is_missing:
                yield f"{name}: {own.answer}"
                continue
            if other is None:
                continue
            if own.cpu_s > max(ALWAYS_ALLOWED_S, MOST_TIMES * other.cpu_s) and not other.answer.is_missing:
                yield f"{name}: CPU"
            if own.answer != other.answer and not other.answer.is_missing:
                yield f"{name}: {own.answer}, not {other.answer}"
        if self.hold_s > MOST_HOLD_S:
            yield "hold"

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`. `command`: the command that measures this case alone."""
        return {
            "case": self.case,
            "nodes": self.nodes,
            "size": self.size,
            "size_bytes": self.size_bytes,
            "limited_by": self.limited_by,
            "kube": None if self.kube is None else _shown(self.kube),
            "berth": None if self.berth is None else _shown(self.berth),
            "ratio": _rounded(self.ratio),
            "following_ratio": _rounded(self.following_ratio),
            "hold_s": round(self.hold_s, 4),
            "held_by": self.held_by,
            "verdict": self.verdict,
            "command": command,
        }


def _shown(side: Side) -> dict[str, Any]:
    return {
        name: {"cpu_s": round(one.cpu_s, 3), "answer": one.answer.value}
        for name, one in (("attempt", side.attempt), ("following", side.following))
    }


def _ratio(own: Attempt, other: Attempt) -> float | None:
    if own.answer.is_missing or other.answer.is_missing:
        return None
    return own.cpu_s / other.cpu_s if other.cpu_s else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
