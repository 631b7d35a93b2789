"""A scheduler of your own: the `berth` command with one more plugin built in.

    python examples/custom_scheduler/custom_scheduler.py simulate -f examples/demo/cluster \\
        --config examples/custom_scheduler/scheduler.yaml

As with kube-scheduler's `NewSchedulerCommand(WithPlugin(...))`, the program registers the plugin and a
configuration enables it. The plugin runs in the host's process. The same class can also be served from
another process.
"""

from __future__ import annotations

import berth_host
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin, ScoreNormalization
from berth_sdk.pod import Pod
from berth_sdk.status import Status
from berth_sdk.tables import NodeView


class QuietHours(Plugin):
    """Keeps background work off the nodes that serve customers. Argument: `pool`, the instance type of these
    nodes.
    """

    normalization = ScoreNormalization.NONE
    depends_on = DependsOn.NODE

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        """Reject pods of the namespace `batch` on nodes that serve customers."""
        if pod.namespace == "batch" and self._serves_customers(node):
            return Status.unschedulable("node serves customers")
        return Status.success()

    def score(self, state: CycleState, pod: Pod, node: NodeView) -> int:
        """Prefer nodes that serve customers."""
        return 100 if self._serves_customers(node) else 0

    def _serves_customers(self, node: NodeView) -> bool:
        pool: object = self.args.get("pool", "general.8")
        return node.labels.get("node.kubernetes.io/instance-type") == pool


if __name__ == "__main__":
    berth_host.run(plugins={"QuietHours": QuietHours})
