"""`ClientNames`: lets in the hosts whose certificates have one of the configured names.

An interceptor of a server with TLS, which has verified the certificate's authority. It checks every call,
also calls of health and reflection. `server` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import grpc

from berth_sdk.serve.calls import LOG
from berth_sdk.wire.peer_names import peer_names

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class ClientNames(grpc.ServerInterceptor):
    """The check of the host's certificate; refuses a call with PERMISSION_DENIED."""

    def __init__(self, allowed: Collection[str]) -> None:
        """Let in hosts with one of the names in `allowed`: common names or subject alternative names.

        Names are compared as a whole.
        """
        self._allowed = frozenset(allowed)

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
        names = peer_names(properties)
        if self._allowed.isdisjoint(names):
            shown = ", ".join(names) or "nobody"
            LOG.warning("refused a host whose certificate names %s", shown)
            context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"this plugin does not answer a host whose certificate names {shown}",
            )


def _word(streams: bool) -> str:
    return "stream" if streams else "unary"
