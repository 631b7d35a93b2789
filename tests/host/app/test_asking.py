"""Manifests that users write -> pods as the API server would store them, for a question."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.app.asking import pod_of
from berth_host.errors.endpoints import QuestionError
from berth_host.model.clock import ManualClock
from support.hosts import World, node, pod


def test_pod_of_a_cluster_is_asked_about_without_its_node_and_its_uid() -> None:
    written = pod("web", nodeName="a", priorityClassName="system-node-critical")
    written["metadata"] |= {"uid": "1", "resourceVersion": "7", "labels": {"app": "web"}}
    found = pod_of(written | {"status": {"phase": "Running"}}, ManualClock(5.0))
    assert (found.key, found.node_name, dict(found.labels)) == ("default/web", "", {"app": "web"})
    assert (found.priority, found.scheduler_name) == (2_000_001_000, "default-scheduler")
    assert found.uid not in ("", "1")
    assert {item.key for item in found.tolerations} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }


def test_pod_with_a_generated_name_gets_one() -> None:
    written = pod("x")
    written["metadata"] = {"generateName": "web-"}
    assert pod_of(written, ManualClock(5.0)).key == "default/web-x"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"kind": "Node", "apiVersion": "v1"}, "must be a Pod"),
        ({"kind": "Pod", "apiVersion": "v1"}, "needs metadata and spec"),
        (pod("x", cpu="much"), "much"),
        (pod("x", schedulerName="other"), "schedulerName 'other', and this scheduler places default-"),
        (pod("x", priorityClassName="gold"), "give spec.priority"),
    ],
    ids=["node", "empty", "quantity", "scheduler", "class"],
)
async def test_question_that_cannot_be_answered_names_the_cure(manifest: dict[str, Any], said: str) -> None:
    async with World([node("a")]) as world:
        with pytest.raises(QuestionError, match=said):
            await world.host.ask_fit(manifest)
