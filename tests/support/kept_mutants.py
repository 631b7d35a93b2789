"""Mutants of kept answers: each breaks one invalidation, and comes with the steps that show it.

Mutants patch what is private, of the host as of the SDK: an invalidation has no public switch. Used by
`tests/host/framework/kept/test_keep_answers.py`. A new invalidation comes with a mutant here; one in a
signature or in what a plugin keeps itself with one in `kept_sign_mutants`, one in answers by content with one
in `kept_content_mutants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from berth_host.framework import scoring
from berth_host.framework.kept import (
    merged_answers,
    merged_scores,
    merged_verdicts,
    plugin_answers,
    signing,
)
from berth_host.framework.kept.leaders import Leaders
from berth_host.framework.kept.signing import keeps_by_row
from berth_sdk.extension_points import DependsOn
from berth_sdk.kept.follows import JointVersions
from berth_sdk.kept.kept_answers import RowColumn
from berth_sdk.pod import Pod
from berth_sdk.tables import SlotFollower
from support.kept_objects import GPU
from support.kept_steps import (
    DB,
    Mutant,
    Step,
    cycles,
    failing,
    gone,
    mood,
    node,
    nominated,
    once,
    placed,
    simply,
    thing,
)
from support.kept_world import KeptMachine

# --- what is kept of pods that are the same to all -------------------------------------------------------


def known_pods_do_not_catch_up(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Verdicts that are put together outlive their rows."""
    patch.setattr(merged_answers.MergedAnswers, "catch_up", lambda self, columns: None)


