"""A plugin's method is not run for a caller that is gone, and every error names the plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest
from berth_sdk.serve.calls import CallRefusedError, InFlight, ask
from berth_sdk.serve.endings import PluginCalls
from berth_sdk.serve.lanes import CallCancelledError, EventLoopThread
from berth_sdk.serve.served import ServedPlugin


class Call:
    """A call's context."""

    def __init__(self, *, active: bool = True) -> None:
        self._active = active

    def is_active(self) -> bool:
        return self._active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return self._active


class Named:
    """All that is asked of a served plugin here."""

    name = "Example"
    calls = PluginCalls()


FILE = __name__.replace(".", "/")
EXAMPLE = cast(ServedPlugin, Named())


def asked(call: Callable[[], Any], context: Call | None = None) -> Any:
    loop = EventLoopThread()
    try:
        return ask(EXAMPLE, "filter", loop, context or Call(), call)
    finally:
        loop.stop()


def test_a_plain_and_an_async_answer_come_back() -> None:
    async def later() -> int:
        return 2

    assert (asked(lambda: 1), asked(later)) == (1, 2)


def test_caller_that_is_gone_gets_no_answer() -> None:
    executed: list[bool] = []
    with pytest.raises(CallCancelledError):
        asked(lambda: executed.append(True), Call(active=False))
    assert executed == []


def test_exception_of_the_plugin_is_refused_with_its_name_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise LookupError("no price list")

    with pytest.raises(CallRefusedError) as refused:
        asked(broken)
    assert refused.value.code is grpc.StatusCode.INTERNAL
    line = broken.__code__.co_firstlineno + 1
    assert refused.value.text == (
        "Example.filter raised LookupError: no price list at"
        f' {FILE}.py:{line}: raise LookupError("no price list")'
    )
    assert "Traceback" in caplog.text
    assert "LookupError: no price list" in caplog.text


def test_a_long_text_is_cut_to_what_a_header_holds() -> None:
    assert len(CallRefusedError(grpc.StatusCode.INTERNAL, "x" * 10_000).text) == 1024


def test_calls_in_flight_are_counted() -> None:
    in_flight = InFlight()
    with in_flight, in_flight:
        assert in_flight.count == 2
    assert in_flight.count == 0


def test_instance_that_is_closed_is_not_called() -> None:
    class Closed(Named):
        calls = PluginCalls()

    executed: list[bool] = []
    assert Closed.calls.shut()
    loop = EventLoopThread()
    with pytest.raises(CallRefusedError, match="was replaced, and is closed") as refused:
        ask(cast(ServedPlugin, Closed()), "filter", loop, Call(), lambda: executed.append(True))
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    assert executed == []
