"""`ClientNames`: lets in the hosts whose certificates have one of the configured names.

An interceptor of a server with TLS, which has verified the certificate's authority. It checks every call,
also calls of health and reflection. `server` makes it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

import grpc

from berth_sdk.clocks import monotonic_s, wall_s
from berth_sdk.serve.calls import LOG
from berth_sdk.wire.peer_certificate import has_ended
from berth_sdk.wire.peer_names import peer_names

_LINE_EVERY_S: Final = 1.0
_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class ClientNames(grpc.ServerInterceptor):
    """The check of the host's certificate.

    Refuses a call of another name with PERMISSION_DENIED, and one of a connection that has outlived its
    certificate with UNAUTHENTICATED.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        """Let in hosts with one of the names in `allowed`: common names or subject alternative names.

        Names are compared as a whole.
        """
        self._allowed = frozenset(allowed)
        self._lock = threading.Lock()
        self._told_s = -math.inf
        self._left_out = 0

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[_Request, _Reply] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[_Request, _Reply] | None:
        """Return the method's handler, which first checks the host."""
        handler = continuation(handler_call_details)
        return None if handler is None else self._guarded(handler)

    def _guarded(self, handler: Any) -> grpc.RpcMethodHandler[Any, Any]:
        kind = f"{_word(handler.request_streaming)}_{_word(handler.response_streaming)}"
        behaviour = getattr(handler, kind)
        make = getattr(grpc, f"{kind}_rpc_method_handler")

        def checked(request: Any, context: grpc.ServicerContext) -> Any:
            self._check(context)
            return behaviour(request, context)

        guarded: grpc.RpcMethodHandler[Any, Any] = make(
            checked,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return guarded

    def _check(self, context: grpc.ServicerContext) -> None:
        properties: Any = context.auth_context()
        if has_ended(properties, wall_s()):
            self._refuse(
                context, grpc.StatusCode.UNAUTHENTICATED, "whose certificate has expired: connect again"
            )
        names = peer_names(properties)
        if self._allowed.isdisjoint(names):
            shown = ", ".join(names) or "nobody"
            self._refuse(context, grpc.StatusCode.PERMISSION_DENIED, f"whose certificate names {shown}")

    def _refuse(self, context: grpc.ServicerContext, code: grpc.StatusCode, whose: str) -> None:
        """End the call. A host that asks again and again writes at most a line per second."""
        with self._lock:
            now_s = monotonic_s()
            is_due, self._left_out = now_s - self._told_s >= _LINE_EVERY_S, self._left_out + 1
            if is_due:
                left_out, self._left_out, self._told_s = self._left_out - 1, 0, now_s
        if is_due:
            LOG.warning("refused a host %s%s", whose, f" ({left_out} lines left out)" if left_out else "")
        context.abort(code, f"this plugin does not answer a host {whose}")


def _word(streams: bool) -> str:
    return "stream" if streams else "unary"
