"""The failing plugin with the points about groups of pods, for a process that dies in the middle of a group.

    python -m support.grouping_plugin --listen unix:PATH      with BERTH_FAULTS naming a folder

Beside the files of `support.failing_plugin`, the journal says of each reservation whether it is `tentative`
or for `good`. Each node is a placement.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.pod_group import Assignment, GroupView, Placement, PlacementProgress
from berth_sdk.results import Trial, Tries
from berth_sdk.status import SUCCESS, Code, Status
from support import failing_plugin
from support.faulty_plugin import FOLDER, note, serve


class Failing(failing_plugin.Failing):
    """The same name, so that the same configuration is for it."""

    def placement_generate(self, state: CycleState, group: GroupView, parent: Placement) -> list[Placement]:
        return [Placement(name, parent.nodes.take([row])) for row, name in enumerate(parent.nodes.names)]

    def placement_score(
        self, state: CycleState, group: GroupView, placement: Placement, assignments: Sequence[Assignment]
    ) -> int:
        return 100 if placement.name == "n1" else 10

    def placement_feasible(self, state: CycleState, group: GroupView, progress: PlacementProgress) -> Status:
        return SUCCESS if progress.scheduled >= group.group.min_count else Status(Code.WAIT, ("not all",))

    def pod_group_post_filter(self, state: CycleState, group: GroupView, tries: Tries) -> Status:
        trial = tries.schedule([pod for node in self.handle.snapshot() for pod in node.pods])
        assert isinstance(trial, Trial)
        nodes = ",".join(sorted({one.node_name for one in trial.assignments})) or "-"
        note("tried", trial.status.code.name, nodes)
        return Status.unschedulable("nothing helps")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        how = "alone" if state.trial is None else "tentative" if state.trial.tentative else "good"
        note(how, state.cycle_id, node_name)
        return super().reserve(state, pod, node_name)


if __name__ == "__main__":
    (FOLDER / "pid").write_text(str(os.getpid()))
    sys.exit(serve(sys.argv[1:], "support.grouping_plugin:Failing"))
