"""The conformance kit passes plugins that keep every rule, and names the case that a wrong one breaks."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from berth_sdk.conformance import run, timing
from berth_sdk.conformance import stateful as stateful_cases
from berth_sdk.conformance.host import Host, Target
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import queue_pb2
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from google.protobuf.duration_pb2 import Duration
from support.conforming_plugin import SUCCESS, ConformingPlugin, RefusalError, decided
from support.kit import failures, report_of, result_of

REJECTED = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE)


class InNames(ConformingPlugin):
    is_snapshot = False
    fields: ClassVar[dict[str, Any]] = {"pod_sensitivity": identity.POD_SENSITIVITY_NODE}


class OfGroups(ConformingPlugin):
    points = ("PLACEMENT_GENERATE", "PLACEMENT_SCORE", "NORMALIZE_PLACEMENT_SCORE", "PLACEMENT_FEASIBLE")

    def lacking(self, ctx: pb.CallContext) -> list[pb.Missing.ValueType]:
        self.pods[ctx.cycle_id] = pb.PodSummary()
        return super().lacking(ctx)

    def PlacementFeasible(self, request: Any) -> Any:  # noqa: N802
        failed = range(min(request.max_failures, request.remaining) + 1)
        steps = sum(request.remaining - number + 1 for number in failed)
        return scheduling.PlacementFeasibleResponse(runs=[scheduling.FeasibleRun(count=steps)])

    def NormalizePlacementScore(self, request: Any) -> Any:  # noqa: N802
        return scheduling.NormalizePlacementScoreResponse(scores=[50] * len(request.placements))


class Normalizes(ConformingPlugin):
    """Scores below and above 0, and brings the scores into 0..100 by the lowest and the highest one."""

    points = ("FILTER", "SCORE", "NORMALIZE_SCORE")
    fields: ClassVar[dict[str, Any]] = {"normalization": identity.SCORE_NORMALIZATION_RPC}

    def Score(self, request: Any) -> Any:  # noqa: N802
        answer = super().Score(request)
        answer.scores.dense[:] = [score - 50 for score in answer.scores.dense]
        return answer

    def NormalizeScore(self, request: Any) -> Any:  # noqa: N802
        found = list(request.scores.dense) or list(request.scores.small)
        low, range_ = min(found), max(found) - min(found)
        dense = [100 * (score - low) // range_ if range_ else 0 for score in found]
        return scheduling.NormalizeScoreResponse(scores=scheduling.Scores(dense=dense))


class WithObjects(ConformingPlugin):
    """Keeps the objects of a resource in its copy."""

    fields: ClassVar[dict[str, Any]] = {
        "needs": [identity.DeclaredNeed(kind=identity.DeclaredNeed.KIND_OBJECT, resource="configmaps")]
    }

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, int] = {}

    def of_before(self, full: bool) -> dict[str, int]:
        """Return the objects to which a state is applied."""
        return {} if full else dict(self.objects)

    def apply(self, deltas: list[pb.StateDelta]) -> bool:
        objects = self.of_before(not deltas[0].HasField("base"))
        for item in (item for delta in deltas for item in delta.objects):
            objects.pop(item.ref.name, None)
            if not item.removed:
                objects[item.ref.name] = item.generation
        self.coming = objects
        taken = super().apply(deltas)
        if taken:
            self.objects = objects
        return taken

    def is_sum(self, nodes: dict[int, int], last: pb.StateDelta) -> bool:
        total = (sum(nodes.values()) + sum(self.coming.values())) % 2**53
        sums = (last.node_count, last.object_count, last.generation_sum)
        return (len(nodes), len(self.coming), total) == sums


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "plugin",
    [ConformingPlugin, InNames, OfGroups, Normalizes, WithObjects],
    ids=lambda plugin: plugin.__name__,
)
def test_kit_passes_a_plugin_that_keeps_every_rule(plugin: type[ConformingPlugin], tmp_path: Path) -> None:
    report = report_of(plugin(), tmp_path)
    assert failures(report) == {}
    assert report.conforms


# --- one fault each -----------------------------------------------------------------------------------------


class ScoreOver100(ConformingPlugin):
    def Score(self, request: Any) -> Any:  # noqa: N802
        answer = super().Score(request)
        answer.scores.dense[0] = 101
        return answer


class ScoresTooShort(ConformingPlugin):
    def Score(self, request: Any) -> Any:  # noqa: N802
        answer = super().Score(request)
        del answer.scores.dense[0]
        return answer


class IndexOutOfRange(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        answer.verdicts.rejected.add(status=REJECTED, nodes=pb.NodeSet(bitmap=b"\x00\x00\x00\x00\x01"))
        return answer


class NodeTwice(InNames):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        name = request.candidates.names[0]
        answer = super().Filter(request)
        answer.verdicts.rejected.add(status=REJECTED, nodes=pb.NodeSet(names=[name, name]))
        return answer


class NodeInTwoGroups(InNames):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        for _ in range(2):
            answer.verdicts.rejected.add(
                status=REJECTED, nodes=pb.NodeSet(names=request.candidates.names[:1])
            )
        return answer


class UnknownNode(InNames):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        answer.verdicts.rejected.add(status=REJECTED, nodes=pb.NodeSet(names=["no-such-node"]))
        return answer


class EarlyScores(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        scores = [1] * len(self.within(request.candidates))
        return scheduling.FilterResponse(early_scores=scheduling.Scores(dense=scores))


class UnknownCode(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        answer.ctx.status.MergeFromString(b"\x08\x63")
        return answer


class ReasonsWithoutCode(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        return scheduling.FilterResponse(ctx=pb.ReplyContext(status=pb.PluginStatus(reasons=["no"])))


class NamesNoCycle(ConformingPlugin):
    def echo(self, request: Any, answer: Any) -> None:
        pass


class AnswersTooLarge(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        return scheduling.FilterResponse(ctx=pb.ReplyContext(plugin_token=bytes(5 * 1024 * 1024)))


class Undecided(ConformingPlugin):
    def Reserve(self, request: Any) -> Any:  # noqa: N802
        super().Reserve(request)
        return scheduling.ReserveResponse()


class ClaimsToHaveBound(ConformingPlugin):
    def Bind(self, request: Any) -> Any:  # noqa: N802
        return scheduling.BindResponse(ctx=decided())


class UnreservesOnce(ConformingPlugin):
    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        if all((request.plugin, item.cycle_id) in self.given_back for item in request.items):
            return scheduling.UnreserveResponse()
        return super().Unreserve(request)


class ReservesAfterUnreserve(ConformingPlugin):
    def Reserve(self, request: Any) -> Any:  # noqa: N802
        return scheduling.ReserveResponse(ctx=decided())


class RefusesTheDuplicate(ConformingPlugin):
    def Reserve(self, request: Any) -> Any:  # noqa: N802
        if (request.ctx.plugin, request.ctx.cycle_id) in self.reserved:
            return scheduling.ReserveResponse(ctx=decided(pb.PluginStatus.CODE_UNSCHEDULABLE))
        return super().Reserve(request)


class NeverMissesState(ConformingPlugin):
    def lacking(self, ctx: pb.CallContext) -> list[pb.Missing.ValueType]:
        return [one for one in super().lacking(ctx) if one != pb.MISSING_STATE]


class AppliesAnyBase(ConformingPlugin):
    def is_base(self, delta: pb.StateDelta) -> bool:
        return True

    def is_sum(self, nodes: dict[int, int], last: pb.StateDelta) -> bool:
        return True


class IgnoresSums(ConformingPlugin):
    def is_sum(self, nodes: dict[int, int], last: pb.StateDelta) -> bool:
        return True


class KeepsOldObjects(WithObjects):
    def of_before(self, full: bool) -> dict[str, int]:
        return dict(self.objects)


class IgnoresObjectCount(WithObjects):
    def is_sum(self, nodes: dict[int, int], last: pb.StateDelta) -> bool:
        last.object_count = len(self.coming)
        return super().is_sum(nodes, last)


class ForgetsIds(ConformingPlugin):
    def Handshake(self, request: Any) -> Any:  # noqa: N802
        self.named.clear()
        return super().Handshake(request)


class AcceptsAnyId(ConformingPlugin):
    def Configure(self, request: Any) -> Any:  # noqa: N802
        self.named.append(request.attachment_id)
        return super().Configure(request)


class ForgetsTheRepeat(ConformingPlugin):
    def Configure(self, request: Any) -> Any:  # noqa: N802
        answer = super().Configure(request)
        self.named.remove(request.attachment_id)
        return answer


class BreaksOnUnknownValues(ConformingPlugin):
    def lacking(self, ctx: pb.CallContext) -> list[pb.Missing.ValueType]:
        for end in ctx.ended:
            pb.CycleEnd.Outcome.Name(end.outcome)
        return super().lacking(ctx)


class AnotherInstance(ConformingPlugin):
    def Probe(self, request: Any) -> Any:  # noqa: N802
        super().Probe(request)
        return identity.ProbeResponse(ready=True, instance_id="instance-2")


class PatchesStrangers(ConformingPlugin):
    def PreBind(self, request: Any) -> Any:  # noqa: N802
        answer = super().PreBind(request)
        for patch in answer.patches:
            patch.resource = "services"
        return answer


class RefusesLargeRequests(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        if request.ByteSize() > 1_000_000:
            raise RefusalError(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")
        return super().Filter(request)


class FlipsAnswers(ConformingPlugin):
    def Score(self, request: Any) -> Any:  # noqa: N802
        answer = super().Score(request)
        self.flips = getattr(self, "flips", 0) + 1
        answer.scores.dense[0] = self.flips % 100
        return answer


class OneStatusForAll(ConformingPlugin):
    def SimulateFilter(self, request: Any) -> Any:  # noqa: N802
        return scheduling.SimulateFilterResponse(statuses=[SUCCESS])


class StepsTooFew(OfGroups):
    def PlacementFeasible(self, request: Any) -> Any:  # noqa: N802
        return scheduling.PlacementFeasibleResponse(runs=[scheduling.FeasibleRun(count=1)])


class NeedsMetadata(ConformingPlugin):
    def compare(self, request: Any, context: Any) -> None:
        if "berth-attachment-id" not in dict(context.invocation_metadata()):
            raise RefusalError(grpc.StatusCode.UNAUTHENTICATED, "no metadata")
        super().compare(request, context)


class DescribesAnew(ConformingPlugin):
    """Describes itself in the answer to Configure, as `changes` says."""

    changes: ClassVar[dict[str, Any]] = {}

    def Configure(self, request: Any) -> Any:  # noqa: N802
        answer = super().Configure(request)
        described = answer.plugins.add()
        described.CopyFrom(self.hello.plugins[0])
        described.MergeFrom(identity.PluginDescriptor(**self.changes))
        return answer


class DescribesAStranger(DescribesAnew):
    changes: ClassVar[dict[str, Any]] = {"name": "Another"}


class DescribesOtherPoints(DescribesAnew):
    changes: ClassVar[dict[str, Any]] = {"points": [identity.EXTENSION_POINT_PRE_SCORE]}


class DescribesOtherVersion(DescribesAnew):
    changes: ClassVar[dict[str, Any]] = {"version": "9"}


_OBJECT = identity.DeclaredNeed.KIND_OBJECT


class NeedsPods(ConformingPlugin):
    fields: ClassVar[dict[str, Any]] = {"needs": [identity.DeclaredNeed(kind=_OBJECT, resource="pods")]}


class NeedsTooMuch(ConformingPlugin):
    fields: ClassVar[dict[str, Any]] = {"reads_shared": ["Other/key"] * 257}


class ReceivesTooLittle(ConformingPlugin):
    def Handshake(self, request: Any) -> Any:  # noqa: N802
        answer = super().Handshake(request)
        answer.max_message_bytes = 65_535
        return answer


class PublishesForOthers(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        answer.ctx.publish.add(key="Other/key")
        return answer


class PublishesTooMuch(ConformingPlugin):
    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        answer.ctx.publish.add(key="Kit/key", value=bytes(64 * 1024 + 1))
        return answer


class BreaksWhenCancelled(ConformingPlugin):
    """Answers no call of a cycle any more after one was cancelled while the plugin was at work on it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False
        self.numbers = itertools.count()

    def compare(self, request: Any, context: Any) -> None:
        super().compare(request, context)
        if not isinstance(request, scheduling.FilterRequest):
            return
        cancelled = threading.Event()
        if not context.add_callback(cancelled.set) or cancelled.wait(0.02 * (next(self.numbers) % 32)):
            self.is_broken = True
        if self.is_broken:
            raise RefusalError(grpc.StatusCode.INTERNAL, "a lock is never released")


