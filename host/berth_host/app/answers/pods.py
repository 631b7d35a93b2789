"""A running host and a pod's name -> `PodAnswer`: why it has its node, or has none, and where it has been."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from berth_sdk.pod import Pod

from berth_host.app.answers.answering_host import AnsweringHost
from berth_host.app.answers.on_node import on_node
from berth_host.app.answers.timeline import timeline
from berth_host.app.answers.whereabouts import Whereabouts, wakings, whereabouts
from berth_host.explain.diagnosis import Diagnosis, Outcome
from berth_host.explain.explanation import explanation_of, gated_text, rejected_nodes, too_small_nodes
from berth_host.explain.nearest_fit import Shortage, grouped, lacking
from berth_host.explain.pod_answer import PodAnswer, PodState, timestamp

_NODES_PER_TURN: Final = 50
"""Pods examined before other tasks on the loop get a turn: pods are scheduled meanwhile."""
_PENDING: Final = (PodState.UNSCHEDULABLE, PodState.BACKOFF, PodState.QUEUED, PodState.GATED)


async def pod_answer(host: AnsweringHost, key: str, *, node: str = "", attempts: int = 1) -> PodAnswer | None:
    """Everything about the pod `namespace/name`; None: this host does not know it, see `unknown_text`.

    `node`: say why it is not there. `attempts`: so many of the last ones are listed.
    """
    pod = host.objects.pod(key)
    latest = host.diagnoses.find(key) if pod is None else host.diagnoses.get(pod.uid)
    if pod is None:
        if latest is None:
            return None
        pod, where = latest.pod, Whereabouts(state=PodState.DELETED)
    elif not pod.node_name and pod.scheduler_name not in host.scheduler.profiles:
        return None
    else:
        where = whereabouts(host, pod, latest)
    return await _answer(host, pod, where, latest, node=node, attempts=attempts)


def unknown_text(host: AnsweringHost, key: str) -> str:
    """Why there is no answer, in a sentence with the cure."""
    pod = host.objects.pod(key)
    if pod is None:
        return (
            f"no pod {key} is known here: it does not exist, or has ended; check the name and the namespace"
        )
    ours = ", ".join(sorted(host.scheduler.profiles))
    return (
        f"pod {key} waits for another scheduler: its schedulerName is {pod.scheduler_name!r}, this one"
        f" schedules {ours}; ask that one, or create the pod with one of these names"
    )


async def _answer(
    host: AnsweringHost, pod: Pod, where: Whereabouts, latest: Diagnosis | None, *, node: str, attempts: int
) -> PodAnswer:
    running = None if where.attempt is None else where.attempt.diagnosis
    # An attempt that has its node says more than the one before; one that is being made says nothing yet.
    shown = running if running is not None and running.node_name else latest
    kept = [] if latest is None else list(latest.attempts())
    listed = [item for item in (running, *kept) if item is not None]
    history = where.info.history if where.info is not None else (latest.history if latest is not None else ())
    queue = where.queue
    blamed = () if queue is None else (queue.gated_by,) if queue.gated_by else queue.rejected_by
    # All facts up to here are of one moment; the next step takes several turns of the loop.
    answer = PodAnswer(
        explanation=explanation_of(pod.key, where.node, _message(host, pod, where, latest), shown),
        uid=pod.uid,
        scheduler_name=pod.scheduler_name,
        state=where.state,
        answered_at_s=host.clock.now_s(),
        nominated_node=host.queue.nominator.node_of(pod.uid),
        queue=queue,
        permit=where.permit,
        wakes=wakings(host, pod, blamed),
        timeline=timeline(history, listed),
        last_attempts=[_attempt_json(item) for item in listed[:attempts]],
        on_node=on_node(host, pod, where, shown, node) if node else None,
    )
    if where.state not in _PENDING:
        return answer
    nearest = await _nearest(host, pod, latest)
    return replace(answer, explanation=replace(answer.explanation, nearest=nearest))


def _message(host: AnsweringHost, pod: Pod, where: Whereabouts, latest: Diagnosis | None) -> str:
    """The pod's state in a sentence; of one that was rejected, the one that its owner reads."""
    state = where.state
    if state is PodState.DELETED:
        preemptor = host.evictions.preempted_by.get(pod.uid)
        gone = "is being deleted" if host.objects.pod_by_uid(pod.uid) is not None else "is deleted"
        return f"preempted by {preemptor}" if preemptor else gone
    if state is PodState.GATED and where.queue is not None:
        return gated_text(pod.scheduling_gates, where.queue.gated_by, where.queue.gate_message)
    if state is PodState.BOUND:
        if latest is not None and latest.outcome is Outcome.BOUND:
            return f"placed on {where.node}"
        return f"is on {where.node}; it was placed before this process scheduled, or by somebody else"
    if where.permit is not None:
        held = ", ".join(where.permit.plugins)
        return f"waits on Permit of {held} until {timestamp(where.permit.until_s)}, for {where.permit.node}"
    if state is PodState.BINDING and where.attempt is not None:
        return f"is being bound to {where.attempt.node_name}"
    if state is PodState.SCHEDULING:
        return "is being tried now"
    if latest is not None:
        return latest.message
    return f"waits for its turn; {len(host.queue.places.active)} pods are in activeQ"


async def _nearest(host: AnsweringHost, pod: Pod, latest: Diagnosis | None) -> list[Shortage]:
    found = []
    for count, name in enumerate(sorted(too_small_nodes(rejected_nodes(latest)))):
        if count % _NODES_PER_TURN == _NODES_PER_TURN - 1:
            await asyncio.sleep(0)
        info, node = host.cache.node_info(name), host.objects.node(name)
        if info is not None and node is not None:
            used = {**info.requested, "pods": len(info.pods)}
            found.append((name, lacking(pod, node, used)))
    return grouped(pod, found)


def _attempt_json(attempt: Diagnosis) -> dict[str, Any]:
    ended_s = attempt.ended_at_s
    return {
        "attempt": attempt.attempt,
        "startedAt": timestamp(attempt.started_at_s),
        "endedAt": None if ended_s is None else timestamp(ended_s),
        "outcome": attempt.outcome.value,
        "node": attempt.node_name or None,
        "nominatedNode": attempt.nominated_node or None,
        "message": attempt.message,
        "nodes": attempt.node_count,
        "feasible": attempt.feasible_count,
        "rejectedBy": sorted(attempt.unschedulable_plugins),
        "cycleMs": round(attempt.cycle_ms, 3),
        "durationMs": round(attempt.duration_ms, 3),
        "notes": list(attempt.notes),
    }
