"""Pods with very many ResourceClaims: Reserve, Unreserve and PreBind give way; PreBind writes in rounds."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest
from berth_plugins.dynamic_resources import allocation, reserved
from berth_plugins.dynamic_resources.allocator import Allocator
from berth_plugins.dynamic_resources.attempt import Attempt, PodClaim
from berth_plugins.dynamic_resources.claims import MAX_CONSUMERS
from berth_plugins.dynamic_resources.devices import DeviceId
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_plugins.dynamic_resources.reservations import ClaimReservations
from berth_plugins.dynamic_resources.reserved import MAX_TOKEN_BYTES, Reserved, decode, encode
from berth_plugins.dynamic_resources.wishes import Wishes
from berth_sdk.cycle_state import CycleState
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.pod import Pod
from berth_sdk.pod_group import GroupView, PodGroup
from berth_sdk.results import (
    MAX_PATCHES,
    PatchResult,
    PodGroupPostFilterResult,
    PreBindResult,
)
from berth_sdk.slices import PIECES, Slices, at_once, in_slices
from berth_sdk.status import SUCCESS
from support.asking import NO_HANDLE
from support.device_cluster import NODES, Cluster, value
from support.device_objects import DRIVER, claim, device, device_class, exactly, pod_with, resource_slice
from support.hosts import World, node

MANY = 300
TRIES: Any = type("Reached", (), {"reached_pre_filter": True})()
Json = dict[str, Any]


def of_administrators(count: int) -> Cluster:
    """Return claims that are allocated to one device, which they do not take from each other."""
    items = [claim(f"c{i}", exactly(), allocated=["n1/d0"]) for i in range(count)]
    for item in items:
        item["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    return Cluster(items, [resource_slice("n1", [device("d0")])])


def waiting(count: int) -> Cluster:
    """Return claims that have no device yet, and as many devices."""
    return Cluster(
        [claim(f"c{i}", exactly()) for i in range(count)],
        [resource_slice("n1", [device(f"d{i}") for i in range(count)])],
    )


def using(count: int) -> Pod:
    return Pod.from_object(pod_with(*(f"c{i}" for i in range(count))))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Make every slice one batch of pieces, and count the slices."""
    counted: list[None] = []

    def one_batch(work: Any, slice_s: float, clock: Any) -> None:
        counted.append(None)
        for _ in range(PIECES):
            next(work)

    monkeypatch.setattr("berth_sdk.slices._do_slice", one_batch)
    return counted


@pytest.mark.parametrize("cluster", [of_administrators(MANY), waiting(MANY)], ids=["allocated", "waiting"])
async def test_claims_of_a_pod_are_reserved_written_and_given_back_in_slices(
    cluster: Cluster, batches: list[None]
) -> None:
    pod, state = using(MANY), CycleState("a")
    await cluster.found(pod, state)
    answer: Any = cluster.plugin.reserve(state, pod, "n1")
    assert isinstance(answer, Slices)
    assert await answer == SUCCESS
    assert state.token is None  # too long, which is found out before the whole is written
    rounds, patched = 0, list[PatchResult]()
    while True:
        batches.clear()
        made: Any = await cluster.plugin.pre_bind(state, pod, "n1", patched)
        assert isinstance(made, PreBindResult)
        if not made.patches:
            break
        assert len(made.patches) <= MAX_PATCHES
        assert len(batches) >= len(made.patches) // PIECES - 1
        patched = [cluster.apply(patch) for patch in made.patches]
        rounds += 1
    assert rounds >= MANY // MAX_PATCHES
    assert made == PreBindResult(SUCCESS)
    assert [cluster.users(f"c{i}") for i in range(MANY)] == [["web"]] * MANY
    batches.clear()
    await cluster.plugin.unreserve(state, pod, "n1")
    assert len(batches) >= MANY // PIECES


