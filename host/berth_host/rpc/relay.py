"""`PluginRelay.ask`: the only place with deadline, timing, counting, repeat, error mapping and policy.

Every `PluginClient` has a relay. The relay knows where the plugin is (`Route`), how to treat it
(`ClientSettings`), and each call by its row (`calls`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple, overload

from berth_sdk.runtime.answers import must_wait, settled
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.raised import author_trace

from berth_host.errors.plugins import (
    BudgetSpentError,
    CycleRestartError,
    HostFaultError,
    PluginAbsentError,
    PluginError,
    PluginExceptionError,
    PluginNotAskedError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.log import get_logger
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.rpc.call import AnyCall, Call, Lane
from berth_host.rpc.call_rules import CallRule, Policy, call_rules
from berth_host.rpc.calls import QUEUEING_HINTS
from berth_host.rpc.conduct import Conduct
from berth_host.rpc.cycle import CycleContext
from berth_host.rpc.in_process import SETTLED
from berth_host.rpc.route import ClientSettings, LocalRoute, Route
from berth_host.rpc.transport import Transport
from berth_host.rpc.validate import Checker, ClusterFacts

Args = TypeVarTuple("Args")
Raw = TypeVar("Raw")
Out = TypeVar("Out")
S = TypeVar("S")
T = TypeVar("T")
StandIn: TypeAlias = Callable[[Policy, PluginError], S]
"""Makes the answer that stands in, by policy, for one that did not come."""
LOST: Final = "was restarted and knows nothing of this reservation"
_LOG = get_logger()


class PluginRelay:
    """Asks one plugin of one profile. `failing`: the calls whose last attempt failed."""

    def __init__(
        self, name: str, route: Route, facts: ClusterFacts, settings: ClientSettings, stats: PluginStats
    ) -> None:
        self.failing: set[str] = set()
        self._name = name
        self._route = route
        self._settings = settings
        self._stats = stats
        self._facts = facts
        self._local = route.transport if isinstance(route, LocalRoute) else None
        self._descriptor: Descriptor | None = None
        self._rules: dict[str, CallRule] = {}
        self._made: dict[str, _Made] = {}
        self._check = Checker(route.descriptor, facts)
        self._refresh()

    # --- what the client asks for ----------------------------------------------------------------------

    @overload
    async def ask(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleContext | None,
        args: tuple[*Args],
        stand_in: StandIn[S],
    ) -> Out | S: ...
    @overload
    async def ask(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleContext | None,
        args: tuple[*Args],
        stand_in: StandIn[S],
        then: Callable[[Checker, Out], T],
    ) -> T | S: ...
    async def ask(
        self,
        call: Call[*Args, Raw, Any],
        cycle: CycleContext | None,
        args: tuple[*Args],
        stand_in: StandIn[S],
        then: Callable[[Checker, Any], Any] | None = None,
    ) -> Any:
        """Make the call and check the answer. Where the call failed, `stand_in` makes the answer.

        `then`: a step of the host with the checked answer whose failure is the plugin's, too; raises
        PluginError. Errors that escape: CycleRestartError.
        """
        local = self._local
        if local is None and self._route.descriptor is not self._descriptor:
            self._refresh()
        made = self._made.get(call.rpc) or self._first(call)
        rule = made.rule
        answer: Any
        started_s = time.perf_counter()
        try:
            if local is not None:
                # Rounds share one deadline. The budget of a cycle is for remote calls.
                deadline_s = self._deadline_s(call, rule, cycle) if call.in_rounds else rule.deadline_s
                raw = local.ask(call, cycle, args, deadline_s)
                if type(raw) not in SETTLED and must_wait(raw):
                    raw = await raw
                answer = call.check(self._check, call, cycle, raw, *args)
                if then is not None:
                    answer = then(self._check, answer)
                if not call.pure and cycle is not None:
                    self._check.token(call, cycle.state(self._name).token)
            else:
                answer = await self._ask_remote(call, rule, cycle, args, then)
        except PluginNotAskedError as failure:
            return stand_in(Policy.IGNORE, failure)
        except PluginError as failure:
            made.observe(cycle, time.perf_counter() - started_s)
            return stand_in(self._failed(call, rule, cycle, failure), failure)
        duration_s = time.perf_counter() - started_s
        made.observe(cycle, duration_s, answer)
        if local is not None and duration_s > rule.deadline_s:
            self._overran(call, rule, cycle, duration_s)
        if self.failing:
            self._recovered(call)
        return answer

    def came(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleContext,
        raw: Raw,
        args: tuple[*Args],
        stand_in: StandIn[S],
        then: Callable[[Checker, Out], T],
    ) -> T | S:
        """As `ask`, for an answer that came early, with that of another call."""
        made = self._made.get(call.rpc) or self._first(call)
        started_s = time.perf_counter()
        try:
            answer = then(self._check, call.check(self._check, call, cycle, raw, *args))
        except PluginError as failure:
            made.observe(cycle, time.perf_counter() - started_s)
            return stand_in(self._failed(call, made.rule, cycle, failure), failure)
        made.observe(cycle, time.perf_counter() - started_s, answer)
        self._answered(call, cycle)
        return answer

    def came_unread(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleContext,
        read: Callable[[], Raw],
        args: tuple[*Args],
        stand_in: StandIn[S],
    ) -> Out | S:
        """As `came`, for an answer that is not read yet. It fails as a call would, and counts as none.

        The answer holds even if its instance is gone: nothing more is needed from the instance.
        """
        rule = self._rules[call.rpc]
        self._deadline_s(call, rule, cycle)
        try:
            if self._name in cycle.lost_by:
                raise PluginUnavailableError(self._name, call.rpc, LOST)
            answer = call.check(self._check, call, cycle, read(), *args)
        except PluginError as failure:
            return stand_in(self._failed(call, rule, cycle, failure), failure)
        self._answered(call, cycle)
        return answer

    def was_untrue(self, call: AnyCall, cycle: CycleContext, untrue: str) -> None:
        """An answer that passed every check has turned out to be untrue: a violation as any other."""
        self._failed(call, self._rules[call.rpc], cycle, PluginProtocolError(self._name, call.rpc, untrue))

    # --- how it is done --------------------------------------------------------------------------------

    async def _ask_remote(
        self,
        call: Call[*Args, Any, Any],
        rule: CallRule,
        cycle: CycleContext | None,
        args: tuple[*Args],
        then: Callable[[Checker, Any], Any] | None,
    ) -> Any:
        """One attempt, and a second one for a pure call of an instance that was unavailable."""
        if call.point not in self._route.descriptor.points and call is not QUEUEING_HINTS:
            raise PluginNotAskedError(self._name, call.rpc, "does not take part")
        way = self._way(call, cycle)
        begun = call.in_rounds and cycle is not None and self._name in cycle.rounds
        conduct = way.conduct
        watched = nullcontext() if conduct is None else conduct.watched(call, begun=begun)
        if cycle is not None:
            cycle.remote_begins()
        deadline_s = rule.deadline_s
        try:
            with watched:
                deadline_s = self._deadline_s(call, rule, cycle)
                try:
                    raw = await settled(way.ask(call, cycle, args, deadline_s))
                    return self._checked(call, cycle, raw, args, then)
                except PluginUnavailableError:
                    if not call.pure or not way.is_open:
                        raise
                    deadline_s = self._deadline_s(call, rule, cycle)
                    self._stats.of(call.rpc).repeats += 1
                    with _repeating(cycle, self._name):
                        raw = await settled(way.ask(call, cycle, args, deadline_s))
                        return self._checked(call, cycle, raw, args, then)
        except PluginUnavailableError as failure:
            if cycle is not None and _may_restart(cycle):
                # A dead process is noticed a moment after the call that it leaves unanswered.
                await way.is_lost(min(rule.deadline_s, cycle.budget_left_s))
                self._restart_if_replaced(cycle, way, failure)
            raise
        except PluginTimeoutError as failure:
            if failure.call != call.rpc or isinstance(failure, BudgetSpentError):
                raise
            # The transport names the time that was left to it; users know the deadline that they set.
            if call.in_rounds:
                deadline_s = rule.deadline_s
            cut = deadline_s < rule.deadline_s
            raise PluginTimeoutError(self._name, call.rpc, deadline_s, budget=cut) from failure
        finally:
            if cycle is not None:
                cycle.remote_ends()

    def _checked(
        self,
        call: Call[*Args, Any, Any],
        cycle: CycleContext | None,
        raw: Any,
        args: tuple[*Args],
        then: Callable[[Checker, Any], Any] | None,
    ) -> Any:
        answer = call.check(self._check, call, cycle, raw, *args)
        return answer if then is None else then(self._check, answer)

    def _way(self, call: AnyCall, cycle: CycleContext | None) -> Transport:
        """The instance of this cycle's first call, as long as it is there."""
        current = self._route.transport
        if cycle is None:
            if current is None:
                raise PluginAbsentError(self._name, call.rpc, self._route.absence)
            return current
        if self._name in cycle.lost_by and call.lane is not Lane.OUTBOX:
            raise PluginUnavailableError(self._name, call.rpc, LOST)
        pinned: Transport | None = cycle.instances.get(self._name)
        if pinned is not None:
            # The outbox sends to the instance that is there by then.
            if pinned.is_open or call.lane is Lane.OUTBOX:
                return pinned
            gone = PluginUnavailableError(self._name, call.rpc, "lost its instance")
            self._restart_if_replaced(cycle, pinned, gone)
            raise gone
        if current is None:
            raise PluginAbsentError(self._name, call.rpc, self._route.absence)
        cycle.instances[self._name] = current
        return current

    def _restart_if_replaced(self, cycle: CycleContext, lost: Transport, failure: PluginError) -> None:
        """Begin the cycle anew, once, if its instance died before Reserve and another one is there."""
        current = self._route.transport
        if lost.is_open or not _may_restart(cycle):
            return
        if current is not None and current is not lost:
            raise CycleRestartError(self._name, "its instance was replaced by another one") from failure

    def _deadline_s(self, call: AnyCall, rule: CallRule, cycle: CycleContext | None) -> float:
        deadline_s = rule.deadline_s
        if cycle is None:
            return deadline_s
        if call.in_rounds:
            rounds, ends_s = cycle.rounds.get(self._name, (0, time.monotonic() + deadline_s))
            cycle.rounds[self._name] = (rounds + 1, ends_s)
            left_s = ends_s - time.monotonic()
        elif call.budgeted and self._local is None:
            left_s = min(deadline_s, cycle.budget_left_s)
        else:
            return deadline_s
        if left_s > 0:
            return left_s
        if call.in_rounds:
            raise PluginTimeoutError(self._name, call.rpc, deadline_s)
        raise BudgetSpentError(self._name, call.rpc, cycle.budget_s)

    def _failed(
        self, call: AnyCall, rule: CallRule, cycle: CycleContext | None, failure: PluginError
    ) -> Policy:
        """Count and note the failure; answers the policy that applies."""
        if isinstance(failure, PluginAbsentError):
            policy = rule.absent
        elif isinstance(failure, HostFaultError):
            policy = Policy.FAIL
        else:
            policy = rule.policy
        stats = self._stats.of(call.rpc)
        stats.failures[failure.outcome] += 1
        stats.policies[policy.value] += 1
        if isinstance(failure, PluginProtocolError):
            self._violated(call, cycle, failure)
        if cycle is not None and policy is not Policy.FAIL:
            cycle.notes.append(failure.text)
        self._tell(call, failure, policy)
        return policy

    def _answered(self, call: AnyCall, cycle: CycleContext) -> None:
        """An answer came early, and passed every check."""
        conduct = self._conduct(cycle)
        if conduct is not None:
            conduct.answered(call)
        if self.failing:
            self._recovered(call)

    def _violated(self, call: AnyCall, cycle: CycleContext | None, failure: PluginProtocolError) -> None:
        self._stats.violations += 1
        conduct = self._conduct(cycle)
        if conduct is not None:
            conduct.violated(f"{failure.detail} at {call.rpc}")

    def _conduct(self, cycle: CycleContext | None) -> Conduct | None:
        """That of the instance of this cycle."""
        if self._local is not None:
            return None
        pinned: Transport | None = None if cycle is None else cycle.instances.get(self._name)
        way = pinned or self._route.transport
        return None if way is None else way.conduct

    def _tell(self, call: AnyCall, failure: PluginError, policy: Policy) -> None:
        """A warning for the first of several failures in a row, the others for debugging; with the traceback
        where there is one: a plugin elsewhere has it in its own log.
        """
        raised = failure.__cause__ if isinstance(failure, PluginExceptionError) else None
        data: dict[str, Any] = {
            "plugin": self._name,
            "call": call.rpc,
            "outcome": failure.outcome,
            "policy": policy.value,
            "error": failure.text,
        }
        if raised is not None and self._local is not None:
            data["exc_info"] = (type(raised), raised, author_trace(raised))
        if call.rpc in self.failing:
            _LOG.debug("plugin.call_failed", **data)
        else:
            self.failing.add(call.rpc)
            _LOG.warning("plugin.call_failed", **data)

    def _recovered(self, call: AnyCall) -> None:
        if call.rpc in self.failing:
            self.failing.discard(call.rpc)
            _LOG.info("plugin.call_recovered", plugin=self._name, call=call.rpc)

    def _overran(self, call: AnyCall, rule: CallRule, cycle: CycleContext | None, duration_s: float) -> None:
        self._stats.of(call.rpc).overruns += 1
        text = (
            f'plugin "{self._name}" took {1000 * duration_s:.0f} ms at {call.rpc};'
            f" its deadline is {1000 * rule.deadline_s:.0f} ms"
        )
        if cycle is not None:
            cycle.notes.append(text)
        _LOG.warning("plugin.overran", plugin=self._name, call=call.rpc, error=text)

    def _refresh(self) -> None:
        descriptor = self._route.descriptor
        self._descriptor = descriptor
        self._check = Checker(descriptor, self._facts)
        self._rules = call_rules(
            self._settings.points, descriptor.deadlines, required=self._settings.required
        )
        self._made.clear()

    def _first(self, call: AnyCall) -> _Made:
        """Keep what later calls of this kind need again."""
        made = _Made(self._rules[call.rpc], (self._name, call.rpc), self._stats.of(call.rpc))
        self._made[call.rpc] = made
        return made


@dataclass(frozen=True, slots=True)
class _Made:
    """A kind of call after its first use: its rule, and where its time is recorded."""

    rule: CallRule
    key: tuple[str, str]
    stats: CallStats

    def observe(self, cycle: CycleContext | None, duration_s: float, answer: object = None) -> None:
        """Record one call; `answer` None: it failed."""
        self.stats.observe(duration_s)
        if cycle is not None:
            timings_s = cycle.timings_s
            timings_s[self.key] = timings_s.get(self.key, 0.0) + duration_s
            if cycle.sampler is not None:
                cycle.sampler.called(*self.key, duration_s, answer)


def _may_restart(cycle: CycleContext) -> bool:
    return not (cycle.reserved or cycle.restarted)


@contextmanager
def _repeating(cycle: CycleContext | None, plugin: str) -> Iterator[None]:
    """Mark the call as the second attempt, for the transport."""
    if cycle is None:
        yield
        return
    cycle.repeating.add(plugin)
    try:
        yield
    finally:
        cycle.repeating.discard(plugin)
