"""Makes a `GroupAnswer` from a host: how many members of a group are placed, and what the next one lacks."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from berth_sdk.group_tree import tree_of
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, COSCHEDULING, POD_GROUP, PodGroup, group_key
from berth_sdk.rfc3339 import format_micro_time

from berth_host.cache.pod_groups import MAX_DEPTH, GroupReader
from berth_host.explain.explanation import circle_text, explanation_of, gated_text, too_small_nodes
from berth_host.explain.group_answer import Counted, Domain, GroupAnswer, GroupWhere, LastAttempt
from berth_host.explain.group_record import GroupRecord, TriedPlacement
from berth_host.explain.make_pod_answer import NODES_PER_TURN
from berth_host.explain.nearest_fit import Shortage, counted_in, grouped, lacking
from berth_host.explain.pod_answer import HeldRoom, QueueState
from berth_host.explain.pod_state import AnsweringHost, requeue_events, retry_at_s
from berth_host.queue.places import Place
from berth_host.queue.queued_pod import QueuedEntity

WORDS: Final = {
    "podgroup": (POD_GROUP, COSCHEDULING, COMPOSITE_POD_GROUP),
    "compositepodgroup": (COMPOSITE_POD_GROUP,),
    "podgroup.scheduling.x-k8s.io": (COSCHEDULING,),
}
"""The words for the kinds of groups in commands, with the kinds that each looks up, in this order."""
_STATES: Final = {
    Place.ACTIVE: GroupWhere.QUEUED,
    Place.BACKOFF: GroupWhere.BACKOFF,
    Place.POOL: GroupWhere.UNSCHEDULABLE,
}


async def group_answer(host: AnsweringHost, word: str, namespace: str, name: str) -> GroupAnswer | None:
    """Return everything about a group; None if this host does not know it (`unknown_group_text`).

    `word`: one of WORDS.
    """
    groups = host.cache.groups
    keys = {kind: group_key(kind, namespace, name) for kind in WORDS[word]}
    found = [kind for kind, key in keys.items() if groups.object(key) is not None]
    # Members may be there before their object.
    found = found or [kind for kind, key in keys.items() if groups.state(key) is not None]
    if not found:
        return None
    kind = found[0]
    return await _answer(host, kind, namespace, name)


def groups_answer(host: AnsweringHost) -> dict[str, Any]:
    """Return every group with its state and members, in the order of kind, namespace and name."""
    return {
        "groups": [
            _listed(host, group)
            for group in sorted(
                host.cache.groups.objects(), key=lambda one: (one.kind, one.namespace, one.name)
            )
        ],
        "answeredAt": format_micro_time(host.clock.now_s()),
    }


def _listed(host: AnsweringHost, group: PodGroup) -> dict[str, Any]:
    """Return one row of the list: the fields that `GroupAnswer.as_json` has under the same names."""
    groups, key = host.cache.groups, group.key
    pods, root, members = _pods(groups, key), groups.root(key), _counted(groups, group)
    held = host.queue.places.find(key if root is None else root.key)
    entity = None if held is None or not held[1].is_group else held[1]
    record, _ = host.group_records.get(key) or (None, 0.0)
    state = _state(host, key, pods, members, None if held is None or entity is None else (held[0], entity))
    return {
        "key": key,
        "podGroup": f"{group.namespace}/{group.name}",
        "kind": group.kind,
        "state": state.value,
        "message": _message(host, key, state, pods, members, record, entity),
        "pods": len(pods),
        "members": members.as_json(),
        "since": None if entity is None else format_micro_time(entity.timestamp_us / 1e6),
    }


def unknown_group_text(host: AnsweringHost, word: str, key: str) -> str:
    """Return why there is no answer, in a sentence with the cure. `key`: `namespace/name`."""
    known = [one for one in host.cache.groups.objects() if one.kind in WORDS[word]]
    text = f"no {word} {key} is known here"
    near = [f"{one.namespace}/{one.name}" for one in known if one.name == key.partition("/")[2]]
    if near:
        return f"{text}: did you mean {', '.join(sorted(near))}?"
    if known:
        return f"{text}: check the name and the namespace"
    return (
        f"{text}, nor any other: turn on --feature-gates GenericWorkload=true (CompositePodGroup=true for"
        " groups of groups), or the plugin Coscheduling for PodGroups of scheduling.x-k8s.io"
    )


async def _answer(host: AnsweringHost, kind: str, namespace: str, name: str) -> GroupAnswer:
    groups, key = host.cache.groups, group_key(kind, namespace, name)
    group = groups.object(key)
    pods = _pods(groups, key)
    root = groups.root(key)
    root_key = key if root is None else root.key
    hold = host.queue.nominated_columns.room
    held = host.queue.places.find(root_key)
    entity = None if held is None or not held[1].is_group else held[1]
    record, ended_s = host.group_records.get(key) or (None, 0.0)
    if record is not None and group is not None and record.uid != group.uid:
        record = None  # of an earlier group of the same name
    members = None if group is None else _counted(groups, group)
    state = _state(host, key, pods, members, None if held is None or entity is None else (held[0], entity))
    answer = GroupAnswer(
        group=f"{namespace}/{name}",
        kind=kind,
        uid="" if group is None else group.uid,
        state=state,
        message=_message(host, key, state, pods, members, record, entity),
        answered_at_s=host.clock.now_s(),
        root_key=root_key,
        pod_count=len(pods),
        members=members,
        children=[
            (f"{one.namespace}/{one.name}", one.kind, _counted(groups, one)) for one in groups.children(key)
        ],
        topology_key="" if group is None else group.topology_key,
        queue=None if held is None or entity is None else _queue(host, root_key, held[0], entity),
        hold=None if hold is None or hold.key != root_key else HeldRoom.of(hold),
        repair=host.repair.state_of(key),
        problems=host.repair.problems_of(key),
    )
    if entity is not None:
        plugins = (
            (entity.gating_plugin,) if entity.is_gated else answer.queue.rejected_by if answer.queue else ()
        )
        answer = replace(answer, requeue_events=requeue_events(host, entity.pods()[0].pod, plugins))
    # All values so far are from one moment; the shortages take several turns of the loop.
    return answer if record is None else replace(answer, last=await _last(host, record, ended_s))


def _pods(groups: GroupReader, key: str) -> list[Pod]:
    """Return the pods of a group and of all groups below it."""
    states = map(groups.state, _keys(groups, key))
    return [pod for state in states if state is not None for pod in state.all.values()]


def _placed(groups: GroupReader, key: str) -> set[str]:
    """Return the uids of the pods of a group, and of the groups below it, that have a node."""
    states = map(groups.state, _keys(groups, key))
    return {uid for state in states if state is not None for uid in (*state.assumed, *state.assigned)}


def _keys(groups: GroupReader, key: str) -> list[str]:
    """Return the keys of a group, which may lack its object, and of the groups below it, as deep as a tree
    may be: of deeper trees, each of which may have thousands of groups, none is scheduled.
    """
    below = (tree_of(groups, child, MAX_DEPTH - 1) for child in groups.children(key))
    return list(dict.fromkeys([key, *(one.key for tree in below for one in tree)]))


def _counted(groups: GroupReader, group: PodGroup) -> Counted:
    if group.is_composite:
        children = groups.children(group.key)
        placed = sum(groups.has_minimum(child, MAX_DEPTH - 1) for child in children)
        return Counted(count=len(children), placed=placed, minimum=group.min_count)
    state = groups.state(group.key)
    if state is None:
        return Counted(count=0, placed=0, minimum=group.min_count)
    return Counted(count=len(state.all), placed=state.scheduled_count, minimum=group.min_count)


def _state(
    host: AnsweringHost,
    key: str,
    pods: list[Pod],
    members: Counted | None,
    held: tuple[Place, QueuedEntity] | None,
) -> GroupWhere:
    groups = host.cache.groups
    root = groups.root(key)
    in_cycle = host.scheduler.groups.in_cycle
    if members is None:
        return GroupWhere.MISSING
    if root is None:
        return GroupWhere.INCOMPLETE
    if not pods:
        return GroupWhere.EMPTY
    if in_cycle is not None and in_cycle.key == root.key:
        return GroupWhere.SCHEDULING
    placed = _placed(groups, key)
    is_waiting = any(pod.uid not in placed for pod in pods)
    if is_waiting and held is not None:
        return GroupWhere.GATED if held[1].is_gated else _STATES[held[0]]
    uids = {pod.uid for pod in pods}
    if any(one.pod.uid in uids for one in host.waiting_pods.list()):
        return GroupWhere.WAITING
    if any(one.pod.uid in uids for one in host.binding.attempts()):
        return GroupWhere.BINDING
    if is_waiting:
        return GroupWhere.ELSEWHERE
    return GroupWhere.SCHEDULED


def _message(
    host: AnsweringHost,
    key: str,
    state: GroupWhere,
    pods: list[Pod],
    members: Counted | None,
    record: GroupRecord | None,
    entity: QueuedEntity | None,
) -> str:
    """Return the group's state in a sentence; of a rejected group the message of its condition."""
    waiting = [one for one in host.waiting_pods.list() if one.pod.group_key and one.pod in pods]
    if state in (GroupWhere.MISSING, GroupWhere.INCOMPLETE):
        if circle := host.queue.groups.forest.circle_above(key):
            return f"each of its pods {circle_text(circle)}"
        missing = host.queue.groups.forest.missing_above(key) or key
        return f"its pods wait for {missing}: the scheduler has not seen this object; create it"
    if state is GroupWhere.EMPTY:
        return "it has no pods yet: create pods that name it"
    if state is GroupWhere.GATED and entity is not None:
        gated = next((one.pod for one in entity.pods() if one.pod.scheduling_gates), None)
        text = gated_text(
            gated.scheduling_gates if gated else (), entity.gating_plugin, entity.gating_message
        )
        return f"{text} (pod {gated.key})" if gated else text
    if state is GroupWhere.SCHEDULING:
        return "is being tried now"
    if state is GroupWhere.QUEUED:
        return f"waits for its turn; {host.queue.active_pod_count} pods are in activeQ"
    if state is GroupWhere.WAITING and waiting:
        first = min(waiting, key=lambda one: one.deadline_s)
        held_by = ", ".join(first.pending_plugins)
        until = format_micro_time(first.deadline_s)
        return f"{len(waiting)} of its pods wait at Permit for {held_by}, the first until {until}"
    if state is GroupWhere.BINDING:
        return "its pods are being bound to their nodes"
    if state is GroupWhere.ELSEWHERE:
        names = sorted({pod.scheduler_name for pod in pods} - set(host.scheduler.profiles))
        if not names:
            return "its pods are about to enter the queue"
        ours = ", ".join(sorted(host.scheduler.profiles))
        return f"its pods wait for the scheduler {', '.join(names)}; this one schedules {ours}"
    if state is GroupWhere.SCHEDULED:
        return "all its pods have a node"
    if record is not None and record.message:
        return record.message
    if members is not None and not members.missing:
        return "the minimum is placed; the other pods do not fit"
    return "waits for an event that may help"


