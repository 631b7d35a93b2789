"""`Extenders`: all HTTP extenders of the configuration, and the rules for several at each verb.

    filter      one after the other, each about the nodes that those before it left
    prioritize  all at once, after the Score plugins; an error counts as no scores
    preempt     one after the other, each about the candidates that those before it left
    bind        the first that binds and is interested, instead of the Bind plugins

The scheduler calls it: `schedule_one` (filter, prioritize), `preemption.evaluator` (preempt) and
`BindingCycle` (bind). An extender that fails ends the attempt, except at prioritize, or where it is
`ignorable`: then the attempt goes on without it.
Source: kube-scheduler `pkg/scheduler/extender.go`, `schedule_one.go` (findNodesThatPassExtenders,
prioritizeNodes, extendersBinding), `framework/preemption/preemption.go` (callExtenders), v1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.attempt.cycle import Cycle
from berth_host.config.decoding.types_v1 import Extender
from berth_host.errors.extenders import ExtenderError, ExtenderOutcomeUnknownError
from berth_host.extenders import answers
from berth_host.extenders.client import ExtenderClient, names_of
from berth_host.extenders.requests import Bodies
from berth_host.framework.score_table import PluginScores, ScoreTable
from berth_host.log.secrets import masked
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.model.node_statuses import NodeStatuses

_SCALE: Final = 10
"""The highest score of a plugin, 100, divided by the highest of an extender, 10."""
_IGNORABLE: Final = "ignorable: true"
_AT_PRIORITIZE: Final = "its scores are not required"
T = TypeVar("T")
Rows = NDArray[np.intp]
Victims = Mapping[str, tuple[Sequence[Pod], int]]
"""The pods that must leave a node, and the number of budgets that this breaks, by node."""


class VictimPods(Protocol):
    """The pods on the nodes of a snapshot, as `preempt` looks up the uids of an answer."""

    def __call__(self, node_name: str) -> Sequence[Pod] | None:
        """Return the pods on a node; None for an unknown node."""
        ...


class Extenders:
    """The extenders in the order in which they are asked: the ignorable ones last."""

    def __init__(self, configured: Sequence[Extender] = ()) -> None:
        """Prepare the extenders, without a call. `configured`: as the configuration lists them."""
        pairs = zip(names_of(configured), configured, strict=True)
        self.clients: tuple[ExtenderClient, ...] = tuple(
            ExtenderClient(name, settings)
            for name, settings in sorted(pairs, key=lambda pair: pair[1].ignorable)
        )
        self._filters = tuple(one for one in self.clients if one.settings.filter_verb)
        self._prioritizers = tuple(one for one in self.clients if one.settings.prioritize_verb)
        self._preempters = tuple(one for one in self.clients if one.settings.preempt_verb)
        self._binders = tuple(one for one in self.clients if one.settings.bind_verb)
        self._bodies = Bodies()
        self._last: dict[tuple[str, str], tuple[bytes, Hashable, Any]] = {}
        """The last answer of an extender to a verb, the nodes' identity then, and what was read of it."""

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def have_filters(self) -> bool:
        """True if some extender filters."""
        return bool(self._filters)

    @property
    def have_scores(self) -> bool:
        """True if some extender prioritizes."""
        return bool(self._prioritizers)

    def knowing_nodes(self, pod: Pod) -> list[str]:
        """Return the names of the extenders that judge the pod's nodes and read of a node its name alone."""
        return [
            client.name
            for client in dict.fromkeys((*self._filters, *self._prioritizers))
            if client.settings.node_cache_capable and client.is_interested(pod)
        ]

    @property
    def stats(self) -> dict[str, PluginStats]:
        """The calls of each extender, by its name."""
        return {client.name: client.stats for client in self.clients}

    async def close(self) -> None:
        """Close all connections."""
        for client in self.clients:
            await client.close()

    # --- filter --------------------------------------------------------------------------------

    async def filter(self, cycle: Cycle, statuses: NodeStatuses, rows: Rows) -> tuple[Rows, Status]:
        """Return the rows of `rows` (positions in `statuses.table`) that all extenders pass, and SUCCESS, or
        the error that ends the attempt.

        Writes refusals to `statuses`, and those of nodes that the snapshot lacks to `cycle.unknown_nodes`.
        Nodes that an extender cannot know (`cycle.made_up`) pass it without a call.
        """
        nodes = statuses.table
        for client in self._filters:
            if not len(rows):
                break
            if not client.is_interested(cycle.pod):
                continue
            known = _known_rows(client, cycle, nodes, rows)
            if not len(known):
                continue
            try:
                passed = await self._filter(client, cycle, statuses, nodes, known)
                rows = passed if known is rows else rows[~np.isin(rows, np.setdiff1d(known, passed))]
            except ExtenderError as err:
                ignorable = client.settings.ignorable
                verb = client.settings.filter_verb
                client.failed(verb, err, cycle, passed_over=_IGNORABLE if ignorable else "")
                if not ignorable:
                    return rows, Status.error(str(err))
        return rows, SUCCESS

    async def _filter(
        self, client: ExtenderClient, cycle: Cycle, statuses: NodeStatuses, nodes: NodeTable, rows: Rows
    ) -> Rows:
        settings = client.settings
        by_name = settings.node_cache_capable
        body = self._bodies.about_nodes(cycle.pod, nodes, rows, by_name=by_name)
        raw = await client.post(settings.filter_verb, body, cycle)
        verdict = self._known(client, settings.filter_verb, raw, nodes, _verdict)
        if verdict.error:
            raise ExtenderError(verdict.error, "error")
        is_asked = np.zeros(nodes.slot_count + 1, dtype=np.bool_)  # the last place is for unknown names
        asked = nodes.slots.take(rows)
        is_asked[asked] = True
        strange = np.flatnonzero(~is_asked.take(verdict.passed))
        if len(strange):
            url, name = masked(settings.url_prefix), verdict.names[strange.item(0)]
            text = (
                f'extender "{url}" claims a filtered node "{name}" which is not found in the input node list'
            )
            raise ExtenderError(text, answers.INVALID)
        client.answered(settings.filter_verb)
        for status, slots in verdict.refused:
            refused, _ = nodes.known_positions(slots)
            statuses.groups[refused] = statuses.group_of(status)
        if verdict.unknown_nodes:
            cycle.unknown_nodes = {**cycle.unknown_nodes, **verdict.unknown_nodes}
        is_named = np.zeros(nodes.slot_count, dtype=np.bool_)
        is_named[verdict.passed] = True
        passes = is_named.take(asked)
        dropped = rows[~passes]
        silent = dropped[statuses.groups[dropped] == 0] if len(dropped) else dropped
        if len(silent):
            cycle.unexplained = {**cycle.unexplained, client.name: silent}
        return rows[passes]

    def _known(
        self,
        client: ExtenderClient,
        verb: str,
        raw: bytes,
        nodes: NodeTable,
        read: Callable[[ExtenderClient, bytes, NodeTable], T],
    ) -> T:
        """Return what `read` makes of an answer. Raises ExtenderError.

        The last answer of each extender and verb is kept: the answers about equal pods are often equal, and
        comparing bytes takes a hundredth of the time of reading them.
        """
        names = nodes.names_identity
        last = self._last.get((client.name, verb))
        if last is not None and last[0] == raw and last[1] == names:
            known: T = last[2]
            return known
        made = read(client, raw, nodes)
        self._last[client.name, verb] = raw, names, made
        return made

    # --- prioritize ----------------------------------------------------------------------------

    async def prioritize(self, cycle: Cycle, scores: ScoreTable) -> None:
        """Add the scores of all interested extenders to `scores`, weighted. Without an answer: none."""
        clients = [client for client in self._prioritizers if client.is_interested(cycle.pod)]
        if not clients:
            return
        asked = await asyncio.gather(*(self._prioritize(client, cycle, scores.nodes) for client in clients))
        for client, given in zip(clients, asked, strict=True):
            if given is None:
                continue
            weight = client.settings.weight
            # Products wrap around, as Go's do.
            scores.add(given * _SCALE * weight)
            scores.plugins.append(PluginScores(client.name, weight, given, given * _SCALE))

    async def _prioritize(
        self, client: ExtenderClient, cycle: Cycle, nodes: NodeTable
    ) -> NDArray[np.int64] | None:
        settings = client.settings
        rows = _known_rows(client, cycle, nodes, np.arange(len(nodes), dtype=np.intp))
        if not len(rows):
            return None
        try:
            body = self._bodies.about_nodes(cycle.pod, nodes, rows, by_name=settings.node_cache_capable)
            raw = await client.post(settings.prioritize_verb, body, cycle)
            by_slot = self._known(client, settings.prioritize_verb, raw, nodes, _scores)
        except ExtenderError as err:
            client.failed(settings.prioritize_verb, err, cycle, passed_over=_AT_PRIORITIZE)
            return None
        client.answered(settings.prioritize_verb)
        taken: NDArray[np.int64] = by_slot.take(nodes.slots)
        return taken

    # --- preempt -------------------------------------------------------------------------------

    def preempt_for(self, pod: Pod) -> bool:
        """Return True if some extender is to be asked about the pod's preemption."""
        return any(client.is_interested(pod) for client in self._preempters)

    async def preempt(self, cycle: Cycle, victims: Victims, pods_on: VictimPods) -> Victims:
        """Return the candidates and victims that all extenders leave. Raises ExtenderError.

        A node without victims is passed on from extender to extender, until one names victims or omits the
        node. `pods_on`: the pods of a node in the snapshot.
        """
        for client in self._preempters:
            if not victims:
                break
            if not client.is_interested(cycle.pod):
                continue
            try:
                victims = await self._preempt(client, cycle, victims, pods_on)
            except ExtenderError as err:
                ignorable = client.settings.ignorable
                verb = client.settings.preempt_verb
                client.failed(verb, err, cycle, passed_over=_IGNORABLE if ignorable else "")
                if not ignorable:
                    raise
        return {name: found for name, found in victims.items() if found[0]}

    async def _preempt(
        self, client: ExtenderClient, cycle: Cycle, victims: Victims, pods_on: VictimPods
    ) -> Victims:
        settings = client.settings
        body = self._bodies.about_victims(cycle.pod, victims, by_uid=settings.node_cache_capable)
        named = answers.preempt_answer(await client.post(settings.preempt_verb, body, cycle))
        left: dict[str, tuple[Sequence[Pod], int]] = {}
        for node_name, meta in named.items():
            there = pods_on(node_name)
            if there is None:
                raise ExtenderError(f'nodeinfo not found for node name "{node_name}"', answers.INVALID)
            by_uid = {pod.uid: pod for pod in there}
            for uid in meta.uids:
                if uid not in by_uid:
                    # kube-scheduler prints the pointer to the victim, which Go shows as &{UID}.
                    text = (
                        f"extender: {masked(settings.url_prefix)} claims to preempt pod (UID: &{{{uid}}}) on"
                        f" node: {node_name}, but the pod is not found on that node"
                    )
                    raise ExtenderError(text, answers.INVALID)
            pods = [by_uid[uid] for uid in meta.uids]
            too_high = next((pod for pod in pods if pod.priority >= cycle.pod.priority), None)
            if too_high is not None:
                # kube-scheduler would evict it. The host evicts pods of lower priority only (`evictions`).
                text = (
                    f"extender: {masked(settings.url_prefix)} claims to preempt pod {too_high.key} on node:"
                    f" {node_name}, but its priority {too_high.priority} is not below {cycle.pod.priority}"
                )
                raise ExtenderError(text, answers.INVALID)
            left[node_name] = (pods, meta.violations)
        for node_name in [name for name, (pods, _) in left.items() if not pods]:
            if node_name in victims and not victims[node_name][0]:
                continue
            if not settings.ignorable:
                text = f'expected at least one victim pod on node "{node_name}"'
                raise ExtenderError(text, answers.INVALID)
            del left[node_name]
        client.answered(settings.preempt_verb)
        return left

    # --- bind ----------------------------------------------------------------------------------

    async def bind(self, cycle: Cycle, node_name: str) -> tuple[str, Status, bool] | None:
        """Ask the extender that binds; return (name, status, whether the outcome is known).

        None: no extender binds this pod, or an ignorable one failed without effect; the Bind plugins do it.
        """
        for client in self._binders:
            if not client.is_interested(cycle.pod):
                continue
            settings = client.settings
            try:
                body = self._bodies.binding(cycle.pod, node_name)
                problem = answers.bind_error(await client.post(settings.bind_verb, body, cycle))
                if problem:
                    raise ExtenderError(problem, "error")
            except ExtenderError as err:
                ignorable = client.settings.ignorable
                client.failed(settings.bind_verb, err, cycle, passed_over=_IGNORABLE if ignorable else "")
                is_known = not isinstance(err, ExtenderOutcomeUnknownError)
                if ignorable:
                    continue
                return client.name, Status.error(str(err)), is_known
            client.answered(settings.bind_verb)
            return client.name, SUCCESS, True
        return None


