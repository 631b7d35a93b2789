"""`PluginRelay.ask`: the only place with deadline, timing, counting, repeat, error mapping and policy.

Every `PluginClient` has a relay. The relay has the way to the plugin (`Route`), the operator's settings for
it (`ClientSettings`), and the row of each call (`calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from inspect import iscoroutine
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple, overload

from berth_sdk.clocks import monotonic_s
from berth_sdk.runtime.answers import must_wait, settled
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.raised import author_trace

from berth_host.attempt.call_record import CycleRecord
from berth_host.errors.plugins import (
    BudgetSpentError,
    CircuitOpenError,
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
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.metrics.series import instant_s
from berth_host.rpc.call import AnyCall, Call, Lane
from berth_host.rpc.call_limits import Kind, Terms
from berth_host.rpc.call_rules import CallRule, Policy
from berth_host.rpc.calls import QUEUEING_HINTS
from berth_host.rpc.failure_record import FailureRecord
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
"""Returns the substitute, by failure policy, for an answer that did not come."""
FAIR_SHARE: Final = 0.5
"""The share of its time after which a plugin without an answer counts as slow. With less time, it does
not.
"""
_KEPT_TERMS: Final = 4
LOST: Final = "was restarted and knows nothing of this reservation"
_LOG = get_logger()


class PluginRelay:
    """The calls to one plugin of one profile. `failing`: the calls whose last attempt failed."""

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
        self._at_once: dict[str, Kind] = {}
        """The calls of the queue that an in-process plugin answers without waiting."""
        self._terms: dict[int, Terms] = {}
        self._current = self._new_terms(route.descriptor, route.transport)

    # --- what the client asks for ----------------------------------------------------------------------

    @overload
    async def ask(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleRecord | None,
        args: tuple[*Args],
        stand_in: StandIn[S],
    ) -> Out | S: ...
    @overload
    async def ask(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleRecord | None,
        args: tuple[*Args],
        stand_in: StandIn[S],
        then: Callable[[Checker, Out], T],
    ) -> T | S: ...
    async def ask(
        self,
        call: Call[*Args, Raw, Any],
        cycle: CycleRecord | None,
        args: tuple[*Args],
        stand_in: StandIn[S],
        then: Callable[[Checker, Any], Any] | None = None,
    ) -> Any:
        """Make the call and check the answer. If the call failed, return the answer of `stand_in`.

        `then`: a further step with the checked answer. A PluginError of this step counts as a failure of the
        plugin. Errors that escape: CycleRestartError.
        """
        local = self._local
        terms = self._current if local is not None else self._terms_of(cycle)
        kind = terms.of(call)
        rule = kind.rule
        answer: Any
        started_s = instant_s()
        try:
            if local is not None:
                # Rounds share one deadline. The budget of a cycle is for served plugins.
                deadline_s = self._deadline_s(call, rule, cycle) if call.in_rounds else rule.deadline_s
                raw: Any
                if cycle is None or call.lane is not Lane.CYCLE:
                    raw = local.ask(call, cycle, args, deadline_s)
                else:
                    try:
                        raw = call.local(local.runtime, cycle.state(self._name), cycle.subject, *args)
                    except BaseException as err:  # noqa: BLE001  # a plugin may raise anything
                        raw = local.stands_for(call, err)
                    if type(raw) not in SETTLED:
                        raw = local.going_on(call, raw, deadline_s)
                if type(raw) not in SETTLED and must_wait(raw):
                    raw = await raw
                answer = call.check(terms.check, call, cycle, raw, *args)
                if then is not None:
                    answer = then(terms.check, answer)
                if not call.pure and cycle is not None:
                    part = cycle.parts.get(self._name)
                    if part is not None and part.state is not None:
                        terms.check.token(call, part.state.token)
            else:
                answer = await self._ask_served(call, terms, cycle, args, then)
        except PluginNotAskedError as failure:
            return stand_in(Policy.IGNORE, failure)
        except PluginError as failure:
            kind.observe(cycle, instant_s() - started_s)
            return stand_in(self._failed(call, rule, cycle, failure), failure)
        duration_s = instant_s() - started_s
        kind.observe(cycle, duration_s, answer)
        if local is not None and duration_s > rule.deadline_s:
            self._overran(call, rule, cycle, duration_s)
        if self.failing:
            self._recovered(call)
        return answer

    def ask_at_once(
        self, call: Call[*tuple[Any, ...], Any, list[T]], question: tuple[Any, ...], stand_in: StandIn[T]
    ) -> T | None:
        """Call an in-process plugin about one pod of the queue, as `ask` does, without waiting.

        Returns None if the answer must be awaited, as for an `async def`: then call `ask`. A plain method
        cannot be interrupted, so an overrun of the deadline is reported afterwards.
        """
        local, check_one = self._local, call.check_one
        if local is None or check_one is None:
            return None
        kind = self._at_once.get(call.rpc)
        if kind is None:
            if local.awaits(call):
                return None
            kind = self._at_once[call.rpc] = self._current.of(call)
        observe = kind.stats.times.observe
        started_s = instant_s()
        answer: T
        try:
            try:
                raw: Any = call.local(local.runtime, *question)
            except BaseException as err:  # noqa: BLE001  # a plugin may raise anything
                raw = local.stands_for(call, err)
            if type(raw) not in SETTLED and must_wait(raw):
                if iscoroutine(raw):
                    raw.close()  # `ask` begins another one, and awaits it
                return None
            answer = check_one(self._current.check, call, raw)
        except PluginError as failure:
            observe(instant_s() - started_s)
            return stand_in(self._failed(call, kind.rule, None, failure), failure)
        duration_s = instant_s() - started_s
        observe(duration_s)
        if duration_s > kind.rule.deadline_s:
            self._overran(call, kind.rule, None, duration_s)
        if self.failing:
            self._recovered(call)
        return answer

    def came(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleRecord,
        raw: Raw,
        args: tuple[*Args],
        stand_in: StandIn[S],
        then: Callable[[Checker, Out], T],
    ) -> T | S:
        """Check an answer that came early, with that of another call, and return it, as `ask` does."""
        terms = self._terms_of(cycle)
        kind = terms.of(call)
        started_s = instant_s()
        try:
            answer = then(terms.check, call.check(terms.check, call, cycle, raw, *args))
        except PluginError as failure:
            kind.observe(cycle, instant_s() - started_s)
            _blame(self._conduct(cycle), call, failure)
            return stand_in(self._failed(call, kind.rule, cycle, failure), failure)
        kind.observe(cycle, instant_s() - started_s, answer)
        self._answered(call, cycle)
        return answer

    def came_unread(
        self,
        call: Call[*Args, Raw, Out],
        cycle: CycleRecord,
        read: Callable[[], Raw],
        args: tuple[*Args],
        stand_in: StandIn[S],
    ) -> Out | S:
        """Read and check an early answer that is still in bytes, as `came` does.

        A failure counts as a failed call. The time of reading is not counted. The answer is used even if the
        connection to its instance is lost, but not if a new instance does not know the cycle.
        """
        terms = self._terms_of(cycle)
        rule = terms.rules[call.rpc]
        try:
            self._deadline_s(call, rule, cycle)
            if cycle.part(self._name).is_lost:
                raise PluginUnavailableError(self._name, call.rpc, LOST)
            answer = call.check(terms.check, call, cycle, read(), *args)
        except PluginError as failure:
            _blame(self._conduct(cycle), call, failure)
            return stand_in(self._failed(call, rule, cycle, failure), failure)
        self._answered(call, cycle)
        return answer

    def was_untrue(self, call: AnyCall, cycle: CycleRecord, untrue: str) -> None:
        """Count a violation for an answer that passed every check and turned out to be untrue."""
        failure = PluginProtocolError(self._name, call.rpc, untrue)
        _blame(self._conduct(cycle), call, failure)
        self._failed(call, self._terms_of(cycle).rules[call.rpc], cycle, failure)

    def instance_in(self, cycle: CycleRecord) -> Transport | None:
        """Return the way to the instance that serves the cycle, chosen now if the cycle had none.

        None: there is no instance.
        """
        return self._pinned(cycle)

    # --- how it is done --------------------------------------------------------------------------------

    async def _ask_served(
        self,
        call: Call[*Args, Any, Any],
        terms: Terms,
        cycle: CycleRecord | None,
        args: tuple[*Args],
        then: Callable[[Checker, Any], Any] | None,
    ) -> Any:
        """Make one attempt, and a second one for a pure call of an instance that was unavailable."""
        if not terms.serves(call.point) and call is not QUEUEING_HINTS:
            raise PluginNotAskedError(self._name, call.rpc, "does not take part")
        way = self._way(call, cycle)
        if cycle is not None:
            cycle.served_call_begins()
        try:
            try:
                return await self._attempt(way, call, terms, cycle, args, then)
            except PluginUnavailableError:
                refused = way.conduct is not None and way.conduct.refuses(call.point)
                if not call.pure or not way.is_open or refused:
                    raise
                self._stats.of(call.rpc).repeats += 1
                with _repeating(cycle, self._name):
                    return await self._attempt(way, call, terms, cycle, args, then)
        except PluginUnavailableError as failure:
            if cycle is not None and cycle.may_restart:
                # The end of a process is noticed a moment after the call that it did not answer.
                await way.is_lost(min(terms.rules[call.rpc].deadline_s, cycle.budget_left_s))
                self._restart_if_replaced(cycle, way, failure)
            raise
        except CircuitOpenError as failure:
            if cycle is not None:
                self._restart_if_replaced(cycle, way, failure)
            raise
        finally:
            if cycle is not None:
                cycle.served_call_ends()

    async def _attempt(
        self,
        way: Transport,
        call: Call[*Args, Any, Any],
        terms: Terms,
        cycle: CycleRecord | None,
        args: tuple[*Args],
        then: Callable[[Checker, Any], Any] | None,
    ) -> Any:
        """Make the call once and check the answer; the circuit breaker sees every attempt."""
        rule = terms.rules[call.rpc]
        begun = call.in_rounds and cycle is not None and cycle.part(self._name).rounds > 0
        conduct = way.conduct
        with nullcontext() if conduct is None else conduct.watched(call, begun=begun):
            deadline_s = self._deadline_s(call, rule, cycle)
            try:
                raw = await settled(way.ask(call, cycle, args, deadline_s))
                answer = call.check(terms.check, call, cycle, raw, *args)
                return answer if then is None else then(terms.check, answer)
            except PluginProtocolError as failure:
                _blame(conduct, call, failure)
                raise
            except PluginTimeoutError as failure:
                if failure.call != call.rpc or isinstance(failure, BudgetSpentError):
                    raise
                raise self._timeout(call, rule, cycle, deadline_s) from failure

    def _timeout(
        self, call: AnyCall, rule: CallRule, cycle: CycleRecord | None, had_s: float
    ) -> PluginTimeoutError:
        """Return the error with the deadline that the user set; the transport has only the time left.

        `had_s`: the seconds that the plugin had.
        """
        if call.in_rounds or cycle is None or had_s >= rule.deadline_s:
            return PluginTimeoutError(self._name, call.rpc, rule.deadline_s)
        fair_s = FAIR_SHARE * min(rule.deadline_s, cycle.budget_s)
        return PluginTimeoutError(self._name, call.rpc, had_s, of_budget=True, others_spent=had_s < fair_s)

    def _way(self, call: AnyCall, cycle: CycleRecord | None) -> Transport:
        """Return the way to the instance of this cycle's first call. Raises PluginError if it is gone."""
        if cycle is None:
            way = self._route.for_batch(call.point)
            if way is None:
                raise PluginAbsentError(self._name, call.rpc, self._route.absence)
            return way
        if cycle.part(self._name).is_lost and call.lane is not Lane.OUTBOX:
            raise PluginUnavailableError(self._name, call.rpc, LOST)
        pinned = self._pinned(cycle)
        if pinned is not None:
            # The outbox sends to the instance that is active at that time.
            if pinned.is_open or call.lane is Lane.OUTBOX:
                return pinned
            gone = PluginUnavailableError(self._name, call.rpc, "lost its instance")
            self._restart_if_replaced(cycle, pinned, gone)
            raise gone
        raise PluginAbsentError(self._name, call.rpc, self._route.absence)

    def _pinned(self, cycle: CycleRecord) -> Transport | None:
        """Return the way of this cycle's first call, chosen now if this is the first; None without an
        instance.
        """
        part = cycle.part(self._name)
        way: Transport | None = part.instance
        if way is None:
            way = cycle.instance(self._name)
            if way is None:
                # All cycles of a group go to one instance: it may keep the state of the group.
                root = cycle.root
                way = root.part(self._name).instance = self._route.for_cycle(root)
            part.instance = way
        return way

    def _restart_if_replaced(self, cycle: CycleRecord, lost: Transport, failure: PluginError) -> None:
        """Raise CycleRestartError, once, if another instance is active before Reserve began: this one
        died, or its circuit is open.
        """
        current = self._route.transport
        if not cycle.may_restart or (lost.is_open and not isinstance(failure, CircuitOpenError)):
            return
        if current is not None and current is not lost:
            raise CycleRestartError(self._name, "its instance was replaced by another one") from failure

    def _deadline_s(self, call: AnyCall, rule: CallRule, cycle: CycleRecord | None) -> float:
        deadline_s = rule.deadline_s
        if cycle is None:
            return deadline_s
        if call.in_rounds:
            part = cycle.part(self._name)
            if not part.rounds:
                part.rounds_end_s = monotonic_s() + deadline_s
            part.rounds += 1
            left_s = part.rounds_end_s - monotonic_s()
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
        self, call: AnyCall, rule: CallRule, cycle: CycleRecord | None, failure: PluginError
    ) -> Policy:
        """Count and log the failure, and return the policy that applies."""
        if isinstance(failure, PluginAbsentError | CircuitOpenError):
            policy = rule.unasked
        elif isinstance(failure, HostFaultError):
            policy = Policy.FAIL
        else:
            policy = rule.policy
        stats = self._stats.of(call.rpc)
        stats.failures[failure.outcome] += 1
        stats.policies[policy.value] += 1
        self._stats.last_failure = str(failure)
        if isinstance(failure, PluginProtocolError):
            self._stats.violations += 1
        if cycle is not None and policy is not Policy.FAIL:
            cycle.account.leave_out(self._name, call.rpc, self.why_left_out(call, failure, policy))
        self._tell(call, failure, policy)
        return policy

    def why_left_out(self, call: AnyCall, failure: PluginError, policy: Policy) -> str:
        """Return the failure, and the setting by which the pod goes on without an answer."""
        by_policy = any(
            chosen.policy is not None
            for chosen in (self._settings.points.get(key) for key in call.keys)
            if chosen is not None
        )
        unasked = isinstance(failure, PluginAbsentError | CircuitOpenError)
        setting = f"policy: {policy.value}" if by_policy or not unasked else "required: false"
        return f"{failure.said_of_it} ({setting})"

    def _answered(self, call: AnyCall, cycle: CycleRecord) -> None:
        """Record that an answer came early and passed every check."""
        conduct = self._conduct(cycle)
        if conduct is not None:
            conduct.answered(call)
        if self.failing:
            self._recovered(call)

    def _conduct(self, cycle: CycleRecord) -> FailureRecord | None:
        """Return the conduct record of the instance that serves this cycle."""
        way: Transport | None = cycle.part(self._name).instance
        return None if way is None else way.conduct

    def _tell(self, call: AnyCall, failure: PluginError, policy: Policy) -> None:
        """Log the first of several failures in a row as a warning, the others at level debug.

        The log has the traceback of an in-process plugin. A served plugin logs its own.
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

    def _overran(self, call: AnyCall, rule: CallRule, cycle: CycleRecord | None, duration_s: float) -> None:
        self._stats.of(call.rpc).overruns += 1
        text = (
            f'plugin "{self._name}" took {1000 * duration_s:.0f} ms at {call.rpc};'
            f" its deadline is {1000 * rule.deadline_s:.0f} ms"
        )
        if cycle is not None:
            cycle.account.overruns.append(text)
        _LOG.warning("plugin.overran", plugin=self._name, call=call.rpc, error=text)

    def _terms_of(self, cycle: CycleRecord | None) -> Terms:
        """Return the terms of the cycle's instance; without a cycle, of the active instance."""
        pinned = None if cycle is None else self._pinned(cycle)
        descriptor = self._route.descriptor if pinned is None else pinned.descriptor
        if self._current.descriptor is not descriptor:
            self._current = self._terms.get(id(descriptor)) or self._new_terms(
                descriptor, pinned or self._route.transport
            )
        return self._current

    def _new_terms(self, descriptor: Descriptor, way: Transport | None) -> Terms:
        codes = None if way is None else way.codes
        terms = self._terms[id(descriptor)] = Terms(
            descriptor, self._facts, self._settings, self._stats, codes
        )
        if len(self._terms) > _KEPT_TERMS:
            del self._terms[next(iter(self._terms))]
        return terms


def _blame(conduct: FailureRecord | None, call: AnyCall, failure: PluginError) -> None:
    """Count a violation of the contract against the instance that answered."""
    if conduct is not None and isinstance(failure, PluginProtocolError):
        conduct.violated(f"{failure.detail} at {call.rpc}")


@contextmanager
def _repeating(cycle: CycleRecord | None, plugin: str) -> Iterator[None]:
    """Mark the call as the second attempt, for the transport."""
    if cycle is None:
        yield
        return
    part = cycle.part(plugin)
    part.is_repeating = True
    try:
        yield
    finally:
        part.is_repeating = False
