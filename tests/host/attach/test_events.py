"""The changes of attachments, as Events about the host's own pod."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from berth_host.attach.events import AttachmentEvents
from berth_host.attach.state import PlaceChange, ScopeChange, State, Swap


@dataclass
class Written:
    """One Event."""

    type: str
    reason: str
    action: str
    note: str


@pytest.fixture
def written() -> list[Written]:
    return []


@pytest.fixture
def events(written: list[Written]) -> AttachmentEvents:
    def write(*, type: str, reason: str, action: str, note: str) -> None:
        written.append(Written(type, reason, action, note))

    return AttachmentEvents(write)


def change(state: State, reason: str = "") -> PlaceChange:
    return PlaceChange(
        place="unix:///a.sock", plugins=("Demo", "Echo"), state=state, reason=reason, instance_id="i"
    )


def swap(reason: str, *, falls_back: bool) -> Swap:
    return Swap(plugin="Demo", before="i", instance_id="j", falls_back=falls_back, reason=reason)


@pytest.mark.parametrize(
    ("state", "kind", "reason"),
    [
        (State.ACTIVE, "Normal", "PluginActive"),
        (State.DEGRADED, "Warning", "PluginDegraded"),
        (State.QUARANTINED, "Warning", "PluginQuarantined"),
        (State.REJECTED, "Warning", "PluginRejected"),
        (State.BACKOFF, "Warning", "PluginNotAttached"),
    ],
    ids=lambda value: value.value if isinstance(value, State) else "",
)
def test_state_that_a_user_acts_on_is_an_event_of_the_pod(
    events: AttachmentEvents, written: list[Written], state: State, kind: str, reason: str
) -> None:
    events.place_changed(change(state, "it says so"))
    (event,) = written
    assert (event.type, event.reason) == (kind, reason)
    assert event.note == "plugin Demo, Echo at unix:///a.sock: it says so"
    assert event.action == "Attaching Demo, Echo"


def test_place_whose_plugins_are_not_known_is_named_alone(
    events: AttachmentEvents, written: list[Written]
) -> None:
    events.place_changed(replace(change(State.REJECTED, "speaks another contract"), plugins=()))
    assert written[0].note == "unix:///a.sock: speaks another contract"


def test_other_states_are_none(events: AttachmentEvents, written: list[Written]) -> None:
    for state in (State.STANDBY, State.CLOSED):
        events.place_changed(change(state))
    assert written == []


def test_newer_instance_is_a_swap_and_an_older_one_a_warning(
    events: AttachmentEvents, written: list[Written]
) -> None:
    events.swapped(swap("", falls_back=False))
    events.swapped(swap("lost its instance", falls_back=True))
    assert [(one.type, one.reason, one.note) for one in written] == [
        ("Normal", "PluginSwapped", "plugin Demo: instance j replaces i"),
        (
            "Warning",
            "PluginFellBack",
            "plugin Demo: instance j replaces i, an older one: lost its instance",
        ),
    ]


def test_another_scope_says_whom_the_plugin_concerns_now(
    events: AttachmentEvents, written: list[Written]
) -> None:
    change = ScopeChange(plugin="Demo", instance_id="j", before="every pod", after="namespaces a")
    events.scope_changed(change)
    (event,) = written
    assert (event.type, event.reason) == ("Normal", "PluginScopeChanged")
    assert event.note == ("plugin Demo: instance j concerns namespaces a; the one before concerned every pod")


def test_host_that_does_not_know_its_pod_writes_none() -> None:
    events = AttachmentEvents(None)
    events.place_changed(change(State.ACTIVE))
    events.swapped(swap("", falls_back=False))
