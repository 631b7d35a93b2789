"""`Drain`: which pods of a node could go elsewhere, and which could not?"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_sdk.pod import Pod

from berth_host.errors.endpoints import QuestionError, UnknownObjectError
from berth_host.explain.pod_fit import DrainAnswer, Eviction, PodFit
from berth_host.questions.ask_pod import AboutAttempt, ask_pod
from berth_host.questions.disruptions import Disruptions, is_replaced
from berth_host.questions.question_notes import notes_about_leaving
from berth_host.questions.questions import AskedCluster, Question

_MIRROR: Final = "kubernetes.io/config.mirror"
_UNWATCHED: Final = (
    "PodDisruptionBudgets are not considered: this scheduler does not watch them, as no profile has a"
    " PostFilter plugin"
)


@dataclass(frozen=True, slots=True)
class Drain(Question[DrainAnswer]):
    """Which pods of the node `node_name` could go elsewhere, and which could not?

    The pods that their PodDisruptionBudgets let go leave the node at once, as in a drain, and are then
    placed one after the other, those of the highest priority first. Then the next ones leave, for which
    those made room in their budgets, and so on; at last those that no budget lets go. Nobody is preempted
    for them. A pod without a controller takes its room, too, for who makes it anew.
    """

    node_name: str

    async def answer(self, cluster: AskedCluster) -> DrainAnswer:
        """Return the answer. Raises QuestionError, and UnknownObjectError for a node that is not there."""
        return await _Draining(cluster, self.node_name).answer()


class _Draining:
    """One drain of one node of a cluster."""

    def __init__(self, cluster: AskedCluster, node_name: str) -> None:
        self._cluster = cluster
        self._node_name = node_name

    async def answer(self) -> DrainAnswer:
        """Return the answer. Raises UnknownObjectError."""
        cluster, node_name = self._cluster, self._node_name
        snapshot = cluster.snapshot
        async with cluster.undisturbed() as about:
            node = snapshot.nodes.node_named(node_name)
            if node is None:
                names = difflib.get_close_matches(node_name, snapshot.nodes.names, n=3)
                cure = f": did you mean {', '.join(names)}?" if names else ""
                raise UnknownObjectError(f"there is no node {node_name}{cure}")
            stay = {pod.key: why for pod in node.pods if (why := self._why_stays(pod))}
            leaving = [pod for pod in node.pods if pod.key not in stay]
            leaving.sort(key=lambda pod: (-pod.priority, pod.key))
            moves, refused = await self._rounds(leaving, about)
        notes = [*([_UNWATCHED] if cluster.budgets is None else ()), *notes_about_leaving(leaving)]
        return DrainAnswer(
            node=node_name,
            moves=moves,
            stay=dict(sorted(stay.items())),
            refused=refused,
            unmanaged=frozenset(pod.key for pod in leaving if not is_replaced(pod)),
            notes=notes,
        )

    async def _rounds(
        self, leaving: Sequence[Pod], about: AboutAttempt
    ) -> tuple[list[PodFit], dict[str, Eviction]]:
        """Return the moves of all pods in the order of their evictions, and the pods that are refused at
        first.
        """
        known = self._cluster.budgets
        budgets = Disruptions(() if known is None else known.list(), self._pods_of)
        moves: list[PodFit] = []
        refused: dict[str, Eviction] = {}
        number = 1
        while leaving:
            going: list[Pod] = []
            waiting: list[Pod] = []
            for pod in leaving:
                refusal = budgets.evict(pod)
                if refusal is not None:
                    refused.setdefault(pod.key, refusal)
                elif pod.key in refused:
                    refused[pod.key] = replace(refused[pod.key], round=number)
                (going if refusal is None else waiting).append(pod)
            if not going:
                # The drain ends here. Where these could go is said all the same.
                going, waiting = waiting, []
            found = await self._place(going, about)
            moves += found
            for pod, move in zip(going, found, strict=True):
                if move.node and is_replaced(pod):
                    budgets.replaced(pod)
            leaving, number = waiting, number + 1
        return moves, refused

    async def _place(self, going: Sequence[Pod], about: AboutAttempt) -> list[PodFit]:
        """Take pods from their node, and return where each would go, with the room that the others left."""
        cluster, node_name = self._cluster, self._node_name
        snapshot = cluster.snapshot
        moves: list[PodFit] = []
        for pod in going:
            snapshot.remove(pod.uid)
        for pod in going:
            asked = replace(pod, node_name="", nominated_node="")
            profile = cluster.profile_of(pod)
            found = await ask_pod(
                cluster.steps, profile, snapshot.nodes, asked, about=about, without=node_name
            )
            if found.node:
                snapshot.assume(asked.on_node(found.node))
            others = {name: status for name, status in found.verdicts.items() if name != node_name}
            moves.append(replace(found, verdicts=others))
        return moves

    def _pods_of(self, namespace: str) -> list[Pod]:
        return [pod for pod in self._cluster.objects.pods() if pod.namespace == namespace]

    def _why_stays(self, pod: Pod) -> str:
        """Return why a drain leaves a pod alone, or why nobody here knows where it goes; "" if it moves."""
        owners = () if pod.object is None else pod.object.get("metadata.ownerReferences") or ()
        if any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners):
            return "belongs to a DaemonSet"
        if pod.object is not None and _MIRROR in (pod.object.get("metadata.annotations") or {}):
            return "is a static pod"
        if pod.terminating:
            return "is being deleted"
        if self._cluster.cache.is_assumed(pod.uid):
            return "is being bound to the node now"
        try:
            self._cluster.profile_of(pod)
        except QuestionError:
            return f"is placed by another scheduler, {pod.scheduler_name}"
        return ""
