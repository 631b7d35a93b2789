"""Loopback: a plugin class in this process, asked through the whole contract.

Every message is encoded, decoded and handled as between two processes, by the SDK's own servicers, without
a socket: what works here works for served plugins.

    link = loopback_link(server_instance, feed)
    transport = GrpcTransport(link, descriptor, "default-scheduler", outbox)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn, cast

import grpc
from berth_host.rpc.served.grpc_errors import rpc_error
from berth_host.rpc.served.link import InstanceLink, LinkIdentity, StateFeed
from berth_sdk.serve.instance import Instance
from berth_sdk.serve.services import Services
from grpc import StatusCode


class LoopbackChannel:
    """As much of `grpc.aio.Channel` as stubs need: calls go to the servicers of one `Instance`."""

    def __init__(self, instance: Instance) -> None:
        self._handlers = [
            grpc.method_handlers_generic_handler(name, handlers)
            for name, handlers in Services(instance).handlers.items()
        ]

    def unary_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a call with one request."""
        handler = self._handler(path)

        async def call(request: Any, **options: Any) -> Any:
            raw = codec.get("request_serializer", _as_it_is)(request)
            return await _answered(
                lambda context: handler.unary_unary(handler.request_deserializer(raw), context),
                codec.get("response_deserializer", _as_it_is),
                options.get("timeout"),
            )

        return call

    def stream_unary(self, path: str, **codec: Any) -> Callable[..., Any]:
        """Return a call with a stream of requests."""
        handler = self._handler(path)

        async def call(requests: AsyncIterator[Any], **options: Any) -> Any:
            raw = [codec["request_serializer"](request) async for request in requests]
            parsed: Iterator[Any] = (handler.request_deserializer(item) for item in raw)
            return await _answered(
                lambda context: handler.stream_unary(parsed, context),
                codec["response_deserializer"],
                options.get("timeout"),
            )

        return call

    def _handler(self, path: str) -> Any:
        details = _Details(path)
        for handlers in self._handlers:
            handler = handlers.service(details)
            if handler is not None:
                return handler
        raise KeyError(path)


def loopback_link(instance: Instance, feed: StateFeed | None, calls: list[str] | None = None) -> InstanceLink:
    """Return a link to an instance in this process. It still has to be configured and synchronised.

    `calls`: gets the name of each call.
    """
    identity = LinkIdentity(instance_id=instance.instance_id, attachment_id="loopback", endpoint="loopback:")
    channel = cast(grpc.aio.Channel, LoopbackChannel(instance))
    made = [] if calls is None else calls
    return InstanceLink(
        channel, identity, feed, _nothing, lambda _plugin, call, _sent, _received: made.append(call)
    )


class _Details(grpc.HandlerCallDetails):
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


class _AbortedError(Exception):
    def __init__(self, code: StatusCode, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(text)


class _Context:
    """As much of `grpc.ServicerContext` as the SDK's servicers use."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    def abort(self, code: StatusCode, text: str) -> NoReturn:
        raise _AbortedError(code, text)

    def is_active(self) -> bool:
        return not self._over.is_set()

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self.is_active()

    def end(self) -> None:
        self._over.set()
        for callback in self._callbacks:
            callback()


async def _answered(
    handle: Callable[[Any], bytes], parse: Callable[[bytes], Any], timeout_s: float | None
) -> Any:
    """Run a handler on a thread, as a server would, and parse its answer."""
    context = _Context()
    try:
        async with asyncio.timeout(timeout_s):
            raw = await asyncio.to_thread(handle, context)
    except TimeoutError as err:
        raise rpc_error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err
    except _AbortedError as err:
        raise rpc_error(err.code, err.text) from err
    finally:
        context.end()
    return parse(raw)


def _as_it_is(message: Any) -> Any:
    return message


def _nothing() -> None:
    return None
