"""`AttemptTrace`: the times of one traced attempt, by extension point, call of a plugin, and request.

Written while the attempt runs; `tracing` makes the spans when the attempt has ended. So an attempt that is
not traced costs nothing, and a traced one little. Only a request to a served plugin needs its span's id
before: the plugin continues the trace.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from berth_sdk.status import Code

from berth_host.metrics.points import CallObserver, code_of
from berth_host.metrics.series import instant_s

MOST_CALLS: Final = 256
"""The most steps, calls and requests of one attempt that get a span, of each kind. The attempt's span has the
number of the others.
"""
SCHEDULING: Final = "berth.plugin.v1.SchedulingService"


@dataclass(slots=True, eq=False)
class Step:
    """An extension point, or another part of the attempt. Times are readings of `instant_s`.

    `code`: how the step ended; None for a step that was cut off.
    """

    name: str
    began_s: float
    ended_s: float = 0.0
    code: Code | None = None

    def has(self, at_s: float) -> bool:
        """Return True if the step ran at that time."""
        return self.began_s <= at_s <= self.ended_s


@dataclass(slots=True, eq=False)
class PluginCall(Step):
    """A call of a plugin, with the check of its answer. `name`: the call, as in the contract."""

    plugin: str = ""


@dataclass(slots=True, eq=False)
class Request(Step):
    """A request to a served plugin, or to an HTTP extender. `name`: the call, or the extender's verb.

    `url`: of an extender's verb; empty for a request to a plugin. `traceparent`: as the request has it.
    """

    plugin: str = ""
    url: str = ""
    span_id: int = 0
    traceparent: str = ""


class Anchor(Protocol):
    """The span of an attempt, for requests about its pod that may be sent after the attempt's end."""

    def request(self, plugin: str, method: str, others: Sequence[Anchor] = ()) -> AbstractContextManager[str]:
        """Make the span of a request, for the block. Yields its `traceparent`.

        `method`: `SERVICE/CALL`. `others`: the attempts of the other pods in the same request; the span links
        to them.
        """
        ...


class _Both:
    """Tells two observers of each call."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: CallObserver, second: CallObserver) -> None:
        self._first, self._second = first, second

    def called(self, plugin: str, call: str, seconds: float, answer: object) -> None:
        """Take a call."""
        self._first.called(plugin, call, seconds, answer)
        self._second.called(plugin, call, seconds, answer)


class AttemptTrace:
    """The times of one attempt. `trace_id`: 128 bits."""

    __slots__ = ("anchor", "binding_s", "calls", "left_out", "over_s", "requests", "steps", "trace_id")

    def __init__(self, trace_id: int, anchor: Anchor) -> None:
        self.trace_id = trace_id
        self.anchor = anchor
        """Identifies the attempt in records that outlive it, such as the messages of the outbox."""
        self.steps: list[Step] = []
        self.calls: list[PluginCall] = []
        self.requests: list[Request] = []
        self.left_out = 0
        """The number of steps and calls that are not recorded."""
        self.binding_s: float | None = None
        """The start of the binding cycle; None before it."""
        self.over_s: float | None = None
        """The end of a binding cycle whose PostBind comes later; None: it ends with the trace."""

    def over(self, sampler: CallObserver | None) -> CallObserver:
        """Return an observer of the attempt's calls, which tells this trace and `sampler` of them."""
        return self if sampler is None else _Both(sampler, self)

    def called(self, plugin: str, call: str, seconds: float, answer: object) -> None:
        """Record a call that has ended now. `answer` None: the call failed."""
        if len(self.calls) >= MOST_CALLS:
            self.left_out += 1
            return
        now_s = instant_s()
        code = Code.ERROR if answer is None else code_of(answer)
        self.calls.append(PluginCall(call, now_s - seconds, now_s, code, plugin))

    @contextmanager
    def at(self, name: str) -> Iterator[Step]:
        """Record a step, for the block. The caller sets its `code`."""
        step = Step(name, instant_s())
        try:
            yield step
        finally:
            step.ended_s = instant_s()
            if len(self.steps) < MOST_CALLS:
                self.steps.append(step)
            else:
                self.left_out += 1

    @contextmanager
    def request(self, plugin: str, call: str, url: str = "") -> Iterator[str]:
        """Record a request, for the block. Yields its `traceparent`. `url`: see `Request`."""
        span_id = random.getrandbits(64) or 1
        traceparent = traceparent_of(self.trace_id, span_id)
        request = Request(call, instant_s(), 0.0, Code.ERROR, plugin, url, span_id, traceparent)
        try:
            yield traceparent
            request.code = Code.SUCCESS
        finally:
            request.ended_s = instant_s()
            if len(self.requests) < MOST_CALLS:
                self.requests.append(request)


def traceparent_of(trace_id: int, span_id: int) -> str:
    """Return the W3C header `traceparent` of a sampled span."""
    return f"00-{trace_id:032x}-{span_id:016x}-01"
