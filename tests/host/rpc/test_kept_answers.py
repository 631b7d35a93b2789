"""Kept answers equal fresh ones, whatever happens in between; and the test notices when they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from berth_host.framework.kept import (
    keep_answers,
    merged_answers,
    merged_scores,
    merged_verdicts,
    plugin_answers,
)
from berth_host.framework.kept.leaders import Leaders
from berth_host.framework.kept.signing import Signers
from berth_plugins.node_name import NodeName
from berth_sdk import signature
from berth_sdk.extension_points import DependsOn, NoConcern
from berth_sdk.kept import follows, kept_answers, known_slots
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.tables import SlotFollower
from berth_sdk.tables.node_columns import NodeColumns
from berth_sdk.tables.node_images import NodeImages
from berth_sdk.tables.slot_log import SlotLog
from hypothesis import HealthCheck, settings
from support.kept_columns import NODES, PLACED, WAITING, Heights, KeptColumnsMachine, Licences
from support.tiers import examples

TestKeptColumns = pytest.mark.slow(KeptColumnsMachine.TestCase)
TestKeptColumns.settings = settings(
    max_examples=examples(8),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def _quietly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, with its change hidden from the logs of changed rows."""

    def silent(self: NodeColumns, *args: Any) -> Any:
        moved, node_moved = self.moved, self.node_moved
        self.moved, self.node_moved = SlotLog(), SlotLog()
        try:
            return method(self, *args)
        finally:
            self.moved, self.node_moved = moved, node_moved

    return silent


def changed_nodes_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Do not log a row whose node changed, or that got another node."""
    patch.setattr(NodeColumns, "set_node", _quietly(NodeColumns.set_node))
    patch.setattr(NodeColumns, "touch", _quietly(NodeColumns.touch))


def nodes_in_reused_slots_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Do not log a row whose node was removed, or that was given to a new node."""
    patch.setattr(NodeColumns, "remove", _quietly(NodeColumns.remove))
    patch.setattr(NodeColumns, "add", _quietly(NodeColumns.add))


def pods_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Do not log a row whose pods changed."""
    patch.setattr(NodeColumns, "set_usage", _quietly(NodeColumns.set_usage))
    patch.setattr(NodeColumns, "touch", _quietly(NodeColumns.touch))


def tables_built_anew_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Do not notice that a table was built again, so that its slots belong to other nodes."""
    moved_in = SlotFollower.moved_in

    def of_any_table(self: Any, columns: NodeColumns) -> Any:
        self._identity = None if self._identity is None else columns.identity
        return moved_in(self, columns)

    patch.setattr(SlotFollower, "moved_in", of_any_table)


def versions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Do not notice changes of the tables, for a plugin that reads all of a table."""
    patch.setattr(kept_answers, "_as_of", lambda nodes, versions: (nodes.columns.identity, versions))


def objects_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Do not notice changes of objects outside the tables."""
    patch.setattr(follows.Follows, "versions", lambda self: ())


def candidates_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Return the answer about some rows for other rows."""
    patch.setattr(known_slots.KnownSlots, "missing", lambda self, nodes: known_slots.NO_ROWS)


def labels_are_missing_in_the_signature(patch: pytest.MonkeyPatch) -> None:
    """Treat pods that differ as equal."""
    patch.setattr(follows, "wishes", _without("labels", {}))


def an_annotation_is_missing_in_the_signature(patch: pytest.MonkeyPatch) -> None:
    """Treat pods that differ as equal."""
    patch.setattr(Heights, "sign", lambda self, pod, nodes: ())


def the_required_node_is_missing_in_the_signature(patch: pytest.MonkeyPatch) -> None:
    """Treat pods that differ as equal."""
    patch.setattr(NodeName, "sign_fields", ())


def the_host_does_not_catch_up(patch: pytest.MonkeyPatch) -> None:
    """Use kept answers about rows that have changed since."""
    patch.setattr(merged_answers.MergedAnswers, "catch_up", lambda self, columns: None)


def the_host_forgets_no_verdict(patch: pytest.MonkeyPatch) -> None:
    """Use a verdict although its row has changed."""
    patch.setattr(merged_verdicts.MergedVerdicts, "forget", lambda self, moved, node_moved: None)


def the_host_forgets_no_score(patch: pytest.MonkeyPatch) -> None:
    """Use a score although its row has changed."""
    patch.setattr(merged_scores.MergedScores, "forget", lambda self, moved, node_moved: None)


def the_host_puts_verdicts_together_once(patch: pytest.MonkeyPatch) -> None:
    """Return the old verdicts on all nodes although one of them has changed."""
    put_together = merged_verdicts.MergedVerdicts._put_together
    kept: dict[Any, Any] = {}

    def once(self: Any, nodes: Any) -> Any:
        return kept.setdefault(self, put_together(self, nodes))

    patch.setattr(merged_verdicts.MergedVerdicts, "_put_together", once)


def the_host_believes_the_node(patch: pytest.MonkeyPatch) -> None:
    """Do not call plugins that judge by the Node again although the Node has changed."""
    forget = merged_verdicts.MergedVerdicts.forget
    patch.setattr(
        merged_verdicts.MergedVerdicts, "forget", lambda self, moved, node_moved: forget(self, moved, ())
    )


def the_host_believes_the_score_of_the_node(patch: pytest.MonkeyPatch) -> None:
    """Do not call plugins that score by the Node again although the Node has changed."""
    forget = merged_scores.MergedScores.forget
    patch.setattr(
        merged_scores.MergedScores, "forget", lambda self, moved, node_moved: forget(self, moved, ())
    )


def skips_hold_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Use a SKIP although the objects that it follows from have changed."""
    patch.setattr(Licences, "sign", lambda self, pod, nodes: NoConcern.CYCLE)


