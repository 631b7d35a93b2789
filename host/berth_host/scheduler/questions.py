"""Questions over a held snapshot, which leave no trace: where would a pod go, who could not leave a node?

    Questions.fit       one pod (`ask_pod`) between two cycles of a running host
    Questions.refit     the same about a pod of the cluster, which may be on a node
    Questions.drain     the pods of one node, one after the other, each with the room that the others left
    Questions.simulate  many pods, also on nodes that do not exist (`simulating`)

Nothing is assumed, reserved, nominated or evicted. `FrameworkAlone` asks by `ask_pod` and `simulating`, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from berth_sdk.pod import Pod
from berth_sdk.status import Status

from berth_host.cache.cache import Cache
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.config.configuration import LoadedConfiguration
from berth_host.errors.endpoints import UnknownObjectError
from berth_host.explain.nearest_fit import FIT_PLUGIN, Shortage, counted_in, grouped, lacking
from berth_host.explain.pod_fit import DrainAnswer, PodFit
from berth_host.scheduler.ask_pod import ask_pod
from berth_host.scheduler.schedule_one import Scheduler
from berth_host.scheduler.simulating import HostRoom, Simulation, Wanted, profile_of

_MIRROR: Final = "kubernetes.io/config.mirror"


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
            found = await ask_pod(
                scheduler.steps, profile, self._host.snapshot.nodes, pod, about=about, preempts=True
            )
        return replace(found, nearest=nearest(pod, found.verdicts, self._host))

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

        All these pods leave the node at once, as in a drain, and are then placed one after the other, those
        of the highest priority first. Nobody is preempted for them. Raises UnknownObjectError.
        """
        scheduler, snapshot = self._host.scheduler, self._host.snapshot
        moves: list[PodFit] = []
        async with scheduler.undisturbed() as about:
            node = snapshot.nodes.node_named(node_name)
            if node is None:
                names = difflib.get_close_matches(node_name, snapshot.nodes.names, n=3)
                cure = f": did you mean {', '.join(names)}?" if names else ""
                raise UnknownObjectError(f"there is no node {node_name}{cure}")
            stay = {pod.key: why for pod in node.pods if (why := self._why_stays(pod))}
            leaving = [pod for pod in node.pods if pod.key not in stay]
            leaving.sort(key=lambda pod: (-pod.priority, pod.key))
            for pod in leaving:
                snapshot.remove(pod.uid)
            for pod in leaving:
                asked = replace(pod, node_name="", nominated_node="")
                found = await ask_pod(
                    scheduler.steps,
                    profile_of(pod, scheduler.profiles),
                    snapshot.nodes,
                    asked,
                    about=about,
                    without=node_name,
                )
                if found.node:
                    snapshot.assume(asked.on_node(found.node))
                others = {name: status for name, status in found.verdicts.items() if name != node_name}
                moves.append(replace(found, verdicts=others))
        return DrainAnswer(node=node_name, moves=moves, stay=dict(sorted(stay.items())))

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
