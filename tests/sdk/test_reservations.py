"""`Reservations`: every value is given to one pod at a time, and comes back at the end of its cycle."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from berth_sdk import CycleState, LiveReservation, Pod, Reservations, Status
from berth_sdk.testing import Attempt, PluginHost, make_node, make_pod
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from support.seats import SEAT, Seats, SeatsAndLockers, SeatsWithPostBind, seat_of
from support.tiers import examples


class ForgetsWhatIsShown(Seats):
    """Wrong: takes the pod in the snapshot for the end of its reservation."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        shown = {other.uid for node in self.handle.snapshot() for other in node.pods}
        for cycle_id, (_, held) in self.held.items():
            if held.uid in shown:
                self.held.give_back(CycleState(cycle_id))
        return super().reserve(state, pod, node_name)


def a_host(cls: type[Seats] = Seats, seats: int = 1, **more: Any) -> PluginHost:
    return PluginHost(cls, {"seats": seats, **more}, nodes=[make_node("n1"), make_node("n2")])


def held_by(host: PluginHost) -> Reservations[int]:
    plugin: Any = host.runtime.plugin
    held: Reservations[int] = plugin.held
    return held


@pytest.mark.parametrize("cls", [Seats, SeatsWithPostBind], ids=["an end BOUND", "PostBind"])
def test_seat_of_a_bound_pod_is_given_once_while_the_snapshot_is_held_back(cls: type[Seats]) -> None:
    host = a_host(cls)
    first, second = host.attempt(make_pod("first")), host.attempt(make_pod("second"))
    with host.hold_snapshot():
        assert first.place("n1").is_success
        assert len(held_by(host)) == 1
        assert second.reserve("n2").message == "no seat is free"
    assert len(held_by(host)) == 0
    assert second.reserve("n2").message == "no seat is free"
    host.remove_pod(first.pod)
    assert second.reserve("n2").is_success


def test_class_that_forgets_a_pod_that_the_snapshot_shows_gives_its_seat_twice() -> None:
    host = a_host(ForgetsWhatIsShown)
    first, second = host.attempt(make_pod("first")), host.attempt(make_pod("second"))
    with host.hold_snapshot():
        assert first.place("n1").is_success
        assert second.place("n2").is_success
    assert first.pod.annotations == second.pod.annotations == {SEAT: "0"}


def test_pod_with_the_annotation_of_an_earlier_attempt_counts_with_its_reservation() -> None:
    host = a_host(seats=2)
    host.put_pod(make_pod("other", node="n2", annotations={SEAT: "0"}))
    pod = make_pod("again", annotations={SEAT: "0"})
    attempt = host.attempt(pod)
    assert attempt.reserve("n1").is_success
    host.put_pod(pod.on_node("n1"))  # assumed
    assert sorted(held_by(host).used()) == [0, 1]


def test_seats_of_two_nodes_do_not_compete_if_the_values_are_per_node() -> None:
    host = a_host(perNode=True)
    attempts = [host.attempt(make_pod(name)) for name in "abc"]
    assert attempts[0].reserve("n1").is_success
    assert attempts[1].reserve("n2").is_success
    assert not attempts[2].reserve("n1").is_success
    assert held_by(host).used("n1") == [0]
    assert held_by(host).used("n3") == []


def test_reserve_that_comes_twice_holds_the_same_seat() -> None:
    host = a_host(seats=2)
    attempt = host.attempt(make_pod("web"))
    assert attempt.reserve("n1").is_success
    assert attempt.reserve("n1").is_success
    assert [(one.value, one.pod.node_name) for _, one in held_by(host).items()] == [(0, "n1")]


def test_take_for_another_node_is_refused_and_names_the_cure() -> None:
    host = a_host(seats=2, perNode=True)
    attempt = host.attempt(make_pod("web"))
    assert attempt.reserve("n1").is_success  # as from `filter`
    with pytest.raises(ValueError, match="holds 0 on n1, and not on n2: call take in reserve alone"):
        held_by(host).take(attempt.state, attempt.pod, "n2", lambda used: 0)
    assert held_by(host).used("n1") == [0]
    assert held_by(host).used("n2") == []


def test_list_that_cannot_be_loaded_leaves_what_is_held_as_it_was() -> None:
    def load(token: bytes) -> int:
        return {b"1": 1}[token]

    plugin: Any = a_host().runtime.plugin
    held = Reservations(plugin.handle, load=load)
    first, second = CycleState("first", plugin="Seats"), CycleState("second", plugin="Seats")
    assert held.take(first, make_pod("first"), "n1", lambda used: 1) == 1
    second.token = b"2"
    live = [
        LiveReservation(state=state, pod=make_pod(state.cycle_id), node_name="n1")
        for state in (second, first)
    ]
    with pytest.raises(KeyError):
        held.take_over(live)
    assert [(cycle, one.value) for cycle, one in held.items()] == [("first", 1)]


