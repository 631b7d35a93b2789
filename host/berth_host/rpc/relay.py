"""`PluginRelay._call`: the only place with deadline, timing, counting, repeat, error mapping and policy.

Base of `PluginClient`, which adds a method per call of the contract. Knows where its plugin is (`Route`),
how it is to be treated (`ClientSettings`), and nothing of what the calls are about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from berth_sdk.extension_points import Answer, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.runtime.answers import PLAIN, must_wait, settled
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.runtime.plugin_runtime import PluginRuntime
from berth_sdk.status import SUCCESS, Code, Status

from berth_host.errors.plugins import (
    BudgetSpentError,
    CycleRestartError,
    HostFaultError,
    PluginAbsentError,
    PluginError,
    PluginNotAskedError,
    PluginProtocolError,
    PluginTimeoutError,
    PluginUnavailableError,
)
from berth_host.log import get_logger
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.rpc import calls
from berth_host.rpc.calls import Call, CallRule, PointPolicy, Policy, call_rules
from berth_host.rpc.cycle import CycleContext
from berth_host.rpc.in_process import InProcessTransport
from berth_host.rpc.transport import Transport
from berth_host.rpc.validate import Checker, ClusterFacts

T = TypeVar("T")
OWN_WORKLOAD_LABEL: Final = "berth.io/plugin"
"""On the pods that run a plugin; the value is the plugin's name."""
LOST: Final = "was restarted and knows nothing of this reservation"
_THROUGH_OUTBOX: Final = (calls.UNRESERVE, calls.POST_BIND)
_LOG = get_logger()


class Route(Protocol):
    """Where a client finds its plugin right now."""

    @property
    def transport(self) -> Transport | None:
        """The way to the active instance; None while there is none."""
        ...

    @property
    def descriptor(self) -> Descriptor:
        """As the instance declared it; of an instance never seen, what the configuration tells."""
        ...

    @property
    def absence(self) -> str:
        """While there is no transport: why, as the end of a sentence (`is not attached: ...`)."""
        ...


@dataclass(frozen=True, slots=True)
class LocalRoute:
    """A plugin inside the host."""

    transport: InProcessTransport

    @property
    def descriptor(self) -> Descriptor:
        """The class's own."""
        return self.transport.runtime.descriptor

    @property
    def absence(self) -> str:
        """Never absent."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How one plugin is to be treated. `points`: the operator's choices by point (`preBind`).

    `scope`: whether a pod concerns the plugin at all; None: every pod.
    """

    points: Mapping[str, PointPolicy] = field(default_factory=dict)
    required: bool = False
    scope: Callable[[Pod], bool] | None = None


