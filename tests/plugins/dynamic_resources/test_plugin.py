"""DynamicResources: the pods that it skips, its verdicts and messages, its scores, and its hints."""

from __future__ import annotations

import asyncio
import itertools
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from berth_plugins.cel.functions import regexes
from berth_plugins.dynamic_resources import allocator, search
from berth_plugins.dynamic_resources import attempt as attempts
from berth_plugins.dynamic_resources.attempt import Attempt, PodClaim
from berth_plugins.dynamic_resources.binding import FINALIZER, deallocation
from berth_plugins.dynamic_resources.claims import claims_of
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_sdk.cycle_state import CycleState
from berth_sdk.errors import PluginArgsError
from berth_sdk.events import ClusterEvent
from berth_sdk.extension_points import NoConcern
from berth_sdk.handle import ObjectReader
from berth_sdk.json.reader import RawJson
from berth_sdk.kube_object import KubeObject
from berth_sdk.node_selectors import NodeSelector
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, PodGroup
from berth_sdk.results import PodGroupPostFilterResult, QueuedPod, Tries
from berth_sdk.slices import Slices, at_once
from berth_sdk.status import SUCCESS, Code, Status
from berth_sdk.tables import NodeTable, ObjectStore
from berth_sdk.testing import make_node, make_table
from berth_sdk.testing.handle import RecordingHandle
from support.asking import NO_HANDLE, Ask, Plug, filter_now
from support.device_objects import (
    DRIVER,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    resource_slice,
)

NODES = make_table([make_node("n1", labels={"zone": "a"}), make_node("n2", labels={"zone": "b"})])
CANNOT = Status.unresolvable("cannot allocate all claims")
ELSEWHERE = Status.unresolvable("resourceclaim not available on the node")
TWO = [device("d0", "big", "40Gi"), device("d1", "small", "16Gi")]
SELECTS = f'device.attributes["{DRIVER}"].model == "big"'


def plug(
    claims: list[dict[str, Any]],
    slices: list[dict[str, Any]] | None = None,
    classes: list[dict[str, Any]] | None = None,
    **gates: bool,
) -> Plug:
    return Plug(
        DynamicResources,
        {"featureGates": gates} if gates else {},
        {
            "resource.k8s.io/resourceclaims": claims,
            "resource.k8s.io/resourceslices": [resource_slice("n1", TWO)] if slices is None else slices,
            "resource.k8s.io/deviceclasses": [device_class()] if classes is None else classes,
        },
    )


def plugin_of(plugged: Plug) -> DynamicResources:
    """Return a plugin that reads the objects of `plugged` in its own process."""
    stores = {name: store_of(known) for name, known in plugged.objects.items()}
    stores["resource.k8s.io/devicetaintrules"] = ObjectStore()
    return DynamicResources({}, RecordingHandle(lambda: NODES, stores))


def web(*names: str, **fields: Any) -> Pod:
    return Pod.from_object(pod_with(*names, **fields))


@pytest.mark.slow
async def test_pod_without_claims_is_skipped(ask: Ask) -> None:
    assert (await ask.pre_filter(plug([]), web(), NODES)).status.code is Code.SKIP
    plain = web(requests={"example.com/gpu": "1"})
    assert (await ask.pre_filter(plug([]), plain, NODES)).status.code is Code.SKIP


def test_pod_is_skipped_until_a_class_provides_its_resource() -> None:
    store = ObjectStore()
    empty = {"resource.k8s.io/resourceclaims": ObjectStore(), "resource.k8s.io/resourceslices": ObjectStore()}
    stores = {
        **empty,
        "resource.k8s.io/deviceclasses": store,
        "resource.k8s.io/devicetaintrules": ObjectStore(),
    }
    plugin = DynamicResources({}, RecordingHandle(lambda: NODES, stores))
    pod = web(requests={"example.com/gpu": "1"})
    assert plugin.sign(pod, NODES) is NoConcern.CYCLE
    assert cast(Status, plugin.pre_filter(CycleState("a"), pod, NODES)).code is Code.SKIP
    served = KubeObject.of(device_class(extendedResourceName="example.com/gpu"))
    store.put(served.ref, served, 1)
    assert plugin.sign(pod, NODES) is not NoConcern.CYCLE
    assert plugin.pre_filter(CycleState("b"), pod, NODES) == SUCCESS
    assert plugin.sign(web("c"), NODES) is not NoConcern.CYCLE
    assert plugin.sign(web(), NODES) is NoConcern.CYCLE
    # A class that comes later may provide the resource: the spec does not decide.
    assert plugin.sign_spec(pod) is plugin.sign_spec(web("c")) is None
    assert plugin.sign_spec(web(requests={"cpu": "1"})) is NoConcern.CYCLE


