"""What a server remembers about cycles, and for how long."""

from __future__ import annotations

from typing import Any, cast

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginAnswerError
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.serve.cycles import (
    EXPIRY_S,
    MEMORY_TOKEN,
    RESERVED_EXPIRY_S,
    TOMBSTONE_S,
    CycleBook,
    PluginCycle,
    memory_is_lost,
    token_to_send,
)
from berth_sdk.serve.served import ServedPlugin
from hypothesis import given
from hypothesis import strategies as st

POD = Pod(name="web", uid="u1")


class Named:
    """All that the book asks of a served plugin."""

    def __init__(self, name: str) -> None:
        self.name = name


EXAMPLE = cast(ServedPlugin, Named("Example"))
OTHER = cast(ServedPlugin, Named("Other"))


class Clock:
    """Monotonic seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> CycleBook:
    return CycleBook(clock)


def opened(book: CycleBook, cycle_id: str = "c1", served: ServedPlugin = EXAMPLE) -> PluginCycle:
    book.look("Example", cycle_id, POD)
    return book.open(served, cycle_id, POD)


def test_a_cycle_keeps_its_state_between_calls(book: CycleBook) -> None:
    opened(book).state.write("lights", 3)
    assert opened(book).state.read("lights") == 3


def test_plugins_share_the_pod_and_not_the_state(book: CycleBook) -> None:
    opened(book).state.write("lights", 3)
    assert book.look("Other", "c1", None) == (None, POD)
    assert book.open(OTHER, "c1", POD).state.get("lights") is None


def test_a_pod_with_its_object_is_not_replaced_by_one_without(book: CycleBook) -> None:
    whole = Pod(name="web", uid="u1", object=KubeObject("v1", "Pod", parsed={}))
    book.look("Example", "c1", whole)
    assert book.look("Example", "c1", POD)[1] is whole


def test_an_unknown_cycle_has_no_pod(book: CycleBook) -> None:
    assert book.look("Example", "c1", None) == (None, None)


def test_an_ended_cycle_is_dropped_when_its_last_plugin_ended(book: CycleBook) -> None:
    opened(book)
    opened(book, served=OTHER)
    book.end("Example", "c1", bound=True)
    assert (len(book), book.find("Example", "c1")) == (1, None)
    book.end("Other", "c1", bound=True)
    assert len(book) == 0


def test_a_reservation_outlives_an_end_without_binding_until_it_is_undone(book: CycleBook) -> None:
    opened(book).reserved = True
    book.end("Example", "c1", bound=False)
    assert set(book.reservations("Example")) == {"c1"}
    assert book.undo_begins("Example", "c1")
    book.undo_ended("Example", "c1")
    assert (len(book), book.reservations("Example")) == (0, {})


def test_a_bound_reservation_ends(book: CycleBook) -> None:
    opened(book).reserved = True
    book.end("Example", "c1", bound=True)
    assert len(book) == 0


@pytest.mark.parametrize(("bound", "told"), [(True, [1]), (False, [])])
def test_a_state_hears_once_that_its_pod_is_bound(book: CycleBook, bound: bool, told: list[int]) -> None:
    seen: list[int] = []
    opened(book).state.at_end(lambda: seen.append(1))
    book.end("Example", "c1", bound=bound)
    book.end("Example", "c1", bound=bound)
    assert seen == told


def test_a_cycle_that_is_never_ended_expires(book: CycleBook, clock: Clock) -> None:
    opened(book, "old")
    clock.now_s += EXPIRY_S / 2
    opened(book, "used")
    clock.now_s += EXPIRY_S / 2 + 1
    opened(book, "new")
    assert (book.find("Example", "old"), len(book)) == (None, 2)


def test_a_reservation_expires_later(book: CycleBook, clock: Clock) -> None:
    opened(book, "held").reserved = True
    clock.now_s += EXPIRY_S + 1
    opened(book, "new")
    assert book.find("Example", "held") is not None
    clock.now_s += RESERVED_EXPIRY_S
    opened(book, "newer")
    assert book.find("Example", "held") is None


def test_an_undone_cycle_is_remembered_for_five_minutes(book: CycleBook, clock: Clock) -> None:
    book.undo_begins("Example", "c1")
    clock.now_s += TOMBSTONE_S - 1
    assert book.is_undone("Example", "c1")
    assert not book.is_undone("Other", "c1")
    clock.now_s += 2
    assert not book.is_undone("Example", "c1")


def test_a_cycle_is_undone_once(book: CycleBook) -> None:
    assert book.undo_begins("Example", "c1")
    assert book.undo_begins("Example", "c1"), "the first attempt did not end"
    book.undo_ended("Example", "c1")
    assert not book.undo_begins("Example", "c1")


@given(st.lists(st.tuples(st.sampled_from(["open", "end", "undo", "wait"]), st.integers(0, 5)), max_size=60))
def test_reservations_are_those_reserved_and_neither_bound_nor_undone(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    book = CycleBook(clock)
    want: dict[str, float] = {}
    for step, number in steps:
        cycle_id = f"c{number}"
        if step == "open":
            opened(book, cycle_id).reserved = True
            want[cycle_id] = clock.now_s
        elif step == "end":
            book.end("Example", cycle_id, bound=number % 2 == 0)
            if number % 2 == 0:
                want.pop(cycle_id, None)
        elif step == "undo":
            book.undo_begins("Example", cycle_id)
            book.undo_ended("Example", cycle_id)
            want.pop(cycle_id, None)
        else:
            clock.now_s += EXPIRY_S / 3
    alive = {cycle_id for cycle_id, used_s in want.items() if clock.now_s - used_s <= RESERVED_EXPIRY_S}
    assert alive <= set(book.reservations("Example")) <= set(want)


# --- tokens ----------------------------------------------------------------------------------------


def made_state(token: bytes | None = None, **values: Any) -> CycleState:
    state = CycleState("c1", plugin="Example")
    state.token = token
    for key, value in values.items():
        state.write(key, value)
    return state


@pytest.mark.parametrize(
    ("state", "echoed", "want"),
    [
        pytest.param(made_state(), b"", None, id="nothing to tell"),
        pytest.param(made_state(b"t"), b"", b"t", id="a new token"),
        pytest.param(made_state(b"t"), b"t", None, id="the host holds it"),
        pytest.param(made_state(b"u"), b"t", b"u", id="a changed token"),
        pytest.param(made_state(), b"t", b"", id="the token was taken back"),
        pytest.param(made_state(lights=3), b"", MEMORY_TOKEN, id="memory and no token"),
        pytest.param(made_state(b"t", lights=3), b"", b"t", id="the plugin's token is enough"),
        pytest.param(made_state(lights=3), MEMORY_TOKEN, None, id="known memory"),
    ],
)
def test_a_token_is_sent_when_the_host_holds_another(
    state: CycleState, echoed: bytes, want: bytes | None
) -> None:
    assert token_to_send("Example", state, echoed) == want


def test_a_token_over_the_limit_names_the_plugin() -> None:
    with pytest.raises(PluginAnswerError, match="Example set a token of 4097 bytes"):
        token_to_send("Example", made_state(bytes(4097)), b"")


def test_memory_is_lost_when_a_token_speaks_of_it_and_nothing_is_here(book: CycleBook) -> None:
    assert memory_is_lost(None, MEMORY_TOKEN)
    assert not memory_is_lost(opened(book), MEMORY_TOKEN)
    assert not memory_is_lost(None, b"the plugin's own")
    assert not memory_is_lost(None, b"")
