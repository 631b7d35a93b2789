"""`Simulate`: where would many pods go, also on nodes that do not exist yet?

    manifests -> records -> `Simulation`, which the caller runs:

    slice: hold the snapshot -> add the template nodes and the pods placed so far, on trial
           -> `search_pod` for the next pods -> release, which takes everything back
    between two slices the scheduler has the time that the slice took (`AskedCluster.undisturbed`)

The template nodes are in the snapshot before PreFilter, as for a what-if about a new node (`what_ifs`): a
plugin needs no code for them. All of them come at once, so a served plugin gets one delta and one call for
each pod and point, and not one call for each node. Nodes of a template that have no pod of the question are
equal but for their names: Filter is asked about one of them. Scores are asked for all, since a score may
count nodes. Between slices the cluster may change; pods keep the nodes that they were given.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from berth_sdk import chance
from berth_sdk.clocks import work_s
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.kube_object import KubeObject
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from numpy.typing import NDArray

from berth_host.cycle.attempt import Attempt
from berth_host.cycle.schedule_one import Profile
from berth_host.errors.endpoints import QuestionCutError, QuestionError
from berth_host.explain.diagnosis import NO_REASON
from berth_host.explain.simulated import (
    EXISTING,
    Placement,
    Rejections,
    SimulationSummary,
    TemplateUse,
    Verdict,
)
from berth_host.questions.ask_pod import Among, Found, search_pod
from berth_host.questions.question_notes import notes_about
from berth_host.questions.questions import AskedCluster, Manifest, Question, ReadsManifests
from berth_host.questions.what_ifs import check_complete
from berth_host.queue.interfaces import Less
from berth_host.queue.order import LessKey
from berth_host.queue.plugin_calls import MAX_BATCH
from berth_host.queue.queued_pod import QueuedPodInfo

SLICE_S: Final = 0.02
"""Seconds that a slice asks about pods while other pods wait, at least; one pod may take longer."""
_LONGEST_S: Final = 1.0
"""Seconds that a slice asks about pods, at most, but for the last one of them."""
_WORTH: Final = 4
"""A slice asks for at least this many times the seconds that its template nodes took to come."""
_AT_ONCE: Final = 16
"""The number of pods to read before other tasks of the loop run."""
HOSTNAME: Final = "kubernetes.io/hostname"
_TELLS_APART: Final = (HOSTNAME, "matchFields", "metadata.name")
"""Words in a pod's node selection by which it may tell equal nodes apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTemplate:
    """A kind of nodes that do not exist: `count` nodes as `node`, each with `pods` from the start.

    The node and the pods are records, or objects of core/v1. The node's name counts for nothing.
    """

    name: str
    node: Node | Manifest
    count: int
    pods: Sequence[Pod | Manifest] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulate(Question["Simulation"]):
    """Where would many pods go, also on nodes that do not exist?

    The fields are those of SimulateRequest in `proto/berth/query/v1/query.proto`. `pods`: records, or objects
    of core/v1. `scheduler_name`: the profile of the pods that are such objects; "": each pod's own.
    """

    pods: Sequence[Pod | Manifest]
    templates: Sequence[NodeTemplate] = ()
    scheduler_name: str = ""
    only_templates: bool = False
    each_alone: bool = False
    fills_used_nodes: bool = False
    all_verdicts: bool = False

    async def answer(self, cluster: AskedCluster) -> Simulation:
        """Return the question with all its records, for the caller to run. Raises QuestionError, which names
        the field of a manifest, and IncompleteNodeError.
        """
        given = [*self.pods, *(pod for one in self.templates for pod in one.pods)]
        reading = _Reading(await cluster.reader([one for one in given if not isinstance(one, Pod)]))
        pods = _told_apart(await reading.pods("pods", self.pods, self.scheduler_name))
        templates = []
        for at, one in enumerate(self.templates):
            field = f"templates[{at}]"
            node = reading.node(f"{field}.node", one.node)
            there = await reading.pods(f"{field}.pods", one.pods)
            templates.append(_Template(at, one.name, node, one.count, there))
            await asyncio.sleep(0)
        profiles = [cluster.profile_of(pod) for pod in pods]
        for profile in dict.fromkeys(profiles):
            check_complete(profile.framework, (one.node for one in templates))
        notes = [f"{reading.problem}; pods without it count with priority 0"] if reading.problem else []
        return Simulation(cluster, self, pods, templates, profiles, [*notes, *cluster.notes_about(pods)])


