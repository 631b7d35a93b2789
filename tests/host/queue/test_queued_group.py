"""The record of a group: the order of its members, its own counters, and the form for QueueSort."""

from __future__ import annotations

from berth_host.queue.queued_group import QueuedGroupInfo
from berth_host.queue.queued_pod import QueuedPodInfo
from berth_sdk.pod_group import PodGroup
from support.queue_parts import a_pod


def member(
    name: str, priority: int = 0, attempts: int = 0, at_us: int = 0, group: str = "g"
) -> QueuedPodInfo:
    pod = a_pod(name, priority, group_key=f"podgroup/default/{group}")
    return QueuedPodInfo(pod, timestamp_us=at_us, attempts=attempts)


def group_of(*members: QueuedPodInfo, priority: int = 0) -> QueuedGroupInfo:
    made = QueuedGroupInfo(group=PodGroup(name="g", uid="group", priority=priority), timestamp_us=7)
    for info in members:
        made.add(info)
    return made


def names(group: QueuedGroupInfo) -> list[str]:
    return [info.pod.name for info in group.pods()]


def test_members_are_ordered_by_priority_attempts_time_and_name() -> None:
    group = group_of(
        member("late", at_us=2),
        member("b", at_us=1),
        member("a", at_us=1),
        member("tried", attempts=1, at_us=9),
        member("high", priority=1, at_us=9),
    )
    assert names(group) == ["high", "tried", "a", "b", "late"]


def test_leaf_groups_of_a_composite_group_come_one_after_the_other() -> None:
    group = group_of(
        member("x", group="b"), member("y", group="a", at_us=5), member("z", priority=9, group="b")
    )
    assert names(group) == ["y", "z", "x"]


def test_pop_counts_for_the_group_and_for_each_member() -> None:
    first, second = member("a"), member("b", attempts=3)
    group = group_of(first, second)
    group.count_attempt()
    assert (group.attempts, first.attempts, second.attempts) == (1, 1, 4)


def test_first_entry_into_active_is_kept_for_the_group_and_each_member() -> None:
    first, second = member("a"), member("b")
    group = group_of(first)
    group.entered_active(10)
    group.add(second)
    group.entered_active(20)
    assert (group.initial_attempt_timestamp_us, first.initial_attempt_timestamp_us) == (10, 10)
    assert second.initial_attempt_timestamp_us == 20


def test_group_is_sorted_by_its_own_priority_and_time() -> None:
    group = group_of(member("a", priority=5, at_us=1), priority=2)
    shown = group.as_queued_pod()
    assert (shown.pod.name, shown.pod.priority, shown.added_at_s) == ("a", 2, 7e-6)
    assert shown.group is group.group, "a plugin that knows groups sorts by them"


def test_entity_has_a_uid_if_the_group_or_a_member_has_it() -> None:
    group, pod = group_of(member("a")), member("b")
    assert [group.has_any({uid}) for uid in ("group", "uid-a", "uid-b")] == [True, True, False]
    assert [pod.has_any({uid}) for uid in ("group", "uid-a", "uid-b")] == [False, False, True]


def test_next_attempt_keeps_the_counters_and_takes_other_members() -> None:
    group = group_of(member("a"))
    group.count_attempt()
    group.unschedulable_count = 3
    again = group.attempted(group.group, [member("z"), member("b")])
    assert (again.attempts, again.unschedulable_count, names(again)) == (1, 3, ["b", "z"])
    assert again.sort_key is None
