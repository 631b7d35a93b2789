"""Lists of large objects come in pages that are bounded by bytes."""

from __future__ import annotations

from berth_host.cluster.port import WatchEvent
from berth_host.model.clock import ManualClock
from berth_kube import page_limits
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_kube.copying import copy_cluster
from berth_kube.informer import WatchTimes
from berth_kube.page_limits import FIRST, MOST_BYTES, WANTED_BYTES, PageLimit
from hypothesis import given
from hypothesis import strategies as st
from pytest import MonkeyPatch
from support.kube_api import Answer, KubeApi

MIB = 2**20


def test_limit_follows_the_bytes_of_the_page_before() -> None:
    limit = PageLimit(500)
    assert limit.now == FIRST
    limit.came(FIRST * 4096, FIRST)
    assert (limit.now, limit.was_lowered) == (500, False)
    limit.came(500 * 64 * 1024, 500)
    assert (limit.now, limit.was_lowered) == (128, True)
    limit.came(128 * MIB, 128)
    assert limit.now == 8
    limit.came(0, 0)
    assert limit.now == 8


def test_page_that_was_too_large_is_asked_for_in_parts_down_to_one_object() -> None:
    limit = PageLimit(500)
    seen = []
    while limit.most_bytes:
        assert limit.most_bytes == MOST_BYTES
        seen.append(limit.now)
        limit.was_too_large()
    assert seen == [50, 12, 3]
    assert limit.now == 1


@given(sizes=st.lists(st.integers(1, 3 * MIB // 2), max_size=300), most=st.integers(1, 500))
def test_every_list_ends_and_no_page_exceeds_the_bound(sizes: list[int], most: int) -> None:
    """Whatever sizes follow one another, at most MOST_BYTES are held, or one object."""
    limit, at, asked = PageLimit(most), 0, 0
    while at < len(sizes):
        page = sizes[at : at + limit.now]
        asked += 1
        if limit.most_bytes and sum(page) > limit.most_bytes:
            limit.was_too_large()
            continue
        assert sum(page) <= MOST_BYTES or len(page) == 1
        limit.came(sum(page), len(page))
        at += len(page)
        assert 1 <= limit.now <= most
    assert asked <= 5 * len(sizes) + 5


class Seen:
    """The objects that a cluster handed over, and the pages that it asked for."""

    def __init__(self, api: KubeApi, client: KubeClient) -> None:
        self.api = api
        self.names: list[str] = []
        self.gone: list[str] = []
        self.cluster = KubeCluster(client, ManualClock(), times=WatchTimes(idle_s=5.0))

    def take(self, event: WatchEvent) -> None:
        """Note a change."""
        if event.new is not None:
            self.names.append(event.new.ref.name)
        elif event.old is not None:
            self.gone.append(event.old.ref.name)

    @property
    def limits(self) -> list[int]:
        """The limits of the lists."""
        return [
            int(one.query.get("limit", 0))
            for one in self.api.seen("GET", "/pods")
            if "watch" not in one.query
        ]


async def with_pods(api: KubeApi, monkeypatch: MonkeyPatch, count: int, size: int) -> list[str]:
    """Make pods of `size` bytes each, and the bounds a thousandth of the real ones."""
    monkeypatch.setattr(page_limits, "WANTED_BYTES", WANTED_BYTES // 1000)
    monkeypatch.setattr(page_limits, "MOST_BYTES", MOST_BYTES // 1000)
    names = [f"p{number:03}" for number in range(count)]
    for name in names:
        await api.put("pods", name, metadata={"annotations": {"a": "x" * size}})
    return names


async def test_large_objects_come_in_small_pages_all_of_them(
    api: KubeApi, client: KubeClient, monkeypatch: MonkeyPatch
) -> None:
    names = await with_pods(api, monkeypatch, 60, 1500)
    seen = Seen(api, client)
    await seen.cluster.start(seen.take, ["pods"])
    await seen.cluster.stop()
    assert seen.names == names
    # The first page is given up, and those after it fit.
    assert seen.limits[:2] == [50, 12]
    assert all(limit <= 12 for limit in seen.limits[1:])


async def test_objects_that_grow_within_a_list_are_read_all_the_same(
    api: KubeApi, client: KubeClient, monkeypatch: MonkeyPatch
) -> None:
    names = await with_pods(api, monkeypatch, 60, 10)
    for number in range(40):
        name = f"q{number:03}"
        names.append(name)
        await api.put("pods", name, metadata={"annotations": {"a": "x" * 1500}})
    seen = Seen(api, client)
    await seen.cluster.start(seen.take, ["pods"])
    await seen.cluster.stop()
    assert seen.names == names


async def test_large_list_whose_version_expires_begins_again_in_pages(
    api: KubeApi, client: KubeClient, monkeypatch: MonkeyPatch
) -> None:
    names = await with_pods(api, monkeypatch, 40, 1500)
    first = await client.request("GET", "/api/v1/pods", query={"limit": "3"}, resource="pods")
    api.requests.clear()
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    api.answers += [Answer("GET", "/pods", 200, first), Answer("GET", "/pods", 410, gone)]
    seen = Seen(api, client)
    await seen.cluster.start(seen.take, ["pods"])
    await seen.cluster.stop()
    assert (seen.names, seen.gone) == (names, [])
    assert all(0 < limit <= 50 for limit in seen.limits)


async def test_live_list_is_bounded_too(api: KubeApi, client: KubeClient, monkeypatch: MonkeyPatch) -> None:
    names = await with_pods(api, monkeypatch, 40, 1500)
    seen = Seen(api, client)
    found = await seen.cluster.list("pods", "default", {})
    assert [one.ref.name for one in found] == names
    assert seen.limits[:2] == [50, 12]
    await seen.cluster.stop()


async def test_copy_of_a_cluster_is_bounded_too(api: KubeApi, monkeypatch: MonkeyPatch) -> None:
    names = await with_pods(api, monkeypatch, 40, 1500)
    copied = await copy_cluster(Connection(master=api.url))
    assert [item["metadata"]["name"] for item in copied.objects() if item["kind"] == "Pod"] == names
    limits = [int(one.query["limit"]) for one in api.seen("GET", "/pods")]
    assert limits[:2] == [50, 12]
