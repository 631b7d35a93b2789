"""Cases in which the server restarts in mid cycle. They run if the operator says how to restart it."""

from __future__ import annotations

from berth_sdk.conformance.case import BrokenError, case
from berth_sdk.conformance.host import Host, missing_name, skipped
from berth_sdk.conformance.reserving import goes_on, live, reserves, unreserve
from berth_sdk.conformance.scheduling import PURE
from berth_sdk.conformance.way import Way
from berth_sdk.plugin.v1 import common_pb2 as pb


@case(
    "restart.cycle",
    "stateful",
    "After a restart between two calls of a cycle, the later call is executed or gets MISSING_CYCLE.",
    lambda subject: sum(subject.has(point) for point in PURE) > 1,
)
def _cycle(host: Host) -> None:
    subject = host.subject
    way = Way(host)
    way.to_filter()
    later = "Filter"
    if subject.has("SCORE") and not way.skips_score:
        if subject.has("FILTER") and not way.skips_filter and not way.early_filter:
            way.filter()
        later = "Score"
    elif not subject.has("PRE_FILTER") or not subject.has("FILTER") or way.skips_filter:
        raise skipped("the plugin has one call in a cycle")
    host.restart()
    host.attach()
    cycle = way.cycle
    request = cycle.request(later, cycle.context(complete=True), candidates=host.candidates(way.left))
    answer = host.call(later, request)
    cycle.check_cycle(later, answer)
    if wrong := [one for one in answer.ctx.missing if one != pb.MISSING_CYCLE]:
        raise BrokenError(
            f"after a restart {later} answers {missing_name(wrong[0])}; the request brings everything else"
        )


@case(
    "restart.reservation",
    "binding",
    "After a restart, Reconcile takes the reservation up and its cycle goes on, or names it as unknown.",
    reserves,
)
def _reservation(host: Host) -> None:
    way = Way(host)
    way.reserve()
    cycle, node = way.cycle, way.cycle.reserved_on
    assert node is not None
    host.restart()
    cycle.sent = False
    answer = host.attach(live(cycle))
    if answer is not None and cycle.id not in answer.unknown_cycle_ids:
        goes_on(cycle, node)
    unreserve(host, cycle)
    Way(host).reserve(again="what was reserved before the restart is still held after its Unreserve")
