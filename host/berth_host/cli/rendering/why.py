"""Explanations of a pod -> the text of `berth why`; a host's answers -> the text of `kubectl berth why`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from berth_sdk.rfc3339 import parse_time

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.explain.diagnosis import NodeScore
from berth_host.explain.explanation import Explanation, RejectedNodes
from berth_host.explain.nearest_fit import Shortage
from berth_host.explain.pod_answer import HeldRoom, PodAnswer, PodState, QueueState, RequeueEvent

_SHOWN_NODES: Final = 4
_SHOWN_SHORTAGES: Final = 3


def explanation_text(explanation: Explanation) -> str:
    """Return the verdict, rejections per plugin and reason, the nearest fit, and the best nodes' scores."""
    state = f"on node {explanation.node}" if explanation.node else "pending"
    parts = [f"{explanation.pod}: {state}\n  {explanation.message}", *attempt_parts(explanation)]
    return "\n\n".join(parts) + "\n"


def attempt_parts(explanation: Explanation) -> list[str]:
    """Return the paragraphs about the latest attempt; empty for a pod that was not tried."""
    parts: list[str] = []
    if explanation.attempts:
        nodes = count_of(explanation.node_count, "node")
        tried = f"attempt {explanation.attempts}: {explanation.feasible_count} of {nodes} fit"
        lines = [tried, *(f"  note: {note}" for note in explanation.notes)]
        lines += [
            f"  Reserve: Skip by {name}, which holds nothing for it" for name in explanation.reserve_skipped
        ]
        if explanation.outside_scopes:
            outside = ", ".join(explanation.outside_scopes)
            lines.append(f"  not called, as the pod is outside the scope: {outside}")
        parts.append("\n".join(lines))
    if explanation.rejections:
        parts.append("REJECTED BY\n" + _rejections(explanation.rejections))
    if explanation.nearest:
        parts.append("NEAREST FIT\n" + _nearest(explanation.nearest))
    if explanation.scores:
        table = _scores(explanation.scores)
        totals = {item.total for item in explanation.scores}
        names = [item.node_name for item in explanation.scores]
        if explanation.node and explanation.node not in names and len(totals) == 1:
            # Any of the nodes with the highest total is chosen. The record has the first of them.
            table += f"\n  {explanation.node}, which was chosen, has the same total"
        parts.append(f"BEST NODES (weighted score per plugin)\n{table}")
    return parts


def _rejections(rejections: Sequence[RejectedNodes]) -> str:
    rows = [
        (item.plugin or "-", str(len(item.node_names)), item.reason, _names(item.node_names))
        for item in rejections
    ]
    return columns(("PLUGIN", "NODES", "REASON", "WHICH"), rows, right=(1,), indent=2)


def _nearest(nearest: Sequence[Shortage]) -> str:
    lines = [f"  {item.text}" for item in nearest[:_SHOWN_SHORTAGES]]
    rest = sum(len(item.node_names) for item in nearest[_SHOWN_SHORTAGES:])
    if rest:
        lines.append(f"  {count_of(rest, 'other node')} more")
    return "\n".join(lines)


def _scores(scores: Sequence[NodeScore]) -> str:
    plugins = sorted({plugin for score in scores for plugin in score.plugins})
    rows = [
        (
            score.node_name,
            str(score.total),
            *(_weighted(score, plugin) for plugin in plugins),
        )
        for score in scores
    ]
    header = ("NODE", "TOTAL", *plugins)
    return columns(header, rows, right=tuple(range(1, len(header))), indent=2)


def _weighted(score: NodeScore, plugin: str) -> str:
    if plugin not in score.plugins:
        return "-"
    _, normalized, weight = score.plugins[plugin]
    return str(normalized * weight) if weight == 1 else f"{normalized} x {weight}"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NODES])
    more = len(names) - _SHOWN_NODES
    return f"{shown} and {more} more" if more > 0 else shown


_TEXT_WIDTH: Final = 100
_STATES: Final = {
    PodState.GATED: "pending, held back by PreEnqueue",
    PodState.INCOMPLETE: "pending, waits for its pod group",
    PodState.PENDING: "pending, waits for its pod group",
    PodState.QUEUED: "pending, in the queue",
    PodState.BACKOFF: "pending, in backoff",
    PodState.UNSCHEDULABLE: "pending, unschedulable",
    PodState.SCHEDULING: "pending, in its scheduling cycle",
    PodState.WAITING: "pending, waits at Permit",
    PodState.BINDING: "pending, being bound",
    PodState.DELETED: "deleted",
}


