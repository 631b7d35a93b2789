"""`Explanation`: why one pod has its node or has none. Printed by `cli.rendering.why`.

Made by `berth_sim.commands.why` from a simulation and by `make_pod_answer` from a running host, which sends
it as JSON; `kubectl berth why` reads it back. Rejections and scores are those of the pod's latest attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth_host.explain.diagnosis import NO_REASON, Diagnosis, NodeScore
from berth_host.explain.nearest_fit import Shortage


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedNodes:
    """The nodes that one plugin rejected with one reason."""

    plugin: str
    reason: str
    node_names: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {"plugin": self.plugin, "reason": self.reason, "nodes": list(self.node_names)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RejectedNodes:
        """Read the result of `as_json`."""
        return cls(plugin=value["plugin"], reason=value["reason"], node_names=tuple(value["nodes"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of one pod. `node`: empty for a pending pod. `attempts`: 0 if it was never tried.

    `node_count`, `feasible_count`: the nodes of the latest attempt, and the feasible ones among them.
    `reserve_skipped`: the plugins that answered Reserve with SKIP in the latest attempt.
    `outside_scopes`: the plugins that it did not call, because the pod was outside their scope.
    """

    pod: str
    node: str
    message: str
    attempts: int = 0
    node_count: int = 0
    feasible_count: int = 0
    rejections: Sequence[RejectedNodes] = ()
    nearest: Sequence[Shortage] = ()
    scores: Sequence[NodeScore] = ()
    notes: Sequence[str] = ()
    reserve_skipped: Sequence[str] = ()
    outside_scopes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the object of `berth why -o json`."""
        return {
            "pod": self.pod,
            "node": self.node or None,
            "message": self.message,
            "attempts": self.attempts,
            "nodes": self.node_count,
            "feasible": self.feasible_count,
            "rejections": [item.as_json() for item in self.rejections],
            "nearestFit": [
                {"text": item.text, "lacking": dict(item.lacking), "nodes": list(item.node_names)}
                for item in self.nearest
            ],
            "scores": [score_json(item) for item in self.scores],
            "notes": list(self.notes),
            "reserveSkipped": list(self.reserve_skipped),
            "outsideScopes": list(self.outside_scopes),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Explanation:
        """Read the result of `as_json`; ignore extra keys. Raises KeyError and TypeError for other values."""
        return cls(
            pod=value["pod"],
            node=value["node"] or "",
            message=value["message"],
            attempts=value["attempts"],
            node_count=value["nodes"],
            feasible_count=value["feasible"],
            rejections=[RejectedNodes.from_json(item) for item in value["rejections"]],
            nearest=[
                Shortage(tuple(item["lacking"].items()), tuple(item["nodes"])) for item in value["nearestFit"]
            ],
            scores=[_score_from(item) for item in value["scores"]],
            notes=value["notes"],
            reserve_skipped=value.get("reserveSkipped", ()),
            outside_scopes=value.get("outsideScopes", ()),
        )


def explanation_of(
    key: str, node: str, message: str, diagnosis: Diagnosis | None, nearest: Sequence[Shortage] = ()
) -> Explanation:
    """Return the explanation of the pod `namespace/name`. `diagnosis`: its latest attempt, or None."""
    if diagnosis is None:
        return Explanation(pod=key, node=node, message=message, nearest=nearest)
    return Explanation(
        pod=key,
        node=node,
        message=message,
        attempts=diagnosis.attempt,
        node_count=diagnosis.node_count,
        feasible_count=diagnosis.feasible_count,
        rejections=rejected_nodes(diagnosis),
        nearest=nearest,
        scores=diagnosis.top_scores,
        notes=diagnosis.notes,
        reserve_skipped=diagnosis.reserve_skipped,
        outside_scopes=diagnosis.outside_scopes,
    )


def rejected_nodes(diagnosis: Diagnosis | None) -> list[RejectedNodes]:
    """Return the rejected nodes of an attempt by plugin and reason, most nodes first."""
    if diagnosis is None or diagnosis.slot_names is None:
        return []
    names = diagnosis.slot_names
    return [
        RejectedNodes(
            plugin=item.status.plugin, reason=reason, node_names=tuple(names[item.slots()].tolist())
        )
        for item in sorted(diagnosis.rejections, key=lambda item: -item.node_count)
        for reason in item.status.reasons or (NO_REASON,)
    ]


def too_small_nodes(diagnosis: Diagnosis | None) -> set[str]:
    """Return the nodes that an attempt rejected for lack of resources, and by no other plugin."""
    rejections = rejected_nodes(diagnosis)
    counting = frozenset() if diagnosis is None else diagnosis.counts_resources
    small = {node for item in rejections if item.plugin in counting for node in item.node_names}
    return small.difference(*(item.node_names for item in rejections if item.plugin not in counting))


def circle_text(key: str) -> str:
    """Return for what a pod waits whose groups form a circle. `key`: a group of the circle."""
    return (
        f"waits until {key} is not among its own parents: delete that group, and create it with another"
        " parent or with none"
    )


def gated_text(scheduling_gates: Sequence[str], plugin: str, said: str) -> str:
    """Return why a pod is gated: its scheduling gates, or a plugin's PreEnqueue with its message."""
    if scheduling_gates:
        return f"gated: waiting for scheduling gates: {', '.join(scheduling_gates)}"
    return f"gated: kept out of the queue by plugin {plugin}{f': {said}' if said else ''}"


def score_json(score: NodeScore) -> dict[str, Any]:
    """Return one node with its scores, for JSON."""
    return {
        "node": score.node_name,
        "total": score.total,
        "plugins": {
            plugin: {"raw": raw, "normalized": normalized, "weight": weight}
            for plugin, (raw, normalized, weight) in score.plugins.items()
        },
    }


def _score_from(value: Mapping[str, Any]) -> NodeScore:
    plugins = {
        plugin: (item["raw"], item["normalized"], item["weight"]) for plugin, item in value["plugins"].items()
    }
    return NodeScore(value["node"], value["total"], plugins)
