"""Metrics of requests to the API server."""

from __future__ import annotations

from berth_host.metrics.rest_client import RestClientMetrics
from berth_sdk import clocks
from berth_sdk.clocks import MachineClocks, work_s


class Jumping(MachineClocks):
    """Clocks of which that of work advances by a thousand seconds at each look."""

    def __init__(self) -> None:
        self._at_s = 0.0

    def work_s(self) -> float:
        """Return the next reading."""
        self._at_s += 1000.0
        return self._at_s


def test_duration_of_a_request_is_measured_by_the_clock_that_its_start_was_read_from() -> None:
    metrics = RestClientMetrics()
    with clocks.replaced(Jumping()):
        metrics.request_ended("api:443", "GET", code=200, started_s=work_s())
    assert metrics.durations.of("api:443", "GET").total == 1000.0
