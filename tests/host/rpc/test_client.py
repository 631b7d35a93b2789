"""The client over a plugin in process: answers, readings, deadlines, policies, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest
from berth_host.attempt.cycle import Cycle
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.client import PluginClient
from berth_host.rpc.hint_answer import NO_HINT
from berth_sdk.cycle_state import CycleState
from berth_sdk.events import ClusterEvent, EventInterest, Hint
from berth_sdk.extension_points import ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.results import (
    FilterResult,
    NodeRejections,
    PermitResult,
    PreFilterResult,
    QueuedPod,
)
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from berth_sdk.testing.builders import make_pod
from numpy.typing import NDArray
from structlog.testing import capture_logs
from support.relays import local_client, make_cycle, some_nodes

QUEUED = QueuedPod(pod=make_pod("web"))
EVENT = ClusterEvent(resource="Node", action="add")


class Broken:
    """Raises at every point."""

    events = (EventInterest("Node", hint=Hint.ASK_PLUGIN),)

    def raises(self) -> NoReturn:
        raise ValueError("boom")

    def pre_enqueue(self, pod: QueuedPod) -> Status:
        self.raises()

    def sort_key(self, pod: QueuedPod) -> bytes:
        self.raises()

    def queueing_hint(self, event: ClusterEvent, pod: Pod) -> bool:
        self.raises()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        self.raises()

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        self.raises()

    def post_filter(self, state: CycleState, pod: Pod, rejections: NodeRejections) -> Status:
        self.raises()

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Status:
        self.raises()

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        self.raises()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.raises()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.raises()

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.raises()

    def pre_bind_pre_flight(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.raises()

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> Status:
        self.raises()

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.raises()

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.raises()


FILE = __name__.replace(".", "/")
LINE = Broken.raises.__code__.co_firstlineno + 1
BOOM = f'plugin "Broken" failed at {{}}: ValueError: boom at {FILE}.py:{LINE}: raise ValueError("boom")'
FAILED = f'failed: ValueError: boom at {FILE}.py:{LINE}: raise ValueError("boom")'
NEUTRAL = {"score": PointPolicy(policy=Policy.NEUTRAL)}
Ask = Callable[[PluginClient, Cycle, NodeTable], Any]
STATUSES: dict[str, tuple[str, Ask]] = {
    "PreFilter": ("preFilter", lambda c, cycle, nodes: c.pre_filter(cycle, nodes)),
    "Filter": ("filter", lambda c, cycle, nodes: c.filter(cycle, nodes)),
    "PostFilter": ("postFilter", lambda c, cycle, nodes: c.post_filter(cycle, NodeRejections())),
    "PreScore": ("preScore", lambda c, cycle, nodes: c.pre_score(cycle, nodes)),
    "Reserve": ("reserve", lambda c, cycle, nodes: c.reserve(cycle, "n0")),
    "Permit": ("permit", lambda c, cycle, nodes: c.permit(cycle, "n0")),
    "PreBindPreFlight": ("preBind", lambda c, cycle, nodes: c.pre_bind_pre_flight(cycle, "n0")),
    "PreBind": ("preBind", lambda c, cycle, nodes: c.pre_bind(cycle, "n0")),
    "Bind": ("bind", lambda c, cycle, nodes: c.bind(cycle, "n0")),
}


def status_of(answer: Any) -> Status:
    if isinstance(answer, Status):
        return answer
    if isinstance(answer, Verdicts):
        return answer.status(0)
    status: Status = answer.status
    return status


@pytest.mark.parametrize("call", STATUSES)
async def test_policy_fail_turns_a_fault_into_an_error_that_names_plugin_and_call(call: str) -> None:
    point, ask = STATUSES[call]
    client = local_client(Broken(), points={point: PointPolicy(policy=Policy.FAIL)})
    cycle = make_cycle()
    got = status_of(await ask(client, cycle, some_nodes()))
    assert got == Status(Code.ERROR, (BOOM.format(call),), "Broken")
    assert client.stats.of(call).failures == {"raised": 1}
    assert client.stats.of(call).policies == {"Fail": 1}


async def test_failures_in_a_row_are_one_warning_and_every_one_has_its_traceback_in_process() -> None:
    client = local_client(Broken())
    with capture_logs() as logs:
        for _ in range(3):
            await client.filter(make_cycle(), some_nodes())
    failed = [entry for entry in logs if entry["event"] == "plugin.call_failed"]
    assert [entry["log_level"] for entry in failed] == ["warning", "debug", "debug"]
    for entry in failed:
        raised, _, trace = entry["exc_info"]
        assert raised is ValueError
        assert trace.tb_frame.f_code.co_name == "filter_nodes"


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("PreFilter", Code.SUCCESS),
        ("Filter", Code.SUCCESS),
        ("PostFilter", Code.UNSCHEDULABLE),
        ("PreScore", Code.SKIP),
        ("Reserve", Code.SUCCESS),
        ("Permit", Code.SUCCESS),
        ("PreBindPreFlight", Code.SKIP),
        ("PreBind", Code.SUCCESS),
        ("Bind", Code.ERROR),  # it may have bound the pod: no other plugin is asked
    ],
)
async def test_policy_ignore_acts_as_if_the_plugin_were_not_configured(call: str, want: Code) -> None:
    point, ask = STATUSES[call]
    client = local_client(Broken(), points={point: PointPolicy(policy=Policy.IGNORE)})
    cycle = make_cycle()
    assert status_of(await ask(client, cycle, some_nodes())).code is want
    assert cycle.account.notes == [f'without plugin "Broken" at {call}: it {FAILED} (policy: Ignore)']


async def test_scores_that_did_not_come_count_the_same_for_all_where_the_policy_is_neutral() -> None:
    client, cycle = local_client(Broken(), points=NEUTRAL), make_cycle()
    outcome = await client.score(cycle, some_nodes())
    assert outcome.status is SUCCESS
    assert outcome.normalized.tolist() == [0, 0, 0]
    assert cycle.account.notes == [f'without plugin "Broken" at Score: it {FAILED} (policy: Neutral)']


async def test_score_that_fails_ends_the_cycle_in_kube_schedulers_words() -> None:
    client = local_client(Broken())
    outcome = await client.score(make_cycle(), some_nodes())
    assert outcome.status == Status(
        Code.ERROR,
        (f'running Score plugins: plugin "Broken" failed with: {BOOM.format("Score")}',),
        "Broken",
    )


async def test_queue_questions_without_an_answer_have_their_fallbacks() -> None:
    client = local_client(Broken())
    assert await client.sort_keys([QUEUED]) == [b""]
    assert await client.queueing_hints(EVENT, [QUEUED.pod]) == [NO_HINT]


async def test_pre_enqueue_with_policy_ignore_lets_the_pods_in_and_says_why() -> None:
    client = local_client(Broken(), points={"preEnqueue": PointPolicy(policy=Policy.IGNORE)})
    let_in = Status(Code.SUCCESS, (f"{FAILED} (policy: Ignore)",), "Broken")
    assert await client.pre_enqueue([QUEUED, QUEUED]) == [let_in, let_in]


async def test_pre_enqueue_that_fails_keeps_the_pods_out() -> None:
    client = local_client(Broken())
    (status,) = await client.pre_enqueue([QUEUED])
    assert status == Status(Code.ERROR, (BOOM.format("PreEnqueue"),), "Broken")


async def test_call_that_only_informs_never_fails() -> None:
    client, cycle = local_client(Broken()), make_cycle()
    await client.unreserve(cycle, "n0", "test")
    await client.post_bind(cycle, "n0")
    (note,) = cycle.account.notes
    assert note == f'without plugin "Broken" at Unreserve, PostBind: it {FAILED} (policy: Ignore)'


async def test_scenarios_without_an_answer_are_not_feasible() -> None:
    nodes = some_nodes()
    scenarios = Scenarios(nodes, [Scenario("n0"), Scenario("n1")])
    verdicts = await local_client(Broken()).filter_scenarios(make_cycle(), scenarios)
    assert [status.code for status in verdicts.to_list()] == [Code.UNSCHEDULABLE] * 2
    ignoring = local_client(Broken(), points={"filter": PointPolicy(policy=Policy.IGNORE)})
    assert (await ignoring.filter_scenarios(make_cycle(), scenarios)).all_passed


# --- answers ---------------------------------------------------------------------------------------


class Scorer:
    """Scores given by the test."""

    normalization = ScoreNormalization.HOST_MAX

    def __init__(self, *scores: int) -> None:
        self.scores = np.asarray(scores, dtype=np.int64)

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        return self.scores


async def test_raw_scores_are_normalised_by_the_host() -> None:
    outcome = await local_client(Scorer(1, 2, 4)).score(make_cycle(), some_nodes())
    assert outcome.raw.tolist() == [1, 2, 4]
    assert outcome.normalized.tolist() == [25, 50, 100]


class Final(Scorer):
    """Says its scores are final."""

    normalization = ScoreNormalization.PLUGIN


async def test_score_101_ends_the_cycle_in_kube_schedulers_words_or_counts_for_nothing() -> None:
    failing = local_client(Final(1, 101, 3))
    outcome = await failing.score(make_cycle(), some_nodes())
    assert outcome.status.message == (
        'applying score defaultWeights on Score plugins: plugin "Final" returns an invalid score 101,'
        " it should in the range of [0, 100] after normalizing"
    )
    neutral, cycle = local_client(Final(1, 101, 3), points=NEUTRAL), make_cycle()
    outcome = await neutral.score(cycle, some_nodes())
    assert outcome.normalized.tolist() == [0, 0, 0]
    assert neutral.stats.violations == 1
    (note,) = cycle.account.notes
    said = "it answered the score 101, valid are 0..100 (policy: Neutral)"
    assert note == f'without plugin "Final" at Score: {said}'


class TwoStep(Scorer):
    """Normalises by itself."""

    normalization = ScoreNormalization.RPC

    def normalize(
        self, state: CycleState, pod: Pod, scores: NDArray[np.int64], nodes: NodeTable
    ) -> NDArray[np.int64]:
        return scores // 10


async def test_a_plugin_with_normalize_is_asked_twice() -> None:
    client = local_client(TwoStep(10, 200, 1000))
    outcome = await client.score(make_cycle(), some_nodes())
    assert outcome.raw.tolist() == [10, 200, 1000]
    assert outcome.normalized.tolist() == [1, 20, 100]
    assert client.stats.of("NormalizeScore").calls == 1


class Early:
    """Answers scores with its verdicts."""

    normalization = ScoreNormalization.NONE

    def __init__(self, *_made_with: object) -> None:
        self.asked: list[str] = []

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        self.asked.append("filter")
        return FilterResult(Verdicts.feasible(len(nodes)), nodes.slots.astype(np.int64) + 10)

    def pre_score(self, state: CycleState, pod: Pod, nodes: NodeTable) -> None:
        self.asked.append("pre_score")

    def score_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> NDArray[np.int64]:
        self.asked.append("score")
        return np.zeros(len(nodes), dtype=np.int64)


async def test_scores_that_came_with_the_verdicts_save_pre_score_and_score() -> None:
    plugin, nodes, cycle = Early(), some_nodes(4), make_cycle()
    client = local_client(plugin)
    await client.filter(cycle, nodes)
    feasible = nodes.take([1, 3])
    assert await client.pre_score(cycle, feasible) is SUCCESS
    assert (await client.score(cycle, feasible)).normalized.tolist() == [11, 13]
    assert plugin.asked == ["filter"]


async def test_nodes_without_an_early_score_are_asked_about() -> None:
    plugin, nodes, cycle = Early(), some_nodes(4), make_cycle()
    client = local_client(plugin)
    await client.filter(cycle, nodes.take([0, 1]))
    await client.score(cycle, nodes)
    assert plugin.asked == ["filter", "score"]


class SkipsScore(Early):
    """Opts out of scoring with its verdicts."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> FilterResult:
        return FilterResult(Verdicts.feasible(len(nodes)), skip_score=True)