DELETED = claim("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
WRONG = {
    "missing": ("c", [], 'could not find ResourceClaim "default/c"'),
    "deleted": ("c", [DELETED], 'resourceclaim "c" is being deleted'),
    "not made yet": ("template", [], 'pod "default/web": ResourceClaim not created yet'),
}
UNUSABLE = {
    "class": (claim("c", exactly(class_name="nope")), "request r: device class nope does not exist"),
    "class of an alternative": (
        claim("c", {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "nope"}]}),
        "request r/a: device class nope does not exist",
    ),
    "kind of request": (
        claim("c", {"name": "r"}),
        "resource claim default/c, request r: unknown request type",
    ),
}


async def test_opaque_parameters_of_any_depth_are_no_concern_of_the_search(ask: Ask) -> None:
    deep = RawJson(b'{"a":' * 3_000 + rb'"\ud800"' + b"}" * 3_000)
    config = [{"opaque": {"driver": DRIVER, "parameters": deep}}]
    item = claim("c", exactly())
    item["spec"]["devices"]["config"] = config
    served = device_class()
    served["spec"]["config"] = config
    plugged = plug([item], classes=[served])
    assert (await ask.filter(plugged, web("c"), NODES))[0].code is Code.SUCCESS


async def test_opaque_parameters_reach_the_allocation_as_their_owner_wrote_them() -> None:
    config = [{"opaque": {"driver": DRIVER, "parameters": RawJson(b'{"a": 1.0}')}}]
    item = claim("c", exactly(), metadata={"finalizers": [FINALIZER]}, devices={"config": config})
    plugin = plugin_of(plug([item]))
    pod, state = web("c"), CycleState("a")
    assert plugin.pre_filter(state, pod, NODES) == SUCCESS
    assert cast(Any, plugin.filter_nodes(state, pod, NODES)).to_list()[0] == SUCCESS
    assert plugin.reserve(state, pod, "n1") == SUCCESS
    # As in a process that was started after Reserve: it has the token alone.
    other = CycleState("a")
    other.token = state.token
    for binder, kept in ((plugin, state), (plugin_of(plug([item])), other)):
        bound: Any = await binder.pre_bind(kept, pod, "n1", ())
        (patch,) = bound.patches
        assert patch.merge_patch["status"]["allocation"]["devices"]["config"] == [
            {"source": "FromClaim", **config[0]}
        ]


@pytest.mark.parametrize(("name", "claims", "words"), WRONG.values(), ids=WRONG)
async def test_pod_waits_for_its_claims(ask: Ask, name: str, claims: list[Any], words: str) -> None:
    want = Status.unresolvable(words)
    assert (await ask.pre_filter(plug(claims), web(name), NODES)).status == want
    assert await ask.pre_enqueue(plug(claims), QueuedPod(pod=web(name))) == want


@pytest.mark.parametrize(("item", "words"), UNUSABLE.values(), ids=UNUSABLE)
async def test_claim_that_no_node_can_satisfy_is_unresolvable(
    ask: Ask, item: dict[str, Any], words: str
) -> None:
    assert (await ask.pre_filter(plug([item]), web("c"), NODES)).status == Status.unresolvable(words)
    assert await ask.pre_enqueue(plug([item]), QueuedPod(pod=web("c"))) == SUCCESS


def test_generated_claim_belongs_to_the_pod_and_may_not_be_needed() -> None:
    made = claim("web-t", metadata={"ownerReferences": [{"controller": True, "uid": "uid-other"}]})
    raw = pod_with("template")
    raw["status"]["resourceClaimStatuses"] = [{"name": "c0", "resourceClaimName": "web-t"}]
    words = "ResourceClaim default/web-t was not created for Pod default/web (Pod is not owner)"
    assert filter_now(plug([made]), Pod.from_object(raw), NODES) == [Status.unresolvable(words)] * 2
    made["metadata"]["ownerReferences"][0]["uid"] = "uid-web"
    assert filter_now(plug([made]), Pod.from_object(raw), NODES) == [SUCCESS, CANNOT]
    raw["status"]["resourceClaimStatuses"] = [{"name": "c0"}]
    assert filter_now(plug([]), Pod.from_object(raw), NODES) == [SUCCESS] * 2