def _queue(host: AnsweringHost, root_key: str, place: Place, entity: QueuedEntity) -> QueueState:
    blamed = set().union(*(one.rejecting for one in entity.pods())) - {entity.gating_plugin}
    return QueueState(
        since_s=entity.timestamp_us / 1e6,
        retry_at_s=retry_at_s(host.queue, place, entity),
        rejected_by=tuple(sorted(blamed)),
        gated_by=entity.gating_plugin,
        gate_message=entity.gating_message,
        group=root_key,
        group_members=len(entity.pods()),
    )


async def _last(host: AnsweringHost, record: GroupRecord, ended_s: float) -> LastAttempt:
    best = record.placements[0] if record.placements else None
    has_domains = any(one.name for one in record.placements)
    unfit = None
    if best is not None and best.unfit is not None:
        nearest = await _nearest(host, best)
        unfit = explanation_of(best.unfit.pod.key, "", best.unfit_message, best.unfit, nearest)
    return LastAttempt(
        attempt=record.attempt,
        ended_at_s=ended_s,
        outcome=record.outcome,
        message=record.message,
        post_filter=record.post_filter,
        scheduled=record.scheduled,
        placed=0 if best is None else best.placed,
        untried=0 if best is None else best.untried,
        domain_count=record.placement_count if has_domains else 0,
        domains=[
            Domain(name=one.name, nodes=one.node_count, placed=one.placed, message=one.message)
            for one in record.placements
            if has_domains
        ],
        unfit=unfit,
    )


async def _nearest(host: AnsweringHost, tried: TriedPlacement) -> list[Shortage]:
    """Return what nodes lack for the member that got none, beside the members that were placed before it."""
    if tried.unfit is None:
        return []
    pod = tried.unfit.pod
    beside: dict[str, Counter[str]] = {}
    for placed, node_name in tried.assignments:
        known = host.objects.pod_by_uid(placed.uid)
        if known is not None and not known.node_name and not host.cache.is_assumed(placed.uid):
            taken = beside.setdefault(node_name, Counter())
            taken.update(placed.requests)
            taken["pods"] += 1
    counts = counted_in(host.configuration.profile(pod.scheduler_name))
    found = []
    for count, name in enumerate(sorted(too_small_nodes(tried.unfit))):
        if count % NODES_PER_TURN == NODES_PER_TURN - 1:
            await asyncio.sleep(0)
        info, node = host.cache.node_info(name), host.objects.node(name)
        if info is not None and node is not None:
            used = Counter({**info.requested, "pods": len(info.pods)})
            used.update(beside.get(name, {}))
            found.append((name, lacking(pod, node, used, counts)))
    return grouped(pod, found)