async def test_skip_with_the_verdicts_is_a_skip_at_pre_score() -> None:
    plugin, nodes, cycle = SkipsScore(), some_nodes(), make_cycle()
    client = local_client(plugin)
    await client.filter(cycle, nodes)
    assert (await client.pre_score(cycle, nodes)).code is Code.SKIP
    assert (await client.score(cycle, nodes)).skipped
    assert plugin.asked == []


class EarlyFilter:
    """Answers Filter with PreFilter."""

    def __init__(self, *_made_with: object) -> None:
        self.asked = 0

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        odd = nodes.slots % 2 == 1
        return PreFilterResult(early_filter=Verdicts.reject_where(odd, Status.unschedulable("odd")))

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        self.asked += 1
        return Verdicts.feasible(len(nodes))


async def test_verdicts_that_came_with_pre_filter_save_filter() -> None:
    plugin, nodes, cycle = EarlyFilter(), some_nodes(4), make_cycle()
    client = local_client(plugin)
    await client.pre_filter(cycle, nodes)
    verdicts = await client.filter(cycle, nodes.take([1, 2]))
    assert verdicts.passed.tolist() == [False, True]
    assert plugin.asked == 0


class EarlyScores(Early):
    """Answers scores with PreFilter, for the nodes that it leaves if it leaves some."""

    leaves: frozenset[str] | None = None

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        return PreFilterResult(
            eligible=self.leaves,
            early_filter=Verdicts.feasible(len(nodes)),
            early_scores=nodes.slots.astype(np.int64) + 20,
        )


