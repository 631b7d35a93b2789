"""`ShadowRecord`: the open decisions of a shadow, and how those before compare with the real scheduler's.

One per process: it outlives a reload. `observer` adds decisions, `following` the outcomes; the secure port
and the command print `as_json`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from berth_sdk.rfc3339 import format_micro_time

from berth_host.framework.score_table import ScoreTable
from berth_host.metrics import families
from berth_host.metrics.series import Histogram
from berth_host.metrics.shadow_metrics import ShadowMetrics
from berth_host.model.clock import Clock
from berth_host.shadow.decision import Decision, Difference, KeptScores

DIFFERENCES_KEPT: Final = 100
"""The report lists at most this many differences, the latest."""
ASSUMED_S: Final = 30.0
"""Seconds (real time) that a chosen node counts as taken while the real scheduler has no outcome."""
SCORES_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of scores kept for open decisions; the oldest are dropped first."""


class ShadowOutcome(Enum):
    """The result of comparing a decision with the real scheduler's."""

    SAME = "same"
    """Both schedulers chose the same node."""
    TIE = "tie"
    """Another node with the same score: the choice is random."""
    UNSCHEDULABLE = "unschedulable"
    """Neither scheduler found a node."""
    OTHER_NODE = "other_node"
    """The real scheduler bound the pod to another node."""
    ONLY_REAL = "only_real"
    """The shadow found no node, and the real scheduler bound the pod."""
    ONLY_SHADOW = "only_shadow"
    """The shadow found a node, and the real scheduler did not in time."""
    UNDECIDED = "undecided"
    """The pod was bound before the shadow tried it."""


