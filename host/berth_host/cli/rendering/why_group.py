"""A `GroupAnswer` -> the text of `berth why podgroup` and of `kubectl berth why podgroup`."""

from __future__ import annotations

from typing import Final

from berth_sdk.rfc3339 import format_time

from berth_host.cli.rendering.columns import columns, count_of
from berth_host.cli.rendering.why import attempt_parts, held_room_text, queue_lines, requeue_events_table
from berth_host.explain.group_answer import Counted, GroupAnswer, GroupWhere, LastAttempt, RepairState

_STATES: Final = {
    GroupWhere.MISSING: "pending, its object is missing",
    GroupWhere.INCOMPLETE: "pending, a group above it is missing",
    GroupWhere.EMPTY: "without pods",
    GroupWhere.GATED: "pending, held back by PreEnqueue",
    GroupWhere.QUEUED: "pending, in the queue",
    GroupWhere.BACKOFF: "pending, in backoff",
    GroupWhere.UNSCHEDULABLE: "pending, unschedulable",
    GroupWhere.SCHEDULING: "pending, in its scheduling cycle",
    GroupWhere.WAITING: "pending, waits at Permit",
    GroupWhere.BINDING: "pending, being bound",
    GroupWhere.SCHEDULED: "scheduled",
    GroupWhere.ELSEWHERE: "pending, not in the queue of this scheduler",
}


def group_answer_text(answer: GroupAnswer, *, has_times: bool = True) -> str:
    """Return the state, the members against the minimum, the last attempt and the next member's rejections.

    `has_times`: False leaves out the times of the queue, which a simulation makes up.
    """
    head = [f"{answer.kind} {answer.group}: {_STATES[answer.state]}", f"  {answer.message}"]
    if answer.members is None:
        head.append(f"  {count_of(answer.pod_count, 'pod')} so far")
    else:
        head.append(f"  {_members(answer.members, 'pod' if not answer.children else 'group')}")
    if answer.root_key.partition("/")[2] != answer.group or answer.root_key.partition("/")[0] != (
        answer.kind.lower()
    ):
        head.append(f"  in {answer.root_key}, which is tried as a whole")
    if answer.repair is not None:
        head.append(f"  {_repair(answer.repair)}")
    head += [f"  {problem}" for problem in answer.problems]
    if answer.queue is not None and has_times:
        head += [f"  {line}" for line in queue_lines(answer.queue, answer.answered_at_s)]
    parts = ["\n".join(head)]
    if answer.hold is not None:
        parts.append(held_room_text(answer.hold, has_times=has_times))
    if answer.children:
        rows = [(name, kind, _members(one, "pod")) for name, kind, one in answer.children]
        parts.append("GROUPS\n" + columns(("GROUP", "KIND", "MEMBERS"), rows, indent=2))
    if answer.last is not None:
        parts += _attempt_parts(answer.last, answer)
    if answer.requeue_events:
        title = "MAY BE OPENED BY" if answer.state is GroupWhere.GATED else "MAY BE REQUEUED BY"
        parts.append(f"{title}\n{requeue_events_table(answer.requeue_events)}")
    return "\n\n".join(parts) + "\n"


def _members(members: Counted, noun: str) -> str:
    text = f"{members.placed} of {count_of(members.count, noun)} placed, minimum {members.minimum}"
    if members.missing:
        text += f": {members.missing} missing"
    if members.count < members.minimum:
        text += f", {members.minimum - members.count} not created yet"
    return text


def _repair(repair: RepairState) -> str:
    text = f"has lost members since {format_time(repair.since_s)}"
    if repair.is_evicting:
        return f"{text}: the others are being evicted"
    if repair.evicts_at_s is None:
        return f"{text}: it waits for their replacements"
    return f"{text}: the others are evicted at {format_time(repair.evicts_at_s)}, unless replacements come"


def _attempt_parts(last: LastAttempt, answer: GroupAnswer) -> list[str]:
    lines = [f"LAST ATTEMPT ({last.attempt}): {_OUTCOMES.get(last.outcome, last.outcome)}"]
    where = f" in the best of {count_of(last.domain_count, 'placement')}" if last.domain_count else ""
    fit = f"{count_of(last.placed, 'pod')} fit{'s' if last.placed == 1 else ''}{where}"
    if last.scheduled:
        fit += f", beside {last.scheduled} placed before"
    lines.append(f"  {fit}, {last.untried} not tried")
    if last.message and last.message != answer.message:
        lines.append(f"  {last.message}")
    if last.post_filter:
        lines.append(f"  PodGroupPostFilter: {last.post_filter}")
    parts = ["\n".join(lines)]
    if last.domains:
        rows = [
            (one.name or "-", str(one.nodes), str(one.placed), one.message or "fits") for one in last.domains
        ]
        title = f"PLACEMENTS BY {answer.topology_key or 'group'}, the nearest first"
        parts.append(
            f"{title}\n" + columns(("PLACEMENT", "NODES", "FIT", "RESULT"), rows, right=(1, 2), indent=2)
        )
    if last.unfit is not None:
        parts.append(f"NEXT POD {last.unfit.pod}\n  {last.unfit.message}")
        parts += attempt_parts(last.unfit)
    return parts


_OUTCOMES: Final = {
    "scheduled": "the group has its places",
    "unschedulable": "the group does not fit",
    "waitingOnPreemption": "the group waits for its victims to leave",
    "error": "an error",
}
