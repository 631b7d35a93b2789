"""`PluginClient`: one plugin of one profile, as the framework calls it, in process or served.

The client has a method for each call of the table (`calls`). The relay makes the call and checks the answer.
If no answer came and the failure policy allows it, the client returns a substitute. The client also keeps
early answers. Errors that escape: CycleRestartError. Called by `framework`, and by `queue.plugin_calls` for
the batches of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, TypeVarTuple

import numpy as np
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import ExtensionPoint, ScoreNormalization
from berth_sdk.kept.follows import Follows
from berth_sdk.pod import Pod
from berth_sdk.results import (
    BindResult,
    NodeRejections,
    PatchResult,
    PermitResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    QueuedPod,
)
from berth_sdk.runtime.descriptor import EARLY, Descriptor
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.scenarios import Scenarios
from berth_sdk.scope import Scope
from berth_sdk.status import SKIP, SUCCESS, Code, Status, Verdicts
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.call_record import CycleRecord, EarlyScores, Part
from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.errors.plugins import PluginAbsentError, PluginError, PluginNotAskedError
from berth_host.errors.state import InvariantError
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.model.declared_scope import scope_test
from berth_host.rpc import calls
from berth_host.rpc.batches import ask_batch
from berth_host.rpc.call import Call
from berth_host.rpc.call_rules import Policy
from berth_host.rpc.early_answers import early_scores, early_verdicts, keep_early, keep_scores
from berth_host.rpc.group_client import GroupClient
from berth_host.rpc.hint_answer import NO_HINT, HintAnswer
from berth_host.rpc.relay import PluginRelay, StandIn
from berth_host.rpc.route import ClientSettings, LocalRoute, Route
from berth_host.rpc.scores import ScoreOutcome, no_scores, normalize, score_error, zeros
from berth_host.rpc.transport import Transport
from berth_host.rpc.validate import Checker, ClusterFacts

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
Out = TypeVar("Out")
S = TypeVar("S")
_AS_THEY_COME: Final = (ScoreNormalization.NONE, ScoreNormalization.PLUGIN)
"""The normalizations for which raw scores are final ones."""
_HOLDING: Final = frozenset({ExtensionPoint.RESERVE, ExtensionPoint.PERMIT})
"""The points at which a reservation begins."""
OWN_WORKLOAD_LABEL: Final = "berth.io/plugin"
"""The label of pods that run a plugin; its value is the plugin's name."""


