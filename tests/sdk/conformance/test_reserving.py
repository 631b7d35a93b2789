"""The kit's cases about reservations, trials, SKIP and restarts name each plugin that breaks their rule."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_sdk.conformance import holding, run
from berth_sdk.conformance.case import CASES
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.plugin.v1 import state_pb2
from support.conforming_plugin import ConformingPlugin, decided
from support.kit import failures, report_of, result_of

Code = pb.PluginStatus
SLOTS = 3


def of_reservations(plugin: ConformingPlugin, folder: Path) -> run.Report:
    """Run all cases about reservations and binding cycles, but those that count what is held."""
    points = ("reserve", "unreserve", "reconcile", "permit", "preBind", "bind", "postBind")
    counts = holding.__name__
    ids = [one.id for one in CASES if one.point in points and one.run.__module__ != counts]
    return report_of(plugin, folder, "binding", *ids)


class Slots(ConformingPlugin):
    """Holds one of three slots for each reservation. The token is the number of the slot."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: dict[tuple[str, str], int] = {}
        self.refused: set[tuple[str, str]] = set()

    def key(self, request: Any) -> tuple[str, str]:
        return request.ctx.plugin, request.ctx.cycle_id

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        key = self.key(request)
        if key in self.given_back:
            return scheduling.ReserveResponse(ctx=decided(Code.CODE_ERROR))
        if key not in self.slots:
            free = set(range(1, SLOTS + 1)) - set(self.slots.values())
            if not free or key in self.refused:
                self.refused.add(key)
                return scheduling.ReserveResponse(ctx=decided(Code.CODE_UNSCHEDULABLE))
            self.slots[key] = min(free)
        answer = super().Reserve(request)
        answer.ctx.plugin_token = str(self.slots[key]).encode()
        return answer

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        for item in request.items:
            self.free(request.plugin, item)
        return super().Unreserve(request)

    def free(self, plugin: str, item: Any) -> None:
        self.slots.pop((plugin, item.cycle_id), None)

    def Reconcile(self, pages: list[Any]) -> Any:  # noqa: N802
        answer = super().Reconcile(pages)
        self.slots = {key: slot for key, slot in self.slots.items() if key in self.reserved}
        return answer

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        key = plugin, live.cycle_id
        if key not in self.reserved and live.plugin_token:
            self.reserved[key] = live.node_name
            self.slots[key] = int(live.plugin_token)
        return key in self.reserved


