"""Decides which units may stay although a group needs room; the others are the victims of its preemption.

    every unit that may leave is away, and the group's members have their nodes
    unit after unit, in the given order: it comes back; where a member then no longer fits, it leaves for good

Two parts with one verdict:

- `NodeByNode`: a plugin that judges a node by the pods on it alone is asked about the members on the unit's
  nodes. Units without a common node are judged together, in one call for all equal members.
- `OneByOne`: a plugin for which more counts is asked about each member, on a snapshot that has the members
  before it. It is not asked about units that cannot change its verdict, if it says so (`sensitive_to`).

Called by `group_evaluator`. Source: kube-scheduler `framework/preemption/podgrouppreemption.go`
(selectVictimsOnDomain), v1.37.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import numpy as np
from berth_sdk.extension_points import ExtensionPoint, PodSensitivity
from berth_sdk.pod import Pod
from berth_sdk.runtime.raised import raised_text
from berth_sdk.scenarios import Scenarios
from berth_sdk.signature import signature
from berth_sdk.tables import NodeTable, PodChanges, PodTable, StateVersion
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle, CycleEnd
from berth_host.framework.filtering import filter_rows, filter_scenarios, nominated_pass, sensitive
from berth_host.framework.framework import Framework
from berth_host.log import get_logger
from berth_host.model.node_statuses import NodeStatuses
from berth_host.model.pre_filter_outcome import PreFilterOutcome
from berth_host.preemption.units import GroupObjects
from berth_host.rpc.client import PluginClient
from berth_host.rpc.loop_slices import LoopSlices

log = get_logger()
WHAT_IF_ENDS: Final = "the what-if of a preemption ends"
Unit = Sequence[Pod]
"""The pods of one unit. Each names its node."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A member that the algorithm gave a node. `cycle`: the member's attempt in that run."""

    cycle: Cycle
    node_name: str


class TrialSnapshot(Protocol):
    """The snapshot that a cycle holds: pods leave, come back and are assumed for the length of a what-if."""

    @property
    def nodes(self) -> NodeTable:
        """The table of all nodes; a new object after each change."""
        ...

    @property
    def version(self) -> StateVersion:
        """The version of the table."""
        ...

    @property
    def groups(self) -> GroupObjects:
        """The group objects."""
        ...

    def mark(self) -> int:
        """Return the state that `revert` returns to."""
        ...

    def revert(self, mark: int) -> None:
        """Undo the changes since `mark`."""
        ...

    def assume(self, pod: Pod) -> None:
        """Add a pod on the node that it names."""
        ...

    def forget(self, uid: str) -> None:
        """Undo `assume`."""
        ...

    def remove(self, uid: str) -> object:
        """Remove a pod."""
        ...

    def restore(self, uid: str) -> object:
        """Undo `remove`."""
        ...


class MakeAttempts(Protocol):
    """Makes further attempts of members, for what-ifs."""

    def again(self, cycle: Cycle) -> Cycle:
        """Return a new attempt of the same member over the snapshot as it is now.

        The nominated pods that count now are in the attempt (`Cycle.nominated`).
        """
        ...

    def pre_filter(self, cycle: Cycle) -> Awaitable[PreFilterOutcome]:
        """Run PreFilter of such an attempt."""
        ...


async def victims_among(
    framework: Framework,
    members: Sequence[Placed],
    units: Sequence[Unit],
    snapshot: TrialSnapshot,
    attempts: MakeAttempts,
) -> NDArray[np.bool_]:
    """Return bool[u]: the units that cannot stay.

    `members`: in the order of the algorithm. `units`: none of their pods is in the snapshot; they come back
    in this order. At the end the snapshot may lack some of the units or all of them.
    """
    asked = [sensitive(framework.filters_of(placed.cycle)) for placed in members]
    near = [[client for client in clients if not looks_further(client)] for clients in asked]
    far = [[client for client in clients if looks_further(client)] for clients in asked]
    async with NodeByNode(framework, members, near, snapshot, attempts, units) as by_node:
        if not any(far):
            return await by_node.away_of(range(len(units)))
        one_by_one = OneByOne(framework, members, far, snapshot, attempts)
        return await _both(by_node, one_by_one, units, snapshot)