async def test_unreserve_gives_back_what_an_unfinished_reserve_has_counted(batches: list[None]) -> None:
    cluster, pod, state = waiting(MANY), using(MANY), CycleState("a")
    allocator = cluster.allocator()
    reservations = ClaimReservations(allocator, cluster.handle, binding_timeout_s=1.0)
    attempt = Attempt(pod, tuple(PodClaim(item) for item in cluster.claims.list()))
    at_once(allocator.refresh())
    at_once(allocator.verdicts(attempt, NODES))
    in_work = asyncio.ensure_future(value(in_slices(reservations.reserve(state, attempt, "n1"))))
    while not taken(allocator):
        await asyncio.sleep(0)
    in_work.cancel()
    await asyncio.gather(in_work, return_exceptions=True)
    assert 0 < taken(allocator) < MANY
    at_once(reservations.give_back(state))
    assert taken(allocator) == 0


async def test_reserve_leaves_no_token_of_an_earlier_trial_where_its_own_is_too_long() -> None:
    cluster, pod, state = waiting(MANY), using(MANY), CycleState("a")
    await cluster.found(pod, state)
    state.token = encode([Reserved("default", "c0", "uid", None, None, [])])
    assert await value(cluster.plugin.reserve(state, pod, "n1")) == SUCCESS
    assert state.token is None


def taken(allocator: Allocator) -> int:
    return sum(allocator.ledger.is_taken(DeviceId(DRIVER, "n1", f"d{i}")) for i in range(MANY))


def test_pod_is_a_coming_user_of_its_claims_until_they_are_written_or_given_back() -> None:
    users = [{"resource": "pods", "name": f"p{i}", "uid": f"p{i}"} for i in range(MAX_CONSUMERS - 1)]
    item = claim("c0", exactly(), allocated=["n1/d0"], status={"reservedFor": users})
    cluster = Cluster([item], [resource_slice("n1", [device("d0")])])
    reservations = ClaimReservations(cluster.allocator(), cluster.handle, binding_timeout_s=1.0)
    pod, other = using(1), Pod.from_object(pod_with("c0", name="other"))
    written = PodClaim(KubeObject.of(item))

    def reserved(cycle: str) -> CycleState:
        state = CycleState(cycle)
        assert at_once(reservations.reserve(state, Attempt(pod, (written,)), "n1")) == SUCCESS
        assert reservations.is_full(written, other)
        return state

    at_once(reservations.give_back(reserved("a")))
    assert not reservations.is_full(written, other)
    state, patched = reserved("b"), list[PatchResult]()
    while (made := at_once(reservations.pre_bind(state, pod, "n1", patched))) != PreBindResult(SUCCESS):
        assert isinstance(made, PreBindResult)
        patched = [cluster.apply(patch) for patch in made.patches]
    # The pod was deleted, and so is no user any more.
    assert not reservations.is_full(written, other)


async def test_changed_objects_are_read_in_slices_and_by_whoever_comes_meanwhile(batches: list[None]) -> None:
    slices = [resource_slice(f"s{i}", [device(f"d{i}")], nodeName="n1") for i in range(MANY)]
    items = [claim(f"c{i}", exactly(), allocated=[f"s{i}/d{i}"]) for i in range(MANY)]
    cluster = Cluster(items, slices)
    allocator = cluster.allocator()
    first = allocator.refresh()
    for _ in range(PIECES):
        next(first)
    at_once(allocator.refresh())
    assert len(allocator.inventory.pools) == MANY
    assert all(allocator.ledger.is_taken(DeviceId(DRIVER, f"s{i}", f"d{i}")) for i in range(MANY))
    assert at_once(first) is None
    assert isinstance(cluster.plugin.pre_filter(CycleState("a"), using(1), NODES), Slices)


