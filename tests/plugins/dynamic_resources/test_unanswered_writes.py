"""PreBind whose write has no answer: the devices stay reserved until the claim shows whether it has them."""

from __future__ import annotations

import pytest
from berth_plugins.dynamic_resources.binding import FINALIZER
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.results import LiveReservation, ObjectPatch, PatchOutcome, PatchResult, PreBindResult
from berth_sdk.status import SUCCESS, Code
from support.device_cluster import NODES, Cluster, value
from support.device_objects import claim, device, exactly, pod_with, resource_slice


def two_claims_and_a_device() -> Cluster:
    items = [claim(name, exactly(), metadata={"finalizers": [FINALIZER]}) for name in ("c0", "c1")]
    return Cluster(items, [resource_slice("n1", [device("d0")])])


async def fail(cluster: Cluster, pod: Pod, outcome: PatchOutcome) -> ObjectPatch:
    """Let the pod's attempt end with this outcome of its write; return the write."""
    plugin, state = cluster.plugin, CycleState("a")
    patch = await first_write(cluster, pod, state)
    failed = await plugin.pre_bind(state, pod, "n1", [PatchResult(outcome=outcome, ref=patch.ref)])
    assert not isinstance(failed, PreBindResult)
    assert failed.code is Code.ERROR
    await plugin.unreserve(state, pod, "n1")
    return patch


async def first_write(cluster: Cluster, pod: Pod, state: CycleState) -> ObjectPatch:
    await cluster.found(pod, state)
    assert await value(cluster.plugin.reserve(state, pod, "n1")) == SUCCESS
    made = await cluster.plugin.pre_bind(state, pod, "n1", ())
    assert isinstance(made, PreBindResult)
    (patch,) = made.patches
    assert "allocation" in patch.merge_patch["status"]
    return patch


@pytest.mark.parametrize("outcome", [PatchOutcome.UNKNOWN, PatchOutcome.REFUSED])
async def test_device_is_free_after_a_failed_write_only_if_the_write_was_refused(
    outcome: PatchOutcome,
) -> None:
    cluster = two_claims_and_a_device()
    await fail(cluster, Pod.from_object(pod_with("c0")), outcome)
    other, state = Pod.from_object(pod_with("c1", name="other")), CycleState("b")
    assert await value(cluster.plugin.pre_filter(state, other, NODES)) == SUCCESS
    on_its_node = (await value(cluster.plugin.filter_nodes(state, other, NODES))).to_list()[0]
    assert on_its_node.is_success is (outcome is PatchOutcome.REFUSED)


@pytest.mark.parametrize("was_done", [True, False])
async def test_next_attempt_writes_the_same_devices_whether_the_first_write_was_done_or_not(
    was_done: bool,
) -> None:
    cluster, pod, state = two_claims_and_a_device(), Pod.from_object(pod_with("c0")), CycleState("c")
    first = await fail(cluster, pod, PatchOutcome.UNKNOWN)
    again = await first_write(cluster, pod, state)
    assert devices_of(again) == devices_of(first)
    if was_done:
        done = cluster.apply(first)
        answer = PatchResult(outcome=PatchOutcome.CONFLICT, ref=done.ref, object=done.object)
    else:
        answer = cluster.apply(again)
    assert await cluster.plugin.pre_bind(state, pod, "n1", [answer]) == PreBindResult(SUCCESS)
    assert cluster.users("c0") == ["web"]


@pytest.mark.parametrize("is_new_process", [True, False])
async def test_device_stays_reserved_after_an_unreserve_in_a_process_that_does_not_know_what_was_written(
    is_new_process: bool,
) -> None:
    cluster, pod, state = two_claims_and_a_device(), Pod.from_object(pod_with("c0")), CycleState("a")
    await cluster.found(pod, state)
    assert await value(cluster.plugin.reserve(state, pod, "n1")) == SUCCESS
    if is_new_process:
        kept, state = state.token, CycleState("a")
        state.token = kept
        cluster.plugin = DynamicResources({}, cluster.handle)
        assert cluster.plugin.reconcile([LiveReservation(state=state, pod=pod, node_name="n1")]) == []
    await cluster.plugin.unreserve(state, pod, "n1")
    other, another = Pod.from_object(pod_with("c1", name="other")), CycleState("b")
    assert await value(cluster.plugin.pre_filter(another, other, NODES)) == SUCCESS
    on_its_node = (await value(cluster.plugin.filter_nodes(another, other, NODES))).to_list()[0]
    assert on_its_node.is_success is not is_new_process
    # The pod itself may have it.
    await cluster.found(pod, CycleState("c"))


def devices_of(patch: ObjectPatch) -> object:
    return patch.merge_patch["status"]["allocation"]["devices"]
