"""Each gRPC code is one kind of trouble with a plugin, as the contract's table has it."""

from __future__ import annotations

import pytest
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
from berth_host.rpc.served.grpc_errors import is_unimplemented, plugin_error, rpc_error
from grpc import StatusCode

KNOWN = {
    StatusCode.UNAVAILABLE: PluginUnavailableError,
    StatusCode.CANCELLED: PluginUnavailableError,
    StatusCode.PERMISSION_DENIED: PluginUnavailableError,
    StatusCode.DEADLINE_EXCEEDED: PluginTimeoutError,
    StatusCode.RESOURCE_EXHAUSTED: PluginOverloadedError,
    StatusCode.UNIMPLEMENTED: PluginProtocolError,
    StatusCode.INVALID_ARGUMENT: HostFaultError,
    StatusCode.FAILED_PRECONDITION: PluginStaleError,
}


@pytest.mark.parametrize("code", StatusCode)
def test_a_code_is_one_kind_of_trouble_and_any_other_is_an_exception_of_the_plugin(code: StatusCode) -> None:
    failure = plugin_error(rpc_error(code, "because"), "Demo", "Filter", 0.5)
    assert type(failure) is KNOWN.get(code, PluginRaisedError)
    assert str(failure).startswith('plugin "Demo" ')


def test_an_exception_of_the_plugin_reads_as_for_a_plugin_in_process() -> None:
    what = "KeyError: 'x' at demo.py:12: return nodes[\"x\"]"
    failure = plugin_error(
        rpc_error(StatusCode.INTERNAL, f"Demo.filter raised {what}"), "Demo", "Filter", 0.5
    )
    assert type(failure) is PluginExceptionError
    assert failure.text == PluginExceptionError("Demo", "Filter", what).text
    assert failure.text == f'plugin "Demo" failed at Filter: {what}'


def test_a_code_that_nobody_expects_is_named_with_its_reason() -> None:
    failure = plugin_error(rpc_error(StatusCode.DATA_LOSS, "disk on fire"), "Demo", "Filter", 0.5)
    assert "broke (DATA_LOSS: disk on fire)" in str(failure)


@pytest.mark.parametrize(
    ("details", "wanted"),
    [
        pytest.param("Received message larger than max (9 vs. 4)", PluginProtocolError, id="a reply"),
        pytest.param(
            "SERVER: Received message larger than max (9 vs. 4)", PluginOverloadedError, id="a request"
        ),
        pytest.param("32 calls are open", PluginOverloadedError, id="too many calls"),
    ],
)
def test_a_reply_that_is_too_large_is_the_plugins_fault_and_a_refused_request_is_not(
    details: str, wanted: type[PluginError]
) -> None:
    failure = plugin_error(rpc_error(StatusCode.RESOURCE_EXHAUSTED, details), "Demo", "Filter", 0.5)
    assert type(failure) is wanted


@pytest.mark.parametrize("code", [StatusCode.UNIMPLEMENTED, StatusCode.UNAVAILABLE])
def test_a_call_that_an_instance_does_not_have_is_told_by_its_cause(code: StatusCode) -> None:
    failure = plugin_error(rpc_error(code, ""), "Demo", "Filter", 0.5)
    assert not is_unimplemented(failure)
    failure.__cause__ = rpc_error(code, "")
    assert is_unimplemented(failure) is (code is StatusCode.UNIMPLEMENTED)


def test_words_of_a_plugin_do_nothing_to_a_terminal() -> None:
    failure = plugin_error(rpc_error(StatusCode.UNKNOWN, "\x1b[2Jall\nis well"), "Demo", "Filter", 0.5)
    assert "?[2Jall is well" in str(failure)
