"""PreBind whose write has no answer: the devices stay reserved until the claim shows whether it has them."""

from __future__ import annotations

import pytest
from berth_plugins.dynamic_resources.binding import FINALIZER
from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.results import PatchOutcome, PatchResult, PreBindResult
from berth_sdk.status import SUCCESS, Code
from support.device_cluster import NODES, Cluster, value
from support.device_objects import claim, device, exactly, pod_with, resource_slice


@pytest.mark.parametrize("outcome", [PatchOutcome.UNKNOWN, PatchOutcome.REFUSED])
async def test_device_is_free_after_a_failed_write_only_if_the_write_was_refused(
    outcome: PatchOutcome,
) -> None:
    items = [claim(name, exactly(), metadata={"finalizers": [FINALIZER]}) for name in ("c0", "c1")]
    cluster = Cluster(items, [resource_slice("n1", [device("d0")])])
    pod, state = Pod.from_object(pod_with("c0")), CycleState("a")
    await cluster.found(pod, state)
    assert await value(cluster.plugin.reserve(state, pod, "n1")) == SUCCESS
    made = await cluster.plugin.pre_bind(state, pod, "n1", ())
    assert isinstance(made, PreBindResult)
    (patch,) = made.patches
    assert "allocation" in patch.merge_patch["status"]
    failed = await cluster.plugin.pre_bind(
        state, pod, "n1", [PatchResult(outcome=outcome, ref=patch.ref, message="timed out")]
    )
    assert not isinstance(failed, PreBindResult)
    assert failed.code is Code.ERROR
    await cluster.plugin.unreserve(state, pod, "n1")

    other = Pod.from_object(pod_with("c1", name="other"))
    another = CycleState("b")
    assert await value(cluster.plugin.pre_filter(another, other, NODES)) == SUCCESS
    on_its_node = (await value(cluster.plugin.filter_nodes(another, other, NODES))).to_list()[0]
    assert on_its_node.is_success is (outcome is PatchOutcome.REFUSED)