class Skips(ConformingPlugin):
    """Holds nothing for the kit's pods; each waits at Permit."""

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        answer = super().Reserve(request)
        if answer.ctx.status.code == Code.CODE_SUCCESS:
            del self.reserved[request.ctx.plugin, request.ctx.cycle_id]
            answer.ctx.status.code = Code.CODE_SKIP
        return answer

    def Permit(self, request: Any) -> Any:  # noqa: N802
        self.reserved[request.ctx.plugin, request.ctx.cycle_id] = request.node_name
        return scheduling.PermitResponse(ctx=decided(Code.CODE_WAIT))


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize(
    ("plugin", "case_id"),
    [
        (Slots, "reserve.trial"),
        (Slots, "reserve.at-once"),
        (Slots, "reconcile.restart"),
        (ConformingPlugin, "reconcile.restart"),
        (Skips, "reserve.skip"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_kit_passes_plugins_that_keep_the_rules_of_reservations(
    plugin: type[ConformingPlugin], case_id: str, tmp_path: Path
) -> None:
    report = of_reservations(plugin(), tmp_path)
    assert failures(report) == {}
    assert result_of(report, case_id) == ("pass", "")


# --- one fault each -----------------------------------------------------------------------------------------


class KeepsTrials(Slots):
    def free(self, plugin: str, item: Any) -> None:
        if not item.trial.tentative:
            super().free(plugin, item)


class OneIdForTrialAndGood(Slots):
    """Keeps a reservation under the id that its cycle had in the trial, until an Unreserve of either id."""

    def __init__(self) -> None:
        super().__init__()
        self.continued: dict[str, tuple[str, str]] = {}

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        if request.ctx.continues:
            self.continued[request.ctx.continues] = self.key(request)
        return super().Reserve(request)

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        for item in request.items:
            if (key := self.continued.get(item.cycle_id)) is not None:
                self.slots.pop(key, None)
                self.reserved.pop(key, None)
        return super().Unreserve(request)

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        if live.cycle_id in {key[1] for key in self.continued.values()}:
            return (plugin, live.cycle_id) in self.reserved
        return super().takes_up(plugin, live)


class EndsWhatContinues(ConformingPlugin):
    """Refuses a cycle whose trial is over."""

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        if (request.ctx.plugin, request.ctx.continues) in self.given_back:
            return scheduling.ReserveResponse(ctx=decided(Code.CODE_ERROR))
        return super().Reserve(request)


class LacksWhatContinues(ConformingPlugin):
    """Does not look up what it keeps for the trial."""

    def lacking(self, ctx: pb.CallContext) -> list[pb.Missing.ValueType]:
        return [pb.MISSING_CYCLE] if ctx.continues else super().lacking(ctx)


class DropsTheCycleAfterSkip(Skips):
    """Cannot be asked to bind a pod for which it holds nothing."""

    def Bind(self, request: Any) -> Any:  # noqa: N802
        return scheduling.BindResponse(ctx=pb.ReplyContext(missing=[pb.MISSING_CYCLE]))


class LosesTheWaitAfterSkip(Skips):
    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        return False if live.waiting_on_permit else super().takes_up(plugin, live)


class ForgetsSkips(Skips):
    """Forgets a cycle in which it held nothing, so that it reserves after the Unreserve."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: set[tuple[str, str]] = set()

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        answer = super().Reserve(request)
        if answer.ctx.status.code == Code.CODE_SKIP:
            self.skipped.add((request.ctx.plugin, request.ctx.cycle_id))
        return answer

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        answer = super().Unreserve(request)
        self.given_back -= self.skipped
        return answer


class LosesItsToken(Slots):
    """Says that it takes a reservation up, and cannot go on with it."""

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        return True

    def lacking(self, ctx: pb.CallContext) -> list[pb.Missing.ValueType]:
        found = super().lacking(ctx)
        is_bound_now = ctx.plugin_token and not ctx.HasField("version")
        lost = is_bound_now and (ctx.plugin, ctx.cycle_id) not in self.slots
        return [pb.MISSING_CYCLE] if lost else found


class HoldsWhatItTookUp(Slots):
    """Takes a reservation up under the name of the pod, where no Unreserve finds it."""

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        key = plugin, live.cycle_id
        if key not in self.reserved:
            self.reserved[key] = live.node_name
            self.kept = [*getattr(self, "kept", ()), live.pod.name]
        return True

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        if len(getattr(self, "kept", ())) >= SLOTS:
            return scheduling.ReserveResponse(ctx=decided(Code.CODE_UNSCHEDULABLE))
        return super().Reserve(request)


class NeverGivesBack(Slots):
    def free(self, plugin: str, item: Any) -> None:
        pass

    def Reconcile(self, pages: list[Any]) -> Any:  # noqa: N802
        self.slots.clear()
        return super().Reconcile(pages)


class ReleasesNothing(Slots):
    def Reconcile(self, pages: list[Any]) -> Any:  # noqa: N802
        held = dict(self.slots)
        answer = super().Reconcile(pages)
        self.slots = held
        return answer


class KeepsOtherEpochs(Slots):
    """Releases only what the same host reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.kept = 0

    def Reconcile(self, pages: list[Any]) -> Any:  # noqa: N802
        if self.epoch not in (0, pages[0].host_epoch):
            self.kept += len(self.slots)
        self.epoch = pages[0].host_epoch
        return super().Reconcile(pages)

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        if self.kept >= SLOTS:
            return scheduling.ReserveResponse(ctx=decided(Code.CODE_UNSCHEDULABLE))
        return super().Reserve(request)


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize(
    ("plugin", "case_id", "detail"),
    [
        (KeepsTrials, "reserve.trial", "what the trial before reserved is not given back"),
        (OneIdForTrialAndGood, "reserve.trial", "the new cycle_id is a reservation of its own"),
        (EndsWhatContinues, "reserve.trial", "the trial got SUCCESS, and Unreserve has given it back"),
        (LacksWhatContinues, "reserve.trial", "Reserve answers MISSING_CYCLE"),
        (DropsTheCycleAfterSkip, "reserve.skip", "Bind answers MISSING_CYCLE"),
        (LosesTheWaitAfterSkip, "reserve.skip", "a wait is unknown which Permit began after the SKIP"),
        (ForgetsSkips, "reserve.skip", "also if the cycle held nothing"),
        (LosesItsToken, "reconcile.restart", "answers MISSING_CYCLE"),
        (HoldsWhatItTookUp, "reconcile.restart", "took up and Unreserve gave back is still held"),
        (ReleasesNothing, "reconcile.releases", "what Reconcile did not list is not released"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_kit_names_this_case_alone(
    plugin: type[ConformingPlugin], case_id: str, detail: str, tmp_path: Path
) -> None:
    found = failures(of_reservations(plugin(), tmp_path))
    assert list(found) == [case_id]
    assert detail in found[case_id]


def test_kit_names_reservations_that_a_new_host_does_not_end(tmp_path: Path) -> None:
    ids = ("reconcile.releases", "reconcile.new-host")
    found = failures(report_of(KeepsOtherEpochs(), tmp_path, "binding", *ids))
    assert list(found) == ["reconcile.new-host"]
    assert "what the host before reserved is not released" in found["reconcile.new-host"]


def test_kit_names_reservations_that_are_never_given_back(tmp_path: Path) -> None:
    found = failures(report_of(NeverGivesBack(), tmp_path, "binding", "reserve.again", "unreserve.repeat"))
    assert list(found) == ["reserve.again"]
    assert "what Unreserve gave back cannot be reserved again" in found["reserve.again"]


# --- the same call several times at once --------------------------------------------------------------------


class Races(ConformingPlugin):
    """Looks first and acts then, without a lock between the two."""

    MEETS_S: ClassVar[float] = 0.2
    """The time in which the second call of a pair arrives, if there is one."""
    rpc: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, threading.Event] = {}

    def answer(self, rpc: str, request: Any, reply: Any) -> Any:
        if rpc != self.rpc:
            return super().answer(rpc, request, reply)
        cycle_id = request.ctx.cycle_id
        with self.lock:
            met = self.open.get(cycle_id)
            if met is None:
                mine = self.open[cycle_id] = threading.Event()
        if met is not None:
            met.set()
            return self.raced(super().answer(rpc, request, reply))
        mine.wait(self.MEETS_S)
        found = super().answer(rpc, request, reply)
        with self.lock:
            del self.open[cycle_id]
        return found

    def raced(self, answer: Any) -> Any:
        """Return the answer to a call that came while the same call was open."""
        raise NotImplementedError


class DecidesOtherwise(Races):
    def raced(self, answer: Any) -> Any:
        answer.ctx.status.code = Code.CODE_ERROR
        return answer


class ReservesOtherwise(DecidesOtherwise):
    rpc = "Reserve"


class PermitsOtherwise(DecidesOtherwise):
    rpc = "Permit"


class PreBindsOtherwise(DecidesOtherwise):
    rpc = "PreBind"


class BindsOtherwise(DecidesOtherwise):
    rpc = "Bind"


class GivesTwoTokens(Races):
    rpc = "Reserve"

    def raced(self, answer: Any) -> Any:
        answer.ctx.plugin_token = b"second"
        return answer

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        answer = super().Reserve(request)
        answer.ctx.plugin_token = b"first"
        return answer


class TakesTwice(Races):
    """Takes one of six slots for each call that finds none taken; Unreserve frees one."""

    rpc = "Reserve"

    def __init__(self) -> None:
        super().__init__()
        self.free_slots = 6

    def raced(self, answer: Any) -> Any:
        if answer.ctx.status.code == Code.CODE_SUCCESS:
            self.free_slots -= 1
        return answer

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        if (request.ctx.plugin, request.ctx.cycle_id) not in self.reserved:
            if self.free_slots < 1:
                return scheduling.ReserveResponse(ctx=decided(Code.CODE_UNSCHEDULABLE))
            self.free_slots -= 1
        return super().Reserve(request)

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        self.free_slots += sum((request.plugin, item.cycle_id) in self.reserved for item in request.items)
        return super().Unreserve(request)


class PatchesAnother(Races):
    rpc = "PreBind"

    def raced(self, answer: Any) -> Any:
        del answer.patches[:]
        return answer


class FiltersOtherwise(Races):
    rpc = "Filter"

    def raced(self, answer: Any) -> Any:
        answer.verdicts.rejected.add(nodes=pb.NodeSet(bitmap=b"\1"))
        return answer


class ScoresOtherwise(Races):
    rpc = "Score"

    def raced(self, answer: Any) -> Any:
        answer.scores.dense[0] = 77
        return answer


@pytest.mark.parametrize(
    ("plugin", "case_id", "sibling", "detail"),
    [
        (ReservesOtherwise, "reserve.at-once", "reserve.late", "the same Reserve at once gets CODE_"),
        (GivesTwoTokens, "reserve.at-once", "reserve.late", "2 different tokens"),
        (TakesTwice, "reserve.at-once", "reserve.late", "4 times the same Reserve at once have taken"),
        (PermitsOtherwise, "permit.at-once", "permit.answer", "the same Permit at once gets"),
        (PreBindsOtherwise, "preBind.at-once", "preBind.rounds", "the same PreBind at once gets"),
        (PatchesAnother, "preBind.at-once", "preBind.rounds", "patches of different objects"),
        (BindsOtherwise, "bind.at-once", "bind.answer", "the same Bind at once gets"),
        (FiltersOtherwise, "calls.same-at-once", "filter.repeat", "the same Filter at once gets different"),
        (ScoresOtherwise, "calls.same-at-once", "score.repeat", "the same Score at once gets different"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_kit_names_a_race_and_not_the_same_calls_one_after_the_other(
    plugin: type[Races], case_id: str, sibling: str, detail: str, tmp_path: Path
) -> None:
    report = report_of(plugin(), tmp_path, "binding", case_id, sibling)
    found = failures(report)
    assert list(found) == [case_id]
    assert detail in found[case_id]
    assert result_of(report, sibling)[0] == "pass"
