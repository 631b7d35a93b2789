"""GpuShare, call by call: which nodes and GPUs fit, which fit best, and what it does with bad input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from berth_gpu_share import GpuShare
from berth_gpu_share.ledger import Ledger, Placement, left_over_of
from berth_gpu_share.requests import (
    GPU,
    GPU_COUNT,
    GPU_INDEX,
    GPU_MILLI,
    GPU_MODEL,
    MODEL,
    GpuRequest,
    read_indices,
)
from berth_sdk import CycleState, LiveReservation, PluginArgsError, Pod, Reservations, Status, Verdicts
from berth_sdk.status import Code
from berth_sdk.testing import PluginHost, make_node, make_pod, make_table
from hypothesis import given
from hypothesis import strategies as st
from support.attached import ClusterState


def gpu_node(name: str, gpus: int, model: str = "T4") -> Any:
    labels = {MODEL: model} if model else {}
    return make_node(name, cpu=64, labels=labels, allocatable={GPU: gpus, GPU_MILLI: 1000 * gpus})


def gpu_pod(name: str, milli: Any = None, count: Any = None, **more: Any) -> Pod:
    told = {GPU_MILLI: milli, GPU_COUNT: count, GPU_MODEL: more.pop("model", None)}
    told[GPU_INDEX] = more.pop("index", None)
    return make_pod(
        name, annotations={key: str(value) for key, value in told.items() if value is not None}, **more
    )


def new_plugin() -> GpuShare:
    plugin = host().runtime.plugin
    assert isinstance(plugin, GpuShare)
    return plugin


def host(*nodes: Any, pods: Any = ()) -> PluginHost:
    return PluginHost(GpuShare, nodes=nodes, pods=pods)


# --- what fits ---------------------------------------------------------------------------


def test_share_fits_where_one_gpu_has_enough_left() -> None:
    taken = [gpu_pod(f"p{i}", 600, node="a", index=i) for i in range(2)]
    attempt = host(gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 0), pods=taken).attempt(
        gpu_pod("p", 500)
    )
    verdicts = attempt.filter()
    assert verdicts["a"] == Status.unschedulable("no GPU has 500 of 1000 free")
    assert verdicts["b"].is_success
    assert verdicts["c"] == Status.unresolvable("node has fewer than 1 GPU")


def test_several_gpus_must_each_have_the_share() -> None:
    taken = [gpu_pod("p0", 600, node="a", index=0)]
    verdicts = (
        host(gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 1), pods=taken)
        .attempt(gpu_pod("p", 500, 2))
        .filter()
    )
    assert verdicts["a"] == Status.unschedulable("fewer than 2 GPUs have 500 of 1000 free")
    assert verdicts["b"].is_success
    assert verdicts["c"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


@pytest.mark.parametrize(
    ("wanted", "there"), [("A10", {"x"}), ("A10|T4", {"x", "y"}), (" T4 | ", {"y"}), ("H100", set())]
)
def test_pod_gets_gpus_of_its_models_only(wanted: str, there: set[str]) -> None:
    nodes = (gpu_node("x", 2, "A10"), gpu_node("y", 2, "T4"), gpu_node("z", 2, ""))
    verdicts = host(*nodes).attempt(gpu_pod("p", 500, model=wanted)).filter()
    assert {name for name, status in verdicts.items() if status.is_success} == there
    assert verdicts["z"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert verdicts["z"].message.startswith("GPUs are not of model ")


def test_whole_gpus_need_no_annotation() -> None:
    attempt = host(gpu_node("a", 2), gpu_node("b", 3)).attempt(make_pod("p", requests={GPU: 3}))
    assert {name for name, status in attempt.filter().items() if status.is_success} == {"b"}
    assert attempt.reserve("b").is_success
    assert json.loads(attempt.state.token or b"") == {"gpus": [0, 1, 2], "milli": 1000}


def test_pod_without_gpus_fits_anywhere_and_prefers_nodes_without_gpus() -> None:
    attempt = host(gpu_node("a", 2), gpu_node("c", 0)).attempt(make_pod("p"))
    assert all(status.is_success for status in attempt.filter().values())
    assert attempt.score() == {"a": 0, "c": 100}
    assert attempt.reserve("a").is_success
    assert attempt.state.token is None
    assert attempt.pre_bind_pre_flight("a").status == Status.skip()
    assert attempt.pre_bind("a").status.is_success
    assert not attempt.patched


BAD = [
    (
        {GPU_MILLI: "half"},
        "annotation gpu-share.berth.io/gpu-milli must be a whole number above 0, but is 'half'",
    ),
    ({GPU_MILLI: "-5"}, "must be a whole number above 0, but is '-5'"),
    ({GPU_MILLI: "0"}, "must be a whole number above 0, but is '0'"),
    ({GPU_MILLI: ""}, "must be a whole number above 0, but is ''"),
    ({GPU_MILLI: "1e3"}, "must be a whole number above 0"),
    ({GPU_MILLI: "5.5"}, "must be a whole number above 0"),
    ({GPU_MILLI: "٥٠٠"}, "must be a whole number above 0"),
    ({GPU_MILLI: "9" * 5000}, "must be a whole number above 0"),
    ({GPU_MILLI: "1001"}, "is 1001: one GPU has 1000, ask for several with gpu-share.berth.io/gpu-count"),
    ({GPU_COUNT: "two"}, "annotation gpu-share.berth.io/gpu-count must be a whole number above 0"),
    ({GPU_COUNT: "0"}, "must be a whole number above 0"),
    ({GPU_MODEL: " | "}, "annotation gpu-share.berth.io/gpu-model names no model"),
]


@pytest.mark.parametrize(("told", "reason"), BAD)
def test_invalid_annotations_reject_the_pod_with_the_reason(told: dict[str, str], reason: str) -> None:
    verdicts = host(gpu_node("a", 2)).attempt(make_pod("p", annotations=told)).filter()
    assert verdicts["a"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert reason in verdicts["a"].message
    assert len(verdicts["a"].message) < 200


def test_request_for_more_gpus_than_a_node_has_is_unresolvable() -> None:
    verdicts = host(gpu_node("a", 2), gpu_node("b", 8)).attempt(gpu_pod("p", 100, 999999999)).filter()
    assert set(verdicts.values()) == {Status.unresolvable("node has fewer than 999999999 GPUs")}


@pytest.mark.parametrize(("requests", "wrong"), [({GPU: 1}, GPU), ({GPU_MILLI: 500}, GPU_MILLI)])
def test_contradiction_of_requests_and_annotations_is_named(requests: dict[str, int], wrong: str) -> None:
    verdicts = host(gpu_node("a", 2)).attempt(gpu_pod("p", 500, 2, requests=requests)).filter()
    assert f"of {wrong}, its annotations ask for" in verdicts["a"].message


def test_request_of_0_gpus_takes_no_gpu() -> None:
    attempt = host(gpu_node("a", 1)).attempt(make_pod("p", requests={GPU: 0}))
    assert attempt.filter()["a"].is_success
    bound = make_pod("old", requests={GPU: 0}, node="a")
    after = host(gpu_node("a", 1), pods=[bound]).attempt(gpu_pod("p", 1000))
    assert after.filter()["a"].is_success


def test_share_without_annotation_is_refused() -> None:
    verdicts = host(gpu_node("a", 1)).attempt(make_pod("p", requests={GPU_MILLI: 500})).filter()
    assert verdicts["a"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert verdicts["a"].message == (f"the pod requests 500 of {GPU_MILLI}, its annotations ask for 1000")


# --- what is taken ---------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "", "x", "0,0", "7", "0,1", "-1", "0;1", "1.0"])
def test_bound_pod_with_unknown_gpus_counts_on_every_gpu(index: str | None) -> None:
    bound = gpu_pod("old", 700, node="a", index=index)
    attempt = host(gpu_node("a", 2), pods=[bound]).attempt(gpu_pod("p", 400))
    assert attempt.filter()["a"].message == "no GPU has 400 of 1000 free"
    assert host(gpu_node("a", 2), pods=[bound]).attempt(gpu_pod("p", 300)).filter()["a"].is_success


@pytest.mark.parametrize("told", [told for told, _ in BAD])
def test_bound_pod_with_invalid_annotations_takes_all_gpus_of_its_node(told: dict[str, str]) -> None:
    bound = make_pod("old", annotations=told, node="a")
    attempt = host(gpu_node("a", 2), gpu_node("b", 1), pods=[bound]).attempt(gpu_pod("p", 1))
    verdicts = attempt.filter()
    assert verdicts["a"].message == "no GPU has 1 of 1000 free"
    assert verdicts["b"].is_success


def test_ledger_follows_added_grown_and_removed_nodes() -> None:
    cluster = host(gpu_node("a", 1))
    assert cluster.attempt(gpu_pod("p", 500, 2)).filter()["a"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    cluster.put_node(gpu_node("a", 4))
    cluster.put_node(gpu_node("b", 2))
    assert all(status.is_success for status in cluster.attempt(gpu_pod("p", 500, 2)).filter().values())
    cluster.put_pod(gpu_pod("q", 800, 4, node="a", index="0,1,2,3"))
    assert not cluster.attempt(gpu_pod("p", 500, 2)).filter()["a"].is_success


def test_at_most_64_gpus_of_a_node_are_used() -> None:
    attempt = host(gpu_node("a", 10**9)).attempt(gpu_pod("p", 500, 64))
    assert attempt.filter()["a"].is_success
    assert not host(gpu_node("a", 10**9)).attempt(gpu_pod("p", 500, 65)).filter()["a"].is_success


# --- what fits best ---------------------------------------------------------------------------


def test_node_with_the_least_left_over_scores_best() -> None:
    taken = [gpu_pod("x", 300, node="a", index=0), gpu_pod("y", 500, node="b", index=1)]
    cluster = host(gpu_node("a", 2), gpu_node("b", 2), gpu_node("c", 2), pods=taken)
    assert cluster.attempt(gpu_pod("p", 500)).score() == {"a": 80, "b": 100, "c": 50}


def test_whole_gpus_score_the_same_everywhere() -> None:
    cluster = host(gpu_node("a", 2), gpu_node("b", 8))
    assert set(cluster.attempt(gpu_pod("p", 1000, 2)).score().values()) == {100}


def test_the_gpus_with_the_least_to_spare_are_taken() -> None:
    taken = [gpu_pod("x", 300, node="a", index=2), gpu_pod("y", 500, node="a", index=1)]
    cluster = host(gpu_node("a", 4), pods=taken)
    for pod, indices in ((gpu_pod("p", 500), [1]), (gpu_pod("q", 500, 2), [1, 2]), (gpu_pod("r", 900), [0])):
        attempt = cluster.attempt(pod)
        assert attempt.reserve("a").is_success
        assert json.loads(attempt.state.token or b"")["gpus"] == indices


MILLI = st.integers(1, 1000)
FREE = st.lists(st.lists(st.integers(-200, 1000), min_size=0, max_size=5), min_size=1, max_size=6)


@given(free=FREE, count=st.integers(1, 5), milli=MILLI)
def test_columns_equal_a_computation_node_by_node(free: list[list[int]], count: int, milli: int) -> None:
    nodes = [gpu_node(f"n{i}", len(gpus)) for i, gpus in enumerate(free)]
    pods = [
        gpu_pod(f"n{i}g{k}-{part}", share, node=f"n{i}", index=k)
        for i, gpus in enumerate(free)
        for k, left in enumerate(gpus)
        for part, share in enumerate(_shares(1000 - left))
    ]
    attempt = host(*nodes, pods=pods).attempt(gpu_pod("p", milli, count))
    verdicts = attempt.filter()
    fitting = {f"n{i}": sorted(left for left in gpus if left >= milli) for i, gpus in enumerate(free)}
    feasible = {name for name, lefts in fitting.items() if len(lefts) >= count}
    assert {name for name, status in verdicts.items() if status.is_success} == feasible
    for i, gpus in enumerate(free):
        code = verdicts[f"n{i}"].code
        assert (code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE) == (len(gpus) < count)
    if feasible:
        spare = {name: sum(fitting[name][:count]) - count * milli for name in feasible}
        expected = {name: 100 - 100 * left // (1000 * count) for name, left in spare.items()}
        assert attempt.score(*sorted(feasible)) == expected


def _shares(taken: int) -> list[int]:
    """Requests of at most one GPU each that add up to `taken`."""
    return [1000] * (taken // 1000) + ([taken % 1000] if taken % 1000 else [])


# --- what if ---------------------------------------------------------------------------


def test_what_if_frees_the_gpus_of_removed_pods_and_takes_gpus_for_added_ones() -> None:
    first, second = (gpu_pod(f"p{i}", 600, node="a", index=i) for i in range(2))
    attempt = host(gpu_node("a", 2), pods=[first, second]).attempt(gpu_pod("p", 500))
    assert not attempt.what_if("a").is_success
    assert attempt.what_if("a", removed=[first]).is_success
    assert not attempt.what_if("a", removed=[first], added=[gpu_pod("n", 700)]).is_success
    assert attempt.what_if("a", removed=[first, second], added=[gpu_pod("n", 700)]).is_success


def test_added_pod_that_does_not_fit_takes_all_gpus() -> None:
    attempt = host(gpu_node("a", 2)).attempt(gpu_pod("p", 500))
    assert not attempt.what_if("a", added=[gpu_pod("n", 700, 3)]).is_success
    assert not attempt.what_if("a", added=[make_pod("n", annotations={GPU_MILLI: "much"})]).is_success
    assert attempt.what_if("a", added=[make_pod("n")], removed=[make_pod("o")]).is_success


# --- reservations ---------------------------------------------------------------------------


def test_the_annotation_is_written_by_the_host_once() -> None:
    attempt = host(gpu_node("a", 2)).attempt(gpu_pod("p", 500, 2))
    assert attempt.reserve("a").is_success
    assert attempt.pre_bind("a").status.is_success
    assert attempt.pod.annotations[GPU_INDEX] == "0,1"
    assert len(attempt.patched) == 1


def test_pre_bind_asks_for_the_same_where_the_host_calls_it() -> None:
    cluster = host(gpu_node("a", 2))
    attempt = cluster.attempt(gpu_pod("p", 500, 2))
    reserved = cluster.run(cluster.runtime.reserve(attempt.state, attempt.pod, "a"))
    assert reserved is not None
    assert reserved.pre_bind is not None
    assert reserved.pre_bind == cluster.run(cluster.runtime.pre_bind(attempt.state, attempt.pod, "a"))
    assert reserved.pre_bind.patches


def test_a_refused_annotation_is_an_error_that_says_why() -> None:
    attempt = host(gpu_node("a", 2)).attempt(gpu_pod("p", 500))
    assert attempt.reserve("a").is_success
    attempt.pod = Pod(name="other")
    status = attempt.pre_bind("a").status
    assert status.code is Code.ERROR
    assert status.message.startswith("annotation gpu-share.berth.io/gpu-index: not_found")


def test_a_node_without_room_is_refused_at_reserve_too() -> None:
    attempt = host(gpu_node("a", 1), pods=[gpu_pod("q", 900, node="a", index=0)]).attempt(gpu_pod("p", 500))
    assert attempt.reserve("a") == Status.unschedulable("no GPU has 500 of 1000 free")
    assert attempt.reserve("gone").message == "node gone no longer exists"
    assert attempt.state.token is None


def test_reservations_are_restored_from_tokens_and_unreadable_ones_are_lost() -> None:
    plugin = new_plugin()
    live = []
    tokens = (b'{"gpus": [1], "milli": 300}', None, b"nonsense", b"{}", b"[1]")
    for i, token in enumerate(tokens):
        state = CycleState(f"c{i}")
        state.token = token
        live.append(LiveReservation(state=state, pod=Pod(name=f"p{i}", uid=f"u{i}"), node_name="a"))
    assert plugin.reconcile(live) == live[2:]


def test_unreserve_of_an_older_attempt_keeps_a_newer_reservation() -> None:
    cluster = host(gpu_node("a", 2))
    pod = gpu_pod("p", 700, index=1)
    older, newer = cluster.attempt(pod), cluster.attempt(pod)
    assert older.reserve("a").is_success
    assert newer.reserve("a").is_success
    older.unreserve("a")
    other = cluster.attempt(gpu_pod("other", 700))
    other.unreserve("a")
    cluster.put_pod(pod.on_node("a"))  # assumed, with the annotation of an earlier attempt
    assert other.reserve("a").is_success
    assert json.loads(other.state.token or b"")["gpus"] == [1]
    newer.unreserve("a")
    cluster.put_pod(gpu_pod("p", 100, index=1).on_node("a"))
    last = cluster.attempt(gpu_pod("last", 1000))
    assert last.reserve("a").is_success
    assert json.loads(last.state.token or b"")["gpus"] == [0]


def test_gpus_of_a_bound_pod_are_given_once_while_the_snapshot_is_held_back() -> None:
    cluster = host(gpu_node("a", 2))
    first, second, third = (cluster.attempt(gpu_pod(name, 1000)) for name in ("first", "second", "third"))
    with cluster.hold_snapshot():
        assert first.place("a").is_success
        assert second.place("a").is_success
        assert not third.reserve("a").is_success
    assert sorted(one.pod.annotations[GPU_INDEX] for one in (first, second)) == ["0", "1"]
    assert not third.reserve("a").is_success
    cluster.remove_pod(first.pod)
    assert third.place("a").is_success
    assert third.pod.annotations[GPU_INDEX] == first.pod.annotations[GPU_INDEX]


def test_node_with_a_negative_number_of_gpus_has_none() -> None:
    ledger = Ledger(Reservations[Placement](host().handle))
    ledger.update(make_table([gpu_node("a", 2), gpu_node("b", -1), gpu_node("c", 0)]))
    assert ledger.gpu_count.tolist() == [2, 0, 0]
    assert ledger.free.tolist() == [[1000, 0, 0], [1000, 0, 0]]


@given(text=st.text(max_size=12), count=st.integers(1, 4), gpus=st.integers(0, 8))
def test_indices_are_read_or_refused(text: str, count: int, gpus: int) -> None:
    got = read_indices(text, count, gpus)
    assert got is None or (len(set(got)) == count and all(0 <= index < gpus for index in got))


@given(free=st.lists(st.integers(0, 1000), min_size=1, max_size=8), count=st.integers(1, 8), milli=MILLI)
def test_chosen_gpus_fit_and_leave_the_least(free: list[int], count: int, milli: int) -> None:
    chosen = Ledger.choose(np.asarray(free), GpuRequest(count, milli))
    fitting = sorted(left for left in free if left >= milli)
    if len(fitting) < count:
        assert chosen is None
        return
    assert chosen is not None
    assert list(chosen) == sorted(set(chosen))
    assert sorted(free[index] for index in chosen) == fitting[:count]


@given(free=st.lists(st.integers(-200, 1000), min_size=1, max_size=8), count=st.integers(1, 8), milli=MILLI)
def test_left_over_is_the_rest_of_the_chosen_gpus(free: list[int], count: int, milli: int) -> None:
    request = GpuRequest(count, milli)
    chosen = Ledger.choose(np.asarray(free), request)
    want = -1 if chosen is None else sum(free[index] - milli for index in chosen)
    column = np.asarray([free, [0] * len(free)]).T
    assert left_over_of(column, request).tolist() == [want, -1]


@pytest.mark.slow
@given(data=st.data())
def test_answer_kept_for_a_kind_of_pod_equals_that_of_a_new_plugin(data: st.DataObject) -> None:
    cluster, kept = ClusterState(), new_plugin()
    cluster.add_nodes(
        gpu_node(f"n{i}", gpus, "A10" if i % 2 else "T4") for i, gpus in enumerate((1, 2, 4, 0))
    )
    there: dict[str, Pod] = {}
    kinds = st.tuples(st.sampled_from([50, 300, 500, 1000]), st.sampled_from([1, 2]))
    for step in range(data.draw(st.integers(1, 8))):
        name = data.draw(st.sampled_from(["x", "y", "z", f"new{step}"]))
        if name.startswith("new"):
            cluster.add_nodes([gpu_node(name, data.draw(st.integers(0, 9)), "T4")])
        elif name in there:
            cluster.cache.remove_pod(there.pop(name))
        else:
            milli, count = data.draw(kinds)
            on, index = data.draw(st.sampled_from([("n1", "0"), ("n2", "3"), ("n2", "1"), ("n0", "")]))
            there[name] = gpu_pod(name, milli, count, index=index).on_node(on)
            cluster.cache.add_pod(there[name])
        cluster.snapshot.update(cluster.cache)
        nodes = cluster.nodes
        for milli, count in data.draw(st.lists(kinds, max_size=2)):
            asked, state, fresh = gpu_pod("asked", milli, count), CycleState("c"), new_plugin()
            got, want = (plugin.filter_nodes(state, asked, nodes) for plugin in (kept, fresh))
            assert isinstance(got, Verdicts)
            assert isinstance(want, Verdicts)
            assert got.to_list() == want.to_list()
            fitting = nodes.take(got.passed)
            scores = [plugin.score_nodes(state, asked, fitting).tolist() for plugin in (kept, fresh)]
            assert scores[0] == scores[1]


def test_arguments_are_refused() -> None:
    with pytest.raises(PluginArgsError, match="policy: GpuShare takes no arguments"):
        PluginHost(GpuShare, {"policy": "spread"})
