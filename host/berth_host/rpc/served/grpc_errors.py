"""gRPC's errors -> PluginError. Nothing above this module sees a `grpc.RpcError`.

Source: the contract's table of gRPC codes (common.proto, "Errors of every call").
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import Final, TypeVar

import grpc
from berth_sdk.wire.message_limit import CURE
from grpc import StatusCode

from berth_host.errors.plugins import (
    HostFaultError,
    PluginError,
    PluginExceptionError,
    PluginOverloadedError,
    PluginProtocolError,
    PluginRaisedError,
    PluginStaleError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.rpc.served.statuses import plain

R = TypeVar("R")
GRACE_S: Final = 0.02
"""The extra seconds in which gRPC can end a call at its deadline by itself."""
# The message of this library for a reply that is too large. A server that refuses a request for its size uses
# the same code, and may use the same message with its own name before it.
_TOO_LARGE: Final = "Received message larger than max"
# The SDK's message for an exception of a plugin, which is then the same as for an in-process plugin.
_RAISED: Final = re.compile(r"(?P<plugin>.+?)\.\w+ raised (?P<what>.+)", re.DOTALL)
_BY_SERVER: Final = "SERVER: Received message larger than max"


def is_unimplemented(failure: PluginError) -> bool:
    """Return True if the instance does not have the call."""
    cause = failure.__cause__
    return isinstance(cause, grpc.aio.AioRpcError) and cause.code() is StatusCode.UNIMPLEMENTED


def readable(reply: R | None, plugin: str, call: str) -> R:
    """Return a stub's reply. Raises PluginProtocolError for None: the bytes were no reply to the call."""
    if reply is None:
        raise PluginProtocolError(plugin, call, "answered what is no reply to it")
    return reply


async def in_time(call: Awaitable[R], deadline_s: float) -> R:
    """Return the reply of a gRPC call that has this deadline. Raises AioRpcError.

    After calls that a stopped process did not answer, gRPC sometimes does not end calls at their deadline.
    Then this function ends the call.
    """
    try:
        async with asyncio.timeout(max(deadline_s, 0.0) + GRACE_S):
            return await call
    except TimeoutError as err:
        raise rpc_error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err


def rpc_error(code: StatusCode, text: str) -> grpc.aio.AioRpcError:
    """Return the error of a call that ends in the host and not at the instance."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), text)


def plugin_error(err: grpc.aio.AioRpcError, plugin: str, call: str, deadline_s: float) -> PluginError:
    """Return the PluginError for an error of gRPC."""
    code, details = err.code(), plain(err.details() or "")
    if code is StatusCode.UNAVAILABLE:
        return PluginUnavailableError(plugin, call, f"could not be reached ({details})")
    if code is StatusCode.DEADLINE_EXCEEDED:
        return PluginTimeoutError(plugin, call, deadline_s)
    if code is StatusCode.CANCELLED:
        return PluginUnavailableError(plugin, call, "was cut off")
    if code is StatusCode.PERMISSION_DENIED:
        return PluginUnavailableError(plugin, call, f"is not attached to this host any more ({details})")
    if code is StatusCode.RESOURCE_EXHAUSTED:
        if _TOO_LARGE in details and _BY_SERVER not in details:
            return PluginProtocolError(
                plugin, call, f"answered more than was agreed ({details}): answer less, or {CURE}"
            )
        cure = f": {CURE}" if _BY_SERVER in details else ""
        return PluginOverloadedError(plugin, call, f"refused the call for want of room ({details}){cure}")
    if code is StatusCode.UNIMPLEMENTED:
        said = f" ({details})" if details else ""
        return PluginProtocolError(plugin, call, f"does not implement what it declared{said}")
    if code is StatusCode.INVALID_ARGUMENT:
        return HostFaultError(plugin, call, f"calls the request faulty ({details})")
    if code is StatusCode.FAILED_PRECONDITION:
        return PluginStaleError(plugin, call, f"has another state than the call needs ({details})")
    if code is StatusCode.INTERNAL and (raised := _RAISED.fullmatch(details)) and raised["plugin"] == plugin:
        return PluginExceptionError(plugin, call, raised["what"])
    return PluginRaisedError(plugin, call, f"broke ({code.name}: {details})")