def a_log_that_forgot_says_nothing_moved(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Nobody hears that everything may have moved."""
    moved_in = SlotFollower.moved_in
    patch.setattr(
        SlotFollower,
        "moved_in",
        lambda self, columns: moved_in(self, columns) or ([] if self._what.name != "VOLUMES" else None),
    )


def verdicts_outlive_their_rows(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A merged verdict is kept although its row moved."""
    patch.setattr(merged_verdicts.MergedVerdicts, "forget", lambda self, moved, node_moved: None)


def verdicts_outlive_the_node(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Plugins that judge the Node alone are not asked again although it changed."""
    forget = merged_verdicts.MergedVerdicts.forget
    patch.setattr(
        merged_verdicts.MergedVerdicts, "forget", lambda self, moved, node_moved: forget(self, moved, ())
    )


def verdicts_outlive_all_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A plugin that judges by all nodes is not asked again although one of them changed."""
    patch.setattr(merged_verdicts.MergedVerdicts, "forget_about_all_nodes", lambda self: None)


def verdicts_outlive_their_plugins(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """PreFilter left other plugins in than the last time."""
    prepare = merged_verdicts.MergedVerdicts._prepare

    def same(self: Any, clients: Any, capacity: int) -> None:
        prepare(self, self._clients or clients, capacity)

    patch.setattr(merged_verdicts.MergedVerdicts, "_prepare", same)


def verdicts_are_put_together_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The verdicts on all nodes stay what they were although one of them is another one by now."""
    put_together = merged_verdicts.MergedVerdicts._put_together
    kept: dict[Any, Any] = {}

    def once_for_all(self: Any, nodes: Any) -> Any:
        return kept.setdefault((id(self), len(nodes)), put_together(self, nodes))

    patch.setattr(merged_verdicts.MergedVerdicts, "_put_together", once_for_all)


def errors_are_verdicts(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """An answer given while a plugin fails is kept."""
    keep = merged_verdicts.MergedVerdicts._keep

    def sound(self: Any, clients: Any, slots: Any, found: Any, asked: Any) -> bool:
        keep(self, clients, slots, found, asked)
        self._known.learn(slots, in_use=found.table.snapshot_size)
        return True

    patch.setattr(merged_verdicts.MergedVerdicts, "_keep", sound)


def nominations_are_not_told_apart(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A verdict with other nominated pods is taken over."""
    first_pass = merged_verdicts.NominatedVerdicts.first_pass

    async def same(
        self: Any, clients: Any, cycle: Any, statuses: Any, rows: Any, nominated: Any, second: Any
    ) -> Any:
        nominated.marks[nominated.marks != 0] = 1
        return await first_pass(self, clients, cycle, statuses, rows, nominated, second)

    patch.setattr(merged_verdicts.NominatedVerdicts, "first_pass", same)


def own_nomination_is_not_told_apart(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The node's nominated pods are the same with the pod itself and without."""
    counted_for = world.nominations[0].counted_for

    def without_own(one: Pod, nodes: Any) -> Any:
        counted = counted_for(one, nodes)
        if counted.marks is not None:
            # All that are nominated in the steps are nominated to one node.
            version = world.columns[0].versions.max()
            counted.marks = np.where(counted.marks < 0, version, counted.marks)
        return counted

    patch.setattr(world.nominations[0], "counted_for", without_own)


def scores_outlive_their_rows(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A score in the sum is kept although its row moved."""
    patch.setattr(merged_scores.MergedScores, "forget", lambda self, moved, node_moved: None)


def scores_outlive_all_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A plugin that scores by all nodes is not asked again although one of them changed."""
    patch.setattr(merged_scores.MergedScores, "forget_about_all_nodes", lambda self: None)


def scores_outlive_their_plugins(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """PreScore left other plugins in than the last time."""
    prepare = merged_scores.MergedScores._prepare

    def same(self: Any, plugins: Any, capacity: int) -> None:
        prepare(self, self._plugins or plugins, capacity)

    patch.setattr(merged_scores.MergedScores, "_prepare", same)


def failures_are_scores(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The stand-in of a policy is kept."""
    learn = merged_scores.MergedScores._learn

    async def sound(self: Any, cycle: Any, nodes: Any, missing: Any) -> Any:
        failed = await learn(self, cycle, nodes, missing)
        self._known.learn(nodes.slots.take(missing), in_use=nodes.snapshot_size)
        return failed

    patch.setattr(merged_scores.MergedScores, "_learn", sound)


def sums_are_not_put_right(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A row was scored anew, the total stays."""
    patch.setattr(merged_scores._Column, "change", lambda self, rows, total: False)


def sums_are_of_other_candidates(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """As many rows, but not the same, have passed."""
    add_up = merged_scores.MergedScores._add_up

    def same(self: Any, nodes: Any) -> None:
        if self._rows is not None and len(self._rows) == len(nodes.slots):
            self._rows = nodes.slots
        add_up(self, nodes)

    patch.setattr(merged_scores.MergedScores, "_add_up", same)


def the_best_stay_the_best(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A total changed, the rows with the highest stay."""
    patch.setattr(Leaders, "change", lambda self, positions, total: None)


def the_best_are_never_found_anew(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Much changed, the rows with the highest stay."""
    patch.setattr(Leaders, "forget", lambda self: None)


def score_roles_are_kept(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Others skip Score by now."""
    patch.setattr(scoring.ScoreRoles, "fit", lambda self, score, cycle: True)


def pre_filter_outlives_the_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The list of plugins that skip is kept although a Node object changed."""
    catch_up = merged_answers.MergedAnswers.catch_up

    def keep(self: Any, columns: Any) -> None:
        kept = self.pre_filtered, self.states
        catch_up(self, columns)
        self.pre_filtered, self.states = kept

    patch.setattr(merged_answers.MergedAnswers, "catch_up", keep)


def pre_score_outlives_the_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Likewise at PreScore."""
    catch_up = merged_answers.MergedAnswers.catch_up

    def keep(self: Any, columns: Any) -> None:
        kept = self.pre_scored
        catch_up(self, columns)
        self.pre_scored = kept

    patch.setattr(merged_answers.MergedAnswers, "catch_up", keep)


# --- what is kept of one plugin --------------------------------------------------------------------------


def what_was_said_outlives_the_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The answers of a plugin at PreFilter and PreScore are kept although a Node object changed."""
    patch.setattr(plugin_answers.SignatureAnswers, "catch_up", lambda self, nodes_version: None)


def what_was_said_is_said_of_all(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """It is kept under whatever signature."""
    of = plugin_answers.PluginAnswers.of
    patch.setattr(plugin_answers.PluginAnswers, "of", lambda self, signature, nodes: of(self, (), nodes))


def columns_outlive_their_rows(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """One plugin's column is kept although rows moved."""
    catch_up = RowColumn.catch_up

    def at_first(self: Any, columns: Any) -> None:
        if len(self._known) < columns.capacity:
            catch_up(self, columns)

    patch.setattr(RowColumn, "catch_up", at_first)


def columns_outlive_all_nodes(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """The column of a plugin that goes by all nodes is kept where the node stands still."""
    catch_up = RowColumn.catch_up

    def by_node(self: Any, columns: Any) -> None:
        self._stale._of_all = False
        catch_up(self, columns)

    patch.setattr(RowColumn, "catch_up", by_node)


def columns_are_read_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A column that was read is handed out again although rows were written since."""
    keep = RowColumn.keep

    def quietly(self: Any, nodes: Any, missing: Any, numbers: Any) -> None:
        before = self._read
        keep(self, nodes, missing, numbers)
        self._read = before

    patch.setattr(RowColumn, "keep", quietly)


def scores_are_normalized_once(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Final scores are those of the raw ones before."""
    normalized = plugin_answers.SignatureAnswers.normalized

    def first(self: Any, signer: Any, raw: Any) -> Any:
        if self._final is not None and len(self._final[0]) == len(raw):
            return self._final[1]
        return normalized(self, signer, raw)

    patch.setattr(plugin_answers.SignatureAnswers, "normalized", first)


def errors_stay_in_columns(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """An error is kept as an answer."""
    patch.setattr(RowColumn, "forget", lambda self, nodes, missing: None)


def objects_are_ignored(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """Objects that are read beside the tables changed."""
    answers: Any = world.both[0].framework._answers
    patch.setattr(answers, "_versions_of_rows", JointVersions(()))


def verdicts_are_kept_without_a_declaration(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """A plugin without depends_on counts as one that judges by the Node."""

    def by_row(client: Any) -> bool:
        declared = replace(client.descriptor, depends_on=client.descriptor.depends_on or DependsOn.NODE)
        seen: Any = SimpleNamespace(
            follows=client.follows,
            is_served=client.is_served,
            settings=client.settings,
            is_scoped=client.is_scoped,
            descriptor=declared,
        )
        return keeps_by_row(seen)

    patch.setattr(signing, "keeps_by_row", by_row)
    begin_anew(world)


def skips_are_kept_without_a_declaration(patch: pytest.MonkeyPatch, world: KeptMachine) -> None:
    """What a plugin without depends_on answered at PreFilter is kept for pods with an equal signature."""
    made = signing.Signer.__init__

    def keeping(self: Any, client: Any, local: Any) -> None:
        made(self, client, local)
        self.keeps = True

    patch.setattr(signing.Signer, "__init__", keeping)
    begin_anew(world)


def begin_anew(world: KeptMachine) -> None:
    """Make the parts that were made before the mutant."""
    vars(world).update(vars(KeptMachine()))


MUTANTS: Mapping[Mutant, tuple[Step, ...]] = {
    verdicts_are_kept_without_a_declaration: (cycles(), mood(is_closed=True), cycles()),
    skips_are_kept_without_a_declaration: (cycles(labels=DB), mood(is_closed=True), cycles(labels=DB)),
    known_pods_do_not_catch_up: (cycles(), node(3, 0), cycles()),
    a_log_that_forgot_says_nothing_moved: (cycles(), node(3, 0), simply("logs_forget"), cycles()),
    verdicts_outlive_their_rows: (cycles(), placed("a", cpu=4), cycles()),
    verdicts_outlive_the_node: (cycles(), node(3, 0), cycles()),
    verdicts_outlive_all_nodes: (cycles(labels=DB), node(4, 2), cycles(labels=DB)),
    verdicts_outlive_their_plugins: (cycles(labels=DB), node(0, 1), cycles(labels=DB)),
    verdicts_are_put_together_once: (node(3, 1), cycles(), node(3, 2), cycles()),
    errors_are_verdicts: (once(), placed("a"), failing("filter"), once()),
    nominations_are_not_told_apart: (
        nominated("p1", 0, cpu=1),
        cycles(),
        nominated("p2", 0, cpu=3),
        cycles(),
    ),
    own_nomination_is_not_told_apart: (
        nominated("p5", 0, host_ports=[80]),
        nominated("p1", 0, cpu=4),
        cycles(host_ports=[80]),
        cycles(host_ports=[80]),
    ),
    scores_outlive_their_rows: (cycles(), placed("a"), cycles()),
    scores_outlive_all_nodes: (node(3, 4), cycles(labels=DB), node(0, 3), cycles(labels=DB)),
    scores_outlive_their_plugins: (cycles(labels=DB), node(3, 4), cycles(labels=DB)),
    failures_are_scores: (once(), placed("a"), failing("score"), once()),
    sums_are_not_put_right: (cycles(), placed("a"), cycles()),
    sums_are_of_other_candidates: (
        node(0, 3),
        placed("a", number=3, cpu=4),
        cycles(),
        gone("a"),
        placed("b", number=0, cpu=4),
        cycles(),
    ),
    the_best_stay_the_best: (cycles(), placed("a"), cycles()),
    the_best_are_never_found_anew: (placed("a", cpu="3500m"), cycles(), node(3, 0), cycles()),
    score_roles_are_kept: (cycles(labels=DB), node(3, 4), cycles(labels=DB)),
    pre_filter_outlives_the_nodes: (node(0, 1), cycles(labels=DB), node(1, 1), cycles(labels=DB)),
    pre_score_outlives_the_nodes: (cycles(labels=DB), node(3, 4), cycles(labels=DB)),
    what_was_said_outlives_the_nodes: (node(0, 1), cycles(labels=DB), node(1, 1), cycles(labels=DB)),
    what_was_said_is_said_of_all: (cycles(), cycles(cpu=3)),
    columns_outlive_their_rows: (once(), once(cpu=1), once(cpu=2), node(1, 0), once(cpu=3)),
    columns_outlive_all_nodes: (
        once(labels=DB),
        once(labels=DB, cpu=1),
        once(labels=DB, cpu=2),
        node(4, 2),
        once(labels=DB, cpu=3),
    ),
    # NodeAffinity reads names: no other node has an answer for the content of the changed one.
    columns_are_read_once: (
        once("zone a"),
        ("node_goes", {"number": 1}),
        once("zone a", cpu=1),
        once("zone a", cpu=2),
        node(2, 0),
        once("zone a", cpu=3),
    ),
    scores_are_normalized_once: (once(), once(cpu="1"), once(cpu="2"), node(4, 0), once(cpu="300m")),
    errors_stay_in_columns: (once(), once(cpu=1), placed("a"), failing("filter", cpu=2), once(cpu=3)),
    objects_are_ignored: (
        cycles(requests={GPU: 1}),
        thing("DeviceClass", "gpu", 1),
        cycles(requests={GPU: 1}),
    ),
}
