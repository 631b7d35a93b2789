"""`PodFit`: where a pod would go now, and `DrainAnswer`: which pods of a node could not go elsewhere.

Made by `questions.fit` and `questions.drain`; printed by `berth fit`, `berth drain` and `kubectl berth`, sent
as JSON (docs/reference/http-api.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from berth_sdk.status import Status

from berth_host.explain.diagnosis import NO_REASON, NodeScore
from berth_host.explain.explanation import RejectedNodes, score_json
from berth_host.explain.nearest_fit import Shortage

SHOWN_NODES: Final = 100
"""The most nodes with scores in one answer."""
BY_NODE: Final = ("node", "verdict", "plugin", "reason", "score", "scores")
"""The columns of `PodFit.by_node`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The answer of PostFilter. `node`: where the pod would preempt, "" for nowhere. `victims`: the pods
    that would be evicted, `namespace/name`.
    """

    plugin: str
    node: str
    victims: Sequence[str]
    message: str

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {
            "plugin": self.plugin or None,
            "node": self.node or None,
            "victims": list(self.victims),
            "message": self.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedGate:
    """The answer of a PreEnqueue plugin that keeps the pod out of the queue now. `message`: why."""

    plugin: str
    message: str

    def as_json(self) -> dict[str, Any]:
        """Return the object for JSON."""
        return {"plugin": self.plugin, "message": self.message}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFit:
    """The answer about one pod.

    `node`: the node that it would get, "" for none; `tied`: how many nodes are as good. `message`: why it
    gets none, as in its condition. `verdicts`: per node SUCCESS, or the rejection with its plugin. `scores`:
    all nodes that fit, the best first; no plugins where a single node fits, which is not scored.
    `preemption`: None if PostFilter was not asked. `nearest`: what nodes lack that are only too small.
    `left`: the node that the pod is on, and was taken off for the question; "" for none.
    `gates`: the PreEnqueue plugins that keep the pod out of the queue; the rest of the answer is about the
    time after they let the pod in.
    """

    pod: str
    node: str = ""
    tied: int = 0
    message: str = ""
    verdicts: Mapping[str, Status]
    scores: Sequence[NodeScore] = ()
    preemption: Preemption | None = None
    nearest: Sequence[Shortage] = ()
    gates: Sequence[ClosedGate] = ()
    notes: Sequence[str] = ()
    left: str = ""

    @property
    def fits_now(self) -> bool:
        """True if the pod would get a node now: some node fits, and no gate is closed."""
        return bool(self.node) and not self.gates

    @property
    def rejections(self) -> list[RejectedNodes]:
        """The rejected nodes by plugin and reason, most nodes first."""
        found: dict[tuple[str, str], list[str]] = {}
        for name, status in self.verdicts.items():
            for reason in () if status.is_success else status.reasons or (NO_REASON,):
                found.setdefault((status.plugin, reason), []).append(name)
        return [
            RejectedNodes(plugin=plugin, reason=reason, node_names=tuple(names))
            for (plugin, reason), names in sorted(found.items(), key=lambda item: -len(item[1]))
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the answer of `POST /berth/v1/fit`."""
        return {
            "pod": self.pod,
            "node": self.node or None,
            "tied": self.tied,
            "message": self.message,
            "nodes": len(self.verdicts),
            "feasible": len(self.scores),
            "scores": [score_json(item) for item in self.scores[:SHOWN_NODES]],
            "rejections": [item.as_json() for item in self.rejections],
            "preemption": None if self.preemption is None else self.preemption.as_json(),
            "nearestFit": [
                {"text": item.text, "lacking": dict(item.lacking), "nodes": list(item.node_names)}
                for item in self.nearest
            ],
            "gates": [gate.as_json() for gate in self.gates],
            "notes": list(self.notes),
        }

    def by_node(self) -> dict[str, Any]:
        """Return the answer of `GET /berth/v1/pods/NAMESPACE/NAME/fit`, which has a row for every node.

        Rows are lists, as those of `nodes_answer`.
        """
        plugins = list(self.scores[0].plugins) if self.scores else []
        scored = {item.node_name: item for item in self.scores if item.plugins}
        return {
            "pod": self.pod,
            "on": self.left or None,
            "node": self.node or None,
            "tied": self.tied,
            "message": self.message,
            "feasible": len(self.scores),
            "notes": list(self.notes),
            "scorePlugins": plugins,
            "columns": list(BY_NODE),
            "nodes": [self._row(name, status, scored.get(name)) for name, status in self.verdicts.items()],
        }

    def _row(self, name: str, status: Status, score: NodeScore | None) -> list[Any]:
        """Return the row of a node. `score`: None for a node that was rejected, or not scored."""
        if not status.is_success:
            return [name, "rejected", status.plugin, ", ".join(status.reasons) or NO_REASON, None, None]
        verdict = "best" if name == self.node else "fits"
        if score is None:
            return [name, verdict, "", "", None, None]
        parts = [normalized * weight for _, normalized, weight in score.plugins.values()]
        return [name, verdict, "", "", score.total, parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The place of a pod in a drain whose eviction a PodDisruptionBudget refuses at first.

    `round`: 2 for a pod that is let go when the replacements of the pods of round 1 run, and so on; None:
    the drain itself makes no room for it in `budget` (`namespace/name`). `message`: why it is refused first.
    """

    round: int | None
    budget: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAnswer:
    """The answer about the pods of one node.

    `moves`: the pods that would be evicted, in that order; each has its new node, or none. `refused`: those
    of them that are not evicted at once, by `namespace/name`. `unmanaged`: those of them without a
    controller: nobody makes another pod after the eviction, and `kubectl drain` refuses them without --force.
    `stay`: pods that a drain leaves alone, with the reason.
    """

    node: str
    moves: Sequence[PodFit]
    stay: Mapping[str, str]
    refused: Mapping[str, Eviction] = field(default_factory=dict)
    unmanaged: frozenset[str] = frozenset()
    notes: Sequence[str] = ()

    @property
    def stuck(self) -> list[PodFit]:
        """The pods that could not move elsewhere."""
        return [one for one in self.moves if not one.node]

    @property
    def blocked(self) -> list[str]:
        """The pods that budgets do not let go as long as nothing else changes."""
        return [pod for pod, one in self.refused.items() if one.round is None]

    def as_json(self) -> dict[str, Any]:
        """Return the answer of `GET /berth/v1/nodes/NAME/drain`."""
        return {
            "node": self.node,
            "moves": [
                {
                    "pod": one.pod,
                    "to": one.node or None,
                    "hasController": one.pod not in self.unmanaged,
                    "message": one.message,
                    "rejections": [] if one.node else [item.as_json() for item in one.rejections],
                    **_eviction_json(self.refused.get(one.pod)),
                }
                for one in self.moves
            ],
            "stuck": len(self.stuck),
            "blocked": len(self.blocked),
            "unmanaged": len(self.unmanaged),
            "stay": [{"pod": pod, "reason": reason} for pod, reason in self.stay.items()],
            "notes": list(self.notes),
        }


def _eviction_json(refused: Eviction | None) -> dict[str, Any]:
    if refused is None:
        return {"round": 1, "budget": None, "refusal": ""}
    return {"round": refused.round, "budget": refused.budget, "refusal": refused.message}
