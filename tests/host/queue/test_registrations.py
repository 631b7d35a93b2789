"""Which events match the registrations of which plugin."""

from __future__ import annotations

import pytest
from berth_host.queue.events import QueueEvent, timed_out
from berth_host.queue.registrations import Registration, RegistrationIndex, registrations_of
from berth_sdk.events import ANY_RESOURCE, ASSIGNED_POD, TARGET_POD, ActionType, EventInterest, Hint
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from support.queue_parts import a_pod, node_added

LABEL, TAINT = ActionType.UPDATE_NODE_LABEL, ActionType.UPDATE_NODE_TAINT


@pytest.mark.parametrize(
    ("resource", "registered", "event", "want"),
    [
        pytest.param("Node", LABEL, QueueEvent("Node", LABEL), True, id="same kind"),
        pytest.param("Node", LABEL | TAINT, QueueEvent("Node", TAINT), True, id="one of two kinds"),
        pytest.param("Node", LABEL, QueueEvent("Node", TAINT), False, id="other kind"),
        pytest.param("Pod", LABEL, QueueEvent("Node", LABEL), False, id="other resource"),
        pytest.param(
            "Pod",
            ActionType.UPDATE_POD_LABEL,
            QueueEvent(ASSIGNED_POD, ActionType.UPDATE),
            False,
            id="general update, one kind registered",
        ),
        pytest.param(
            "Pod",
            ActionType.UPDATE,
            QueueEvent(ASSIGNED_POD, ActionType.UPDATE_POD_LABEL),
            True,
            id="one kind, general update registered",
        ),
        pytest.param("Pod", ActionType.ADD, QueueEvent(ASSIGNED_POD, ActionType.ADD), True, id="bound pod"),
        pytest.param(
            "Pod",
            ActionType.UPDATE,
            QueueEvent(TARGET_POD, ActionType.UPDATE),
            True,
            id="pending pod",
        ),
        pytest.param("Node", ActionType.ADD, timed_out(), False, id="wildcard happened"),
        pytest.param("*", ActionType.ALL, QueueEvent("Node", LABEL), True, id="wildcard registered"),
    ],
)
def test_registration_matches_by_resource_bits_and_number(
    resource: str, registered: ActionType, event: QueueEvent, want: bool
) -> None:
    assert Registration(resource=resource, action=int(registered)).matches(event) is want


def test_plugin_without_declared_events_gets_every_event_and_requeues() -> None:
    registrations = registrations_of(None)
    assert [item.resource for item in registrations] == list(ANY_RESOURCE)
    assert all(item.action == ActionType.ALL and not item.ask for item in registrations)


def test_plugin_that_declares_an_empty_list_gets_no_event() -> None:
    assert registrations_of(()) == ()


def test_pods_that_wait_for_nodes_are_moved_when_a_node_loses_a_taint() -> None:
    found = registrations_of([EventInterest("Node", ("add",), Hint.ASK_PLUGIN)])
    assert [(item.action, item.ask, item.implied) for item in found] == [(1, True, False), (16, False, True)]


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param(("update.labels",), id="no node add"),
        pytest.param(("add", "update.taints"), id="taints as well"),
        pytest.param(("add", "update"), id="every update"),
    ],
)
def test_no_registration_is_implied_if_the_plugin_declares_it(actions: tuple[str, ...]) -> None:
    assert len(registrations_of([EventInterest("Node", actions)])) == 1


def test_selector_looks_at_the_new_object_or_at_the_deleted_one() -> None:
    (registration,) = registrations_of([EventInterest("Pod", label_selector="app=web")])
    web, db = a_pod("web", labels={"app": "web"}), a_pod("db", labels={"app": "db"})
    assert registration.selects(QueueEvent(ASSIGNED_POD, ActionType.UPDATE, db, web))
    assert not registration.selects(QueueEvent(ASSIGNED_POD, ActionType.UPDATE, web, db))
    assert registration.selects(QueueEvent(ASSIGNED_POD, ActionType.DELETE, web))


def test_selector_reads_the_labels_of_any_kind_of_object() -> None:
    (registration,) = registrations_of([EventInterest("PersistentVolume", label_selector="tier=fast")])
    fast = KubeObject.of({"kind": "PersistentVolume", "metadata": {"labels": {"tier": "fast"}}})
    plain = KubeObject.of({"kind": "PersistentVolume", "metadata": {}})
    assert registration.selects(QueueEvent("PersistentVolume", ActionType.ADD, new=fast))
    assert not registration.selects(QueueEvent("PersistentVolume", ActionType.ADD, new=plain))


def test_index_finds_the_registrations_of_each_plugin() -> None:
    index = RegistrationIndex(
        {
            "Fit": registrations_of([EventInterest("Node", ("add",), Hint.ASK_PLUGIN)]),
            "Name": registrations_of([EventInterest("Node", ("add", "update.labels"))]),
        }
    )
    assert {name: len(items) for name, items in index.matching(node_added()).items()} == {"Fit": 1, "Name": 1}
    taint = QueueEvent("Node", TAINT, Node(name="n"), Node(name="n"))
    assert sorted(index.matching(taint)) == ["Fit", "Name"]
    assert [item.action for item in index.declared_by("Fit")] == [1]
