"""Mutants of answers by content: rows that are not alike share an answer, or an answer outlives its content;
and the steps that show them. See `kept_mutants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from berth_host.framework.kept import merged_scores, merged_verdicts
from berth_plugins.node_ports import NodePorts
from berth_plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from berth_plugins.node_resources.fit import NodeResourcesFit
from berth_sdk.extension_points import NodeColumn, Plugin
from berth_sdk.kept import row_contents
from support.kept_mutants import begin_anew
from support.kept_objects import GPU
from support.kept_plugins import Fickle
from support.kept_steps import Mutant, Step, cycles, failing, node, once, placed
from support.kept_world import KeptMachine


def untrue(column: NodeColumn, *classes: type[Plugin]) -> Mutant:
    """`classes` read `column`, and do not say so."""

    def mutant(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
        for cls in classes:
            patch.setattr(cls, "reads", [one for one in cls.reads or () if one is not column])
        begin_anew(world)

    names = "_and_".join(cls.__name__ for cls in classes)
    mutant.__name__ = f"{names}_read_{column.name.lower()}_unsaid"
    mutant.__doc__ = f"{names}.reads lacks {column.name}."
    return mutant


def numbers_outlive_the_rows(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The content of a row is read once."""
    catch_up = row_contents._catch_up

    def at_first(numbers: list[int], follower: Any, columns: Any) -> None:
        if len(numbers) < columns.capacity:
            catch_up(numbers, follower, columns)

    patch.setattr(row_contents, "_catch_up", at_first)


def numbers_are_used_again(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The numbers of forgotten contents go to others."""

    def of(self: Any, content: Any, node_count: int) -> int:
        if content not in self._numbers and len(self._numbers) >= 1:
            self._numbers.clear()
        number: int = self._numbers.setdefault(content, len(self._numbers) + 1)
        return number

    patch.setattr(row_contents._Numbers, "of", of)


def errors_are_verdicts_of_content(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """An answer given while a plugin fails is kept for rows that are alike."""
    ask = merged_verdicts.MergedVerdicts._ask

    async def sound(self: Any, clients: Any, cycle: Any, nodes: Any) -> bool:
        await ask(self, clients, cycle, nodes)
        return True

    patch.setattr(merged_verdicts.MergedVerdicts, "_ask", sound)


def rows_pass_although_their_node_changed(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A few rows that moved get the verdict on their content, also after a change of their Node object."""
    recall = merged_verdicts.MergedVerdicts._recall

    def careless(self: Any, nodes: Any, slots: Any) -> bool:
        self._node_passed[list(slots)] = True
        return recall(self, nodes, slots)

    patch.setattr(merged_verdicts.MergedVerdicts, "_recall", careless)


def recalled_rows_are_not_summed_up(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The scores of a few rows that moved are learnt, and the totals stay."""
    recall, note_new = merged_scores.MergedScores._recall, merged_scores.MergedScores._note_new

    def careless(self: Any, nodes: Any, slots: Any) -> bool:
        patch.setattr(merged_scores.MergedScores, "_note_new", lambda self, slots, columns: None)
        try:
            return recall(self, nodes, slots)
        finally:
            patch.setattr(merged_scores.MergedScores, "_note_new", note_new)

    patch.setattr(merged_scores.MergedScores, "_recall", careless)


MUTANTS: Mapping[Mutant, tuple[Step, ...]] = {
    untrue(NodeColumn.REQUESTED, NodeResourcesFit, NodeResourcesBalancedAllocation): (
        node(4, 0),
        node(4, 1),
        cycles(requests={GPU: 1}),
        placed("a", requests={GPU: 1}),
        cycles(requests={GPU: 1}),
        placed("b", number=1),
        cycles(requests={GPU: 1}),
    ),
    untrue(NodeColumn.ALLOCATABLE, NodeResourcesFit, NodeResourcesBalancedAllocation): (
        cycles(cpu="2500m"),
        placed("a"),
        cycles(cpu="2500m"),
        placed("b", number=2),
        cycles(cpu="2500m"),
    ),
    untrue(NodeColumn.POD_COUNT, NodeResourcesFit, Fickle): (
        node(0, 1),
        cycles(),
        placed("a", cpu=3, memory="3Gi"),
        cycles(),
        placed("b", number=1, memory="1Gi"),
        placed("c", number=1, memory="1Gi"),
        placed("d", number=1, memory="1Gi"),
        cycles(),
    ),
    untrue(NodeColumn.HOST_PORTS, NodePorts): (
        node(0, 1),
        cycles(host_ports=[80]),
        placed("a", host_ports=[80]),
        cycles(host_ports=[80]),
        placed("b", number=1),
        cycles(host_ports=[80]),
    ),
    numbers_outlive_the_rows: (cycles(), placed("a"), cycles(), placed("b", cpu=3), cycles()),
    numbers_are_used_again: (
        node(0, 1),
        cycles(),
        placed("a"),
        cycles(),
        placed("b", number=1, cpu=4),
        cycles(),
    ),
    errors_are_verdicts_of_content: (
        node(0, 1),
        cycles(),
        placed("a"),
        failing("filter"),
        placed("b", number=1),
        once(),
    ),
    rows_pass_although_their_node_changed: (
        node(0, 1),
        cycles(),
        placed("a"),
        cycles(),
        node(3, 1),
        cycles(),
    ),
    recalled_rows_are_not_summed_up: (
        node(0, 1),
        node(0, 2),
        cycles(),
        placed("a"),
        cycles(),
        placed("b", number=1),
        cycles(),
        placed("c", number=2),
        cycles(),
    ),
}
