"""The live groups and their members, fed by the cache and by pods without a node, and the snapshot's copy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.pod_groups import GroupReader, PodGroups
from berth_host.cache.snapshot import Snapshot
from berth_sdk.pod import Pod
from berth_sdk.pod_group import COMPOSITE_POD_GROUP, PodGroup
from berth_sdk.tables.generation_log import GenerationLog

G = "podgroup/default/g"


def member(name: str, node_name: str = "", key: str = G) -> Pod:
    return Pod(name=name, uid=name, node_name=node_name, group_key=key)


def parts(groups: GroupReader, key: str = G) -> tuple[list[str], ...] | None:
    state = groups.state(key)
    if state is None:
        return None
    assert set(state.all) == {*state.unscheduled, *state.assumed, *state.assigned}
    return tuple(sorted(part) for part in (state.unscheduled, state.assumed, state.assigned))


@pytest.fixture
def cache() -> Cache:
    generations = Generations()
    return Cache(generations, PodGroups(generations, composite=True))


def test_member_goes_from_unscheduled_over_assumed_to_assigned(cache: Cache) -> None:
    groups = cache.groups
    groups.put_unscheduled(member("a"))
    groups.put_unscheduled(member("b"))
    assert parts(groups) == (["a", "b"], [], [])
    cache.assume(member("a", "n1"))
    groups.put_unscheduled(member("a"))
    assert parts(groups) == (["b"], ["a"], [])
    cache.forget(member("a", "n1"))
    state = groups.state(G)
    assert parts(groups) == (["a", "b"], [], [])
    assert state is not None
    assert state.all["a"].node_name == ""
    cache.assume(member("a", "n1"))
    cache.add_pod(member("a", "n1"))
    cache.add_pod(member("b", "n2"))
    cache.update_pod(member("b", "n2"), replace(member("b", "n2"), priority=3))
    state = groups.state(G)
    assert parts(groups) == ([], [], ["a", "b"])
    assert state is not None
    assert (state.scheduled_count, state.all["b"].priority) == (2, 3)
    cache.remove_pod(member("a", "n1"))
    assert parts(groups) == ([], [], ["b"])


def test_pod_deleted_before_it_is_assumed_counts_no_more(cache: Cache) -> None:
    cache.groups.put_object(PodGroup(name="g"))
    cache.groups.put_unscheduled(member("a"))
    cache.groups.remove_unscheduled(member("a"))
    cache.assume(member("a", "n1"))
    assert parts(cache.groups) == ([], [], [])
    cache.forget(member("a", "n1"))
    assert parts(cache.groups) == ([], [], [])


def test_group_exists_while_it_has_an_object_or_a_member(cache: Cache) -> None:
    groups = cache.groups
    groups.put_unscheduled(member("a"))
    groups.put_object(PodGroup(name="g"))
    groups.remove_unscheduled(member("a"))
    assert parts(groups) == ([], [], [])
    assert groups.remove_object(G) == PodGroup(name="g")
    assert (groups.state(G), groups.object(G), groups.remove_object(G)) == (None, None, None)


def test_pods_without_a_group_leave_no_state(cache: Cache) -> None:
    cache.groups.put_unscheduled(member("a", key=""))
    cache.add_pod(member("b", "n1", key=""))
    assert list(cache.groups.group_keys()) == []


def tree(*links: tuple[str, str, str]) -> list[PodGroup]:
    """Groups from (kind's first letter, name, parent), each a second younger than the one before."""
    kinds = {"c": COMPOSITE_POD_GROUP, "p": "PodGroup"}
    return [
        PodGroup(
            kind=kinds[kind],
            name=name,
            created_s=float(at),
            parent_key=f"compositepodgroup/default/{parent}" if parent else "",
        )
        for at, (kind, name, parent) in enumerate(links)
    ]


def test_root_children_and_leaves_of_a_tree(cache: Cache) -> None:
    groups = cache.groups
    made = tree(("c", "root", ""), ("p", "z", "root"), ("p", "a", "mid"), ("c", "mid", "root"))
    pod = member("x", key="podgroup/default/a")
    assert groups.root_key(pod) == ""
    for group in made:
        assert groups.root_key(pod) == ""
        groups.put_object(group)
    assert groups.root_key(pod) == "compositepodgroup/default/root"
    assert [group.name for group in groups.path("podgroup/default/a") or ()] == ["a", "mid", "root"]
    assert [group.name for group in groups.children("compositepodgroup/default/root")] == ["z", "mid"]
    assert [group.name for group in groups.leaves("compositepodgroup/default/root")] == ["z", "a"]
    assert [group.name for group in groups.leaves("podgroup/default/z")] == ["z"]
    groups.remove_object("compositepodgroup/default/mid")
    assert groups.root_key(pod) == ""
    assert [group.name for group in groups.leaves("compositepodgroup/default/root")] == ["z"]


def test_path_ends_at_a_depth_of_four_and_in_a_circle(cache: Cache) -> None:
    links = [("c", "c1", ""), ("c", "c2", "c1"), ("c", "c3", "c2"), ("p", "ok", "c3"), ("c", "c4", "c3")]
    for group in tree(*links, ("p", "deep", "c4"), ("c", "o1", "o2"), ("c", "o2", "o1")):
        cache.groups.put_object(group)
    assert len(cache.groups.path("podgroup/default/ok") or ()) == 4
    assert cache.groups.path("podgroup/default/deep") is None
    assert cache.groups.path("compositepodgroup/default/o1") is None


def test_parents_are_ignored_without_composite_groups() -> None:
    groups = PodGroups()
    (group,) = tree(("p", "a", "root"))
    groups.put_object(group)
    assert groups.root_key(member("x", key=group.key)) == group.key


@pytest.mark.parametrize("limit", [1, 4096])
def test_snapshot_has_the_groups_of_its_update(cache: Cache, limit: int) -> None:
    cache.groups.changed = GenerationLog(limit=limit)
    snapshot = Snapshot()
    cache.groups.put_unscheduled(member("a"))
    cache.groups.put_object(PodGroup(name="g", min_count=2))
    cache.groups.put_unscheduled(member("x", key="podgroup/default/h"))
    snapshot.update(cache)
    cache.assume(member("a", "n1"))
    cache.groups.put_object(PodGroup(name="g", min_count=3))
    cache.groups.remove_unscheduled(member("x", key="podgroup/default/h"))
    assert parts(snapshot.groups) == (["a"], [], [])
    assert snapshot.groups.object(G) == PodGroup(name="g", min_count=2)
    assert parts(snapshot.groups, "podgroup/default/h") == (["x"], [], [])
    snapshot.update(cache)
    assert parts(snapshot.groups) == ([], ["a"], [])
    assert snapshot.groups.object(G) == PodGroup(name="g", min_count=3)
    assert snapshot.groups.state("podgroup/default/h") is None
    cache.groups.remove_object(G)
    snapshot.update(cache)
    assert snapshot.groups.object(G) is None
