"""A plugin's state in one cycle: its values, its published values, and the values that a copy shares."""

from __future__ import annotations

from berth_sdk.cycle_state import (
    PODS_TO_ACTIVATE,
    CycleState,
    SharedState,
    StateNotFoundError,
    read_pods_to_activate,
)
from berth_sdk.testing.builders import make_pod
from pytest import mark, raises


class Counter:
    """A value that has to be copied for a what-if question."""

    def __init__(self, count: int) -> None:
        self.count = count

    def clone(self) -> Counter:
        return Counter(self.count)


def test_a_value_is_read_until_it_is_deleted() -> None:
    state = CycleState("c", plugin="Demo")
    state.write("lights", 3)
    assert (state.read("lights"), state.get("lights")) == (3, 3)
    state.delete("lights")
    state.delete("lights")
    assert state.get("lights", "none") == "none"
    with raises(StateNotFoundError, match=r"^the cycle's state has no 'lights': write it earlier"):
        state.read("lights")


def test_a_value_is_made_once() -> None:
    state, made = CycleState("c"), []

    def make() -> int:
        made.append(1)
        return 7

    assert [state.get_or_make("x", make), state.get_or_make("x", make)] == [7, 7]
    assert made == [1]


def test_every_change_is_counted_as_a_write_and_no_reading_is() -> None:
    state = CycleState("c", plugin="Demo")
    state.write("a", 1)
    state.get_or_make("b", int)
    state.delete("a")
    state.publish("c", b"1")
    state.unpublish("c")
    state.token = b"t"
    assert state.writes == 6
    state.get("a")
    state.read("b")
    state.get_or_make("b", int)
    state.take_published()
    assert state.writes == 6


def test_published_values_are_readable_until_they_are_withdrawn() -> None:
    shared = SharedState()
    writer, reader = CycleState("c", plugin="A", shared=shared), CycleState("c", plugin="B", shared=shared)
    writer.publish("light", b"green")
    assert reader.read_shared("A/light") == b"green"
    assert writer.take_published() == {"A/light": b"green"}
    assert writer.take_published() == {}
    writer.unpublish("light")
    with raises(StateNotFoundError):
        reader.read_shared("A/light")
    assert writer.take_published() == {"A/light": None}


def test_pods_of_several_activate_calls_are_joined() -> None:
    shared = SharedState()
    state = CycleState("c", plugin="Demo", shared=shared)
    state.activate(make_pod("a"), make_pod("b", namespace="x"))
    state.activate(make_pod("c"))
    names = read_pods_to_activate(shared.values[f"Demo/{PODS_TO_ACTIVATE}"])
    assert names == ["default/a", "x/b", "default/c"]


@mark.parametrize("value", [b"", b"{}", b"3", b"\xff", b"[1, null]"])
def test_malformed_pods_to_activate_name_no_pod(value: bytes) -> None:
    assert read_pods_to_activate(value) == []


def test_a_state_is_private_until_it_has_a_token_or_publishes() -> None:
    quiet, speaking, marked = CycleState("c"), CycleState("c"), CycleState("c")
    quiet.write("a", 1)
    speaking.publish("a", b"")
    marked.token = b"t"
    assert [state.is_private for state in (quiet, speaking, marked)] == [True, False, False]


def test_changes_of_a_clone_leave_the_original_unchanged() -> None:
    state = CycleState("c", plugin="Demo")
    plain, counter = [1], Counter(1)
    state.write("plain", plain)
    state.write("counter", counter)
    state.publish("light", b"green")
    state.token = b"t"
    copy = state.clone()
    assert (copy.cycle_id, copy.plugin, copy.token) == ("c", "Demo", b"t")
    copy.read("counter").count = 2
    copy.publish("light", b"red")
    copy.write("more", 1)
    assert counter.count == 1
    assert state.read_shared("Demo/light") == b"green"
    assert state.get("more") is None
    assert copy.read("plain") is plain  # a value without `clone` is shared


def test_state_inherits_the_values_of_an_equal_pods_cycle() -> None:
    first, second = CycleState("1"), CycleState("2")
    first.write("a", 1)
    second.inherit(first)
    second.write("b", 2)
    assert second.read("a") == 1
    assert first.get("b") is None
