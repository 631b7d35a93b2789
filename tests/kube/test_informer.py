"""The list and watch of one resource: its selector, and refused, broken and silent watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from berth_host.cluster.port import EventRecord
from berth_host.errors.cluster import NotFoundError
from berth_host.model.clock import ManualClock
from berth_kube.access import check_lists, rights
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.informer import WatchTimes
from berth_sdk.kube_object import LAST_APPLIED, ObjectRef
from support.kube_api import Answer, KubeApi
from support.waiting import until
from support.watched_view import WatchedView

TIMES = WatchTimes(min_watch_s=60, max_watch_s=60, idle_s=1.0, page_size=3)


@pytest.fixture
async def followed(client: KubeClient, clock: ManualClock) -> AsyncIterator[KubeCluster]:
    made = KubeCluster(client, clock, times=TIMES)
    yield made
    await made.stop()


@pytest.fixture
def seen() -> WatchedView:
    return WatchedView()


async def test_start_hands_over_all_pages_and_then_watches(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    for i in range(7):
        await api.put("nodes", f"n{i}")
    await followed.start(seen.handle, ["nodes"])
    assert sorted(seen.objects["Node"]) == [f"n{i}" for i in range(7)]
    # The watch may have been asked for by now, or not yet.
    lists = [request for request in api.seen("GET", "/nodes") if "watch" not in request.query]
    assert [request.query["limit"] for request in lists] == ["3", "3", "3"]
    assert all(event.old is None for event in seen.events)
    assert followed.synced == {"nodes": True}
    await api.put("nodes", "n0", spec={"unschedulable": True})
    await until(lambda: len(seen.events) == 8)
    changed = seen.events[-1]
    assert changed.old is not None
    assert changed.new is not None
    assert changed.new.get("spec.unschedulable") is True
    assert seen.faults == []


async def test_listed_objects_get_their_kind_and_lose_bookkeeping_fields(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await api.put("pods", "web", metadata={"annotations": {LAST_APPLIED: "{}", "a": "b"}})
    await api.put("services", "svc", metadata={"annotations": {LAST_APPLIED: "{}"}})
    await followed.start(seen.handle, ["pods", "services"])
    objects = {event.kind: event.new for event in seen.events}
    pod, service = objects["Pod"], objects["Service"]
    assert pod is not None
    assert service is not None
    assert (pod.kind, pod.api_version, pod.parsed["kind"]) == ("Pod", "v1", "Pod")
    assert "managedFields" not in pod.parsed["metadata"]
    assert pod.parsed["metadata"]["annotations"] == {"a": "b"}
    # What we may write back whole keeps what its owner's tools live on.
    assert service.parsed["metadata"]["annotations"] == {LAST_APPLIED: "{}"}


async def test_finished_pods_are_not_watched_and_a_pod_that_finishes_is_deleted(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await api.put("pods", "done", status={"phase": "Failed"})
    await api.put("pods", "runs", status={"phase": "Running"})
    await followed.start(seen.handle, ["pods"])
    assert list(seen.objects["Pod"]) == ["default/runs"]
    await api.put("pods", "runs", status={"phase": "Succeeded"})
    await until(lambda: not seen.objects["Pod"])
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    assert {request.query.get("fieldSelector") for request in api.seen("GET", "/pods")} == {selector}


async def test_custom_resource_is_found_in_its_preferred_version(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await api.put("widgets", "w")
    await followed.start(seen.handle, ["example.com/widgets"])
    [event] = seen.events
    assert event.kind == "example.com/widgets"
    assert event.new is not None
    assert (event.new.kind, event.new.api_version) == ("Widget", "example.com/v1beta1")


async def test_resource_that_is_not_served_delays_no_other_resource(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.not_served.add("widgets")
    await followed.start(seen.handle, ["example.com/widgets", "nodes"])
    assert followed.synced == {"example.com/widgets": True, "nodes": True}
    assert "is its CRD installed?" in followed.problems["example.com/widgets"]
    api.not_served.clear()
    await api.put("widgets", "late")
    await until(lambda: "default/late" in seen.objects["example.com/widgets"])
    await until(lambda: not followed.problems)


@pytest.mark.slow
async def test_missing_right_is_named_with_its_cure_and_retried(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    message = 'csinodes is forbidden: User "u" cannot list resource "csinodes"'
    body = {"kind": "Status", "code": 403, "message": message}
    api.answers.append(Answer("GET", "/csinodes", 403, body))
    api.answers.append(Answer("GET", "/csinodes", 403, body, wait_s=0.2))
    starting = asyncio.ensure_future(followed.start(seen.handle, ["storage.k8s.io/csinodes"]))
    await until(lambda: bool(followed.problems))
    assert followed.synced == {"storage.k8s.io/csinodes": False}
    problem = followed.problems["storage.k8s.io/csinodes"]
    assert problem.startswith(message)
    assert "apiGroups: ['storage.k8s.io'], resources: ['csinodes'], verbs: ['list', 'watch']" in problem
    await starting
    await until(lambda: not followed.problems)


async def test_resource_that_comes_later_is_watched_once(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await api.put("nodes", "n1")
    await followed.start(seen.handle, [])
    assert seen.events == []
    await asyncio.gather(followed.watch(["nodes"]), followed.watch(["nodes"]))
    await followed.watch(["nodes"])
    assert list(seen.objects["Node"]) == ["n1"]
    assert len(seen.events) == 1
    assert len([request for request in api.seen("GET", "/nodes") if "watch" not in request.query]) == 1


async def test_relist_after_410_hands_over_only_changes(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    for name in ("same", "changes", "goes", "reborn"):
        await api.put("nodes", name)
    api.max_watch_s = 0.05
    await followed.start(seen.handle, ["nodes"])
    seen.events.clear()
    api.not_served.add("nodes")
    await until(lambda: bool(followed.problems))
    await api.put("nodes", "changes", spec={})
    await api.delete("nodes", "goes")
    await api.delete("nodes", "reborn")
    await api.put("nodes", "reborn")
    await api.put("nodes", "new")
    api.compact()
    api.max_watch_s = 60.0
    api.not_served.clear()
    await until(lambda: "new" in seen.objects["Node"] and "goes" not in seen.objects["Node"])
    told = [
        (ref.name, event.old is not None, event.new is not None)
        for event in seen.events
        if (item := event.new or event.old) is not None and (ref := item.ref)
    ]
    assert sorted(told) == [
        ("changes", True, True),
        ("goes", True, False),
        ("new", False, True),
        ("reborn", False, True),
        ("reborn", True, False),
    ]
    assert seen.faults == []
    assert followed.informers["nodes"].relist_count == 1


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"ADDED","object":{"meta\n', id="cut"),
        pytest.param(b"[]\n", id="no event"),
        pytest.param(b'{"type":"SURPRISE","object":{"metadata":{"resourceVersion":"11"}}}\n', id="type"),
        pytest.param(b'{"type":"ADDED","object":{"kind":"Node"}}\n', id="no metadata"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object"),
        pytest.param(b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"x"}}\n', id="error"),
        pytest.param(b'{"type":"ERROR","object":null}\n', id="error without status"),
    ],
)
async def test_unreadable_line_of_a_watch_loses_no_later_change(
    api: KubeApi, followed: KubeCluster, seen: WatchedView, line: bytes
) -> None:
    api.raw_lines["nodes"] = [[line]]
    await followed.start(seen.handle, ["nodes"])
    await api.put("nodes", "n1")
    await until(lambda: "n1" in seen.objects["Node"])
    if b"ERROR" not in line:
        assert followed.informers["nodes"].broken_count > 0


async def test_line_that_stays_broken_is_made_good_by_a_list(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await api.put("nodes", "n1")
    # Set before the start: the server may take the first watch before the start returns.
    api.raw_lines["nodes"] = [[b"no event\n"], [b"no event\n"]]
    await followed.start(seen.handle, ["nodes"])
    # Whatever the line was about, the list has it; here it is a deletion that no line tells.
    del api.objects["nodes"]["n1"]
    informer = followed.informers["nodes"]
    await until(lambda: "n1" not in seen.objects["Node"])
    assert (informer.broken_count, informer.relist_count) == (2, 1)


async def test_object_without_a_name_is_counted_and_the_next_one_comes(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    nameless = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "11"}}}
    api.raw_lines["nodes"] = [[json.dumps(nameless).encode() + b"\n"]]
    await followed.start(seen.handle, ["nodes"])
    await api.put("nodes", "n0")
    await api.put("nodes", "n1")
    await until(lambda: "n1" in seen.objects["Node"])
    assert followed.informers["nodes"].broken_count == 1
    assert followed.informers["nodes"].reconnect_count == 0


@pytest.mark.slow
async def test_silent_watch_is_replaced_by_a_new_one(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.is_silent = True
    await followed.start(seen.handle, ["nodes"])
    await until(lambda: any("watch" in request.query for request in api.seen("GET", "/nodes")))
    api.is_silent = False
    await api.put("nodes", "n1")
    await until(lambda: "n1" in seen.objects["Node"])
    assert followed.informers["nodes"].reconnect_count == 1


async def test_handler_that_raises_loses_one_object_and_the_loop_reports_it(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))

    def handle(event: object) -> None:
        seen.handle(event)  # type: ignore[arg-type]  # any handler takes WatchEvents
        if "n1" in seen.objects["Node"] and not heard:
            raise ValueError("a bug")

    await followed.start(handle, ["nodes"])
    await api.put("nodes", "n1")
    await until(lambda: bool(heard))
    await api.put("nodes", "n2")
    await until(lambda: "n2" in seen.objects["Node"])
    assert [str(err) for err in heard] == ["a bug"]
    assert seen.faults == []


async def test_nothing_is_handed_over_after_stop(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    await followed.start(seen.handle, ["nodes"])
    await followed.stop()
    await api.put("nodes", "n1")
    await asyncio.sleep(0.05)
    assert seen.events == []
    assert followed.undelivered_count == 0


@pytest.mark.parametrize(
    ("resource", "gate", "version"),
    [
        ("scheduling.k8s.io/podgroups", "GenericWorkload", "v1beta1"),
        ("scheduling.k8s.io/compositepodgroups", "CompositePodGroup", "v1beta1"),
    ],
    ids=["podgroups", "compositepodgroups"],
)
async def test_api_server_without_pod_groups_is_told_the_flags_that_it_needs(
    followed: KubeCluster, seen: WatchedView, resource: str, gate: str, version: str
) -> None:
    with pytest.raises(NotFoundError) as caught:
        await followed.start(seen.handle, ["pods", resource])
    text = str(caught.value)
    assert text.startswith(f"{resource}: the API server does not serve it")
    assert f"--feature-gates={gate}=true" in text
    assert f"--runtime-config=scheduling.k8s.io/{version}=true" in text
    assert f"or turn off {gate} here" in text


COMPOSITE_GROUPS = "scheduling.k8s.io/compositepodgroups"
BETA, ALPHA = "scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"


@pytest.mark.parametrize(
    ("served", "used"),
    [([ALPHA], ALPHA), ([BETA], BETA), ([ALPHA, BETA], BETA)],
    ids=["1.37", "1.38", "both"],
)
async def test_composite_groups_are_watched_in_the_newest_version_that_the_server_has(
    api: KubeApi, followed: KubeCluster, seen: WatchedView, served: list[str], used: str
) -> None:
    api.not_served.clear()
    api.group_versions = served
    await api.put("compositepodgroups", "tree")
    await followed.start(seen.handle, [COMPOSITE_GROUPS])
    await api.put("compositepodgroups", "later")
    await until(lambda: "default/later" in seen.objects["CompositePodGroup"])
    assert {request.path for request in api.seen("GET", "/compositepodgroups")} == {
        f"/apis/{used}/compositepodgroups"
    }
    ref = ObjectRef(namespace="default", name="tree")
    found = await followed.get(COMPOSITE_GROUPS, ref)
    assert found is not None
    assert found.api_version == used
    record = EventRecord(
        regarding=ref,
        regarding_kind="CompositePodGroup",
        reason="Waiting",
        action="Scheduling",
        note="",
        reporter="x",
    )
    followed.events.add(record)
    await until(lambda: bool(api.seen("POST", "/events")))
    assert api.seen("POST", "/events")[0].body["regarding"]["apiVersion"] == used


async def test_composite_groups_are_found_again_after_the_server_drops_a_version(
    api: KubeApi, followed: KubeCluster, seen: WatchedView
) -> None:
    api.not_served.clear()
    api.group_versions, api.max_watch_s = [ALPHA], 0.05
    await followed.start(seen.handle, [COMPOSITE_GROUPS])
    api.group_versions = [BETA]
    await api.put("compositepodgroups", "tree")
    # A watch of the older version that is still open may show the object first.
    path = f"/apis/{BETA}/compositepodgroups"
    await until(lambda: api.seen("GET", "/compositepodgroups")[-1].path == path)
    await until(lambda: "default/tree" in seen.objects["CompositePodGroup"])
    assert seen.faults == []


async def test_error_about_composite_groups_names_both_versions(
    followed: KubeCluster, seen: WatchedView
) -> None:
    with pytest.raises(NotFoundError) as caught:
        await followed.start(seen.handle, [COMPOSITE_GROUPS])
    assert f"--runtime-config={BETA}=true (an older one: {ALPHA}=true), or turn off" in str(caught.value)


async def test_other_resource_that_is_not_served_has_no_objects(
    followed: KubeCluster, seen: WatchedView
) -> None:
    await followed.start(seen.handle, ["storage.k8s.io/csidrivers"])
    assert seen.events == []


TAINT_RULES = "resource.k8s.io/devicetaintrules"


@pytest.mark.parametrize(
    ("served", "used"),
    [([], ""), (["resource.k8s.io/v1beta2"], "v1beta2"), (["resource.k8s.io/v1"], "v1")],
    ids=["1.36", "1.36 with its gate", "1.37"],
)
async def test_device_taint_rules_need_no_rights_where_the_server_has_none(
    api: KubeApi, followed: KubeCluster, client: KubeClient, seen: WatchedView, served: list[str], used: str
) -> None:
    """RBAC refuses a resource before the API server says that it does not have it."""
    api.taint_rule_versions = served
    await check_lists(client, ["nodes", TAINT_RULES], list(rights(["nodes", TAINT_RULES])))
    await api.put("nodes", "n1")
    await api.put("devicetaintrules", "r1")
    await followed.start(seen.handle, ["nodes", TAINT_RULES])
    assert list(seen.objects["Node"]) == ["n1"]
    assert list(seen.objects["DeviceTaintRule"]) == (["r1"] if served else [])
    paths = {request.path for request in api.seen("GET", "/devicetaintrules")}
    assert paths == ({f"/apis/resource.k8s.io/{used}/devicetaintrules"} if served else set())
