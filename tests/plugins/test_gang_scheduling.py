"""GangScheduling: how many members must exist, have a place, and have a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_plugins.gang_scheduling import GangScheduling
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError
from berth_sdk.events import ClusterEvent
from berth_sdk.gang_policy import TIMEOUT_ANNOTATION
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, PlacementProgress, PodGroup, group_key
from berth_sdk.results import PermitResult, QueuedPod
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.testing import make_pod
from berth_sdk.testing.handle import RecordingHandle
from support.groups import GROUPS, member, members, pod_group
from support.hosts import World, node

KEY = group_key("PodGroup", "default", "train")
OF_1_37 = {"featureGates": {"QuorumOfTrees": False}}
"""The arguments that a host gives that follows 1.37."""


def a_member(name: str, *, node: str = "", key: str = KEY) -> Pod:
    return replace(make_pod(name), group_key=key, node_name=node)


def gang(least: int, **more: object) -> PodGroup:
    return PodGroup(name="train", is_gang=True, min_count=least, **more)  # type: ignore[arg-type]


@pytest.fixture
def handle() -> RecordingHandle:
    found = RecordingHandle(lambda: None, {})  # type: ignore[arg-type, return-value]  # reads no nodes
    found.plugin = "GangScheduling"
    return found


@pytest.mark.parametrize(
    ("args", "text", "few"),
    [
        (
            OF_1_37,
            'waiting for pods\'s pod group "train" to appear in scheduling queue',
            "waiting for minCount pods from a gang to appear in scheduling queue",
        ),
        (
            {},
            'pod group "train" or one of its composite pod group ancestors has not been created yet',
            "waiting for podgroup/default/train to meet its quorum",
        ),
    ],
    ids=["1.37", "1.38"],
)
def test_pod_waits_for_its_group_and_then_for_enough_members(
    args: dict[str, object], text: str, few: str, handle: RecordingHandle
) -> None:
    plugin = GangScheduling(args, handle)
    pod = a_member("a")
    handle.groups.put_member(pod)
    assert plugin.pre_enqueue(QueuedPod(pod=pod)) == Status.unresolvable(text)
    handle.groups.put(gang(2))
    assert plugin.pre_enqueue(QueuedPod(pod=pod)) == Status.unresolvable(few)
    handle.groups.put_member(a_member("b", node="n0"))
    assert plugin.pre_enqueue(QueuedPod(pod=pod)) == SUCCESS
    handle.groups.remove_member(a_member("b"))
    assert not plugin.pre_enqueue(QueuedPod(pod=pod)).is_success


def test_pods_without_a_gang_enter_at_once(handle: RecordingHandle) -> None:
    plugin = GangScheduling({}, handle)
    assert plugin.pre_enqueue(QueuedPod(pod=make_pod("web"))) == SUCCESS
    handle.groups.put(PodGroup(name="train"))
    handle.groups.put_member(a_member("a"))
    assert plugin.pre_enqueue(QueuedPod(pod=a_member("a"))) == SUCCESS


@pytest.mark.parametrize(
    ("scheduled", "remaining", "code", "text"),
    [
        (3, 0, Code.SUCCESS, ""),
        (2, 1, Code.WAIT, "minCount (3) is not yet satisfied: 2 scheduled, 1 remaining"),
        (1, 1, Code.UNSCHEDULABLE, "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"),
    ],
    ids=["enough", "not yet", "never"],
)
def test_placement_needs_the_minimum(
    handle: RecordingHandle, scheduled: int, remaining: int, code: Code, text: str
) -> None:
    progress = PlacementProgress(remaining, scheduled)
    plugin = GangScheduling(OF_1_37, handle)
    status = plugin.placement_feasible(CycleState("c"), GroupView(gang(3)), progress)
    assert (status.code, status.message) == (code, text)


@pytest.mark.parametrize(
    ("progress", "code", "verdict"),
    [
        ((0, 3, 4), Code.SUCCESS, ""),
        ((1, 2, 1), Code.WAIT, "is not yet"),
        ((1, 1, 2), Code.UNSCHEDULABLE, "cannot be"),
    ],
    ids=["enough", "not yet", "never"],
)
def test_placement_below_the_threshold_says_how_many_members_found_no_node(
    handle: RecordingHandle, progress: tuple[int, int, int], code: Code, verdict: str
) -> None:
    view = GroupView(gang(3))
    status = GangScheduling({}, handle).placement_feasible(
        CycleState("c"), view, PlacementProgress(*progress)
    )
    remaining, scheduled, unschedulable = progress
    numbers = f"{scheduled} scheduled, {unschedulable} unschedulable, {remaining} not-evaluated"
    text = f"scheduling policy's minimum threshold (3) {verdict} satisfied: {numbers}" if verdict else ""
    assert (status.code, status.message) == (code, text)


def test_tree_is_ready_with_enough_children_that_have_enough_members(handle: RecordingHandle) -> None:
    plugin = GangScheduling({"featureGates": {"CompositePodGroup": True}}, handle)
    root_key = group_key("CompositePodGroup", "default", "root")
    pod = a_member("a")
    handle.groups.put_member(pod)
    handle.groups.put(replace(gang(1), parent_key=root_key))
    asked = QueuedPod(pod=pod)
    absent = 'pod group "train" or one of its composite pod group ancestors has not been created yet'
    assert plugin.pre_enqueue(asked) == Status.unresolvable(absent)
    root = PodGroup(kind="CompositePodGroup", name="root", is_gang=True, min_count=2)
    handle.groups.put(root)
    few = "waiting for compositepodgroup/default/root to meet its quorum"
    assert plugin.pre_enqueue(asked) == Status.unresolvable(few)
    handle.groups.put(replace(root, is_gang=False, min_count=1))
    assert plugin.pre_enqueue(asked) == SUCCESS
    handle.groups.put(replace(gang(2), parent_key=root_key))
    few = "waiting for compositepodgroup/default/root tree to have at least one ready child group"
    assert plugin.pre_enqueue(asked) == Status.unresolvable(few)


def test_circle_of_groups_is_an_error(handle: RecordingHandle) -> None:
    plugin = GangScheduling({"featureGates": {"CompositePodGroup": True}}, handle)
    key = group_key("CompositePodGroup", "default", "a")
    handle.groups.put(replace(gang(1), parent_key=key))
    handle.groups.put(PodGroup(kind="CompositePodGroup", name="a", parent_key=key))
    handle.groups.put_member(a_member("a"))
    assert plugin.pre_enqueue(QueuedPod(pod=a_member("a"))) == Status.error(
        f"cycle detected in the hierarchy: [{KEY} {key} {key}]"
    )


def test_last_member_that_is_needed_lets_the_waiting_ones_go(handle: RecordingHandle) -> None:
    plugin = GangScheduling({}, handle)
    handle.groups.put(gang(2))
    first, second = a_member("a", node="n0"), a_member("b", node="n1")
    handle.groups.put_member(first, is_assumed=True)
    handle.groups.put_member(a_member("b"))
    held = plugin.permit(CycleState("1"), first, "n0")
    assert isinstance(held, PermitResult)
    assert (held.status.code, held.wait_timeout_s) == (Code.WAIT, 300.0)
    handle.room.register(first, "1", "n0")
    handle.room.hold(first.uid, {"GangScheduling": 300.0})
    handle.groups.put_member(second, is_assumed=True)
    assert plugin.permit(CycleState("2"), second, "n1") == SUCCESS
    assert handle.allowed == [first.uid]


def test_arguments_and_annotations_say_how_long_members_wait(handle: RecordingHandle) -> None:
    plugin = GangScheduling({"timeoutSeconds": 90.0}, handle)
    waiting = a_member("a", node="n0")
    handle.groups.put_member(waiting, is_assumed=True)
    waits_s = []
    for written in ({}, {TIMEOUT_ANNOTATION: "2m"}, {TIMEOUT_ANNOTATION: "soon"}):
        handle.groups.put(gang(2, annotations=written))
        held = plugin.permit(CycleState("1"), waiting, "n0")
        assert isinstance(held, PermitResult)
        waits_s.append(held.wait_timeout_s)
    assert waits_s == [90.0, 120.0, 90.0]
    with pytest.raises(PluginArgsError, match="timeoutSeconds: Invalid value: 0: must be greater than 0"):
        GangScheduling({"timeoutSeconds": 0}, handle)


@pytest.mark.parametrize(("repair", "counted"), [("Leave", 2), ("Refill", 1), ("Evict", 1)])
def test_terminating_members_do_not_count_in_a_group_that_is_repaired(
    handle: RecordingHandle, repair: str, counted: int
) -> None:
    plugin = GangScheduling({"repair": repair}, handle)
    stays, leaves = a_member("a", node="n0"), replace(a_member("b", node="n1"), terminating=True)
    for pod in (stays, leaves):
        handle.groups.put_member(pod)
    group = gang(2)
    handle.groups.put(group)
    view = GroupView(group, scheduled=(stays, leaves))
    status = plugin.placement_feasible(CycleState("c"), view, PlacementProgress(0, 2))
    assert status.is_success is (counted == 2)
    held = plugin.permit(CycleState("1"), stays, "n0")
    assert isinstance(held, PermitResult) is (counted == 1)


def test_hints_are_about_the_same_group(handle: RecordingHandle) -> None:
    plugin = GangScheduling({}, handle)
    waiting = a_member("a")

    def helps(new: Pod | KubeObject, old: KubeObject | None = None) -> bool:
        return plugin.queueing_hint(ClusterEvent(resource="Pod", action="add", old=old, new=new), waiting)

    other = group_key("PodGroup", "default", "other")
    assert helps(a_member("b"))
    assert not helps(a_member("b", key=other))
    assert not helps(make_pod("c"))
    assert helps(_manifest(3))
    assert helps(_manifest(2), _manifest(3))
    assert not helps(_manifest(3), _manifest(2))
    assert not helps(_manifest(2, "other"), _manifest(3, "other"))


PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: GangScheduling
    args: {graceSeconds: 0, repair: Evict}
"""


