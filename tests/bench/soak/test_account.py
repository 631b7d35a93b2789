"""The account of a soak is made from the cluster's changes."""

from __future__ import annotations

import asyncio
from typing import Any

from berth_bench.soak.account import Account
from berth_bench.versus.objects import pod


def a_pod(name: str, node: str = "", cpu: str = "1500m", message: str = "") -> dict[str, Any]:
    made = pod(name, cpu, **({"nodeName": node} if node else {}))
    if message:
        made["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    return made


def test_pods_without_a_node_are_known_by_name() -> None:
    account = Account(["n1"])
    for name in "ab":
        account.is_there(a_pod(name))
    assert account.unbound == ["a", "b"]
    account.is_there(a_pod("a", "n1"))
    account.leaves("b")
    account.is_gone("b")
    assert account.unbound == []
    assert (account.seen, account.bound, account.lost) == (2, 1, set())


def test_node_that_gets_more_than_it_has_is_over_committed_even_for_a_moment() -> None:
    account = Account(["n1"])
    for name in "ab":
        account.is_there(a_pod(name, "n1"))
    assert account.over_committed == set()
    account.is_there(a_pod("c", "n1"))
    account.leaves("a")
    account.is_gone("a")
    assert account.over_committed == {"n1"}


def test_pod_on_a_node_that_may_take_none_is_misplaced_also_after_it_has_gone() -> None:
    account = Account(["n1"])
    account.is_there(a_pod("a", "n1"))
    account.is_there(a_pod("b", "closed"))
    assert account.has_node("b")
    account.leaves("b")
    account.is_gone("b")
    assert not account.has_node("b")
    assert account.misplaced == {"b"}


def test_room_of_a_deleted_pod_counts_again() -> None:
    account = Account(["n1"])
    for name in "abc":
        account.is_there(a_pod(name, "n1"))
        if name == "a":
            account.is_gone(name)
    assert account.over_committed == set()


def test_pod_that_changes_its_node_was_bound_twice() -> None:
    account = Account(["n1", "n2"])
    for node in ("", "n1", "n1", "n2"):
        account.is_there(a_pod("a", node))
    assert account.double_binds == 1


def test_pod_is_lost_where_a_node_has_room_and_only_pending_where_none_has() -> None:
    account = Account(["n1"])
    for name in "ab":
        account.is_there(a_pod(name, "n1"))
    account.is_there(a_pod("fits", cpu="1"))
    account.is_there(a_pod("does-not", cpu="1001m"))
    assert account.unbound == ["fits", "does-not"]
    assert account.lost == {"fits"}


def test_pod_that_goes_by_itself_is_lost() -> None:
    account = Account(["n1"])
    account.is_there(a_pod("a", "n1"))
    account.is_gone("a")
    account.is_gone("never-seen")
    assert account.lost == {"a"}


def test_list_says_of_all_pods_where_they_are() -> None:
    """As after a watch that missed changes."""
    account = Account(["n1"])
    for name in "abc":
        account.is_there(a_pod(name))
    account.leaves("b")
    account.are_there([a_pod("a", "n1"), a_pod("d")])
    assert account.unbound == ["d"]
    assert account.vanished == {"c"}
    assert account.seen == 4


def test_reasons_are_the_clusters_words_and_the_latest() -> None:
    account = Account(["n1"])
    for name, message in (("a", ""), ("b", "no room"), ("c", "no room"), ("d", "gone"), ("d", "no room")):
        account.is_there(a_pod(name, message=message))
    assert account.reasons() == [("no room", 3), ("no attempt has failed so far", 1)]


async def test_change_ends_the_wait_for_it() -> None:
    account = Account(["n1"])
    account.is_there(a_pod("a"))
    waiting = asyncio.create_task(account.until(lambda: not account.unbound, within_s=60))
    await asyncio.sleep(0)
    account.is_there(a_pod("a", "n1"))
    assert await waiting
    assert not await account.until(lambda: False, within_s=0.01)
