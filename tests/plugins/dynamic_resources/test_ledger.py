"""The reservations that a ledger keeps, and those that it releases when a host lists the live ones."""

from __future__ import annotations

from berth_plugins.dynamic_resources.devices import DeviceId
from berth_plugins.dynamic_resources.ledger import GRACE_S, Ledger, Taking
from berth_sdk.tables.object_store import ObjectStore

FIRST, SECOND, NAMED = ("default", "first"), ("default", "second"), ("default", "named")


class Books:
    """A ledger over no claims, with a clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ledger = Ledger(ObjectStore(), lambda pool: None, lambda: self.now_s)

    def taken(self) -> list[str]:
        return [name for name in ("d0", "d1") if self.ledger.is_taken(device(name))]


def device(name: str) -> DeviceId:
    return DeviceId("gpu.example.com", "n1", name)


def taking(name: str) -> Taking:
    return Taking((device(name),), ())


def test_reservations_that_are_not_live_are_released() -> None:
    books = Books()
    books.ledger.reserve(FIRST, "u1", taking("d0"))
    books.ledger.reserve(SECOND, "u2", taking("d1"))
    books.ledger.take_up({SECOND: ("u2", taking("d1"))})
    assert books.taken() == ["d1"]


def test_live_reservation_is_counted_once_after_a_restart() -> None:
    books = Books()
    for _ in range(2):
        books.ledger.take_up({FIRST: ("u1", taking("d0"))})
    assert books.taken() == ["d0"]
    books.ledger.settle(FIRST, is_written=False)
    assert books.taken() == []


def test_reservation_is_live_under_its_claims_later_name() -> None:
    books = Books()
    books.ledger.reserve(FIRST, "", taking("d0"))
    books.ledger.rename(FIRST, NAMED, "u3")
    books.ledger.take_up({FIRST: ("", taking("d0"))})
    assert books.taken() == ["d0"]
    books.ledger.settle(NAMED, is_written=False)
    assert books.taken() == [], "it was counted under both names"


def test_possibly_written_claim_keeps_its_devices_for_the_grace_time() -> None:
    books = Books()
    books.ledger.reserve(FIRST, "u1", taking("d0"))
    books.ledger.settle(FIRST, is_written=True)
    books.ledger.take_up({})
    assert books.taken() == ["d0"]
    books.now_s = GRACE_S
    books.ledger.refresh()
    assert books.taken() == []
