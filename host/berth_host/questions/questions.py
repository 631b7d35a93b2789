"""Questions over a held snapshot, which leave no trace: where would a pod go, who could not leave a node?

    Questions.fit       one pod (`ask_gates`, `ask_pod`) between two cycles of a running host
    Questions.refit     the same about a pod of the cluster, which may be on a node
    Questions.drain     the pods of one node, one after the other, each with the room that the others left
    Questions.simulate  many pods, also on nodes that do not exist (`simulating`)

Nothing is assumed, reserved, nominated or evicted. `FrameworkAlone` asks by `ask_pod` and `simulating`, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import ObjectStore

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.loop import Scheduler
from berth_host.errors.endpoints import UnknownObjectError
from berth_host.explain.nearest_fit import FIT_PLUGIN, Shortage, counted_in, grouped, lacking
from berth_host.explain.pod_fit import DrainAnswer, Eviction, PodFit
from berth_host.questions.ask_pod import AboutAttempt, ask_gates, ask_pod
from berth_host.questions.disruptions import Disruptions, is_replaced
from berth_host.questions.question_notes import notes_about, notes_about_leaving
from berth_host.questions.simulating import HostRoom, Simulation, Wanted, profile_of

_MIRROR: Final = "kubernetes.io/config.mirror"
_UNWATCHED: Final = (
    "PodDisruptionBudgets are not considered: this scheduler does not watch them, as no profile has a"
    " PostFilter plugin"
)


class AskedHost(Protocol):
    """The parts of a host that questions read."""

    configuration: LoadedConfiguration

    @property
    def scheduler(self) -> Scheduler:
        """The scheduling loop."""
        ...

    @property
    def cache(self) -> Cache:
        """The nodes with their pods."""
        ...

    @property
    def objects(self) -> ObjectStores:
        """The objects from the watches."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the scheduling cycles."""
        ...

    @property
    def budgets(self) -> ObjectStore | None:
        """The PodDisruptionBudgets; None: the host does not watch them."""
        ...


