"""`Fit`: where would a pod go now? `Refit`: the same about a pod of the cluster, which may be on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from berth_sdk.extension_points import Account, ExtensionPoint
from berth_sdk.pod import Pod
from berth_sdk.status import Status

from berth_host.explain.nearest_fit import Shortage, counted_in, grouped, lacking
from berth_host.explain.pod_fit import PodFit
from berth_host.questions.ask_pod import ask_gates, ask_pod
from berth_host.questions.question_notes import notes_about
from berth_host.questions.questions import AskedCluster, Manifest, Question


@dataclass(frozen=True, slots=True)
class Fit(Question[PodFit]):
    """Where would a pod go now?

    `pod`: a record, or a core/v1 Pod. `nominated`: pods with a `nominated_node`, which count as pods of that
    node; None: the nominated pods of the cluster. `verdicts_only`: only the verdict about each node is asked
    for: there is no best node, and gates, shortages and preemption are left out. `preemption` of the answer
    is None in a cluster of one's own.
    """

    pod: Pod | Manifest
    nominated: Sequence[Pod] | None = None
    verdicts_only: bool = False

    async def answer(self, cluster: AskedCluster) -> PodFit:
        """Return the answer. Raises QuestionError."""
        problems: list[str] = []
        if isinstance(self.pod, Pod):
            pod = self.pod
        else:
            reader = await cluster.reader([self.pod])
            pod = reader.pod(self.pod)
            problems += [reader.problem] if reader.problem else []
        profile = cluster.profile_of(pod)
        promised = None if self.nominated is None else _by_node(self.nominated)
        asks_more = not self.verdicts_only
        async with cluster.undisturbed() as about:
            gates, notes = await ask_gates(profile.framework, pod) if asks_more else ([], [])
            found = await ask_pod(
                cluster.steps,
                profile,
                cluster.snapshot.nodes,
                pod,
                about=about,
                preempts=asks_more and not cluster.is_own,
                scores=asks_more,
                promised=promised,
            )
        if not asks_more:
            return found
        notes = [*problems, *cluster.notes_about([pod]), *notes, *found.notes, *notes_about([pod])]
        return replace(found, nearest=_nearest(pod, found.verdicts, cluster), gates=gates, notes=notes)


@dataclass(frozen=True, slots=True)
class Refit(Question[PodFit | None]):
    """Where would the pod `key` (`namespace/name`) of the cluster go now? None: there is no such pod.

    A pod that has a node, or is being bound to one, is asked about as if it had left this node. Its own
    nomination does not count, so that every node is asked about. Nobody is preempted for it.
    """

    key: str

    async def answer(self, cluster: AskedCluster) -> PodFit | None:
        """Return the answer. Raises QuestionError."""
        snapshot = cluster.snapshot
        async with cluster.undisturbed() as about:
            pod = cluster.objects.pod(self.key)
            if pod is None:
                return None
            profile = cluster.profile_of(pod)
            left = ""
            if snapshot.pods.position(pod.uid) is not None:
                left = snapshot.remove(pod.uid).node_name
            asked = replace(pod, node_name="", nominated_node="")
            found = await ask_pod(cluster.steps, profile, snapshot.nodes, asked, about=about)
        return replace(found, left=left)


def _by_node(nominated: Sequence[Pod]) -> dict[str, list[Pod]]:
    promised: dict[str, list[Pod]] = {}
    for pod in nominated:
        promised.setdefault(pod.nominated_node, []).append(pod)
    return promised


def _nearest(pod: Pod, verdicts: Mapping[str, Status], cluster: AskedCluster) -> list[Shortage]:
    """Return what nodes lack that were rejected for lack of resources, nearest first; [] if the pod fits."""
    if any(status.is_success for status in verdicts.values()):
        return []
    framework = cluster.profile_of(pod).framework
    counting = framework.accounting_for(Account.RESOURCES, ExtensionPoint.FILTER)
    counts = counted_in(cluster.configuration.profile(framework.profile))
    found = []
    for name, status in verdicts.items():
        info, node = cluster.cache.node_info(name), cluster.objects.node(name)
        if status.plugin in counting and info is not None and node is not None:
            used = {**info.requested, "pods": len(info.pods)}
            found.append((name, lacking(pod, node, used, counts)))
    return grouped(pod, found)
