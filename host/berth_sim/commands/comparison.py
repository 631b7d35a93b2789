"""Two finished runs of the same manifests -> the pods that differ, and the plugins behind the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth_host.explain.diagnosis import Diagnosis
from berth_host.explain.explanation import RejectedNodes, rejected_nodes

from berth_sim.commands.report import Summary
from berth_sim.commands.simulation import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A pod with another node.

    `scores`: by plugin, how much more the new node scored than the old one, weighted, in the second run;
    None: the old node was not among the best nodes of that run, so it was rejected or scored less.
    """

    pod: str
    before: str
    after: str
    scores: Mapping[str, int] | None

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`."""
        scores = None if self.scores is None else dict(self.scores)
        return {"pod": self.pod, "from": self.before, "to": self.after, "scoreDifference": scores}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A pod that has a node in one run only. `message`, `rejections`: why it has none in the other run."""

    pod: str
    node: str
    message: str
    rejections: Sequence[RejectedNodes]

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`."""
        return {
            "pod": self.pod,
            "node": self.node,
            "message": self.message,
            "rejections": [item.as_json() for item in self.rejections],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The difference between two runs. Pods in the order of the input.

    `names`: of the two configurations. `cluster`: the URL of the API server that was read; "": none.
    """

    names: tuple[str, str]
    cluster: str = ""
    summaries: tuple[Summary, Summary]
    moved: Sequence[Move]
    pending: Sequence[Change]
    placed: Sequence[Change]

    @property
    def differs(self) -> bool:
        """True if some pod has another node, or has one in one run only."""
        return bool(self.moved or self.pending or self.placed)

    @property
    def same(self) -> int:
        """The number of pods that have the same node, or none, in both runs."""
        return self.summaries[0].pods - len(self.moved) - len(self.pending) - len(self.placed)

    def as_json(self) -> dict[str, Any]:
        """Return the object of `-o json`."""
        return {
            "cluster": self.cluster or None,
            "configurations": [
                {"config": name, "placed": summary.placed, "pending": summary.pending}
                for name, summary in zip(self.names, self.summaries, strict=True)
            ],
            "moved": [item.as_json() for item in self.moved],
            "becomePending": [item.as_json() for item in self.pending],
            "getPlaced": [item.as_json() for item in self.placed],
            "same": self.same,
            "seed": self.summaries[0].seed,
        }


def comparison_of(first: Finished, second: Finished, names: tuple[str, str], cluster: str = "") -> Comparison:
    """Return the difference. Both runs are of the same manifests, and none was interrupted.

    `cluster`: see `Comparison`.
    """
    nodes = [{item.pod: item.node for item in done.report.placements} for done in (first, second)]
    before, after = nodes
    return Comparison(
        names=names,
        cluster=cluster,
        summaries=(first.report.summary, second.report.summary),
        moved=[
            Move(pod=pod, before=node, after=after[pod], scores=_scores(second, pod, node, after[pod]))
            for pod, node in before.items()
            if pod in after and after[pod] != node
        ],
        pending=_changes(second, before),
        placed=_changes(first, after),
    )


def _changes(done: Finished, nodes: Mapping[str, str]) -> list[Change]:
    """Return the pods that are pending in this run. `nodes`: the node of each pod in the other run."""
    return [
        Change(
            pod=item.pod,
            node=nodes[item.pod],
            message=item.message,
            rejections=rejected_nodes(done.host.diagnoses.find(item.pod)),
        )
        for item in done.report.pending
        if item.pod in nodes
    ]


def _scores(done: Finished, pod: str, before: str, after: str) -> dict[str, int] | None:
    diagnosis: Diagnosis | None = done.host.diagnoses.find(pod)
    scores = {} if diagnosis is None else {item.node_name: item for item in diagnosis.top_scores}
    if before not in scores or after not in scores:
        return None
    old, new = scores[before].plugins, scores[after].plugins
    differences = {
        plugin: weight * (normalized - old[plugin][1]) for plugin, (_, normalized, weight) in new.items()
    }
    return {plugin: difference for plugin, difference in differences.items() if difference}