async def _both(
    by_node: NodeByNode, one_by_one: OneByOne, units: Sequence[Unit], snapshot: TrialSnapshot
) -> NDArray[np.bool_]:
    """Return bool[u]: the units that cannot stay, where a member has plugins for which more than its node
    counts.
    """
    away = np.zeros(len(units), dtype=np.bool_)
    swaying = await one_by_one.swaying(units)
    by_node.begin_again()
    start = 0
    for unit in np.append(np.flatnonzero(swaying), len(units)).tolist():
        if start < unit:
            away[start:unit] = await by_node.away_of(range(start, unit))
        start = unit + 1
        if unit == len(units):
            break
        if await by_node.judge([unit]):
            away[unit] = True
            continue
        for pod in units[unit]:
            snapshot.restore(pod.uid)
        if not await one_by_one.all_fit(unit):
            away[unit] = True
            for pod in units[unit]:
                snapshot.remove(pod.uid)
        by_node.begin_again()
    return away


def looks_further(client: PluginClient) -> bool:
    """Return True if more counts for the plugin than a node and the pods on it: other nodes, or what the
    plugin itself keeps about reserved pods.
    """
    return (
        client.descriptor.pod_sensitivity is not PodSensitivity.NODE
        or ExtensionPoint.RESERVE in client.points
    )


@dataclass(slots=True, eq=False)
class _Kind:
    """Members that every plugin treats alike. `crowd`: by row, the nominated pods there (rows of the table of
    pods).
    """

    cycle: Cycle
    clients: Sequence[PluginClient]
    crowd: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Question:
    """Does a member fit in `row` with the pods `added` (rows of the table of pods), while `unit` is back?"""

    unit: int
    row: int
    added: list[int]


class NodeByNode:
    """The part of the plugins that judge a node by the pods on it alone; a context manager.

    `asked`: the plugins of each member. A unit that may stay counts for the later ones, in the snapshot or
    beside it.
    """

    def __init__(
        self,
        framework: Framework,
        members: Sequence[Placed],
        asked: Sequence[Sequence[PluginClient]],
        snapshot: TrialSnapshot,
        attempts: MakeAttempts,
        units: Sequence[Unit],
    ) -> None:
        self._framework = framework
        self._attempts = attempts
        self._snapshot = snapshot
        self._nodes = snapshot.nodes
        self._pods: list[Pod] = []
        self._rows: dict[str, int] = {}
        self._on_row: dict[int, list[tuple[_Kind, int]]] = {}
        self._kinds: dict[object, _Kind] = {}
        for placed, clients in zip(members, asked, strict=True):
            row = self._nodes.position(placed.node_name)
            if row is None:
                raise KeyError(placed.node_name)
            self._rows[placed.node_name] = row
            kind = self._kind_of(attempts.again(placed.cycle), clients)
            if kind.cycle.nominated and row not in kind.crowd:
                there = kind.cycle.nominated.added(np.asarray([row], dtype=np.intp))
                kind.crowd[row] = [self._add(pod) for pod in there.pods(0)]
            self._on_row.setdefault(row, []).append((kind, self._add(placed.cycle.pod)))
        self._coming = [self._by_row(unit) for unit in units]
        self._table = PodTable.of(self._pods)
        self._stay: dict[int, list[int]] = {row: [] for row in self._on_row}
        """By row: the pods that came back, and that the snapshot lacks (rows of the table of pods)."""
        self._has_cycles = True
        """True while the cycles of the kinds are those of the snapshot as it is now."""
        self._is_ready = False
        """True if PreFilter has run in these cycles."""
        self._pace = LoopSlices()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Judge the next units on the snapshot as it is then: it has changed."""
        if self._has_cycles:
            for kind in self._kinds.values():
                self._framework.end_cycle(kind.cycle, CycleEnd.ABORTED)
        self._has_cycles = self._is_ready = False

    def _kind_of(self, cycle: Cycle, clients: Sequence[PluginClient]) -> _Kind:
        marks: object = None
        if cycle.nominated:
            known = cycle.nominated.marks
            marks = cycle.cycle_id if known is None else known.tobytes()
        key = signature(cycle.pod), tuple(client.name for client in clients), marks
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(cycle, clients)
        return kind

    def _add(self, pod: Pod) -> int:
        self._pods.append(pod)
        return len(self._pods) - 1

    async def away_of(self, units: Sequence[int]) -> NDArray[np.bool_]:
        """Return bool[len(units)]: which of these units cannot stay. The others come back."""
        away = np.zeros(len(units), dtype=np.bool_)
        for wave in waves_of([self._coming[unit] for unit in units]):
            gone = await self.judge([units[place] for place in wave])
            for place in wave:
                if units[place] in gone:
                    away[place] = True
                else:
                    for row, pods in self._coming[units[place]].items():
                        self._stay[row] += pods
        return away

    async def judge(self, units: Iterable[int]) -> set[int]:
        """Return which of these units cannot come back. No two of them share a node with members."""
        gone: set[int] = set()
        for kind, questions in self._questions(units).items():
            await self._get_ready()
            rejected = await self._rejected(kind, questions)
            gone.update(question.unit for question in _chosen(questions, rejected))
        # The cycle holds the snapshot, and nobody else moves its pods on trial.
        await self._pace.step()
        return gone

    async def _get_ready(self) -> None:
        if self._is_ready:
            return
        kinds = self._kinds.values()
        if not self._has_cycles:
            self._nodes = self._snapshot.nodes
            for kind in kinds:
                kind.cycle = self._attempts.again(kind.cycle)
            self._has_cycles = True
        for kind in kinds:
            await self._attempts.pre_filter(kind.cycle)
        self._is_ready = True

    def _by_row(self, unit: Unit) -> dict[int, list[int]]:
        """Return the unit's pods on nodes with members, by row."""
        found: dict[int, list[int]] = {}
        for pod in unit:
            row = self._rows.get(pod.node_name)
            if row is not None:
                found.setdefault(row, []).append(self._add(pod))
        return found

    def _questions(self, units: Iterable[int]) -> dict[_Kind, list[_Question]]:
        questions: dict[_Kind, list[_Question]] = {}
        for unit in units:
            for row, pods in self._coming[unit].items():
                there = self._stay[row] + pods
                for kind, member in self._on_row[row]:
                    if kind.clients:
                        questions.setdefault(kind, []).append(_Question(unit, row, there))
                    there = [*there, member]
        return questions

    async def _rejected(self, kind: _Kind, questions: Sequence[_Question]) -> NDArray[np.bool_]:
        """Return bool[q]: where the member does not fit, with its row's nominated pods or without them."""
        crowded = [i for i, question in enumerate(questions) if kind.crowd.get(question.row)]
        asked = [
            *((questions[i].row, questions[i].added + kind.crowd[questions[i].row]) for i in crowded),
            *((question.row, question.added) for question in questions),
        ]
        starts = np.zeros(len(asked) + 1, dtype=np.intp)
        np.cumsum([len(added) for _, added in asked], out=starts[1:])
        pods = np.fromiter((pod for _, added in asked for pod in added), dtype=np.intp, count=starts[-1])
        rows = np.asarray([row for row, _ in asked], dtype=np.intp)
        scenarios = Scenarios.of_changes(
            self._nodes.unchanged(rows), PodChanges.none(len(asked)), PodChanges(self._table, pods, starts)
        )
        verdicts = await filter_scenarios(kind.clients, kind.cycle, scenarios)
        rejected = verdicts.groups != 0
        found: NDArray[np.bool_] = rejected[len(crowded) :].copy()
        found[crowded] |= rejected[: len(crowded)]
        return found


