"""Law: the search finds the first choice that works in order, and nothing where no choice works."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from berth_plugins.dynamic_resources.plugin import DynamicResources
from berth_sdk.cycle_state import CycleState
from berth_sdk.pod import Pod
from berth_sdk.testing import make_node, make_table
from hypothesis import given, settings
from hypothesis import strategies as st
from support.asking import Plug
from support.device_objects import (
    DRIVER,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    resource_slice,
)
from support.tiers import examples

NODES = make_table([make_node("n1")])
MODELS = ("big", "small")
Json = dict[str, Any]
Where = tuple[str, int]
Pools = Mapping[str, Sequence[Json]]

devices = st.fixed_dictionaries(
    {"model": st.sampled_from(MODELS), "tainted": st.booleans(), "size": st.integers(0, 2)}
)
requests = st.fixed_dictionaries(
    {
        "model": st.sampled_from([None, *MODELS]),
        "count": st.sampled_from([1, 1, 2, 3, "All"]),
        "tolerates": st.booleans(),
        "admin": st.sampled_from([False, False, True]),
    }
)
wishes = st.one_of(
    requests.map(lambda one: [one]),
    st.lists(requests.map(lambda one: {**one, "admin": False}), min_size=2, max_size=3),
)
claims = st.fixed_dictionaries(
    {
        "requests": st.lists(wishes, min_size=1, max_size=2),
        "constraint": st.sampled_from([None, "matchAttribute", "distinctAttribute"]),
    }
)


def slice_of(pool: str, items: Sequence[Json]) -> Json:
    made = []
    for i, one in enumerate(items):
        fields: Json = {}
        if one["tainted"]:
            fields["taints"] = [{"key": "bad", "effect": "NoSchedule"}]
        if one["size"]:
            counters = {"size": {"value": str(one["size"])}}
            fields["consumesCounters"] = [{"counterSet": "room", "counters": counters}]
        made.append(device(f"d{i}", one["model"], **fields))
    return resource_slice(pool, made, pool, nodeName="n1", resourceSliceCount=2)


def counters_of(pool: str, room: int) -> Json:
    sets = [{"name": "room", "counters": {"size": {"value": str(room)}}}]
    return resource_slice(f"{pool}-room", [], pool, resourceSliceCount=2, sharedCounters=sets)


def request_of(name: str, wish: Sequence[Json]) -> Json:
    def fields(one: Json) -> Json:
        made: Json = {"deviceClassName": one["model"] or "any"}
        made |= {"allocationMode": "All"} if one["count"] == "All" else {"count": one["count"]}
        if one["tolerates"]:
            made["tolerations"] = [{"operator": "Exists"}]
        if one["admin"]:
            made["adminAccess"] = True
        return made

    if len(wish) == 1:
        return {**exactly(name), "exactly": fields(wish[0])}
    return {"name": name, "firstAvailable": [{"name": str(i), **fields(one)} for i, one in enumerate(wish)]}


# --- the plain reading -----------------------------------------------------------------------------


def choices(one: Json, pools: Pools) -> Iterator[tuple[Where, ...]]:
    """Every set of devices that an alternative may ask for, in order, whether they can be had or not."""
    fitting = [
        (pool, i)
        for pool in sorted(pools)
        for i, item in enumerate(pools[pool])
        if one["model"] in (None, item["model"])
    ]
    if one["count"] != "All":
        yield from itertools.combinations(fitting, one["count"])
    elif fitting:
        yield tuple(fitting)


def first_solution(
    wanted: Sequence[Json], pools: Pools, taken: Sequence[Where], room: int
) -> list[list[Where]] | None:
    flat = [(c, wish) for c, one in enumerate(wanted) for wish in one["requests"]]
    options = [[(one, chosen) for one in wish for chosen in choices(one, pools)] for _, wish in flat]
    for picked in itertools.product(*options):
        by_claim: list[list[tuple[Json, Where]]] = [[] for _ in wanted]
        for (c, _), (alternative, chosen) in zip(flat, picked, strict=True):
            by_claim[c].extend((alternative, one) for one in chosen)
        rules = [one["constraint"] for one in wanted]
        if is_possible(rules, by_claim, pools, taken, room):
            return [[where for _, where in one] for one in by_claim]
    return None


def is_possible(
    rules: Sequence[str | None],
    by_claim: Sequence[Sequence[tuple[Json, Where]]],
    pools: Pools,
    taken: Sequence[Where],
    room: int,
) -> bool:
    used = Counter({pool: sum(pools[pool][i]["size"] for p, i in taken if p == pool) for pool in pools})
    holders: dict[Where, list[int]] = {}
    for c, chosen in enumerate(by_claim):
        values = [pools[pool][i]["model"] for _, (pool, i) in chosen]
        if rules[c] == "matchAttribute" and len(set(values)) > 1:
            return False
        if rules[c] == "distinctAttribute" and len(set(values)) < len(values):
            return False
        for one, where in chosen:
            pool, i = where
            before = holders.setdefault(where, [])
            if one["admin"]:
                if c in before:
                    return False
            elif where in taken or before:
                return False
            if pools[pool][i]["tainted"] and not one["tolerates"]:
                return False
            before.append(c)
            used[pool] += pools[pool][i]["size"]
            if pools[pool][i]["size"] and used[pool] > room:
                return False
    return True


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    pools=st.dictionaries(st.sampled_from(["p", "q"]), st.lists(devices, min_size=1, max_size=3), min_size=1),
    wanted=st.lists(claims, min_size=1, max_size=2),
    data=st.data(),
)
def test_search_finds_the_first_choice_that_is_possible(
    pools: dict[str, list[Json]], wanted: list[Json], data: st.DataObject
) -> None:
    everything = [(pool, i) for pool in pools for i in range(len(pools[pool]))]
    taken = data.draw(st.lists(st.sampled_from(everything), unique=True, max_size=2))
    room = data.draw(st.integers(2, 6))
    for one in wanted:
        if one["constraint"]:
            # That all devices break the constraint is an error of the claim; it has its own test.
            for wish in one["requests"]:
                for choice in wish:
                    choice["count"] = 2 if choice["count"] == "All" else choice["count"]
    items = [
        claim(
            f"c{c}",
            *(request_of(f"r{i}", wish) for i, wish in enumerate(one["requests"])),
            devices={"constraints": [{one["constraint"]: f"{DRIVER}/model"}] if one["constraint"] else []},
        )
        for c, one in enumerate(wanted)
    ]
    others = [claim(f"t{i}", allocated=[f"{pool}/d{n}"]) for i, (pool, n) in enumerate(taken)]
    slices = [one for pool in pools for one in (slice_of(pool, pools[pool]), counters_of(pool, room))]
    of_model = f'device.attributes["{DRIVER}"].model == "%s"'
    objects = {
        "resource.k8s.io/resourceclaims": [*items, *others],
        "resource.k8s.io/resourceslices": slices,
        "resource.k8s.io/deviceclasses": [
            device_class("any"),
            *(device_class(model, of_model % model) for model in MODELS),
        ],
    }
    runtime = Plug(DynamicResources, {}, objects).runtime()
    state = CycleState("cycle")
    pod = Pod.from_object(pod_with(*(f"c{c}" for c in range(len(items)))))
    before: Any = runtime.pre_filter(state, pod, NODES)
    assert before.status.is_success
    verdicts: Any = runtime.filter(state, pod, NODES)
    (status,) = verdicts.verdicts.to_list()
    want = first_solution(wanted, pools, taken, room)
    if want is None:
        assert status.reasons == ("cannot allocate all claims",)
        return
    assert status.is_success
    outcome = state.read("attempt").outcomes.on(NODES.name(0))
    got = [
        [(one.candidate.device.id.pool, int(one.candidate.device.id.device[1:])) for one in chosen]
        for chosen in outcome.choices
    ]
    assert got == want


async def test_pod_gets_more_devices_than_functions_may_call_each_other() -> None:
    claims, devices = 100, 32
    watched = exactly(allocationMode="All", adminAccess=True)
    objects = {
        "resource.k8s.io/resourceclaims": [claim(f"c{i}", watched) for i in range(claims)],
        "resource.k8s.io/resourceslices": [resource_slice("n1", [device(f"d{i}") for i in range(devices)])],
        "resource.k8s.io/deviceclasses": [device_class()],
    }
    runtime = Plug(DynamicResources, {}, objects).runtime()
    state = CycleState("cycle")
    pod = Pod.from_object(pod_with(*(f"c{i}" for i in range(claims))))
    before: Any = runtime.pre_filter(state, pod, NODES)
    assert before.status.is_success
    answer: Any = await runtime.filter(state, pod, NODES)  # type: ignore[misc]
    (status,) = answer.verdicts.to_list()
    assert status.is_success
    choices = state.read("attempt").outcomes.on("n1").choices
    assert [len(chosen) for chosen in choices] == [devices] * claims
    assert claims * devices > sys.getrecursionlimit()
