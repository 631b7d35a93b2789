"""`PodAnswer`: a running host's answer about one pod: an `Explanation`, the pod's state and its history.

Made by `explain.make_pod_answer`, sent as JSON (docs/reference/http-api.md), read by `kubectl berth why`.
Times are Unix seconds here, and RFC 3339 with microseconds in the JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from berth_sdk.rfc3339 import format_micro_time, parse_time

from berth_host.explain.explanation import Explanation
from berth_host.model.hold import Hold


class PodState(Enum):
    """The state of a pod."""

    GATED = "gated"
    INCOMPLETE = "incomplete"
    PENDING = "pending"
    QUEUED = "queued"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    SCHEDULING = "scheduling"
    WAITING = "waitingOnPermit"
    BINDING = "binding"
    BOUND = "bound"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A queued pod.

    `retry_at_s`: when the pod is retried without an event; None if that is not known. `rejected_by`: the
    plugins that rejected it in the last attempt, whose events requeue it. `gated_by`: the plugin that gates
    it, "" for none. `group`: the key of the root group in whose entry the pod waits, with the number of
    members there; "" for a pod without a group. `missing_group`: the group object for which a member waits.
    """

    since_s: float
    retry_at_s: float | None = None
    rejected_by: tuple[str, ...] = ()
    gated_by: str = ""
    gate_message: str = ""
    group: str = ""
    group_members: int = 0
    missing_group: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "since": format_micro_time(self.since_s),
            "retryAt": None if self.retry_at_s is None else format_micro_time(self.retry_at_s),
            "rejectedBy": list(self.rejected_by),
            "gatedBy": self.gated_by or None,
            "gateMessage": self.gate_message,
            "group": self.group or None,
            "groupMembers": self.group_members,
            "missingGroup": self.missing_group or None,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueState:
        """Read the result of `as_json`."""
        return cls(
            since_s=parse_time(value["since"]),
            retry_at_s=None if value["retryAt"] is None else parse_time(value["retryAt"]),
            rejected_by=tuple(value["rejectedBy"]),
            gated_by=value["gatedBy"] or "",
            gate_message=value["gateMessage"],
            group=value.get("group") or "",
            group_members=value.get("groupMembers", 0),
            missing_group=value.get("missingGroup") or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitState:
    """A pod that waits at Permit with a reserved node, at the longest until `until_s`."""

    plugins: tuple[str, ...]
    node: str
    until_s: float

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {"plugins": list(self.plugins), "node": self.node, "until": format_micro_time(self.until_s)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PermitState:
        """Read the result of `as_json`."""
        return cls(plugins=tuple(value["plugins"]), node=value["node"], until_s=parse_time(value["until"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueEvent:
    """An event that may requeue a pod that `plugin` rejected: a resource and its actions.

    `asks`: True if the plugin's hint decides; else the event always requeues the pod.
    """

    plugin: str
    resource: str
    actions: tuple[str, ...]
    asks: bool

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "plugin": self.plugin,
            "resource": self.resource,
            "actions": list(self.actions),
            "asksPlugin": self.asks,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RequeueEvent:
        """Read the result of `as_json`."""
        return cls(
            plugin=value["plugin"],
            resource=value["resource"],
            actions=tuple(value["actions"]),
            asks=value["asksPlugin"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step in the pod's history. `step`: one word, as in the reference. `cause`: the event or the plugins,
    "" for none. `text`: a sentence.
    """

    at_s: float
    step: str
    text: str
    cause: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "time": format_micro_time(self.at_s),
            "step": self.step,
            "cause": self.cause,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Step:
        """Read the result of `as_json`."""
        return cls(
            at_s=parse_time(value["time"]), step=value["step"], cause=value["cause"], text=value["text"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OnNode:
    """Why the pod is not on the requested node. `verdict`: `bound`, `waiting`, `nominated`, `rejected`,
    `fits`, `new`, `unknown`, `untried` or `notKept`. `text`: the whole answer in a sentence.
    """

    node: str
    verdict: str
    text: str
    plugin: str = ""
    reasons: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "node": self.node,
            "verdict": self.verdict,
            "plugin": self.plugin or None,
            "reasons": list(self.reasons),
            "text": self.text,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OnNode:
        """Read the result of `as_json`."""
        return cls(
            node=value["node"],
            verdict=value["verdict"],
            plugin=value["plugin"] or "",
            reasons=tuple(value["reasons"]),
            text=value["text"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRoom:
    """The room that is held for a group. Times are Unix seconds.

    `group`: its key. `pods`: the number of places. `nodes`: their names. `expected_start_s`: when the group
    fits; None: not known. `backfilled`: the number of pods that were let in so far.
    """

    group: str
    pods: int
    nodes: tuple[str, ...]
    since_s: float
    until_s: float
    expected_start_s: float | None
    backfilled: int

    @classmethod
    def of(cls, hold: Hold) -> HeldRoom:
        """Return the present state of a hold."""
        return cls(
            group=hold.key,
            pods=len(hold.nodes),
            nodes=tuple(sorted(hold.node_names)),
            since_s=hold.since_s,
            until_s=hold.until_s,
            expected_start_s=hold.expected_start_s,
            backfilled=hold.backfilled,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        start_s = self.expected_start_s
        return {
            "group": self.group,
            "pods": self.pods,
            "nodes": list(self.nodes),
            "since": format_micro_time(self.since_s),
            "until": format_micro_time(self.until_s),
            "expectedStart": None if start_s is None else format_micro_time(start_s),
            "backfilled": self.backfilled,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> HeldRoom:
        """Read the result of `as_json`."""
        start = value["expectedStart"]
        return cls(
            group=value["group"],
            pods=value["pods"],
            nodes=tuple(value["nodes"]),
            since_s=parse_time(value["since"]),
            until_s=parse_time(value["until"]),
            expected_start_s=None if start is None else parse_time(start),
            backfilled=value["backfilled"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAnswer:
    """The answer about one pod.

    `last_attempts`: as objects for JSON, latest first. `on_node`: only if a node was requested. `held_room`:
    the room that a pending pod does not get, as it is held for a group; None for none.
    """

    explanation: Explanation
    uid: str
    scheduler_name: str
    state: PodState
    answered_at_s: float
    nominated_node: str = ""
    held_room: HeldRoom | None = None
    queue: QueueState | None = None
    permit: PermitState | None = None
    requeue_events: Sequence[RequeueEvent] = ()
    timeline: Sequence[Step] = ()
    last_attempts: Sequence[Mapping[str, Any]] = ()
    on_node: OnNode | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the answer of `GET /berth/v1/pods/NAMESPACE/NAME`."""
        value = self.explanation.as_json()
        return {
            "pod": value.pop("pod"),
            "uid": self.uid,
            "schedulerName": self.scheduler_name,
            "state": self.state.value,
            **value,
            "nominatedNode": self.nominated_node or None,
            "heldRoom": None if self.held_room is None else self.held_room.as_json(),
            "queue": None if self.queue is None else self.queue.as_json(),
            "permit": None if self.permit is None else self.permit.as_json(),
            "requeueEvents": [item.as_json() for item in self.requeue_events],
            "timeline": [item.as_json() for item in self.timeline],
            "lastAttempts": list(self.last_attempts),
            "onNode": None if self.on_node is None else self.on_node.as_json(),
            "answeredAt": format_micro_time(self.answered_at_s),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PodAnswer:
        """Read the result of `as_json`; ignore extra keys. Raises KeyError, TypeError and ValueError."""
        queue, permit, on_node = value["queue"], value["permit"], value["onNode"]
        held = value.get("heldRoom")
        return cls(
            explanation=Explanation.from_json(value),
            uid=value["uid"],
            scheduler_name=value["schedulerName"],
            state=PodState(value["state"]),
            answered_at_s=parse_time(value["answeredAt"]),
            nominated_node=value["nominatedNode"] or "",
            held_room=None if held is None else HeldRoom.from_json(held),
            queue=None if queue is None else QueueState.from_json(queue),
            permit=None if permit is None else PermitState.from_json(permit),
            requeue_events=[RequeueEvent.from_json(item) for item in value["requeueEvents"]],
            timeline=[Step.from_json(item) for item in value["timeline"]],
            last_attempts=value["lastAttempts"],
            on_node=None if on_node is None else OnNode.from_json(on_node),
        )