def waves_of(coming: Sequence[dict[int, list[int]]]) -> list[list[int]]:
    """Return the units with pods on nodes with members, in waves: no two units of a wave share a node, and
    each unit comes in a later wave than the units before it that share one with it.
    """
    waves: list[list[int]] = []
    next_wave: dict[int, int] = {}
    for unit, there in enumerate(coming):
        if not there:
            continue
        number = max(next_wave.get(row, 0) for row in there)
        if number == len(waves):
            waves.append([])
        waves[number].append(unit)
        next_wave.update(dict.fromkeys(there, number + 1))
    return waves


def _chosen(questions: Sequence[_Question], mask: NDArray[np.bool_]) -> list[_Question]:
    return [questions[i] for i in np.flatnonzero(mask).tolist()]


class OneByOne:
    """The part of the plugins for which more counts than a node and the pods on it. `asked`: the plugins of
    each member.
    """

    def __init__(
        self,
        framework: Framework,
        members: Sequence[Placed],
        asked: Sequence[Sequence[PluginClient]],
        snapshot: TrialSnapshot,
        attempts: MakeAttempts,
    ) -> None:
        self._framework = framework
        self._members = members
        self._asked = asked
        self._snapshot = snapshot
        self._attempts = attempts
        self._swayed: list[list[tuple[PluginClient, NDArray[np.bool_]]]] = []
        """By member: each plugin with bool[u], the units that can change its verdict."""
        self._warned: set[str] = set()
        self._pace = LoopSlices()

    async def swaying(self, units: Sequence[Unit]) -> NDArray[np.bool_]:
        """Return bool[u]: the units that can change the verdict of a plugin about a member.

        The others leave every verdict as it is now, without any unit: each member fits.
        """
        known: dict[object, NDArray[np.bool_]] = {}
        every = np.zeros(len(units), dtype=np.bool_)
        for placed, clients in zip(self._members, self._asked, strict=True):
            pairs: list[tuple[PluginClient, NDArray[np.bool_]]] = []
            for client in clients:
                key = client.name, signature(placed.cycle.pod)
                if key not in known:
                    known[key] = await self._swaying(client, placed.cycle.pod, units)
                    every |= known[key]
                pairs.append((client, known[key]))
            self._swayed.append(pairs)
        if not every.all() and not await self._all_fit(self._asked):
            # A nomination came, or another object changed, since the members got their nodes.
            every[:] = True
            for mask in known.values():
                mask[:] = True
        return every

    async def _swaying(self, client: PluginClient, pod: Pod, units: Sequence[Unit]) -> NDArray[np.bool_]:
        local = client.local
        sensitive_to = None if local is None else local.sensitive_to
        if sensitive_to is None:
            return np.ones(len(units), dtype=np.bool_)
        found = np.zeros(len(units), dtype=np.bool_)
        for i, unit in enumerate(units):
            found[i] = any(self._may_sway(client, sensitive_to, pod, other) for other in unit)
            await self._pace.step()
        return found

    def _may_sway(
        self, client: PluginClient, sensitive_to: Callable[[Pod, Pod], bool], pod: Pod, other: Pod
    ) -> bool:
        try:
            return sensitive_to(pod, other) is not False
        except Exception as err:  # noqa: BLE001 (only a shortcut: the plugin is asked at Filter)
            if client.name not in self._warned:
                self._warned.add(client.name)
                log.warning(
                    "plugin.cannot_tell_sensitivity",
                    plugin=client.name,
                    pod=pod.key,
                    reason=f"sensitive_to raised {raised_text(err)}",
                )
            return True

    async def all_fit(self, unit: int) -> bool:
        """Return True if every member fits now, after the pods of `unit` came back."""
        asked = [[client for client, units in pairs if units[unit]] for pairs in self._swayed]
        # What such a plugin holds for a member counts for the members after it.
        holding = {
            client for clients in asked for client in clients if ExtensionPoint.RESERVE in client.points
        }
        if holding:
            asked = [
                [client for client in clients if client in holding or client in some]
                for clients, some in zip(self._asked, asked, strict=True)
            ]
        return await self._all_fit(asked)

    async def _all_fit(self, asked: Sequence[Sequence[PluginClient]]) -> bool:
        last = max((i for i, clients in enumerate(asked) if clients), default=-1)
        reserved: list[tuple[Cycle, str, list[PluginClient]]] = []
        assumed: list[str] = []
        try:
            for placed, clients in zip(self._members[: last + 1], asked, strict=False):
                pod = placed.cycle.pod
                if clients:
                    cycle = self._attempts.again(placed.cycle)
                    held: list[PluginClient] = []
                    reserved.append((cycle, placed.node_name, held))
                    if not await self._fits(cycle, placed.node_name, clients):
                        return False
                    pod = cycle.pod
                self._snapshot.assume(pod.on_node(placed.node_name))
                assumed.append(pod.uid)
                for client in clients:
                    if ExtensionPoint.RESERVE in client.points:
                        held.append(client)
                        await client.reserve(cycle, placed.node_name)
                await self._pace.step()
            return True
        finally:
            for cycle, node_name, held in reversed(reserved):
                for client in reversed(held):
                    await client.unreserve(cycle, node_name, WHAT_IF_ENDS)
                self._framework.end_cycle(cycle, CycleEnd.ABORTED)
            for uid in reversed(assumed):
                self._snapshot.forget(uid)

    async def _fits(self, cycle: Cycle, node_name: str, clients: Sequence[PluginClient]) -> bool:
        row = cycle.nodes.position(node_name)
        if row is None:
            raise KeyError(node_name)
        await self._attempts.pre_filter(cycle)
        # A plugin that skipped the member when it got its node is not asked, whatever has come back.
        left = [client for client in clients if client.name not in cycle.skip_filter]
        statuses, rows = NodeStatuses(cycle.nodes), np.asarray([row], dtype=np.intp)
        rows = await nominated_pass(left, cycle, statuses, rows, cycle.nominated)
        return bool(len(await filter_rows(left, cycle, statuses, rows)))
