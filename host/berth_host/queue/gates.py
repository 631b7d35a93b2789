"""PreEnqueue: decides whether a pod may enter activeQ or backoffQ.

    ungated -a plugin's gate is closed-> gated -this gate opens, and all others are open-> ungated
    ungated -a plugin answers later-> gated, awaited -answer-> ungated, or gated

Called by `places` before a pod enters. The plugins run in the configured order; in kube-scheduler the order
is arbitrary. Source: kube-scheduler `backend/queue/scheduling_queue.go` (runPreEnqueuePlugins), v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from berth_sdk.results import QueuedPod
from berth_sdk.status import Code, Status

from berth_host.metrics.series import instant_s
from berth_host.queue.hints import Strategy
from berth_host.queue.pool import Alike
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.queue.registrations import RegistrationIndex
from berth_host.queue.seams import DEFERRED, Deferred, Gate, GateQuestion, QueueSeams


@dataclass(frozen=True, slots=True)
class Entry:
    """The interrupted move of a pod whose gate answers later, with the gates that the pod has passed."""

    strategy: Strategy
    label: str
    passed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Open:
    question: GateQuestion
    info: QueuedPodInfo
    entry: Entry


class Gates:
    """The gates (PreEnqueue plugins) of all profiles.

    The plugin that keeps a pod gated is called first. The first closed gate ends the calls.
    """

    def __init__(self, seams: QueueSeams, registrations: Mapping[str, RegistrationIndex]) -> None:
        self._seams = seams
        self._registrations = registrations
        self._open: dict[str, _Open] = {}

    @property
    def open_count(self) -> int:
        """The number of pods that wait for a gate's answer."""
        return len(self._open)

    def open_entry(self, info: QueuedPodInfo) -> Entry | None:
        """Return the interrupted move of an awaited pod; None for any other pod."""
        found = self._open.get(info.uid)
        return None if found is None else found.entry

    def forget(self, info: QueuedPodInfo) -> None:
        """Drop the question about a pod that left the queue; a late answer is ignored."""
        self._open.pop(info.uid, None)

    def run(
        self, info: QueuedPodInfo, strategy: Strategy, label: str, passed: frozenset[str] = frozenset()
    ) -> bool:
        """Call the gates; return True if all are open, else the pod is gated.

        The arguments are those of `Entry`.
        """
        self._open.pop(info.uid, None)
        profile = self._seams.profiles.get(info.pod.scheduler_name)
        gates: Mapping[str, Gate] = {} if profile is None else profile.gates
        started_s = instant_s()
        shown = self._shown(info)
        open_ones: list[str] = []
        for name in _order(gates, info.gating_plugin):
            if name in passed:
                continue
            question = GateQuestion(name, shown)
            status = self._ask(gates[name], question)
            if status is DEFERRED:
                self._open[info.uid] = _Open(question, info, Entry(strategy, label, passed.union(open_ones)))
                self._close(info, name, "")
                return False
            if not status.is_success:
                self._reject(info, name, status)
                self._tell(info, status.code, started_s)
                return False
            info.passed_gate(name, status)
            open_ones.append(name)
        if gates:
            self._tell(info, Code.SUCCESS, started_s)
        if info.gating_plugin:
            info.ungate()
        return True

    def keeps(self, alike: Alike, strategy: Strategy, label: str) -> bool:
        """Call the gate for one of these alike pods; return True if the gate stays closed for all of them.
        False: the gates must be called for each of the pods.
        """
        info = alike.first
        name, profile = info.gating_plugin, info.pod.scheduler_name
        known = self._seams.profiles.get(profile)
        if known is None or name not in known.signs or name not in known.gates or self._open:
            return False
        if name not in info.unschedulable_plugins:
            return False
        question = GateQuestion(name, self._shown(info))
        status = self._ask(known.gates[name], question)
        if status is DEFERRED:
            self._open[info.uid] = _Open(question, info, Entry(strategy, label))
            return False
        if status.is_success:
            return False
        self._seams.observer.pod_rejected(name, profile, len(alike.infos))
        return True

    def answered(self, question: GateQuestion, status: Status) -> tuple[QueuedPodInfo, Entry] | None:
        """Take a gate's late answer; return the pod and its interrupted move if the pod may continue.

        None: the pod stays gated, or a newer question is open. After an error the pod stays gated, and the
        same question may be answered again.
        """
        uid = question.pod.pod.uid
        found = self._open.get(uid)
        if found is None or found.question is not question:
            return None
        if status.code is not Code.ERROR:
            del self._open[uid]
        if not status.is_success:
            self._reject(found.info, question.plugin, status)
            return None
        found.info.passed_gate(question.plugin, status)
        entry = found.entry
        return found.info, Entry(entry.strategy, entry.label, entry.passed | {question.plugin})

    def waits_for(self, question: GateQuestion) -> bool:
        """Return True while the answer to this very question counts: no newer one about the pod is open."""
        found = self._open.get(question.pod.pod.uid)
        return found is not None and found.question is question

    def _shown(self, info: QueuedPodInfo) -> QueuedPod:
        return info.as_queued_pod(victims_pending=info.uid in self._seams.evicting)

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


def _order(gates: Mapping[str, Gate], gating: str) -> Iterable[str]:
    if gating not in gates:
        return gates
    return (gating, *(name for name in gates if name != gating))
