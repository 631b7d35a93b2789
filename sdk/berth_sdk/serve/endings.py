"""The instances of plugins in a server, up to their `close`.

    in use -retire-> retired -no call is open, no reservation is its own-> shut -close-> closed

Configure retires the instances that it replaces. Their reservations go on: the Unreserve or the PostBind is a
call of the retired instance. So each instance counts its calls, and the book of cycles knows who reserved.
`close` runs in a thread of its own: no call of the host waits for it.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import grpc

from berth_sdk.runtime.closing import Closing, begin_close, trouble_of
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.serve.calls import LOG, CallRefusedError
from berth_sdk.serve.cycles import CycleBook
from berth_sdk.serve.lanes import EventLoopThread


class PluginCalls:
    """The calls of one instance. `is_shut`: True once no call may begin any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.is_shut = False

    def __enter__(self) -> None:
        """Begin a call. Raises CallRefusedError once the instance is shut."""
        with self._lock:
            if self.is_shut:
                text = "this instance of the plugin was replaced, and is closed"
                raise CallRefusedError(grpc.StatusCode.UNAVAILABLE, text)
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.count -= 1

    def shut(self) -> bool:
        """Let no call begin any more. Returns True the first time, and False, without an effect, while a call
        is open.
        """
        with self._lock:
            if self.count or self.is_shut:
                return False
            self.is_shut = True
            return True


@dataclass(frozen=True, slots=True, eq=False)
class MadePlugin:
    """One instance. `args`: the arguments that it was made with, encoded."""

    args: bytes
    runtime: PluginRuntime
    calls: PluginCalls = field(default_factory=PluginCalls)


class Endings:
    """The retired instances that are not closed yet."""

    def __init__(self, cycles: CycleBook, loop: EventLoopThread) -> None:
        self._cycles = cycles
        self._loop = loop
        self._lock = threading.Lock()
        self._retired: list[MadePlugin] = []
        self._closings: dict[MadePlugin, Closing] = {}

    def retire(self, instances: Iterable[MadePlugin]) -> None:
        """Close these instances as soon as they are idle. Each is retired once."""
        with self._lock:
            self._retired.extend(instances)
        self.close_idle()

    def close_idle(self) -> None:
        """Begin to close the retired instances without calls and reservations. Called after every call."""
        if not self._retired:
            return
        with self._lock:
            in_use = self._cycles.with_reservations()
            idle = [one for one in self._retired if one.runtime not in in_use and one.calls.shut()]
            self._retired = [one for one in self._retired if not one.calls.is_shut]
            for one in idle:
                self._begin(one)

    def close_all(self, instances: Iterable[MadePlugin], limit_s: float) -> None:
        """Close these instances and the retired ones, and wait `limit_s`. No call begins any more.

        An instance with an open call is not closed. The log names it, and each `close` that has not ended.
        """
        with self._lock:
            for one in (*instances, *self._retired):
                if one.calls.shut():
                    self._begin(one)
                elif one.runtime.has_close and not one.calls.is_shut:
                    name, count = one.runtime.descriptor.name, one.calls.count
                    LOG.warning("%s is not closed: %d of its calls have not ended", name, count)
            self._retired = []
            closings = dict(self._closings)
        concurrent.futures.wait(closings.values(), limit_s)
        for one, closing in closings.items():
            if not closing.done():
                LOG.warning("%s: %s", one.runtime.descriptor.name, trouble_of(closing, limit_s))

    def _begin(self, one: MadePlugin) -> None:
        if not one.runtime.has_close:
            return

        def ended(closing: Closing) -> None:
            self._closings.pop(one, None)
            err = closing.exception()
            if err is not None:
                LOG.error("%s.close failed", one.runtime.descriptor.name, exc_info=err)

        closing = begin_close(one.runtime, lambda answer: self._loop.wait_for(answer, _Unending()))
        self._closings[one] = closing
        closing.add_done_callback(ended)


class _Unending:
    """A call that is never cancelled."""

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: object) -> bool:
        return True
