"""The labels of events, and their form for hint functions."""

from __future__ import annotations

import pytest
from berth_host.queue.events import QueueEvent, assigned_pod_deleted, force_activated, timed_out
from berth_sdk.events import ASSIGNED_POD, TARGET_POD, ActionType
from support.queue_parts import a_pod, node_added


@pytest.mark.parametrize(
    ("event", "want"),
    [
        pytest.param(node_added(), "NodeAdd", id="add"),
        pytest.param(QueueEvent("Node", ActionType.UPDATE_NODE_TAINT), "NodeUpdateNodeTaint", id="one kind"),
        pytest.param(
            QueueEvent(TARGET_POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
            "TargetPodUpdatePodSchedulingGatesEliminated",
            id="gates",
        ),
        pytest.param(QueueEvent(ASSIGNED_POD, ActionType.UPDATE), "AssignedPodUpdate", id="general update"),
        pytest.param(
            QueueEvent("storage.k8s.io/CSINode", ActionType.DELETE),
            "storage.k8s.io/CSINodeDelete",
            id="group",
        ),
        pytest.param(timed_out(), "UnschedulableTimeout", id="timeout"),
        pytest.param(force_activated(a_pod("a")), "ForceActivate", id="activation"),
    ],
)
def test_label_names_the_resource_and_the_action(event: QueueEvent, want: str) -> None:
    assert event.label == want


def test_hints_see_a_pod_event_whoever_the_pod_is() -> None:
    old = a_pod("a", node_name="n1")
    seen = assigned_pod_deleted(old).cluster_event
    assert (seen.resource, seen.action, seen.old, seen.new) == ("Pod", "delete", old, None)
    own = QueueEvent(TARGET_POD, ActionType.UPDATE_POD_LABEL, old, old).cluster_event
    assert (own.resource, own.action) == ("Pod", "update.labels")


def test_hints_see_one_object_per_event_so_that_questions_can_be_grouped() -> None:
    event = node_added()
    assert event.cluster_event is event.cluster_event
