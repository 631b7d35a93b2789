"""The message to a pod's owner after its wait at Permit timed out."""

import pytest
from berth_sdk.permit_wait import timed_out


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (15, "15s"),
        (60, "1m0s"),
        (90.5, "1m30.5s"),
        (3600, "1h0m0s"),
        (0.0000005, "500ns"),
    ],
)
def test_message_has_the_duration_as_go_writes_it(seconds: float, want: str) -> None:
    want = f"rejected due to timeout after waiting {want} at plugin Gang"
    assert timed_out("Gang", seconds).message == want