def pod_answer_text(answer: PodAnswer) -> str:
    """Return the paragraphs of the answer.

    These are: state and message, the reason against the given node, the latest attempt, events that may
    requeue the pod, the last attempts if the user wants several, and the timeline.
    """
    explanation = answer.explanation
    state = _STATES.get(answer.state) or f"on node {explanation.node}"
    head = [f"{explanation.pod}: {state}", f"  {explanation.message}"]
    if answer.nominated_node:
        head.append(f"  nominated to {answer.nominated_node}")
    if answer.held_room is not None:
        head.append(f"  {_kept_out(answer.held_room)}")
    if answer.queue is not None:
        head += [f"  {line}" for line in queue_lines(answer.queue, answer.answered_at_s)]
    parts = ["\n".join(head)]
    if answer.on_node is not None:
        parts.append(f"WHY NOT ON {answer.on_node.node}\n  {answer.on_node.text}")
    parts += attempt_parts(explanation)
    if answer.requeue_events:
        parts.append("MAY BE REQUEUED BY\n" + requeue_events_table(answer.requeue_events))
    if len(answer.last_attempts) > 1:
        parts.append("LAST ATTEMPTS\n" + _attempts(answer.last_attempts))
    if answer.timeline:
        rows = [
            (_clock(item.at_s), age(answer.answered_at_s - item.at_s), item.step, _short(item.text))
            for item in answer.timeline
        ]
        parts.append(
            "TIMELINE (UTC)\n" + columns(("TIME", "AGE", "STEP", "WHAT"), rows, right=(1,), indent=2)
        )
    return "\n\n".join(parts) + "\n"


def age(duration_s: float) -> str:
    """Return an age as kubectl does: `45s`, `3m12s`, `2h5m`, `4d3h`; below ten seconds with tenths."""
    if duration_s < 10:
        return f"{max(duration_s, 0):.1f}s"
    whole = int(duration_s)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size}{unit}{f'{rest}{small}' if rest else ''}"
    return f"{whole}s"


def queue_lines(queue: QueueState, now_s: float) -> list[str]:
    """Return since when an entity is queued, with which members, and when it is tried again."""
    lines = [f"queued since {_clock(queue.since_s)}, {age(now_s - queue.since_s)} ago"]
    if queue.group_members:
        members = "1 member" if queue.group_members == 1 else f"{queue.group_members} members"
        lines.append(f"in {queue.group}, which has {members} in the queue")
    if queue.retry_at_s is not None:
        moment = f"{_clock(queue.retry_at_s)}, in {age(queue.retry_at_s - now_s)}"
        lines.append(f"tried again at the latest at {moment}")
    return lines


def _kept_out(room: HeldRoom) -> str:
    """Return which room a pod does not get, and how it would."""
    text = f"room on {_names(room.nodes)} is held for {room.group} until {_clock(room.until_s)}"
    if room.expected_start_s is None:
        return text
    return f"{text}; a pod that ends before {_clock(room.expected_start_s)} (activeDeadlineSeconds) gets it"


def held_room_text(room: HeldRoom, *, has_times: bool) -> str:
    """Return the paragraph about the room that is held for a group. `has_times`: with the times."""
    lines = ["HELD ROOM", f"  {count_of(room.pods, 'pod')} on {_names(room.nodes)}"]
    if has_times:
        lines.append(f"  since {_clock(room.since_s)}, until {_clock(room.until_s)}")
        start_s = room.expected_start_s
        lines.append(f"  expected start: {'not known' if start_s is None else _clock(start_s)}")
    was = "was" if room.backfilled == 1 else "were"
    lines.append(f"  {count_of(room.backfilled, 'other pod')} {was} let in")
    return "\n".join(lines)


def requeue_events_table(requeue_events: Sequence[RequeueEvent]) -> str:
    """Return the table of the events that may requeue an entity."""
    rows = [
        (
            item.plugin,
            item.resource,
            ", ".join(item.actions),
            "if the plugin's hint says so" if item.asks else "always",
        )
        for item in requeue_events
    ]
    return columns(("REJECTED BY", "RESOURCE", "CHANGE", "HELPS"), rows, indent=2)


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            str(item["attempt"]),
            _clock(parse_time(item["startedAt"])),
            f"{item['durationMs']:.1f}",
            item["outcome"],
            f"{item['feasible']}/{item['nodes']}",
            _short(item["node"] or item["message"]),
        )
        for item in attempts
    ]
    header = ("NO", "STARTED", "TOOK MS", "OUTCOME", "FIT", "NODE OR MESSAGE")
    return columns(header, rows, right=(0, 2, 4), indent=2)


def _clock(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT_WIDTH else f"{line[: _TEXT_WIDTH - 3]}..."
