"""`ShadowMetrics`: the series of `berth scheduler --shadow`."""

from __future__ import annotations

from typing import Final

from berth_host.metrics import families
from berth_host.metrics.series import Counters, Histograms


class ShadowMetrics:
    """The metrics of a shadow: its decisions beside those of the real scheduler. Durations in seconds."""

    def __init__(self) -> None:
        self.decisions = Counters(families.SHADOW_DECISIONS)
        self.differences = Counters(families.SHADOW_DIFFERENCES)
        self.decided = Histograms(families.SHADOW_DECIDED)
        self.real = Histograms(families.SHADOW_REAL)
        self.sources: Final = (self.decisions, self.differences, self.decided, self.real)
