"""Says whether a pod, or a group of pods, would fit. Uses only the framework, without a scheduler or a
cluster.

    python examples/fits/fits.py POD.yaml NODE.yaml [NODE.yaml ...]
    python examples/fits/fits.py GROUP-AND-ITS-PODS.yaml NODE.yaml [NODE.yaml ...]

Files may hold all that manifests can: several documents, Lists, YAML or JSON; pods, PodGroups and nodes in
any order, such as `kubectl get nodes,pods,podgroups -A -o yaml` prints them. Each node is an existing one, or
the template of a node that an autoscaler could add. Pods with a node (`spec.nodeName`) use its resources.
Exit code 0: every pod fits on one of the nodes, and the minimum of every group fits at once; 1: one of them
does not fit; 2: the files cannot be used.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from berth_host import Fit, FrameworkAlone, ManualClock, TryGroup, load_configuration
from berth_host.errors.manifests import ManifestError
from berth_host.model.resources import COSCHEDULING_GROUPS as GROUPS_OF_COSCHEDULING
from berth_host.plugins.registry import ClassRegistry
from berth_host.questions.group_trials import GroupFit
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.pod_group import PodGroup
from berth_sim import ApiServer
from berth_sim.manifests.loading import load

GROUPS: Final = "scheduling.k8s.io/podgroups"
ENDED: Final = ("Succeeded", "Failed")
CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
COSCHEDULING: Final = """
profiles:
- plugins:
    multiPoint: {enabled: [{name: Coscheduling}]}
    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: "*"}]}
"""


def made(nodes: Sequence[Node], running: Sequence[Pod], groups: Sequence[PodGroup]) -> FrameworkAlone:
    """Return the default plugins over the nodes, with what the groups need: gates, or Coscheduling."""
    gates = {
        "GenericWorkload": any(not group.is_coscheduling for group in groups),
        "TopologyAwareWorkloadScheduling": any(group.topology_key for group in groups),
    }
    of_coscheduling = any(group.is_coscheduling for group in groups)
    configuration = load_configuration(
        CONFIGURATION + (COSCHEDULING if of_coscheduling else ""),
        source="fits",
        registered=ClassRegistry().points(),
        feature_gates=gates,
    )
    framework = FrameworkAlone(configuration)
    for node in nodes:
        framework.add_node(node)
    for pod in running:
        framework.add_pod(pod)
    return framework


def show_pod(framework: FrameworkAlone, pod: Pod, head: str) -> bool:
    """Print one line per node. Return True if the pod fits on one of them."""
    answers = asyncio.run(framework.ask(Fit(pod, verdicts_only=True))).verdicts
    for name, status in answers.items():
        said = "fits" if status.is_success else f"{status.message} ({status.plugin})"
        print(f"{head}{name}: {said}")
    return any(status.is_success for status in answers.values())


def show_group(name: str, answer: GroupFit) -> None:
    """Print whether the group fits, then one line per pod."""
    where = f" in {answer.placement}" if answer.placement else ""
    print(f"PodGroup {name}: " + (f"fits{where}" if answer.fits else f"does not fit: {answer.message}"))
    for pod, node_name in answer.assignments.items():
        print(f"  {pod} on {node_name}")
    for pod, message in answer.unfit.items():
        print(f"  {pod}: {message}")
    if answer.untried:
        count = len(answer.untried)
        print(f"  {count} {'pod' if count == 1 else 'pods'} not tried")
    for tried in answer.placements if len(answer.placements) > 1 else ():
        said = tried.message or "fits"
        print(f"  {tried.name} ({tried.nodes} nodes): {tried.placed} pods placed, {said}")


def strangers(pods: Sequence[Pod], groups: Sequence[PodGroup]) -> str:
    """Return what is wrong with groups and their pods; "" for nothing."""
    known = {group.key for group in groups}
    for pod in pods:
        if pod.group_key and pod.group_key not in known:
            return f"pod {pod.key} belongs to {pod.group_key}, which no file has: name the file that has it"
    for group in groups:
        if not any(pod.group_key == group.key for pod in pods):
            return f"{group.key} has no pods: name the file that has its pods"
    return ""


def main(arguments: list[str]) -> int:
    """Print the answers about all pods without a node."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    server = ApiServer(ManualClock())
    try:
        load(arguments, server, sys.stdin.read)
    except ManifestError as err:
        print(err, file=sys.stderr)
        return 2
    nodes = [Node.from_object(node) for node in server.list("nodes")]
    groups = [PodGroup.of(item) for kind in (GROUPS, GROUPS_OF_COSCHEDULING) for item in server.list(kind)]
    of_coscheduling = any(group.is_coscheduling for group in groups)
    pods = [
        Pod.from_object(pod, groups=True, coscheduling=of_coscheduling)
        for pod in server.list("pods")
        if pod.get("status.phase") not in ENDED
    ]
    waiting = [pod for pod in pods if not pod.node_name]
    problem = strangers(pods, groups)
    if not nodes or not waiting:
        lacking = "pod without a node" if nodes else "node"
        problem = f"the files have no {lacking}: name one that has"
    if problem:
        print(problem, file=sys.stderr)
        return 2
    framework = made(nodes, [pod for pod in pods if pod.node_name], groups)
    everything_fits = True
    for pod in waiting:
        if not pod.group_key:
            everything_fits &= show_pod(framework, pod, f"{pod.key} on " if len(waiting) > 1 else "")
    for group in groups:
        members = [pod for pod in waiting if pod.group_key == group.key]
        if not members:
            continue  # all of them run
        try:
            answer = asyncio.run(framework.ask(TryGroup(group, members)))
        except ValueError as err:
            print(err, file=sys.stderr)
            return 2
        show_group(f"{group.namespace}/{group.name}", answer)
        everything_fits &= answer.fits
    return 0 if everything_fits else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