def test_instance_that_took_a_cycle_over_hears_of_its_end_from_the_instance_before() -> None:
    """As after Configure: the last calls of a cycle are those of the instance that reserved."""
    before, after = a_host(), a_host()
    attempt = before.attempt(make_pod("web"))
    assert attempt.reserve("n1").is_success
    live = LiveReservation(state=attempt.state, pod=attempt.pod, node_name="n1")
    assert after.runtime.reconcile([live]) == frozenset()
    assert len(held_by(after)) == 1
    attempt.unreserve("n1")
    assert len(held_by(after)) == 0


def test_list_of_the_host_decides_what_is_held_after_a_restart() -> None:
    host = a_host(seats=3)
    held = held_by(host)
    gone, kept = (host.attempt(make_pod(name)) for name in ("gone", "kept"))
    assert gone.reserve("n1").is_success
    assert kept.reserve("n1").is_success

    def live(cycle_id: str, token: bytes | None) -> LiveReservation:
        state = CycleState(cycle_id, plugin="Seats")
        state.token = token
        return LiveReservation(state=state, pod=make_pod(cycle_id), node_name="n2")

    unreadable = live("unreadable", b"{")
    lost = held.take_over(
        [live(kept.state.cycle_id, b"1"), live("new", b"2"), live("without", None), unreadable]
    )
    assert lost == [unreadable]
    assert {cycle: (one.value, one.pod.node_name) for cycle, one in held.items()} == {
        kept.state.cycle_id: (1, "n1"),
        "new": (2, "n2"),
    }
    assert held.get("without") is None
    assert "new" in held


def test_threads_that_take_at_once_get_different_seats() -> None:
    host = a_host(seats=40)
    held, start, got = held_by(host), threading.Barrier(4), list[int | None]()

    def take(number: int) -> None:
        start.wait(10)
        for at in range(10):
            name = f"p{number}-{at}"
            state = CycleState(name)
            free = held.take(
                state, make_pod(name), "n1", lambda used: min(set(range(40)).difference(used), default=None)
            )
            got.append(free)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(seat for seat in got if seat is not None) == list(range(40))


# --- several in one plugin --------------------------------------------------------------------------------


def lockers_of(host: PluginHost) -> Reservations[str]:
    plugin: Any = host.runtime.plugin
    lockers: Reservations[str] = plugin.lockers
    return lockers


def after_restart(attempt: Attempt, node_name: str, token: bytes | None = None) -> LiveReservation:
    """Return the reservation of an attempt as an instance gets it that never saw the cycle."""
    state = CycleState(attempt.state.cycle_id, plugin="SeatsAndLockers")
    state.token = token if token is not None else attempt.state.token
    return LiveReservation(state=state, pod=make_pod(attempt.pod.name), node_name=node_name)


def test_reservations_of_two_names_share_a_token_and_both_come_back() -> None:
    before, after = a_host(SeatsAndLockers, seats=2), a_host(SeatsAndLockers, seats=2)
    first, second = before.attempt(make_pod("first")), before.attempt(make_pod("second"))
    assert first.reserve("n1").is_success
    assert second.reserve("n2").is_success
    live = [after_restart(first, "n1"), after_restart(second, "n2")]
    assert after.runtime.reconcile(live) == frozenset()
    assert [(one.value, one.pod.node_name) for _, one in held_by(after).items()] == [(0, "n1"), (1, "n2")]
    assert [one.value for _, one in lockers_of(after).items()] == ["locker-1", "locker-0"]
    assert not after.attempt(make_pod("third")).reserve("n1").is_success


def test_pod_that_takes_less_than_in_the_trial_of_its_group_holds_no_more_after_a_restart() -> None:
    plugin: Any = a_host(SeatsAndLockers, seats=2).runtime.plugin
    state = CycleState("trial", plugin="SeatsAndLockers")
    assert plugin.held.take(state, make_pod("web"), "n1", lambda used: 0) == 0
    assert plugin.lockers.take(state, make_pod("web"), "n1", lambda used: "locker-0") == "locker-0"
    assert plugin.lockers.give_back(state) == "locker-0"
    assert plugin.held.give_back(state) == 0
    assert (state.token, state.has_values) == (None, False)
    state.cycle_id = "chosen"  # as the cycle that continues the trial
    assert plugin.held.take(state, make_pod("web"), "n1", lambda used: 1) == 1
    after = a_host(SeatsAndLockers, seats=2)
    live = LiveReservation(state=state, pod=make_pod("web"), node_name="n1")
    assert after.runtime.reconcile([live]) == frozenset()
    assert [one.value for _, one in held_by(after).items()] == [1]
    assert len(lockers_of(after)) == 0


