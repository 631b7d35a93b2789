"""Any answer of a plugin to any call: the host takes it for what the contract allows, or for a failure.

Hypothesis makes honest answers, spoils them, and looks at what the client makes of them: a value that is
legal at its point, or the one that the policy puts in the place of a call that failed. Nothing else may be
raised. The number of answers: `support.fuzzing`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import structlog
from berth_host.attach.state_feed import InstanceFeed
from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.attempt.group_cycle import GroupCycle
from berth_host.errors.plugins import CycleRestartError, PluginError, PluginProtocolError
from berth_host.rpc.call_rules import PointPolicy, Policy
from berth_host.rpc.calls import CALLS
from berth_host.rpc.client import PluginClient
from berth_host.rpc.hint_answer import NO_HINT
from berth_host.rpc.route import ClientSettings
from berth_host.rpc.served.codec import CODECS
from berth_host.rpc.served.grpc_transport import GrpcTransport
from berth_host.rpc.served.outbox import Outbox, Parcel
from berth_host.rpc.served.sender import LinkSender
from berth_host.rpc.validate import (
    MAX_KEY_BYTES,
    MAX_PERMIT_WAIT_S,
    MAX_PRE_BIND_WAIT_S,
    VERDICT_CODES,
)
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import ExtensionPoint, NodeMode, ScoreNormalization
from berth_sdk.needs import Need
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress, PodGroup
from berth_sdk.results import MAX_PATCHES, NodeRejections, PodGroupPostFilterResult, QueuedPod, Trial
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scenarios import Scenario, Scenarios
from berth_sdk.status import Code, Status, Verdicts
from berth_sdk.testing.builders import make_node, make_pod
from berth_sdk.wire.message_limit import DEFAULT_BYTES
from berth_sdk.wire.records import encode_ref
from google.protobuf.message import DecodeError
from hypothesis import given, note, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.attached import PROFILE, ClusterState
from support.fuzzing import PARTS, STEPS, share
from support.honest_answers import NAME, HonestAnswers
from support.mutations import spoilt
from support.raw_channel import REPLIES, RawChannel, raw_link

NODES = 11
NODE_CODES = VERDICT_CODES
NEEDS = (Need.nodes(), Need.objects("services"))
PREEMPTOR = make_pod("web", uid="uid-web", priority=10)
GROUP = GroupView(
    PodGroup(name="train", uid="uid-train", is_gang=True, min_count=3, priority=10),
    tuple(make_pod(f"worker-{i}", uid=f"worker-{i}", priority=10) for i in range(6)),
)
Spoil = Callable[[Any, random.Random], bytes]


def cluster() -> ClusterState:
    """Eleven nodes; on each of the first five a pod of low priority and one of high."""
    state = ClusterState()
    state.add_nodes(make_node(f"n{i}") for i in range(NODES))
    for i in range(5):
        state.put(make_pod(f"low-{i}", uid=f"low-{i}", priority=1), f"n{i}")
        state.put(make_pod(f"high-{i}", uid=f"high-{i}", priority=10), f"n{i}")
    return state


STATE = cluster()
NODE_NAMES = [f"n{i}" for i in range(NODES)]
READS: dict[str, Callable[[bytes], Any]] = {
    **{rpc: reply.FromString for rpc, reply in REPLIES.items()},
    # Scores are not looked at where they count for nothing.
    **{rpc: codec.method.read for rpc, codec in CODECS.items()},
}
LOW = {
    name: [encode_ref(STATE.cache.get_pod(f"low-{i}").ref)] if i < 5 else []  # type: ignore[union-attr]  # it is there
    for i, name in enumerate(NODE_NAMES)
}


class Asked:
    """One plugin behind a channel that spoils its answers to `rpc`; the others are honest.

    `is_readable` and `names_cycle`: of the last spoilt answer.
    """

    transport: GrpcTransport
    absence = ""

    def __init__(
        self,
        rpc: str,
        rng: random.Random,
        policy: Policy | None,
        spoil: Spoil,
        mode: NodeMode | None = None,
    ) -> None:
        how = ScoreNormalization.RPC if rpc == "NormalizeScore" else rng.choice(list(ScoreNormalization))
        mode = mode or rng.choice(list(NodeMode))
        self.descriptor = Descriptor(
            name=NAME,
            points=tuple(ExtensionPoint),
            node_mode=mode,
            needs=NEEDS,
            normalization=how,
            has_hint=True,
            has_pre_flight=True,
        )
        self.is_readable = self.names_cycle = True
        self.cycle = Cycle("cycle-1", PREEMPTOR, PROFILE, version=STATE.version, budget_s=60.0)
        self.group = GroupCycle("group-1", GROUP, PROFILE, version=STATE.version, budget_s=60.0)
        self._rpc, self._rng, self._spoil = rpc, rng, spoil
        self._answers = HonestAnswers(rng, LOW, names=mode is NodeMode.NAMES, normalization=how)
        self.channel = RawChannel(self._answer)
        self.link = raw_link(self.channel, InstanceFeed(STATE, NEEDS))
        self.link.held = STATE.version
        self.transport = GrpcTransport(self.link, self.descriptor, PROFILE, Outbox(NAME))
        # With the deadlines of a plugin in use, an honest answer would come too late on a busy machine.
        points = {key: PointPolicy(60.0, policy) for call in CALLS for key in call.keys}
        self.client = PluginClient(NAME, PROFILE, self, STATE, settings=ClientSettings(points=points))

    def for_cycle(self, cycle: CycleRecord) -> GrpcTransport:
        return self.transport

    def for_batch(self, point: ExtensionPoint) -> GrpcTransport:
        return self.transport

    def cycle_ended(self, cycle: CycleRecord) -> None:
        """Nothing is on trial."""

    def forget(self, asking: str) -> None:
        """Nothing is kept."""

    def _answer(self, rpc: str, request: Any) -> bytes:
        honest = self._answers.to(rpc, request)
        if rpc != self._rpc:
            raw: bytes = honest.SerializeToString()
            return raw
        # More is refused before it is read.
        raw = self._spoil(honest, self._rng)[:DEFAULT_BYTES]
        try:
            read = READS[rpc](raw)
        except DecodeError:
            self.is_readable = False
        else:
            cycle_id = request.ctx.cycle_id if hasattr(request, "ctx") else ""
            self.names_cycle = not hasattr(read, "ctx") or read.ctx.cycle_id == cycle_id
        return raw

    @property
    def failures(self) -> int:
        """Calls that failed, of whichever kind."""
        return sum(self.client.stats.of(call.rpc).failed for call in CALLS)


# --- what may come of each call ----------------------------------------------------------------------


def candidates(rng: random.Random) -> Any:
    """Return some of the nodes, as Filter leaves them."""
    chosen = sorted(rng.sample(range(NODES), rng.randint(1, NODES)))
    return STATE.nodes if rng.randrange(2) else STATE.nodes.take(chosen)


def is_legal(status: Status, codes: frozenset[Code] | set[Code]) -> bool:
    return status.code in codes and all(isinstance(reason, str) for reason in status.reasons)


def are_legal(verdicts: Verdicts, count: int) -> bool:
    return len(verdicts) == count and all(is_legal(status, NODE_CODES) for status in verdicts.to_list())


async def pre_enqueue(asked: Asked, rng: random.Random) -> bool:
    pods = [QueuedPod(pod=make_pod(f"p{i}", uid=f"p{i}")) for i in range(rng.randint(1, 4))]
    statuses = await asked.client.pre_enqueue(pods)
    return len(statuses) == len(pods) and all(is_legal(status, NODE_CODES) for status in statuses)


async def sort_keys(asked: Asked, rng: random.Random) -> bool:
    pods = [QueuedPod(pod=make_pod(f"p{i}", uid=f"p{i}")) for i in range(rng.randint(1, 4))]
    keys = await asked.client.sort_keys(pods)
    return len(keys) == len(pods) and all(len(key) <= MAX_KEY_BYTES for key in keys)


async def queueing_hints(asked: Asked, rng: random.Random) -> bool:
    pods = [make_pod(f"p{i}", uid=f"p{i}") for i in range(rng.randint(1, 4))]
    node = make_node("n0")
    hints = await asked.client.queueing_hints(
        ClusterEvent(resource="Node", action="update.labels", old=node, new=node), pods
    )
    return len(hints) == len(pods) and all(hint in (True, False, NO_HINT) for hint in hints)


async def pre_filter(asked: Asked, rng: random.Random) -> bool:
    result = await asked.client.pre_filter(asked.cycle, STATE.nodes)
    legal = is_legal(result.status, (NODE_CODES | {Code.SKIP}) - {Code.PENDING})
    if not legal or not (result.status.is_success or result.status.code is Code.SKIP):
        return legal
    # What came early counts at the later calls.
    return are_legal(await asked.client.filter(asked.cycle, STATE.nodes), NODES) and await scores(asked, rng)


async def filtered(asked: Asked, rng: random.Random) -> bool:
    nodes = candidates(rng)
    if not are_legal(await asked.client.filter(asked.cycle, nodes), len(nodes)):
        return False
    return await _scores(asked, nodes)


async def simulate_filter(asked: Asked, rng: random.Random) -> bool:
    asked_about = [Scenario(rng.choice(NODE_NAMES)) for _ in range(rng.randint(1, 5))]
    verdicts = await asked.client.filter_scenarios(asked.cycle, Scenarios(STATE.nodes, asked_about))
    return are_legal(verdicts, len(asked_about))


async def post_filter(asked: Asked, rng: random.Random) -> bool:
    rejections = NodeRejections({name: Status.unschedulable("full") for name in NODE_NAMES[:6]})
    result = await asked.client.post_filter(asked.cycle, rejections)
    victims = [STATE.pod_on_node(result.nominated_node, ref.uid) for ref in result.victims]
    return (
        is_legal(result.status, NODE_CODES)
        and result.nominated_node in ("", *NODE_NAMES)
        and all(victim is not None and victim.priority < PREEMPTOR.priority for victim in victims)
        and len(result.patches) <= MAX_PATCHES
    )


async def pre_score(asked: Asked, rng: random.Random) -> bool:
    nodes = candidates(rng)
    status = await asked.client.pre_score(asked.cycle, nodes)
    legal = is_legal(status, {Code.SUCCESS, Code.SKIP, Code.ERROR})
    return legal and (not status.is_success or await _scores(asked, nodes))


async def scores(asked: Asked, rng: random.Random) -> bool:
    return await _scores(asked, candidates(rng))


async def _scores(asked: Asked, nodes: Any) -> bool:
    outcome = await asked.client.score(asked.cycle, nodes)
    final = outcome.normalized
    in_range = not len(final) or bool(int(final.min()) >= 0 and int(final.max()) <= 100)
    return (
        is_legal(outcome.status, {Code.SUCCESS, Code.ERROR})
        and final.dtype == np.int64
        and final.shape == outcome.raw.shape == (len(nodes),)
        and (in_range or not outcome.status.is_success)
    )


async def reserve(asked: Asked, rng: random.Random) -> bool:
    status = await asked.client.reserve(asked.cycle, "n3")
    # PreBind and its preflight may have come along.
    return is_legal(status, NODE_CODES) and await pre_flight(asked, rng) and await pre_bind(asked, rng)


async def permit(asked: Asked, _rng: random.Random) -> bool:
    result = await asked.client.permit(asked.cycle, "n3")
    if result.status.code is Code.WAIT:
        return result.wait_timeout_s is not None and 0 <= result.wait_timeout_s <= MAX_PERMIT_WAIT_S
    return is_legal(result.status, NODE_CODES)


async def pre_flight(asked: Asked, _rng: random.Random) -> bool:
    result = await asked.client.pre_bind_pre_flight(asked.cycle, "n3")
    return is_legal(result.status, set(Code))


async def pre_bind(asked: Asked, _rng: random.Random) -> bool:
    result = await asked.client.pre_bind(asked.cycle, "n3")
    after_s = result.ask_again_after_s
    return (
        is_legal(result.status, NODE_CODES)
        and len(result.patches) <= MAX_PATCHES
        and (after_s is None or 0 <= after_s <= MAX_PRE_BIND_WAIT_S)
    )


async def bind(asked: Asked, _rng: random.Random) -> bool:
    result = await asked.client.bind(asked.cycle, "n3")
    return is_legal(result.status, NODE_CODES | {Code.SKIP})


async def placement_generate(asked: Asked, _rng: random.Random) -> bool:
    parent = Placement("", STATE.nodes)
    found = await asked.client.placement_generate(asked.group, parent)
    if isinstance(found, Status):
        return is_legal(found, NODE_CODES - {Code.SUCCESS})
    names = [placement.name for placement in found]
    return len(set(names)) == len(names) and all(
        set(placement.nodes.names) <= set(NODE_NAMES) for placement in found
    )


async def placement_score(asked: Asked, rng: random.Random) -> bool:
    one = asked.group.placement(Placement("zone-a", candidates(rng)))
    one.assignments = (Assignment(asked.group.group.pods[0], "n1"),)
    scored = await asked.client.placement_score(one)
    return scored is None or is_legal(scored.status, {Code.SUCCESS, Code.ERROR})


async def normalize_placements(asked: Asked, rng: random.Random) -> bool:
    placements = [Placement(name, candidates(rng)) for name in ("zone-a", "zone-b")]
    raw = np.array([7, -3], dtype=np.int64)
    final = await asked.client.normalize_placement_score(asked.group, raw, placements)
    if final is None or isinstance(final, Status):
        return final is None or is_legal(final, {Code.ERROR})
    return final.shape == (2,) and bool(int(final.min()) >= 0 and int(final.max()) <= 100)


async def placement_feasible(asked: Asked, rng: random.Random) -> bool:
    """Walk through a trial in which some members fail."""
    one = asked.group.placement(Placement("", STATE.nodes))
    remaining, scheduled = 6, 1
    codes = {Code.SUCCESS, Code.WAIT, Code.UNSCHEDULABLE, Code.ERROR}
    while remaining >= 0:
        status = await asked.client.placement_feasible(one, PlacementProgress(remaining, scheduled))
        if not is_legal(status, codes):
            return False
        if status.code is Code.ERROR:  # the cycle of the group ends; the error may quote the answer
            return True
        if "{scheduled}" in status.message:
            return False
        remaining -= 1
        scheduled += rng.randrange(2)
    return True


class NoTries:
    """What-ifs that nobody asks for: the plugin is at the other end of a channel."""

    reached_pre_filter = True

    async def schedule(self, removed: Sequence[Pod]) -> Trial:
        raise AssertionError("asked for a try")

    async def preempt(self) -> PodGroupPostFilterResult:
        raise AssertionError("asked for a preemption")


async def pod_group_post_filter(asked: Asked, _rng: random.Random) -> bool:
    result = await asked.client.pod_group_post_filter(asked.group, NoTries())
    victims = [STATE.pod_on_some_node(ref.uid) for ref in result.victims]
    members = {pod.uid for pod in asked.group.group.pods}
    nominated = [one.pod.uid for one in result.nominations]
    return (
        is_legal(result.status, NODE_CODES)
        and set(nominated) <= members
        and len(set(nominated)) == len(nominated)
        and all(not one.node_name or one.node_name in NODE_NAMES for one in result.nominations)
        and all(victim is not None and victim.priority < GROUP.group.priority for victim in victims)
        and len(result.patches) <= MAX_PATCHES
    )


async def unreserve(asked: Asked, _rng: random.Random) -> bool:
    try:
        done = await LinkSender(asked.link, NAME).send_unreserve(
            [Parcel("cycle-1", PREEMPTOR.ref, "n3", b"", "default-scheduler")]
        )
    except PluginProtocolError:
        return not asked.is_readable
    return asked.is_readable and all(isinstance(one, str) for one in done)


async def post_bind(asked: Asked, _rng: random.Random) -> bool:
    try:
        await LinkSender(asked.link, NAME).send_post_bind(
            [Parcel("cycle-1", PREEMPTOR.ref, "n3", b"", "default-scheduler")]
        )
    except PluginProtocolError:
        return not asked.is_readable
    return asked.is_readable


async def end_cycles(asked: Asked, _rng: random.Random) -> bool:
    await LinkSender(asked.link, NAME).send_end_cycles([("cycle-1", CycleEnd.BOUND)])
    return True


async def sync_state(asked: Asked, rng: random.Random) -> bool:
    """Synchronise the copy of an instance that restarted or has a stale copy; return True if it is right.

    A failure of the plugin counts as right.
    """
    asked.link.told(None if rng.randrange(2) else STATE.version._replace(generation=1))
    try:
        await asked.link.sync((NAME, "SyncState"), asyncio.get_running_loop().time() + 5.0)
    except PluginError:
        return True
    return asked.link.held == STATE.version


QUESTIONS: dict[str, Callable[[Asked, random.Random], Coroutine[Any, Any, bool]]] = {
    "PreEnqueue": pre_enqueue,
    "SortKeys": sort_keys,
    "QueueingHints": queueing_hints,
    "PreFilter": pre_filter,
    "Filter": filtered,
    "SimulateFilter": simulate_filter,
    "PostFilter": post_filter,
    "PreScore": pre_score,
    "Score": scores,
    "NormalizeScore": scores,
    "Reserve": reserve,
    "Unreserve": unreserve,
    "Permit": permit,
    "PreBindPreFlight": pre_flight,
    "PreBind": pre_bind,
    "Bind": bind,
    "PlacementGenerate": placement_generate,
    "PlacementScore": placement_score,
    "NormalizePlacementScore": normalize_placements,
    "PlacementFeasible": placement_feasible,
    "PodGroupPostFilter": pod_group_post_filter,
    "PostBind": post_bind,
    "EndCycles": end_cycles,
    "SyncState": sync_state,
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Each failure is a line of the log, and there are thousands."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One loop for all the examples."""
    with asyncio.Runner() as made:
        yield made


