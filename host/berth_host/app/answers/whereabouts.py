"""Where in the host a pod is now: in one of the queue's places, in its cycle or binding cycle, on a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from berth_sdk.events import ActionType, word_of_action
from berth_sdk.pod import Pod

from berth_host.app.answers.answering_host import AnsweringHost
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.explain.pod_answer import PermitState, PodState, QueueState, Waking
from berth_host.queue.places import Place
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.scheduler.attempt import Attempt

_STATES: Final = {
    Place.ACTIVE: PodState.QUEUED,
    Place.BACKOFF: PodState.BACKOFF,
    Place.POOL: PodState.UNSCHEDULABLE,
}
_LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999. A host of a simulation never tries a pod without a reason, and says a time beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """`info`: the pod's entry of the queue, if it has one or had one that is still under way; `attempt`: the
    one that runs now; `node`: where it is, or is about to be.
    """

    state: PodState
    node: str = ""
    info: QueuedPodInfo | None = None
    attempt: Attempt | None = None
    queue: QueueState | None = None
    permit: PermitState | None = None


def whereabouts(host: AnsweringHost, pod: Pod, latest: Diagnosis | None) -> Whereabouts:
    """Of a pod that exists. `latest`: its last attempt that is over."""
    if pod.node_name:
        return Whereabouts(state=PodState.BOUND, node=pod.node_name)
    found = host.queue.places.find(pod.key)
    if found is not None and found[1].uid == pod.uid:
        return _queued(host, *found)
    attempt = _attempt(host, pod.uid)
    if attempt is None:
        if latest is not None and latest.outcome is Outcome.BOUND:
            # The watch has yet to show it.
            return Whereabouts(state=PodState.BOUND, node=latest.node_name)
        return Whereabouts(state=PodState.DELETED if pod.terminating else PodState.SCHEDULING)
    held = next((item for item in host.waiting_pods.list() if item.pod.uid == pod.uid), None)
    if held is not None:
        permit = PermitState(plugins=held.pending_plugins, node=held.node_name, until_s=held.deadline_s)
        return Whereabouts(state=PodState.WAITING, info=attempt.queued, attempt=attempt, permit=permit)
    is_binding = attempt is not host.scheduler.in_cycle
    state = PodState.BINDING if is_binding else PodState.SCHEDULING
    return Whereabouts(state=state, info=attempt.queued, attempt=attempt)


def wakings(host: AnsweringHost, pod: Pod, plugins: Sequence[str]) -> list[Waking]:
    """The events that may bring the pod back, if these plugins keep it where it is."""
    return [
        Waking(
            plugin=plugin,
            resource=item.resource,
            actions=_words(item.resource, item.action),
            asks=item.ask,
        )
        for plugin in plugins
        for item in host.queue.events_for(pod.scheduler_name, plugin)
    ]


def _queued(host: AnsweringHost, place: Place, info: QueuedPodInfo) -> Whereabouts:
    state = PodState.GATED if info.is_gated else _STATES[place]
    retry_us = None
    if state is PodState.BACKOFF:
        retry_us = host.queue.places.free_at_us(info)
    elif state is PodState.UNSCHEDULABLE:
        retry_us = host.queue.flush_at_us(info)
    is_dated = retry_us is not None and retry_us < _LAST_SECOND * 1e6
    rejected_by = info.unschedulable_plugins | info.pending_plugins
    queue = QueueState(
        since_s=info.timestamp_us / 1e6,
        retry_at_s=retry_us / 1e6 if retry_us is not None and is_dated else None,
        # Of a gated pod the gate is one of them.
        rejected_by=tuple(sorted(rejected_by - {info.gating_plugin})),
        gated_by=info.gating_plugin,
        gate_message=info.gating_message,
    )
    return Whereabouts(state=state, info=info, queue=queue)


def _attempt(host: AnsweringHost, uid: str) -> Attempt | None:
    in_cycle = host.scheduler.in_cycle
    if in_cycle is not None and in_cycle.pod.uid == uid:
        return in_cycle
    return next((attempt for attempt in host.binding.attempts() if attempt.pod.uid == uid), None)


def _words(resource: str, action: int) -> tuple[str, ...]:
    """As plugins declare them: `add`, `update.labels`; `update` stands for a change of any kind."""
    if action & ActionType.UPDATE == ActionType.UPDATE:
        bits = [ActionType.ADD, ActionType.DELETE, ActionType.UPDATE]
    else:
        bits = [bit for bit in ActionType if bit.bit_count() == 1]
    return tuple(dict.fromkeys(word_of_action(resource, bit) for bit in bits if action & bit))
