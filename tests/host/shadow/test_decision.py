"""A decision of a shadow: why it was not for another node."""

from __future__ import annotations

import numpy as np
from berth_host.explain.diagnosis import Rejection
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_host.shadow.decision import NOT_EVALUATED, Decision
from berth_sdk.status import Status
from berth_sdk.testing import make_pod


def decision(*names: str | None, rejecting: int) -> Decision:
    """Return a decision about the nodes in the slots, of which a plugin rejected one."""
    pod = make_pod("web")
    nodes = np.packbits(np.arange(len(names)) == rejecting, bitorder="little")
    status = Status.unschedulable("tainted").with_plugin("Taints")
    return Decision(
        pod=pod,
        queued=QueuedPodInfo(pod, timestamp_us=0),
        filters=frozenset(),
        names=np.array(names, dtype=np.object_),
        node_name=str(names[-1]),
        rejections=[Rejection(status, 1, nodes)],
    )


def test_slot_is_read_with_the_names_of_its_own_decision() -> None:
    """Slots are used again for other nodes, and outcomes come in any order."""
    before = decision("a", "b", None, "c", rejecting=1)
    after = decision("d", "a", "b", "c", rejecting=1)
    for _ in range(2):
        found = before.why_not("b")
        assert (found.plugin, found.reason) == ("Taints", "tainted")
        assert before.why_not("a").reason == NOT_EVALUATED
        assert after.why_not("a").reason == "tainted"
        assert after.why_not("b").reason == NOT_EVALUATED
        assert before.why_not("d").reason == after.why_not("gone").reason == NOT_EVALUATED
