"""Mutants of the one step of equal pods: each breaks one condition. See `kept_mutants`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.framework.framework import Framework
from berth_host.framework.kept import keep_answers, merged_answers, one_step
from berth_host.model.nominated_pods import NOBODY
from support.kept_steps import DB, Mutant, Step, cycles, mood, node, nominated
from support.kept_world import KeptMachine


def the_step_outlives_the_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """PreScore is not asked again although a Node object changed."""

    def holds(self: Any, cycle: Any, pre_scored: Any, roles: Any) -> bool:
        same = cycle.skip_filter == self._skip_filter and cycle.skip == self._skip
        return bool(same and roles is self._roles)

    patch.setattr(one_step.OneStep, "holds", holds)


def the_step_has_the_filters_of_another_pod(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A plugin that skipped Filter for an equal pod, and not for this one, is not asked."""

    def holds(self: Any, cycle: Any, pre_scored: Any, roles: Any) -> bool:
        same = pre_scored is self._pre_scored and roles is self._roles
        return same and cycle.skip == self._skip

    patch.setattr(one_step.OneStep, "holds", holds)


def the_step_leaves_out_whom_it_does_not_know(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The step is made although a plugin must be asked about the nodes for every pod."""
    asked = keep_answers.KeepAnswers.filter

    async def merged(self: Any, clients: Any, pre_score: Any, cycle: Any, *rest: Any) -> Any:
        passed = await asked(self, clients, pre_score, cycle, *rest)
        cycle.kept.filters = self.split(clients, cycle.kept.merged)[0]
        return passed

    patch.setattr(keep_answers.KeepAnswers, "filter", merged)


def the_step_takes_no_heed_of_nominations(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Pods with a nominated node do not count."""
    step_of = Framework._filter_step
    patch.setattr(Framework, "_filter_step", lambda self, cycle, nominated: step_of(self, cycle, NOBODY))


def the_step_is_that_of_all(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """One pod's step is taken for pods of other kinds."""
    steps: list[Any] = []

    def step_for(self: Any, cycle: Any) -> Any:
        if self._step is not None and not steps:
            steps.append(self._step)
        return steps[0] if steps else None

    patch.setattr(merged_answers.MergedAnswers, "step_for", step_for)


MUTANTS: Mapping[Mutant, tuple[Step, ...]] = {
    the_step_outlives_the_nodes: (cycles(labels=DB), node(3, 4), cycles(labels=DB)),
    the_step_has_the_filters_of_another_pod: (cycles(), mood(is_closed=True), cycles()),
    the_step_leaves_out_whom_it_does_not_know: (mood(is_closed=True), cycles(), cycles()),
    the_step_takes_no_heed_of_nominations: (cycles(), nominated("p1", 0, cpu=4), cycles()),
    the_step_is_that_of_all: (cycles(), cycles(), cycles(cpu=9)),
}
