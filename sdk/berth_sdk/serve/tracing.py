"""`CallTraces`: a span for each traced call, which continues the trace of the host.

Made by `berth-sdk serve` if the environment names a collector. Without it no call is wrapped, so that tracing
costs nothing when it is off. Calls without `traceparent` have no span: the host has not sampled them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.wire.traces import (
    TRACEPARENT,
    TRACESTATE,
    SpanExport,
    endpoint_in_environment,
    is_installed,
    is_off_in_environment,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

LOG: Final = logging.getLogger("berth_sdk.serve.server")
SERVICE: Final = "berth-plugin"
MISSING: Final = (
    "calls are not traced, although the environment names a collector (OTEL_EXPORTER_OTLP_ENDPOINT): packages"
    " are missing; pip install 'berth-sdk[tracing]', or set OTEL_SDK_DISABLED=true"
)


class CallTraces:
    """The spans of calls. The span of a call is the current one while the plugin's method runs, so that spans
    of the plugin's own are its children.
    """

    def __init__(self, provider: TracerProvider, close: Callable[[], None] = lambda: None) -> None:
        """Make spans with `provider`. `close`: called when the server has stopped."""
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.close = close
        self._tracer = provider.get_tracer("berth_sdk")
        self._kind = trace.SpanKind.SERVER
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._extract = TraceContextTextMapPropagator().extract

    def traced(self, method: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
        """Return the method of a servicer, with a span around it. `name`: `SERVICE/METHOD`."""

        def call(request: Any, context: Any) -> Any:
            ctx: pb.CallContext | None = getattr(request, "ctx", None)
            carrier = _carrier(ctx, context)
            if not carrier:
                return method(request, context)
            attributes = {"rpc.system": "grpc", "rpc.method": name}
            if ctx is not None:
                attributes |= {
                    "berth.plugin": ctx.plugin,
                    "berth.profile": ctx.profile,
                    "berth.cycle_id": ctx.cycle_id,
                }
            elif (plugin := getattr(request, "plugin", "")) != "":  # a stream has no fields
                attributes["berth.plugin"] = plugin
            with self._tracer.start_as_current_span(
                name, self._extract(carrier), self._kind, attributes
            ) as span:
                reply = method(request, context)
                if ctx is not None and reply.ctx.HasField("status"):
                    code = reply.ctx.status.code
                    span.set_attribute("berth.status", pb.PluginStatus.Code.Name(code).removeprefix("CODE_"))
                    if code == pb.PluginStatus.CODE_ERROR:
                        span.set_status(self._failed)
                return reply

        return call


def _carrier(ctx: pb.CallContext | None, context: Any) -> dict[str, str]:
    """Return the trace headers of a call: those of its metadata, else that of its message; empty: none.

    `ctx` None: the message has no headers.
    """
    metadata = getattr(context, "invocation_metadata", None)  # frames have none
    if metadata is not None:
        found = {key: value for key, value in metadata() or () if key in (TRACEPARENT, TRACESTATE)}
        if TRACEPARENT in found:
            return found
    return {TRACEPARENT: ctx.traceparent} if ctx is not None and ctx.traceparent else {}


def traces_of_environment() -> CallTraces | None:
    """Return the traces to the collector that the environment names; None if it names none.

    Makes the provider that of the process, so that the plugins' own spans are exported too. If the packages
    are missing, logs an error, and calls are not traced.
    """
    if not endpoint_in_environment() or is_off_in_environment():
        return None
    if not is_installed():
        LOG.error(MISSING)
        return None
    from opentelemetry import trace

    endpoint = endpoint_in_environment()
    export = SpanExport(
        SERVICE, endpoint, on_trouble=lambda why: LOG.warning("spans to %s are dropped: %s", endpoint, why)
    )
    trace.set_tracer_provider(export.provider)
    return CallTraces(export.provider, export.close)