AGREED: Final = (ShadowOutcome.SAME, ShadowOutcome.TIE, ShadowOutcome.UNSCHEDULABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of the table of differences. `at_s`: Unix seconds; `decided_s`, `real_s`: durations."""

    pod: str
    at_s: float
    outcome: ShadowOutcome
    shadow_node: str
    real_node: str
    plugin: str
    reason: str
    victims: tuple[str, ...] = ()
    decided_s: float | None = None
    real_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the line as in the answer of `/berth/v1/shadow`."""
        return {
            "pod": self.pod,
            "at": format_micro_time(self.at_s),
            "outcome": self.outcome.value,
            "shadowNode": self.shadow_node,
            "realNode": self.real_node,
            "plugin": self.plugin,
            "reason": self.reason,
            "victims": list(self.victims),
            "decisionMs": _milliseconds(self.decided_s),
            "realMs": _milliseconds(self.real_s),
        }


class ShadowRecord:
    """All decisions of one shadow process. `assumed_s`: see ASSUMED_S. `open`: by the pod's uid."""

    def __init__(self, clock: Clock, metrics: ShadowMetrics, assumed_s: float = ASSUMED_S) -> None:
        self._clock = clock
        self._metrics = metrics
        self.assumed_s = assumed_s
        self.open: OrderedDict[str, Decision] = OrderedDict()
        self.victims: dict[str, tuple[str, ...]] = {}
        """The victims of the attempts under way, as `namespace/name`, by uid of the pod."""
        self._scores: OrderedDict[str, KeptScores] = OrderedDict()
        self._scores_size = 0
        self._differences: deque[Listed] = deque(maxlen=DIFFERENCES_KEPT)
        self._began_s = clock.now_s()
        self._outcomes: Counter[ShadowOutcome] = Counter()
        self._plugins: Counter[tuple[ShadowOutcome, str]] = Counter()
        self._decided = Histogram(families.SHADOW_DECIDED.buckets)
        self._real = Histogram(families.SHADOW_REAL.buckets)

    # --- decisions -----------------------------------------------------------------------------

    def scored(self, uid: str, table: ScoreTable | None) -> None:
        """Keep the scores of the attempt under way; None: the search needed no scores."""
        self._drop_scores(uid)
        if table is None:
            return
        kept = KeptScores(table)
        self._scores[uid] = kept
        self._scores_size += kept.size
        while self._scores_size > SCORES_BYTES:
            oldest = next(iter(self._scores))
            self._drop_scores(oldest)
            if oldest in self.open:
                self.open[oldest].scores = None

    def decided(self, decision: Decision) -> None:
        """Keep a decision; an earlier one about the pod is replaced."""
        uid = decision.pod.uid
        earlier = self.open.pop(uid, None)
        if earlier is not None:
            earlier.cancel_timer()
        if decision.node_name:
            decision.scores = self._scores.get(uid)
        else:
            self._drop_scores(uid)
        self.open[uid] = decision
        self._decided.observe(decision.decided_s)
        self._metrics.decided.of(decision.pod.scheduler_name).observe(decision.decided_s)

    def close(self, uid: str) -> Decision | None:
        """Remove and return the decision about a pod, which is bound or gone."""
        self._drop_scores(uid)
        decision = self.open.pop(uid, None)
        if decision is not None:
            decision.cancel_timer()
        return decision

    def _drop_scores(self, uid: str) -> None:
        kept = self._scores.pop(uid, None)
        if kept is not None:
            self._scores_size -= kept.size

    # --- outcomes ------------------------------------------------------------------------------

    def bound(self, key: str, decision: Decision | None, node_name: str, gate: tuple[str, str]) -> None:
        """Compare a decision with the node to which the pod is bound. `gate`: the PreEnqueue plugin that
        keeps the pod from being tried, and its reason; "" for none.
        """
        if decision is None:
            outcome = ShadowOutcome.ONLY_REAL if gate[0] else ShadowOutcome.UNDECIDED
            reason = gate[1] if gate[0] else "the pod was bound before the shadow tried it"
            self._count(outcome, Difference(gate[0], reason), key=key, real_node=node_name)
            return
        real_s = None
        if decision.seen_at_s is not None:
            real_s = max(self._clock.now_s() - decision.seen_at_s, 0.0)
            self._real.observe(real_s)
            self._metrics.real.of(decision.pod.scheduler_name).observe(real_s)
        outcome, why = ShadowOutcome.SAME, Difference("", "")
        if decision.target != node_name:
            why = decision.why_not(node_name)
            outcome = ShadowOutcome.OTHER_NODE if decision.target else ShadowOutcome.ONLY_REAL
            if why.is_tie:
                outcome = ShadowOutcome.TIE
        self._count(outcome, why, key=key, decision=decision, real_node=node_name, real_s=real_s)

    def still_pending(self, decision: Decision, reason: str) -> None:
        """Count, once per decision, that the real scheduler has no node for the pod. `reason`: its report."""
        if decision.is_reported:
            return
        decision.is_reported = True
        outcome = ShadowOutcome.ONLY_SHADOW if decision.node_name else ShadowOutcome.UNSCHEDULABLE
        self._count(outcome, Difference("", reason), key=decision.pod.key, decision=decision)

    def _count(
        self,
        outcome: ShadowOutcome,
        why: Difference,
        *,
        key: str,
        decision: Decision | None = None,
        real_node: str = "",
        real_s: float | None = None,
    ) -> None:
        self._outcomes[outcome] += 1
        self._metrics.decisions.add((outcome.value,))
        if outcome in AGREED:
            return
        self._plugins[outcome, why.plugin] += 1
        self._metrics.differences.add((outcome.value, why.plugin))
        self._differences.append(
            Listed(
                pod=key,
                at_s=self._clock.now_s(),
                outcome=outcome,
                shadow_node="" if decision is None else decision.target,
                real_node=real_node,
                plugin=why.plugin,
                reason=why.reason,
                victims=() if decision is None else tuple(decision.victims),
                decided_s=None if decision is None else decision.decided_s,
                real_s=real_s,
            )
        )

    # --- the report ----------------------------------------------------------------------------

    def count(self, outcome: ShadowOutcome) -> int:
        """Return the number of decisions with this outcome."""
        return self._outcomes[outcome]

    def as_json(self) -> dict[str, Any]:
        """Return the report, as `/berth/v1/shadow` answers it."""
        counts = {one.value: self.count(one) for one in ShadowOutcome}
        agreed = sum(self.count(one) for one in AGREED)
        compared = sum(counts.values()) - self.count(ShadowOutcome.UNDECIDED)
        by_plugin = sorted(
            ((one.value, plugin, count) for (one, plugin), count in self._plugins.items()),
            key=lambda row: (-row[2], row[:2]),
        )
        return {
            "since": format_micro_time(self._began_s),
            "answeredAt": format_micro_time(self._clock.now_s()),
            "open": len(self.open),
            "compared": compared,
            "agreed": agreed,
            "outcomes": counts,
            "plugins": [
                {"outcome": outcome, "plugin": plugin, "pods": count} for outcome, plugin, count in by_plugin
            ],
            "decisionMs": _figures(self._decided),
            "realMs": _figures(self._real),
            "differences": [one.as_json() for one in reversed(self._differences)],
        }


def _milliseconds(duration_s: float | None) -> float | None:
    return None if duration_s is None else round(1000 * duration_s, 3)


def _figures(series: Histogram) -> dict[str, Any]:
    return {
        "pods": series.count,
        "mean": round(1000 * series.mean, 3) if series.count else None,
        "p99": round(1000 * series.quantile(0.99), 3) if series.count else None,
    }
