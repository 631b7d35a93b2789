"""`Tracing`: begins the trace of an attempt, and makes its spans when the attempt has ended.

    schedule pod
      PreFilter, Filter, PreScore, Score, Reserve, Permit, or PostFilter
        PLUGIN CALL                             one per call of a plugin
          berth.plugin.v1.SchedulingService/CALL    one per request to a served plugin; its own span is below
      POST VERB                                 one per request to an HTTP extender
      binding cycle
        PreBindPreFlight, WaitOnPermit, PreBind, Bind, write Binding, PostBind

    schedule pod group
      PlacementGenerate, PlacementFeasible, PlacementScore, or PodGroupPostFilter
      schedule pod                              one per attempt of a member, those of trials too

The parent of `schedule pod` is the span that the pod's annotation `traceparent` names, if there is one.
`live_spans` makes the spans of calls that belong to no running attempt.
Source of the settings: Kubernetes component-base `tracing/api/v1`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from berth_sdk.pod import Pod
from berth_sdk.status import Code
from berth_sdk.wire.traces import SpanExport

from berth_host.log import get_logger
from berth_host.metrics.series import instant_s
from berth_host.tracing.attempt_trace import SCHEDULING, AttemptTrace, Request, Step
from berth_host.tracing.live_spans import Ids, LiveSpans, SpanAnchor

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span

_LOG = get_logger()
SERVICE: Final = "berth-scheduler"
ROOT: Final = "schedule pod"
GROUP: Final = "schedule pod group"
BINDING: Final = "binding cycle"
_MILLION: Final = 1_000_000
_FAILURES: Final = frozenset({Code.ERROR, None})
Attributes: TypeAlias = Mapping[str, str | int | Sequence[str]]
Exemplar = Callable[[str, str, float, int, int], None]
"""Called with plugin, call, seconds, trace id and span id of a call that has a span."""


class RunningTrace(AttemptTrace):
    """The trace of an attempt that runs, with the span of the whole attempt. `at_ns`: Unix time, when
    `instant_s` was `at_s`.
    """

    __slots__ = ("at_ns", "at_s", "root")

    def __init__(self, root: Span, anchor: SpanAnchor, at_ns: int, at_s: float) -> None:
        super().__init__(root.get_span_context().trace_id, anchor)
        self.root = root
        self.at_ns = at_ns
        self.at_s = at_s

    @property
    def is_sampled(self) -> bool:
        """True if spans of the attempt are made."""
        return self.root.is_recording()

    def ns(self, instant: float) -> int:
        """Return a reading of `instant_s` as Unix time in nanoseconds."""
        return self.at_ns + int((instant - self.at_s) * 1e9)


class Tracing:
    """The traces of one host. `exemplar`: called for each call that got a span."""

    def __init__(
        self,
        endpoint: str,
        rate_per_million: int | None,
        exemplar: Exemplar = lambda plugin, call, seconds, trace_id, span_id: None,
    ) -> None:
        """Begin to export. `endpoint`: see `SpanExport`. `rate_per_million`: of attempts without a parent;
        with one, the parent decides. None: OTEL_TRACES_SAMPLER decides; without it, only attempts with a
        sampled parent are traced.
        """
        from opentelemetry import trace
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        sampler = None
        if rate_per_million is not None or not os.environ.get("OTEL_TRACES_SAMPLER"):
            sampler = ParentBased(TraceIdRatioBased((rate_per_million or 0) / _MILLION))
        self._ids = Ids()
        ids: Any = self._ids
        self.export = SpanExport(SERVICE, endpoint, sampler=sampler, ids=ids, on_trouble=self._trouble)
        self._exemplar = exemplar
        self._tracer = self.export.provider.get_tracer("berth_host")
        self._trace = trace
        self.live = LiveSpans(self._tracer)
        """The spans of calls that belong to no running attempt."""

    def _trouble(self, why: str) -> None:
        _LOG.warning("tracing.spans_dropped", endpoint=self.export.endpoint, error=why)

    def counts(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the spans by what became of them: `sent` or `dropped`."""
        yield ("sent",), self.export.sent
        yield ("dropped",), self.export.dropped

    def begin(self, pod: Pod, began_s: float, group: RunningTrace | None = None) -> RunningTrace:
        """Return the trace of an attempt for `pod`. The attempt may not be sampled.

        `began_s`: a reading of `instant_s`. `group`: the trace of the group's attempt of which this attempt
        is a part; None: there is none. A member with a parent in another trace links to the group's span.
        """
        own, live = self.live.parent_of(pod.annotations), self.live
        if group is None:
            return self._begin(ROOT, own or live.no_parent, began_s)
        if own is None or live.context_in(own).trace_id == group.trace_id:
            return self._begin(ROOT, self._trace.set_span_in_context(group.root), began_s)
        links = live.links([group.root.get_span_context()] if group.is_sampled else [])
        return self._begin(ROOT, own, began_s, links)

    def begin_group(self, objects: Iterable[Mapping[str, str]], began_s: float) -> RunningTrace:
        """Return the trace of a group's attempt. The attempt may not be sampled.

        `objects`: the annotations of the group and of its members, of which one may name the parent.
        """
        parent, links = self.live.parent_of_all(objects)
        return self._begin(GROUP, parent, began_s, links)

    def _begin(
        self, name: str, parent: Context, began_s: float, links: Sequence[Link] | None = None
    ) -> RunningTrace:
        at_ns, at_s = time.time_ns(), instant_s()
        start_ns = at_ns - int((at_s - began_s) * 1e9)
        root = self._tracer.start_span(name, parent, links=links, start_time=start_ns)
        return RunningTrace(root, SpanAnchor(self.live, root.get_span_context()), at_ns, at_s)

    def ended(self, trace: RunningTrace, attributes: Attributes, *, error: str | None) -> None:
        """Make the spans of an attempt that has ended now. `error`: of an attempt that ended in an error;
        None: it did not.
        """
        over_s = instant_s() if trace.over_s is None else trace.over_s
        root = trace.root
        root.set_attributes(attributes)
        if trace.left_out:
            root.set_attribute("berth.calls_without_span", trace.left_out)
        if error is not None:
            root.set_status(self._trace.Status(self._trace.StatusCode.ERROR, error))
        binding: Span | None = None
        if trace.binding_s is not None:
            binding = self._start(trace, root, Step(BINDING, trace.binding_s))
        steps: list[tuple[Step, Span]] = []
        for step in trace.steps:
            span = self._start(trace, self._part(trace, root, binding, step.began_s), step)
            steps.append((step, span))
        calls: list[tuple[Step, Span]] = []
        for call in trace.calls:
            above = _around(steps, call) or self._part(trace, root, binding, call.began_s)
            name, attributes_of_call = f"{call.plugin} {call.name}", {"berth.plugin": call.plugin}
            span = self._start(trace, above, call, name, attributes_of_call)
            calls.append((call, span))
            seconds = call.ended_s - call.began_s
            self._exemplar(call.plugin, call.name, seconds, trace.trace_id, span.get_span_context().span_id)
        for request in trace.requests:
            same = [(one, span) for one, span in calls if _is_of(request, one)]
            above = (
                _around(same, request)
                or _around(steps, request)
                or self._part(trace, root, binding, request.began_s)
            )
            self._end(trace, self._start_request(trace, above, request), request)
        for step, span in (*calls, *reversed(steps)):
            self._end(trace, span, step)
        if binding is not None:
            binding.end(trace.ns(over_s))
        root.end(trace.ns(over_s))

    @staticmethod
    def _part(trace: RunningTrace, root: Span, binding: Span | None, at_s: float) -> Span:
        """Return the span of the binding cycle for what began in it, else that of the attempt."""
        return root if binding is None or trace.binding_s is None or at_s < trace.binding_s else binding

    def _start(
        self,
        trace: RunningTrace,
        parent: Span,
        step: Step,
        name: str = "",
        attributes: Mapping[str, str] | None = None,
        kind: Any = None,
    ) -> Span:
        return self._tracer.start_span(
            name or step.name,
            self._trace.set_span_in_context(parent),
            kind or self._trace.SpanKind.INTERNAL,
            attributes,
            start_time=trace.ns(step.began_s),
        )

    def _start_request(self, trace: RunningTrace, parent: Span, request: Request) -> Span:
        if request.url:
            name = f"POST {request.name}"
            attributes = {
                "http.request.method": "POST",
                "url.full": request.url,
                "berth.extender": request.plugin,
            }
        else:
            name = f"{SCHEDULING}/{request.name}"
            attributes = {"rpc.system": "grpc", "rpc.method": name, "berth.plugin": request.plugin}
        self._ids.next_span_id = request.span_id
        return self._start(trace, parent, request, name, attributes, self._trace.SpanKind.CLIENT)

    def _end(self, trace: RunningTrace, span: Span, step: Step) -> None:
        if step.code is not None:
            span.set_attribute("berth.status", step.code.name)
        if step.code in _FAILURES:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(trace.ns(step.ended_s))

    def close(self) -> None:
        """Send the last spans, for a short time, and stop. Blocks."""
        self.export.close()


def _around(steps: list[tuple[Step, Span]], inner: Step) -> Span | None:
    """Return the span of the shortest step that `inner` ran in; None if there is none."""
    middle_s = (inner.began_s + inner.ended_s) / 2
    found = [pair for pair in steps if pair[0].has(middle_s)]
    return min(found, key=lambda pair: pair[0].ended_s - pair[0].began_s)[1] if found else None


def _is_of(request: Request, call: Step) -> bool:
    """Return True if the request belongs to a call of this plugin and this name."""
    return call.name == request.name and getattr(call, "plugin", "") == request.plugin
