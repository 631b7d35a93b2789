"""`GroupAnswer`: the answer about one pod group: its members against its minimum, and its last attempt.

Made by `explain.make_group_answer`, sent as JSON (docs/reference/http-api.md), printed by `berth why
podgroup` and read by `kubectl berth why podgroup`. Times are Unix seconds here, and RFC 3339 in the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from berth_sdk.rfc3339 import format_micro_time, parse_time

from berth_host.explain.explanation import Explanation
from berth_host.explain.pod_answer import HeldRoom, QueueState, RequeueEvent


class GroupWhere(Enum):
    """The state of a group."""

    MISSING = "missing"
    INCOMPLETE = "incomplete"
    EMPTY = "empty"
    GATED = "gated"
    QUEUED = "queued"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    SCHEDULING = "scheduling"
    WAITING = "waitingOnPermit"
    BINDING = "binding"
    SCHEDULED = "scheduled"
    ELSEWHERE = "otherScheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The members of a group: its pods; of a CompositePodGroup its child groups.

    `count`: those that exist. `placed`: those with a node, assumed ones included; child groups that have
    their minimum. `minimum`: minCount, minMember or minGroupCount; 1 for the basic policy.
    """

    count: int
    placed: int
    minimum: int

    @property
    def missing(self) -> int:
        """The members that the minimum still lacks a node for."""
        return max(0, self.minimum - self.placed)

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "count": self.count,
            "placed": self.placed,
            "minimum": self.minimum,
            "missing": self.missing,
            "notCreated": max(0, self.minimum - self.count),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Counted:
        """Read the result of `as_json`."""
        return cls(count=value["count"], placed=value["placed"], minimum=value["minimum"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One placement that the last attempt tried. `message`: why the group does not fit there; "": it does."""

    name: str
    nodes: int
    placed: int
    message: str

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {"name": self.name, "nodes": self.nodes, "placed": self.placed, "message": self.message}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Domain:
        """Read the result of `as_json`."""
        return cls(name=value["name"], nodes=value["nodes"], placed=value["placed"], message=value["message"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAttempt:
    """The last attempt of a group. `outcome`, `message`, `post_filter`: see `GroupRecord`.

    - `scheduled`: members that had a node before.
    - `placed`, `untried`: members that got a node in the best placement, and that the cycle did not come to.
    - `domains`: the best placements of the topology, best first, of `domain_count`; empty for a group that
      may use all nodes.
    - `unfit`: the first member that got no node in the best placement.
    """

    attempt: int
    ended_at_s: float
    outcome: str
    message: str
    post_filter: str
    scheduled: int
    placed: int
    untried: int
    domain_count: int = 0
    domains: Sequence[Domain] = ()
    unfit: Explanation | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "attempt": self.attempt,
            "endedAt": format_micro_time(self.ended_at_s),
            "outcome": self.outcome,
            "message": self.message,
            "postFilter": self.post_filter,
            "scheduled": self.scheduled,
            "fit": self.placed,
            "remaining": self.untried,
            "placementCount": self.domain_count,
            "placements": [one.as_json() for one in self.domains],
            "next": None if self.unfit is None else self.unfit.as_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LastAttempt:
        """Read the result of `as_json`."""
        return cls(
            attempt=value["attempt"],
            ended_at_s=parse_time(value["endedAt"]),
            outcome=value["outcome"],
            message=value["message"],
            post_filter=value["postFilter"],
            scheduled=value["scheduled"],
            placed=value["fit"],
            untried=value["remaining"],
            domain_count=value["placementCount"],
            domains=[Domain.from_json(one) for one in value["placements"]],
            unfit=None if value["next"] is None else Explanation.from_json(value["next"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairState:
    """The repair of a gang that lost members and has too few.

    `since_s`: since when. `repair`: `Refill` or `Evict`. `evicts_at_s`: when its other members are evicted;
    None: never. `is_evicting`: True while they are.
    """

    since_s: float
    repair: str
    evicts_at_s: float | None = None
    is_evicting: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "since": format_micro_time(self.since_s),
            "repair": self.repair,
            "evictsAt": None if self.evicts_at_s is None else format_micro_time(self.evicts_at_s),
            "evicting": self.is_evicting,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RepairState:
        """Read the result of `as_json`."""
        at = value["evictsAt"]
        return cls(
            since_s=parse_time(value["since"]),
            repair=value["repair"],
            evicts_at_s=None if at is None else parse_time(at),
            is_evicting=value["evicting"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnswer:
    """The answer about one group.

    - `group`: `namespace/name`. `kind`: see `PodGroup.kind`. `uid`: "" where the object is missing.
    - `root_key`: the root of the group's tree, which the queue holds as one entry; the group's own key for a
      group without parent.
    - `message`: the state in a sentence; for a rejected group the message of its condition.
    - `members`: None where the object is missing, so that the minimum is unknown.
    - `children`: (`namespace/name`, its kind, its members) of each child group.
    - `topology_key`: the node label of its topology constraint; "" for none.
    - `hold`: the room that is held for the root group; None for none.
    - `requeue_events`: the events that may open its gate, or requeue it.
    - `repair`: None for a group that did not lose members.
    - `problems`: what is wrong with its annotations.
    """

    group: str
    kind: str
    uid: str
    state: GroupWhere
    message: str
    answered_at_s: float
    root_key: str
    pod_count: int
    members: Counted | None = None
    children: Sequence[tuple[str, str, Counted]] = ()
    topology_key: str = ""
    queue: QueueState | None = None
    hold: HeldRoom | None = None
    requeue_events: Sequence[RequeueEvent] = ()
    last: LastAttempt | None = None
    repair: RepairState | None = None
    problems: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the answer of `GET /berth/v1/podgroups/NAMESPACE/NAME`."""
        return {
            "podGroup": self.group,
            "kind": self.kind,
            "uid": self.uid,
            "state": self.state.value,
            "message": self.message,
            "root": self.root_key,
            "pods": self.pod_count,
            "members": None if self.members is None else self.members.as_json(),
            "groups": [
                {"podGroup": name, "kind": kind, "members": one.as_json()}
                for name, kind, one in self.children
            ],
            "topologyKey": self.topology_key or None,
            "queue": None if self.queue is None else self.queue.as_json(),
            "hold": None if self.hold is None else self.hold.as_json(),
            "requeueEvents": [one.as_json() for one in self.requeue_events],
            "lastAttempt": None if self.last is None else self.last.as_json(),
            "repair": None if self.repair is None else self.repair.as_json(),
            "problems": list(self.problems),
            "answeredAt": format_micro_time(self.answered_at_s),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GroupAnswer:
        """Read the result of `as_json`; ignore extra keys. Raises KeyError, TypeError and ValueError."""
        members, queue, last = value["members"], value["queue"], value["lastAttempt"]
        repair, hold = value["repair"], value["hold"]
        return cls(
            group=value["podGroup"],
            kind=value["kind"],
            uid=value["uid"],
            state=GroupWhere(value["state"]),
            message=value["message"],
            answered_at_s=parse_time(value["answeredAt"]),
            root_key=value["root"],
            pod_count=value["pods"],
            members=None if members is None else Counted.from_json(members),
            children=[
                (one["podGroup"], one["kind"], Counted.from_json(one["members"])) for one in value["groups"]
            ],
            topology_key=value["topologyKey"] or "",
            queue=None if queue is None else QueueState.from_json(queue),
            hold=None if hold is None else HeldRoom.from_json(hold),
            requeue_events=[RequeueEvent.from_json(one) for one in value["requeueEvents"]],
            last=None if last is None else LastAttempt.from_json(last),
            repair=None if repair is None else RepairState.from_json(repair),
            problems=value["problems"],
        )
