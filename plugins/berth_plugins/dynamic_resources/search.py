"""`Search`: requests against the devices that one node can use -> the first complete choice.

Depth first over claims, requests and devices, in the order of pools, slices and devices. Within a request,
each device comes after the one chosen before: combinations, not permutations.

Source: `dynamic-resource-allocation/structured/internal/incubating/allocator_incubating.go`, v1.38.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from berth_sdk.errors import BerthError
from berth_sdk.kube_object import KubeObject

from berth_plugins.cel.pieces import count
from berth_plugins.dynamic_resources.capacity import Amount, AmountError, consumed, counted, fits
from berth_plugins.dynamic_resources.constraints import Constraint, constraints_of
from berth_plugins.dynamic_resources.devices import Device, DeviceId, PoolId
from berth_plugins.dynamic_resources.inventory import Candidate, NodePool
from berth_plugins.dynamic_resources.requests import ALL, EXACT_COUNT, Request, RequestList
from berth_plugins.dynamic_resources.rules import Rules

# About what one step of the search, and a look at one device, cost beside the evaluation of an expression.
_STEP: Final = 20
_LOOK: Final = 4
MAX_DEVICES: Final = 32
"""The maximum of devices in the status of one claim."""


_Steps: TypeAlias = "Generator[_Steps, bool, bool]"


class AllocationError(BerthError):
    """A claim, a class or a pool is invalid: the attempt ends."""


class NoAllocationHereError(BerthError):
    """This node's pools cannot be judged. Other nodes may have devices."""


class _TooManyError(Exception):
    """The claim would get more devices than its status can hold."""


class Taken(Protocol):
    """The devices of claims in the cluster and of pods being bound."""

    def is_taken(self, device: DeviceId) -> bool:
        """Return True if a claim has the whole device."""
        ...

    def is_shared(self, device: DeviceId) -> bool:
        """Return True if a claim has a part of the device."""
        ...

    def shares(self, device: DeviceId) -> Mapping[str, int]:
        """Return how much of the device's capacities is given away, in billionths."""
        ...


class Selectors(Protocol):
    """Tests devices with the expressions of classes and requests."""

    def admits(self, claim: str, request: Request, device_class: KubeObject, device: Device) -> bool:
        """Return True if class and request select the device. Raises AllocationError."""
        ...