FAULTS: list[tuple[type[ConformingPlugin], str, str]] = [
    (ScoreOver100, "score.answer", "the score 101, which is outside 0..100"),
    (ScoresTooShort, "score.answer", "7 scores for 8 candidates"),
    (IndexOutOfRange, "filter.answer", "the index 32, which is no candidate"),
    (NodeTwice, "filter.answer", "lists the node 'kit-node-0' twice"),
    (NodeInTwoGroups, "filter.answer", "in two groups"),
    (UnknownNode, "filter.answer", "'no-such-node', which is no candidate"),
    (
        EarlyScores,
        "filter.early-scores",
        "early scores, which SCORE_NORMALIZATION_UNSPECIFIED does not allow",
    ),
    (UnknownCode, "filter.answer", "the unknown code 99"),
    (ReasonsWithoutCode, "filter.answer", "reasons without a code"),
    (NamesNoCycle, "filter.answer", "no cycle_id"),
    (AnswersTooLarge, "filter.answer", "larger than max_message_bytes"),
    (Undecided, "reserve.answer", "without a status; the plugin must decide"),
    (ClaimsToHaveBound, "bind.answer", "claims that the pod is bound"),
    (UnreservesOnce, "unreserve.repeat", "does not name the cycle"),
    (ReservesAfterUnreserve, "reserve.late", "asks for CODE_ERROR"),
    (RefusesTheDuplicate, "reserve.duplicate", "the first answer was CODE_SUCCESS"),
    (NeverMissesState, "state.missing", "asks for MISSING_STATE"),
    (AppliesAnyBase, "state.other-base", "asks for MISSING_STATE"),
    (AppliesAnyBase, "syncState.other-base", "applies a delta although its base is not"),
    (IgnoresSums, "syncState.wrong-sums", "whose node_count is wrong"),
    (KeepsOldObjects, "syncState.objects", "need_full, although the state is complete"),
    (IgnoresObjectCount, "syncState.objects", "whose object_count is wrong"),
    (ForgetsIds, "configure.remembers", "after 63 more Handshakes"),
    (AcceptsAnyId, "configure.unknown-id", "asks for PERMISSION_DENIED"),
    (ForgetsTheRepeat, "configure.repeat", "PERMISSION_DENIED"),
    (BreaksOnUnknownValues, "calls.unknown-values", "UNKNOWN"),
    (AnotherInstance, "probe.answer", "'instance-2'"),
    (PatchesStrangers, "preBind.rounds", "services"),
    (RefusesLargeRequests, "calls.large", "too large"),
    (FlipsAnswers, "score.repeat", "the call is pure"),
    (OneStatusForAll, "simulateFilter.answer", "1 statuses for 5 scenarios"),
    (NeedsMetadata, "attachment.metadata", "UNAUTHENTICATED: no metadata"),
    (DescribesAStranger, "configure.descriptors", "the plugin 'Another', which was not configured"),
    (DescribesOtherPoints, "configure.descriptors", "another points than the handshake"),
    (DescribesOtherVersion, "configure.descriptors", "another version than the handshake"),
    (PublishesForOthers, "filter.answer", "publishes the key 'Other/key'"),
    (PublishesTooMuch, "filter.answer", "65537 bytes; a key has at most"),
    (BreaksWhenCancelled, "calls.cancelled", "a lock is never released"),
    (StepsTooFew, "placementFeasible.answer", "runs of 1 steps in all for 4 steps"),
]


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    ("plugin", "case_id", "detail"), FAULTS, ids=[f"{row[0].__name__}-{row[1]}" for row in FAULTS]
)
def test_kit_names_the_case_that_a_wrong_plugin_breaks(
    plugin: type[ConformingPlugin], case_id: str, detail: str, tmp_path: Path
) -> None:
    right = "handshake.answer"
    report = report_of(plugin(), tmp_path, "group", case_id, right)
    found = failures(report)
    assert list(found) == [case_id]
    assert detail in found[case_id]
    assert not report.conforms


