"""Budgets: which pods they cover, however long their selectors are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from berth_host.config.host_rules import RULES_1_36, RULES_1_37
from berth_host.preemption.budgets import Budget, violating
from berth_sdk.selectors import LabelSelector, Requirement
from berth_sdk.tables import PodTable
from berth_sdk.testing import make_pod

LABELS: tuple[dict[str, str], ...] = ({"app": "web"}, {"app": "db"}, {}, {"app": "web", "key-9": "x"})


def victims(namespace: str = "default") -> PodTable:
    pods = [
        make_pod(f"p{i}", namespace=namespace, labels=labels, node="n1", uid=f"u{i}")
        for i, labels in enumerate(LABELS)
    ]
    return PodTable.of(pods)


def budget(selector: dict[str, Any], **fields: Any) -> Budget:
    wanted = {"namespace": "default", "allowed": 0, "disrupted": frozenset(), **fields}
    return Budget(selector=LabelSelector.of(selector), **wanted)


def broken(one: Budget, pods: PodTable) -> list[bool]:
    found = violating([one], pods, np.arange(len(pods)), np.array([0, len(pods)]))
    return [bool(breaks) for breaks in found]


def absent(count: int) -> list[dict[str, Any]]:
    return [{"key": f"key-{i}", "operator": "DoesNotExist"} for i in range(count)]


@pytest.mark.parametrize("count", [10, 1000])
@pytest.mark.parametrize("rules", [RULES_1_36, RULES_1_37])
def test_long_selectors_cover_as_short_ones_at_one_look_for_each_set_of_labels(
    count: int, rules: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = victims()
    only_web = budget({"matchLabels": {"app": "web"}, "matchExpressions": absent(count)}, rules=rules)
    every = budget({"matchExpressions": absent(count)}, rules=rules)
    judged: list[object] = []
    judge = Requirement.judged

    def counting(self: Requirement, table: Any) -> Any:
        judged.append(self)
        return judge(self, table)

    monkeypatch.setattr(Requirement, "judged", counting)
    assert broken(only_web, pods) == [True, False, False, False]
    assert broken(every, pods) == [True, True, rules.counts_empty_budgets, False]
    assert len(judged) <= 21
    assert broken(every, victims("other")) == [False] * 4
