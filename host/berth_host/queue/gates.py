"""PreEnqueue: decides whether a pod or a pod group may enter activeQ or backoffQ.

    ungated -a plugin's gate is closed-> gated -this gate opens, and all others are open-> ungated
    ungated -a plugin answers later-> gated, awaited -answer-> ungated, or gated

Called by `places` before an entity enters. The plugins run in the configured order; in kube-scheduler the
order is arbitrary. One closed gate keeps a whole group out. In 1.37 the gates of a group are called for every
member, because each member has a gating plugin of its own; since 1.38 only up to the first closed gate.
Source: kube-scheduler `backend/queue/scheduling_queue.go` (runPreEnqueuePlugins), v1.37 and v1.38.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from berth_sdk.events import ClusterEvent
from berth_sdk.pod import Pod
from berth_sdk.results import QueuedPod
from berth_sdk.status import Code, Status

from berth_host.metrics.series import instant_s
from berth_host.queue.events import QueueEvent
from berth_host.queue.hints import Strategy
from berth_host.queue.interfaces import DEFERRED, Deferred, Gate, GateQuestion, HintQuestion, QueueSeams
from berth_host.queue.pool import Alike
from berth_host.queue.queued_group import QueuedGroupInfo, member_order
from berth_host.queue.queued_pod import QueuedEntity, QueuedPodInfo
from berth_host.queue.registrations import RegistrationIndex


@dataclass(frozen=True, slots=True)
class Answered:
    """The gates' answers about the pods of an entity in an interrupted move.

    `passed`: the open gates, (uid of the pod, plugin). `closed`: the uids of pods with a closed gate. `late`:
    the uids of members that joined since. As a gated group takes members in without a call of their gates,
    those of each late member are called only when all before are open. `missed`: the events since, by label;
    True: one of several. `stands`: all gates were open; those of served plugins are not called again.
    """

    passed: frozenset[tuple[str, str]] = frozenset()
    closed: frozenset[str] = frozenset()
    late: tuple[str, ...] = ()
    missed: dict[str, tuple[QueueEvent, bool]] = field(default_factory=dict)
    stands: bool = False


UNANSWERED: Final = Answered()
STANDS: Final = Answered(stands=True)


@dataclass(slots=True, eq=False)
class OpenMove:
    """The interrupted move of an entity whose gates answer later. `questions`: by uid of the pod. `failed`:
    the latest answer was an error. `hinted`: the strategy and the label of an event that helps by a hint that
    came late; None: no such event.
    """

    entity: QueuedEntity
    strategy: Strategy
    label: str
    answered: Answered
    questions: dict[str, GateQuestion] = field(default_factory=dict)
    failed: bool = False
    hinted: tuple[Strategy, str] | None = None

    def miss(self, event: QueueEvent) -> None:
        """Keep an event until the gates have answered."""
        missed = self.answered.missed
        missed[event.label] = (event, event.label in missed)


Answers = dict[tuple[str, Hashable] | None, Status]
"""The answers of gates about members of one group, by plugin and the plugin's signature of the pod."""


@dataclass(slots=True, eq=False)
class _Asked:
    """The members of a group of which one was asked for all of its kind.

    `standing`: the members of each kind whose gate stays closed, by uid. `answers`: the answers of the others
    that were asked, by uid.
    """

    standing: list[Mapping[str, QueuedPodInfo]] = field(default_factory=list)
    answers: dict[str, GateQuestion | Status | None] = field(default_factory=dict)

    def last_closed(self, other: QueuedPodInfo | None) -> QueuedPodInfo:
        """Return the member that counts for the group: the last one in order with a closed gate. `other`: the
        last one outside the kinds.
        """
        kinds = [next(iter(members.values())) for members in self.standing]
        shown = kinds if other is None else [*kinds, other]
        if len({(info.gating_plugin, info.gating_message) for info in shown}) == 1:
            return shown[0]
        every = [info for members in self.standing for info in members.values()]
        return max(every if other is None else [*every, other], key=member_order)

    def uids(self) -> Iterable[str]:
        """Yield the uids of the members of the kinds."""
        for members in self.standing:
            yield from members


