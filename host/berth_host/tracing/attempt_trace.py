"""`AttemptTrace`: the times of one traced attempt, by extension point, call of a plugin, and request.

Written while the attempt runs; `tracing` makes the spans when the attempt has ended. So an attempt that is
not traced costs nothing, and a traced one little. Only a request to a served plugin needs its span's id
before: the plugin continues the trace.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from berth_sdk.status import Code

from berth_host.metrics.points import CallObserver, code_of
from berth_host.metrics.series import instant_s

MOST_CALLS: Final = 256
"""The most calls of one attempt that get a span. The attempt's span has the number of the others."""


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
    """A request to a served plugin. `name`: the call. `traceparent`: as the request has it."""

    plugin: str = ""
    span_id: int = 0
    traceparent: str = ""


class AttemptTrace:
    """The times of one attempt. `trace_id`: 128 bits."""

    __slots__ = ("_sampler", "binding_s", "calls", "left_out", "requests", "steps", "trace_id")

    def __init__(self, trace_id: int) -> None:
        self.trace_id = trace_id
        self.steps: list[Step] = []
        self.calls: list[PluginCall] = []
        self.requests: list[Request] = []
        self.left_out = 0
        """The number of calls that are not recorded."""
        self.binding_s: float | None = None
        """The start of the binding cycle; None before it."""
        self._sampler: CallObserver | None = None

    def over(self, sampler: CallObserver | None) -> CallObserver:
        """Return this trace as the observer of the attempt's calls, which tells `sampler` of them too."""
        self._sampler = sampler
        return self

    def called(self, plugin: str, call: str, seconds: float, answer: object) -> None:
        """Record a call that has ended now. `answer` None: the call failed."""
        if self._sampler is not None:
            self._sampler.called(plugin, call, seconds, answer)
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
            self.steps.append(step)

    @contextmanager
    def request(self, plugin: str, call: str) -> Iterator[str]:
        """Record a request, for the block. Yields its `traceparent`."""
        span_id = random.getrandbits(64) or 1
        traceparent = f"00-{self.trace_id:032x}-{span_id:016x}-01"
        request = Request(call, instant_s(), 0.0, Code.ERROR, plugin, span_id, traceparent)
        try:
            yield traceparent
            request.code = Code.SUCCESS
        finally:
            request.ended_s = instant_s()
            if len(self.requests) < MOST_CALLS:
                self.requests.append(request)