class PluginRelay:
    """One plugin in one profile. Attributes: name, profile, stats, route."""

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
        self._facts = facts
        self._local = route.transport if isinstance(route, LocalRoute) else None
        self._failing: set[str] = set()
        self._descriptor: Descriptor | None = None
        self._rules: dict[str, CallRule] = {}
        self._made: dict[str, _Made] = {}
        self._check = Checker(route.descriptor, facts)
        self._refresh()

    # --- what it is ----------------------------------------------------------------------------------

    @property
    def descriptor(self) -> Descriptor:
        """The plugin's descriptor; that of a remote plugin may change with its instance."""
        return self.route.descriptor

    @property
    def points(self) -> tuple[ExtensionPoint, ...]:
        """The points that it declared."""
        return self.route.descriptor.points

    @property
    def is_remote(self) -> bool:
        """Whether calls leave the process."""
        return self._local is None

    @property
    def local(self) -> PluginRuntime | None:
        """The plugin itself, if it lives in the host; for the queue's synchronous questions."""
        return self._local.runtime if self._local is not None else None

    @property
    def is_failing(self) -> bool:
        """Whether some call's last answer was a failure: a policy may stand in for the plugin's word."""
        return bool(self._failing)

    @property
    def available(self) -> bool:
        """Whether an instance can be asked."""
        return self._local is not None or self.route.transport is not None

    @property
    def absence(self) -> Status:
        """While not available: the error that pods in the scope of a required plugin get."""
        return Status.error(PluginAbsentError(self.name, "", self.route.absence).text).with_plugin(self.name)

    def always_asked_at(self, point: ExtensionPoint) -> bool:
        """Whether it is asked at `point` about every pod, for as long as it lives."""
        return self._local is not None and self.settings.scope is None and point in self.points

    def in_scope(self, pod: Pod) -> bool:
        """Whether the plugin is asked about this pod at all. Never about a pod of its own workload: a
        required plugin could not be scheduled otherwise.
        """
        if self._local is None and pod.labels.get(OWN_WORKLOAD_LABEL) == self.name:
            return False
        scope = self.settings.scope
        return scope is None or scope(pod)

    # --- how it is done --------------------------------------------------------------------------------

    async def _call(
        self,
        call: Call,
        cycle: CycleContext | None,
        ask: Callable[[Transport, float], Answer[Any]],
        check: Callable[[Any], T],
        stand_in: Callable[[Policy, PluginError], T],
    ) -> T:
        """Ask, check, and put the policy's answer in the place of one that did not come."""
        local = self._local
        if local is None and self.route.descriptor is not self._descriptor:
            self._refresh()
        made = self._made.get(call.rpc) or self._first(call)
        rule = made.rule
        started_s = time.perf_counter()
        try:
            if local is not None:
                # Rounds of PreBind share one deadline; the budget of a cycle is for remote time.
                timed = call is calls.PRE_BIND
                raw = ask(local, self._deadline_s(call, rule, cycle) if timed else rule.deadline_s)
                if type(raw) not in PLAIN and must_wait(raw):
                    raw = await raw
                answer = check(raw)
                if not call.pure and cycle is not None:
                    self._check.token(call, cycle.state(self.name).token)
            else:
                answer = await self._ask_remote(call, rule, cycle, ask, check)
        except PluginNotAskedError as failure:
            return stand_in(Policy.IGNORE, failure)
        except PluginError as failure:
            made.observe(cycle, time.perf_counter() - started_s)
            return stand_in(self._failed(call, rule, cycle, failure), failure)
        duration_s = time.perf_counter() - started_s
        made.observe(cycle, duration_s, answer)
        if local is not None and duration_s > rule.deadline_s:
            self._overran(call, rule, cycle, duration_s)
        if self._failing:
            self._recovered(call)
        return answer

    async def _open_call(
        self,
        call: Call,
        cycle: CycleContext,
        ask: Callable[[Transport, float], Answer[Any]],
        check: Callable[[Any], T],
        stand_in: Callable[[Policy, PluginError], T],
    ) -> T:
        """As `_call`; until it has answered the plugin may ask about the cycle."""
        cycle.open_calls[self.name] = call.point
        try:
            return await self._call(call, cycle, ask, check, stand_in)
        finally:
            del cycle.open_calls[self.name]

    def _checked(
        self,
        call: Call,
        cycle: CycleContext,
        came: Any,
        check: Callable[[Any], T],
        stand_in: Callable[[Policy, PluginError], T],
    ) -> T:
        """As `_call`, where what would be asked for came along with another answer."""
        made = self._made.get(call.rpc) or self._first(call)
        started_s = time.perf_counter()
        try:
            answer = check(came)
        except PluginError as failure:
            made.observe(cycle, time.perf_counter() - started_s)
            return stand_in(self._failed(call, made.rule, cycle, failure), failure)
        made.observe(cycle, time.perf_counter() - started_s, answer)
        if self._failing:
            self._recovered(call)
        return answer

    async def _ask_remote(
        self,
        call: Call,
        rule: CallRule,
        cycle: CycleContext | None,
        ask: Callable[[Transport, float], Answer[Any]],
        check: Callable[[Any], T],
    ) -> T:
        """One attempt, and a second one for a pure call of an instance that was unavailable."""
        if call.point not in self.points and call is not calls.QUEUEING_HINTS:
            raise PluginNotAskedError(self.name, call.rpc, "does not take part")
        way = self._way(call, cycle)
        if cycle is not None:
            cycle.remote_begins()
        deadline_s = rule.deadline_s
        try:
            deadline_s = self._deadline_s(call, rule, cycle)
            try:
                return check(await settled(ask(way, deadline_s)))
            except PluginUnavailableError:
                if not call.pure or not way.is_open:
                    raise
                deadline_s = self._deadline_s(call, rule, cycle)
                self.stats.of(call.rpc).repeats += 1
                with _repeating(cycle, self.name):
                    return check(await settled(ask(way, deadline_s)))
        except PluginUnavailableError as failure:
            self._restart_if_replaced(cycle, way, failure)
            raise
        except PluginTimeoutError as failure:
            if failure.call != call.rpc or isinstance(failure, BudgetSpentError):
                raise
            # The transport knows what was left for it; people know the deadline that they set.
            if call is calls.PRE_BIND:
                deadline_s = rule.deadline_s
            cut = deadline_s < rule.deadline_s
            raise PluginTimeoutError(self.name, call.rpc, deadline_s, budget=cut) from failure
        finally:
            if cycle is not None:
                cycle.remote_ends()

    def _way(self, call: Call, cycle: CycleContext | None) -> Transport:
        """The instance that this cycle's first call went to, as long as it is there."""
        current = self.route.transport
        if cycle is None:
            if current is None:
                raise PluginAbsentError(self.name, call.rpc, self.route.absence)
            return current
        if self.name in cycle.lost_by and call not in _THROUGH_OUTBOX:
            raise PluginUnavailableError(self.name, call.rpc, LOST)
        pinned: Transport | None = cycle.instances.get(self.name)
        if pinned is not None:
            # What goes through the outbox reaches whichever instance is there by then.
            if pinned.is_open or call in _THROUGH_OUTBOX:
                return pinned
            gone = PluginUnavailableError(self.name, call.rpc, "lost its instance")
            self._restart_if_replaced(cycle, pinned, gone)
            raise gone
        if current is None:
            raise PluginAbsentError(self.name, call.rpc, self.route.absence)
        cycle.instances[self.name] = current
        return current

    def _restart_if_replaced(self, cycle: CycleContext | None, lost: Transport, failure: PluginError) -> None:
        """Before Reserve, a cycle whose instance died begins anew, once, if another one is there."""
        current = self.route.transport
        if cycle is None or cycle.reserved or cycle.restarted or lost.is_open:
            return
        if current is not None and current is not lost:
            raise CycleRestartError(self.name, "its instance was replaced by another one") from failure

    def _deadline_s(self, call: Call, rule: CallRule, cycle: CycleContext | None) -> float:
        deadline_s = rule.deadline_s
        if cycle is None:
            return deadline_s
        if call is calls.PRE_BIND:
            rounds, ends_s = cycle.rounds.get(self.name, (0, time.monotonic() + deadline_s))
            cycle.rounds[self.name] = (rounds + 1, ends_s)
            left_s = ends_s - time.monotonic()
        elif call.budgeted and self._local is None:
            left_s = min(deadline_s, cycle.budget_left_s)
        else:
            return deadline_s
        if left_s > 0:
            return left_s
        if call is calls.PRE_BIND:
            raise PluginTimeoutError(self.name, call.rpc, deadline_s)
        raise BudgetSpentError(self.name, call.rpc, cycle.budget_s)

    def _failed(self, call: Call, rule: CallRule, cycle: CycleContext | None, failure: PluginError) -> Policy:
        """Count it, note it, and say which policy applies."""
        if isinstance(failure, PluginAbsentError):
            policy = rule.absent
        elif isinstance(failure, HostFaultError):
            policy = Policy.FAIL
        else:
            policy = rule.policy
        stats = self.stats.of(call.rpc)
        stats.failures[failure.outcome] += 1
        stats.policies[policy.value] += 1
        if isinstance(failure, PluginProtocolError):
            self.stats.violations += 1
        if cycle is not None and policy is not Policy.FAIL:
            cycle.notes.append(failure.text)
        if call.rpc not in self._failing:
            self._failing.add(call.rpc)
            _LOG.warning(
                "plugin.call_failed",
                plugin=self.name,
                call=call.rpc,
                outcome=failure.outcome,
                policy=policy.value,
                error=failure.text,
            )
        return policy

    def _recovered(self, call: Call) -> None:
        if call.rpc in self._failing:
            self._failing.discard(call.rpc)
            _LOG.info("plugin.call_recovered", plugin=self.name, call=call.rpc)

    def _overran(self, call: Call, rule: CallRule, cycle: CycleContext | None, duration_s: float) -> None:
        self.stats.of(call.rpc).overruns += 1
        text = (
            f'plugin "{self.name}" took {1000 * duration_s:.0f} ms at {call.rpc};'
            f" its deadline is {1000 * rule.deadline_s:.0f} ms"
        )
        if cycle is not None:
            cycle.notes.append(text)
        _LOG.warning("plugin.overran", plugin=self.name, call=call.rpc, error=text)

    def _stand_in(self, policy: Policy, failure: PluginError, otherwise: Status = SUCCESS) -> Status:
        if policy is Policy.FAIL:
            return Status(Code.ERROR, (failure.text,), self.name)
        return otherwise

    def _refresh(self) -> None:
        descriptor = self.route.descriptor
        self._descriptor = descriptor
        self._check = Checker(descriptor, self._facts)
        self._rules = call_rules(self.settings.points, descriptor.deadlines, required=self.settings.required)
        self._made.clear()

    def _first(self, call: Call) -> _Made:
        """A call is made for the first time."""
        made = _Made(self._rules[call.rpc], (self.name, call.rpc), self.stats.of(call.rpc))
        self._made[call.rpc] = made
        return made


@dataclass(frozen=True, slots=True)
class _Made:
    """A call that was made before: its rule, and where its time is written down."""

    rule: CallRule
    key: tuple[str, str]
    stats: CallStats

    def observe(self, cycle: CycleContext | None, duration_s: float, answer: object = None) -> None:
        """Count one call; without an answer it failed."""
        self.stats.observe(duration_s)
        if cycle is not None:
            timings_s = cycle.timings_s
            timings_s[self.key] = timings_s.get(self.key, 0.0) + duration_s
            if cycle.sampler is not None:
                cycle.sampler.called(*self.key, duration_s, answer)


@contextmanager
def _repeating(cycle: CycleContext | None, plugin: str) -> Iterator[None]:
    """Tell the transport that this is the second attempt."""
    if cycle is None:
        yield
        return
    cycle.repeating.add(plugin)
    try:
        yield
    finally:
        cycle.repeating.discard(plugin)
