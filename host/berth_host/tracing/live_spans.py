"""`LiveSpans`: the spans of calls that belong to no running attempt. Made while the call runs.

    PLUGIN PreEnqueue, PLUGIN SortKeys, PLUGIN QueueingHints     a call of the queue, about one pod or more
      berth.plugin.v1.QueueService/CALL                          the request to a served plugin
    berth.plugin.v1.SchedulingService/Unreserve, PostBind, EndCycles, and StateService/Reconcile

A call about several pods is in the trace of the first one, and links to the traces of the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from berth_sdk.pod import Pod
from berth_sdk.wire.traces import TRACEPARENT, TRACESTATE

from berth_host.tracing.attempt_trace import Anchor, traceparent_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

MOST_LINKS: Final = 128
"""The most links of one span: OpenTelemetry's own limit."""


class Ids:
    """OpenTelemetry's source of ids: random, but for a span whose id a request already has."""

    def __init__(self) -> None:
        self.next_span_id = 0

    def generate_span_id(self) -> int:
        """Return a new id of a span."""
        span_id, self.next_span_id = self.next_span_id, 0
        return span_id or random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        """Return a new id of a trace."""
        return random.getrandbits(128) or 1

    def is_trace_id_random(self) -> bool:
        """Return True: all bits of a trace's id are random."""
        return True


class QueueCall:
    """The span of a call of the queue that runs now."""

    def __init__(self, spans: LiveSpans, span: Span) -> None:
        self._spans = spans
        self._span = span
        self.is_asked = False
        """True if the plugin was asked. Without it the span is not sent."""

    def request(self, plugin: str, method: str) -> Any:
        """Make the span of a request of this call, for the block. Yields its `traceparent`."""
        self.is_asked = True
        return self._spans.request(self._span.get_span_context(), plugin, method)

    def answered(self, attribute: str, count: int, *, failed: bool) -> None:
        """Record the answer. `count`: the value of `attribute`. `failed`: for some pod there was none."""
        self._span.set_attribute(f"berth.{attribute}", count)
        if failed:
            self._spans.fail(self._span)


RUNNING: Final[ContextVar[QueueCall | None]] = ContextVar("berth_queue_call", default=None)
"""The traced call of the queue in whose task the code runs; None: there is none."""


class LiveSpans:
    """The spans of one host's calls outside of attempts."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._trace = trace
        self._extract = TraceContextTextMapPropagator().extract
        self.no_parent = trace.set_span_in_context(trace.INVALID_SPAN)
        """The parent of a span that begins a trace."""

    def parent_of(self, annotations: Mapping[str, str]) -> Context | None:
        """Return the parent that an object's annotations name; None if they name none."""
        if TRACEPARENT not in annotations:
            return None
        carrier = {key: annotations[key] for key in (TRACEPARENT, TRACESTATE) if key in annotations}
        context = self._extract(carrier)
        return context if self.context_in(context).is_valid else None

    def parent_of_all(self, objects: Iterable[Mapping[str, str]]) -> tuple[Context, list[Any]]:
        """Return the parent of a span about several objects, given by their annotations, and its links.

        The parent is the first sampled one. Without a sampled one, the rate decides, if some object names no
        parent.
        """
        sampled: dict[int, Context] = {}
        unsampled: Context | None = None
        has_free = False
        for one in objects:
            context = self.parent_of(one)
            if context is None:
                has_free = True
            elif (found := self.context_in(context)).trace_flags.sampled:
                sampled.setdefault(found.span_id, context)
            else:
                unsampled = context
        if sampled:
            first, *others = sampled.values()
            return first, self.links(self.context_in(one) for one in others)
        return (self.no_parent if has_free or unsampled is None else unsampled), []

    def links(self, contexts: Iterable[SpanContext]) -> list[Any]:
        """Return links to spans, each span once."""
        known = {context.span_id: context for context in contexts}
        return [self._trace.Link(context) for context in list(known.values())[:MOST_LINKS]]

    def context_in(self, parent: Context) -> SpanContext:
        """Return ids and flags of the span in a context of OpenTelemetry."""
        return self._trace.get_current_span(parent).get_span_context()

    @contextmanager
    def queue_call(
        self, plugin: str, call: str, pods: Sequence[Pod], event: str = ""
    ) -> Iterator[QueueCall | None]:
        """Make the span of a call of the queue, for the block. Yields None if the call is not sampled.

        `pods`: what the call is about. `event`: the event of a QueueingHint.
        """
        parent, links = self.parent_of_all(pod.annotations for pod in pods)
        span = self._tracer.start_span(f"{plugin} {call}", parent, links=links)
        if not span.is_recording():
            yield None
            return
        span.set_attributes({"berth.plugin": plugin, "berth.pods": len(pods)})
        if len(pods) == 1:
            (pod,) = pods
            named = {"namespace.name": pod.namespace, "pod.name": pod.name, "pod.uid": pod.uid}
            span.set_attributes({f"k8s.{key}": value for key, value in named.items()})
        if event:
            span.set_attribute("berth.event", event)
        running = QueueCall(self, span)
        token = RUNNING.set(running)
        try:
            yield running
        except BaseException:
            self.fail(span)
            raise
        finally:
            RUNNING.reset(token)
            if running.is_asked:
                span.end()

    @contextmanager
    def request(
        self, parent: SpanContext, plugin: str, method: str, others: Iterable[SpanContext] = ()
    ) -> Iterator[str]:
        """Make the span of a request to a served plugin, for the block. Yields its `traceparent`.

        `method`: `SERVICE/CALL`. `others`: spans to link to.
        """
        above = self._trace.set_span_in_context(self._trace.NonRecordingSpan(parent))
        span = self._tracer.start_span(
            method,
            above,
            self._trace.SpanKind.CLIENT,
            {"rpc.system": "grpc", "rpc.method": method, "berth.plugin": plugin},
            links=self.links(other for other in others if other.span_id != parent.span_id),
        )
        context = span.get_span_context()
        try:
            yield traceparent_of(context.trace_id, context.span_id)
        except BaseException:
            self.fail(span)
            raise
        finally:
            span.end()

    def fail(self, span: Span) -> None:
        """Give a span the status Error."""
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))


class SpanAnchor:
    """Implements `Anchor` for the span of an attempt."""

    __slots__ = ("_context", "_spans")

    def __init__(self, spans: LiveSpans, context: SpanContext) -> None:
        self._spans = spans
        self._context = context

    @contextmanager
    def request(self, plugin: str, method: str, others: Sequence[Anchor] = ()) -> Iterator[str]:
        """Make the span of a request, for the block; see `Anchor`."""
        linked = [other._context for other in others if isinstance(other, SpanAnchor)]
        with self._spans.request(self._context, plugin, method, linked) as traceparent:
            yield traceparent
