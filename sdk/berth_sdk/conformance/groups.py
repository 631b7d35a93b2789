"""Cases of the level group: the calls about pods that are placed together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from berth_sdk.conformance import checks
from berth_sdk.conformance.case import BrokenError, case, declares
from berth_sdk.conformance.host import PROFILE, Cycle, Host
from berth_sdk.conformance.world import incoming, pod_object
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling

_MEMBERS = 3
Code = pb.PluginStatus


@dataclass
class GroupCycle(Cycle):
    """A cycle of a group, or, with a `parent`, of one of its placements."""

    parent: str = ""

    def context(
        self, *, complete: bool | None = None, binding: bool = False, **fields: Any
    ) -> pb.CallContext:
        """Return the context of the next call."""
        host, subject = self.host, self.host.subject
        made = pb.CallContext(
            cycle_id=self.id,
            plugin=subject.plugin.name,
            profile=PROFILE,
            attachment_id=host.attachment_id,
            plugin_token=self.token,
        )
        group = made.group
        group.complete = True
        group.summary.ref.CopyFrom(pb.ObjectRef(namespace="default", name="kit-group", uid="uid-kit-group"))
        group.summary.gang, group.summary.min_count = True, 2
        whole = identity.DeclaredNeed.KIND_WHOLE_POD in subject.kinds
        for number in range(_MEMBERS):
            member = group.pods.add(complete=True, summary=incoming(f"kit-member-{number}", host.target.pod))
            if whole:
                member.object.CopyFrom(pod_object(member.summary, "incoming", host.target.pod_manifest))
        if whole:
            raw = b'{"metadata":{"namespace":"default","name":"kit-group","uid":"uid-kit-group"},"spec":{}}'
            group.object.CopyFrom(
                pb.KubeObject(api_version="scheduling.k8s.io/v1alpha2", kind="PodGroup", raw=raw)
            )
        if subject.keeps_state:
            made.version.CopyFrom(host.world.version)
        if self.parent:
            made.parents.add(cycle_id=self.parent)
        made.MergeFrom(pb.CallContext(**fields))
        return made


def group_cycle(host: Host, parent: str = "") -> GroupCycle:
    """Begin a cycle of a group. `parent`: the id of the cycle of the group, in that of a placement."""
    like = host.cycle("kit-group")
    return GroupCycle(host, like.id, like.pod_name, parent=parent)


@case(
    "placementGenerate.answer",
    "group",
    "Placements have names of their own, and hold nodes of the parent alone, each once.",
    declares("PLACEMENT_GENERATE"),
)
def _generate(host: Host) -> None:
    everything = host.world.candidates
    for nodes in (None, everything[::2]):
        parent = scheduling.PlacementNodes(name="" if nodes is None else "half", nodes=host.candidates(nodes))
        answer = group_cycle(host).ask("PlacementGenerate", parent=parent)
        checks.decision("PlacementGenerate", answer.ctx)
        names = [placement.name for placement in answer.placements]
        if len(set(names)) != len(names):
            raise BrokenError("PlacementGenerate answers two placements with one name")
        if len(names) > 10_000:
            raise BrokenError(f"PlacementGenerate answers {len(names)} placements; 10,000 is the limit")
        for placement in answer.placements:
            checks.members("PlacementGenerate", host, placement.nodes, everything if nodes is None else nodes)


@case(
    "placementScore.answer",
    "group",
    "A placement gets a score, in 0..100 unless a second call brings it there.",
    declares("PLACEMENT_SCORE"),
)
def _placement_score(host: Host) -> None:
    score = _score_of(host, group_cycle(host))
    if not host.subject.has("NORMALIZE_PLACEMENT_SCORE") and not 0 <= score <= 100:
        raise BrokenError(f"PlacementScore answers the score {score}, which is outside 0..100")


@case(
    "normalizePlacementScore.answer",
    "group",
    "There is one score in 0..100 for each placement.",
    declares("NORMALIZE_PLACEMENT_SCORE"),
)
def _normalize(host: Host) -> None:
    nodes = host.world.candidates
    placements = [
        scheduling.PlacementNodes(name="even", nodes=host.candidates(nodes[::2])),
        scheduling.PlacementNodes(name="odd", nodes=host.candidates(nodes[1::2])),
    ]
    for raw in ([0, 0], [3, 7]):
        answer = group_cycle(host).ask("NormalizePlacementScore", placements=placements, raw_scores=raw)
        if not checks.is_success(checks.decision("NormalizePlacementScore", answer.ctx)):
            continue
        found = list(answer.scores)
        if len(found) != 2:
            raise BrokenError(f"NormalizePlacementScore answers {len(found)} scores for 2 placements")
        if wrong := [score for score in found if not 0 <= score <= 100]:
            raise BrokenError(f"NormalizePlacementScore answers {wrong[0]}, which is outside 0..100")


@case(
    "placementFeasible.answer",
    "group",
    "The runs add up to the number of steps, and each has a code with a meaning there.",
    declares("PLACEMENT_FEASIBLE"),
)
def _feasible(host: Host) -> None:
    for remaining, failures in ((3, 0), (3, 1), (3, 5), (0, 0)):
        steps = sum(remaining - failed + 1 for failed in range(min(failures, remaining) + 1))
        answer = group_cycle(host, "kit-parent").ask(
            "PlacementFeasible", scheduled=0, remaining=remaining, max_failures=failures
        )
        code = checks.decision("PlacementFeasible", answer.ctx)
        if not checks.is_success(code):
            continue
        if any(run.count == 0 for run in answer.runs):
            raise BrokenError("PlacementFeasible answers a run of no step")
        total = sum(run.count for run in answer.runs)
        if total != steps:
            raise BrokenError(f"PlacementFeasible answers runs of {total} steps in all for {steps} steps")
        for run in answer.runs:
            if run.HasField("status"):
                checks.status("a run", run.status)


@case(
    "podGroupPostFilter.answer",
    "group",
    "Nominations are of members and of nodes that exist; no victim is named that runs nowhere.",
    declares("POD_GROUP_POST_FILTER"),
)
def _post_filter(host: Host) -> None:
    answer = group_cycle(host).ask("PodGroupPostFilter", reached_pre_filter=True)
    checks.decision("PodGroupPostFilter", answer.ctx)
    checks.patches("PodGroupPostFilter", host, answer.patches, None)
    members = {f"uid-kit-member-{number}" for number in range(_MEMBERS)}
    nodes = {node.name for node in host.world.candidates}
    running = {uid for node in host.world.candidates for uid in node.pods}
    for nomination in answer.nominations:
        if nomination.pod.uid not in members:
            raise BrokenError(f"PodGroupPostFilter nominates {nomination.pod.name!r}, which is no member")
        if nomination.node_name and nomination.node_name not in nodes:
            raise BrokenError(f"PodGroupPostFilter nominates the unknown node {nomination.node_name!r}")
    if strange := [victim.name for victim in answer.victims if victim.uid not in running]:
        raise BrokenError(f"PodGroupPostFilter names the victim {strange[0]!r}, which is on no node")


def _score_of(host: Host, cycle: GroupCycle) -> int:
    node = host.world.candidates[0]
    assigned = scheduling.PlacementAssignment(
        pod=pb.ObjectRef(namespace="default", name="kit-member-0", uid="uid-kit-member-0"),
        node_name=node.name,
    )
    answer = cycle.ask(
        "PlacementScore",
        placement=scheduling.PlacementNodes(name="all", nodes=host.candidates()),
        assignments=[assigned],
    )
    checks.decision("PlacementScore", answer.ctx)
    score: int = answer.score
    return score
