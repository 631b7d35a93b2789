"""Cases of the level core about the scheduling cycle up to Score, and about every call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from berth_sdk.conformance import checks
from berth_sdk.conformance.answers import around
from berth_sdk.conformance.case import BrokenError, SkippedError, Subject, case, declares
from berth_sdk.conformance.host import Begun, Cycle, Host, skipped
from berth_sdk.conformance.timing import answers_in_time
from berth_sdk.conformance.way import Way, lacking
from berth_sdk.conformance.world import Resident, incoming, usage
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

_UNKNOWN_FIELD = b"\xfa\x7f\x03new"
_CANCELLATIONS = 5
AT_ONCE = 16
SAME_AT_ONCE = 8
PURE: Final = {"PRE_FILTER": "PreFilter", "FILTER": "Filter", "PRE_SCORE": "PreScore", "SCORE": "Score"}
"""The pure calls in the order of a cycle, by their points."""
judges = declares(*PURE)


def simulates(subject: Subject) -> bool:
    """Return True if the host may call SimulateFilter."""
    how = subject.plugin.pod_sensitivity
    if how == identity.POD_SENSITIVITY_UNSPECIFIED:
        return subject.has("FILTER") and subject.keeps_state
    return subject.has("FILTER") and how != identity.POD_SENSITIVITY_NONE


# --- PreFilter and Filter -------------------------------------------------------------------------------


@case(
    "preFilter.answer",
    "core",
    "The answer names its cycle, a code with a meaning there, and candidates only, each once.",
    declares("PRE_FILTER"),
)
def _pre_filter_answer(host: Host) -> None:
    Way(host).pre_filter()


@case(
    "preFilter.repeat",
    "core",
    "A repeat in the same cycle gets the same answer.",
    declares("PRE_FILTER"),
)
def _pre_filter_repeat(host: Host) -> None:
    cycle = host.cycle()
    request = cycle.request("PreFilter", candidates=host.candidates())
    _same(host, "PreFilter", request)


@case(
    "filter.answer",
    "core",
    "Each verdict has a code with a meaning there, and is about candidates only, each once.",
    declares("FILTER"),
)
def _filter_answer(host: Host) -> None:
    way = Way(host)
    _to_filter(way)
    way.filter()


@case(
    "filter.some",
    "core",
    "Asked about some of the nodes, the plugin answers about those alone.",
    declares("FILTER"),
)
def _filter_some(host: Host) -> None:
    way = Way(host)
    _to_filter(way)
    for chosen in (way.left[1::2], way.left[-1:]):
        way.filter(chosen)


@case(
    "filter.repeat",
    "core",
    "A repeat in the same cycle gets the same answer.",
    declares("FILTER"),
)
def _filter_repeat(host: Host) -> None:
    way = Way(host)
    _to_filter(way)
    _same(host, "Filter", way.cycle.request("Filter", candidates=host.candidates(way.left)))


@case(
    "filter.early-scores",
    "core",
    "Early scores come only where the normalization allows them, one for each candidate, in its range.",
    declares("FILTER"),
)
def _filter_early_scores(host: Host) -> None:
    way = Way(host)
    _to_filter(way)
    answer = way.filter()
    if not answer.HasField("early_scores"):
        raise skipped("Filter answers no early scores, which is allowed")


@case(
    "simulateFilter.answer",
    "core",
    "There is one status for each scenario, with a code that has a meaning there.",
    simulates,
)
def _simulate_filter_answer(host: Host) -> None:
    way = Way(host)
    _to_filter(way)
    way.filter()
    first, second, _ = nodes = host.world.candidates[:3]
    assumptions = [scenario_node(host, node.index) for node in nodes]
    assumptions.append(scenario_node(host, second.index, removed=list(second.pods)))
    assumptions.append(scenario_node(host, first.index, [Resident("kit-added")]))
    scenarios = [scheduling.Scenario(node=node) for node in assumptions]
    answer = way.cycle.ask("SimulateFilter", scenarios=scenarios)
    if len(answer.statuses) != len(scenarios):
        raise BrokenError(
            f"SimulateFilter answers {len(answer.statuses)} statuses for {len(scenarios)} scenarios"
        )
    for status in answer.statuses:
        checks.status("SimulateFilter", status)


@case(
    "postFilter.answer",
    "core",
    "The answer nominates a node that exists, and victims of lower priority on it; or it says that "
    "it cannot help.",
    declares("POST_FILTER"),
)
def _post_filter_answer(host: Host) -> None:
    way = Way(host)
    if host.subject.has("PRE_FILTER"):
        way.pre_filter()
    no_room = pb.PluginStatus(code=pb.PluginStatus.CODE_UNSCHEDULABLE, reasons=["Insufficient cpu"])
    group = scheduling.NodeGroup(status=no_room, nodes=host.candidates())
    answer = way.cycle.ask("PostFilter", rejected=[group], rejected_by=["NodeResourcesFit"], patience_s=5.0)
    code = checks.decision("PostFilter", answer.ctx)
    checks.patches("PostFilter", host, answer.patches, way.cycle)
    node = answer.nominated_node
    if node and answer.clear_nomination:
        raise BrokenError("PostFilter nominates a node and clears the nomination")
    if code == pb.PluginStatus.CODE_SUCCESS and not node and not answer.clear_nomination:
        raise BrokenError("PostFilter answers SUCCESS with neither nominated_node nor clear_nomination")
    here = {item.name: item for item in host.world.candidates}
    if node and node not in here:
        raise BrokenError(f"PostFilter nominates {node!r}, which does not exist")
    for victim in answer.victims:
        if not node or victim.uid not in here[node].pods:
            raise BrokenError(
                f"PostFilter names the victim {victim.name!r}, which is not on the nominated node"
            )


# --- Score ------------------------------------------------------------------------------------------------


@case(
    "preScore.answer",
    "core",
    "The answer is SUCCESS, SKIP or ERROR; early scores are one for each candidate.",
    declares("PRE_SCORE"),
)
def _pre_score_answer(host: Host) -> None:
    way = Way(host)
    way.to_score()
    way.pre_score()


@case(
    "score.answer",
    "core",
    "There is one score for each candidate, in one form, in the range that the normalization says.",
    declares("SCORE"),
)
def _score_answer(host: Host) -> None:
    way = _scored(host)
    way.score()


@case(
    "score.some",
    "core",
    "Asked about some of the nodes, the plugin scores those alone.",
    declares("SCORE"),
)
def _score_some(host: Host) -> None:
    way = _scored(host, 2)
    way.score()


@case(
    "score.repeat",
    "core",
    "A repeat in the same cycle gets the same answer.",
    declares("SCORE"),
)
def _score_repeat(host: Host) -> None:
    way = _scored(host)
    _same(host, "Score", way.cycle.request("Score", candidates=host.candidates(way.left)))


@case(
    "normalizeScore.answer",
    "core",
    "There is one score in 0..100 for each candidate.",
    declares("NORMALIZE_SCORE"),
)
def _normalize_score_answer(host: Host) -> None:
    way = _scored(host)
    raw = way.score()
    for scores in (scheduling.Scores(dense=raw), scheduling.Scores(dense=[7] * len(raw))):
        answer = way.cycle.ask("NormalizeScore", candidates=host.candidates(way.left), scores=scores)
        checks.decision("NormalizeScore", answer.ctx)
        checks.scores("NormalizeScore", host, answer.scores, way.left, final=True)


@case(
    "normalizeScore.small",
    "core",
    "Scores of few nodes, all alike, 0 and 1, and below 0 where the plugin answers such, come into 0..100;"
    " the same as `dense` and as `small`.",
    declares("NORMALIZE_SCORE"),
)
def _normalize_score_small(host: Host) -> None:
    found = _own_scores(host)
    low, high = min(found), max(found)
    for count in (0, 2, 1):
        way = _scored(host, count)
        nodes = len(way.left)
        _in_range(way, way.score())
        for few in sorted({low, high, *(score for score in (-1, 0, 1) if low <= score <= high)}):
            _in_range(way, [few] * nodes)
        for less, more in ((low, high), (0, 1), (-1, 0), (-1, 1)):
            if low <= less < more <= high:
                _in_range(way, [less] * (nodes - 1) + [more])
                _in_range(way, [more] * (nodes - 1) + [less])


def _own_scores(host: Host) -> list[int]:
    """Return scores that the plugin answers about pods of several sizes."""
    found = _scored(host).score()
    for pod in around(host, host.world.nodes[9], host.world.nodes[1]):
        way = Way(host)
        way.cycle.like = pod
        with suppress(SkippedError):  # scoring needs two nodes for the pod
            way.to_score()
            if host.subject.has("PRE_SCORE"):
                way.pre_score()
            found += way.score()
    return found


def _in_range(way: Way, raw: Sequence[int]) -> None:
    """Check the final scores for raw ones, in both forms that the host may write."""
    host, candidates = way.host, way.host.candidates(way.left)
    forms = {"dense": scheduling.Scores(dense=raw)}
    if all(0 <= score <= 255 for score in raw):
        forms["small"] = scheduling.Scores(small=bytes(raw))
    final: dict[str, list[int]] = {}
    for form, sent in forms.items():
        try:
            answer = way.cycle.ask("NormalizeScore", candidates=candidates, scores=sent)
            if not checks.is_success(checks.decision("NormalizeScore", answer.ctx)):
                raise BrokenError(f"NormalizeScore answers {checks.reasons(answer.ctx.status)}")
            final[form] = checks.scores("NormalizeScore", host, answer.scores, way.left, final=True)
        except BrokenError as err:
            raise BrokenError(f"{err}; the raw scores are {list(raw)}, as `{form}`") from None
    if len({tuple(scores) for scores in final.values()}) > 1:
        raise BrokenError(
            f"NormalizeScore answers {final['dense']} to the raw scores {list(raw)} as `dense`, and"
            f" {final['small']} to the same as `small`"
        )


# --- every call -----------------------------------------------------------------------------------------


@case(
    "calls.unknown-values",
    "core",
    "Requests of a newer host are answered: with fields and enum values that the plugin does not know.",
    judges,
)
def _unknown_values(host: Host) -> None:
    rpc, cycle = pure_call(host)
    context = cycle.context(complete=True)
    end = context.ended.add(cycle_id="never-seen")
    end.MergeFromString(b"\x10\x2a")  # the outcome 42
    context.MergeFromString(_UNKNOWN_FIELD)
    context.pod.MergeFromString(_UNKNOWN_FIELD)
    context.pod.summary.MergeFromString(_UNKNOWN_FIELD)
    context.pod.summary.tolerations.add(operator="AnOperatorOfTheFuture", effect="AnEffectOfTheFuture")
    request = cycle.request(rpc, context, candidates=host.candidates())
    request.MergeFromString(_UNKNOWN_FIELD)
    cycle.take(rpc, host.call(rpc, request))


@case(
    "calls.unknown-ended",
    "core",
    "Ended cycles that the plugin never saw, and the same one twice, change nothing.",
    judges,
)
def _unknown_ended(host: Host) -> None:
    rpc, cycle = pure_call(host)
    ended = [pb.CycleEnd(cycle_id="never-seen", outcome=outcome) for outcome in pb.CycleEnd.Outcome.values()]
    ended.append(ended[0])
    cycle.ask(rpc, cycle.context(complete=True, ended=ended), candidates=host.candidates())


@case(
    "calls.in-time",
    "core",
    "Each pure call is answered within its deadline: the best of five, after some to warm up.",
    judges,
)
def _in_time(host: Host) -> None:
    asked, why = False, SkippedError("the plugin has no pure call")
    for point, rpc in PURE.items():
        if host.subject.has(point):
            try:
                _answers_in_time(host, rpc)
                asked = True
            except SkippedError as err:
                why = err
    if not asked:
        raise why


def _answers_in_time(host: Host, rpc: str) -> None:
    """Check the time of one pure call. Raises SkippedError if the host would not make the call."""

    def ask(patience_s: float) -> None:
        way = Way(host)
        _to(way, rpc)
        request = way.cycle.request(
            rpc, way.cycle.context(complete=True), candidates=host.candidates(way.left)
        )
        way.cycle.take(rpc, host.call(rpc, request, patience_s))

    answers_in_time(host, rpc, ask)


@case(
    "calls.cancelled",
    "core",
    "After calls that the host cancels, the plugin answers the next ones.",
    judges,
)
def _cancelled(host: Host) -> None:
    rpc, _ = pure_call(host)
    for _ in range(_CANCELLATIONS):
        begun = [_begun(host, rpc) for _ in range(AT_ONCE)]
        # The first answer shows that the plugin is at work on the others.
        begun[0].answer()
        for one in begun[1:]:
            one.cancel()
        _begun(host, rpc).cancel()
    host.probe()
    cycle = host.cycle()
    cycle.ask(rpc, cycle.context(complete=True), candidates=host.candidates())


@case(
    "calls.at-once",
    "core",
    "Calls of sixteen cycles at the same time get the answers that they get one after the other.",
    judges,
)
def _at_once(host: Host) -> None:
    rpc, _ = pure_call(host)
    cycles = [host.cycle() for _ in range(AT_ONCE)]
    requests = [
        cycle.request(rpc, cycle.context(complete=True), candidates=host.candidates()) for cycle in cycles
    ]
    begun = [host.begin(rpc, request) for request in requests]
    for cycle, request, call in zip(cycles, requests, begun, strict=True):
        answer = call.answer()
        cycle.take(rpc, answer)
        if bare(host.call(rpc, request)) != bare(answer):
            raise BrokenError(f"{rpc} answers otherwise when other calls are open at the same time")


@case(
    "calls.same-at-once",
    "core",
    "Each pure call, eight times in one cycle at once, gets one answer.",
    judges,
)
def _same_at_once(host: Host) -> None:
    def check(rpc: str) -> None:
        request = way.cycle.request(
            rpc, way.cycle.context(complete=True), candidates=host.candidates(way.left)
        )
        answers = host.begin_all(rpc, request, SAME_AT_ONCE)
        for answer in answers:
            way.cycle.take(rpc, answer)
            if bare(answer) != bare(answers[0]):
                raise BrokenError(f"the same {rpc} at once gets different answers; the call is pure")

    subject = host.subject
    way = Way(host)
    if subject.has("PRE_FILTER"):
        check("PreFilter")
    way.to_filter()
    if subject.has("FILTER") and not way.skips_filter and not way.early_filter:
        check("Filter")
    if not subject.has("PRE_SCORE", "SCORE"):
        return
    way = Way(host)
    way.to_score()
    if subject.has("PRE_SCORE"):
        check("PreScore")
        way.pre_score()
    if subject.has("SCORE"):
        check("Score")


@case(
    "calls.large",
    "core",
    "A request that is large, and allowed, is answered.",
    judges,
)
def _large(host: Host) -> None:
    rpc, cycle = pure_call(host)
    context = cycle.context(complete=True)
    room = min(host.subject.max_message_bytes, 4 * 1024 * 1024) * 3 // 4
    pod = context.pod.summary
    while room > 0:
        size = min(room, 200_000)
        pod.annotations[f"example.com/large-{room}"] = "x" * size
        room -= size
    cycle.ask(rpc, context, candidates=host.candidates())


def pure_call(host: Host) -> tuple[str, Cycle]:
    """Return the first pure call of a cycle that the plugin has, and a new cycle."""
    for point, rpc in PURE.items():
        if host.subject.has(point):
            return rpc, host.cycle()
    raise skipped("the plugin has no pure call")


def _begun(host: Host, rpc: str) -> Begun:
    """Begin a pure call in a cycle of its own."""
    cycle = host.cycle()
    return host.begin(rpc, cycle.request(rpc, cycle.context(complete=True), candidates=host.candidates()))


def _to(way: Way, rpc: str) -> None:
    """Make the calls before a pure call; `way.left` has the nodes to ask about."""
    if rpc == "PreFilter":
        return
    if rpc == "Filter":
        _to_filter(way)
        return
    way.to_score()
    if rpc == "Score" and way.host.subject.has("PRE_SCORE"):
        way.pre_score()


def _to_filter(way: Way) -> None:
    way.to_filter()
    if way.skips_filter:
        raise lacking(way.host, "PreFilter answers SKIP: the plugin filters nothing for this pod")
    if not way.left:
        raise lacking(way.host, "PreFilter leaves no node for this pod")


def _scored(host: Host, count: int = 0) -> Way:
    """Return a way to Score, over all nodes that are left or over `count` of them."""
    way = Way(host)
    way.to_score()
    if count:
        way.left = way.left[-count:]
    if host.subject.has("PRE_SCORE"):
        way.pre_score()
    return way


def _same(host: Host, rpc: str, request: Any) -> None:
    """Check that a repeat of a call, as the host makes it, gets the same answer."""
    first = host.call(rpc, request)
    request.ctx.attempt = 1
    request.ctx.pod.summary.CopyFrom(incoming(request.ctx.pod.summary.ref.name, host.target.pod))
    request.ctx.pod.complete = True
    if bare(host.call(rpc, request)) != bare(first):
        raise BrokenError(f"a repeat of {rpc} in the same cycle gets another answer; the call is pure")


def bare(answer: Any) -> Any:
    """Return an answer without what may differ between two calls: the cycle and the token."""
    found = type(answer)()
    found.CopyFrom(answer)
    for name in ("cycle_id", "plugin_token", "publish"):
        found.ctx.ClearField(name)
    return found


def scenario_node(
    host: Host, index: int, added: Sequence[Resident] = (), removed: Sequence[str] = ()
) -> scheduling.ScenarioNode:
    """Return a node with these pods more, and without those of these uids."""
    node = host.world.nodes[index]
    named = {"node_index": index} if host.subject.is_snapshot else {"node_name": node.name}
    made = scheduling.ScenarioNode(**named)
    made.removed.extend(node.pods[uid].summary.ref for uid in removed)
    made.added.extend(host.world.resident(pod, node.name) for pod in added)
    if identity.DeclaredNeed.KIND_NODE_SUMMARY in host.subject.kinds:
        left = [pod for uid, pod in node.pods.items() if uid not in removed]
        made.usage.CopyFrom(usage([*left, *added]))
    return made