class Questions:
    """The questions to one running host. One runs at a time, while no scheduling cycle runs."""

    def __init__(self, host: AskedHost) -> None:
        self._host = host

    def simulate(self, wanted: Wanted) -> Simulation:
        """Return where pods would go, once it is run. Raises QuestionError."""
        return Simulation(HostRoom(self._host.scheduler, self._host.snapshot), wanted)

    async def fit(self, pod: Pod) -> PodFit:
        """Return where the pod would go now. Raises QuestionError."""
        scheduler = self._host.scheduler
        profile = profile_of(pod, scheduler.profiles)
        async with scheduler.undisturbed() as about:
            gates, notes = await ask_gates(profile.framework, pod)
            found = await ask_pod(
                scheduler.steps, profile, self._host.snapshot.nodes, pod, about=about, preempts=True
            )
        near = nearest(pod, found.verdicts, self._host)
        return replace(found, nearest=near, gates=gates, notes=[*notes, *found.notes, *notes_about([pod])])

    async def refit(self, key: str) -> PodFit | None:
        """Return where the pod `namespace/name` of the cluster would go now; None if there is no such pod.

        A pod that has a node, or is being bound to one, is asked about as if it had left this node. Its own
        nomination does not count, so that every node is asked about. Nobody is preempted for it. Raises
        QuestionError.
        """
        scheduler, snapshot = self._host.scheduler, self._host.snapshot
        async with scheduler.undisturbed() as about:
            pod = self._host.objects.pod(key)
            if pod is None:
                return None
            profile = profile_of(pod, scheduler.profiles)
            left = ""
            if snapshot.pods.position(pod.uid) is not None:
                left = snapshot.remove(pod.uid).node_name
            asked = replace(pod, node_name="", nominated_node="")
            found = await ask_pod(scheduler.steps, profile, snapshot.nodes, asked, about=about)
        return replace(found, left=left)

    async def drain(self, node_name: str) -> DrainAnswer:
        """Return which pods of a node could go elsewhere, and which could not.

        The pods that their PodDisruptionBudgets let go leave the node at once, as in a drain, and are then
        placed one after the other, those of the highest priority first. Then the next ones leave, for which
        those made room in their budgets, and so on; at last those that no budget lets go. Nobody is preempted
        for them. A pod without a controller takes its room, too, for who makes it anew. Raises
        UnknownObjectError.
        """
        scheduler, snapshot = self._host.scheduler, self._host.snapshot
        async with scheduler.undisturbed() as about:
            node = snapshot.nodes.node_named(node_name)
            if node is None:
                names = difflib.get_close_matches(node_name, snapshot.nodes.names, n=3)
                cure = f": did you mean {', '.join(names)}?" if names else ""
                raise UnknownObjectError(f"there is no node {node_name}{cure}")
            stay = {pod.key: why for pod in node.pods if (why := self._why_stays(pod))}
            leaving = [pod for pod in node.pods if pod.key not in stay]
            leaving.sort(key=lambda pod: (-pod.priority, pod.key))
            moves, refused = await self._rounds(node_name, leaving, about)
        notes = [*([_UNWATCHED] if self._host.budgets is None else ()), *notes_about_leaving(leaving)]
        return DrainAnswer(
            node=node_name,
            moves=moves,
            stay=dict(sorted(stay.items())),
            refused=refused,
            unmanaged=frozenset(pod.key for pod in leaving if not is_replaced(pod)),
            notes=notes,
        )

    async def _rounds(
        self, node_name: str, leaving: Sequence[Pod], about: AboutAttempt
    ) -> tuple[list[PodFit], dict[str, Eviction]]:
        """Return the moves of all pods in the order of their evictions, and the pods that are refused at
        first.
        """
        known = self._host.budgets
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
            found = await self._place(node_name, going, about)
            moves += found
            for pod, move in zip(going, found, strict=True):
                if move.node and is_replaced(pod):
                    budgets.replaced(pod)
            leaving, number = waiting, number + 1
        return moves, refused

    async def _place(self, node_name: str, going: Sequence[Pod], about: AboutAttempt) -> list[PodFit]:
        """Take pods from their node, and return where each would go, with the room that the others left."""
        steps, snapshot = self._host.scheduler.steps, self._host.snapshot
        moves: list[PodFit] = []
        for pod in going:
            snapshot.remove(pod.uid)
        for pod in going:
            asked = replace(pod, node_name="", nominated_node="")
            profile = profile_of(pod, self._host.scheduler.profiles)
            found = await ask_pod(steps, profile, snapshot.nodes, asked, about=about, without=node_name)
            if found.node:
                snapshot.assume(asked.on_node(found.node))
            others = {name: status for name, status in found.verdicts.items() if name != node_name}
            moves.append(replace(found, verdicts=others))
        return moves

    def _pods_of(self, namespace: str) -> list[Pod]:
        return [pod for pod in self._host.objects.pods() if pod.namespace == namespace]

    def _why_stays(self, pod: Pod) -> str:
        """Return why a drain leaves a pod alone, or why nobody here knows where it goes; "" if it moves."""
        owners = () if pod.object is None else pod.object.get("metadata.ownerReferences") or ()
        if any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners):
            return "belongs to a DaemonSet"
        if pod.object is not None and _MIRROR in (pod.object.get("metadata.annotations") or {}):
            return "is a static pod"
        if pod.terminating:
            return "is being deleted"
        if self._host.cache.is_assumed(pod.uid):
            return "is being bound to the node now"
        if pod.scheduler_name not in self._host.scheduler.profiles:
            return f"is placed by another scheduler, {pod.scheduler_name}"
        return ""


def nearest(pod: Pod, verdicts: Mapping[str, Status], host: AskedHost) -> list[Shortage]:
    """Return what nodes lack that only NodeResourcesFit rejected, nearest first; empty if the pod fits."""
    if any(status.is_success for status in verdicts.values()):
        return []
    counts = counted_in(host.configuration.profile(pod.scheduler_name))
    found = []
    for name, status in verdicts.items():
        info, node = host.cache.node_info(name), host.objects.node(name)
        if status.plugin == FIT_PLUGIN and info is not None and node is not None:
            used = {**info.requested, "pods": len(info.pods)}
            found.append((name, lacking(pod, node, used, counts)))
    return grouped(pod, found)
