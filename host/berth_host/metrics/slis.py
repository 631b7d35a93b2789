"""The results of health checks: `/metrics/slis`. `endpoints.health` writes them.

Source: component-base `metrics/prometheus/slis/metrics.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable

from berth_host.metrics import families
from berth_host.metrics.series import Counters, Readings


class HealthMetrics:
    """The results by check and by kind of health, such as `readyz`."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], float] = {}
        self._checks = Counters(families.HEALTH_CHECKS)

    def checked(self, name: str, kind: str, *, passed: bool) -> None:
        """Count a check. `kind`: of health, such as `readyz`."""
        self._last[name, kind] = 1 if passed else 0
        self._checks.add((name, kind, "success" if passed else "error"))

    @property
    def sources(self) -> Iterable[Counters | Readings]:
        """Both families."""
        return Readings(families.HEALTH_CHECK, self._last.items), self._checks