CASES: dict[str, tuple[dict[str, Any], list[Status]]] = {
    "one of two": ({}, [SUCCESS, CANNOT]),
    "both": ({"count": 2}, [SUCCESS, CANNOT]),
    "more than there are": ({"count": 3}, [CANNOT] * 2),
    "all": ({"allocationMode": "All"}, [SUCCESS, CANNOT]),
    "capacity of it": ({"capacity": {"requests": {"memory": "40Gi"}}}, [SUCCESS, CANNOT]),
    "too much capacity": ({"capacity": {"requests": {"memory": "41Gi"}}}, [CANNOT] * 2),
    "unknown capacity": ({"capacity": {"requests": {"cores": "1"}}}, [CANNOT] * 2),
}


@pytest.mark.parametrize(("request_fields", "want"), CASES.values(), ids=CASES)
async def test_requests_get_matching_devices(
    ask: Ask, request_fields: dict[str, Any], want: list[Status]
) -> None:
    item = claim("c", exactly(**request_fields))
    assert await ask.filter(plug([item]), web("c"), NODES) == want


async def test_selectors_of_class_and_request_must_match(ask: Ask) -> None:
    classes = [device_class("gpu", f'device.driver == "{DRIVER}"'), device_class("big", SELECTS)]
    small = exactly(
        class_name="gpu", count=2, selectors=[{"cel": {"expression": SELECTS.replace("big", "small")}}]
    )
    both = claim("c", exactly("a", "big"), exactly("b", "gpu"))
    assert await ask.filter(plug([both], classes=classes), web("c"), NODES) == [SUCCESS, CANNOT]
    assert await ask.filter(plug([claim("c", small)], classes=classes), web("c"), NODES) == [CANNOT] * 2


@pytest.mark.parametrize(
    ("expression", "words"),
    [("device.", "CEL compile error"), ('device.attributes["x"].y == 1', "CEL runtime error"), ("1", "CEL")],
)
def test_expression_that_fails_ends_the_attempt(expression: str, words: str) -> None:
    classes = [device_class("gpu", expression)]
    on_node, elsewhere = filter_now(plug([claim("c")], classes=classes), web("c"), NODES)
    assert on_node.code is Code.ERROR
    assert on_node.message.startswith("class gpu: selector #0")
    assert words in on_node.message
    assert elsewhere == CANNOT


async def test_devices_of_allocated_claims_are_taken(ask: Ask) -> None:
    taken = claim("other", allocated=["n1/d0"])
    assert await ask.filter(plug([claim("c"), taken]), web("c"), NODES) == [SUCCESS, CANNOT]
    more = claim("another", allocated=["n1/d1"])
    assert await ask.filter(plug([claim("c"), taken, more]), web("c"), NODES) == [CANNOT] * 2
    watcher = claim("c", exactly(adminAccess=True))
    assert await ask.filter(plug([watcher, taken, more]), web("c"), NODES) == [SUCCESS, CANNOT]


async def test_allocated_claim_is_available_where_its_selector_says(ask: Ask) -> None:
    mine = claim("c", allocated=["n1/d0"])
    assert await ask.filter(plug([mine]), web("c"), NODES) == [SUCCESS, ELSEWHERE]


