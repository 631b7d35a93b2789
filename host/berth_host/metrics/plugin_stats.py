"""Each plugin's cost: calls, time, bytes, failures, violations, per plugin and call.

Written by `PluginRelay.ask`, and by the links to served plugins, which know the bytes; read by `simulate`,
`bench`, the demo's report and metrics.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from berth_host.metrics.families import exponential
from berth_host.metrics.series import Histogram

_BOUNDS_S: Final = exponential(1e-6, 2, 31)


@dataclass(slots=True, eq=False)
class CallStats:
    """One call of one plugin. `times`: the seconds that it took, in buckets that double.

    `overruns`: answers that came after the deadline, where nothing could interrupt the plugin.
    `repeats`: second attempts. `failures`: by outcome (`timeout`, `violation`, ...).
    `policies`: how often a policy stood in for an answer, by its name.
    `messages`: requests that left the process, each with its reply in `bytes_sent` and `bytes_received`
    (protobuf, without gRPC's frames); a call with an early answer sent none.
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
        """Count one request and its reply; a reply that did not come has 0 bytes."""
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
