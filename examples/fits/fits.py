"""Says whether a pod would fit on a node. Uses the framework alone, without a scheduler or a cluster.

    python examples/fits/fits.py POD.yaml NODE.yaml [NODE.yaml ...]

Each NODE is an existing node, or the template of a node that an autoscaler could add. Exit code 0: the pod
fits on one of them; 1: on none.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from berth_host.app.alone import FrameworkAlone
from berth_sdk.node import Node
from berth_sdk.pod import Pod
from berth_sdk.status import Status


def verdicts(pod: Mapping[str, Any], nodes: list[Mapping[str, Any]]) -> dict[str, Status]:
    """The verdict of all default plugins on each node, by its name."""
    framework = FrameworkAlone()
    for node in nodes:
        framework.add_node(Node.from_object(node))
    return asyncio.run(framework.fits(Pod.from_object(pod)))


def main(arguments: list[str]) -> int:
    """Print one line per node."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    pod, *nodes = (yaml.safe_load(Path(path).read_text(encoding="utf-8")) for path in arguments)
    answers = verdicts(pod, nodes)
    for name, status in answers.items():
        print(f"{name}: {'fits' if status.is_success else f'{status.message} ({status.plugin})'}")
    return 0 if any(status.is_success for status in answers.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
