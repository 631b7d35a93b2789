"""Carriers: streams and framed connections, which carry one call after the other.

A servicer gets the carrier as the context of the call that it carries now. Used by `stream_servicer` and
`framed_server`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import grpc

from berth_sdk.wire.stream import unwrap_request, wrap

Answer: TypeAlias = Callable[[bytes, Any], bytes]
"""(request, context) -> answer, both serialised."""
_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT


class Carrier(ABC):
    """idle -begin-> busy -the answer is taken-> idle. `busy`: a call is open; `Carriers` writes it."""

    def __init__(self) -> None:
        self.busy = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Another call: no caller waits for the end of the last one any more."""
        if self._callbacks:
            with self._lock:
                self._callbacks.clear()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call back when the host gives up this call; False if it has."""
        with self._lock:
            self._callbacks.append(callback)
        return self.is_active()

    def given_up(self) -> None:
        """The host has ended the carrier, and with it the call that is open."""
        with self._lock:
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    @abstractmethod
    def is_active(self) -> bool:
        """Whether a caller waits for the answer."""

    @abstractmethod
    def abort(self, code: grpc.StatusCode, text: str) -> NoReturn:
        """End the call with an error."""

    @abstractmethod
    def cancel(self) -> None:
        """End the carrier, between two calls."""


class Carriers:
    """The carriers of a server, which must not delay its end. open -stop-> stopping"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Carrier] = set()
        self._stopping = False

    def stop(self) -> None:
        """End them: those between two calls now, the others with their answer."""
        with self._lock:
            self._stopping = True
            idle = [carrier for carrier in self._open if not carrier.busy]
        for carrier in idle:
            carrier.cancel()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        with self._lock:
            return self._stopping

    def add(self, carrier: Carrier) -> None:
        """One begins, between two calls."""
        with self._lock:
            self._open.add(carrier)
            late = self._stopping
        if late:
            carrier.cancel()

    def discard(self, carrier: Carrier) -> None:
        """One has ended."""
        with self._lock:
            self._open.discard(carrier)

    def take_up(self, carrier: Carrier) -> bool:
        """A call begins; False: it may not."""
        with self._lock:
            carrier.begin()
            carrier.busy = not self._stopping
            return carrier.busy

    def lay_down(self, carrier: Carrier) -> bool:
        """The call's answer was taken; False: there will be no more."""
        with self._lock:
            carrier.busy = False
            return not self._stopping


def carried(calls: Mapping[int, Answer], raw: bytes, carrier: Carrier) -> bytes:
    """Put the call in the envelope `raw` to its handler, of those by number; its answer in an envelope."""
    try:
        number, request = unwrap_request(raw)
    except ValueError as err:
        carrier.abort(_INVALID, f"what came is no call: {err}")
    answer = calls.get(number)
    if answer is None:
        carrier.abort(_INVALID, f"call {number} is not served in this way")
    return wrap(number, answer(request, carrier))
