"""Cases about how much a plugin holds: the kit reserves until the plugin says no, and then it must stay no.

The kit knows nothing of what is reserved. It counts: after each accident the plugin grants as many pods as
were given back before, no more and no fewer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import grpc

from berth_sdk.clocks import monotonic_s
from berth_sdk.conformance.answers import sized
from berth_sdk.conformance.case import BrokenError, SkippedError, Subject, case
from berth_sdk.conformance.host import PROFILE, CallError, Cycle, Host, new_id, skipped
from berth_sdk.conformance.reserving import live, reserve_again, reserves, unreserve, unreserve_request
from berth_sdk.conformance.way import Way, lacking
from berth_sdk.conformance.world import GI, Resident, WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.plugin.v1 import state_pb2

Code = pb.PluginStatus
MOST: Final = 48
"""The most reservations that the kit makes to hear a no."""
_CPU_MILLI: Final = 500


@dataclass
class Holding:
    """The reservations of a plugin, as a host knows them. `node`: for all of them; None: not chosen yet."""

    host: Host
    held: list[Cycle] = field(default_factory=list)
    node: WorldNode | None = None
    profile: str = PROFILE
    refused: Cycle | None = None
    """The cycle that was refused last, with its Reserve."""

    def take(self, name: str = "", *, twice: bool = False) -> bool:
        """Reserve for one more pod; return False if the plugin says no. `twice`: the Reserve comes twice."""
        host = self.host
        cycle = host.cycle(name)
        cycle.like, cycle.profile = sized(host, _CPU_MILLI, GI), self.profile
        way = Way(host, cycle)
        try:
            chosen = way.to_reserve()
        except SkippedError:
            if not self.held:
                raise
            return False
        here = [node for node in way.left if self.node is not None and node.index == self.node.index]
        if self.node is not None and not here:
            return False
        self.node = cycle.reserved_on = here[0] if here else chosen
        answer = reserve_again(host, cycle)
        if twice:
            answer = reserve_again(host, cycle)
        code = answer.ctx.status.code
        if code == Code.CODE_SKIP:
            raise lacking(host, "Reserve answers SKIP: the plugin holds nothing for this pod")
        if code != Code.CODE_SUCCESS:
            self.refused = cycle
            return False
        self.held.append(cycle)
        self._show(cycle)
        return True

    def fill(self, most: int = MOST, *, twice: bool = False) -> int:
        """Reserve until the plugin says no, for at most `most` pods; return how many it took."""
        count = 0
        while count < most and self.take(twice=twice):
            count += 1
        return count

    def give_back(self, *cycles: Cycle) -> None:
        """Give back reservations, as a host does when their pods fail."""
        answer = self.host.call("Unreserve", unreserve_request(self.host, *cycles))
        lacking = [cycle.id for cycle in cycles if cycle.id not in answer.done_cycle_ids]
        if lacking:
            raise BrokenError(f"the answer to Unreserve of {len(cycles)} cycles does not name {lacking[0]!r}")
        for cycle in cycles:
            self.forget(cycle)

    def forget(self, cycle: Cycle) -> None:
        """Drop a reservation that is over, and show that its pod is gone."""
        self.held = [one for one in self.held if one.id != cycle.id]
        uid, node = cycle.pod.ref.uid, cycle.reserved_on
        if node is not None and uid in self.host.world.nodes[node.index].pods:
            self._sync(self.host.world.leave(node.index, uid))

    def _show(self, cycle: Cycle) -> None:
        """Put the pod on its node: from Reserve on it is there in every version."""
        assert cycle.reserved_on is not None
        pod, world = cycle.pod, self.host.world
        base = world.version
        more = {name: amount for name, amount in pod.requests.items() if name not in ("cpu", "memory")}
        there = Resident(pod.ref.uid, _CPU_MILLI, GI, more=more, assumed=True)
        world.put(cycle.reserved_on.index, there)
        node = world.nodes[cycle.reserved_on.index]
        self._sync(world.delta(base, [world.state(node, {"usage"}, pods=[there])]))

    def _sync(self, delta: pb.StateDelta) -> None:
        if self.host.subject.keeps_state:
            self.host.sync([delta])

    def listed(self) -> list[state_pb2.LiveReservation]:
        """Return the reservations as Reconcile lists them."""
        return [live(cycle) for cycle in self.held]


def filled(host: Host) -> tuple[Holding, int]:
    """Reserve until the plugin says no; return the reservations and how many there are."""
    holding = Holding(host)
    count = holding.fill()
    if not count:
        raise lacking(host, "Reserve rejects the kit's first pod")
    if count == MOST:
        raise skipped(
            f"the plugin says no to none of {MOST} pods: give it arguments with a small limit (--args), or a"
            " pod that requests more (--pod)",
            "--args or --pod",
        )
    return holding, count


def still_no(holding: Holding, after: str) -> None:
    """Check that the plugin grants nothing more. Raises BrokenError with `after`."""
    count = len(holding.held)
    if holding.take():
        raise BrokenError(
            f"the plugin grants another pod {after}, although its {count} reservations are all held:"
            " it said no before"
        )


def grants(holding: Holding, wanted: int, after: str) -> None:
    """Check that the plugin grants so many more pods, and no more."""
    found = holding.fill(wanted + 1)
    if found > wanted:
        raise BrokenError(f"{after}, the plugin grants {found} pods or more, where {wanted} were given back")
    if found < wanted:
        raise BrokenError(f"{after}, the plugin grants {found} pods, where {wanted} were given back")


@case(
    "reserve.until-no",
    "binding",
    "The plugin grants as many pods again after all were given back in one Unreserve.",
    reserves,
)
def _until_no(host: Host) -> None:
    holding, count = filled(host)
    still_no(holding, "at the next try")
    strangers = [host.cycle() for _ in range(2)]
    for stranger in strangers:
        stranger.reserved_on = holding.node
    first, *others = holding.held
    holding.give_back(first, strangers[0], *others, strangers[1])
    grants(holding, count, f"after {count} reservations were given back in one Unreserve")


@case(
    "reserve.counts-once",
    "binding",
    "A Reserve that comes twice takes no more than one that comes once.",
    reserves,
)
def _counts_once(host: Host) -> None:
    holding, count = filled(host)
    holding.give_back(*holding.held)
    again = Holding(host, node=holding.node)
    found = again.fill(count + 1, twice=True)
    if found != count:
        raise BrokenError(f"with each Reserve twice, the plugin grants {found} pods, and {count} otherwise")


@case(
    "reserve.no-stays",
    "binding",
    "A duplicate of a Reserve that was refused is refused too, also when there is room by then.",
    reserves,
)
def _no_stays(host: Host) -> None:
    holding, _ = filled(host)
    refused = holding.refused
    if refused is None:
        raise skipped("the plugin says no at Filter, before Reserve")
    first = reserve_again(host, refused).ctx.status.code
    holding.give_back(holding.held[0])
    again = reserve_again(host, refused).ctx.status.code
    if again != first:
        raise BrokenError(
            f"a duplicate of a Reserve that was refused gets {Code.Code.Name(again)}, once another"
            f" reservation was given back; the first answer was {Code.Code.Name(first)}"
        )


@case(
    "unreserve.frees-one",
    "binding",
    "Unreserve frees what its own cycle holds, once; of a strange, refused or earlier cycle, nothing.",
    reserves,
)
def _frees_one(host: Host) -> None:
    holding, _ = filled(host)
    stranger = host.cycle()
    stranger.reserved_on = holding.node
    for _ in range(3):
        unreserve(host, stranger)
    still_no(holding, "after Unreserve of a cycle that never was")
    if (refused := holding.refused) is not None:
        unreserve(host, refused)
        still_no(holding, "after Unreserve of a cycle whose Reserve it had refused")
    gone = holding.held[0]
    holding.give_back(gone)
    for _ in range(2):
        unreserve(host, gone)
    grants(holding, 1, "after one reservation was given back in three equal Unreserves")
    # The pod of the first cycle comes again, and then a late duplicate of its first Unreserve.
    holding.give_back(holding.held[-1])
    if not holding.take(gone.pod_name):
        raise BrokenError("a pod whose reservation was given back is refused in its next cycle")
    unreserve(host, gone)
    still_no(holding, "after a late duplicate of Unreserve, of an earlier cycle of a pod that reserved again")


@case(
    "reserve.ended",
    "binding",
    "A CycleEnd that does not say BOUND ends no reservation; the Unreserve that follows does.",
    reserves,
)
def _ended(host: Host) -> None:
    holding, _ = filled(host)
    outcomes = (
        pb.CycleEnd.OUTCOME_ABORTED,
        pb.CycleEnd.OUTCOME_UNSCHEDULABLE,
        pb.CycleEnd.OUTCOME_UNSPECIFIED,
    )
    for cycle, outcome in zip(holding.held * len(outcomes), outcomes, strict=False):
        ended = pb.CycleEnd(cycle_id=cycle.id, outcome=outcome)
        request = scheduling.EndCyclesRequest(
            plugin=host.subject.plugin.name, ended=[ended], attachment_id=host.attachment_id
        )
        try:
            host.call("EndCycles", request)
        except CallError as err:
            if err.code is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    still_no(holding, "after EndCycles without BOUND")
    gone = holding.held[0]
    holding.give_back(gone)
    grants(holding, 1, "after the Unreserve of a cycle that was over")


@case(
    "postBind.frees-once",
    "binding",
    "PostBind that comes twice, and CycleEnd with BOUND besides, free what one cycle held, once.",
    lambda subject: reserves(subject) and subject.has("POST_BIND"),
)
def _post_bind_once(host: Host) -> None:
    holding, _ = filled(host)
    cycle = holding.held.pop()
    assert cycle.reserved_on is not None
    request = scheduling.PostBindRequest(plugin=host.subject.plugin.name, attachment_id=host.attachment_id)
    request.items.add(
        cycle_id=cycle.id,
        pod=cycle.pod.ref,
        node_name=cycle.reserved_on.name,
        plugin_token=cycle.token,
        profile=cycle.profile,
    )
    for _ in range(3):
        host.call("PostBind", request)
    found = holding.fill(2)
    if found > 1:
        raise BrokenError("PostBind of one cycle that comes three times frees more than that cycle held")


@case(
    "reserve.bound",
    "binding",
    "PostBind, or CycleEnd with BOUND, ends each reservation that it names; then the pods alone count, once.",
    reserves,
)
def _bound(host: Host) -> None:
    holding, count = filled(host)
    bound, holding.held, holding.refused = holding.held, [], None
    _tell_bound(host, bound)
    how = "PostBind" if host.subject.has("POST_BIND") else "CycleEnd with BOUND"
    found = holding.fill(count + 1)
    if holding.refused is not None and found not in (0, count):
        raise BrokenError(
            f"after {how} of {count} pods, which are still on their node, the plugin grants {found} more: it"
            " counts a pod twice, or not each of them"
        )
    if holding.held:
        holding.give_back(*holding.held)
    if not _counts_pods(host.subject):
        return  # what the plugin knows of pods that are bound, the kit does not see
    for cycle in bound:
        holding.forget(cycle)
    grants(holding, count, f"after {how} of {count} pods, which then left their node")


def _counts_pods(subject: Subject) -> bool:
    need = identity.DeclaredNeed
    return bool(subject.kinds & {need.KIND_POD_SUMMARY, need.KIND_POD_OBJECT})


def _tell_bound(host: Host, bound: Sequence[Cycle]) -> None:
    """Tell the plugin that the pods of these cycles are bound."""
    plugin, attachment_id = host.subject.plugin.name, host.attachment_id
    if host.subject.has("POST_BIND"):
        request = scheduling.PostBindRequest(plugin=plugin, attachment_id=attachment_id)
        for cycle in bound:
            assert cycle.reserved_on is not None
            request.items.add(
                cycle_id=cycle.id,
                pod=cycle.pod.ref,
                node_name=cycle.reserved_on.name,
                plugin_token=cycle.token,
                profile=cycle.profile,
            )
        host.call("PostBind", request)
        return
    ended = [pb.CycleEnd(cycle_id=cycle.id, outcome=pb.CycleEnd.OUTCOME_BOUND) for cycle in bound]
    try:
        host.call(
            "EndCycles",
            scheduling.EndCyclesRequest(plugin=plugin, ended=ended, attachment_id=attachment_id),
        )
    except CallError as err:
        if err.code is not grpc.StatusCode.UNIMPLEMENTED:
            raise
        raise skipped("the plugin does not offer EndCycles, which is allowed") from None


@case(
    "drain.holds",
    "binding",
    "Drain ends no reservation: the host may come back.",
    reserves,
)
def _drained(host: Host) -> None:
    holding, _ = filled(host)
    request = identity.DrainRequest(attachment_id=host.attachment_id, reason="the kit stops for a while")
    request.grace.FromSeconds(1)
    host.call("Drain", request, 2.0)
    with suppress(CallError):  # after Drain no new cycle comes, so it may refuse one
        still_no(holding, "after Drain")
    first = holding.held[0]
    again = reserve_again(host, first)
    if again.ctx.status.code != Code.CODE_SUCCESS:
        raise BrokenError(
            f"after Drain, a duplicate of a Reserve gets {Code.Code.Name(again.ctx.status.code)}; the first"
            " answer was CODE_SUCCESS"
        )


# --- Reconcile ----------------------------------------------------------------------------------------------


def _listed(host: Host, lists: Sequence[Sequence[state_pb2.LiveReservation]]) -> set[str]:
    """Send the live reservations in pages; return the cycles that the plugin does not know."""
    answer = host.reconcile_pages(lists)
    if answer is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    return set(answer.unknown_cycle_ids)


@case(
    "reconcile.pages",
    "binding",
    "A list in several pages is one list: all of it stays held, and what no page lists is released.",
    reserves,
)
def _pages(host: Host) -> None:
    holding, count = filled(host)
    listed = holding.listed()
    for lists in (
        [[one] for one in listed],
        [listed[:1], [], listed[1:]],
        [listed, []],
        [[], listed],
    ):
        if unknown := _listed(host, lists):
            raise BrokenError(
                f"Reconcile names {len(unknown)} of {count} reservations of this process as unknown, from a"
                f" list of {len(lists)} pages"
            )
        still_no(holding, f"after Reconcile with a list of {len(lists)} pages")
    gone = holding.held[0]
    _listed(host, [[one] for one in listed if one.cycle_id != gone.id])
    holding.forget(gone)
    grants(holding, 1, "after a Reconcile that left out one reservation")


@case(
    "reconcile.unfinished",
    "binding",
    "A list whose last page never comes releases nothing, and is no part of the next list.",
    reserves,
)
def _unfinished(host: Host) -> None:
    holding, _ = filled(host)
    _listed(host, [holding.listed()])
    unfinished: list[list[list[state_pb2.LiveReservation]]] = [[[]], [holding.listed()[:1]]]
    for lists in unfinished:
        pages = host.pages(lists)
        pages[-1].last = False
        try:
            host.call("Reconcile", pages)
        except CallError as err:
            if err.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise
        still_no(holding, "after a Reconcile whose last page never came")
    gone = holding.held[0]
    _listed(host, [[one for one in holding.listed() if one.cycle_id != gone.id]])
    holding.forget(gone)
    grants(holding, 1, "after a list that leaves out a reservation which a list without its end had named")


@case(
    "reconcile.late-reserve",
    "binding",
    "A Reserve that arrives after its cycle was released by a Reconcile gets CODE_ERROR, and takes nothing.",
    reserves,
)
def _late_after_list(host: Host) -> None:
    holding, _ = filled(host)
    gone = holding.held[0]
    _listed(host, [[one for one in holding.listed() if one.cycle_id != gone.id]])
    holding.forget(gone)
    code = reserve_again(host, gone).ctx.status.code
    if code != Code.CODE_ERROR:
        raise BrokenError(
            f"a Reserve of a cycle that a Reconcile has released gets {Code.Code.Name(code)}; the contract"
            " asks for CODE_ERROR"
        )
    grants(holding, 1, "after a late Reserve of a cycle that a Reconcile has released")


@case(
    "reconcile.other-id",
    "binding",
    "A later page with another attachment_id is refused, and releases nothing.",
    reserves,
)
def _other_id(host: Host) -> None:
    holding, _ = filled(host)
    _listed(host, [holding.listed()])
    pages = host.pages([[], []])
    pages[1].attachment_id = "kit-another"
    host.refused("Reconcile", pages, grpc.StatusCode.PERMISSION_DENIED, metadata=())
    still_no(holding, "after a Reconcile that it refused")


@case(
    "reconcile.new-attachment",
    "binding",
    "A new attachment whose list has all reservations keeps them held.",
    reserves,
)
def _new_attachment(host: Host) -> None:
    holding, count = filled(host)
    if host.attach(*holding.listed()) is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    still_no(holding, f"after a new attachment whose Reconcile lists all {count}")
    holding.give_back(holding.held[0])
    grants(holding, 1, "after a new attachment and one Unreserve")


@case(
    "reconcile.tokens",
    "binding",
    "Cycles that this process never saw are held again from their tokens, in several pages, or unknown.",
    reserves,
)
def _tokens(host: Host) -> None:
    holding, count = filled(host)
    taken_up(forgotten(holding), count, "in which this process knows the tokens alone", pages=True)


def forgotten(holding: Holding) -> Holding:
    """Give everything back, and return the same reservations under ids that the process never saw."""
    host, lost = holding.host, list(holding.held)
    holding.give_back(*lost)
    again = Holding(host, node=holding.node, profile=holding.profile)
    for old in lost:
        # A new id stands for a process that has lost its memory: it knows the token alone.
        cycle = host.cycle(old.pod_name)
        cycle.like, cycle.token, cycle.reserved_on = old.like, old.token, old.reserved_on
        cycle.profile = old.profile
        again.held.append(cycle)
        again._show(cycle)
    return again


def taken_up(holding: Holding, count: int, what: str, *, pages: bool = False) -> None:
    """Reconcile after the plugin has lost its memory; check that it holds what it did not name as unknown."""
    host = holding.host
    listed = holding.listed()
    lists = [listed[start : start + 2] for start in range(0, len(listed), 2)] if pages else [listed]
    unknown = _listed(host, lists)
    if strange := unknown - {one.cycle_id for one in listed}:
        raise BrokenError(f"Reconcile names the cycle {min(strange)!r}, which was not listed")
    for cycle in [one for one in holding.held if one.id in unknown]:
        holding.forget(cycle)
    grants(
        holding,
        len(unknown),
        f"after a Reconcile {what}, with {count} reservations of which it names {len(unknown)} as unknown",
    )
    known = [cycle for cycle in holding.held if cycle.id not in unknown]
    if known:
        holding.give_back(known[0])
        grants(holding, 1, f"after a Reconcile {what} and one Unreserve")


@case(
    "restart.until-no",
    "binding",
    "After a restart and Reconcile the plugin still says no, but for what it names as unknown.",
    reserves,
)
def _restarted(host: Host) -> None:
    if host.target.restart is None:
        raise skipped("the kit cannot restart the server: say how with --restart", "--restart")
    holding, count = filled(host)
    host.restart()
    for cycle in holding.held:
        cycle.sent = False
    attach_without_list(host)
    taken_up(holding, count, "after a restart", pages=True)


def attach_without_list(host: Host) -> None:
    """Begin a new attachment with the full state; Reconcile is still to come."""
    attachment_id = new_id()
    host.handshake(attachment_id)
    host.configure(attachment_id)
    if host.subject.keeps_state:
        host.sync([host.world.full()])


@case(
    "reconcile.waits",
    "binding",
    "A wait that Reconcile lists is decided anew when the time comes, as one that this process began.",
    lambda subject: subject.has("PERMIT") and subject.plugin.handle_client,
)
def _waits(host: Host) -> None:
    if not _decides(host, is_lost=False):
        raise lacking(host, "no other pod brings the plugin to decide about one that waits")
    if host.reconcile() is None:
        raise skipped("the plugin does not offer Reconcile, which is allowed")
    if not _decides(host, is_lost=True):
        raise BrokenError(
            "the plugin does not decide about a pod that waits, once a Reconcile has listed the wait"
            " (waiting_on_permit); without the Reconcile it decides when the next pod comes"
        )


def _decides(host: Host, *, is_lost: bool) -> bool:
    """Let a pod wait, bring another one, and return True if the plugin decides about the first.

    `is_lost`: the process has lost its memory of the wait, which Reconcile then lists.
    """
    double = host.target.double
    if double is None:
        raise skipped("the kit offers no HandleService")
    way = Way(host)
    node = way.to_binding()
    waiting = way.cycle
    if waiting.id not in double.waiting:
        raise lacking(host, "Permit lets the pod not wait")
    if is_lost:
        if host.subject.has("RESERVE"):
            unreserve(host, waiting)
        lost, waiting = waiting, host.cycle(waiting.pod_name)
        waiting.token, waiting.reserved_on = lost.token, node
        attach_without_list(host)
        listed = live(waiting)
        listed.waiting_on_permit = True
        listed.permit_deadline.GetCurrentTime()
        listed.permit_deadline.seconds += 600
        double.wait(host.subject.plugin.name, waiting.id, waiting.pod, node.name)
        if waiting.id in _listed(host, [[listed]]):
            return True  # the host ends the wait
    before = len(double.decisions)
    later: list[Cycle] = []
    until = monotonic_s() + 2.0 * host.target.time_factor
    try:
        while monotonic_s() < until and host.ends_at > monotonic_s():
            if len(later) < 3:
                other = Way(host)
                other.to_binding()
                later.append(other.cycle)
            for decision in double.decisions[before:]:
                if decision.cycle_id == waiting.id:
                    return True
            time.sleep(0.02)
    except SkippedError:
        pass
    finally:
        if host.subject.has("RESERVE"):
            for cycle in (waiting, *later):
                unreserve(host, cycle)
    return any(decision.cycle_id == waiting.id for decision in double.decisions[before:])


def granted(host: Host, profile: str = PROFILE) -> int:
    """Return how many pods of a profile the plugin grants, and give them back; 0: it reserves nothing."""
    if not host.subject.has("RESERVE"):
        return 0
    holding = Holding(host, profile=profile)
    try:
        count = holding.fill()
    except SkippedError:
        return 0
    if holding.held:
        holding.give_back(*holding.held)
    return count