async def test_scores_that_came_with_pre_filter_save_all_that_follows() -> None:
    plugin, nodes, cycle = EarlyScores(), some_nodes(4), make_cycle()
    client = local_client(plugin)
    await client.pre_filter(cycle, nodes)
    feasible = nodes.take([1, 3])
    assert (await client.filter(cycle, feasible)).all_passed
    assert await client.pre_score(cycle, feasible) is SUCCESS
    assert (await client.score(cycle, feasible)).normalized.tolist() == [21, 23]
    assert plugin.asked == []


async def test_of_nodes_that_pre_filter_leaves_out_nothing_is_said() -> None:
    plugin, nodes, cycle = EarlyScores(), some_nodes(4), make_cycle()
    plugin.leaves = frozenset(nodes.names[:2])
    client = local_client(plugin)
    await client.pre_filter(cycle, nodes)
    await client.score(cycle, nodes.take([0, 1]))
    assert plugin.asked == []
    await client.filter(cycle, nodes.take([2]))
    assert plugin.asked == ["filter"]


class SkipsScoreAtOnce(Early):
    """Opts out of scoring with PreFilter."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeTable) -> PreFilterResult:
        return PreFilterResult(skip_score=True)


async def test_skip_with_pre_filter_is_a_skip_at_pre_score() -> None:
    plugin, nodes, cycle = SkipsScoreAtOnce(), some_nodes(), make_cycle()
    client = local_client(plugin)
    await client.pre_filter(cycle, nodes)
    assert (await client.pre_score(cycle, nodes)).code is Code.SKIP
    assert plugin.asked == []


class WrongLength:
    """One verdict too many."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.feasible(len(nodes) + 1)


