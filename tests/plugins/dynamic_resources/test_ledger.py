"""The reservations that a ledger keeps, and those that it releases when a host lists the live ones."""

from __future__ import annotations

from collections.abc import Sequence

from berth_plugins.dynamic_resources.devices import DeviceId
from berth_plugins.dynamic_resources.ledger import GRACE_S, Ledger, Promise
from berth_sdk.kube_object import KubeObject
from berth_sdk.slices import at_once
from berth_sdk.tables.object_store import ObjectStore
from support.device_objects import DRIVER, claim

FIRST, SECOND, NAMED = ("default", "first"), ("default", "second"), ("default", "named")


class Books:
    """A ledger over the claims of a test, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.generation = 0
        self.claims = ObjectStore()
        self.ledger = Ledger(self.claims, lambda pool: None, lambda: self.now_s)

    def put_share(self, name: str, amount: str) -> None:
        """Store a claim that has this share of the device d0."""
        result = {**promise("", "d0").allocation["devices"]["results"][0], "shareID": name}
        result["consumedCapacity"] = {"memory": amount}
        shown = KubeObject.of({**claim(name), "status": {"allocation": {"devices": {"results": [result]}}}})
        self.generation += 1
        self.claims.put(shown.ref, shown, self.generation)

    def show(self, name: str, version: int, *, allocated: Sequence[str] = ()) -> None:
        """Let the watch show the claim of this name with these devices."""
        shown = KubeObject.of(claim(name, metadata={"resourceVersion": str(version)}, allocated=allocated))
        self.generation += 1
        self.claims.put(shown.ref, shown, self.generation)
        at_once(self.ledger.refresh())

    def taken(self) -> list[str]:
        return [name for name in ("d0", "d1") if self.ledger.is_taken(device(name))]


def device(name: str) -> DeviceId:
    return DeviceId("gpu.example.com", "n1", name)


def promise(uid: str, name: str, group: str = "") -> Promise:
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": name}
    return Promise(uid, {"devices": {"results": [result]}}, group)


def test_reservations_that_are_not_live_are_released() -> None:
    books = Books()
    books.ledger.reserve(FIRST, promise("u1", "d0"), "one")
    books.ledger.reserve(SECOND, promise("u2", "d1"), "two")
    books.ledger.take_up({SECOND: {"two": promise("u2", "d1")}})
    assert books.taken() == ["d1"]


def test_live_reservation_is_counted_once_after_a_restart() -> None:
    books = Books()
    for _ in range(2):
        books.ledger.take_up({FIRST: {"one": promise("u1", "d0")}})
    assert books.taken() == ["d0"]
    books.ledger.settle(FIRST, "one", is_written=False)
    assert books.taken() == []


def test_reservation_is_live_under_its_claims_later_name() -> None:
    books = Books()
    books.ledger.reserve(FIRST, promise("", "d0"), "one")
    books.ledger.rename(FIRST, NAMED, "u3")
    books.ledger.take_up({FIRST: {"one": promise("", "d0")}})
    assert books.taken() == ["d0"]
    books.ledger.settle(NAMED, "one", is_written=False)
    assert books.taken() == [], "it was counted under both names"


def test_possibly_written_claim_keeps_its_devices_for_the_grace_time() -> None:
    books = Books()
    books.ledger.reserve(FIRST, promise("u1", "d0"), "one")
    books.ledger.settle(FIRST, "one", is_written=True)
    books.ledger.take_up({})
    assert books.taken() == ["d0"]
    books.now_s = GRACE_S
    at_once(books.ledger.refresh())
    assert books.taken() == []


def test_claim_that_the_watch_shows_late_counts_beside_the_devices_that_a_pod_writes() -> None:
    books = Books()
    books.ledger.reserve(SHARED, promise("uid-a", "d0"), "one")
    books.show("a", 1, allocated=["n1/d1"])
    assert books.taken() == ["d0", "d1"]
    books.show("a", 2)
    assert books.taken() == ["d0"], "the claim has lost its devices before the pod writes it"
    books.ledger.settle(SHARED, "one", is_written=False)
    assert books.taken() == []


def test_devices_stay_with_the_pod_that_writes_them_though_the_claim_had_and_lost_the_same_ones() -> None:
    books = Books()
    books.ledger.reserve(SHARED, promise("uid-a", "d0"), "one")
    books.show("a", 1, allocated=["n1/d0"])
    books.show("a", 2)
    assert books.taken() == ["d0"]
    books.ledger.settle(SHARED, "one", is_written=True, version="3")
    assert books.taken() == ["d0"]
    books.show("a", 3, allocated=["n1/d0"])
    assert books.taken() == ["d0"]
    books.show("a", 4)
    assert books.taken() == [], "they were counted twice"


def test_write_without_an_answer_holds_the_devices_until_the_claim_shows_whether_it_was_done() -> None:
    books = Books()
    books.show("a", 1)
    books.ledger.reserve(SHARED, promise("uid-a", "d0"), "one")
    books.ledger.settle(SHARED, "one", is_written=True, version="2")
    assert books.taken() == ["d0"]
    books.show("a", 2)
    assert books.taken() == [], "a claim that has changed refuses the write"


def test_next_attempt_holds_the_devices_of_a_write_without_an_answer_and_leaves_them_in_doubt() -> None:
    books = Books()
    books.ledger.reserve(SHARED, promise("uid-a", "d0"), "one")
    wanted = KubeObject.of(claim("a"))
    assert books.ledger.promised(wanted, "") is None, "a pod that is being bound holds them"
    books.ledger.settle(SHARED, "one", is_written=True, version="2")
    known = books.ledger.promised(wanted, "")
    assert known == promise("", "d0").allocation
    assert books.ledger.reserve(SHARED, promise("uid-a", "d0"), "two") is known
    books.ledger.settle(SHARED, "two", is_written=False)
    assert books.taken() == ["d0"], "the first write may still be done"
    books.now_s = GRACE_S
    at_once(books.ledger.refresh())
    assert books.taken() == []


GROUP = "podgroup/default/g"
SHARED = ("default", "a")


def shared_by(*holders: str) -> Books:
    """Return books in which these cycles of one group hold the devices of the claim `a`."""
    books = Books()
    for holder in holders:
        books.ledger.reserve(SHARED, promise("uid-a", "d0", GROUP), holder)
    return books


def test_members_of_a_group_share_the_allocation_of_the_first_one() -> None:
    books = shared_by("one")
    wanted = KubeObject.of(claim("a"))
    known = books.ledger.promised(wanted, GROUP)
    assert known == promise("uid-a", "d0").allocation
    assert books.ledger.reserve(SHARED, promise("uid-a", "d1", GROUP), "two") is known
    assert books.taken() == ["d0"]
    assert books.ledger.promised(wanted, "podgroup/default/other") is None
    assert books.ledger.promised(wanted, "") is None
    again = KubeObject.of(claim("a", metadata={"uid": "another"}))
    assert books.ledger.promised(again, GROUP) is None


def test_shared_devices_are_free_when_the_last_member_gives_them_back() -> None:
    books = shared_by("one", "two")
    for _ in range(2):
        books.ledger.settle(SHARED, "one", is_written=False)
        assert books.taken() == ["d0"]
    books.ledger.settle(SHARED, "two", is_written=False)
    assert books.taken() == []


def test_devices_that_a_member_may_have_written_stay_when_the_others_give_up() -> None:
    books = shared_by("one", "two")
    shown = KubeObject.of(claim("a"))
    books.claims.put(shown.ref, shown, 1)
    books.ledger.settle(SHARED, "one", is_written=True)
    books.now_s = 10 * GRACE_S
    at_once(books.ledger.refresh())
    assert books.taken() == ["d0"], "a member still waits"
    books.ledger.settle(SHARED, "two", is_written=False)
    assert books.taken() == ["d0"]
    at_once(books.ledger.refresh())
    assert books.taken() == []


def test_live_members_of_a_group_keep_their_devices_after_a_restart() -> None:
    books = shared_by("one", "two", "three")
    live = {SHARED: {name: promise("uid-a", "d0", GROUP) for name in ("two", "four")}}
    books.ledger.take_up(live)
    books.ledger.settle(SHARED, "two", is_written=False)
    assert books.taken() == ["d0"]
    books.ledger.settle(SHARED, "four", is_written=False)
    assert books.taken() == []


def test_negative_share_is_known_until_its_claim_is_corrected_or_gone() -> None:
    books = Books()
    for name, amount in (("b", "-1"), ("a", "-2"), ("c", "1")):
        books.put_share(name, amount)
    at_once(books.ledger.refresh())
    assert books.ledger.negative_share().startswith("claim default/a, ")
    books.put_share("a", "2")
    at_once(books.ledger.refresh())
    assert books.ledger.negative_share().startswith("claim default/b, ")
    books.claims.remove("default", "b", books.generation + 1)
    at_once(books.ledger.refresh())
    assert books.ledger.negative_share() == ""
