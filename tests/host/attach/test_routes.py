"""Which of several instances gets the calls."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, cast

from berth_host.attach.routes import Offer, chosen, on_trial
from berth_host.errors.plugins import PluginUnavailableError
from berth_host.rpc.breaker import IN_A_ROW
from berth_host.rpc.calls import FILTER
from berth_host.rpc.failure_record import FailureRecord


def offer(started_at_s: float, order: int = 0) -> Offer:
    return Offer(
        instance_id=f"{started_at_s}-{order}",
        started_at_s=started_at_s,
        order=order,
        descriptor=cast(Any, None),
        transports={},
        sender=cast(Any, None),
        conduct=FailureRecord("P", lambda: None),
        taken_up=lambda: None,
        judged=lambda: None,
    )


def quarantined(one: Offer) -> Offer:
    for _ in range(3):
        one.conduct.violated("a score of 1000 at Score")
    return one


def ill(one: Offer) -> Offer:
    one.conduct.missed("did not answer 3 probes")
    return one


def test_newest_is_asked() -> None:
    old, new = offer(10.0, 1), offer(20.0, 0)
    assert chosen([old, new]) is new
    assert chosen([new, old]) is new
    assert chosen([]) is None


def test_of_one_second_the_one_that_was_attached_last_is_asked() -> None:
    first, last = offer(10.0, 1), offer(10.0, 2)
    assert chosen([last, first]) is last


def test_an_older_one_that_is_well_is_asked_before_a_newer_one_that_is_not() -> None:
    old, new = offer(10.0), ill(offer(20.0))
    assert chosen([old, new]) is old
    new.conduct.probed()
    assert chosen([old, new]) is new


def test_where_none_is_well_the_newest_is_asked_and_none_in_quarantine() -> None:
    old, new, liar = ill(offer(10.0)), ill(offer(20.0)), quarantined(offer(30.0))
    assert chosen([old, new, liar]) is new
    assert chosen([liar]) is None


def test_newer_one_gets_one_cycle_that_may_close_its_circuit_and_the_older_one_the_others() -> None:
    """Otherwise an older instance would keep the calls forever after a short fault."""
    now_s = 0.0
    conduct = FailureRecord("P", lambda: None, lambda: now_s)
    old, new = offer(10.0), replace(offer(20.0), conduct=conduct)
    for _ in range(IN_A_ROW):
        with contextlib.suppress(PluginUnavailableError), conduct.watched(FILTER):
            raise PluginUnavailableError("P", "Filter", "is gone")
    assert (chosen([old, new]), on_trial([old, new], old)) == (old, None)
    conduct.probed()
    assert on_trial([old, new], old) is None  # the pause is not over
    now_s = 60.0
    conduct.probed()
    assert (chosen([old, new]), on_trial([old, new], old)) == (old, new)
    assert chosen([new]) is new  # nobody else is there
    with contextlib.suppress(PluginUnavailableError), conduct.watched(FILTER):
        raise PluginUnavailableError("P", "Filter", "is gone")
    assert (chosen([old, new]), on_trial([old, new], old)) == (old, None)
    now_s = 120.0
    conduct.probed()
    with conduct.watched(FILTER):
        pass
    assert (chosen([old, new]), on_trial([old, new], new)) == (new, None)
    assert conduct.complaint == ""
