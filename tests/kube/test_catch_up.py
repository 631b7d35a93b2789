"""`KubeCluster.catch_up`: every change before the call is handed over, whatever the watch was doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from berth_host.model.clock import ManualClock
from berth_kube import informer
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.informer import WatchTimes
from support.kube_api import Answer, KubeApi
from support.waiting import until
from support.watched_view import WatchedView

TIMES = WatchTimes(min_watch_s=60, max_watch_s=60, idle_s=60.0)
WIDGETS = "example.com/widgets"
"""A resource that a plugin may write."""


@pytest.fixture
def seen() -> WatchedView:
    return WatchedView()


@pytest.fixture
async def followed(api: KubeApi, client: KubeClient, clock: ManualClock) -> AsyncIterator[KubeCluster]:
    api.bookmark_s = 60.0  # the real one sends none for a minute
    made = KubeCluster(client, clock, times=TIMES)
    yield made
    await made.stop()


def watches(api: KubeApi, plural: str = "pods") -> int:
    return sum("watch" in request.query for request in api.seen("GET", f"/{plural}"))


async def test_changes_of_a_dead_connection_are_handed_over(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.is_silent = True  # this watch never says anything
    await followed.start(seen.handle, ["pods", WIDGETS])
    await until(lambda: watches(api) == 1)
    api.is_silent = False
    await api.put("pods", "old", spec={"nodeName": "n0"})
    await api.put("pods", "new")
    await api.put("pods", "old", spec={"nodeName": "n0", "priority": 1})
    assert await followed.catch_up(5.0) == []
    assert sorted(seen.objects["Pod"]) == ["default/new", "default/old"]
    last = [event.new for event in seen.events if event.new is not None and event.new.ref.name == "old"][-1]
    assert last.get("spec.priority") == 1
    assert seen.faults == []
    assert followed.problems == {}
    # The new watch goes on.
    await api.put("pods", "later")
    await until(lambda: "default/later" in seen.objects["Pod"])


async def test_watch_that_has_everything_stays_open(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await followed.start(seen.handle, ["pods"])
    await until(lambda: watches(api) == 1)
    await api.put("pods", "web")
    await until(lambda: "default/web" in seen.objects["Pod"])
    assert await followed.catch_up(5.0) == []
    assert watches(api) == 1


async def test_resource_that_did_not_change_is_not_waited_for_beyond_a_quiet_watch(
    api: KubeApi, followed: KubeCluster, seen: WatchedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer, "QUIET_S", 0.02)
    await followed.start(seen.handle, ["pods", WIDGETS])
    await until(lambda: watches(api) == 1)
    await api.put("widgets", "w")
    await until(lambda: "default/w" in seen.objects[WIDGETS])
    assert await followed.catch_up(5.0) == []
    assert watches(api) == 2
    assert [event.kind for event in seen.events] == [WIDGETS]


async def test_watch_that_expired_meanwhile_is_listed_anew(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.is_silent = True
    await followed.start(seen.handle, ["pods"])
    await until(lambda: watches(api) == 1)
    api.is_silent = False
    await api.put("pods", "web")
    api.compact()
    assert await followed.catch_up(5.0) == []
    assert list(seen.objects["Pod"]) == ["default/web"]


@pytest.mark.parametrize("status", [403, 500])
async def test_resource_that_cannot_be_read_is_behind_and_others_are_not(
    api: KubeApi, followed: KubeCluster, seen: WatchedView, status: int
) -> None:
    await followed.start(seen.handle, ["pods", WIDGETS])
    await until(lambda: watches(api) == watches(api, "widgets") == 1)
    api.answers.append(Answer("GET", "/widgets", status, {"kind": "Status", "code": status, "message": "no"}))
    assert await followed.catch_up(5.0) == [WIDGETS]


async def test_server_that_does_not_answer_delays_no_longer_than_said(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await followed.start(seen.handle, ["pods", WIDGETS])
    await until(lambda: watches(api) == watches(api, "widgets") == 1)
    api.held = asyncio.Event()
    assert await followed.catch_up(0.05) == [WIDGETS, "pods"]
    api.held.set()


async def test_catching_up_that_is_cancelled_leaves_no_task(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await followed.start(seen.handle, ["pods"])
    await until(lambda: watches(api) == 1)
    api.held = asyncio.Event()
    asking = asyncio.create_task(followed.catch_up(5.0))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("catch up")]
    api.held.set()


async def test_resource_that_is_not_served_is_not_behind(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.not_served.add("widgets")
    await followed.start(seen.handle, [WIDGETS])
    assert await followed.catch_up(5.0) == []


async def test_resource_that_no_scheduler_writes_is_not_asked_for(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await followed.start(seen.handle, ["nodes"])
    await until(lambda: watches(api, "nodes") == 1)
    asked = len(api.requests)
    await api.put("pods", "web")  # a newer version of the cluster
    assert await followed.catch_up(5.0) == []
    assert len(api.requests) == asked
