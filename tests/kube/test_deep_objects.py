"""Objects that parsers refuse: every line of a list or a watch counts, and no other object waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from berth_host.errors.cluster import UnavailableError
from berth_host.model.clock import ManualClock
from berth_host.model.compact_json import json_bytes
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.informer import Keeps, WatchTimes
from berth_kube.late_order import LateOrder
from berth_kube.late_reading import (
    BURST_BYTES,
    BYTES_PER_S,
    MAX_HELD_BYTES,
    LateObject,
    LateReader,
    Reading,
)
from berth_kube.reading import ObjectReader, in_slices
from berth_sdk.json.objects import finish
from berth_sdk.json.reader import RawJson
from berth_sdk.kube_object import ObjectRef
from support.kube_api import Answer, KubeApi
from support.waiting import PATIENCE_S, until
from support.watched_view import WatchedView

TIMES = WatchTimes(min_watch_s=60, max_watch_s=60, idle_s=30.0)
DEEP = b'{"f:a":' * 1_100 + b"{}" + b"}" * 1_100
MANAGED = (
    b'[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":'
    + DEEP
    + b"}]"
)
BRACKET = b'[{"manager":"]","fieldsV1":' + DEEP + b"}]"
"""Where the quick cut is wrong about the end."""


def metadata(name: str, version: int, managed: bytes = b"[]", namespace: str = "default") -> bytes:
    return (
        b'"metadata":{"name":"%b","namespace":"%b","uid":"u-%b","resourceVersion":"%d","managedFields":%b}'
        % (
            name.encode(),
            namespace.encode(),
            name.encode(),
            version,
            managed,
        )
    )


def pod(name: str, version: int, managed: bytes = MANAGED, node: str = "n1") -> bytes:
    spec = b'"spec":{"nodeName":"%b","containers":[{"name":"c"}]}' % node.encode()
    return b"{" + metadata(name, version, managed) + b"," + spec + b',"status":{"phase":"Running"}}'


def widget(name: str, version: int, spec: bytes = DEEP, namespace: str = "default") -> bytes:
    return b"{" + metadata(name, version, b"[]", namespace) + b',"spec":' + spec + b"}"


def typed(kind: str, item: bytes) -> bytes:
    """Return the object with its kind, which the items of a list lack."""
    return b'{"kind":"%b",%b' % (kind.encode(), item[1:])


def listed(*items: bytes, version: int = 10) -> bytes:
    return b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%b]}' % (
        version,
        b",".join(items),
    )


def line(kind: str, item: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), item)


@pytest.fixture
async def followed(client: KubeClient, clock: ManualClock) -> AsyncIterator[KubeCluster]:
    made = KubeCluster(client, clock, times=TIMES)
    yield made
    await made.stop()


@pytest.fixture
def seen() -> WatchedView:
    return WatchedView()


@pytest.mark.parametrize("managed", [MANAGED, BRACKET], ids=["quick", "bracket in a text"])
async def test_pod_with_deep_managed_fields_is_listed_changed_and_deleted(
    api: KubeApi, followed: KubeCluster, seen: WatchedView, managed: bytes
) -> None:
    api.answers.append(Answer("GET", "/pods", 200, listed(pod("a", 5, managed), pod("b", 6, b"[]"))))
    changes = [line("MODIFIED", pod("a", 11, managed, "n2")), line("ADDED", pod("c", 12, managed))]
    changes.append(line("DELETED", pod("b", 13, managed)))
    api.raw_lines["pods"] = [changes]
    await followed.start(seen.handle, ["pods"])
    await until(lambda: len(seen.events) == 5)
    assert seen.objects["Pod"] == {"default/a": ("u-a", "11"), "default/c": ("u-c", "12")}
    changed = seen.events[2].new
    assert changed is not None
    assert changed.get("spec.nodeName") == "n2"
    assert "managedFields" not in changed.parsed["metadata"]
    assert seen.faults == []
    assert followed.informers["pods"].broken_count == 0


async def test_deep_custom_resource_is_read_whole_and_its_depth_stays_bytes(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.answers.append(Answer("GET", "/widgets", 200, listed(widget("a", 5), widget("b", 6, b'{"size":1}'))))
    await followed.start(seen.handle, ["example.com/widgets"])
    assert set(seen.objects["example.com/widgets"]) == {"default/a", "default/b"}
    deep = next(event.new for event in seen.events if event.new is not None and event.new.ref.name == "a")
    assert deep.raw.endswith(b'"spec":' + DEEP + b"}")
    value = deep.parsed["spec"]
    while isinstance(value, dict):
        value = value["f:a"]
    assert isinstance(value, RawJson)


@pytest.mark.parametrize("padding", [0, 40_000], ids=["short", "long"])
async def test_deletion_of_what_cannot_be_parsed_counts_and_no_older_state_comes_back(
    api: KubeApi, followed: KubeCluster, seen: WatchedView, padding: int
) -> None:
    # A long line is scanned beside the others, so that those after it overtake it.
    spec = b'{"a":' * (padding or 2_000) + b"1" + b"}" * (padding or 2_000)
    api.answers.append(
        Answer(
            "GET",
            "/widgets",
            200,
            listed(widget("a", 5, b"{}"), widget("b", 6, b"{}"), widget("c", 7, b"{}")),
        )
    )
    api.raw_lines["widgets"] = [
        [
            line("MODIFIED", widget("a", 11, spec)),
            line("DELETED", widget("b", 12, spec)),
            line("MODIFIED", widget("c", 13, spec)),
            line("DELETED", widget("a", 14, b"{}")),
            line("ADDED", widget("d", 15, b"{}")),
        ]
    ]
    await followed.start(seen.handle, ["example.com/widgets"])
    await until(lambda: seen.objects["example.com/widgets"].get("default/c") == ("u-c", "13"))
    assert set(seen.objects["example.com/widgets"]) == {"default/c", "default/d"}
    assert seen.faults == []


async def test_relist_reads_no_deep_object_again_and_loses_none(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.max_watch_s = 0.05
    api.answers.append(Answer("GET", "/widgets", 200, listed(widget("a", 5), widget("gone", 6))))
    await followed.start(seen.handle, ["example.com/widgets"])
    assert len(seen.events) == 2
    informer = followed.informers["example.com/widgets"]
    # To the next watch, and to the list after it.
    gone = line("ERROR", b'{"kind":"Status","code":410,"message":"too old resource version"}')
    api.answers.append(Answer("GET", "/widgets", 200, gone))
    api.answers.append(Answer("GET", "/widgets", 200, listed(widget("a", 5), version=100)))
    await until(
        lambda: informer.relist_count >= 1 and "default/gone" not in seen.objects["example.com/widgets"]
    )
    assert seen.objects["example.com/widgets"] == {"default/a": ("u-a", "5")}
    assert len(seen.events) == 3


async def test_extender_that_gets_whole_nodes_gets_their_managed_fields(
    api: KubeApi, client: KubeClient, clock: ManualClock, seen: WatchedView
) -> None:
    cluster = KubeCluster(client, clock, times=TIMES, keeps={"nodes": Keeps(managed_fields=True)})
    node = b'{"metadata":{"name":"n","uid":"u","resourceVersion":"5","managedFields":' + MANAGED + b"}}"
    api.answers.append(Answer("GET", "/nodes", 200, listed(node)))
    await cluster.start(seen.handle, ["nodes"])
    (event,) = seen.events
    assert event.new is not None
    assert MANAGED in event.new.raw
    await cluster.stop()


async def test_answers_to_reads_and_writes_are_read_whatever_they_hold(
    api: KubeApi, followed: KubeCluster
) -> None:
    api.answers.append(Answer("GET", "/pods/a", 200, typed("Pod", pod("a", 5, BRACKET))))
    got = await followed.get("pods", ObjectRef(name="a", namespace="default"))
    assert got is not None
    assert (got.ref.resource_version, got.get("spec.nodeName")) == ("5", "n1")
    api.answers.append(Answer("GET", "/widgets", 200, listed(widget("w", 7))))
    (one,) = await followed.list("example.com/widgets", "default", {})
    assert one.ref.resource_version == "7"
    api.answers.append(Answer("PATCH", "/pods/a", 200, typed("Pod", pod("a", 6))))
    patched = await followed.patch("pods", ObjectRef(name="a", namespace="default"), {"status": {}})
    assert patched.ref.resource_version == "6"


async def test_opaque_parameters_stay_the_bytes_that_their_owner_wrote(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    parameters = rb'{"z":1.0,"a":1e5,"a":"\ud800","n":' + b"7" * 5_000 + b',"d":' + DEEP + b"}"
    config = b'{"devices":{"config":[{"opaque":{"driver":"d","parameters":' + parameters + b"}}]}}"
    claim = b"{" + metadata("c", 5, MANAGED) + b',"spec":' + config + b"}"
    api.answers.append(Answer("GET", "/resourceclaims", 200, listed(claim)))
    await followed.start(seen.handle, ["resource.k8s.io/resourceclaims"])
    (event,) = seen.events
    assert event.new is not None
    assert event.new.get("spec.devices.config")[0]["opaque"]["parameters"] == RawJson(parameters)
    # They are sent as they came.
    body = {"status": {"allocation": {"devices": {"config": event.new.get("spec.devices.config")}}}}
    api.answers.append(Answer("PATCH", "/resourceclaims/c/status", 200, typed("ResourceClaim", claim)))
    await followed.patch("resource.k8s.io/resourceclaims", event.new.ref, body, subresource="status")
    (sent,) = api.seen("PATCH")
    assert parameters in sent.raw


@pytest.mark.parametrize("levels", [126, 127])
def test_object_with_many_values_to_keep_as_bytes_is_left_to_the_slices(levels: int) -> None:
    reader = ObjectReader("Widget")
    wide = widget("w", 1, b'{"a":' * levels + b"[" + b",".join([b"[[]]"] * 1_000) + b"]" + b"}" * levels)
    assert reader.object(wide) is None
    assert reader.line(line("MODIFIED", wide)) is None
    assert reader.page(listed(wide)) is None
    assert finish(reader.parsed(wide)) is None
    assert json_bytes(finish(reader.read(wide))) == wide


async def test_line_that_is_scanned_late_counts_although_the_watch_ended_before(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    spec = b'{"a":' * 6_000 + b"1" + b"}" * 6_000
    api.answers.append(Answer("GET", "/widgets", 200, listed(widget("a", 5, b"{}"), widget("b", 6, b"{}"))))
    # The damaged line ends the watch at once; the next one begins after version 12.
    lines = [line("DELETED", widget("a", 11, spec)), line("MODIFIED", widget("b", 12, b"{}")), b"damaged\n"]
    api.raw_lines["widgets"] = [[b"".join(lines)]]
    await followed.start(seen.handle, ["example.com/widgets"])
    await until(lambda: seen.objects["example.com/widgets"] == {"default/b": ("u-b", "12")})
    assert followed.informers["example.com/widgets"].relist_count == 0


async def test_damaged_line_that_is_scanned_late_leads_to_a_list_if_later_lines_were_handled(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.max_watch_s = 0.05
    await api.put("widgets", "a")
    await api.put("widgets", "b")
    await followed.start(seen.handle, ["example.com/widgets"])
    del api.objects["widgets"]["default/a"]
    damaged = b'{"type":"DELETED","object":{"text":"' + b"x" * 40_000 + b"\n"
    api.raw_lines["widgets"] = [[damaged, line("MODIFIED", widget("b", 1_000, b"{}"))]]
    await until(lambda: set(seen.objects["example.com/widgets"]) == {"default/b"})
    assert followed.informers["example.com/widgets"].relist_count == 1


async def test_object_whose_name_another_one_has_is_gone_before_that_one_is_read(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.max_watch_s = 0.05
    # After this one, no deep object of the namespace is read for some seconds of the fake clock.
    greedy = widget("greedy", 6, b'{"text":"%b","deep":%b}' % (b"x" * (BURST_BYTES + 2**20), DEEP))
    api.answers.append(Answer("GET", "/widgets", 200, listed(widget("a", 5, b"{}"), greedy)))
    await followed.start(seen.handle, ["example.com/widgets"])
    known = dict(seen.objects["example.com/widgets"])
    assert known == {"default/a": ("u-a", "5"), "default/greedy": ("u-greedy", "6")}
    # To the next watch, and to the list after it.
    gone = line("ERROR", b'{"kind":"Status","code":410,"message":"too old resource version"}')
    api.answers.append(Answer("GET", "/widgets", 200, gone))
    another = widget("a", 9).replace(b"u-a", b"u-new")
    api.answers.append(Answer("GET", "/widgets", 200, listed(another, greedy, version=20)))
    await until(lambda: len(seen.events) == 3)
    assert seen.events[2].new is None
    assert set(seen.objects["example.com/widgets"]) == {"default/greedy"}


async def read_again() -> Reading:
    return ObjectReader("Widget").read(widget("again", 1))


def late_widget(
    name: str, size_bytes: int, namespace: str = "default", again: Callable[[], Any] = read_again
) -> LateObject:
    return LateObject(
        key=name,
        namespace=namespace,
        size_bytes=size_bytes,
        steps=ObjectReader("Widget").read(widget(name, 1, namespace=namespace)),
        again=again,
        is_wanted=lambda: True,
    )


@pytest.fixture
def late(clock: ManualClock) -> Iterator[LateReader]:
    made = LateReader(clock)
    yield made
    made.stop()


async def test_late_reading_is_bounded_by_namespace_and_others_are_not_kept_waiting(
    late: LateReader, clock: ManualClock
) -> None:
    done: list[str] = []

    def tell(name: str, _: object) -> None:
        done.append(name)

    for i in range(4):
        late.read(late_widget(f"g{i}", BURST_BYTES, "greedy"), partial(tell, f"g{i}"))
    late.read(late_widget("m", 1_000, "modest"), partial(tell, "m"))
    await until(lambda: len(done) == 3)
    assert sorted(done) == ["g0", "g1", "m"]
    assert late.waiting_count == 2
    now_s = clock.monotonic_s()
    clock.advance_to(now_s + BURST_BYTES / BYTES_PER_S + 0.01)
    await until(lambda: len(done) == 4)
    clock.advance_to(now_s + 2 * BURST_BYTES / BYTES_PER_S + 0.02)
    await until(lambda: len(done) == 5)


async def test_bytes_that_wait_are_bounded_and_the_rest_is_asked_for_again(
    late: LateReader, clock: ManualClock
) -> None:
    asked: list[str] = []
    done: list[Any] = []

    async def again(name: str) -> Reading:
        asked.append(name)
        if asked.count(name) == 1 and name == "w9":
            raise UnavailableError("widgets", name, "lost")
        return ObjectReader("Widget").only_item(listed(widget(name, 2)))

    for i in range(10):
        late.read(late_widget(f"w{i}", 2**20, again=partial(again, f"w{i}")), done.append)
    assert late.held_bytes == {"default": MAX_HELD_BYTES}
    # The watches go on.
    await asyncio.wait_for(late.has_room(), PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        while len(done) < 10:  # also while a thread still reads one
            clock.advance_to(clock.monotonic_s() + 10)
            await asyncio.sleep(0.01)
    assert asked == ["w4", "w5", "w6", "w7", "w8", "w9", "w9"]
    assert (late.waiting_count, late.held_bytes) == (0, {})
    assert {item["metadata"]["resourceVersion"] for item in done} == {"1", "2"}


async def test_later_state_of_an_object_takes_the_place_of_an_earlier_one(late: LateReader) -> None:
    done: list[str] = []

    def tell(name: str, _: object) -> None:
        done.append(name)

    replaced = [late.read(late_widget("a", 2**20), partial(tell, str(i))) for i in range(1_000)]
    assert replaced == [False] + [True] * 999
    assert (late.waiting_count, late.held_bytes["default"]) == (1, 2**20)
    await until(lambda: bool(done))
    assert done == ["999"]


async def test_error_with_one_object_ends_the_reading_of_no_other(late: LateReader) -> None:
    def fails() -> Iterator[None]:
        yield
        raise KeyError("wrong")

    done: list[Any] = []
    late.scan(fails(), 10, done.append)  # type: ignore[arg-type]
    late.read(late_widget("a", 10), done.append)
    await until(lambda: len(done) == 2)
    assert isinstance(done[0], ValueError)
    assert done[1]["metadata"]["name"] == "a"


async def test_order_of_changes_is_kept_only_while_anything_is_read_late(late: LateReader) -> None:
    order = LateOrder(late)
    for i in range(10):
        order.note(order.next_turn(), f"claim-{i}")
    assert not any(order.is_overtaken(0, f"claim-{i}") for i in range(10))
    order.read(late_widget("a", 10), lambda _: None)
    order.note(order.next_turn(), "a")
    assert order.is_overtaken(1, "a")
    order.read(late_widget("a", 10), lambda _: None)
    await order.settled(5)
    assert order.is_idle
    assert not order.is_overtaken(1, "a")


async def test_large_object_is_read_in_slices_beside_other_tasks() -> None:
    document = widget("w", 1, b"[" + b",".join([b'{"a":[]}'] * 60_000) + b"," + DEEP + b"]")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    item = await in_slices(ObjectReader("Widget").scanned_object(document))
    counting.cancel()
    assert len(item["spec"]) == 60_001
    assert turns >= 10


async def test_object_with_hundreds_of_thousands_of_lists_is_left_to_the_slices_and_read(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    many = b"[%b]" % b",".join([b"[]"] * 200_000)
    changed, other = line("ADDED", widget("many", 11, many)), line("ADDED", widget("few", 12, b"{}"))
    reader = ObjectReader("example.com/widgets")
    assert reader.line(changed) is None
    assert reader.object(widget("many", 11, many)) is None
    assert reader.line(other) is not None
    api.answers.append(Answer("GET", "/widgets", 200, listed()))
    api.raw_lines["widgets"] = [[changed, other]]
    await followed.start(seen.handle, ["example.com/widgets"])
    await until(lambda: len(seen.objects["example.com/widgets"]) == 2)
    assert seen.faults == []
    (found,) = (one.new for one in seen.events if one.new is not None and one.new.ref.name == "many")
    assert found.get("spec") == [[]] * 200_000
