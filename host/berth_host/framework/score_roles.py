"""The plugins' roles in scoring a pod. Called by `scoring`, kept for pods that are the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from berth_host.framework.score_table import WeightedPlugin
from berth_host.rpc.cycle import Cycle


@dataclass(frozen=True, slots=True, eq=False)
class ScoreRoles:
    """The Score plugins `score`, in configured order, once PreScore is over and the same plugins `skip`
    everything, or Score alone. `asked`: plugins with something to say; of these, `sharing` share their scores
    with equal pods, `others` do not.
    """

    score: tuple[WeightedPlugin, ...]
    skip: frozenset[str]
    skip_score: frozenset[str]
    asked: tuple[WeightedPlugin, ...]
    sharing: tuple[WeightedPlugin, ...]
    others: tuple[WeightedPlugin, ...]

    @classmethod
    def of(cls, score: tuple[WeightedPlugin, ...], cycle: Cycle, by_row: Collection[str]) -> ScoreRoles:
        """As the cycle stands; `by_row`: the plugins that share."""
        skip, skip_score = cycle.skip, frozenset(cycle.skip_score)
        asked = tuple(plugin for plugin in score if plugin.client.name not in skip | skip_score)
        return cls(
            score,
            skip,
            skip_score,
            asked,
            tuple(plugin for plugin in asked if plugin.client.name in by_row),
            tuple(plugin for plugin in asked if plugin.client.name not in by_row),
        )

    def fit(self, score: tuple[WeightedPlugin, ...], cycle: Cycle) -> bool:
        """Whether these roles are this cycle's as well."""
        return self.score is score and self.skip == cycle.skip and self.skip_score == cycle.skip_score