class PluginClient(GroupClient):
    """One plugin in one profile. Attributes: name, profile, stats, route, settings."""

    def __init__(
        self,
        name: str,
        profile: str,
        route: Route,
        facts: ClusterFacts,
        *,
        settings: ClientSettings | None = None,
        stats: PluginStats | None = None,
    ) -> None:
        self.name = name
        self.profile = profile
        self.route = route
        self.settings = settings or ClientSettings()
        self.stats = stats or PluginStats(name)
        self._local = route.transport if isinstance(route, LocalRoute) else None
        self._relay = PluginRelay(name, route, facts, self.settings, self.stats)
        self._declared: tuple[tuple[Scope, ...], Callable[[Pod], bool]] | None = None
        """The scope that the plugin declared last, and its test."""

    # --- what it is ----------------------------------------------------------------------------------

    @property
    def descriptor(self) -> Descriptor:
        """The plugin's descriptor; that of a served plugin may change with its instance."""
        return self.route.descriptor

    def descriptor_in(self, cycle: CycleRecord) -> Descriptor:
        """Return the descriptor of the instance that the cycle began with; before the plugin's first call in
        the cycle, the descriptor of the active instance.
        """
        if self._local is not None:
            return self._local.descriptor
        way: Transport | None = cycle.instance(self.name)
        return self.route.descriptor if way is None else way.descriptor

    @property
    def points(self) -> tuple[ExtensionPoint, ...]:
        """The points that the plugin declared."""
        return self.route.descriptor.points

    @property
    def is_served(self) -> bool:
        """True for a served plugin: calls leave the process."""
        return self._local is None

    @property
    def local(self) -> PluginRuntime | None:
        """The in-process plugin itself, which the queue calls synchronously; None for a served plugin."""
        return self._local.runtime if self._local is not None else None

    def answers_at(self, point: ExtensionPoint) -> bool:
        """Return False for an in-process plugin that is configured at a point for which its class has no
        method, as DefaultPreemption at Reserve since 1.38.
        """
        return self.is_served or point in self.descriptor.points

    @property
    def follows(self) -> Follows | None:
        """Return the inputs of the plugin's answers that the host may keep; None: it may keep none.

        Of a served plugin, those of the active instance, as long as all calls to it are made. Another object
        stands for another instance, whose answers may differ.
        """
        if self._local is not None:
            return self._local.follows
        way = self.route.transport
        if way is None or not way.descriptor.host_keeps_answers or not way.is_open:
            return None
        # A breaker closes by a trial call, and answers of a plugin that is refused calls are the policies'.
        return None if way.conduct is not None and way.conduct.complaint else way.follows

    def is_asked_in(self, cycle: CycleRecord) -> bool:
        """Return True if the active instance serves the cycle, which stays with that instance from now on.

        False: the cycle tries another instance, or began before that one was replaced.
        """
        return self._local is not None or self._relay.instance_in(cycle) is self.route.transport

    @property
    def is_failing(self) -> bool:
        """True when the last attempt of some call failed: a policy may have answered for the plugin."""
        return bool(self._relay.failing)

    @property
    def available(self) -> bool:
        """True when an instance can be called."""
        return self._local is not None or self.route.transport is not None

    @property
    def absence(self) -> Status:
        """The error for pods in the plugin's scope while the plugin is not available."""
        return Status.error(PluginAbsentError(self.name, "", self.route.absence).text).with_plugin(self.name)

    def always_asked_at(self, point: ExtensionPoint) -> bool:
        """Return True if the plugin is called at `point` about every pod, as long as the plugin exists."""
        return self._local is not None and not self.is_scoped and point in self.points

    @property
    def is_scoped(self) -> bool:
        """True if the operator or the plugin's last instance limits the pods to ask the plugin about."""
        return self.settings.scope is not None or self.route.descriptor.scope is not None

    def concerns(self, cycle: Cycle) -> bool:
        """Return True if the plugin is called about the pod of the cycle.

        The scope is read once in a cycle, so that a new scope does not part Reserve from Unreserve.
        """
        part = cycle.part(self.name)
        if part.is_inside is None:
            part.is_inside = self.in_scope(cycle.pod)
            if not part.is_inside:
                cycle.outside_scopes += (self.name,)
        return part.is_inside

    def in_scope(self, pod: Pod) -> bool:
        """Return True if the plugin is called about this pod: inside the operator's scope, and the plugin's.

        The plugin's scope is that of the last instance, also while none is attached. Before the first
        instance, every pod is inside.

        The pods of the plugin's own workload are not in scope: a required plugin could not be scheduled. If
        such a pod wants a resource that only this plugin counts, the pod is in scope as others are.
        """
        if self._local is None and pod.labels.get(OWN_WORKLOAD_LABEL) == self.name:
            left_to_it = self.settings.left_to_it
            if left_to_it is None or not left_to_it(pod):
                return False
        scope = self.settings.scope
        if scope is not None and not scope(pod):
            return False
        declared = self.route.descriptor.scope
        if declared is None:
            return True
        if self._declared is None or self._declared[0] is not declared:
            self._declared = declared, scope_test(declared, self.settings.find)
        return self._declared[1](pod)

    # --- the queue -----------------------------------------------------------------------------------

    async def pre_enqueue(self, pods: Sequence[QueuedPod]) -> list[Status]:
        """Return one status per pod. An ERROR keeps the pod gated, and the queue asks again later. A SUCCESS
        with a reason: the pod goes on without the plugin's answer, and the reason says why.
        """
        return await ask_batch(
            self._relay, calls.PRE_ENQUEUE, pods, lambda asked: (asked,), self._without_gate
        )

    def pre_enqueue_at_once(self, pod: QueuedPod) -> Status | None:
        """Return what `pre_enqueue` would, for one pod; None where the answer has to be awaited."""
        return self._relay.ask_at_once(calls.PRE_ENQUEUE, (pod,), self._without_gate)

    def _without_gate(self, policy: Policy, failure: PluginError) -> Status:
        if policy is Policy.FAIL or isinstance(failure, PluginNotAskedError):
            return self._stand_in(policy, failure)
        why = self._relay.why_left_out(calls.PRE_ENQUEUE, failure, policy)
        return Status(Code.SUCCESS, (why,), self.name)

    async def sort_keys(self, pods: Sequence[QueuedPod]) -> list[bytes]:
        """Return one key per pod. An empty key means the fallback order, and the queue asks again later."""
        return await ask_batch(self._relay, calls.SORT_KEYS, pods, lambda asked: (asked,), _without_key)

    def sort_key_at_once(self, pod: QueuedPod) -> bytes | None:
        """Return what `sort_keys` would, for one pod; None where the answer has to be awaited."""
        return self._relay.ask_at_once(calls.SORT_KEYS, (pod,), _without_key)

    async def queueing_hints(self, event: ClusterEvent, pods: Sequence[Pod]) -> list[HintAnswer]:
        """Return one hint per pod: NO_HINT where no answer came."""
        return await ask_batch(
            self._relay, calls.QUEUEING_HINTS, pods, lambda asked: (event, asked), _without_hint
        )

    def queueing_hint_at_once(self, event: ClusterEvent, pod: Pod) -> HintAnswer | None:
        """Return what `queueing_hints` would, for one pod; None where the answer has to be awaited."""
        return self._relay.ask_at_once(calls.QUEUEING_HINTS, (event, pod), _without_hint)

    # --- the scheduling cycle --------------------------------------------------------------------------

    async def pre_filter(self, cycle: Cycle, nodes: NodeTable) -> PreFilterResult:
        """Call PreFilter over all nodes of the snapshot. The cycle keeps early verdicts."""
        result = await self._relay.ask(
            calls.PRE_FILTER,
            cycle,
            (nodes,),
            lambda policy, failure: PreFilterResult(self._stand_in(policy, failure)),
        )
        if result.answers_early:
            keep_early(cycle.part(self.name), nodes, result)
        return result

    async def filter(self, cycle: Cycle, nodes: NodeTable) -> Verdicts:
        """Return one verdict per candidate: those that came with PreFilter, or the answer to a call."""
        part = cycle.part(self.name)
        if part.early_verdicts is not None:
            known = early_verdicts(part.early_verdicts, nodes.slots)
            if known is not None:
                return known
        result = await self._relay.ask(
            calls.FILTER,
            cycle,
            (nodes,),
            lambda policy, failure: (
                None
                if policy is not Policy.FAIL
                else Verdicts.all(len(nodes), self._stand_in(policy, failure))
            ),
        )
        if result is None:
            return Verdicts.feasible(len(nodes))
        if isinstance(result, Verdicts):
            return result
        if result.skip_score:
            part.skips_score = True
        elif result.early_scores is not None:
            keep_scores(part, nodes.slots, result.early_scores)
        return result.verdicts

    def sends_filter(self, cycle: Cycle) -> bool:
        """Return True if Filter leaves the process: no early verdict came, and the plugin can be called."""
        part = cycle.part(self.name)
        if not self.is_served or part.early_verdicts is not None:
            return False
        way: Transport | None = part.instance or self.route.transport
        if way is None:
            return False
        return way.conduct is None or not way.conduct.refuses(ExtensionPoint.FILTER)

    async def filter_scenarios(self, cycle: Cycle, scenarios: Scenarios) -> Verdicts:
        """Return one verdict per scenario; none is feasible without an answer, unless by policy Ignore."""
        count = len(scenarios)
        return await self._relay.ask(
            calls.SIMULATE_FILTER,
            cycle,
            (scenarios,),
            lambda policy, failure: Verdicts.all(
                count,
                Status(Code.UNSCHEDULABLE, (failure.text,), self.name) if policy is Policy.FAIL else SUCCESS,
            ),
        )

    async def post_filter(self, cycle: Cycle, rejections: NodeRejections) -> PostFilterResult:
        """Call PostFilter, which may make room. Nomination and victims are checked."""
        return await self._asked_meanwhile(
            calls.POST_FILTER,
            cycle,
            (rejections,),
            lambda policy, failure: PostFilterResult(
                self._stand_in(policy, failure, otherwise=Status(Code.UNSCHEDULABLE, (), self.name))
            ),
        )

    def sends_score(self, cycle: Cycle, nodes: NodeTable) -> bool:
        """Return True if PreScore and Score leave the process: a served plugin without early scores."""
        return (
            self.is_served
            and not cycle.part(self.name).skips_score
            and self._early_scores(cycle, cycle.part(self.name), nodes) is None
        )

    async def pre_score(self, cycle: Cycle, nodes: NodeTable) -> Status:
        """Call PreScore, unless early scores came. SKIP: the plugin does not score this pod."""
        part = cycle.part(self.name)
        if part.skips_score:
            return SKIP
        if self._early_scores(cycle, part, nodes) is not None:
            return SUCCESS

        answer = await self._relay.ask(
            calls.PRE_SCORE,
            cycle,
            (nodes,),
            # A plugin without PreScore is scored all the same.
            lambda policy, failure: self._stand_in(
                policy,
                failure,
                otherwise=SUCCESS if isinstance(failure, PluginNotAskedError) else SKIP,
            ),
        )
        if isinstance(answer, Status):
            return answer
        if answer.scores is not None:
            keep_scores(part, nodes.slots, answer.scores)
        return answer.status

    async def score(self, cycle: Cycle, nodes: NodeTable, *, raw_only: bool = False) -> ScoreOutcome:
        """Return raw and final scores of the feasible nodes, from Score or from an early answer.

        `raw_only`: the caller normalises, over more rows. Scores that need no normalising are checked.
        """
        part = cycle.part(self.name)
        if part.skips_score:
            return zeros(len(nodes), skipped=True)
        how = self.descriptor_in(cycle).normalization
        final = how is not ScoreNormalization.RPC
        unchecked = not final or (raw_only and how not in _AS_THEY_COME)
        early = self._early_scores(cycle, part, nodes)

        def scored(checker: Checker, answer: NDArray[np.int64] | Status) -> ScoreOutcome:
            if isinstance(answer, Status):
                return score_error(self.name, len(nodes), "Score", answer.message)
            if unchecked:
                return ScoreOutcome(SUCCESS, answer, answer)
            return ScoreOutcome(SUCCESS, answer, checker.final_scores(calls.SCORE, normalize(how, answer)))

        def stand_in(policy: Policy, failure: PluginError) -> ScoreOutcome:
            return no_scores(self.name, len(nodes), policy, failure, "Score")

        if early is not None:
            outcome = self._relay.came(calls.SCORE, cycle, early, (nodes,), stand_in, scored)
        else:
            outcome = await self._relay.ask(calls.SCORE, cycle, (nodes,), stand_in, scored)
        if final or raw_only or not outcome.status.is_success or outcome.skipped:
            return outcome
        raw = outcome.raw

        def normalized(checker: Checker, answer: NDArray[np.int64] | Status) -> ScoreOutcome:
            if isinstance(answer, Status):
                return score_error(self.name, len(nodes), "Normalize", answer.message)
            return ScoreOutcome(SUCCESS, raw, checker.final_scores(calls.NORMALIZE_SCORE, answer))

        return await self._relay.ask(
            calls.NORMALIZE_SCORE,
            cycle,
            (raw, nodes),
            lambda policy, failure: no_scores(self.name, len(nodes), policy, failure, "Normalize"),
            normalized,
        )

    async def reserve(self, cycle: Cycle, node_name: str) -> Status:
        """Call Reserve: take what the pod will use. After Reserve the cycle cannot restart.

        SKIP: the plugin holds nothing. The cycle then leaves out its PreBindPreFlight, PreBind, Unreserve and
        PostBind; a WAIT of its Permit brings back the last two.
        """
        cycle.reserved = True
        if cycle.trial is not None:
            cycle.state(self.name).trial = cycle.trial

        answer = await self._asked_meanwhile(calls.RESERVE, cycle, (node_name,), self._stand_in)
        if isinstance(answer, Status):
            return answer
        status = answer.status
        if status is None:  # the check refuses such an answer
            raise InvariantError(f"Reserve of {self.name} came without a decision")
        if status.is_success:
            part = cycle.part(self.name)
            part.reserved_node = node_name
            part.early_pre_flight, part.early_pre_bind = answer.pre_flight, answer.pre_bind
        elif status.code is Code.SKIP:
            cycle.part(self.name).holds_nothing = True
            cycle.reserve_skipped += (self.name,)
            cycle.skip_pre_bind.add(self.name)
            cycle.parallel_pre_bind.add(self.name)  # it keeps no neighbours apart
        return status

    async def unreserve(self, cycle: Cycle, node_name: str, reason: str) -> None:
        """Give back what Reserve took. Never fails: the outbox repeats Unreserve until acknowledged."""
        part = cycle.part(self.name)
        if self.is_served and part.instance is None:
            return  # no instance got a call of this cycle
        if part.never_asked_to_reserve:
            return  # one more Unreserve without an acknowledgement would hold up the pod's next attempt
        if part.holds_nothing:
            return
        part.reserved_node = None
        if cycle.trial is not None:
            cycle.state(self.name).trial = cycle.trial
        await self._relay.ask(calls.UNRESERVE, cycle, (node_name, reason), lambda policy, failure: None)

    async def permit(self, cycle: Cycle, node_name: str) -> PermitResult:
        """Call Permit. Return SUCCESS, a rejection, or WAIT with the timeout that applies."""
        part = cycle.part(self.name)
        held_nothing, part.holds_nothing = part.holds_nothing, False

        def stand_in(policy: Policy, failure: PluginError) -> PermitResult:
            nonlocal held_nothing
            # Without an answer it is not known whether the plugin holds the pod.
            held_nothing = held_nothing and not failure.outcome_unknown
            return PermitResult(self._stand_in(policy, failure))

        result = await self._asked_meanwhile(calls.PERMIT, cycle, (node_name,), stand_in)
        if held_nothing and result.status.code is Code.WAIT:
            # The wait begins a reservation, which Reconcile lists until the cycle is over.
            part.reserved_node, held_nothing = node_name, False
        part.holds_nothing = held_nothing
        return result

    # --- the binding cycle -----------------------------------------------------------------------------

    async def pre_bind_pre_flight(self, cycle: Cycle, node_name: str) -> PreFlightResult:
        """Return whether PreBind has anything to do for this pod, without a call where Reserve has answered
        it.
        """
        early = cycle.part(self.name).early_pre_flight
        if early is not None:
            return early
        return await self._relay.ask(
            calls.PRE_BIND_PRE_FLIGHT,
            cycle,
            (node_name,),
            lambda policy, failure: PreFlightResult(self._stand_in(policy, failure, otherwise=SKIP)),
        )

    async def pre_bind(
        self, cycle: Cycle, node_name: str, patched: Sequence[PatchResult] = ()
    ) -> PreBindResult:
        """Call one round of PreBind; one deadline covers all rounds. The first answer may have come with
        Reserve: then no call is made.
        """

        def stand_in(policy: Policy, failure: PluginError) -> PreBindResult:
            return PreBindResult(self._stand_in(policy, failure))

        part = cycle.part(self.name)
        read, part.early_pre_bind = part.early_pre_bind, None
        if read is not None:
            return self._relay.came_unread(calls.PRE_BIND, cycle, read, (node_name, patched), stand_in)
        return await self._relay.ask(calls.PRE_BIND, cycle, (node_name, patched), stand_in)

    async def bind(self, cycle: Cycle, node_name: str) -> BindResult:
        """Call Bind. Return SUCCESS, SKIP, a rejection or an ERROR (see `Part.is_bind_unknown`)."""

        def stand_in(policy: Policy, failure: PluginError) -> BindResult:
            # A Bind plugin that was called may have bound the pod: then no other Bind plugin is called.
            if policy is not Policy.FAIL and isinstance(failure, PluginAbsentError):
                return BindResult(SKIP)
            if failure.outcome_unknown:
                cycle.part(self.name).is_bind_unknown = True
            return BindResult(self._stand_in(Policy.FAIL, failure))

        return await self._relay.ask(calls.BIND, cycle, (node_name,), stand_in)

    def bind_was_untrue(self, cycle: Cycle, untrue: str) -> None:
        """Count a violation: Bind answered SUCCESS without `host_binds`, and the cluster does not show it."""
        self._relay.was_untrue(calls.BIND, cycle, untrue)

    async def post_bind(self, cycle: Cycle, node_name: str) -> None:
        """Call PostBind, for information, unless the plugin holds nothing of the cycle. Never fails."""
        if cycle.part(self.name).holds_nothing:
            return
        await self._relay.ask(calls.POST_BIND, cycle, (node_name,), lambda policy, failure: None)

    def holds_until_told(self, cycle: Cycle, *, post_bind: bool) -> bool:
        """Return True if the plugin may hold something for the bound pod of a cycle until PostBind, or until
        the end of the cycle. `post_bind`: the pod concerns it at PostBind.
        """
        part = cycle.parts.get(self.name)
        if part is not None and part.holds_nothing:
            return False
        if post_bind or part is None or not part.is_known:
            return post_bind
        return not _HOLDING.isdisjoint(self.descriptor_in(cycle).points)

    def end_cycle(self, cycle: CycleRecord, outcome: CycleEnd) -> None:
        """Note the end of the cycle. A later call informs the plugin, which drops the cycle's state."""
        way = self._local or cycle.part(self.name).instance
        if way is not None:
            way.end_cycle(cycle, outcome)
            self.route.cycle_ended(cycle)

    # --- pieces ----------------------------------------------------------------------------------------

    async def _asked_meanwhile(
        self, call: Call[*Args, Raw, Out], cycle: Cycle, args: tuple[*Args], stand_in: StandIn[S]
    ) -> Out | S:
        """Make a call during which the plugin may ask the host about the cycle."""
        part = cycle.part(self.name)
        part.open_call = call.point
        try:
            return await self._relay.ask(call, cycle, args, stand_in)
        finally:
            part.open_call = None
            for end in part.questions:
                end()

    def _stand_in(self, policy: Policy, failure: PluginError, otherwise: Status = SUCCESS) -> Status:
        if policy is Policy.FAIL:
            return Status(Code.ERROR, (failure.text,), self.name)
        return otherwise

    def _early_scores(self, cycle: Cycle, part: Part, nodes: NodeTable) -> NDArray[np.int64] | None:
        """Return the early scores for the rows of `nodes`, and keep them for the next question about these
        rows.
        """
        answers = part.early_scores
        if answers is None:
            return None
        rows = answers[-1].rows
        if rows is nodes.slots:
            return answers[-1].scores
        if self.descriptor_in(cycle).normalization not in EARLY:
            # The plugin scored these candidates in relation to each other: the scores hold for no others.
            return answers[-1].scores if np.array_equal(rows, nodes.slots) else None
        scores = early_scores(answers, nodes.slots)
        if scores is not None:
            answers.append(EarlyScores(nodes.slots, scores))
        return scores


def _without_key(policy: Policy, failure: PluginError) -> bytes:
    return b""


def _without_hint(policy: Policy, failure: PluginError) -> HintAnswer:
    return NO_HINT