def test_token_of_a_trial_that_the_process_before_gave_back_holds_nothing() -> None:
    before = a_host(SeatsAndLockers, seats=2).attempt(make_pod("web"))
    assert before.reserve("n1").is_success
    plugin: Any = a_host(SeatsAndLockers, seats=2).runtime.plugin
    state = CycleState("chosen", plugin="SeatsAndLockers")
    state.token = before.state.token
    assert plugin.held.take(state, make_pod("web"), "n1", lambda used: 1) == 1
    after = a_host(SeatsAndLockers, seats=2)
    live = LiveReservation(state=state, pod=make_pod("web"), node_name="n1")
    assert after.runtime.reconcile([live]) == frozenset()
    assert [one.value for _, one in held_by(after).items()] == [1]
    assert len(lockers_of(after)) == 0


def test_value_that_was_taken_over_stays_in_the_token_beside_a_new_one() -> None:
    plugin: Any = a_host(SeatsAndLockers, seats=2).runtime.plugin
    state = CycleState("web", plugin="SeatsAndLockers")
    plugin.lockers.take(state, make_pod("web"), "n1", lambda used: "locker-0")
    restarted: Any = a_host(SeatsAndLockers, seats=2).runtime.plugin
    fresh = CycleState("web", plugin="SeatsAndLockers")
    fresh.token = state.token
    live = [LiveReservation(state=fresh, pod=make_pod("web"), node_name="n1")]
    assert restarted.held.take_over(live, restarted.lockers) == []
    assert restarted.held.take(fresh, make_pod("web"), "n1", lambda used: 1) == 1
    plugin.held.take(state, make_pod("web"), "n1", lambda used: 1)
    assert fresh.token == state.token


def test_value_that_is_given_back_leaves_the_others_in_the_token() -> None:
    plugin: Any = a_host(SeatsAndLockers).runtime.plugin
    one, both = (CycleState(name, plugin="SeatsAndLockers") for name in ("one", "both"))
    for state in (one, both):
        plugin.lockers.take(state, make_pod(state.cycle_id), "n1", lambda used: "locker-0")
    plugin.held.take(both, make_pod("both"), "n1", lambda used: 0)
    plugin.held.give_back(both)
    assert both.token == one.token
    plugin.held.give_back(both)  # holds nothing any more
    assert both.token == one.token


def test_cycle_of_which_one_value_cannot_be_read_is_held_by_none() -> None:
    host = a_host(SeatsAndLockers, seats=2)
    kept, torn = host.attempt(make_pod("kept")), host.attempt(make_pod("torn"))
    assert kept.reserve("n1").is_success
    assert torn.reserve("n1").is_success
    token = torn.state.token
    assert token is not None
    after = a_host(SeatsAndLockers, seats=2)
    unreadable = after_restart(torn, "n1", token.replace(b'"locker-', b"!locker-"))
    assert after.runtime.reconcile([after_restart(kept, "n1"), unreadable]) == frozenset(
        {torn.state.cycle_id}
    )
    assert [one.value for _, one in held_by(after).items()] == [0]
    assert [one.value for _, one in lockers_of(after).items()] == ["locker-1"]


@pytest.mark.parametrize("cut", [1, 9, -1, -9])
def test_token_that_was_cut_is_named_as_unknown(cut: int) -> None:
    host = a_host(SeatsAndLockers)
    attempt = host.attempt(make_pod("web"))
    assert attempt.reserve("n1").is_success
    token = attempt.state.token
    assert token is not None
    after = a_host(SeatsAndLockers)
    # The first bytes alone are a value without a name, which nobody here reads.
    lost = frozenset({attempt.state.cycle_id} if cut != 1 else ())
    assert after.runtime.reconcile([after_restart(attempt, "n1", token[:cut])]) == lost
    assert len(held_by(after)) == len(lockers_of(after)) == 0


def test_token_of_a_later_layout_is_named_as_unknown() -> None:
    after = a_host(SeatsAndLockers)
    attempt = after.attempt(make_pod("web"))
    live = [after_restart(attempt, "n1", b"\x00R\x02later")]
    assert after.runtime.reconcile(live) == frozenset({attempt.state.cycle_id})


def test_token_of_one_reservations_without_a_name_is_the_value() -> None:
    host = a_host()
    attempt = host.attempt(make_pod("web"))
    assert attempt.reserve("n1").is_success
    assert attempt.state.token == b"0"


