"""A finished simulation and a pod -> why it is where it is, as values.

Called by `why`. Rejections and scores are those of the pod's latest attempt; what the nodes lack is computed
from the cluster as it is at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from berth_sdk.kube_object import ObjectRef
from berth_sdk.node import Node
from berth_sdk.pod import Pod

from berth_host.cli.nearest_fit import Shortage, shortages
from berth_host.cli.simulation import Finished
from berth_host.explain.diagnosis import Diagnosis, NodeScore

FIT_PLUGIN: Final = "NodeResourcesFit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedNodes:
    """The nodes that one plugin rejected for one reason."""

    plugin: str
    reason: str
    node_names: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
        return {"plugin": self.plugin, "reason": self.reason, "nodes": list(self.node_names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that is known. `node` empty: pending; `diagnosis` None: the pod was never tried."""

    pod: str
    node: str
    message: str
    diagnosis: Diagnosis | None
    rejections: Sequence[RejectedNodes]
    nearest: Sequence[Shortage]
    scores: Sequence[NodeScore]

    def as_json(self) -> dict[str, Any]:
        """The one object of `-o json`."""
        attempt = self.diagnosis
        return {
            "pod": self.pod,
            "node": self.node or None,
            "message": self.message,
            "attempts": attempt.attempt if attempt else 0,
            "nodes": attempt.node_count if attempt else 0,
            "feasible": attempt.feasible_count if attempt else 0,
            "rejections": [item.as_json() for item in self.rejections],
            "nearestFit": [
                {"text": item.text, "lacking": dict(item.lacking), "nodes": list(item.node_names)}
                for item in self.nearest
            ],
            "scores": [_score_json(item) for item in self.scores],
            "notes": list(attempt.notes) if attempt else [],
        }


def explain(done: Finished, key: str) -> Explanation:
    """Everything about the pod `namespace/name`, which must be one of the input."""
    node = next((item.node for item in done.report.placements if item.pod == key), "")
    pending = next((item for item in done.report.pending if item.pod == key), None)
    diagnosis = done.host.diagnoses.find(key)
    rejections = _rejections(done, diagnosis)
    return Explanation(
        pod=key,
        node=node,
        message=pending.message if pending else _placed_text(node, diagnosis),
        diagnosis=diagnosis,
        rejections=rejections,
        nearest=_nearest(done, key, rejections) if pending else [],
        scores=diagnosis.top_scores if diagnosis else [],
    )


def _placed_text(node: str, diagnosis: Diagnosis | None) -> str:
    if diagnosis is None:
        return f"was on {node} in the input already"
    return f"placed on {node}"


def _rejections(done: Finished, diagnosis: Diagnosis | None) -> list[RejectedNodes]:
    if diagnosis is None:
        return []
    names = slot_names(done)
    return [
        RejectedNodes(
            plugin=item.status.plugin,
            reason=reason,
            node_names=tuple(names.get(slot, f"slot {slot}") for slot in item.slots().tolist()),
        )
        for item in sorted(diagnosis.rejections, key=lambda item: -item.node_count)
        for reason in item.status.reasons or ("rejected without a reason",)
    ]


def slot_names(done: Finished) -> Mapping[int, str]:
    """The node at each slot of the last snapshot."""
    table = done.host.snapshot.nodes
    return dict(zip(table.rows.tolist(), table.names, strict=True))


def _nearest(done: Finished, key: str, rejections: Sequence[RejectedNodes]) -> list[Shortage]:
    namespace, _, name = key.partition("/")
    stored = done.server.get("pods", ObjectRef(namespace=namespace, name=name))
    too_small = {node for item in rejections if item.plugin == FIT_PLUGIN for node in item.node_names}
    if stored is None or not too_small:
        return []
    nodes = [Node.from_object(obj) for obj in done.server.list("nodes") if obj.ref.name in too_small]
    pods = [Pod.from_object(obj) for obj in done.server.list("pods") if obj.get("spec.nodeName")]
    return shortages(Pod.from_object(stored), nodes, pods)


def _score_json(score: NodeScore) -> dict[str, Any]:
    return {
        "node": score.node_name,
        "total": score.total,
        "plugins": {
            plugin: {"raw": raw, "normalized": normalized, "weight": weight}
            for plugin, (raw, normalized, weight) in score.plugins.items()
        },
    }