@dataclass(frozen=True, slots=True)
class ClaimToAllocate:
    """A claim without allocation. `key`: `namespace/name`."""

    key: str
    spec: Mapping[str, Any]
    requests: tuple[RequestList, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One device for one request. `amounts`: the parts of a shared device."""

    request: Request
    candidate: Candidate
    pool: PoolId
    amounts: Mapping[str, Amount] | None = None


@dataclass(slots=True)
class _Plan:
    """A request for this node. `everything`: for mode All, the devices, in order."""

    request: Request
    device_class: KubeObject
    count: int
    everything: list[tuple[NodePool, Candidate]] = field(default_factory=list)


class Search:
    """One search, which runs once. `is_late`: raises when the time is over. `classes`: finds a device class
    by name. `rules`: those of the version.
    """

    def __init__(
        self,
        claims: Sequence[ClaimToAllocate],
        pools: Sequence[NodePool],
        taken: Taken,
        selectors: Selectors,
        classes: Callable[[str], KubeObject | None],
        is_late: Callable[[], None],
        rules: Rules,
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._taken = taken
        self._selectors = selectors
        self._classes = classes
        self._is_late = is_late
        self._rules = rules
        self._plans: dict[tuple[int, int], list[_Plan]] = {}
        self._constraints: list[list[Constraint]] = []
        self._chosen: list[list[Choice]] = [[] for _ in claims]
        self._in_use: dict[DeviceId, Counter[int]] = {}
        self._shares: dict[DeviceId, Counter[str]] = {}
        self._counters: dict[PoolId, dict[str, Counter[str]]] = {}
        self._left: dict[PoolId, dict[str, dict[str, int]]] = {}
        self._admitted: dict[tuple[int, str, Device], bool] = {}

    def run(self) -> list[list[Choice]] | None:
        """Return the devices of each claim. None: there is no solution. Raises AllocationError,
        NoAllocationHereError and the errors of `is_late`.
        """
        for c, claim in enumerate(self._claims):
            self._prepare(c, claim)
        try:
            found = _run(self._one(0, 0, 0, 0, (0, 0), in_list=False))
        except _TooManyError:
            found = False
        if found:
            return self._chosen
        if any(pool.is_invalid for pool in self._pools):
            raise NoAllocationHereError("invalid resource pools were encountered")
        return None

    # --- before the search ---------------------------------------------------------------------

    def _prepare(self, c: int, claim: ClaimToAllocate) -> None:
        count(_STEP)
        least = 0
        for r, requests in enumerate(claim.requests):
            plans = [self._plan(c, claim, request) for request in requests.alternatives]
            self._plans[c, r] = plans
            needed = min((plan.count for plan in plans), default=0)
            if self._rules.strict_amounts and least + needed > MAX_DEVICES:
                raise AllocationError(
                    f"claim {claim.key}, request {requests.name}: adding {needed} devices exceeds the claim"
                    f" limit of {MAX_DEVICES}, with {least} already accounted for"
                )
            least += needed
        if least > MAX_DEVICES:
            raise AllocationError(
                f"claim {claim.key}: number of requested devices {least} exceeds the claim limit of"
                f" {MAX_DEVICES}"
            )
        try:
            without_build = self._rules.versions_without_build
            self._constraints.append(constraints_of(claim.spec, versions_without_build=without_build))
        except ValueError as err:
            raise AllocationError(f"claim {claim.key}, {err}") from err

    def _plan(self, c: int, claim: ClaimToAllocate, request: Request) -> _Plan:
        where = f"claim {claim.key}, request {request.name}"
        for i, expression in enumerate(request.selectors):
            if expression is None:
                raise AllocationError(
                    f"{where}, selector #{i}: CEL expression empty (unsupported selector type?)"
                )
        if not request.class_name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self._classes(request.class_name)
        if device_class is None:
            raise AllocationError(f"{where}: could not retrieve device class {request.class_name}: not found")
        plan = _Plan(request, device_class, request.count)
        if request.mode == ALL:
            plan.everything = self._everything(c, where, plan)
            plan.count = len(plan.everything)
        elif request.mode != EXACT_COUNT:
            raise AllocationError(f"{where}: unsupported count mode {request.mode}")
        return plan

    def _everything(self, c: int, where: str, plan: _Plan) -> list[tuple[NodePool, Candidate]]:
        found = []
        for pool in self._pools:
            for bad, word in ((pool.is_incomplete, "being updated"), (pool.is_invalid, "invalid")):
                if bad:
                    problem = NoAllocationHereError if self._rules.all_by_node else AllocationError
                    raise problem(
                        f"{where}: asks for all devices, but resource pool {pool.pool.id} is currently {word}"
                    )
            for candidate in pool.candidates:
                count(_LOOK)
                if self._admits(c, plan, candidate) and self._counts_in_all(
                    c, plan.request, candidate.device
                ):
                    found.append((pool, candidate))
        return found

    # --- the search ----------------------------------------------------------------------------

    def _one(self, c: int, r: int, s: int, k: int, start: tuple[int, int], *, in_list: bool) -> _Steps:
        """Find device `k` of alternative `s` of request `r` of claim `c`, and everything after it."""
        self._is_late()
        count(_STEP)
        if c >= len(self._claims):
            return True
        if r >= len(self._claims[c].requests):
            try:
                return (yield self._one(c + 1, 0, 0, 0, (0, 0), in_list=False))
            except _TooManyError:
                # Fewer devices for an earlier claim do not help this claim, but other devices may.
                return False
        plans = self._plans[c, r]
        if self._claims[c].requests[r].is_list and not in_list:
            return (yield self._first_available(c, r, len(plans)))
        plan = plans[s]
        if plan.request.mode == ALL and not plan.everything:
            return False
        if k >= plan.count:
            return (yield self._one(c, r + 1, 0, 0, (0, 0), in_list=False))
        if len(self._chosen[c]) + plan.count - k > MAX_DEVICES:
            raise _TooManyError
        if plan.request.mode == ALL:
            pool, candidate = plan.everything[k]
            if not self._take(c, plan, pool, candidate, must=True):
                return False
            return (yield self._go_on(c, r, s, k, (0, 0), plan, pool, candidate, in_list))
        for p in range(start[0], len(self._pools)):
            pool = self._pools[p]
            if not pool.is_usable:
                continue
            for d in range(start[1] if p == start[0] else 0, len(pool.candidates)):
                candidate = pool.candidates[d]
                count(_LOOK)
                if (
                    self._is_free(c, plan.request, candidate.device)
                    and self._admits(c, plan, candidate)
                    and self._take(c, plan, pool, candidate)
                    and (yield self._go_on(c, r, s, k, (p, d + 1), plan, pool, candidate, in_list))
                ):
                    return True
        return False

    def _first_available(self, c: int, r: int, count: int) -> _Steps:
        too_many = True
        for s in range(count):
            try:
                if (yield self._one(c, r, s, 0, (0, 0), in_list=True)):
                    return True
            except _TooManyError:
                continue
            too_many = False
        if too_many:
            raise _TooManyError
        return False

    def _go_on(
        self,
        c: int,
        r: int,
        s: int,
        k: int,
        start: tuple[int, int],
        plan: _Plan,
        pool: NodePool,
        candidate: Candidate,
        in_list: bool,
    ) -> _Steps:
        """Search everything after a device that was taken. Put the device back if that fails."""
        try:
            found = yield self._one(c, r, s, k + 1, start, in_list=in_list)
        except _TooManyError:
            self._put_back(c, plan, pool, candidate)
            raise
        if not found:
            self._put_back(c, plan, pool, candidate)
        return found

    def _is_free(self, c: int, request: Request, device: Device) -> bool:
        if request.admin_access:
            return not self._in_use.get(device.id, _NOBODY)[c]
        return not self._taken.is_taken(device.id) and not any(self._in_use.get(device.id, _NOBODY).values())

    def _is_shared_elsewhere(self, request: Request, device: Device) -> bool:
        """Return True for a device that was shareable once, and still has a share."""
        if device.is_shareable or request.admin_access or not self._rules.shares_exclude_whole:
            return False
        return self._taken.is_shared(device.id) or device.id in self._shares

    def _admits(self, c: int, plan: _Plan, candidate: Candidate) -> bool:
        """Return True if selectors and node selection allow the device for the request."""
        if candidate.device.binding_conditions and not self._rules.binding_conditions:
            return False
        key = (c, plan.request.full_name, candidate.device)
        known = self._admitted.get(key)
        if known is None:
            known = self._admitted[key] = (
                self._selectors.admits(self._claims[c].key, plan.request, plan.device_class, candidate.device)
                and candidate.is_here
            )
        return known

    def _counts_in_all(self, c: int, request: Request, device: Device) -> bool:
        """Return True if a request for all devices needs this one."""
        if not self._rules.all_with_full_devices:
            return self._has_room(c, request, device)
        return self._fits(c, request, device, _NOTHING, _NOTHING)

    def _has_room(self, c: int, request: Request, device: Device) -> bool:
        given = self._taken.shares(device.id)
        return self._fits(c, request, device, given, self._shares.get(device.id, _NOTHING))

    def _fits(
        self, c: int, request: Request, device: Device, given: Mapping[str, int], chosen: Mapping[str, int]
    ) -> bool:
        try:
            return fits(request, device, given, chosen, self._rules)
        except AmountError as err:
            where = f"claim {self._claims[c].key}, request {request.name}"
            raise AllocationError(f"{where}: checking capacity for device {device.id}: {err}") from err

    # --- taking --------------------------------------------------------------------------------

    def _take(self, c: int, plan: _Plan, pool: NodePool, candidate: Candidate, *, must: bool = False) -> bool:
        """Count the device as this claim's, if possible. `must`: there is no other choice."""
        request, device = plan.request, candidate.device
        if not self._is_free(c, request, device) or not self._has_room(c, request, device):
            return False
        if self._is_shared_elsewhere(request, device):
            return False
        is_first = not (self._taken.is_shared(device.id) or device.id in self._shares)
        consumes = device.consumes if is_first or not device.is_shareable else ()
        if consumes and not self._has_counters(pool, consumes):
            return False
        if any(not _is_tolerated(request, taint) for taint in device.taints_in_the_way):
            return False
        if not self._join(c, request, device):
            if must:
                raise AllocationError(
                    f"claim {self._claims[c].key}, request {request.name}: cannot add device {device.id}"
                    " because a claim constraint would not be satisfied"
                )
            return False
        self._consume(pool, consumes, 1)
        amounts = None
        if device.is_shareable:
            amounts = consumed(request, device, self._rules)
            share = self._shares.setdefault(device.id, Counter())
            share.update(counted(amounts, device, self._rules))
            share[_SHARERS] += 1
        else:
            self._in_use.setdefault(device.id, Counter())[c] += 1
        self._chosen[c].append(Choice(request, candidate, pool.pool.id, amounts))
        return True

    def _put_back(self, c: int, plan: _Plan, pool: NodePool, candidate: Candidate) -> None:
        device = candidate.device
        for constraint in self._constraints[c]:
            constraint.remove(plan.request, device)
        choice = self._chosen[c].pop()
        if choice.amounts is None:
            self._in_use[device.id][c] -= 1
            self._consume(pool, device.consumes, -1)
            return
        share = self._shares[device.id]
        share.subtract(counted(choice.amounts, device, self._rules))
        share[_SHARERS] -= 1
        if not share[_SHARERS]:
            del self._shares[device.id]
            if not self._taken.is_shared(device.id):
                self._consume(pool, device.consumes, -1)

    def _join(self, c: int, request: Request, device: Device) -> bool:
        joined: list[Constraint] = []
        for constraint in self._constraints[c]:
            if not constraint.add(request, device):
                for one in joined:
                    one.remove(request, device)
                return False
            joined.append(constraint)
        return True

    def _has_counters(self, pool: NodePool, consumes: Sequence[tuple[str, Mapping[str, int]]]) -> bool:
        left = self._left.get(pool.pool.id)
        if left is None:
            left = self._left[pool.pool.id] = self._counters_left(pool)
        chosen = self._counters.get(pool.pool.id, {})
        needed: dict[str, Counter[str]] = {}
        for name, amounts in consumes:
            needed.setdefault(name, Counter()).update(amounts)
        return all(
            amount + chosen.get(name, _NOTHING).get(counter, 0) <= left.get(name, {}).get(counter, 0)
            for name, amounts in needed.items()
            for counter, amount in amounts.items()
        )

    def _counters_left(self, pool: NodePool) -> dict[str, dict[str, int]]:
        """Return the pool's counters without the parts of devices in use, on any node."""
        left = {name: dict(amounts) for name, amounts in pool.pool.counters.items()}
        for device in pool.pool.devices:
            if device.consumes and (self._taken.is_taken(device.id) or self._taken.is_shared(device.id)):
                for name, amounts in device.consumes:
                    for counter, amount in amounts.items():
                        left[name][counter] -= amount
        return left

    def _consume(self, pool: NodePool, consumes: Sequence[tuple[str, Mapping[str, int]]], sign: int) -> None:
        for name, amounts in consumes:
            counters = self._counters.setdefault(pool.pool.id, {}).setdefault(name, Counter())
            for counter, amount in amounts.items():
                counters[counter] += sign * amount


def _run(first: _Steps) -> bool:
    """Run a step of the search with all steps that it asks for, and return its result.

    A step yields the step whose result it needs, in place of a call: a pod may ask for more devices than
    Python lets functions call each other. Raises _TooManyError, which goes from step to step as through
    calls, and any other error at once: the search is over then.
    """
    steps = [first]
    result: bool | None = None
    error: _TooManyError | None = None
    while steps:
        step = steps[-1]
        try:
            if error is not None:
                asked = step.throw(error)
            else:
                asked = next(step) if result is None else step.send(result)
        except StopIteration as end:
            steps.pop()
            result, error = end.value, None
        except _TooManyError as err:
            steps.pop()
            error = err
        else:
            steps.append(asked)
            result = error = None
    if error is not None:
        raise error
    return bool(result)


_SHARERS: Final = ""
_NOBODY: Final[Counter[int]] = Counter()
_NOTHING: Final[Counter[str]] = Counter()


def _is_tolerated(request: Request, taint: Any) -> bool:
    return any(one.tolerates(taint.key, taint.value, taint.effect) for one in request.tolerations)