@pytest.mark.parametrize("raw", [b"", b"0", b"\x00R\x01", b"\x00R\x07", b"\x00" * 300])
def test_any_bytes_come_back_as_a_value_without_a_name(raw: bytes) -> None:
    plugin: Any = a_host().runtime.plugin
    one = Reservations[bytes](plugin.handle, dump=bytes, load=bytes)
    state = CycleState("cycle", plugin="Seats")
    assert one.take(state, make_pod("web"), "n1", lambda used: raw) == raw
    other = Reservations[bytes](plugin.handle, dump=bytes, load=bytes)
    assert other.take_over([LiveReservation(state=state, pod=make_pod("web"), node_name="n1")]) == []
    assert other["cycle"].value == raw


@pytest.mark.parametrize(("name", "told"), [("", "no name"), ("seats", "the name 'seats'")])
def test_two_reservations_of_one_name_are_refused_with_the_cure(name: str, told: str) -> None:
    plugin: Any = a_host().runtime.plugin
    one, other = (Reservations[int](plugin.handle, name=name) for _ in range(2))
    state = CycleState("cycle", plugin="Seats")
    assert one.take(state, make_pod("web"), "n1", lambda used: 1) == 1
    with pytest.raises(ValueError, match=f"two Reservations of this plugin have {told}.*name='seats'"):
        other.take(state, make_pod("web"), "n1", lambda used: 2)
    assert len(other) == 0
    one.give_back(state)
    assert other.take(state, make_pod("web"), "n1", lambda used: 2) == 2


def test_name_of_more_bytes_than_a_token_can_tell_is_refused() -> None:
    plugin: Any = a_host().runtime.plugin
    with pytest.raises(ValueError, match="name: must have at most 255 bytes, but has 256"):
        Reservations(plugin.handle, name="x" * 256)


class SeatsAreGivenOnce(RuleBasedStateMachine):
    """Pods come, wait, are bound, deleted and given up, and the plugin restarts, in any order."""

    attempts = Bundle("attempts")
    placed = Bundle("placed")

    def __init__(self) -> None:
        super().__init__()
        self.host = a_host(SeatsWithPostBind, seats=3)
        self.open: dict[str, Attempt] = {}
        self.bound: list[Attempt] = []
        self.number = 0

    @rule(target=attempts, node=st.sampled_from(["n1", "n2"]))
    def reserve(self, node: str) -> tuple[str, str]:
        self.number += 1
        attempt = self.host.attempt(make_pod(f"p{self.number}"))
        in_use = len(self.open) + len(self.bound)
        assert attempt.reserve(node).is_success is (in_use < 3)
        if in_use < 3:
            self.open[attempt.state.cycle_id] = attempt
            self.host.put_pod(attempt.pod.on_node(node))  # assumed
        else:
            attempt.unreserve(node)
        return attempt.state.cycle_id, node

    @rule(of=consumes(attempts))
    def give_up(self, of: tuple[str, str]) -> None:
        attempt = self.open.pop(of[0], None)
        if attempt is not None:
            self.host.remove_pod(attempt.pod)
            attempt.unreserve(of[1])
            attempt.unreserve(of[1])

    @rule(target=placed, of=consumes(attempts))
    def bind(self, of: tuple[str, str]) -> str:
        attempt = self.open.pop(of[0], None)
        if attempt is not None:
            assert attempt.pre_bind(of[1]).status.is_success
            self.host.put_pod(attempt.pod.on_node(of[1]))
            attempt.post_bind(of[1])
            self.bound.append(attempt)
        return of[0]

    @rule(of=consumes(placed))
    def delete(self, of: str) -> None:
        for attempt in [one for one in self.bound if one.state.cycle_id == of]:
            self.bound.remove(attempt)
            self.host.remove_pod(attempt.pod)

    @rule()
    def restart(self) -> None:
        live = []
        for cycle_id, attempt in self.open.items():
            state = CycleState(cycle_id, plugin="SeatsWithPostBind")
            state.token = attempt.state.token
            node = held_by(self.host)[cycle_id].pod.node_name
            bare = make_pod(attempt.pod.name)
            live.append(LiveReservation(state=state, pod=bare, node_name=node))
        plugin: Any = self.host.runtime.plugin
        plugin.held = Reservations(plugin.handle, seat_of)
        assert self.host.runtime.reconcile(live) == frozenset()

    @invariant()
    def each_pod_has_a_seat_of_its_own(self) -> None:
        held = held_by(self.host)
        assert {cycle_id for cycle_id, _ in held.items()} == self.open.keys()
        used = held.used()
        assert len(used) == len(set(used)) == len(self.open) + len(self.bound)


SeatsAreGivenOnce.TestCase.settings = settings(max_examples=examples(40), deadline=None)
TestSeatsAreGivenOnce = SeatsAreGivenOnce.TestCase
