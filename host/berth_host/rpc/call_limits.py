"""`Terms`: the rules and checks of calls to an instance of a plugin, by its descriptor.

Two instances of one plugin may have different descriptors. After a hot swap, cycles of both are under way,
and each cycle follows the descriptor of its own instance. The relay keeps one `Terms` per descriptor in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.signature import wishes

from berth_host.attempt.call_record import CycleRecord
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.rpc.call import AnyCall
from berth_host.rpc.call_rules import CallRule, call_rules
from berth_host.rpc.code_log import CodeLog
from berth_host.rpc.route import ClientSettings
from berth_host.rpc.validate import Checker, ClusterFacts

_KEPT_CALLS: Final = frozenset({"PreFilter", "Filter", "PreScore", "Score"})
"""The calls whose answers `depends_on` allows to be kept."""
_MOST_SEEN: Final = 65536


class Terms:
    """The terms of one descriptor. Attributes: descriptor, check (of answers), rules (by RPC)."""

    def __init__(
        self,
        descriptor: Descriptor,
        facts: ClusterFacts,
        settings: ClientSettings,
        stats: PluginStats,
        codes: CodeLog | None = None,
    ) -> None:
        """`codes`: logs the codes that are read as ERROR; None: a log of these terms alone."""
        self.descriptor = descriptor
        self.check = Checker(descriptor, facts, codes or CodeLog())
        self.rules = call_rules(settings.points, descriptor.deadlines, required=settings.required)
        self._stats = stats
        self._kinds: dict[str, Kind] = {}

    def of(self, call: AnyCall) -> Kind:
        """Return the facts that are the same for every call of this kind."""
        kind = self._kinds.get(call.rpc)
        if kind is None:
            key = (self._stats.plugin, call.rpc)
            stats = self._stats.of(call.rpc)
            seen: set[int] | None = None
            if self._stats.counts_alike and self.descriptor.depends_on is None and call.rpc in _KEPT_CALLS:
                seen, stats.alike = set(), stats.alike or 0
            kind = self._kinds[call.rpc] = Kind(self.rules[call.rpc], key, stats, seen)
        return kind

    def serves(self, point: ExtensionPoint) -> bool:
        """Return True if the instance takes part in the point."""
        return point in self.descriptor.points


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of call: its rule, and the record of its times. `seen`: hashes of the earlier pods. None: equal
    pods are not counted.
    """

    rule: CallRule
    key: tuple[str, str]
    stats: CallStats
    seen: set[int] | None = None

    def observe(self, cycle: CycleRecord | None, duration_s: float, answer: object = None) -> None:
        """Record one call. `answer` None: the call failed."""
        self.stats.times.observe(duration_s)
        if cycle is not None:
            timings_s = cycle.account.timings_s
            timings_s[self.key] = timings_s.get(self.key, 0.0) + duration_s
            if self.seen is not None:
                self._count_alike(self.seen, cycle)
            if cycle.sampler is not None:
                cycle.sampler.called(*self.key, duration_s, answer)

    def _count_alike(self, seen: set[int], cycle: CycleRecord) -> None:
        """Count the call if an earlier one was about an equal pod."""
        pod = hash(wishes(cycle.subject))
        if pod in seen:
            self.stats.alike = (self.stats.alike or 0) + 1
        elif len(seen) < _MOST_SEEN:
            seen.add(pod)
