"""The cost of plugins: calls, time, bytes, failures and violations, per plugin and call.

`PluginRelay.ask` writes them, and the links to served plugins write the bytes. `simulate`, `bench`, the
demo's report and the metrics read them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from berth_host.metrics.family import exponential
from berth_host.metrics.series import Histogram

_BOUNDS_S: Final = exponential(1e-6, 2, 31)


@dataclass(slots=True, eq=False)
class CallStats:
    """The figures of one call of one plugin. `times`: the seconds that calls took, in buckets that double.

    `overruns`: answers of in-process plugins after the deadline; such a plugin cannot be interrupted.
    `repeats`: second attempts. `failures`: by outcome (`timeout`, `violation`, ...).
    `policies`: calls that a failure policy answered, by the policy's name.
    `messages`: requests that left the process. A call with an early answer sends none.
    `bytes_sent`, `bytes_received`: of these requests and their replies (protobuf, without gRPC's frames).
    `alike`: calls about a pod that is equal to an earlier one; None: not counted.
    """

    times: Histogram = field(default_factory=lambda: Histogram(_BOUNDS_S))
    overruns: int = 0
    repeats: int = 0
    messages: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    alike: int | None = None
    failures: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)

    def sent(self, bytes_sent: int, bytes_received: int) -> None:
        """Count one request and its reply; a missing reply has 0 bytes."""
        self.messages += 1
        self.bytes_sent += bytes_sent
        self.bytes_received += bytes_received

    @property
    def calls(self) -> int:
        """The calls so far."""
        return self.times.count

    @property
    def failed(self) -> int:
        """Calls without a usable answer, whatever the reason."""
        return self.failures.total()


class PluginStats:
    """All calls of one plugin, over its profiles and attachments."""

    __slots__ = ("_calls", "counts_alike", "last_failure", "plugin", "remarks", "violations")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.violations = 0
        self.remarks = 0
        """Answers of PreScore that gave a reason with SUCCESS or SKIP."""
        self.last_failure = ""
        """The text of the last call without a usable answer; empty: there was none."""
        self.counts_alike = False
        """True to count calls about equal pods, for a plugin that keeps no answers. Set before the first
        call.
        """
        self._calls: dict[str, CallStats] = {}

    def of(self, rpc: str) -> CallStats:
        """Return the figures of one call, such as `Filter`; make them at the first use."""
        stats = self._calls.get(rpc)
        if stats is None:
            stats = self._calls[rpc] = CallStats()
        return stats

    @property
    def never_answered(self) -> bool:
        """True if there were calls, and none of them had a usable answer."""
        calls = self._calls.values()
        return any(one.calls for one in calls) and all(one.failed >= one.calls for one in calls)

    def items(self) -> list[tuple[str, CallStats]]:
        """Return pairs (call, figures), in the order of first use."""
        return list(self._calls.items())