def a_skip_is_kept_that_was_not_signed(patch: pytest.MonkeyPatch) -> None:
    """Keep the SKIP of a plugin that did not sign it."""
    patch.setattr(Licences, "sign", lambda self, pod, nodes: pod.priority)
    patch.setattr(keep_answers.KeptForPod, "skips", lambda self, plugin, *points: True)


def counts_of_images_are_not_copied_anew(patch: pytest.MonkeyPatch) -> None:
    """Use the old counts of images although the row was copied since."""
    refresh = NodeImages.refresh_row
    patch.setattr(NodeImages, "refresh_row", lambda self, slot: bool(refresh(self, slot)) and False)


def the_host_keeps_its_sums(patch: pytest.MonkeyPatch) -> None:
    """Do not update the total for rows with new scores."""
    patch.setattr(merged_scores._Column, "change", lambda self, rows, total: False)


def the_host_keeps_the_best(patch: pytest.MonkeyPatch) -> None:
    """Do not update the rows with the highest total."""
    patch.setattr(Leaders, "change", lambda self, positions, total: None)


def the_host_mixes_up_pods(patch: pytest.MonkeyPatch) -> None:
    """Treat pods that differ as equal in the host."""
    patch.setattr(Signers, "sign", lambda self, pod, nodes: ({one.name: () for one in self.all}, ()))


def a_column_does_not_catch_up(patch: pytest.MonkeyPatch) -> None:
    """Use one plugin's kept answers about rows that have changed since."""
    catch_up = kept_answers.RowColumn.catch_up

    def never(self: Any, columns: Any) -> None:
        if not len(self._known):
            catch_up(self, columns)

    patch.setattr(kept_answers.RowColumn, "catch_up", never)


