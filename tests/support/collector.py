"""An OTLP collector's receiver for traces, at a loopback port: it keeps the spans that it gets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services
from support.waiting import PATIENCE_S

WITHIN_S = PATIENCE_S
_IDS = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True)
class Span:
    """One span. `service`: of its resource. `error`: its status is an error. `links`: the spans that it names
    beside its parent.
    """

    service: str
    trace: str
    id: str
    parent: str
    name: str
    kind: str
    began_ns: int
    ended_ns: int
    error: bool
    attributes: dict[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()


class Collector(services.TraceServiceServicer):
    """Use as a context manager. `requests`: what it got, one message per export."""

    def __init__(self) -> None:
        self.requests: list[messages.ExportTraceServiceRequest] = []
        self._came = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(4))
        add: Any = services.add_TraceServiceServicer_to_server
        add(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: Any, context: Any) -> messages.ExportTraceServiceResponse:  # noqa: N802
        """Keep the spans."""
        with self._came:
            self.requests.append(request)
            self._came.notify_all()
        return messages.ExportTraceServiceResponse()

    def __enter__(self) -> Collector:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0).wait()

    @property
    def spans(self) -> list[Span]:
        """All spans, by start time."""
        found = [
            _span(resource, span)
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: (span.began_ns, -span.ended_ns))

    def wait_for(self, enough: Callable[[list[Span]], bool]) -> list[Span]:
        """Return the spans when `enough` of them have come. Raises AssertionError after WITHIN_S."""
        with self._came:
            assert self._came.wait_for(lambda: enough(self.spans), WITHIN_S), _tree(self.spans)
            return self.spans

    def as_json(self) -> dict[str, Any]:
        """Return what has come as one OTLP document in JSON, with ids in hexadecimal digits."""
        whole = messages.ExportTraceServiceRequest()
        for request in self.requests:
            whole.resource_spans.extend(request.resource_spans)
        document = MessageToDict(whole)
        for resource in document["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for key in _IDS:
                        if key in span:
                            span[key] = _hexadecimal(span[key])
        return document


def _hexadecimal(base64_text: str) -> str:
    import base64

    return base64.b64decode(base64_text).hex()


def _span(resource: Any, span: Any) -> Span:
    service = next(
        item.value.string_value for item in resource.resource.attributes if item.key == "service.name"
    )
    return Span(
        service,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        type(span).SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == 2,
        {item.key: _value(item.value) for item in span.attributes},
        tuple(link.span_id.hex() for link in span.links),
    )


def _value(value: Any) -> Any:
    found = getattr(value, value.WhichOneof("value"))
    return [_value(one) for one in found.values] if value.HasField("array_value") else found


def tree_of(spans: list[Span]) -> str:
    """Return the spans as lines, each below its parent: `SERVICE KIND NAME`."""
    known = {span.id for span in spans}
    lines: list[str] = []

    def add(span: Span, depth: int) -> None:
        lines.append(f"{'  ' * depth}{span.service} {span.kind} {span.name}")
        for below in spans:
            if below.parent == span.id:
                add(below, depth + 1)

    for span in spans:
        if span.parent not in known:
            add(span, 0)
    return "\n".join(lines)


_tree = tree_of
