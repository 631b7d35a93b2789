"""Each plugin's cost: calls, time, bytes, failures, violations, per plugin and call.

Written by `PluginRelay.ask`, and by the links to served plugins, which know the bytes; read by `simulate`,
`bench`, the demo's report and metrics.
Times are kept in buckets that double, so an observation costs a shift and an addition.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_BUCKETS = 32


@dataclass(slots=True, eq=False)
class CallStats:
    """One call of one plugin. Bucket i counts the calls that took less than 2**i microseconds.

    `overruns`: answers that came after the deadline, where nothing could interrupt the plugin.
    `repeats`: second attempts. `failures`: by outcome (`timeout`, `violation`, ...).
    `policies`: how often a policy stood in for an answer, by its name.
    `messages`: requests that left the process, each with its reply in `bytes_sent` and `bytes_received`
    (protobuf, without gRPC's frames); a call with an early answer sent none.
    `alike`: calls about a pod that is equal to an earlier one; None: not counted.
    """

    calls: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    overruns: int = 0
    repeats: int = 0
    messages: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    alike: int | None = None
    failures: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)
    buckets: list[int] = field(default_factory=lambda: [0] * _BUCKETS)

    def observe(self, duration_s: float) -> None:
        """Count one call."""
        self.calls += 1
        self.total_s += duration_s
        if duration_s > self.max_s:
            self.max_s = duration_s
        self.buckets[min(int(duration_s * 1e6).bit_length(), _BUCKETS - 1)] += 1

    def sent(self, bytes_sent: int, bytes_received: int) -> None:
        """Count one request and its reply; a reply that did not come has 0 bytes."""
        self.messages += 1
        self.bytes_sent += bytes_sent
        self.bytes_received += bytes_received

    @property
    def failed(self) -> int:
        """Calls without a usable answer, whatever the reason."""
        return self.failures.total()

    @property
    def mean_s(self) -> float:
        """Seconds per call; 0 before the first."""
        return self.total_s / self.calls if self.calls else 0.0

    def quantile_s(self, share: float) -> float:
        """Seconds within which `share` (0..1) of the calls were over, up to a factor of 2."""
        wanted = share * self.calls
        seen = 0
        for i, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return min(2.0**i / 1e6, self.max_s)
        return 0.0


class PluginStats:
    """All calls of one plugin, over its profiles and attachments."""

    __slots__ = ("_calls", "counts_alike", "plugin", "violations")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.violations = 0
        self.counts_alike = False
        """Count the calls about equal pods of a plugin that keeps no answers. Set before the first call."""
        self._calls: dict[str, CallStats] = {}

    def of(self, rpc: str) -> CallStats:
        """The figures of one call, `Filter`; made at its first use."""
        stats = self._calls.get(rpc)
        if stats is None:
            stats = self._calls[rpc] = CallStats()
        return stats

    def items(self) -> list[tuple[str, CallStats]]:
        """(call, figures), in the order of first use."""
        return list(self._calls.items())