async def test_conditions_of_a_selector_are_compared_once_and_in_slices(
    batches: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = counting(monkeypatch, allocation, "_condition")
    conditions = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(MANY)]
    terms = [{"matchExpressions": [*conditions, *conditions]}]
    devices = [device("d0"), device("d1")]
    cluster = Cluster(
        [claim("c0", exactly(count=2))],
        [resource_slice("s", devices, nodeSelector={"nodeSelectorTerms": terms})],
    )
    pod, state = using(1), CycleState("a")
    await cluster.found(pod, state)
    answer: Any = cluster.plugin.reserve(state, pod, "n1")
    assert isinstance(answer, Slices)
    assert await answer == SUCCESS
    assert len(compared) == 2 * MANY
    (made,) = state.get("reserved")
    assert made.allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchExpressions": conditions}]}


def test_token_is_as_long_as_it_may_be_and_no_more_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(length: int) -> Reserved:
        return Reserved("default", "c" * length, "uid", None, None, [])

    base = encode([one(0), one(0)])
    assert base is not None
    room = MAX_TOKEN_BYTES - len(base)
    whole = encode([one(0), one(room)])
    assert whole is not None
    assert len(whole) == MAX_TOKEN_BYTES
    assert decode(whole) == [one(0), one(room)]
    assert encode([one(0), one(room + 1)]) is None
    written = counting(monkeypatch, reserved, "write_json")
    assert encode([one(room)] + [one(0)] * MANY) is None
    assert len(written) < 5


async def test_parameters_of_claims_are_read_one_claim_at_a_time_and_not_kept_with_the_answers() -> None:
    config = [{"opaque": {"driver": "d", "parameters": {"a": "x" * 10_000}}}]
    items = [KubeObject.of(claim(f"c{i}", exactly(), devices={"config": config})) for i in range(2 * PIECES)]
    pod = using(len(items))
    claims = tuple(PodClaim(item).to_allocate() for item in items)
    work = Wishes(Attempt(pod), NODES, claims).of_rows()
    for _ in items:
        next(work)
    ((rows, wish),) = at_once(work)
    assert (rows.tolist(), wish.claims) == (list(range(len(NODES))), claims)
    assert len(wish.key) < 100 * len(items)
    other = (*claims[:-1], PodClaim(KubeObject.of(claim("c", exactly()))).to_allocate())
    ((_, another),) = at_once(Wishes(Attempt(pod), NODES, other).of_rows())
    assert another.key != wish.key


def counting(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """Count the calls of a function of a module."""
    calls: list[object] = []
    called = getattr(module, name)

    def counted(*args: Any) -> Any:
        calls.append(args)
        return called(*args)

    monkeypatch.setattr(module, name, counted)
    return calls


def test_group_gives_up_as_many_claims_as_one_answer_may_have_patches() -> None:
    shown = [KubeObject.of(claim(f"c{i}", allocated=["gone/d0"])) for i in range(MANY)]
    pods = tuple(Pod.from_object(pod_with(f"c{i}", name=f"p{i}")) for i in range(MANY))
    state = CycleState("cycle")
    tried = zip(pods, shown, strict=True)
    state.write("members", {pod.uid: Attempt(pod, (PodClaim(item),), unavailable={0}) for pod, item in tried})
    group = PodGroup(kind="PodGroup", namespace="default", name="train")
    answer = DynamicResources({}, NO_HANDLE).pod_group_post_filter(state, GroupView(group, pods), TRIES)
    assert isinstance(answer, PodGroupPostFilterResult)
    assert len(answer.patches) == MAX_PATCHES


async def test_pod_with_more_claims_than_one_round_may_write_starts() -> None:
    count = 2 * MAX_PATCHES
    names = [f"c{i}" for i in range(count)]
    objects = [
        node("n1"),
        resource_slice("n1", [device(f"d{i}") for i in range(count)]),
        device_class(),
        *(claim(name, exactly()) for name in names),
        pod_with(*names),
    ]
    async with World(objects) as world:
        await world.settle()
        placed = world.server.get("pods", ObjectRef(namespace="default", name="web"))
        assert placed is not None
        assert placed.get("spec.nodeName") == "n1"