TAINTED = device("d0", taints=[{"key": "bad", "value": "x", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("toleration", "passes"),
    [
        (None, False),
        ({"operator": "Exists"}, True),
        ({"key": "bad", "value": "x"}, True),
        ({"key": "bad", "value": "y"}, False),
        ({"key": "bad", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_device_taints_exclude_claims_without_a_toleration(
    toleration: dict[str, Any] | None, passes: bool
) -> None:
    item = claim("c", exactly(tolerations=[toleration] if toleration else []))
    got = filter_now(plug([item], [resource_slice("n1", [TAINTED])]), web("c"), NODES)
    assert got == [SUCCESS if passes else CANNOT, CANNOT]


ZONE_B = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]}
ONE = [device("d0")]
PLACES = {
    "all nodes": ([resource_slice("s", ONE, allNodes=True)], [SUCCESS] * 2),
    "by labels": ([resource_slice("s", ONE, nodeSelector=ZONE_B)], [CANNOT, SUCCESS]),
    "by device": (
        [
            resource_slice(
                "s", [device("d0", nodeName="n2"), device("d1", nodeName="n3")], perDeviceNodeSelection=True
            )
        ],
        [CANNOT, SUCCESS],
    ),
    "older generation": (
        [
            resource_slice("s", ONE, "p", nodeName="n1", generation=1),
            resource_slice("t", ONE, "p", nodeName="n2", generation=2),
        ],
        [CANNOT, SUCCESS],
    ),
    "incomplete pool": ([resource_slice("n1", ONE, resourceSliceCount=2)], [CANNOT] * 2),
    "name twice": (
        [resource_slice("n1", [*ONE, *ONE])],
        [Status.unresolvable("invalid resource pools were encountered"), CANNOT],
    ),
}


@pytest.mark.parametrize(("slices", "want"), PLACES.values(), ids=PLACES)
async def test_newest_complete_slices_of_a_pool_count(
    ask: Ask, slices: list[Any], want: list[Status]
) -> None:
    assert await ask.filter(plug([claim("c")], slices), web("c"), NODES) == want


@pytest.mark.parametrize(
    ("by_node", "code"), [(True, Code.UNSCHEDULABLE_AND_UNRESOLVABLE), (False, Code.ERROR)]
)
def test_request_for_all_devices_fails_where_a_pool_is_incomplete(by_node: bool, code: Code) -> None:
    item = claim("c", exactly(allocationMode="All"))
    slices = [resource_slice("n1", ONE, resourceSliceCount=2)]
    plugged = plug([item], slices, AllDevicesByNode=by_node)
    on_node, elsewhere = filter_now(plugged, web("c"), NODES)
    assert on_node.code is code
    assert on_node.message == (
        f"claim default/c, request r: asks for all devices, but resource pool {DRIVER}/n1 is currently being"
        " updated"
    )
    assert elsewhere == CANNOT


def test_counters_are_shared_by_the_devices_of_a_pool() -> None:
    half = [{"counterSet": "memory", "counters": {"size": {"value": "20Gi"}}}]
    parts = [device(f"d{i}", consumesCounters=half) for i in range(3)]
    whole = {"name": "memory", "counters": {"size": {"value": "40Gi"}}}
    slices = [
        resource_slice("n1", parts, "p", resourceSliceCount=2),
        resource_slice("counters", [], "p", resourceSliceCount=2, sharedCounters=[whole]),
    ]
    for count, want in ((2, SUCCESS), (3, CANNOT)):
        assert filter_now(plug([claim("c", exactly(count=count))], slices), web("c"), NODES)[0] == want
    taken = claim("other", allocated=["p/d2"])
    for count, want in ((1, SUCCESS), (2, CANNOT)):
        got = filter_now(plug([taken, claim("c", exactly(count=count))], slices), web("c"), NODES)
        assert got[0] == want


@pytest.mark.parametrize(
    ("constraint", "wanted"), [("matchAttribute", CANNOT), ("distinctAttribute", SUCCESS)]
)
def test_constraints_limit_the_chosen_devices(constraint: str, wanted: Status) -> None:
    devices = {"constraints": [{constraint: f"{DRIVER}/model"}]}
    item = claim("c", exactly(count=2), devices=devices)
    assert filter_now(plug([item]), web("c"), NODES)[0] == wanted


async def test_earlier_alternatives_score_higher(ask: Ask) -> None:
    classes = [device_class(), device_class("big", SELECTS)]
    slices = [resource_slice("n1", TWO), resource_slice("n2", [device("d0", "small")])]
    choices = [{"name": "a", "deviceClassName": "big"}, {"name": "b", "deviceClassName": "gpu"}]
    item = claim("c", {"name": "r", "firstAvailable": choices})
    runtime = plug([item], slices, classes).runtime()
    state = CycleState("cycle")
    assert runtime.pre_filter(state, web("c"), NODES).status == SUCCESS  # type: ignore[union-attr]  # plain methods
    verdicts: Any = runtime.filter(state, web("c"), NODES)
    assert verdicts.verdicts.to_list() == [SUCCESS] * 2
    scores: Any = runtime.score(state, web("c"), NODES)
    assert scores.tolist() == [8, 7]


def test_devices_provide_a_resource_where_the_node_has_none() -> None:
    nodes = make_table(
        [make_node("n1"), make_node("n2"), make_node("n3", allocatable={"example.com/gpu": 4})]
    )
    classes = [device_class(extendedResourceName="example.com/gpu")]
    for amount, on_n1 in (("2", SUCCESS), ("3", CANNOT)):
        got = filter_now(plug([], classes=classes), web(requests={"example.com/gpu": amount}), nodes)
        assert got == [on_n1, CANNOT, SUCCESS]


def test_without_the_extra_a_pod_that_needs_cel_is_rejected_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regexes, "library", lambda: None)
    want = (
        "device class gpu: CEL selectors need the extra berth-plugins[dra] (pip install 'berth-plugins[dra]')"
    )
    got = filter_now(plug([claim("c")], classes=[device_class("gpu", "true")]), web("c"), NODES)
    assert got == [Status.unresolvable(want)] * 2
    assert filter_now(plug([claim("c")]), web("c"), NODES) == [SUCCESS, CANNOT]


# --- hints -----------------------------------------------------------------------------------------


def changed(old: dict[str, Any] | None, new: dict[str, Any]) -> ClusterEvent:
    return ClusterEvent(
        resource="resource.k8s.io/ResourceClaim",
        action="add" if old is None else "update",
        old=None if old is None else KubeObject.of(old),
        new=KubeObject.of(new),
    )


HINTS = {
    "own claim came": (None, claim("c"), True),
    "another came": (None, claim("other"), False),
    "another lost its devices": (claim("other", allocated=["n1/d0"]), claim("other"), True),
    "another got devices": (claim("other"), claim("other", allocated=["n1/d0"]), False),
    "own got devices": (claim("c"), claim("c", allocated=["n1/d0"]), True),
    "own got a label": (claim("c"), claim("c", metadata={"labels": {"a": "b"}}), True),
}


@pytest.mark.parametrize(("old", "new", "want"), HINTS.values(), ids=HINTS)
async def test_hint_for_changes_of_claims(
    ask: Ask, old: dict[str, Any] | None, new: dict[str, Any], want: bool
) -> None:
    assert await ask.hint(plug([claim("c")]), changed(old, new), web("c")) is want


async def test_no_claim_event_helps_while_a_claim_is_missing(ask: Ask) -> None:
    freed = changed(claim("other", allocated=["n1/d0"]), claim("other"))
    assert await ask.hint(plug([]), freed, web("c")) is False


def named(event: ClusterEvent, plugged: Plug, pod: Pod) -> bool:
    """Return True if the plugin names the pod, or all pods, before its hint is called."""
    plugin = plugin_of(plugged)
    keys = plugin.pre_queueing_hint(event)
    assert not callable(keys)
    return keys is None or bool(set(keys) & set(plugin.hint_keys(pod)))


async def helped(plugged: Plug, event: ClusterEvent, pod: Pod) -> bool:
    answer = plugin_of(plugged).queueing_hint(event, pod)
    return answer if isinstance(answer, bool) else await answer


CLAIM_STATES = [None, *(claim(name, allocated=used) for name in ("c", "own") for used in ([], ["n1/d0"]))]
CLAIM_EVENTS = [
    (old, new)
    for old, new in itertools.product(CLAIM_STATES, CLAIM_STATES)
    if (old or new) and (not old or not new or old["metadata"]["name"] == new["metadata"]["name"])
]
PODS = [web("c"), web("own"), web("c", "own"), web("template"), web("missing"), web()]


@pytest.mark.parametrize(("old", "new"), CLAIM_EVENTS)
async def test_a_pod_that_a_claim_helps_is_named_before_its_hint_is_called(
    old: dict[str, Any] | None, new: dict[str, Any] | None
) -> None:
    event = ClusterEvent(
        resource="resource.k8s.io/ResourceClaim",
        action="update" if old and new else "add" if new else "delete",
        old=KubeObject.of(old) if old else None,
        new=KubeObject.of(new) if new else None,
    )
    plugged = plug([claim("c"), claim("own")])
    hints = [await helped(plugged, event, pod) for pod in PODS]
    assert all(named(event, plugged, pod) for pod, helps in zip(PODS, hints, strict=True) if helps)
    if not any(hints):
        assert not any(named(event, plugged, pod) for pod in (web("missing"), web()))


def test_an_event_about_one_claim_names_its_pods_alone() -> None:
    plugged = plug([claim("c"), claim("own")])
    event = changed(None, claim("c"))
    assert [pod for pod in PODS if named(event, plugged, pod)] == [PODS[0], PODS[2]]


@pytest.mark.parametrize(
    ("claims", "started", "want"),
    [
        pytest.param(["c"], {}, None, id="never started"),
        pytest.param(["c"], {"startTime": "2026-01-01T00:00:00Z"}, (), id="had started"),
        pytest.param([], {}, (), id="without devices"),
    ],
)
def test_a_deleted_pod_names_all_pods_or_none(
    claims: list[str], started: dict[str, str], want: tuple[()] | None
) -> None:
    gone = pod_with(*claims)
    gone["spec"]["nodeName"] = "n1"
    gone["status"] |= started
    event = ClusterEvent(resource="Pod", action="delete", old=Pod.from_object(gone))
    assert plugin_of(plug([claim("c")])).pre_queueing_hint(event) == want


def test_keys_follow_from_the_names_of_claims() -> None:
    made = web("template")
    plugin = plugin_of(plug([]))
    assert set(plugin.hint_keys(web("c", "own"))) == {("default", "c"), ("default", "own")}
    assert set(plugin.hint_keys(made)) == {("default", name) for _, name in made.generated_claims if name}
    assert plugin.sign_queue(web("c")) != plugin.sign_queue(web("own"))


@pytest.mark.parametrize(("uid", "want"), [("uid-web", True), ("uid-x", False)])
async def test_hint_for_changes_of_pods(ask: Ask, uid: str, want: bool) -> None:
    old, new = pod_with("template"), pod_with("c")
    old["metadata"]["uid"] = new["metadata"]["uid"] = uid
    event = ClusterEvent(
        resource="Pod",
        action="update.generatedResourceClaim",
        old=Pod.from_object(old),
        new=Pod.from_object(new),
    )
    assert await ask.hint(plug([claim("c")]), event, web("template")) is want
    assert await ask.hint(plug([]), event, web("template")) is False


@pytest.mark.parametrize(
    "status",
    [
        {"allocation": {"devices": {}}},
        {"allocation": {"devices": {}}, "reservedFor": [{"uid": "u"}], "devices": []},
    ],
)
def test_deallocation_patches_only_fields_that_the_claim_has(status: dict[str, Any]) -> None:
    patch = deallocation(KubeObject.of({**claim("a"), "status": status})).merge_patch
    assert patch == {"status": dict.fromkeys(status)}


@pytest.mark.parametrize("timeout", ["10", "soon", 5])
def test_unreadable_durations_are_refused(timeout: Any) -> None:
    with pytest.raises(PluginArgsError, match="filterTimeout: Invalid value"):
        DynamicResources({"filterTimeout": timeout}, NO_HANDLE)


async def test_a_search_that_times_out_ends_the_other_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: set[str] = set()
    run = search.Search.run

    def counted(self: Any) -> Any:
        searched.add(self._pools[0].candidates[0].device.id.pool)
        return run(self)

    monkeypatch.setattr(search.Search, "run", counted)
    many = [device(f"d{i}") for i in range(20)]
    none = device_class("none", 'device.driver == "none"')
    plugged = plug(
        [claim("c", exactly("a", count=10), exactly("b", "none"))],
        [resource_slice("n1", many), resource_slice("n2", many)],
        [device_class(), none],
    )
    late = Status.error("node n1: timed out trying to allocate devices")
    plugged = Plug(plugged.cls, {"filterTimeout": "10ms"}, plugged.objects)
    assert filter_now(plugged, web("c"), NODES) == [late, late]
    assert len(searched) == 1


async def test_a_search_that_times_out_ends_those_of_nodes_with_an_extended_resource(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = 0

    def run(self: Any) -> Any:
        nonlocal runs
        runs += 1
        now_s[0] += 11.0
        self._is_late()

    now_s = [0.0]
    monkeypatch.setattr(search.Search, "run", run)
    monkeypatch.setattr(allocator, "monotonic_s", lambda: now_s[0])
    nodes = make_table([make_node("n1"), make_node("n2", allocatable={"example.com/gpu": 4})])
    classes = [device_class(), device_class("gpus", extendedResourceName="example.com/gpu")]
    plugged = plug([claim("c", exactly())], [resource_slice("s", TWO, "p", allNodes=True)], classes)
    found = filter_now(plugged, web("c", requests={"example.com/gpu": "1"}), nodes)
    # What n2 needs from the plugin is another thing than what n1 needs.
    assert [status.code for status in found] == [Code.ERROR, Code.ERROR]
    assert runs == 1


@pytest.mark.parametrize(
    ("users", "given_up"),
    [((), 1), (("uid-one",), 1), (("uid-one", "uid-two"), 1), (("uid-one", "uid-other"), 0)],
)
def test_members_give_up_a_claim_that_only_they_were_to_use(users: tuple[str, ...], given_up: int) -> None:
    # An attempt that was undone after the claim was written leaves all members in `reservedFor`.
    reserved = [{"resource": "pods", "name": uid[4:], "uid": uid} for uid in users]
    shared = KubeObject.of(claim("c", allocated=["gone/d0"], status={"reservedFor": reserved}))
    pods = tuple(Pod.from_object(pod_with("c", name=name)) for name in ("one", "two"))
    state = CycleState("cycle")
    tried = {pod.uid: Attempt(pod, (PodClaim(shared),), unavailable={0}) for pod in pods}
    state.write("members", tried)
    group = PodGroup(kind="PodGroup", namespace="default", name="train")
    tries = SimpleNamespace(reached_pre_filter=True)
    answer = DynamicResources({}, NO_HANDLE).pod_group_post_filter(
        state, GroupView(group, pods), cast(Tries, tries)
    )
    assert isinstance(answer, PodGroupPostFilterResult)
    assert [patch.ref.name for patch in answer.patches] == ["c"] * given_up


def found_on(plugged: Plug, pod: Pod, nodes: NodeTable) -> tuple[DynamicResources, Any]:
    """Return the plugin, and what its Filter returns: verdicts, or the rest of its work."""
    stores = {name: store_of(items) for name, items in plugged.objects.items()}
    stores["resource.k8s.io/devicetaintrules"] = ObjectStore()
    plugin = DynamicResources(plugged.args or {}, RecordingHandle(lambda: nodes, stores))
    state = CycleState("a")
    assert plugin.pre_filter(state, pod, nodes) == SUCCESS
    return plugin, plugin.filter_nodes(state, pod, nodes)


def store_of(items: Any) -> ObjectStore:
    store = ObjectStore()
    for generation, item in enumerate(items, start=1):
        found = KubeObject.of(item)
        store.put(found.ref, found, generation)
    return store


async def turns_of(plugged: Plug, want: list[Status]) -> int:
    """Return the turns of the loop that others get while Filter answers."""
    _, answer = found_on(plugged, web("c"), NODES)
    if not isinstance(answer, Slices):
        assert answer.to_list() == want
        return 0
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        running[0] = asyncio.get_running_loop().call_soon(turn)

    running = [asyncio.get_running_loop().call_soon(turn)]
    assert (await answer).to_list() == want
    running[0].cancel()
    return turns


def evaluating(text: str, devices: int = 1) -> Plug:
    """Return a claim whose selector is evaluated for so many devices of node 1."""
    item = claim("c", exactly(selectors=[{"cel": {"expression": text}}]))
    return plug([item], [resource_slice("n1", [device(f"d{i}", "big", "40Gi") for i in range(devices)])])


async def test_others_get_their_turn_within_one_costly_evaluation() -> None:
    assert (
        await turns_of(
            evaluating("lists.range(140000).all(x, x >= 0) && device.driver == 'other'"), [CANNOT] * 2
        )
        >= 3
    )
    assert await turns_of(evaluating("device.driver == 'other'", 5), [CANNOT] * 2) == 0


async def test_others_get_their_turn_while_expressions_are_compiled() -> None:
    longest = " || ".join(["[1].all(x, x > 1)"] * 1500)
    assert await turns_of(evaluating(longest), [CANNOT] * 2) >= 3


async def test_others_get_their_turn_in_a_search_with_many_choices() -> None:
    many = [device(f"d{i}") for i in range(14)]
    none = device_class("none", 'device.driver == "none"')
    items = [claim("c", exactly("a", count=7), exactly("b", "none"))]
    plugged = plug(items, [resource_slice("n1", many)], [device_class(), none])
    assert await turns_of(plugged, [CANNOT] * 2) >= 1


@pytest.mark.parametrize("allocated", [True, False])
async def test_many_entries_that_name_few_claims_give_way_and_read_each_claim_once(
    allocated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [one_value("zone", "a")]}]}
    status = {"allocation": {"nodeSelector": selector}} if allocated else {}
    items = [claim(name, exactly(), status=status) for name in ("a", "b")]
    plugin = plugin_of(plug(items))
    reads, selectors = (
        counting(monkeypatch, attempts, "requests_of"),
        counting(monkeypatch, NodeSelector, "over"),
    )
    monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
    pod, state = web(*["a", "b"] * 500), CycleState("a")
    entered: Any = plugin.pre_enqueue(QueuedPod(pod=pod))
    assert isinstance(entered, Slices)
    assert await entered == SUCCESS
    event = ClusterEvent(resource="resource.k8s.io/ResourceClaim", action="add", new=KubeObject.of(items[0]))
    hint: Any = plugin.queueing_hint(event, pod)
    assert isinstance(hint, Slices)
    await hint
    before: Any = plugin.pre_filter(state, pod, NODES)
    assert isinstance(before, Slices)
    assert await before == SUCCESS
    verdicts: Any = plugin.filter_nodes(state, pod, NODES)
    verdicts = await verdicts if isinstance(verdicts, Slices) else verdicts
    # A thousand devices are not there; allocated claims are on the nodes of one zone.
    assert verdicts.to_list() == ([SUCCESS, ELSEWHERE] if allocated else [CANNOT, CANNOT])
    assert (len(reads), len(selectors)) == ((0, 2) if allocated else (2, 0))
    if allocated:
        assert plugin.reserve(state, pod, "n1") == SUCCESS
        assert state.token is not None


def test_generated_claims_are_found_by_the_name_of_their_entry() -> None:
    entries = [{"name": f"e{i}", "resourceClaimTemplateName": "t"} for i in range(3)]
    made = ((2, "z"), (0, ""), (1, "y"), (2, "x"))
    statuses = [{"name": f"e{i}", "resourceClaimName": name} for i, name in made]
    raw = pod_with()
    raw["metadata"]["uid"] = "u"
    raw["spec"]["resourceClaims"] = entries
    raw["status"] = {"resourceClaimStatuses": statuses}
    owner = [{"kind": "Pod", "name": "web", "uid": "u", "controller": True}]
    store = store_of([claim(name, exactly(), metadata={"ownerReferences": owner}) for name in "xyz"])
    found = at_once(claims_of(Pod.from_object(raw), cast(ObjectReader, store)))
    assert [one.ref.name for one in found] == ["y", "z"]


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[object]:
    """Count the calls of a function of a module, or of a method."""
    calls: list[object] = []
    called = getattr(owner, name)

    def counted(*args: Any) -> Any:
        calls.append(args)
        return called(*args)

    monkeypatch.setattr(owner, name, counted)
    return calls


def one_batch(work: Any, slice_s: float, clock: Any) -> None:
    for _ in range(16):
        next(work)


def one_value(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}


async def test_a_search_may_time_out_within_one_evaluation() -> None:
    plugged = evaluating("lists.range(60000).all(x, x >= 0)")
    late = Status.error("node n1: timed out trying to allocate devices")
    await turns_of(Plug(plugged.cls, {"filterTimeout": "5ms"}, plugged.objects), [late, late])


async def test_a_search_that_is_given_up_leaves_no_thread() -> None:
    threads = set(threading.enumerate())
    _, answer = found_on(evaluating("lists.range(60000).all(x, x >= 0)"), web("c"), NODES)
    waiting = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    assert set(threading.enumerate()) > threads
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert set(threading.enumerate()) == threads
