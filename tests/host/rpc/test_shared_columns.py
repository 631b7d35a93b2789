"""Shared columns equal fresh ones, whatever happens in between; and the test notices when they do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from berth_sdk import _shared_columns, signature
from berth_sdk.pod import Pod
from berth_sdk.tables.node_columns import NodeColumns
from berth_sdk.tables.slot_log import SlotLog
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from support.shared_columns import SharedColumnsMachine

TestSharedColumns = SharedColumnsMachine.TestCase
TestSharedColumns.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def _quietly(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, without a word in the logs of moved rows."""

    def silent(self: NodeColumns, *args: Any) -> Any:
        moved, node_moved = self.moved, self.node_moved
        self.moved, self.node_moved = SlotLog(), SlotLog()
        try:
            return method(self, *args)
        finally:
            self.moved, self.node_moved = moved, node_moved

    return silent


def changed_nodes_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A node changed, or came into a slot that another one had."""
    patch.setattr(NodeColumns, "set_node", _quietly(NodeColumns.set_node))
    patch.setattr(NodeColumns, "touch", _quietly(NodeColumns.touch))


def nodes_in_reused_slots_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A node went, and it or another one got its slot."""
    patch.setattr(NodeColumns, "remove", _quietly(NodeColumns.remove))
    patch.setattr(NodeColumns, "add", _quietly(NodeColumns.add))


def pods_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Pods came or went."""
    patch.setattr(NodeColumns, "set_usage", _quietly(NodeColumns.set_usage))
    patch.setattr(NodeColumns, "touch", _quietly(NodeColumns.touch))


def tables_built_anew_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A copy was synchronised from nothing: its slots belong to other nodes."""
    original = _shared_columns.RowColumns.column

    def column(self: Any, pod: Pod, nodes: Any) -> Any:
        self._table = nodes._columns
        return original(self, pod, nodes)

    patch.setattr(_shared_columns.RowColumns, "column", column)


def versions_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Anything moved in the tables, for a plugin that looks at all of it."""
    original = _shared_columns.TableAnswers.find

    def find(self: Any, pod: Pod, nodes: Any) -> Any:
        self._table, self._version = nodes._columns, (nodes._columns.version, self._versions())
        return original(self, pod, nodes)

    patch.setattr(_shared_columns.TableAnswers, "find", find)


def objects_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Objects beside the tables moved."""
    patch.setattr(_shared_columns.SharedAnswers, "_versions", lambda self: ())


def candidates_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An answer about some rows is handed out for others."""
    patch.setattr(_shared_columns.RowColumn, "missing", lambda self, nodes: _shared_columns._NO_ROWS)


def labels_are_missing_in_the_signature(patch: pytest.MonkeyPatch) -> None:
    """Pods that differ count as equal."""
    patch.setattr(_shared_columns, "signature", _without("labels", {}))


def annotations_are_missing_in_the_signature(patch: pytest.MonkeyPatch) -> None:
    """Pods that differ count as equal."""
    patch.setattr(_shared_columns, "signature", _without("annotations", {}))


def the_required_node_is_missing_in_the_key(patch: pytest.MonkeyPatch) -> None:
    """Pods that differ count as equal."""
    patch.setattr(_shared_columns, "_key", signature.signature)


def _without(field: str, value: Any) -> Callable[[Pod], bytes]:
    return lambda pod: signature.signature(replace(pod, **{field: value}))


FAULTS = (
    changed_nodes_are_ignored,
    nodes_in_reused_slots_are_ignored,
    pods_are_ignored,
    tables_built_anew_are_ignored,
    versions_are_ignored,
    objects_are_ignored,
    candidates_are_ignored,
    labels_are_missing_in_the_signature,
    annotations_are_missing_in_the_signature,
    the_required_node_is_missing_in_the_key,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_invalidation_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    searching = settings(
        max_examples=300,
        stateful_step_count=50,
        deadline=None,
        phases=[Phase.generate],
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    with pytest.raises((AssertionError, IndexError)):
        run_state_machine_as_test(SharedColumnsMachine, settings=searching)
