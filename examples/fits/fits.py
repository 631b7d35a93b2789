"""Says whether a pod would fit on a node. Uses only the framework, without a scheduler or a cluster.

    python examples/fits/fits.py POD.yaml NODE.yaml [NODE.yaml ...]

Files may hold all that manifests can: several documents, Lists, YAML or JSON; pods and nodes in any order.
Each node is an existing one, or the template of a node that an autoscaler could add. Exit code 0: every pod
fits on one of the nodes; 1: a pod fits on none; 2: the files cannot be used.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from berth_host.app.alone import FrameworkAlone
from berth_host.cluster.memory.manifests.loading import load
from berth_host.cluster.memory.server import ApiServer
from berth_host.errors.manifests import ManifestError
from berth_host.model.clock import ManualClock
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status


def verdicts(pod: Mapping[str, Any], nodes: list[Mapping[str, Any]]) -> dict[str, Status]:
    """Return the verdict of all default plugins on each node, by the node's name."""
    framework = FrameworkAlone()
    for node in nodes:
        framework.add_node(Node.from_object(node))
    return asyncio.run(framework.fits(Pod.from_object(pod)))


def main(arguments: list[str]) -> int:
    """Print one line per node."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    server = ApiServer(ManualClock())
    try:
        load(arguments, server, sys.stdin.read)
    except ManifestError as err:
        print(err, file=sys.stderr)
        return 2
    nodes = [node.parsed for node in server.list("nodes")]
    pods = server.list("pods")
    if not nodes or not pods:
        print(f"the files have no {'pod' if nodes else 'node'}: name one that has", file=sys.stderr)
        return 2
    every_pod_fits = True
    for pod in pods:
        answers = verdicts(pod.parsed, nodes)
        every_pod_fits &= any(status.is_success for status in answers.values())
        head = f"{pod.ref.key} on " if len(pods) > 1 else ""
        for name, status in answers.items():
            said = "fits" if status.is_success else f"{status.message} ({status.plugin})"
            print(f"{head}{name}: {said}")
    return 0 if every_pod_fits else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
