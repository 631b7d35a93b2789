"""Makes a `PodAnswer` from a running host: why a pod has its node or has none, and its history.

With the name of a node, the answer also says why the pod is not on that node.
"""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import replace
from typing import Any, Final

import numpy as np
from berth_sdk.pod import Pod
from berth_sdk.rfc3339 import format_micro_time
from berth_sdk.status import Status

from berth_host.explain.diagnosis import NO_REASON, Diagnosis, Outcome
from berth_host.explain.explanation import (
    circle_text,
    explanation_of,
    gated_text,
    too_small_nodes,
)
from berth_host.explain.nearest_fit import Counts, Shortage, counted_in, grouped, lacking
from berth_host.explain.pod_answer import HeldRoom, OnNode, PodAnswer, PodState, QueueState
from berth_host.explain.pod_state import AnsweringHost, Whereabouts, requeue_events, timeline, whereabouts

NODES_PER_TURN: Final = 50
"""The number of nodes to examine before other tasks of the loop run, so that scheduling continues."""
_PENDING: Final = (
    PodState.UNSCHEDULABLE,
    PodState.BACKOFF,
    PodState.QUEUED,
    PodState.GATED,
    PodState.INCOMPLETE,
    PodState.PENDING,
)


async def pod_answer(host: AnsweringHost, key: str, *, node: str = "", attempts: int = 1) -> PodAnswer | None:
    """Return everything about the pod `namespace/name`; None if this host does not know it (`unknown_text`).

    `node`: a node on which to explain why the pod is not there; "": none. `attempts`: how many of the latest
    attempts to list.
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
    """Return why there is no answer, in a sentence with the cure."""
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
    # A running attempt counts after it has chosen a node. Before that the last ended attempt explains more.
    shown = running if running is not None and running.node_name else latest
    kept = [] if latest is None else list(latest.attempts())
    listed = [item for item in (running, *kept) if item is not None]
    history = where.info.history if where.info is not None else (latest.history if latest is not None else ())
    queue = where.queue
    blamed = () if queue is None else (queue.gated_by,) if queue.gated_by else queue.rejected_by
    # All values so far are from one moment; `_nearest` takes several turns of the loop.
    answer = PodAnswer(
        explanation=explanation_of(pod.key, where.node, _message(host, pod, where, latest), shown),
        uid=pod.uid,
        scheduler_name=pod.scheduler_name,
        state=where.state,
        answered_at_s=host.clock.now_s(),
        nominated_node=host.queue.nominator.node_of(pod.uid),
        held_room=_held_room(host, pod) if where.state in _PENDING else None,
        queue=queue,
        permit=where.permit,
        requeue_events=requeue_events(host, pod, blamed),
        timeline=timeline(history, listed),
        last_attempts=[_attempt_json(item) for item in listed[:attempts]],
        on_node=_on_node(host, pod, where, shown, node) if node else None,
    )
    if where.state not in _PENDING:
        return answer
    nearest = await _nearest(host, pod, latest)
    return replace(answer, explanation=replace(answer.explanation, nearest=nearest))


def _held_room(host: AnsweringHost, pod: Pod) -> HeldRoom | None:
    """Return the held room that a pending pod does not get; None for none."""
    hold = host.queue.nominated_columns.room
    if hold is None or pod.priority > hold.priority or hold.lets_in(pod, host.clock.now_s()):
        return None
    return HeldRoom.of(hold)


def _message(host: AnsweringHost, pod: Pod, where: Whereabouts, latest: Diagnosis | None) -> str:
    """Return the pod's state in a sentence; of a rejected pod the sentence of its condition."""
    state = where.state
    if state is PodState.DELETED:
        preemptor = host.evictions.preempted_by.get(pod.uid)
        gone = "is being deleted" if host.objects.pod_by_uid(pod.uid) is not None else "is deleted"
        return f"preempted by {preemptor}" if preemptor else gone
    if where.queue is not None and state in (PodState.INCOMPLETE, PodState.PENDING):
        return _beside_text(host, where.queue)
    if state is PodState.GATED and where.queue is not None:
        if where.queue.group:
            return _gated_group_text(pod, where.queue)
        return gated_text(pod.scheduling_gates, where.queue.gated_by, where.queue.gate_message)
    if state is PodState.BOUND:
        if latest is not None and latest.outcome is Outcome.BOUND:
            return f"placed on {where.node}"
        return f"is on {where.node}; it was bound before this process started, or by another scheduler"
    if where.permit is not None:
        held = ", ".join(where.permit.plugins)
        until = format_micro_time(where.permit.until_s)
        return f"waits at Permit for {held} until {until}, for {where.permit.node}"
    if state is PodState.BINDING and where.attempt is not None:
        return f"is being bound to {where.attempt.node_name}"
    if state is PodState.SCHEDULING:
        return "is being tried now"
    if latest is not None:
        return latest.message
    return f"waits for its turn; {host.queue.active_pod_count} pods are in activeQ"


def _beside_text(host: AnsweringHost, queue: QueueState) -> str:
    """Return why a member of a pod group is in no entry of the queue."""
    if circle := host.queue.groups.forest.circle_above(queue.group):
        return circle_text(circle)
    if queue.missing_group:
        return f"waits for {queue.missing_group}: the scheduler has not seen this object; create it"
    return f"waits for the end of the cycle of its group {queue.group}, which runs now"


