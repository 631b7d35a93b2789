"""Why a pod has no node, from its object and what the host remembers."""

from __future__ import annotations

from typing import Any

import pytest
from berth_sdk.kube_object import KubeObject
from berth_sim.commands.outcome import Witness, message_of
from support.manifest_objects import pod_object

NOBODY = Witness(scheduler_names={"default-scheduler"}, preempted_by=lambda _: None, gate=lambda _: None)


def with_condition(**condition: Any) -> KubeObject:
    status = {"conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", **condition}]}
    return KubeObject.of(pod_object("web") | {"status": status})


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(None, "deleted while the simulation ran", id="gone"),
        pytest.param(
            with_condition(status="False", reason="Unschedulable", message="0/1 nodes are available: x."),
            "0/1 nodes are available: x.",
            id="the condition's message",
        ),
        pytest.param(
            with_condition(status="False", reason="SchedulerError"),
            "SchedulerError",
            id="its reason",
        ),
        pytest.param(KubeObject.of(pod_object("web")), "", id="nothing is known"),
    ],
)
def test_message_of_a_pod_names_why_it_has_no_node(pod: KubeObject | None, want: str) -> None:
    assert message_of("default/web", pod, NOBODY) == want


def test_pod_without_a_condition_says_how_its_latest_attempt_ended() -> None:
    witness = Witness(
        scheduler_names={"default-scheduler"},
        preempted_by=lambda _: None,
        gate=lambda _: None,
        last_attempt=lambda _: "skipped",
    )
    assert message_of("default/web", KubeObject.of(pod_object("web")), witness) == "skipped"


def test_victim_that_still_terminates_names_the_pod_that_took_its_place() -> None:
    witness = Witness(
        scheduler_names={"default-scheduler"}, preempted_by=lambda _: "default/new", gate=lambda _: None
    )
    going = pod_object("old", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert message_of("default/old", KubeObject.of(going), witness) == "preempted by default/new"