def _told_apart(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods, each under a uid of its own: one without a uid, or given twice, gets a new one."""
    seen = {""}
    made = []
    for pod in pods:
        made.append(replace(pod, uid=chance.new_uid()) if pod.uid in seen else pod)
        seen.add(pod.uid)
    return made


class _Reading:
    """Reads the manifests of one question; records stay as they are. The errors name the field."""

    def __init__(self, reader: ReadsManifests) -> None:
        self._reader = reader
        self.problem = reader.problem

    async def pods(
        self, field: str, given: Sequence[Pod | Manifest], scheduler_name: str = ""
    ) -> Sequence[Pod]:
        """Return the records of pods."""
        read = []
        for at, one in enumerate(given):
            if isinstance(one, Pod):
                read.append(one)
                continue
            try:
                read.append(self._reader.pod(one, scheduler_name))
            except QuestionError as err:
                raise QuestionError(f"{field}[{at}]: {err}") from err
            if at % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return read

    def node(self, field: str, given: Node | Manifest) -> Node:
        """Return the record of a template's node."""
        if isinstance(given, Node):
            return given
        try:
            return self._reader.node(given)
        except QuestionError as err:
            raise QuestionError(f"{field}: {err}") from err


async def in_queue_order(pods: Sequence[Pod], profiles: Sequence[Profile]) -> tuple[list[int], list[str]]:
    """Return the positions of the pods in the order in which the queue would hand them out, and notes.

    The QueueSort plugin, which is the same in every profile, sorts them as pods that entered the queue one
    after the other. Pods about which it does not answer come last, by priority, and a note says so.
    """
    queued = [QueuedPodInfo(pod, timestamp_us=at).as_queued_pod() for at, pod in enumerate(pods)]
    sorting = profiles[0].framework.plugins_at(ExtensionPoint.QUEUE_SORT) if profiles else ()
    keys: list[tuple[Any, ...]] = [(1, -pod.priority, at) for at, pod in enumerate(pods)]
    notes: list[str] = []
    raised: list[Exception] = []
    if sorting:
        client = sorting[0]
        if client.local is not None and client.descriptor.less_only:
            less = _or_by_priority(client.local.less, raised)
            keys = [(0, LessKey(one, less), at) for at, one in enumerate(queued)]
        else:
            for begin in range(0, len(queued), MAX_BATCH):
                answers = await client.sort_keys(queued[begin : begin + MAX_BATCH])
                for at, key in enumerate(answers, start=begin):
                    keys[at] = (0, key, at) if key else keys[at]
    order = sorted(range(len(pods)), key=keys.__getitem__)
    if raised:
        notes.append(
            f"plugin {client.name} failed in {len(raised)} comparisons of pods ({raised[0]!r}):"
            " these were compared by priority; mend its less"
        )
    if sorting and (unsorted_count := sum(1 for key in keys if key[0])):
        notes.append(
            f"plugin {client.name} gave no sort key for {unsorted_count} of {len(pods)} pods: they come last,"
            " by priority; see its state with berth plugins"
        )
    return order, notes


def _or_by_priority(less: Less, raised: list[Exception]) -> Less:
    def compare(first: QueuedPod, second: QueuedPod) -> bool:
        try:
            return less(first, second)
        except Exception as err:  # noqa: BLE001  # A plugin's error must not end the question.
            raised.append(err)
            return (-first.pod.priority, first.added_at_s) < (-second.pod.priority, second.added_at_s)

    return compare


class Simulation:
    """The answer to `Simulate`, which is made slice by slice.

    `run`, or `placements`, is called once; `summary` is valid after it.
    """

    def __init__(
        self,
        cluster: AskedCluster,
        asked: Simulate,
        pods: Sequence[Pod],
        templates: Sequence[_Template],
        profiles: Sequence[Profile],
        notes: Sequence[str],
    ) -> None:
        """`pods`, `templates`: the records of those that were asked about. `profiles`: those of the pods."""
        self._cluster = cluster
        self._asked = asked
        self._pods = pods
        self._profiles = profiles
        self._templates = templates
        self._order: Sequence[int] = range(len(pods))
        """The positions of the pods in the order in which they are asked about."""
        self._placed: list[Pod] = []
        """The pods that take room, on their nodes."""
        self._pod_counts: Counter[tuple[int, int]] = Counter()
        """The pods of the question by template and ordinal."""
        self._placed_count = 0
        self._slice_count = 0
        self._held_s = 0.0
        self._notes = [
            *notes,
            *self._about_extenders(),
            *notes_about(pods, on_templates=bool(templates), in_turn=not asked.each_alone),
        ]

    def _about_extenders(self) -> list[str]:
        """Return a note for each extender that cannot be asked about nodes of templates."""
        if not self._templates:
            return []
        names = [
            name
            for profile, pod in zip(self._profiles, self._pods, strict=True)
            for name in profile.algorithm.extenders.knowing_nodes(pod)
        ]
        return [
            f"{name} was not asked about nodes of templates: it knows nodes by their names alone"
            " (nodeCacheCapable: true), and these do not exist; set nodeCacheCapable: false if it can judge"
            " whole nodes"
            for name in dict.fromkeys(names)
        ]

    async def run(self) -> AsyncGenerator[Sequence[Placement], None]:
        """Yield the answers, slice by slice, in the order in which the pods were asked about.

        Nothing is held while a slice is yielded. A slice waits for the end of a cycle, and the next cycle for
        the slice. Raises QuestionError if the cluster has a node with the name of a template node, and
        QuestionCutError if the host stops.
        """
        if not self._asked.each_alone:
            self._order, notes = await in_queue_order(self._pods, self._profiles)
            self._notes += notes
        done = 0
        while done < len(self._order):
            found: list[Placement] = []
            if self._cluster.is_stopping:
                raise QuestionCutError("the scheduler stops: ask again, once another one leads")
            async with self._cluster.undisturbed() as about:
                held_s = work_s()
                asked = await self._set_up()
                ready_s = work_s()
                latest_s = ready_s + _LONGEST_S
                ends_s = min(ready_s + max(SLICE_S, _WORTH * (ready_s - held_s)), latest_s)
                while done + len(found) < len(self._order):
                    found.append(await self._ask(self._order[done + len(found)], asked, about))
                    now_s = work_s()
                    if now_s >= latest_s or (now_s >= ends_s and self._cluster.is_wanted):
                        break
                    await asyncio.sleep(0)  # the watches' turn
            self._slice_count += 1
            self._held_s += work_s() - held_s
            done += len(found)
            yield found

    async def placements(self) -> tuple[list[Placement], SimulationSummary]:
        """Return all answers, in the order of the question's pods, and the sums. Raises as `run` does."""
        found = [one async for part in self.run() for one in part]
        return sorted(found, key=lambda one: one.index), self.summary()

    def summary(self) -> SimulationSummary:
        """Return the sums."""
        uses = []
        for number, one in enumerate(self._templates):
            counts = [count for (template, _), count in self._pod_counts.items() if template == number]
            uses.append(TemplateUse(one.name, len(counts), sum(counts)))
        return SimulationSummary(
            templates=uses,
            placed_count=self._placed_count,
            pending_count=len(self._order) - self._placed_count,
            slice_count=self._slice_count,
            held_s=self._held_s,
            notes=tuple(self._notes),
        )

    async def _set_up(self) -> _Asked:
        """Add the template nodes and the pods that were placed, on trial."""
        snapshot = self._cluster.snapshot
        for template in self._templates:
            for node in template.nodes:
                if snapshot.has_node(node.name):
                    raise QuestionError(
                        f"the cluster has a node named {node.name}, as a node of template"
                        f" {template.name!r} would be: rename that node"
                    )
        slots: list[list[int]] = []
        turn_ends_s = work_s() + SLICE_S
        for template in self._templates:
            slots.append([])
            for node in template.nodes:
                slots[-1].append(snapshot.put_new_node(node, template.pods_on(node)))
                if work_s() >= turn_ends_s:
                    await asyncio.sleep(0)  # the watches' turn, and that of the Lease
                    turn_ends_s = work_s() + SLICE_S
        for pod in self._placed:
            if snapshot.has_node(pod.node_name):
                snapshot.assume(pod)
        return _Asked(snapshot.nodes, slots, self._pod_counts if not self._asked.each_alone else {})

    async def _ask(self, index: int, asked: _Asked, about: Callable[[Attempt | None], None]) -> Placement:
        wanted, cluster = self._asked, self._cluster
        pod = self._pods[index]
        nodes = cluster.snapshot.nodes
        among = asked.among(wanted, shares=not _tells_nodes_apart(pod))
        found = await search_pod(cluster.steps, self._profiles[index], nodes, pod, among, about=about)
        verdicts: Sequence[Verdict] = ()
        if found.result is None or wanted.all_verdicts:
            verdicts = self._verdicts(found, asked)
        if found.result is None:
            return Placement(index=index, pod=pod.key, message=found.message, verdicts=verdicts)
        self._placed_count += 1
        name = found.result.node_name
        row = nodes.position(name)
        assert row is not None  # the choice is one of the table's nodes
        number, ordinal = int(asked.templates[row]), int(asked.ordinals[row])
        is_new = number < len(self._templates)
        if is_new:
            self._pod_counts[number, ordinal] += 1
        if not wanted.each_alone:
            on_node = pod.on_node(name)
            cluster.snapshot.assume(on_node)
            self._placed.append(on_node)
            asked.use(row)
        return Placement(
            index=index,
            pod=pod.key,
            node_name="" if is_new else name,
            template=self._templates[number].name if is_new else "",
            ordinal=ordinal if is_new else 0,
            verdicts=verdicts,
        )

    def _verdicts(self, found: Found, asked: _Asked) -> list[Verdict]:
        """Return the verdicts by template, in the order of the question; the nodes that exist come first."""
        statuses, groups = _judged(found)
        count = len(self._templates)
        width = len(statuses) + 1
        tallies = np.bincount(asked.templates * width + groups, minlength=(count + 1) * width)
        table = tallies.reshape(count + 1, width).tolist()
        which = [] if self._asked.only_templates else [(count, EXISTING)]
        which += [(number, one.name) for number, one in enumerate(self._templates)]
        answers = []
        for number, name in which:
            row = table[number]
            if not any(row):
                continue  # a cluster without nodes
            rejections: Counter[tuple[str, str]] = Counter()
            for status, nodes in zip(statuses, row[1:], strict=True):
                for reason in (status.reasons or (NO_REASON,)) if nodes else ():
                    rejections[status.plugin, reason] += nodes
            ordered = sorted(rejections.items(), key=lambda item: (-item[1], item[0]))
            answers.append(Verdict(name, row[0], [Rejections(*reason, nodes) for reason, nodes in ordered]))
        return answers


class _Template:
    """The nodes of one template, made once. `name`: the template's. `node`: what each of them is like."""

    def __init__(self, number: int, name: str, node: Node, count: int, pods: Sequence[Pod]) -> None:
        self.name = name
        self.node = node
        self._pods = pods
        self._pods_on: dict[str, list[Pod]] = {}
        width = len(str(count - 1))
        # Names of equal length sort by ordinal: of equally good nodes, the first one is used first.
        names = [f"berth-template-{number}-{ordinal:0{width}d}" for ordinal in range(count)]
        self.nodes = [_named(node, its_name) for its_name in names]

    def pods_on(self, node: Node) -> list[Pod]:
        """Return the pods that the node has from the start, under uids of their own."""
        pods = self._pods_on.get(node.name)
        if pods is None:
            pods = self._pods_on[node.name] = [
                replace(pod, uid=f"{node.uid}.{at}").on_node(node.name) for at, pod in enumerate(self._pods)
            ]
        return pods


def _named(node: Node, name: str) -> Node:
    """Return the node under another name and uid, and with the label of that host name if it has one."""
    uid = chance.new_uid()
    labels = {**node.labels, HOSTNAME: name} if HOSTNAME in node.labels else node.labels
    source = node.object
    if source is not None:
        raw = source.parsed
        metadata: dict[str, Any] = {**raw["metadata"], "name": name, "uid": uid}
        if labels is not node.labels:
            metadata["labels"] = labels
        source = KubeObject.of({**raw, "metadata": metadata})
    return replace(node, name=name, uid=uid, labels=labels, object=source)


def _tells_nodes_apart(pod: Pod) -> bool:
    """Return True if the pod selects nodes by name, so that nodes of a template may differ for it."""
    if pod.object is None:
        return True
    chosen = (pod.object.get("spec.nodeSelector"), pod.object.get("spec.affinity.nodeAffinity"))
    text = repr(chosen)
    return any(word in text for word in _TELLS_APART)


class _Asked:
    """The table of one slice. `templates`: for each row the number of its template; for nodes that exist, the
    number of all templates. `ordinals`: for each row its ordinal in the template.
    """

    def __init__(
        self, nodes: NodeTable, slots: Sequence[Sequence[int]], used: Mapping[tuple[int, int], int]
    ) -> None:
        count = len(nodes)
        self.templates = np.full(count, len(slots), dtype=np.intp)
        self.ordinals = np.zeros(count, dtype=np.intp)
        self._existing = np.ones(count, dtype=np.bool_)
        self._used = np.zeros(count, dtype=np.bool_)
        self._own = np.arange(count, dtype=np.intp)
        self._stands_for = self._own.copy()
        self._everywhere = np.ones(count, dtype=np.bool_)
        self._rows: list[NDArray[np.intp]] = []
        for number, its_slots in enumerate(slots):
            rows = np.searchsorted(nodes.slots, np.asarray(its_slots, dtype=nodes.slots.dtype))
            self._rows.append(rows)
            self.templates[rows], self.ordinals[rows] = number, np.arange(len(rows))
            self._existing[rows] = False
        self._made_up: NDArray[np.bool_] | None = None
        if any(slots):
            self._made_up = np.zeros(nodes.slot_count, dtype=np.bool_)
            self._made_up[nodes.slots[~self._existing]] = True
        for number, ordinal in used:
            self._used[self._rows[number][ordinal]] = True
        for number in range(len(slots)):
            self._choose(number)

    def use(self, row: int) -> None:
        """Count a node as used by a pod of the question."""
        if not self._existing[row] and not self._used[row]:
            self._used[row] = True
            self._stands_for[row] = row
            self._choose(int(self.templates[row]))

    def among(self, wanted: Simulate, *, shares: bool) -> Among:
        """Return the nodes to ask about. `shares` False: each by itself. Valid until `use`."""
        return Among(
            allowed=~self._existing if wanted.only_templates else self._everywhere,
            stands_for=self._stands_for if shares else self._own,
            preferred=self._existing | self._used if wanted.fills_used_nodes else None,
            made_up=self._made_up,
        )

    def _choose(self, number: int) -> None:
        """Let the first unused node of a template stand for the others."""
        rows = self._rows[number]
        unused = rows[~self._used[rows]]
        if len(unused):
            self._stands_for[unused] = unused[0]


def _judged(found: Found) -> tuple[list[Status], NDArray[np.intp]]:
    """Return the rejections, and for each row 0 if the pod fits, else 1 + the position of its rejection."""
    attempt = found.attempt
    count = len(attempt.nodes)
    failed = found.status if found.error.is_success else found.error
    statuses = attempt.statuses
    if not failed.is_success or statuses is None:
        return [failed], np.ones(count, dtype=np.intp)
    groups = statuses.groups.astype(np.intp)
    rejections = [*statuses.statuses[1:], statuses.absent]
    groups[groups == 0] = len(rejections)
    for extender, rows in attempt.unexplained.items():
        rejections.append(Status(Code.UNSCHEDULABLE, (), extender))
        groups[rows] = len(rejections)
    groups[found.fits] = 0
    return rejections, groups