@pytest.mark.parametrize(
    ("plugin", "detail"),
    [
        (NeedsPods, "pods and nodes have kinds of their own"),
        (NeedsTooMuch, "257 reads_shared; 256 is the limit"),
        (ReceivesTooLittle, "max_message_bytes of 65535; 65536 is the smallest limit"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_kit_names_a_handshake_that_every_host_refuses(
    plugin: type[ConformingPlugin], detail: str, tmp_path: Path
) -> None:
    assert detail in failures(report_of(plugin(), tmp_path, "core", "handshake.answer"))["handshake.answer"]


class Late(ConformingPlugin):
    """Answers one call only after the deadline, when the host has dropped the call."""

    def __init__(self, late: str) -> None:
        super().__init__()
        self.over = threading.Event()
        self.late = late

    def answer(self, rpc: str, request: Any, reply: Any) -> Any:
        if rpc == self.late:
            self.over.wait()
        return super().answer(rpc, request, reply)


POINTS = {"PreEnqueue": "preEnqueue", "SortKeys": "queueSort"}


class LateInTheQueue(Late):
    points = ("PRE_ENQUEUE", "QUEUE_SORT")

    def PreEnqueue(self, request: Any) -> Any:  # noqa: N802
        return queue_pb2.PreEnqueueResponse(statuses=[SUCCESS] * len(request.pods))

    def SortKeys(self, request: Any) -> Any:  # noqa: N802
        return queue_pb2.SortKeysResponse(keys=[b"key"] * len(request.pods))


@pytest.mark.parametrize(
    ("plugin", "late", "case_id", "limit"),
    [
        (Late, "Filter", "calls.in-time", "0.25"),
        (Late, "Score", "calls.in-time", "0.25"),
        pytest.param(Late, "Reserve", "reserve.in-time", "1", marks=pytest.mark.long),
        pytest.param(Late, "Permit", "permit.in-time", "1", marks=pytest.mark.long),
        (LateInTheQueue, "PreEnqueue", "preEnqueue.in-time", "0.25"),
        (LateInTheQueue, "SortKeys", "queueSort.in-time", "0.25"),
    ],
)
def test_kit_names_answers_that_come_after_the_deadline(
    plugin: type[Late], late: str, case_id: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "WARM_UP_S", 0.1)
    served = plugin(late)
    with served.serving(tmp_path) as address:
        target = Target(address)
        (subject,) = run.subjects(run.hello_of(target))
        cases = [one for one in run.chosen(subject, "binding") if one.id == case_id]
        report = run.run(target, subject, cases)
        served.over.set()  # the server stops when its calls have ended
    found = failures(report)[case_id]
    assert found.startswith(
        f"{late} gave no answer in {limit} s; its deadline is {limit} s, and the host drops"
    )
    assert f"a longer deadline for {POINTS.get(late, late.lower())} (PluginDescriptor.deadlines)" in found


class WithinItsWish(LateInTheQueue):
    """Answers after the default deadline, and within the one that it declares for queueSort."""

    fields: ClassVar[dict[str, Any]] = {
        "deadlines": [
            identity.PointDeadline(point=identity.EXTENSION_POINT_QUEUE_SORT, deadline=Duration(seconds=2))
        ]
    }

    def answer(self, rpc: str, request: Any, reply: Any) -> Any:
        if rpc == "SortKeys":
            self.over.wait(0.4)
        return super().answer("" if rpc == self.late else rpc, request, reply)


def test_kit_waits_for_the_deadline_that_a_plugin_declares(tmp_path: Path) -> None:
    report = report_of(WithinItsWish("SortKeys"), tmp_path, "core", "queueSort.in-time")
    assert failures(report) == {}
    assert report.conforms


class Leaks(ConformingPlugin):
    """Keeps a copy of every pod."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def Filter(self, request: Any) -> Any:  # noqa: N802
        self.kept.append(f"{request.ctx.cycle_id}{request.ctx.pod.summary}" * 2)
        return super().Filter(request)


@pytest.mark.long
@pytest.mark.slow
def test_kit_names_memory_that_grows_with_every_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateful_cases, "ROUNDS", 6)
    found = failures(report_of(Leaks(), tmp_path, "stateful", "memory.cycles"))
    assert "grows with every cycle" in found["memory.cycles"]


@pytest.mark.long
@pytest.mark.slow
def test_kit_passes_memory_that_stays(tmp_path: Path) -> None:
    report = report_of(ConformingPlugin(), tmp_path, "stateful", "memory.cycles")
    assert result_of(report, "memory.cycles") == ("pass", "")


@pytest.mark.parametrize(
    ("sizes", "result"),
    [([0, 0, 0, 0, 2, 4, 6, 8, 10], "fail"), ([0, 9, 12, 15, 16, 16, 16, 16, 16], "pass")],
    ids=["a leak that first fills what was freed before", "a heap that grows and then stays"],
)
def test_memory_is_judged_over_several_rounds(
    sizes: list[int], result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateful_cases, "ROUND", 8)
    monkeypatch.setattr(stateful_cases, "ROUNDS", len(sizes) - 1)
    whole = iter(size * 8 * stateful_cases.PAYLOAD for size in sizes)
    monkeypatch.setattr(stateful_cases, "_resident_bytes", lambda _process: next(whole))
    report = report_of(ConformingPlugin(), tmp_path, "stateful", "memory.cycles")
    assert result_of(report, "memory.cycles")[0] == result


def test_a_server_that_is_too_slow_to_judge_its_memory_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycles = stateful_cases._cycles  # noqa: SLF001

    def slow(host: Host, ended: list[pb.CycleEnd]) -> None:
        cycles(host, ended)
        host.ends_at = time.monotonic()

    monkeypatch.setattr(stateful_cases, "ROUND", 8)
    monkeypatch.setattr(stateful_cases, "_cycles", slow)
    report = report_of(ConformingPlugin(), tmp_path, "stateful", "memory.cycles")
    result, detail = result_of(report, "memory.cycles")
    assert result == "skip"
    assert "too slow to judge the memory" in detail and "--time-factor" in detail


class Dies(ConformingPlugin):
    def Score(self, request: Any) -> Any:  # noqa: N802
        assert self.server is not None
        self.server.stop(0)
        raise RefusalError(grpc.StatusCode.UNAVAILABLE, "the process ends")


def test_cases_after_the_death_of_a_server_say_why_they_were_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RETURN_S", 0.0)
    report = report_of(Dies(), tmp_path, "core", "filter.answer", "score.answer", "score.some")
    results = {one.case.id: one for one in report.results}
    assert [one.result for one in report.results] == ["pass", "fail", "skip"]
    assert "UNAVAILABLE" in results["score.answer"].detail or "CANCELLED" in results["score.answer"].detail
    assert "does not answer any more since the case score.answer" in results["score.some"].detail
