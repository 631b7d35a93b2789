"""Events of plugins that are not passed on: they would wait in the host's memory for nothing."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.handle.event_bounds import MAX_WORD_BYTES, is_writable
from berth_sdk.plugin.v1 import handle_pb2

LONG = "x" * (MAX_WORD_BYTES + 1)


@pytest.mark.parametrize(
    ("event", "passes"),
    [
        pytest.param({"reason": "Held"}, True, id="reason alone"),
        pytest.param({"reason": "Held", "type": "Warning", "action": "Waiting"}, True, id="all of it"),
        pytest.param({"reason": LONG[1:], "action": LONG[1:]}, True, id="as long as may be"),
        pytest.param({"reason": "Held", "type": "Fatal"}, False, id="type"),
        pytest.param({"action": "Waiting"}, False, id="no reason"),
        pytest.param({"reason": LONG}, False, id="long reason"),
        pytest.param({"reason": "Held", "action": LONG}, False, id="long action"),
        pytest.param({"reason": "\u00e4" * 65}, False, id="bytes count"),
    ],
)
def test_what_the_api_server_would_refuse_is_dropped(event: dict[str, Any], passes: bool) -> None:
    assert is_writable(handle_pb2.EventRecord(**event)) is passes