def _gated_group_text(pod: Pod, queue: QueueState) -> str:
    """Return why the group of a member is gated. Another member may be the reason."""
    text = gated_text(pod.scheduling_gates, queue.gated_by, queue.gate_message)
    members = "member" if queue.group_members == 1 else "members"
    return f"waits in {queue.group} with {queue.group_members} {members} in the queue: {text}"


async def _nearest(host: AnsweringHost, pod: Pod, latest: Diagnosis | None) -> list[Shortage]:
    found, counts = [], _counted(host, pod)
    for count, name in enumerate(sorted(too_small_nodes(latest))):
        if count % NODES_PER_TURN == NODES_PER_TURN - 1:
            await asyncio.sleep(0)
        info, node = host.cache.node_info(name), host.objects.node(name)
        if info is not None and node is not None:
            used = {**info.requested, "pods": len(info.pods)}
            found.append((name, lacking(pod, node, used, counts)))
    return grouped(pod, found)


def _counted(host: AnsweringHost, pod: Pod) -> Counts:
    return counted_in(host.configuration.profile(pod.scheduler_name))


def _attempt_json(attempt: Diagnosis) -> dict[str, Any]:
    ended_s = attempt.ended_at_s
    return {
        "attempt": attempt.attempt,
        "startedAt": format_micro_time(attempt.started_at_s),
        "endedAt": None if ended_s is None else format_micro_time(ended_s),
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


def _on_node(
    host: AnsweringHost, pod: Pod, where: Whereabouts, latest: Diagnosis | None, node: str
) -> OnNode:
    """Return why the pod is not on `node`. `latest`: the attempt to read; None if the pod was not tried."""
    if where.node == node:
        return OnNode(node=node, verdict="bound", text=f"it is on {node}")
    if where.attempt is not None and where.attempt.node_name == node:
        return OnNode(node=node, verdict="waiting", text=f"{node} is reserved for it")
    found = None if latest is None else _found_out(host, pod, latest, node)
    if host.queue.nominator.node_of(pod.uid) == node:
        hold = host.queue.nominated_columns.room
        when = "it goes there after its victims left, unless another node fits"
        if hold is not None and pod.uid in hold.nodes:
            when = "room is held there, until its whole group fits"
        text = f"it is nominated to {node}: {when}"
        reasons = found.reasons if found else ()
        plugin = found.plugin if found else ""
        return OnNode(node=node, verdict="nominated", text=text, plugin=plugin, reasons=reasons)
    if found is not None and found.verdict == "rejected":
        return found
    if host.objects.node(node) is None:
        return OnNode(node=node, verdict="unknown", text=_unknown_text(host, node))
    return found or OnNode(node=node, verdict="untried", text="the pod has not been tried yet")


def _found_out(host: AnsweringHost, pod: Pod, latest: Diagnosis, node: str) -> OnNode:
    names = latest.slot_names
    slots = () if names is None else np.flatnonzero(names == node)
    for item in latest.rejections:
        if np.isin(slots, item.slots()).any():
            return _rejected(host, pod, latest, item.status, node)
    if latest.outcome is Outcome.BOUND or latest.node_name:
        return _not_chosen(latest, node)
    if names is None:
        return OnNode(
            node=node, verdict="notKept", text=f"the attempt ended before its nodes: {latest.message}"
        )
    if not len(slots):
        return OnNode(node=node, verdict="new", text=f"{node} was added after the last attempt")
    return OnNode(node=node, verdict="notKept", text=f"the last attempt did not visit {node}")


def _rejected(host: AnsweringHost, pod: Pod, latest: Diagnosis, status: Status, node: str) -> OnNode:
    text = f"{status.plugin} rejected {node}: {', '.join(status.reasons) or NO_REASON}"
    if status.plugin in latest.counts_resources:
        info, known = host.cache.node_info(node), host.objects.node(node)
        if info is not None and known is not None:
            used = {**info.requested, "pods": len(info.pods)}
            missing = lacking(pod, known, used, _counted(host, pod))
            text += "".join(f"; {item.text}" for item in grouped(pod, [(node, missing)]))
    return OnNode(
        node=node, verdict="rejected", text=text, plugin=status.plugin, reasons=tuple(status.reasons)
    )


def _not_chosen(latest: Diagnosis, node: str) -> OnNode:
    """Return the answer for an attempt that found a node. Its record has only the best nodes."""
    scores = latest.top_scores
    chosen = next((item for item in scores if item.node_name == latest.node_name), None)
    own = next((item for item in scores if item.node_name == node), None)
    if own is not None:
        # Any of the nodes with the highest total is chosen. The record has the first of them.
        total = own.total if chosen is None else chosen.total
        text = f"the pod fits on {node}, which scored {own.total}; {latest.node_name} scored {total}"
        return OnNode(node=node, verdict="fits", text=text)
    went = "the pod went to" if latest.outcome is Outcome.BOUND else "the attempt chose"
    text = f"{went} {latest.node_name}; "
    if latest.feasible_count <= max(1, len(scores)):
        return OnNode(node=node, verdict="rejected", text=f"{text}{node} did not pass the filters")
    names = ", ".join(item.node_name for item in scores)
    return OnNode(
        node=node, verdict="notKept", text=f"{text}{node} was rejected, or scored no more than {names}"
    )


def _unknown_text(host: AnsweringHost, node: str) -> str:
    near = difflib.get_close_matches(node, [known.name for known in host.objects.nodes()], n=3)
    return f"there is no node {node}" + (f": did you mean {', '.join(near)}?" if near else "")