async def test_answer_of_the_wrong_length_is_a_violation() -> None:
    client = local_client(WrongLength())
    status = (await client.filter(make_cycle(), some_nodes())).status(0)
    assert status.code is Code.ERROR
    assert 'plugin "WrongLength" broke the contract' in status.message
    assert client.stats.violations == 1


class Undecided:
    """Answers None where a decision is due."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> None: ...
    def permit(self, state: CycleState, pod: Pod, node_name: str) -> None: ...
    def pre_bind(self, state: CycleState, pod: Pod, node_name: str, patched: Any) -> None: ...
    def bind(self, state: CycleState, pod: Pod, node_name: str) -> None: ...


@pytest.mark.parametrize("call", ["Reserve", "Permit", "PreBind", "Bind"])
async def test_no_decision_is_an_error_that_says_so(call: str) -> None:
    _, ask = STATUSES[call]
    client = local_client(Undecided())
    got = status_of(await ask(client, make_cycle(), some_nodes()))
    assert got.code is Code.ERROR
    assert got.message == (
        f'plugin "Undecided" did not decide (no status code): it has to answer a Status at {call}'
    )


class LongToken:
    """A token over the limit."""

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        state.token = b"x" * 5000
        return SUCCESS


async def test_token_over_the_limit_is_a_violation() -> None:
    got = await local_client(LongToken()).reserve(make_cycle(), "n0")
    assert got.code is Code.ERROR
    assert "cycle token of 5000 bytes" in got.message


class Waiter:
    """Holds every pod."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitResult:
        return PermitResult.wait(1.5)


async def test_permit_hands_the_wait_through() -> None:
    got = await local_client(Waiter()).permit(make_cycle(), "n0")
    assert (got.status.code, got.wait_timeout_s) == (Code.WAIT, 1.5)