def test_every_call_is_asked_below() -> None:
    assert {call.rpc for call in CALLS} | {"SyncState"} == set(QUESTIONS)


def test_every_call_of_the_contract_is_asked_below_or_by_attachments() -> None:
    assert set(QUESTIONS) | set(STEPS) == set(REPLIES)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("rpc", QUESTIONS)
def test_honest_answers_are_taken(rpc: str, runner: asyncio.Runner) -> None:
    for seed in range(50):
        rng = random.Random(seed)
        asked = Asked(rpc, rng, Policy.FAIL, lambda honest, _: bytes(honest.SerializeToString()))
        assert runner.run(QUESTIONS[rpc](asked, rng))
        assert asked.failures == 0


@pytest.mark.parametrize(
    ("rpc", "fields", "what"),
    [
        ("Filter", ("verdicts", "rejected"), "groups of verdicts"),
        ("PreFilter", ("early_filter", "rejected"), "groups of verdicts"),
        ("PreEnqueue", ("statuses",), "statuses"),
        ("PostFilter", ("victims",), "victims"),
        ("PostFilter", ("patches",), "patches"),
        ("Score", ("scores", "named"), "scores"),
        ("PreBind", ("patches",), "patches"),
        ("PlacementGenerate", ("placements",), "placements"),
        ("PlacementFeasible", ("runs",), "runs"),
        ("PodGroupPostFilter", ("nominations",), "nominations"),
    ],
)
def test_list_without_end_is_refused_by_its_length(
    rpc: str, fields: tuple[str, ...], what: str, runner: asyncio.Runner
) -> None:
    """Two bytes an entry: a message holds two million, and reading them would take the host seconds."""

    def endless(honest: Any, _rng: random.Random) -> bytes:
        reply = type(honest)()
        if hasattr(honest, "ctx"):
            reply.ctx.cycle_id = honest.ctx.cycle_id
            reply.ctx.status.code = pb.PluginStatus.CODE_SUCCESS
        holder = reply
        for name in fields[:-1]:
            holder = getattr(holder, name)
        for _ in range(100_000):
            getattr(holder, fields[-1]).add()
        return bytes(reply.SerializeToString())

    asked = Asked(rpc, random.Random(1), Policy.FAIL, endless, mode=NodeMode.NAMES)
    structlog.configure(wrapper_class=structlog.BoundLogger)  # see `quiet`
    with capture_logs() as lines:
        runner.run(QUESTIONS[rpc](asked, random.Random(1)))
    assert asked.client.stats.of(rpc).failures == {"violation": 1}
    assert f"100000 {what}" in str(lines)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("rpc", QUESTIONS)
def test_spoilt_answers_are_legal_or_failures(rpc: str, part: float, runner: asyncio.Runner) -> None:
    @settings(max_examples=share(0.5 * part, len(QUESTIONS)), database=None)
    @given(rng=st.randoms(use_true_random=False), policy=st.sampled_from([None, Policy.FAIL, Policy.IGNORE]))
    def check(rng: random.Random, policy: Policy | None) -> None:
        def spoil(honest: Any, rng: random.Random) -> bytes:
            raw = spoilt(honest, rng)
            note(f"answered to {rpc}: {raw[:500]!r}")
            return raw

        asked = Asked(rpc, rng, policy, spoil)
        note(f"{asked.descriptor.node_mode.name} {asked.descriptor.normalization.name}")
        try:
            assert runner.run(QUESTIONS[rpc](asked, rng))
        except CycleRestartError:
            return
        finally:
            assert asked.channel.asked[rpc], "nobody has asked for the spoilt answer"
        if asked.is_readable and asked.names_cycle:
            return
        # Told apart by the bytes alone: what cannot be read, or is about another cycle, counts as no answer.
        assert asked.failures or rpc in ("EndCycles", "SyncState", "Unreserve", "PostBind")

    check()
