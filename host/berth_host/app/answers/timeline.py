"""The records of a pod's queue entry and of its attempts -> steps in order, with sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.explain.pod_answer import Step
from berth_host.queue import events
from berth_host.queue.places import Place
from berth_host.queue.queued_pod import GATED, PRE_BIND, TRIED, WAITING, HistoryEntry

_CAUSES: Final[Mapping[str, str]] = {
    events.POD_ADD: "the pod came",
    events.POD_UPDATE: "the pod was changed",
    events.BACKOFF_COMPLETE: "its backoff is over",
    events.FORCE_ACTIVATE: "a plugin wanted it tried now",
    events.UNSCHEDULABLE_TIMEOUT: "it has waited long enough",
    events.PLUGIN_REQUEST: "a plugin asked for it to be tried again",
    events.PLUGIN_RECOVERED: "a plugin that it needs can be asked again",
    events.ATTEMPT_FAILED: "something that may help happened during the attempt",
}
_ENDS: Final = {Outcome.BOUND: "bound", Outcome.UNSCHEDULABLE: "rejected", Outcome.ERROR: "failed"}
_PLACES: Final = tuple(place.value for place in Place)


def timeline(history: Sequence[HistoryEntry], attempts: Sequence[Diagnosis]) -> list[Step]:
    """`attempts`: those that are kept, in any order."""
    return list(_steps(history, {item.attempt: item for item in attempts}))


def _steps(history: Sequence[HistoryEntry], attempts: Mapping[int, Diagnosis]) -> Iterator[Step]:
    open_attempt = 0
    for at_us, what, about in history:
        at_s = at_us / 1e6
        if open_attempt and (what in _PLACES or what == GATED):
            yield from _end(open_attempt, at_s, attempts.get(open_attempt))
            open_attempt = 0
        if what == TRIED:
            open_attempt = int(about)
            yield Step(at_s=at_s, step="tried", text=f"attempt {about} begins")
        else:
            yield _step(at_s, what, about)
    last = attempts.get(open_attempt)
    if last is not None and last.ended_at_s is not None:
        yield from _end(open_attempt, last.ended_at_s, last)


def _step(at_s: float, what: str, about: str) -> Step:
    if what == GATED:
        return Step(at_s=at_s, step="gated", cause=about, text=f"kept out of the queue by plugin {about}")
    if what == WAITING:
        return Step(at_s=at_s, step="waiting", cause=about, text=f"waits on Permit of {about}")
    if what == PRE_BIND:
        return Step(at_s=at_s, step="preBind", cause=about, text=f"PreBind plugins prepare node {about}")
    cause = _CAUSES.get(about, f"{about} may help")
    if what == Place.ACTIVE.value:
        return Step(at_s=at_s, step="queued", cause=about, text=cause)
    if what == Place.BACKOFF.value:
        text = "backs off" if about == events.ATTEMPT_FAILED else f"backs off: {cause}"
        return Step(at_s=at_s, step="backoff", cause=about, text=text)
    return Step(at_s=at_s, step="unschedulable", cause=about, text="waits for an event that may help")


def _end(number: int, at_s: float, attempt: Diagnosis | None) -> Iterator[Step]:
    """How an attempt ended; of one that is not kept any more, only that it did."""
    if attempt is None or attempt.outcome not in _ENDS:
        yield Step(at_s=at_s, step="ended", text=f"attempt {number} ended")
        return
    ended_s = attempt.ended_at_s if attempt.ended_at_s is not None else at_s
    step = _ENDS[attempt.outcome]
    if attempt.outcome is Outcome.BOUND:
        yield Step(at_s=ended_s, step=step, cause=attempt.node_name, text=f"bound to {attempt.node_name}")
        return
    plugins = ", ".join(sorted(attempt.unschedulable_plugins))
    yield Step(at_s=ended_s, step=step, cause=plugins, text=attempt.message)
    if attempt.nominated_node:
        node = attempt.nominated_node
        yield Step(at_s=ended_s, step="nominated", cause=node, text=f"nominated to {node}: victims leave it")