@pytest.mark.parametrize("place", ["in process", "served"])
async def test_evicted_gang_starts_anew_as_a_whole(place: str, request: pytest.FixtureRequest) -> None:
    """Members that are leaving do not count for the plugin, which has its arguments from the host."""
    text = PROFILE
    if place == "served":
        endpoint = request.getfixturevalue("plugin_server")
        points = ", ".join(f"{point}: {{deadline: 10s}}" for point in ("preEnqueue", "placementFeasible"))
        text += (
            "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\ncycleBudget: 60s\n"
            f"plugins:\n- {{name: GangScheduling, endpoint: '{endpoint}', points: {{{points}}}}}\n"
        )
    old = members("g", 3)
    for made in old[1:]:
        made["metadata"]["finalizers"] = ["tests/stays"]
    objects = [node("n0", cpu="3"), node("n1", cpu="1"), pod_group("g", least=3), *old]
    async with World(objects, configuration=text, gates=GROUPS) as world:
        await world.settle()
        assert [bool(world.node_of(f"g-{i}")) for i in range(3)] == [True] * 3
        world.server.delete("pods", ObjectRef(namespace="default", name="g-0"))
        await world.settle()
        leaving = [world.pod(f"g-{i}") for i in (1, 2)]
        assert all(one is not None and one.get("metadata.deletionTimestamp") for one in leaving)
        for i in range(3, 6):
            world.server.create(member(f"g-{i}", "g"))
        await world.settle()
        assert [world.node_of(f"g-{i}") for i in range(3, 6)] == [""] * 3, "two places are free"
        world.server.create(node("n2", cpu="1"))
        await world.settle()
        assert all(world.node_of(f"g-{i}") for i in range(3, 6))


def _manifest(least: int, name: str = "train") -> KubeObject:
    return KubeObject.of(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": least}}},
        }
    )