NO_EXTENDERS: Final = Extenders()


@dataclass(frozen=True, slots=True, eq=False)
class _Verdict:
    """An answer to filter, by the slots of a snapshot's nodes.

    `names`: the nodes that pass. `passed` (intp[n]): their slots, -1 for unknown names. `refused`: the nodes
    with each status, as ascending slots. `unknown_nodes`: refusals of unknown nodes.
    """

    names: Sequence[str]
    passed: NDArray[np.intp]
    refused: Sequence[tuple[Status, NDArray[np.intp]]]
    unknown_nodes: Mapping[str, Status]
    error: str


def _known_rows(client: ExtenderClient, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Rows:
    """Return those of `rows` about which the extender can be asked; `rows` itself if it knows all of them."""
    if cycle.made_up is None or not client.settings.node_cache_capable:
        return rows
    strange = cycle.made_up.take(nodes.slots.take(rows))
    return rows[~strange] if strange.any() else rows


def _verdict(client: ExtenderClient, raw: bytes, nodes: NodeTable) -> _Verdict:
    answer = answers.filter_answer(raw)
    by_name = client.settings.node_cache_capable
    names = (answer.names if by_name and answer.names is not None else answer.nodes) or ()
    refused: list[tuple[Status, NDArray[np.intp]]] = []
    unknown_nodes: dict[str, Status] = {}
    # As in kube-scheduler, the stronger of two refusals of a node counts, so it comes last.
    for code, texts in (
        (Code.UNSCHEDULABLE, answer.failed),
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, answer.unresolvable),
    ):
        slots_by_text: dict[str, list[int]] = {}
        for (name, text), slot in zip(texts.items(), nodes.slots_of(texts), strict=True):
            if slot < 0:
                unknown_nodes[name] = Status(code, (text,), client.name)
            elif text in slots_by_text:
                slots_by_text[text].append(slot)
            else:
                slots_by_text[text] = [slot]
        refused += [
            (Status(code, (text,), client.name), np.sort(np.asarray(slots, dtype=np.intp)))
            for text, slots in slots_by_text.items()
        ]
    slots = np.asarray(nodes.slots_of(names), dtype=np.intp)
    return _Verdict(names, slots, refused, unknown_nodes, answer.error)


def _scores(_: ExtenderClient, raw: bytes, nodes: NodeTable) -> NDArray[np.int64]:
    """Return int64[slot_count + 1]: the sum of the scores of each slot's node. The last place is for unknown
    hosts, which do not count.
    """
    hosts, given = answers.priorities(raw)
    by_slot = np.zeros(nodes.slot_count + 1, dtype=np.int64)
    np.add.at(by_slot, np.asarray(nodes.slots_of(hosts), dtype=np.intp), np.asarray(given, dtype=np.int64))
    return by_slot
