"""When a host that is asked too often wants to be asked again."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from berth_sdk.wire.pushback import PUSHBACK, pushback_s

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class Failed(grpc.RpcError):
    """A call that failed, as gRPC's errors are."""

    def __init__(self, code: grpc.StatusCode, metadata: Any) -> None:
        self._code = code
        self._metadata = metadata

    def code(self) -> grpc.StatusCode:
        return self._code

    def trailing_metadata(self) -> Any:
        return self._metadata


@pytest.mark.parametrize(
    ("code", "metadata", "expected"),
    [
        (EXHAUSTED, ((PUSHBACK, "250"),), 0.25),
        (EXHAUSTED, (("other", "1"), (PUSHBACK, "0")), 0.0),
        (EXHAUSTED, ((PUSHBACK, "-1"),), None),  # gRPC's word for: not again
        (EXHAUSTED, (), None),
        (EXHAUSTED, None, None),
        (grpc.StatusCode.UNAVAILABLE, ((PUSHBACK, "250"),), None),
    ],
)
def test_only_a_number_of_milliseconds_counts(
    code: grpc.StatusCode, metadata: Any, expected: float | None
) -> None:
    assert pushback_s(Failed(code, metadata)) == expected