def what_was_said_is_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Use the answers of PreFilter and PreScore although a Node object has changed."""
    patch.setattr(plugin_answers.SignatureAnswers, "catch_up", lambda self, nodes_version: None)
    patch.setattr(merged_answers.MergedAnswers, "catch_up", lambda self, columns: None)


def answers_are_kept_without_a_declaration(patch: pytest.MonkeyPatch) -> None:
    """Treat a plugin without depends_on as one that depends on the tables."""
    made = follows.Follows.__init__

    def counting(self: Any, plugin: str, depends_on: DependsOn | None, *args: Any, **more: Any) -> None:
        made(self, plugin, depends_on or DependsOn.TABLE, *args, **more)

    patch.setattr(follows.Follows, "__init__", counting)


def columns_are_kept_without_a_declaration(patch: pytest.MonkeyPatch) -> None:
    """Treat a plugin without depends_on as one that depends on the Node."""
    made = follows.Follows.__init__

    def counting(self: Any, plugin: str, depends_on: DependsOn | None, *args: Any, **more: Any) -> None:
        made(self, plugin, depends_on or DependsOn.NODE, *args, **more)

    patch.setattr(follows.Follows, "__init__", counting)


def _without(field: str, value: Any) -> Callable[[Pod], bytes]:
    return lambda pod: signature.signature(replace(pod, **{field: value}))


Step = tuple[str, dict[str, Any]]
_CORDONED = NODES[3]


def _cycle(number: int) -> Step:
    return "cycles", {"pod": WAITING[number]}


def _node(node: Node, number: int) -> Step:
    return "node_comes_or_changes", {"node": node, "number": number}


def _gone(number: int) -> Step:
    return "node_goes_and_another_may_take_its_name", {"number": number, "again": None}


def _placed(number: int, uid: str) -> Step:
    settings = {"pod": PLACED[number], "uid": uid, "number": 0, "bound": False}
    return "pod_is_assumed_bound_or_changed", settings


def _service(name: str) -> Step:
    return "object_comes_changes_or_goes", {"name": name, "zone": "a"}


def _hidden(height: int) -> Step:
    return "what_nobody_sees_changes", {"height": height}


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[Step, ...]] = {
    changed_nodes_are_ignored: (_cycle(0), _node(_CORDONED, 1), _cycle(0)),
    # The slot is free once the copy has confirmed the removal.
    nodes_in_reused_slots_are_ignored: (_cycle(0), _gone(0), _cycle(1), _node(_CORDONED, 0), _cycle(0)),
    pods_are_ignored: (_cycle(2), _placed(1, "a"), _cycle(2)),
    tables_built_anew_are_ignored: (_cycle(0), _node(_CORDONED, 1), ("copy_starts_anew", {}), _cycle(0)),
    versions_are_ignored: (_cycle(0), _placed(0, "a"), _cycle(0)),
    objects_are_ignored: (_cycle(0), ("object_comes_changes_or_goes", {"name": "s", "zone": "a"}), _cycle(0)),
    candidates_are_ignored: (_node(_CORDONED, 1), _cycle(0)),
    labels_are_missing_in_the_signature: (_placed(0, "a"), _cycle(0), _cycle(1)),
    an_annotation_is_missing_in_the_signature: (_cycle(4), _cycle(5)),
    the_required_node_is_missing_in_the_signature: (_cycle(0), _cycle(3)),
    the_host_does_not_catch_up: (_cycle(0), _node(_CORDONED, 1), _cycle(0)),
    the_host_forgets_no_verdict: (_cycle(2), _placed(1, "a"), _cycle(2)),
    the_host_forgets_no_score: (_cycle(0), _placed(0, "a"), _cycle(0)),
    the_host_puts_verdicts_together_once: (
        _node(_CORDONED, 1),
        _cycle(0),
        _node(_CORDONED, 2),
        _cycle(0),
    ),
    the_host_believes_the_node: (_cycle(0), _node(_CORDONED, 1), _cycle(0)),
    the_host_believes_the_score_of_the_node: (_cycle(0), _node(NODES[2], 0), _cycle(0)),
    skips_hold_for_ever: (_cycle(0), _service("s"), _service("t"), _cycle(0)),
    counts_of_images_are_not_copied_anew: (
        _node(NODES[4], 0),
        _node(NODES[0], 1),
        _cycle(0),
        _node(NODES[4], 1),
        _cycle(0),
        _placed(0, "a"),
        _cycle(0),
    ),
    the_host_keeps_its_sums: (_cycle(0), _placed(0, "a"), _cycle(0)),
    the_host_keeps_the_best: (_cycle(5), _placed(2, "a"), _cycle(5)),
    the_host_mixes_up_pods: (_cycle(0), _cycle(4)),
    # A pod is there: without pods all scores are 0, as those of a plugin that is left out.
    a_skip_is_kept_that_was_not_signed: (
        _placed(0, "a"),
        _cycle(0),
        _service("s"),
        _service("t"),
        _cycle(0),
    ),
    a_column_does_not_catch_up: (_cycle(0), _node(_CORDONED, 1), _cycle(0)),
    what_was_said_is_not_forgotten: (_cycle(0), _node(_CORDONED, 1), _cycle(0)),
    answers_are_kept_without_a_declaration: (_cycle(0), _hidden(3), _cycle(0)),
    columns_are_kept_without_a_declaration: (_cycle(0), _hidden(3), _cycle(0)),
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_invalidation_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(FAULTS[fault])
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        _run(FAULTS[fault])


def _run(steps: tuple[Step, ...]) -> None:
    machine = KeptColumnsMachine()
    for rule, values in steps:
        getattr(machine, rule)(**values)