class Gates:
    """The gates (PreEnqueue plugins) of all profiles.

    The plugin that keeps a pod gated is called first. The first closed gate ends the calls for the pod.
    """

    def __init__(self, seams: QueueSeams, registrations: Mapping[str, RegistrationIndex]) -> None:
        self._seams = seams
        self._registrations = registrations
        self._moves: dict[str, OpenMove] = {}
        """The open moves by uid of the entity."""
        self._awaited: dict[str, OpenMove] = {}
        """The open moves by uid of each pod that a question is about."""
        self._listening: dict[str, OpenMove] = {}
        """The moves that keep every event: those of groups, and of pods that other plugins rejected."""

    @property
    def open_count(self) -> int:
        """The number of pods that wait for a gate's answer."""
        return len(self._awaited)

    def open_move(self, entity: QueuedEntity) -> OpenMove | None:
        """Return the interrupted move of an awaited entity; None for any other one."""
        return self._moves.get(entity.uid)

    def forget(self, entity: QueuedEntity) -> None:
        """Drop the questions about an entity that left the queue; late answers are ignored."""
        move = self._moves.pop(entity.uid, None)
        self._listening.pop(entity.uid, None)
        if move is not None:
            for uid in move.questions:
                del self._awaited[uid]

    def run(
        self, entity: QueuedEntity, strategy: Strategy, label: str, answered: Answered = UNANSWERED
    ) -> bool:
        """Call the gates for each pod; return True if all are open, else the entity is gated.

        The arguments are those of `OpenMove`.
        """
        if self._moves:
            self.forget(entity)
        questions: list[GateQuestion] = []
        open_ones: list[tuple[str, str]] = []
        closed: list[QueuedPodInfo] = []
        gated: QueuedPodInfo | None = None
        answers: Answers = {}
        pods, late = entity.pods(), answered.late
        if late:
            pods = sorted(pods, key=lambda info: late.index(info.uid) if info.uid in late else -1)
        # The hundredth member of a group must not cost a call for each of the ninety-nine before it.
        asked = _Asked()
        if isinstance(entity, QueuedGroupInfo) and answered is UNANSWERED:
            pods = self._ask_kinds(entity, asked, open_ones, answers)
        for info in pods:
            if late and info.uid == late[0]:
                if gated is not None:
                    break
                late = late[1:]
            question: GateQuestion | None = None
            if not answered.closed or info.uid not in answered.closed:
                if info.uid in asked.answers:
                    answer = asked.answers[info.uid]
                else:
                    answer = self._run(info, entity, answered, open_ones, answers)
                    entity.changed(info)
                question = answer if isinstance(answer, GateQuestion) else None
            if question is not None:
                questions.append(question)
            elif info.gating_plugin:
                closed.append(info)
            # The last closed gate counts; one that has not answered counts only without a closed one.
            if info.gating_plugin and (question is None or not (closed or asked.standing)):
                gated = info
                if self._seams.rules.judges_group_trees:
                    break
        if asked.standing:
            gated = asked.last_closed(gated)
        if gated is None:
            if entity.gating_plugin:
                entity.ungate()
            return True
        if entity is not gated:
            entity.gate_as(gated)
        if questions:
            missed = dict(answered.missed)
            uids = frozenset([*(info.uid for info in closed), *asked.uids()])
            known = Answered(answered.passed.union(open_ones), uids, late, missed)
            self._open(OpenMove(entity, strategy, label, known), questions)
        return False

    def _ask_kinds(
        self, group: QueuedGroupInfo, asked: _Asked, open_ones: list[tuple[str, str]], answers: Answers
    ) -> Sequence[QueuedPodInfo]:
        """Ask one member of each kind whose gate is closed. Return the members outside the kinds whose gate
        stays closed, in order. The arguments are those of `_run`.
        """
        if self._seams.rules.judges_group_trees:
            return group.pods()  # the first closed gate ends the calls
        kinds = group.kinds(self._seams.profiles)
        for members in [members for members in kinds.gated() if len(members) > 1]:
            first = next(iter(members.values()))
            answer = self._run(first, group, UNANSWERED, open_ones, answers)
            group.changed(first)
            if not isinstance(answer, Status) or kinds.alike(first) is not members:
                asked.answers[first.uid] = answer
                continue
            asked.standing.append(members)
            others, profile = len(members) - 1, first.pod.scheduler_name
            self._seams.observer.pod_rejected(first.gating_plugin, profile, others)
            self._seams.observer.gates_ran(profile, answer.code, 0.0, others)
        if not asked.standing:
            return group.pods()
        return sorted(kinds.outside(asked.standing), key=member_order)

    def _run(
        self,
        info: QueuedPodInfo,
        entity: QueuedEntity,
        known: Answered,
        open_ones: list[tuple[str, str]],
        answers: Answers,
    ) -> GateQuestion | Status | None:
        """Call the gates for one pod, and add those that are open to `open_ones`.

        The pod is gated afterwards, or not. Returns the question to a plugin that answers later, or the
        answer of the closed gate. `answers`: those about earlier members of the group; members that are alike
        for a plugin share its answer.
        """
        profile = self._seams.profiles.get(info.pod.scheduler_name)
        gates: Mapping[str, Gate] = {} if profile is None else profile.gates
        started_s = instant_s()
        shown, uid, gating = self._shown(info, entity), info.uid, info.gating_plugin
        for name in gates if gating not in gates else _order(gates, gating):
            if known.passed and (uid, name) in known.passed:
                continue
            if known.stands and profile is not None and name in profile.served:
                continue
            question = GateQuestion(name, shown)
            sign = profile.signs.get(name) if entity.is_group and profile is not None else None
            alike = None if sign is None else (name, info.signed_by(sign))
            status = self._ask(gates[name], question) if alike not in answers else answers[alike]
            if status is DEFERRED:
                self._close(info, name, "")
                return question
            if alike is not None:
                answers[alike] = status
            if status.code is not Code.SUCCESS:
                self._reject(info, name, status)
                self._tell(info, status.code, started_s)
                return status
            if status.reasons or info.entered_without:
                info.passed_gate(name, status)
            open_ones.append((uid, name))
        if gates:
            self._tell(info, Code.SUCCESS, started_s)
        if info.gating_plugin:
            info.ungate()
        return None

    def _open(self, move: OpenMove, questions: Iterable[GateQuestion]) -> None:
        self._moves[move.entity.uid] = move
        if move.entity.is_group or _is_unheard(move.entity):
            self._listening[move.entity.uid] = move
        for question in questions:
            uid = question.pod.pod.uid
            move.questions[uid] = question
            self._awaited[uid] = move

    def keeps(self, alike: Alike, strategy: Strategy, label: str) -> bool:
        """Call the gate for one of these alike pods; return True if the gate stays closed for all of them.
        False: the gates must be called for each of the pods.
        """
        info = alike.first
        if not isinstance(info, QueuedPodInfo) or self._awaited:
            return False
        name, profile = info.gating_plugin, info.pod.scheduler_name
        known = self._seams.profiles.get(profile)
        if known is None or name not in known.signs or name not in known.gates:
            return False
        if name not in info.unschedulable_plugins:
            return False
        question = GateQuestion(name, self._shown(info, info))
        status = self._ask(known.gates[name], question)
        if status is DEFERRED:
            self._open(OpenMove(info, strategy, label, Answered()), [question])
            return False
        if status.is_success:
            return False
        self._seams.observer.pod_rejected(name, profile, len(alike.infos))
        return True

    def answered(self, question: GateQuestion, status: Status) -> OpenMove | None:
        """Take a gate's late answer; return the interrupted move of the entity if the entity may continue:
        the pod has no closed gate or has missed events, or all questions about the group's members are
        answered.

        None: the pod stays gated, other answers are awaited, or a newer question is open. After an error the
        pod stays gated, and the same question may be answered again.
        """
        uid = question.pod.pod.uid
        move = self._awaited.get(uid)
        if move is None or move.questions[uid] is not question:
            return None
        info = next(info for info in move.entity.pods() if info.uid == uid)
        if not status.is_success:
            self._reject(info, question.plugin, status)
            if move.entity is not info:
                move.entity.gate_as(info)
            if status.code is Code.ERROR:
                move.entity.changed(info)
                move.failed = True
                return None
            move.answered = replace(move.answered, closed=move.answered.closed | {uid})
        else:
            info.passed_gate(question.plugin, status)
            move.answered = replace(move.answered, passed=move.answered.passed | {(uid, question.plugin)})
        move.entity.changed(info)
        del self._awaited[uid], move.questions[uid]
        if move.questions:
            return None
        del self._moves[move.entity.uid]
        self._listening.pop(move.entity.uid, None)
        # Members of a group without a closed gate may have further gates. A missed event may open the gate.
        may_open = bool(move.answered.missed) or move.hinted is not None
        return move if status.is_success or move.entity is not info or may_open else None

    def missed(self, event: QueueEvent) -> None:
        """Keep an event for the waiting groups, and for the waiting pods that other plugins rejected.

        No gate is closed yet that could wait for the event. Of several alike events one is kept, and counts
        as one that helps.
        """
        for move in self._listening.values():
            move.miss(event)

    def postpones(self, entity: QueuedEntity, strategy: Strategy, event: QueueEvent) -> bool:
        """Keep an event for a pod that waits for an answer; return False for any other entity.

        An open gate lets the pod go on, with or without the event; one that is closed is called again. So an
        event does not call the gates of all waiting pods anew. Not kept are updates of the pod itself, which
        the open question is not about, and events after an error, as they may have ended its reason.
        """
        move = self._awaiting(entity, event)
        if move is None:
            return False
        move.strategy = max(move.strategy, strategy)
        if entity.uid not in self._listening:
            move.miss(event)
        return True

    def postpones_hint(self, entity: QueuedEntity, strategy: Strategy, hint: HintQuestion) -> bool:
        """Keep the event of a late hint that it helps, as `postpones` does."""
        move = self._awaiting(entity, hint.event)
        if move is None:
            return False
        move.strategy = max(move.strategy, strategy)
        move.hinted = max(strategy, Strategy.SKIP if move.hinted is None else move.hinted[0]), hint.label
        return True

    def _awaiting(self, entity: QueuedEntity, event: QueueEvent | ClusterEvent) -> OpenMove | None:
        move = self._moves.get(entity.uid)
        if move is None or move.failed or entity.is_group:
            return None
        return None if any(_is_uid(one, entity.uid) for one in (event.old, event.new)) else move

    def waits_for(self, question: GateQuestion) -> bool:
        """Return True while the answer to this very question counts: no newer one about the pod is open."""
        uid = question.pod.pod.uid
        move = self._awaited.get(uid)
        return move is not None and move.questions[uid] is question

    def _shown(self, info: QueuedPodInfo, entity: QueuedEntity) -> QueuedPod:
        evicting = self._seams.evicting
        is_pending = info.uid in evicting or (entity is not info and entity.uid in evicting)
        return info.as_queued_pod(victims_pending=is_pending)

    def _ask(self, gate: Gate, question: GateQuestion) -> Status | Deferred:
        try:
            return gate(question)
        except Exception as err:  # noqa: BLE001  # a plugin's error must not lose the pod
            self._seams.observer.plugin_raised(question.plugin, "PreEnqueue", err)
            return Status.error(str(err))

    def _reject(self, info: QueuedPodInfo, plugin: str, status: Status) -> None:
        info.unschedulable_plugins.add(plugin)
        self._seams.observer.pod_rejected(plugin, info.pod.scheduler_name)
        # kube-scheduler only logs the message; here the explanation of a waiting pod shows it.
        self._close(info, plugin, status.message)

    def _tell(self, info: QueuedPodInfo, code: Code, started_s: float) -> None:
        took_s = instant_s() - started_s
        self._seams.observer.gates_ran(info.pod.scheduler_name, code, took_s)

    def _close(self, info: QueuedPodInfo, plugin: str, message: str) -> None:
        info.gating_plugin, info.gating_message = plugin, message
        index = self._registrations.get(info.pod.scheduler_name)
        info.gating_plugin_events = () if index is None else index.declared_by(plugin)


def _is_unheard(entity: QueuedEntity) -> bool:
    """Return True for a pod that no event of its gate reaches, only those of the plugins that rejected it."""
    return any(info.is_rejected and not info.is_rejected_by(info.gating_plugin) for info in entity.pods())


def _is_uid(found: object, uid: str) -> bool:
    return isinstance(found, Pod) and found.uid == uid


def _order(gates: Mapping[str, Gate], gating: str) -> Iterable[str]:
    """Return the names of the gates with the one that is closed first."""
    return (gating, *(name for name in gates if name != gating))
