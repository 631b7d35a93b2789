"""Spans -> an OTLP collector, over gRPC, for both the host and the server of plugins.

The packages of OpenTelemetry are the extra `tracing`: they are imported where a `SpanExport` is made. The
standard environment of OpenTelemetry applies, such as OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_SCHEDULE_DELAY,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.sdk.trace.sampling import Sampler

TRACEPARENT: Final = "traceparent"
"""The W3C header that names the parent of a span, as metadata of gRPC and as an annotation of pods."""
TRACESTATE: Final = "tracestate"
"""The W3C header beside it, with what vendors add."""
DEFAULT_ENDPOINT: Final = "http://localhost:4317"
FLUSH_S: Final = 2.0
"""Seconds in which the last spans are sent when a process stops."""
_PACKAGES: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.grpc")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LOGGERS: Final = ("opentelemetry.exporter.otlp.proto.grpc", "opentelemetry.sdk._shared_internal")
_UNNAMED: Final = "unknown_service"
_FULL: Final = "the queue of spans is full: it takes spans too slowly"
_REFUSED: Final = "it does not take spans"


def is_installed() -> bool:
    """Return True if the packages of the extra `tracing` are there."""
    try:
        return all(find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:
        return False


def endpoint_in_environment() -> str:
    """Return the collector that the environment names; empty if it names none."""
    return next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), "")


def is_off_in_environment() -> bool:
    """Return True if the environment turns OpenTelemetry off, or names another exporter of spans."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return True
    return os.environ.get("OTEL_TRACES_EXPORTER", "").strip() not in ("otlp", "")


class SpanExport:
    """The way of spans to the collector: a queue, and a thread that sends batches.

    Attributes: provider (makes tracers), endpoint, sent and dropped (numbers of spans). A span is dropped if
    the queue is full or the collector does not take it.
    """

    def __init__(
        self,
        service: str,
        endpoint: str = "",
        *,
        sampler: Sampler | None = None,
        ids: IdGenerator | None = None,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin to export. The collector need not be there yet.

        `service`: the name of the service, unless the environment has one. `endpoint`: the collector, as
        `host:port` (in plaintext) or a URL; empty: that of the environment, or DEFAULT_ENDPOINT. `sampler`
        None: the environment's. `ids` None: random ids. `on_trouble`: called with the reason when spans are
        dropped, once until spans are taken again; in any thread.
        """
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider

        for name in _LOGGERS:
            # They log each failure and each retry; `on_trouble` tells the first one.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.endpoint = endpoint or endpoint_in_environment() or DEFAULT_ENDPOINT
        self.sent = 0
        self.dropped = 0
        self._on_trouble = on_trouble
        self._in_trouble = False
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        # An address without a scheme is in plaintext, as for Kubernetes' components.
        has_scheme = bool(urlsplit(self.endpoint).netloc)
        is_set = has_scheme or "OTEL_EXPORTER_OTLP_INSECURE" in os.environ
        self._exporter = OTLPSpanExporter(endpoint=self.endpoint, insecure=None if is_set else True)
        self._processor = _processor(self, self._exporter)
        self.provider: TracerProvider = TracerProvider(
            sampler, resource, shutdown_on_exit=False, id_generator=ids
        )
        self.provider.add_span_processor(self._processor)

    def close(self, within_s: float = FLUSH_S) -> None:
        """Send what is queued, for `within_s` seconds at most, and stop. Blocks."""
        flush = threading.Thread(target=self._processor.force_flush, name="berth-spans-flush", daemon=True)
        flush.start()
        flush.join(within_s)
        self._exporter.shutdown()  # cuts off what is under way
        self.provider.shutdown()

    def took(self, count: int) -> None:
        """Count spans that the collector has taken."""
        self.sent += count
        self._in_trouble = False

    def lost(self, count: int, why: str) -> None:
        """Count spans that are dropped."""
        self.dropped += count
        if not self._in_trouble:
            self._in_trouble = True
            self._on_trouble(why)


def _queue_size() -> int:
    """Return the size of the queue, in spans. A value that is no number counts as absent, as for the SDK."""
    given = os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")
    return int(given) if given.isdecimal() and int(given) else 2048


def _processor(export: SpanExport, exporter: Any) -> Any:
    """Return the queue in front of the exporter; both count what becomes of spans."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    waiting = threading.Semaphore(_queue_size())

    class Counted(SpanExporter):
        """The exporter, which counts."""

        def export(self, spans: Any) -> SpanExportResult:
            """Send a batch."""
            try:
                result: SpanExportResult = exporter.export(spans)
            except Exception as err:  # noqa: BLE001  # a trace must not disturb what it is about
                export.lost(len(spans), f"{type(err).__name__}: {err}")
                return SpanExportResult.FAILURE
            finally:
                waiting.release(len(spans))
            if result is SpanExportResult.SUCCESS:
                export.took(len(spans))
            else:
                export.lost(len(spans), _REFUSED)
            return result

    class Bounded(BatchSpanProcessor):
        """The queue, which drops the newest span when it is full."""

        def on_end(self, span: ReadableSpan) -> None:
            """Queue an ended span."""
            if span.context is None or not span.context.trace_flags.sampled:
                return
            if waiting.acquire(blocking=False):
                super().on_end(span)
            else:
                export.lost(1, _FULL)

    return Bounded(Counted())
