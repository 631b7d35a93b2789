"""The cluster after a run -> the node of each pod, or the reason why it has none.

`simulation` calls it. The report is made from the API objects: the message of a pending pod is that of its
PodScheduled condition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from berth_host.explain.explanation import gated_text
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import DEFAULT_SCHEDULER_NAME

from berth_sim.cluster.server import ApiServer
from berth_sim.commands.report import PendingPod, Placement, Report, Summary
from berth_sim.manifests.loading import Loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The facts that the host knows beyond the API objects. The functions take a pod's `namespace/name`.

    `preempted_by`: returns the preemptor, or None. `gate`: returns the plugin that gates the pod, and its
    message. `last_attempt`: returns the message of the latest attempt.
    """

    scheduler_names: Collection[str]
    preempted_by: Callable[[str], str | None]
    gate: Callable[[str], tuple[str, str] | None]
    last_attempt: Callable[[str], str | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The figures of a run.

    `bound_before`: the number of pods with a node in the input. `is_interrupted`: the run was interrupted, so
    pods may be undecided. `lapses`: see `lapses_of`.
    """

    seconds: float
    seed: int
    bound_before: int
    is_interrupted: bool = False
    lapses: tuple[str, ...] = ()


def report_of(server: ApiServer, loaded: Loaded, witness: Witness, run: Run) -> Report:
    """Return the report, with every pod of the input in one of its lists.

    Only an interrupted run has undecided pods.
    """
    placements: list[Placement] = []
    pending: list[PendingPod] = []
    undecided: list[str] = []
    for key in loaded.pod_keys:
        namespace, _, name = key.partition("/")
        pod = server.get("pods", ObjectRef(namespace=namespace, name=name))
        owner = loaded.owners.get(key)
        node = pod.get("spec.nodeName") if pod is not None else None
        if pod is not None and node:
            annotations = pod.get("metadata.annotations", {})
            placements.append(Placement(pod=key, node=node, annotations=annotations, owner=owner))
        elif (message := loaded.refused.get(key) or message_of(key, pod, witness)) or not run.is_interrupted:
            pending.append(PendingPod(pod=key, message=message or _NOT_TRIED, owner=owner))
        else:
            undecided.append(key)
    summary = Summary(
        nodes=len(server.list("nodes")),
        placed=len(placements),
        pending=len(pending),
        finished=loaded.finished_count,
        newly_placed=max(0, len(placements) - run.bound_before),
        seconds=run.seconds,
        seed=run.seed,
        gaps=loaded.gaps,
        lapses=run.lapses,
        undecided=len(undecided),
        is_interrupted=run.is_interrupted,
    )
    return Report(
        placements=tuple(placements), pending=tuple(pending), undecided=tuple(undecided), summary=summary
    )


_DELETED: Final = "deleted while the simulation ran"
_NOT_TRIED: Final = "was not tried"


def message_of(key: str, pod: KubeObject | None, witness: Witness) -> str:
    """Return why a pod has no node; "" if the reason is not known yet."""
    if pod is None:
        preemptor = witness.preempted_by(key)
        return f"preempted by {preemptor}" if preemptor else _DELETED
    if pod.get("metadata.deletionTimestamp") is not None:
        preemptor = witness.preempted_by(key)
        return f"preempted by {preemptor}" if preemptor else "is being deleted"
    scheduler = pod.get("spec.schedulerName") or DEFAULT_SCHEDULER_NAME
    if scheduler not in witness.scheduler_names:
        known = ", ".join(sorted(witness.scheduler_names))
        return f"waits for another scheduler: its schedulerName is {scheduler!r}, this one is {known}"
    gates = [str(gate.get("name")) for gate in pod.get("spec.schedulingGates", [])]
    gate = witness.gate(key)
    if gates or gate:
        return gated_text(gates, *(gate or ("", "")))
    for condition in pod.get("status.conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return witness.last_attempt(key) or ""
